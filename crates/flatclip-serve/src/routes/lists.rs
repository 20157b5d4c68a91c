//! Lists of models, methods, prompts, class lists and limits.

use crate::{Problem, Shared};
use axum::Json;
use axum::extract::Path;
use flatclip::options::{OptionKind, OptionSpec};
use flatclip::{Model, Registry};
use serde::Serialize;
use serde_json::Value;
use std::ops::Bound;
use utoipa::ToSchema;

/// The models, in the form of OpenAI's list with more fields.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelsBody {
    object: &'static str,
    data: Vec<ModelBody>,
}

/// One model.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelBody {
    id: String,
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    /// The architecture in one line.
    architecture: String,
    /// Hash of the weights.
    weights: String,
    /// Width of the features.
    width: usize,
    /// Height and width of the input of the image tower.
    image_size: usize,
    /// Whether it has a text tower.
    has_text_tower: bool,
}

impl ModelBody {
    fn new(name: &str, model: &Model) -> Self {
        Self {
            id: name.to_owned(),
            object: "model",
            created: 0,
            owned_by: "flatclip",
            architecture: model.describe(),
            weights: model.hash().to_owned(),
            width: model.width(),
            image_size: model.config().image_size,
            has_text_tower: model.config().text.is_some(),
        }
    }
}

/// One method.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MethodBody {
    name: &'static str,
    aliases: Vec<&'static str>,
    /// `episodic`, `online` (needs a session) or `batch` (not served).
    kind: &'static str,
    summary: &'static str,
    /// What it does, formula, cost, reference.
    docs: &'static str,
    /// Default number of views.
    default_views: usize,
    /// What it needs in addition to an image and classes.
    needs: Vec<&'static str>,
    options: Vec<OptionBody>,
}

/// One option.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OptionBody {
    name: &'static str,
    /// `number`, `integer`, `flag`, `choice`, `text` or `list`.
    kind: &'static str,
    /// The values of a choice.
    choices: Vec<&'static str>,
    #[schema(value_type = Value)]
    default: Value,
    /// Lower bound.
    #[schema(required)]
    low: Option<f64>,
    /// Upper bound.
    #[schema(required)]
    high: Option<f64>,
    /// The range in words.
    range: String,
    /// Where the default comes from.
    source: &'static str,
    sentence: &'static str,
}

impl OptionBody {
    fn new(option: &OptionSpec) -> Self {
        let choices = match option.kind {
            OptionKind::Choice(choices) => choices.iter().map(|choice| choice.name).collect(),
            _ => Vec::new(),
        };
        let end = |bound: Bound<f64>| match bound {
            Bound::Included(value) | Bound::Excluded(value) => Some(value),
            Bound::Unbounded => None,
        };
        let (low, high) = option.range.bounds();
        Self {
            name: option.name,
            kind: option.kind.name(),
            choices,
            default: serde_json::to_value((option.default)()).unwrap_or_default(),
            low: end(low),
            high: end(high),
            range: option.range.to_string(),
            source: option.source,
            sentence: option.sentence,
        }
    }
}

/// One prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PromptBody {
    name: String,
    /// `templates`, `learned`, `features`, ...
    kind: &'static str,
    /// The tuner that made it.
    method: String,
    /// The class list it was learned with.
    classes: Vec<String>,
}

/// One class list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClassSetBody {
    name: String,
    classes: Vec<String>,
}

/// The limits of requests.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LimitsBody {
    body_bytes: usize,
    pixels: u64,
    images: usize,
    classes: usize,
    name_chars: usize,
    texts: usize,
    views: usize,
    option_integer: u64,
    slice_points: usize,
    deadline_ms: u64,
}

/// The models.
#[utoipa::path(get, path = "/v1/models", tag = "lists", responses((status = 200, description = "The models", body = ModelsBody)))]
pub(crate) async fn models(app: Shared) -> Json<ModelsBody> {
    let catalogue = app.catalogue();
    let data = catalogue.models.iter().map(|(entry, model)| ModelBody::new(&entry.name, model)).collect();
    Json(ModelsBody { object: "list", data })
}

/// One model.
#[utoipa::path(
    get, path = "/v1/models/{model}", tag = "lists", params(("model" = String, Path, description = "The model")),
    responses((status = 200, description = "The model", body = ModelBody))
)]
pub(crate) async fn model(app: Shared, Path(name): Path<String>) -> Result<Json<ModelBody>, Problem> {
    let catalogue = app.catalogue();
    let (name, model) = catalogue.model(Some(&name))?;
    Ok(Json(ModelBody::new(name, model)))
}

/// The methods with their options and ranges.
#[utoipa::path(get, path = "/v1/methods", tag = "lists", responses((status = 200, description = "The methods", body = Vec<MethodBody>)))]
pub(crate) async fn methods() -> Json<Vec<MethodBody>> {
    let registry = Registry::builtin();
    let body = |spec: &&'static flatclip::methods::AdapterSpec| {
        let n = &spec.needs;
        let needs = [
            (n.text_tower, "text tower"),
            (n.vit, "vision transformer"),
            (n.generated, "generated images"),
            (n.statistics, "token statistics"),
        ];
        MethodBody {
            name: spec.name,
            aliases: spec.aliases.to_vec(),
            kind: spec.kind().name(),
            summary: spec.summary,
            docs: spec.docs,
            default_views: n.default_views,
            needs: needs.into_iter().filter(|(needed, _)| *needed).map(|(_, word)| word).collect(),
            options: spec.options.iter().map(OptionBody::new).collect(),
        }
    };
    Json(registry.adapters().iter().map(body).collect())
}

/// The tuned prompts.
#[utoipa::path(get, path = "/v1/prompts", tag = "lists", responses((status = 200, description = "The prompts", body = Vec<PromptBody>)))]
pub(crate) async fn prompts(app: Shared) -> Json<Vec<PromptBody>> {
    let catalogue = app.catalogue();
    let body = |named: &crate::catalogue::NamedPrompt| PromptBody {
        name: named.entry.name.clone(),
        kind: named.prompt.kind().name(),
        method: named.prompt.provenance.method.clone(),
        classes: named.prompt.provenance.classes.clone(),
    };
    Json(catalogue.prompts.iter().map(body).collect())
}

/// The class lists.
#[utoipa::path(get, path = "/v1/class_sets", tag = "lists", responses((status = 200, description = "The class lists", body = Vec<ClassSetBody>)))]
pub(crate) async fn class_sets(app: Shared) -> Json<Vec<ClassSetBody>> {
    let catalogue = app.catalogue();
    let sets = catalogue.class_sets.iter();
    Json(sets.map(|(name, classes)| ClassSetBody { name: name.clone(), classes: classes.clone() }).collect())
}

/// The limits of requests.
#[utoipa::path(get, path = "/v1/limits", tag = "lists", responses((status = 200, description = "The limits", body = LimitsBody)))]
pub(crate) async fn limits(app: Shared) -> Json<LimitsBody> {
    let l = &app.config.limits;
    Json(LimitsBody {
        body_bytes: l.body_bytes,
        pixels: l.pixels,
        images: l.images,
        classes: l.classes,
        name_chars: l.name_chars,
        texts: l.texts,
        views: l.views,
        option_integer: l.option_integer,
        slice_points: l.slice_points,
        deadline_ms: l.deadline_ms,
    })
}

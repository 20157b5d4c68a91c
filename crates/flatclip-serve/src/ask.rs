//! What a request asks for, from its fields to a classifier.

use crate::app::App;
use crate::catalogue::Catalogue;
use crate::config::Limits;
use crate::problem::Problem;
use crate::queue::Ticket;
use flatclip::image::views::ViewPolicy;
use flatclip::methods::Kind;
use flatclip::options::{OptionKind, OptionSpec};
use flatclip::text::templates::Ensemble;
use flatclip::{Classifier, ClassifierBuilder, Prompt, Registry};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::Instant;

/// How to answer. The fields of every request that answers pictures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) model: Option<String>,
    pub(crate) classes: Option<Vec<String>>,
    pub(crate) class_set: Option<String>,
    pub(crate) template: Option<String>,
    pub(crate) templates: Option<Vec<String>>,
    pub(crate) ensemble: Option<String>,
    pub(crate) prompt: Option<String>,
    pub(crate) method: Option<String>,
    pub(crate) options: Option<Map<String, Value>>,
    pub(crate) views: Option<u64>,
    pub(crate) view_policy: Option<String>,
    pub(crate) certainty: Option<f64>,
    pub(crate) seed: Option<u64>,
    pub(crate) exif: Option<bool>,
}

/// A request body with fields of its own and the settings.
macro_rules! request {
    ($(#[$meta:meta])* $name:ident { $($(#[$own:meta])* $field:ident : $type:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, serde::Deserialize, utoipa::ToSchema)]
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $($(#[$own])* pub(crate) $field: $type,)*
            /// Name of a model; by default the first.
            #[schema(nullable = false, example = "pocket")]
            model: Option<String>,
            /// Class names.
            #[schema(nullable = false, example = json!(["fish", "lamp", "boat"]))]
            classes: Option<Vec<String>>,
            /// Name of a class list instead.
            #[schema(nullable = false)]
            class_set: Option<String>,
            /// A text with `{}` for the class name.
            #[schema(nullable = false, example = "a photo of a {}.")]
            template: Option<String>,
            /// Several of them; their features are averaged.
            #[schema(nullable = false)]
            templates: Option<Vec<String>>,
            /// A known set of templates: `imagenet7` or `imagenet80`.
            #[schema(nullable = false)]
            ensemble: Option<String>,
            /// Name of a tuned prompt.
            #[schema(nullable = false)]
            prompt: Option<String>,
            /// How to answer; by default `stss` with a sapt prompt, else `zero-shot`.
            #[schema(nullable = false, example = "stss")]
            method: Option<String>,
            /// Options of the method.
            #[schema(nullable = false, value_type = Option<std::collections::BTreeMap<String, Value>>)]
            options: Option<serde_json::Map<String, serde_json::Value>>,
            /// Views per picture; by default what the method wants.
            #[schema(nullable = false, minimum = 1, example = 16)]
            views: Option<u64>,
            /// How views are made: `crop-flip`, `augmix` or `identity`.
            #[schema(nullable = false)]
            view_policy: Option<String>,
            /// Any-time views: no more of them once the answer has this probability.
            #[schema(nullable = false)]
            certainty: Option<f64>,
            /// Seed of the views and of the method.
            #[schema(nullable = false)]
            seed: Option<u64>,
            /// Rotate images per EXIF and scale 16-bit grey (the default); `false` reads them as Pillow does.
            #[schema(nullable = false)]
            exif: Option<bool>,
        }

        impl $name {
            /// The fields that say how to answer.
            pub(crate) fn settings(&self) -> $crate::ask::Settings {
                let Self {
                    model, classes, class_set, template, templates, ensemble, prompt, method, options, views, view_policy,
                    certainty, seed, exif, ..
                } = self.clone();
                $crate::ask::Settings {
                    model, classes, class_set, template, templates, ensemble, prompt, method, options, views, view_policy,
                    certainty, seed, exif,
                }
            }
        }
    };
}
pub(crate) use request;

/// Settings that were looked up and are within the limits.
pub(crate) struct Recipe {
    pub(crate) model_name: String,
    pub(crate) kind: Kind,
    builder: ClassifierBuilder,
    key: String,
    bytes: usize,
}

impl Recipe {
    pub(crate) fn new(settings: &Settings, catalogue: &Catalogue, app: &App) -> Result<Self, Problem> {
        let limits = &app.config.limits;
        let (model_name, model) = catalogue.model(settings.model.as_deref())?;
        let (prompt, prompt_key) = prompt_of(settings, catalogue, limits)?;
        let classes = classes_of(settings, catalogue, &prompt, limits)?;
        let method = settings.method.as_deref().unwrap_or(prompt.default_method());
        let registry = Registry::builtin();
        let spec = registry.adapter(method)?;
        let options = options_of(settings.options.as_ref(), spec.options, limits)?;
        let views = settings.views.map(|views| within("views", views, limits.views as u64)).transpose()?;
        let policy: ViewPolicy = settings.view_policy.as_deref().unwrap_or("crop-flip").parse()?;
        let seed = settings.seed.unwrap_or(0);
        let key = serde_json::json!([
            model.hash(),
            model_name,
            classes,
            prompt_key,
            spec.name,
            options,
            views,
            policy.name(),
            settings.certainty,
            seed,
            settings.exif.unwrap_or(true),
        ]);
        let around = if spec.needs.bank { limits.option_integer as usize + 1 } else { 1 };
        let bytes = classes.len() * model.width() * 4 * around;
        let mut builder = Classifier::builder(model)
            .classes(classes)
            .prompt(prompt)
            .method(spec.name)
            .options(options)
            .view_policy(policy)
            .seed(seed)
            .exif(settings.exif.unwrap_or(true))
            .max_pixels(limits.pixels)
            .text_store(Arc::clone(&app.banks) as _);
        if let Some(views) = views {
            builder = builder.views(usize::try_from(views).unwrap_or(usize::MAX));
        }
        if let Some(certainty) = settings.certainty {
            builder = builder.any_time(certainty);
        }
        Ok(Self {
            model_name: model_name.to_owned(),
            kind: spec.kind(),
            builder,
            key: format!("{:x}", Hex(Sha256::digest(key.to_string().as_bytes()).as_slice())),
            bytes,
        })
    }

    /// A kept classifier, or a new one that a worker makes; requests for the same one wait for the first.
    pub(crate) async fn classifier(
        &self,
        app: &App,
        ticket: &Ticket,
        deadline: Instant,
    ) -> Result<Classifier, Problem> {
        let cell = app.classifiers.cell(&self.key, self.bytes);
        let make = || {
            let builder = self.builder.clone();
            app.queue.run(ticket, deadline, move || Ok(builder.build()?))
        };
        cell.get_or_try_init(make).await.cloned()
    }

    /// Refuses methods that learn from a stream or a set: one client must not shift another's answers.
    pub(crate) fn check_episodic(&self) -> Result<(), Problem> {
        let reason = match self.kind {
            Kind::Episodic => return Ok(()),
            Kind::Online => "learns from a stream of pictures; open a session with POST /v1/sessions",
            Kind::Batch => "answers a whole set of pictures at once, which this server does not do",
        };
        Err(Problem::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, "method.needs", format!("this method {reason}")))
    }
}

/// Bytes in hexadecimal digits.
struct Hex<'b>(&'b [u8]);

impl std::fmt::LowerHex for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn within(what: &str, asked: u64, allowed: u64) -> Result<u64, Problem> {
    match asked {
        0 => Err(Problem::invalid(what, "expected at least 1, found 0")),
        _ if asked > allowed => Err(Problem::too_much(what, asked, allowed)),
        _ => Ok(asked),
    }
}

/// The prompt, and a text that names its content.
fn prompt_of(settings: &Settings, catalogue: &Catalogue, limits: &Limits) -> Result<(Prompt, String), Problem> {
    let said = [
        settings.template.is_some(),
        settings.templates.is_some(),
        settings.ensemble.is_some(),
        settings.prompt.is_some(),
    ];
    if said.into_iter().filter(|&said| said).count() > 1 {
        return Err(Problem::invalid("prompt", "expected one of template, templates, ensemble, prompt, found several"));
    }
    if let Some(name) = &settings.prompt {
        let named = catalogue.prompt(name)?;
        return Ok((named.prompt.clone(), format!("prompt {} {name}", named.reading)));
    }
    if let Some(name) = &settings.ensemble {
        let ensemble: Ensemble = name.parse()?;
        return Ok((Prompt::templates(ensemble.templates())?, format!("ensemble {name}")));
    }
    let templates = match (&settings.template, &settings.templates) {
        (Some(one), _) => vec![one.clone()],
        (_, Some(several)) => several.clone(),
        _ => vec![Prompt::TEMPLATE.to_owned()],
    };
    if templates.len() > 100 {
        return Err(Problem::too_much("templates", templates.len(), 100));
    }
    for template in &templates {
        check_text("template", template, limits)?;
    }
    Ok((Prompt::templates(&templates)?, format!("templates {templates:?}")))
}

/// A text that is not too long for the limits.
pub(crate) fn check_text(what: &str, text: &str, limits: &Limits) -> Result<(), Problem> {
    let chars = text.chars().count();
    if chars > limits.name_chars {
        return Err(Problem::too_much(&format!("characters of a {what}"), chars, limits.name_chars));
    }
    Ok(())
}

fn classes_of(
    settings: &Settings,
    catalogue: &Catalogue,
    prompt: &Prompt,
    limits: &Limits,
) -> Result<Vec<String>, Problem> {
    let classes = match (&settings.classes, &settings.class_set) {
        (Some(_), Some(_)) => return Err(Problem::invalid("classes", "expected classes or class_set, found both")),
        (None, Some(name)) => return Ok(catalogue.class_set(name)?.to_vec()),
        (None, None) if !prompt.provenance.classes.is_empty() => return Ok(prompt.provenance.classes.clone()),
        (None, None) => return Err(Problem::invalid("classes", "expected class names, or a class_set, found none")),
        (Some(classes), None) => classes,
    };
    if classes.len() > limits.classes {
        return Err(Problem::too_much("classes", classes.len(), limits.classes));
    }
    for name in classes {
        check_text("class name", name, limits)?;
    }
    Ok(classes.iter().map(|name| name.trim().to_owned()).collect())
}

/// The options as the library takes them. Whole numbers are capped: steps and perturbations cost time.
fn options_of(
    given: Option<&Map<String, Value>>,
    known: &[OptionSpec],
    limits: &Limits,
) -> Result<flatclip::options::Table, Problem> {
    let mut options = flatclip::options::Table::new();
    for (key, value) in given.into_iter().flatten() {
        let spec = known.iter().find(|spec| spec.name == key || spec.aliases.contains(&key.as_str()));
        let is_integer = spec.is_some_and(|spec| matches!(spec.kind, OptionKind::Integer));
        if let Some(number) = value.as_u64().filter(|_| is_integer)
            && number > limits.option_integer
        {
            return Err(Problem::too_much(&format!("option {key}"), number, limits.option_integer));
        }
        let value = flatclip::options::Value::try_from(value).map_err(|_| {
            Problem::invalid(&format!("options.{key}"), "expected a number, a text, true or false, or a list")
        })?;
        options.insert(key.clone(), value);
    }
    Ok(options)
}

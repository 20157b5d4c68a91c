//! Resolves the fields of a request to a classifier.

use crate::builds::{BuildCost, Order};
use crate::cache::Cached;
use crate::catalogue::{Catalogue, duplicate};
use crate::cost;
use crate::typed::{Few, Options};
use crate::{App, Caller, Limits, Problem, Weight};
use flatclip::digest::Digest;
use flatclip::image::views::ViewPolicy;
use flatclip::methods::{AdapterSpec, Kind};
use flatclip::options::{OptionKind, OptionSpec, Table};
use flatclip::prompt::PromptContent;
use flatclip::text::templates::Ensemble;
use flatclip::{Classifier, Model, Prompt, Registry};
use std::sync::Arc;

/// Defines a request body with its own fields and the shared settings.
macro_rules! request {
    ($(#[$meta:meta])* $name:ident { $($(#[$own:meta])* $field:ident : $type:ty),* $(,)? }) => {
        #[derive(Clone, Debug, Default, serde::Deserialize, utoipa::ToSchema)]
        $(#[$meta])*
        #[serde(deny_unknown_fields, default)]
        pub(crate) struct $name {
            $($(#[$own])* pub(crate) $field: $type,)*
            /// Name of a model; by default the first.
            #[schema(nullable = false, example = "pocket")]
            pub(crate) model: Option<String>,
            /// Class names.
            #[schema(nullable = false, value_type = Option<Vec<String>>, example = json!(["fish", "lamp", "boat"]))]
            pub(crate) classes: Option<$crate::typed::Names>,
            /// Name of a class list instead.
            #[schema(nullable = false)]
            pub(crate) class_set: Option<String>,
            /// A text with `{}` for the class name.
            #[schema(nullable = false, example = "a photo of a {}.")]
            pub(crate) template: Option<String>,
            /// Several templates; their features are averaged.
            #[schema(nullable = false, value_type = Option<Vec<String>>)]
            pub(crate) templates: Option<$crate::typed::Names>,
            /// A known set of templates: `imagenet7` or `imagenet80`.
            #[schema(nullable = false)]
            pub(crate) ensemble: Option<String>,
            /// Name of a tuned prompt.
            #[schema(nullable = false)]
            pub(crate) prompt: Option<String>,
            /// Method; by default `stss` with a sapt prompt, else `zero-shot`.
            #[schema(nullable = false, example = "stss")]
            pub(crate) method: Option<String>,
            /// Options of the method.
            #[schema(nullable = false, value_type = Option<std::collections::BTreeMap<String, Value>>)]
            pub(crate) options: Option<$crate::typed::Options>,
            /// Views per image; by default the method's.
            #[schema(nullable = false, minimum = 1, example = 16)]
            pub(crate) views: Option<u64>,
            /// How views are made: `crop-flip`, `augmix` or `identity`.
            #[schema(nullable = false)]
            pub(crate) view_policy: Option<String>,
            /// Any-time views: no more of them once the answer has this probability.
            #[schema(nullable = false)]
            pub(crate) certainty: Option<f64>,
            /// Seed of the views and of the method.
            #[schema(nullable = false)]
            pub(crate) seed: Option<u64>,
            /// Rotate images per EXIF and scale 16-bit grey (the default); `false` reads them as Pillow does.
            #[schema(nullable = false)]
            pub(crate) exif: Option<bool>,
        }

        impl $name {
            #[allow(dead_code, reason = "`Settings` itself is used as it is")]
            pub(crate) fn take_settings(&mut self) -> $crate::ask::Settings {
                $crate::ask::Settings {
                    model: self.model.take(),
                    classes: self.classes.take(),
                    class_set: self.class_set.take(),
                    template: self.template.take(),
                    templates: self.templates.take(),
                    ensemble: self.ensemble.take(),
                    prompt: self.prompt.take(),
                    method: self.method.take(),
                    options: self.options.take(),
                    views: self.views.take(),
                    view_policy: self.view_policy.take(),
                    certainty: self.certainty.take(),
                    seed: self.seed.take(),
                    exif: self.exif.take(),
                }
            }
        }
    };
}
pub(crate) use request;

request! {
    /// How the session answers.
    #[schema(as = SessionRequest)]
    Settings {}
}

/// Resolved settings within the limits.
pub(crate) struct Recipe {
    pub(crate) model_name: String,
    pub(crate) kind: Kind,
    /// Number of class names, and bytes of the longest.
    pub(crate) classes: usize,
    name_bytes: usize,
    pub(crate) views: usize,
    /// Texts that go through the text tower for each image.
    image_texts: usize,
    pub(crate) order: Order,
}

/// What all images of a request share.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) classifier: Cached,
    pub(crate) top: usize,
    /// Whether to include the prediction and the region of each view.
    pub(crate) explain: bool,
    /// For tests of panics.
    pub(crate) panic: bool,
}

/// Maximum bytes of activations for gradients through a text tower; each classifier of such a method may hold this many.
pub(crate) const ACTIVATIONS: usize = 32 << 20;
/// Bytes of activations per text, layer and channel: tokens of a short text times the values a block stores for each.
const PER_TEXT: usize = 8 * 12 * 4;
/// Cost of a gradient step in passes of the text tower: forward, backward and recomputation.
const PASSES: usize = 4;

/// With more class names, settings are resolved outside of the threads that serve connections.
const MANY: usize = 128;

impl Recipe {
    pub(crate) async fn find(app: &Arc<App>, settings: Settings) -> Result<Self, Problem> {
        let count = match (&settings.classes, &settings.class_set) {
            (Some(Few(classes)), _) => classes.len(),
            (None, Some(_)) => MANY + 1,
            (None, None) => 0,
        };
        let own = Arc::clone(app);
        app.apart(count > MANY, move || Self::new(&settings, &own.catalogue(), &own)).await
    }

    fn new(settings: &Settings, catalogue: &Catalogue, app: &App) -> Result<Self, Problem> {
        let limits = &app.config.limits;
        let (model_name, model) = catalogue.model(settings.model.as_deref())?;
        let (prompt, prompt_key) = prompt_of(settings, catalogue, limits)?;
        let classes = classes_of(settings, catalogue, &prompt, limits)?;
        let method = settings.method.as_deref().unwrap_or(prompt.default_method());
        let registry = Registry::builtin();
        let spec = registry.adapter(method)?;
        let options = options_of(settings.options.as_ref(), spec.options, limits)?;
        let views = match settings.views {
            Some(0) => return Err(Problem::invalid("views", "expected at least 1, found 0")),
            Some(views) if views > limits.views as u64 => return Err(Problem::too_much("views", views, limits.views)),
            views => views.map(|views| usize::try_from(views).unwrap_or(usize::MAX)),
        };
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
        let used_views = views.unwrap_or(spec.needs.default_views);
        let cost = build_cost(model, &prompt, classes.len(), used_views, spec, &options);
        let image_texts = image_texts(&prompt, classes.len(), spec, &options);
        let (count, name_bytes) = (classes.len(), classes.iter().map(String::len).max().unwrap_or(0));
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
            builder = builder.views(views);
        }
        if let Some(certainty) = settings.certainty {
            builder = builder.any_time(certainty);
        }
        Ok(Self {
            model_name: model_name.to_owned(),
            kind: spec.kind(),
            classes: count,
            name_bytes,
            views: used_views,
            image_texts,
            order: Order { key: Digest::default().bytes(key.to_string()).hex(), model: model.clone(), builder, cost },
        })
    }

    /// A cached classifier, or a new one; requests for the same one share its build.
    pub(crate) async fn classifier(&self, caller: &Caller) -> Result<Cached, Problem> {
        let Caller { app, client, deadline } = caller;
        match app.builds.classifiers.get(&self.order.key) {
            Some(cached) => Ok(cached),
            None => app.builds.get(self.order.clone(), *client, *deadline).await,
        }
    }

    /// The same with the settings of the answers.
    pub(crate) async fn asked(
        &self,
        caller: &Caller,
        (top, explain, panic): (usize, bool, bool),
    ) -> Result<Asked, Problem> {
        Ok(Asked { model: self.model_name.clone(), classifier: self.classifier(caller).await?, top, explain, panic })
    }

    pub(crate) fn is_cached(&self, app: &App) -> bool {
        app.builds.classifiers.get(&self.order.key).is_some()
    }

    /// The weight of a job on this many images; an image whose estimated time exceeds the deadline is refused with the estimate.
    pub(crate) fn weight(&self, app: &App, images: usize) -> Result<Weight, Problem> {
        let seconds = self.text_seconds(app, "classes x steps", self.image_texts)?;
        Ok(Weight::new(self.views.saturating_mul(images), seconds * images as f64))
    }

    /// Estimated seconds for this many texts, which must be below the deadline.
    pub(crate) fn text_seconds(&self, app: &App, what: &str, texts: usize) -> Result<f64, Problem> {
        let Some(rate) = app.builds.rates.known(&self.order.model).filter(|_| texts > 0) else { return Ok(0.0) };
        let seconds = texts as f64 / rate;
        cost::check(what, texts, seconds, app.config.limits.deadline())?;
        Ok(seconds)
    }

    /// Maximum bytes of the answer for an image.
    pub(crate) fn answer_bytes(&self, top: usize, explain: bool) -> usize {
        let class = self.name_bytes * 2 + 80;
        let views = if explain { self.views.saturating_mul(3 * class + 200) } else { 0 };
        let all = top.min(self.classes).saturating_mul(class).saturating_add(views);
        all.saturating_add(self.views.saturating_mul(48)).saturating_add(512)
    }

    /// Refuses methods that learn from a stream or a set: one client must not influence another's answers.
    pub(crate) fn check_episodic(&self) -> Result<(), Problem> {
        let reason = match self.kind {
            Kind::Episodic => return Ok(()),
            Kind::Online => "learns from a stream of images",
            Kind::Batch => "answers a whole set of images at once, which this server does not do",
        };
        let status = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
        let problem = Problem::new(status, "method.needs", format!("this method {reason}"));
        let is_online = self.kind == Kind::Online;
        Err(if is_online { problem.with_hint("open a session with POST /v1/sessions") } else { problem })
    }
}

/// Bytes of the input pixels of a view, plus a fraction of them for the activations of the tower.
pub(crate) fn view_bytes(model: &Model) -> usize {
    let side = model.config().image_size;
    side * side * 3 * 5
}

/// The value of an integer option, or its default.
fn whole(options: &Table, spec: &AdapterSpec, name: &str) -> Option<usize> {
    let known = spec.options.iter().find(|option| option.name == name)?;
    let given =
        std::iter::once(known.name).chain(known.aliases.iter().copied()).find_map(|key| options.get(key).cloned());
    usize::try_from(given.unwrap_or_else(known.default).as_integer()?).ok()
}

fn templates(prompt: &Prompt) -> usize {
    match &prompt.content {
        PromptContent::Templates(templates)
        | PromptContent::TipAdapter { templates, .. }
        | PromptContent::Linear { templates, .. } => templates.len(),
        PromptContent::Features(_) => 0,
        _ => 1,
    }
}

/// Number of contexts that a method with gradients adapts.
fn starts(prompt: &Prompt, spec: &AdapterSpec) -> usize {
    match spec.needs.text_tower && !spec.needs.bank {
        false => 0,
        true if spec.needs.ensembles => templates(prompt).max(1),
        true => 1,
    }
}

fn build_cost(
    model: &Model,
    prompt: &Prompt,
    classes: usize,
    views: usize,
    spec: &AdapterSpec,
    options: &Table,
) -> BuildCost {
    let around = if spec.needs.bank { whole(options, spec, "perturbations").unwrap_or(0) } else { 0 };
    let starts = starts(prompt, spec);
    let per_start =
        model.config().text.as_ref().map_or(0, |text| {
            classes.saturating_mul(text.layers * text.width).saturating_mul(PER_TEXT).min(ACTIVATIONS)
        });
    // Features, packed features, the bank, its packed form and the copy of it in the cache.
    let rows = classes.saturating_mul(2 + 3 * around);
    let names = classes.saturating_mul(256);
    let bytes =
        rows.saturating_mul(model.width() * 4).saturating_add(names).saturating_add(starts.saturating_mul(per_start));
    BuildCost {
        texts: classes.saturating_mul(templates(prompt) + around + starts),
        bytes,
        work_bytes: (starts.min(1) * per_start).saturating_add(views.saturating_mul(view_bytes(model))),
    }
}

fn image_texts(prompt: &Prompt, classes: usize, spec: &AdapterSpec, options: &Table) -> usize {
    let steps = whole(options, spec, "steps").unwrap_or(1);
    classes.saturating_mul(starts(prompt, spec)).saturating_mul(steps).saturating_mul(PASSES)
}

/// The prompt, and a cache key of its content.
fn prompt_of(settings: &Settings, catalogue: &Catalogue, limits: &Limits) -> Result<(Prompt, String), Problem> {
    let Settings { template, templates, ensemble, prompt, .. } = settings;
    let given = [template.is_some(), templates.is_some(), ensemble.is_some(), prompt.is_some()];
    if given.into_iter().filter(|&given| given).count() > 1 {
        return Err(Problem::invalid("prompt", "expected one of template, templates, ensemble, prompt, found several"));
    }
    if let Some(name) = prompt {
        let named = catalogue.prompt(name)?;
        return Ok((named.prompt.clone(), format!("prompt {} {name}", named.reading)));
    }
    if let Some(name) = ensemble {
        let ensemble: Ensemble = name.parse()?;
        return Ok((Prompt::templates(ensemble.templates())?, format!("ensemble {name}")));
    }
    let templates = match (template, templates) {
        (Some(one), _) => vec![one.clone()],
        (_, Some(Few(several))) if several.len() > 100 => {
            return Err(Problem::too_much("templates", several.len(), 100));
        }
        (_, Some(Few(several))) => several.clone(),
        _ => vec![Prompt::TEMPLATE.to_owned()],
    };
    for template in &templates {
        check_text("template", template, limits)?;
    }
    Ok((Prompt::templates(&templates)?, format!("templates {templates:?}")))
}

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
        (None, None) => {
            return Err(Problem::invalid("classes", "expected class names, or a class_set, found none").with_hint(
                "give names as classes, or the name of a list as class_set; GET /v1/class_sets lists them",
            ));
        }
        (Some(Few(classes)), None) => classes,
    };
    if classes.len() > limits.classes {
        return Err(Problem::too_much("classes", classes.len(), limits.classes));
    }
    for name in classes {
        check_text("class name", name, limits)?;
    }
    if let Some(name) = duplicate(classes) {
        return Err(Problem::invalid("classes", format_args!("{name:?} is a duplicate"))
            .with_hint("give each class name once: the probability of a class would be split between its names"));
    }
    Ok(classes.iter().map(|name| name.trim().to_owned()).collect())
}

/// Converts the options for the library. Integers above the limit are refused: steps and perturbations cost time.
fn options_of(given: Option<&Options>, known: &[OptionSpec], limits: &Limits) -> Result<Table, Problem> {
    let Some(Options(options)) = given else { return Ok(Table::new()) };
    for (key, value) in options {
        let spec = known.iter().find(|spec| spec.name == key || spec.aliases.contains(&key.as_str()));
        let is_integer = spec.is_some_and(|spec| matches!(spec.kind, OptionKind::Integer));
        if let Some(number) = value.as_integer().filter(|_| is_integer)
            && u64::try_from(number).is_ok_and(|number| number > limits.option_integer)
        {
            return Err(Problem::too_much(&format!("option {key}"), number, limits.option_integer));
        }
    }
    Ok(options.clone())
}

//! `--model` and what belongs to it.

use crate::inputs::classes::did_you_mean;
use crate::output::Output;
use anyhow::{Result, bail};
use flatclip::architecture::Activation;
use flatclip::model::Precision;
use flatclip::{Model, ModelBuilder};
use std::path::PathBuf;

const EMBEDDED: &str = "pocket";

#[derive(clap::Args, Debug)]
pub(crate) struct ModelArgs {
    /// A checkpoint file, a model directory, a known name such as ViT-B-16/openai, `pocket`, `pocket-vit`, or `random:ViT-B-16`
    /// [default: pocket]
    #[arg(long, short, env = "FLATCLIP_MODEL", value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    pub(crate) find: FindArgs,
    /// Arithmetic of the image tower; auto is bf16 where the CPU has AMX, i16 where it has AVX2 alone or AVX-512 with VNNI,
    /// else f32. The text tower and the gradients of contexts are f32 unless a command says otherwise
    #[arg(long, env = "FLATCLIP_PRECISION", value_parser = PRECISIONS, default_value = "auto", value_name = "NAME")]
    precision: String,
}

#[derive(clap::Args, Debug)]
pub(crate) struct FindArgs {
    /// Where known names are looked for first
    #[arg(long, env = "FLATCLIP_MODEL_DIR", value_name = "DIR")]
    pub(crate) model_dir: Option<PathBuf>,
    /// Never fetch a model, only look on disk
    #[arg(long, env = "FLATCLIP_OFFLINE")]
    pub(crate) offline: bool,
    /// Override the activation (quick-gelu, gelu) that the checkpoint states or its family suggests
    #[arg(long, value_name = "NAME")]
    pub(crate) activation: Option<String>,
}

pub(crate) const PRECISIONS: [&str; 4] = ["auto", "f32", "bf16", "i16"];

/// Auto is decided for this machine, and not while options are read: one of them may force an instruction set.
pub(crate) fn precision(name: &str) -> Precision {
    Precision::from_name(name).unwrap_or_else(Precision::auto)
}

impl FindArgs {
    pub(crate) fn builder(&self, model: &str) -> Result<ModelBuilder> {
        let mut builder = Model::builder(model).offline(self.offline);
        if let Some(folder) = &self.model_dir {
            builder = builder.model_dir(folder);
        }
        if let Some(word) = &self.activation {
            let Some(activation) = Activation::parse(word) else {
                bail!("--activation: expected quick-gelu or gelu, found {word:?}");
            };
            builder = builder.activation(activation);
        }
        Ok(builder)
    }
}

impl ModelArgs {
    pub(crate) fn name(&self) -> &str {
        self.model.as_deref().unwrap_or(EMBEDDED)
    }

    pub(crate) fn is_named(&self) -> bool {
        self.model.is_some()
    }

    /// Says that the embedded model was not trained for this input, where nobody asked for it: a toy model answers real photos and words
    /// that it never saw as readily as its own drawings. `side` is the longer side of an image that was seen.
    pub(crate) fn warn_outside(&self, classes: &[String], side: Option<usize>, out: &Output) {
        if self.model.is_some() {
            return;
        }
        let known = |class: &String| flatclip_pocket::CLASS_NAMES.iter().any(|name| name.eq_ignore_ascii_case(class));
        let foreign = classes.iter().find(|class| !known(class));
        let reason = match (foreign, side) {
            (Some(class), _) => {
                let near = did_you_mean(class, &flatclip_pocket::CLASS_NAMES);
                format!("{class:?} is none of its {} classes{near}", flatclip_pocket::CLASS_NAMES.len())
            }
            (None, Some(side)) if side != flatclip_pocket::SIDE => {
                "this is not an image of the pocket dataset".to_owned()
            }
            _ => return,
        };
        out.warn(format_args!(
            "the embedded pocket model was trained on synthetic drawings only, and {reason}: predictions are not meaningful here. For photos give \
             --model ViT-B-16/openai (fetched once) or a checkpoint of yours; --model pocket silences this"
        ));
    }

    pub(crate) fn load(&self, out: &Output) -> Result<Model> {
        let builder = self.find.builder(self.name())?.precision(precision(&self.precision));
        let model = builder.load(out)?;
        out.note(format_args!("{}: {}", model.name(), model.describe()));
        Ok(model)
    }
}

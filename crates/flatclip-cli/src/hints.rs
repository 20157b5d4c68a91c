//! What helps, as flags: the library's hints are in neutral words.

use flatclip::Hint;

pub(crate) fn as_flags(hint: &Hint) -> String {
    let text = match hint {
        Hint::Model => "give --model",
        Hint::TextFeatures => "give class embeddings with --text-features FILE",
        Hint::Tune(tuner) => return format!("make one with `flatclip tune --method {tuner}`"),
        Hint::ImportPrompt => {
            "convert a checkpoint of CoOp, CoCoOp, MaPLe or Tip-Adapter with `flatclip prompt import FILE --out \
             prompt.safetensors`; give class embeddings with --text-features"
        }
        Hint::Statistics => {
            "make them with `flatclip stats --data DATA --prompt PROMPT --out FILE`, then give --statistics FILE"
        }
        Hint::Generated => "give --generated DIR",
        Hint::Resume => "--resume continues it",
        Hint::ResumeOrElsewhere => "give --resume to continue it, or another --out",
        Hint::Elsewhere => "give another --out",
        Hint::AllowErrors(count) => return format!("fix them, or skip them: --max-errors {count}"),
        Hint::FewerShots => "lower --shots, or give --allow-fewer",
        Hint::HeldOut => "give --held-out N, or --set the values",
        Hint::DataRoot(name) => return format!("give --data-root DIR (or, in eval and sweep, --path {name}=DIR)"),
        Hint::Again(what) => return format!("run `flatclip {what}` again"),
        Hint::List(what @ ("models" | "methods")) => return format!("`flatclip {what}` lists them"),
        Hint::List("data sets") => "`flatclip data ls` lists them",
        Hint::List(_) => "`flatclip cache ls` lists them",
        Hint::Evaluate => "measure its prompt with `flatclip eval --prompt RUN`",
        Hint::OtherModel => "name the model it was learned with (predict, eval and sweep accept it with --any-model)",
        Hint::ServerKey => {
            "give a key by --key-file FILE or the environment variable FLATCLIP_SERVE_KEY; or, where nobody \
             else can reach the address, --insecure"
        }
        other => return other.to_string(),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatclip::model::{Clip, ClipConfig, LoadOptions, Towers};

    #[test]
    fn a_model_without_a_text_tower_points_to_text_features() {
        let config = ClipConfig { text: None, ..ClipConfig::named("ViT-B-32").unwrap() };
        let small = flatclip::model::ImageConfig::Vit {
            width: 64,
            layers: 1,
            heads: 1,
            patch: 16,
            mlp: 64,
            form: flatclip::model::VitForm::CLIP,
        };
        let config = ClipConfig { image: small, image_size: 32, embed_dim: 16, ..config };
        let checkpoint = flatclip::weights::random_of(&config, 0);
        let error = Clip::load(&checkpoint, LoadOptions::of(Towers::Both)).unwrap().text().unwrap_err();
        assert!(error.to_string().contains("no text tower"), "{error}");
        assert!(as_flags(error.hint().unwrap()).contains("--text-features"));
    }
}

//! What helps, as flags: the library's hints are in neutral words.

use flatclip::Hint;

/// The hint as something to type.
pub(crate) fn as_flags(hint: &Hint) -> String {
    match hint {
        Hint::Model => "give --model".to_owned(),
        Hint::TextFeatures => "give class embeddings with --text-features FILE".to_owned(),
        Hint::Tune(tuner) => format!("make one with `flatclip tune --method {tuner}`"),
        Hint::ImportPrompt => "use `flatclip prompt import`, or --text-features".to_owned(),
        Hint::Statistics => {
            "make them with `flatclip stats --data DATA --prompt PROMPT --out FILE`, then give --statistics FILE"
                .to_owned()
        }
        Hint::Generated => "give --generated DIR".to_owned(),
        Hint::Resume => "--resume goes on".to_owned(),
        Hint::ResumeOrElsewhere => "give --resume to go on with it, or another --out".to_owned(),
        Hint::Elsewhere => "give another --out".to_owned(),
        Hint::AllowErrors(count) => format!("mend them, or go on without them: --max-errors {count}"),
        Hint::FewerShots => "lower --shots, or give --allow-fewer".to_owned(),
        Hint::HeldOut => "give --held-out N, or --set the values".to_owned(),
        Hint::DataRoot(name) => format!("give --data-root DIR (or, in eval and sweep, --path {name}=DIR)"),
        Hint::Again(what) => format!("run `flatclip {what}` again"),
        Hint::List(what) => match *what {
            "models" => "`flatclip models` lists them".to_owned(),
            "methods" => "`flatclip methods` lists them".to_owned(),
            "data sets" => "`flatclip data ls` lists them".to_owned(),
            _ => "`flatclip cache ls` lists them".to_owned(),
        },
        Hint::Evaluate => "measure its prompt with `flatclip eval --prompt RUN`".to_owned(),
        Hint::OtherModel => {
            "name the model it was learned with (predict, eval and sweep accept it with --any-model)".to_owned()
        }
        other => other.to_string(),
    }
}

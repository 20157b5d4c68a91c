//! Turns the library's hints, which do not depend on the interface, into Python code.

use flatclip::Hint;

/// The hint as Python keyword arguments and calls.
pub(crate) fn in_python(hint: &Hint) -> String {
    match hint {
        Hint::Model => "give a model: flatclip.load(...)".to_owned(),
        Hint::TextFeatures => "give class embeddings as prompt=array".to_owned(),
        Hint::Tune(tuner) => format!("make one with flatclip.tune(method={tuner:?}, ...)"),
        Hint::ImportPrompt => "give it as class embeddings: prompt=array".to_owned(),
        Hint::Statistics => "make them with `flatclip stats`, then give statistics=FILE".to_owned(),
        Hint::Generated => "give generated=FOLDER".to_owned(),
        Hint::Resume => "resume=True goes on".to_owned(),
        Hint::ResumeOrElsewhere => "give resume=True to continue it, or another out=".to_owned(),
        Hint::Elsewhere => "give another out=".to_owned(),
        Hint::AllowErrors(count) => format!("fix them, or skip them: max_errors={count}"),
        Hint::FewerShots => "lower shots=, or give allow_fewer=True".to_owned(),
        Hint::HeldOut => "give held_out=N, or set the values".to_owned(),
        Hint::DataRoot(name) => format!("give root=FOLDER, or paths={{{name:?}: FOLDER}}"),
        Hint::List(what) => match *what {
            "models" => "flatclip.list_models() lists them".to_owned(),
            "methods" => "flatclip.list_methods() lists them".to_owned(),
            other => format!("list the {other}"),
        },
        Hint::OtherModel => "load the model it was learned with, or give any_model=True".to_owned(),
        other => other.to_string(),
    }
}

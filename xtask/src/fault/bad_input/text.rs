//! Options and texts that nobody should write.

use crate::fault::Trial;
use anyhow::{Result, ensure};
use flatclip::methods::ADAPTERS;
use flatclip::text::Tokenizer;

/// B10: every option of every adapter with values of a wrong type or out of any range.
pub(super) fn options(trial: &mut Trial) -> Result<()> {
    let wrong: Vec<(&str, toml::Value)> = vec![
        ("a text", "nonsense".into()),
        ("an empty text", "".into()),
        ("a list", toml::Value::Array(vec![1.into(), "x".into()])),
        ("a table", toml::Table::new().into()),
        ("the least number", i64::MIN.into()),
        ("the largest number", i64::MAX.into()),
        ("not a number", f64::NAN.into()),
        ("infinity", f64::INFINITY.into()),
        ("a truth", true.into()),
    ];
    for spec in ADAPTERS.iter() {
        let defaults = spec.defaults();
        for key in defaults.keys() {
            for (name, value) in &wrong {
                let table = toml::Table::from_iter([(key.clone(), value.clone())]);
                let mut refused = 0;
                trial.case(&format!("{}.{key} = {name}", spec.name), || {
                    // A text or a truth may be what the option wants; whatever is refused names the key.
                    match spec.build(&table) {
                        Ok(_) => ensure!(!["a list", "a table", "not a number"].contains(name), "was taken"),
                        Err(error) => {
                            refused = 1;
                            let text = error.to_string();
                            ensure!(text.contains(key.as_str()), "names no key: {text}");
                        }
                    }
                    Ok(())
                });
                trial.add("refused", refused);
            }
        }
        trial.case(&format!("{}: an unknown option", spec.name), || {
            let table = toml::Table::from_iter([("nonsense".to_owned(), 1.into())]);
            let text = spec.build(&table).err().map(|error| error.to_string()).unwrap_or_default();
            ensure!(text.contains("nonsense"), "{text}");
            Ok(())
        });
    }
    Ok(())
}

/// B11: texts at the edges of Unicode and of the tower.
pub(super) fn texts(trial: &mut Trial) -> Result<()> {
    let (long, word) = ("word ".repeat(20_000), "a".repeat(10_000));
    let texts: Vec<(&str, &str)> = vec![
        ("empty", ""),
        ("spaces", "  \t \u{a0}\u{3000} "),
        ("NUL", "a\0b"),
        ("escape", "\u{1b}[31mred\u{1b}[0m"),
        ("100 000 characters", &long),
        ("one word of 10 000 letters", &word),
        ("right to left", "קָטָן \u{202e}abc"),
        ("emoji with joiners", "👨\u{200d}👩\u{200d}👧\u{200d}👦"),
        ("combining marks", "e\u{301}\u{301}\u{301}"),
        ("replacement", "\u{fffd}\u{fffe}"),
        ("markup", "&amp;amp;lt;b&gt; &#0; &#x110000; &nosuch;"),
        ("mojibake", "schÃ¶n â€œquotedâ€\u{9d}"),
        ("private use", "\u{e000}\u{10ffff}"),
        ("special tokens", "<|startoftext|> <|endoftext|>"),
        ("line ends", "a\r\nb\nc\u{2028}d"),
    ];
    let tokenizer = Tokenizer::clip();
    for (name, text) in texts {
        trial.case(name, || {
            let ids = tokenizer.encode(text);
            ensure!(ids.iter().all(|&id| id < 49_408), "an id outside of the vocabulary");
            let _ = tokenizer.decode(&ids);
            match tokenizer.sequence(text, 77, false) {
                Ok(ids) => ensure!(ids.len() <= 77, "{} tokens", ids.len()),
                Err(error) => {
                    ensure!(error.to_string().len() < 2000, "a refusal of {} characters", error.to_string().len())
                }
            }
            ensure!(tokenizer.sequence(text, 77, true)?.len() <= 77, "was not cut");
            Ok(())
        });
    }
    trial.case("a text of 78 tokens is refused and not cut in silence", || {
        ensure!(tokenizer.sequence(&long, 77, false).is_err(), "was taken");
        Ok(())
    });
    Ok(())
}

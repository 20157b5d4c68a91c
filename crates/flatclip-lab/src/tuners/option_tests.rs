//! Promises that the declarations of all methods keep: adapters, tuners, `[train]` and `[views]`.

use crate::data::KNOWN;
use crate::data::train_images::TrainViews;
use crate::tuners::{Recipe, TUNERS};
use flatclip::Result;
use flatclip::methods::adapters::presets::Benchmark;
use flatclip::methods::{ADAPTERS, TUNER_NAMES, adapter, build_adapter};
use flatclip::options::{OptionKind, OptionSpec, Table, Value, complete, defaults};
use std::ops::Bound;

type Read = Box<dyn Fn(&Table) -> Result<()>>;

/// One declaration: its table, its options, and what reads them.
struct Declared {
    table: &'static str,
    options: &'static [OptionSpec],
    read: Read,
}

fn all() -> Vec<Declared> {
    let adapters = ADAPTERS.iter().map(|spec| Declared {
        table: spec.name,
        options: spec.options,
        read: Box::new(|table| build_adapter(spec.name, table).map(drop)),
    });
    let tuners =
        TUNERS.iter().map(|spec| Declared { table: spec.table, options: spec.options, read: Box::new(spec.check) });
    let shared = [
        Declared {
            table: Recipe::NAME,
            options: Recipe::OPTIONS,
            read: Box::new(|table| Recipe::read(table).map(drop)),
        },
        Declared {
            table: TrainViews::NAME,
            options: TrainViews::OPTIONS,
            read: Box::new(|table| TrainViews::read(table).map(drop)),
        },
    ];
    adapters.chain(tuners).chain(shared).collect()
}

fn with(key: &str, value: Value) -> Table {
    Table::from_iter([(key.to_owned(), value)])
}

/// Values just outside a range, of the kind of the option.
fn outside(option: &OptionSpec) -> Vec<Value> {
    let (low, high) = option.range.bounds();
    let below = match low {
        Bound::Included(low) => Some(low - 1.0),
        Bound::Excluded(low) => Some(low),
        Bound::Unbounded => None,
    };
    let above = match high {
        Bound::Included(high) => Some(high + 1.0),
        Bound::Excluded(high) => Some(high),
        Bound::Unbounded => None,
    };
    let of_kind = |number: f64| match option.kind {
        OptionKind::Integer => Value::Integer(number as i64),
        OptionKind::List(OptionKind::Integer, length) => {
            Value::Array(vec![(number as i64).into(); length.unwrap_or(1)])
        }
        OptionKind::List(_, length) => Value::Array(vec![number.into(); length.unwrap_or(1)]),
        _ => Value::Float(number),
    };
    below.into_iter().chain(above).map(of_kind).collect()
}

#[test]
fn every_option_has_a_sentence_a_source_and_a_default_that_it_accepts() {
    let mut seen = 0;
    for declared in all() {
        for option in declared.options {
            let place = format!("{}.{}", declared.table, option.name);
            assert!(option.sentence.ends_with(['.', ')']) && option.sentence.len() > 5, "{place}: {}", option.sentence);
            assert!(!option.source.is_empty(), "{place}");
            let default = (option.default)();
            assert_eq!(option.accept(&default).unwrap(), default, "{place}");
            if let OptionKind::Choice(choices) = option.kind {
                choices.iter().for_each(|choice| assert!(!choice.sentence.is_empty(), "{place} {}", choice.name));
            }
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen}");
}

#[test]
fn printed_defaults_are_what_nothing_said_means() {
    for declared in all() {
        let printed = defaults(declared.options);
        let text = toml::to_string(&printed).unwrap();
        let back: Table = text.parse().unwrap();
        assert_eq!(back, printed, "{}", declared.table);
        assert_eq!(complete(declared.table, declared.options, &back).unwrap(), printed, "{}", declared.table);
        (declared.read)(&back).unwrap_or_else(|e| panic!("{}: {e}", declared.table));
    }
    assert_eq!(Recipe::read(&Recipe::default().table()).unwrap(), Recipe::default());
    assert_eq!(Recipe::read(&defaults(Recipe::OPTIONS)).unwrap(), Recipe::default());
}

#[test]
fn unknown_mistyped_and_misranged_options_are_refused_by_name() {
    let mut ranged = 0;
    for declared in all() {
        let refused = |key: &str, value: Value| {
            let error = (declared.read)(&with(key, value)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{}.{key}: ", declared.table)), "{error}");
        };
        refused("no_such", Value::Integer(1));
        for option in declared.options {
            let wrong = if (option.default)().is_str() { Value::Float(0.5) } else { Value::String("x".into()) };
            refused(option.name, wrong);
            if let OptionKind::Choice(choices) = option.kind {
                refused(option.name, Value::String("no-such".into()));
                for choice in choices {
                    let text = choice.name.replace(":Q", ":0.5");
                    (declared.read)(&with(option.name, Value::String(text))).unwrap();
                }
            }
            for value in outside(option) {
                refused(option.name, value);
                ranged += 1;
            }
            for alias in option.aliases {
                (declared.read)(&with(alias, (option.default)())).unwrap();
            }
        }
    }
    assert!(ranged > 80, "{ranged}");
}

#[test]
fn methods_document_themselves_without_naming_a_command() {
    let adapters = ADAPTERS.iter().map(|spec| (spec.name, spec.summary, spec.docs));
    let tuners = TUNERS.iter().map(|spec| (spec.name, spec.summary, spec.docs));
    for (name, summary, docs) in adapters.chain(tuners) {
        assert!(!summary.is_empty() && summary.len() < 120, "{name}");
        for part in ["What: ", "\nCost: ", "\nReference: "] {
            assert!(format!("\n{docs}").contains(part), "{name} docs have no `{part}`");
        }
        docs.lines().for_each(|line| assert!(line.chars().count() <= 110, "{name}: {line}"));
        assert!(!docs.contains("--") && !docs.contains("flatclip "), "{name}");
    }
}

#[test]
fn every_known_data_set_has_the_authors_settings_and_all_of_them_are_options() {
    let with: Vec<_> = ADAPTERS.iter().filter(|spec| !(spec.presets)(Benchmark::Imagenet).is_empty()).collect();
    assert_eq!(with.len(), 9);
    for known in &KNOWN {
        let benchmark = Benchmark::of_data(known.name).unwrap_or_else(|| panic!("{}", known.name));
        for spec in &with {
            let table = (spec.presets)(benchmark);
            assert!(!table.is_empty(), "{} {}", spec.name, known.name);
            spec.build(&table).unwrap();
        }
    }
    for spec in ADAPTERS {
        assert!((spec.presets)(Benchmark::Auto).is_empty() && (spec.presets)(Benchmark::Neutral).is_empty());
    }
    assert!(Benchmark::of_data("pocket:photo").is_none());
}

#[test]
fn the_library_knows_the_names_of_all_tuners() {
    use crate::tuners::tuner;
    for spec in TUNERS {
        for name in std::iter::once(&spec.name).chain(spec.aliases) {
            assert!(TUNER_NAMES.contains(name) || adapter(name).is_ok(), "{name}");
        }
        assert_eq!(tuner(&spec.name.to_uppercase()).unwrap().name, spec.name);
    }
    assert!(TUNER_NAMES.iter().all(|name| tuner(name).is_ok()));
    assert!(tuner("sappt").unwrap_err().to_string().contains("did you mean `sapt`?"));
}

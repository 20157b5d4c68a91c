//! What commands print as JSON is what `flatclip schema` says, and says which version of its layout it has.
#![allow(clippy::unwrap_used, reason = "what a test cannot do fails it")]

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn run(folder: &Path, arguments: &[&str]) -> (Value, Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_flatclip"))
        .args(arguments)
        .arg("--json")
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env("FLATCLIP_OFFLINE", "true")
        .env_remove("FLATCLIP_MODEL")
        .output()
        .unwrap();
    let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    let parse = |text: &[u8]| serde_json::from_slice(text).unwrap_or(Value::Null);
    (parse(&output.stdout), parse(last.as_bytes()))
}

fn schema(name: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_flatclip")).args(["schema", name]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("schema {name}: {e}"))
}

/// The part of JSON Schema that ours use: `type`, `required`, `properties`, `items`.
fn check(value: &Value, schema: &Value, place: &str) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let names = |name: &Value| name.as_str() == Some(kind) || (kind == "integer" && name.as_str() == Some("number"));
    let fits = match &schema["type"] {
        Value::Null => true,
        Value::Array(several) => several.iter().any(names),
        one => names(one),
    };
    assert!(fits, "{place} is {kind}, expected {}", schema["type"]);
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(value.is_null() || value.get(key).is_some(), "{place} has no {key}");
    }
    if let (Value::Object(entries), Some(known)) = (value, schema["properties"].as_object()) {
        for (key, entry) in entries {
            let known = known.get(key).unwrap_or_else(|| panic!("{place}.{key} is not in the schema"));
            check(entry, known, &format!("{place}.{key}"));
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(item, &schema["items"], &format!("{place}[{index}]"));
    }
}

#[test]
#[ignore = "the schemas are checked against this build before they are promised: cargo test --test schemas -- --ignored"]
fn documents_are_as_their_schemas_say() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let data = ["--data", "pocket:photo:test:4"];
    run(home, &["pocket", "export", "photos", "--count", "2"]);
    let cases: Vec<(&str, Vec<&str>)> = vec![
        (
            "predict",
            vec!["predict", "photos", "absent.jpg", "--classes", "fish,lamp", "--method", "stss", "--views", "4"],
        ),
        ("embed", vec!["embed", "photos", "absent.jpg"]),
        ("eval", [&["eval", "--method", "zero", "--views", "4", "--out", "run"][..], &data].concat()),
        ("tune", vec!["tune", "--data", "pocket:photo:train:64", "--shots", "1", "--epochs", "1", "--out", "tuned"]),
        ("report", vec!["report", "run"]),
        ("landscape", vec!["landscape", "--data", "pocket:photo:train:64", "--shots", "1", "--points", "3"]),
        ("analyze", vec!["analyze", "--limit", "8", "--shots", "1", "--out", "analysis"]),
        ("methods", vec!["methods"]),
        ("models", vec!["models"]),
        ("cache-ls", vec!["cache", "ls"]),
        ("data-check", vec!["data", "check", "--data-root", "."]),
    ];
    for (name, arguments) in cases {
        let (document, error) = run(home, &arguments);
        assert!(document["schema_version"].is_u64(), "{name} has no schema_version: {document} {error}");
        check(&document, &schema(name), name);
    }
}

#[test]
fn errors_are_documents_too() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["predict", "x.jpg"][..], &["predict"], &["bogus"], &["report", "."]] {
        let (_, error) = run(folder.path(), arguments);
        check(&error, &schema("error"), "error");
        assert!(error["code"].is_string(), "{arguments:?}: {error}");
    }
}

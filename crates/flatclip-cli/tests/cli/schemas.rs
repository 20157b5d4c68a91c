//! What commands print as JSON is what `flatclip schema` says, and says which version of its layout it has.
//!
//! `FLATCLIP_WRITE_SCHEMAS=1 cargo test --release -p flatclip-cli --test cli schemas` writes the schemas of `schemas/` anew from what
//! the commands below print: keys that every example has are required, types are all that were seen. Without it the documents
//! are checked against the schemas of the binary.

use super::common::Home;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Objects whose keys are data, such as names of options or data sets.
const MAPS: [&str; 12] = [
    "config",
    "config.*",
    "report.runs[].config.options",
    "report.tables[].rows[][].parts",
    "reproduce.tables[].rows[][].parts",
    "demo.tables[].rows[][].parts",
    "methods.methods[].defaults",
    "methods.methods[].presets",
    "methods.methods[].published_views",
    "methods-show.defaults",
    "methods-show.presets",
    "methods-show.published_views",
];

/// Parts that are empty or null in every example here, and what they hold elsewhere.
const ELSEWHERE: [(&str, &str); 25] = [
    ("reproduce.rows[].published[]", "number"),
    ("reproduce.rows[].deviations[]", "number"),
    ("demo.rows[].published[]", "number"),
    ("demo.rows[].deviations[]", "number"),
    ("reproduce-plan.left_out[]", "array"),
    ("report-merge.summary.failures[]", "array"),
    ("eval.runs[].summary.metrics.nll", "null"),
    ("report.runs[].summary.metrics.nll", "null"),
    ("report-merge.summary.metrics.nll", "null"),
    ("prompt-import.provenance.classes[]", "string"),
    ("tune.chosen_radius", "number"),
    ("tune.unreadable[]", "string"),
    ("models-show.config.text.form.activation", "string"),
    ("models-show.config.logit_bias", "number"),
    ("convert.config.text.form.activation", "string"),
    ("convert.config.logit_bias", "number"),
    ("models-show.path", "null"),
    ("models-show.naming", "null"),
    ("models-show.hash", "null"),
    ("models-show.repository", "string"),
    ("models-show.released_as", "string"),
    ("models-show.published_file", "string"),
    ("models-show.tokenizer", "string"),
    ("data-check.data_sets[].notes[]", "string"),
    ("methods.methods[].defaults.*[]", "string"),
];

fn run(home: &Home, line: &str) -> (Value, Value) {
    let output = home.command(line).arg("--json").output().unwrap();
    let last = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
    let parse = |text: &[u8]| serde_json::from_slice(text).unwrap_or(Value::Null);
    (parse(&output.stdout), parse(last.as_bytes()))
}

fn schema(home: &Home, name: &str) -> Value {
    serde_json::from_str(&home.works(&format!("schema {name}"))).unwrap_or_else(|e| panic!("schema {name}: {e}"))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The types that a schema allows.
fn kinds(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    }
}

/// The part of JSON Schema that ours use: `type`, `required`, `properties`, `additionalProperties`, `items`.
fn check(value: &Value, schema: &Value, place: &str) {
    let (found, allowed) = (kind(value), kinds(schema));
    let fits = allowed.contains(&found) || (found == "integer" && allowed.contains(&"number"));
    assert!(fits, "{place} is {found}, expected {allowed:?}");
    if let Value::Object(entries) = value {
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(entries.contains_key(key), "{place} has no {key}");
        }
        for (key, entry) in entries {
            let known = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
            let known = known.unwrap_or_else(|| panic!("{place}.{key} is not in the schema"));
            check(entry, known, &format!("{place}.{key}"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        check(item, &schema["items"], &format!("{place}[]"));
    }
}

/// The schema of one example.
fn infer(value: &Value, place: &str) -> Value {
    let mut schema = json!({ "type": kind(value) });
    match value {
        Value::Object(entries) if MAPS.contains(&place) => {
            let inside = entries.values().map(|entry| infer(entry, &format!("{place}.*"))).reduce(merge);
            schema["additionalProperties"] = inside.unwrap_or_else(|| json!({ "type": [] }));
        }
        Value::Object(entries) => {
            let of = |(key, entry): (&String, &Value)| (key.clone(), infer(entry, &format!("{place}.{key}")));
            schema["properties"] = Value::Object(entries.iter().map(of).collect());
            schema["required"] = entries.keys().cloned().collect();
        }
        Value::Array(items) => {
            let inside = items.iter().map(|item| infer(item, &format!("{place}[]"))).reduce(merge);
            schema["items"] = inside.unwrap_or_else(|| json!({ "type": [] }));
        }
        _ => {}
    }
    schema
}

/// What fits either of two schemas.
fn merge(mut a: Value, b: Value) -> Value {
    let mut types: Vec<String> = kinds(&a).into_iter().map(str::to_owned).collect();
    types.extend(kinds(&b).into_iter().map(str::to_owned));
    types.sort();
    types.dedup();
    if types.iter().any(|name| name == "number") {
        types.retain(|name| name != "integer");
    }
    let both_objects = a.get("required").is_some() && b.get("required").is_some();
    for key in ["items", "additionalProperties"] {
        match (a.get(key).cloned(), b.get(key)) {
            (Some(mine), Some(other)) => a[key] = merge(mine, other.clone()),
            (None, Some(other)) => a[key] = other.clone(),
            _ => {}
        }
    }
    if both_objects {
        let keeps = |key: &&Value| b["required"].as_array().is_some_and(|other| other.contains(key));
        a["required"] = a["required"].as_array().into_iter().flatten().filter(keeps).cloned().collect();
    } else if let Some(required) = b.get("required") {
        a["required"] = required.clone();
    }
    for (key, other) in b["properties"].as_object().cloned().unwrap_or_default() {
        if a.get("properties").is_none() {
            a["properties"] = Value::Object(Map::new());
        }
        let mine = a["properties"].get(&key).cloned();
        a["properties"][&key] = mine.map_or(other.clone(), |mine| merge(mine, other));
    }
    a["type"] = match types.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    a
}

/// Writes in what examples lack; whatever is then still unknown fails.
fn complete(schema: &mut Value, place: &str) {
    let unknown = kinds(schema).is_empty() || kinds(schema) == ["null"];
    if let Some((_, more)) = ELSEWHERE.iter().find(|(name, _)| *name == place) {
        *schema = merge(schema.clone(), json!({ "type": more }));
    } else {
        assert!(!unknown, "{place} is empty in every example: write into ELSEWHERE what it holds");
    }
    for (key, part) in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        complete(part, &format!("{place}.{key}"));
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if let Some(part) = schema.get_mut(key) {
            complete(part, &format!("{place}{mark}"));
        }
    }
}

fn write(name: &str, documents: &[Value]) {
    let merged = documents.iter().map(|document| infer(document, name)).reduce(merge).unwrap();
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("What `flatclip {} --json` prints", name.replace('-', " ")),
    });
    schema.as_object_mut().unwrap().extend(merged.as_object().unwrap().clone());
    complete(&mut schema, name);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(format!("{name}.json"));
    std::fs::write(path, serde_json::to_string_pretty(&schema).unwrap() + "\n").unwrap();
}

/// One line for each example; lines without a name make what others read.
const EXAMPLES: &str = "
: pocket export photos --count 2
pocket-export: pocket export shots --count 2
predict: predict photos absent.jpg --classes fish,lamp --method stss --views 4
predict: predict photos --classes fish,lamp
embed: embed photos absent.jpg
eval: eval --method zero,zero-shot --views 4 --data pocket:photo:test:4 --out run
eval: eval --method zero-shot --data folder:mixed --max-errors 1 --order-seed 1 --limit 3 --keep-probabilities --exif --out bad
sweep: sweep --set stss.radius=0,1 --views 4 --data pocket:photo:test:4 --out sweep
tune: tune --data pocket:photo:train:64 --shots 1 --epochs 1 --out tuned
tune: tune --method tip-adapter --data pocket:photo:train:64 --shots 1 --allow-fewer --out tip
report: report run
report: report run bad --paired --confusion --against paper
report: report bad --temperature 2
: eval --method zero-shot --prompt tuned --views 1 --data pocket:photo:test:4 --out learned
report: report learned --reference zero-shot --order given
landscape: landscape --data pocket:photo:train:64 --shots 1 --points 3 --out landscape
landscape: landscape --image photos/table/000000.png --classes fish,lamp --points 3 --planes 1 --out views
analyze: analyze --limit 8 --shots 1 --out analysis
stats: stats --model pocket-vit --data pocket:photo:train:4 --out statistics.safetensors
methods: methods
methods-show: methods show stss
methods-show: methods show sapt
models: models
models-show: models show pocket
cache-import: cache import TESTS/samples/features.npz
eval: eval --features features --method zero --out imported
cache-ls: cache ls
data-ls: data ls
: pocket export root/ImageNet-A --count 1
data-ls: data ls --data-root root
data-show: data show --data pocket:photo:test:4
data-check: data check --data-root .
prompt-show: prompt show tuned
bench: bench gemm --model pocket-vit --repeats 1
methods-advice: methods --advice
config: config
config: config --run bad
convert: convert pocket weights.safetensors
prompt-export: prompt export tuned --out features.safetensors
prompt-import: prompt import TESTS/prompts/pocket-coop.pth.tar --out imported.safetensors
: eval --method zero --views 4 --data pocket:photo:test:4 --out parts --shard 0/2
: eval --method zero --views 4 --data pocket:photo:test:4 --out parts --shard 1/2
report-merge: report merge parts/shard-0000-of-0002 parts/shard-0001-of-0002 --out merged
reproduce-list: reproduce list
reproduce-plan: reproduce pocket --limit 4 --views 2 --shots 1 --epochs 1 --methods zero-shot,FGA --datasets pocket:photo --out item --plan
reproduce: reproduce pocket --limit 4 --views 2 --shots 1 --epochs 1 --methods zero-shot,FGA --datasets pocket:photo --out item
demo: demo --quick --out demo
cache-export: cache export ENTRY --out kept.safetensors
cache-rm: cache rm --all
version: version
";

#[test]
fn documents_are_as_their_schemas_say() {
    let home = Home::new();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/turned.png");
    for class in ["fish", "lamp"] {
        let class = home.path("mixed").join(class);
        std::fs::create_dir_all(&class).unwrap();
        std::fs::copy(&sample, class.join("good.png")).unwrap();
    }
    std::fs::write(home.path("mixed/fish/bad.png"), "no image").unwrap();
    let mut documents: Vec<(&str, Vec<Value>)> = Vec::new();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for (name, line) in EXAMPLES.lines().filter_map(|line| line.split_once(':')) {
        let mut line = line.replace("TESTS", tests.to_str().unwrap());
        if line.contains("ENTRY") {
            let (kept, _) = run(&home, "cache ls");
            line = line.replace("ENTRY", kept["entries"][0]["id"].as_str().unwrap());
        }
        let (document, error) = run(&home, &line);
        if name.is_empty() {
            continue;
        }
        assert!(document["schema_version"].is_u64(), "{name} has no schema_version: {document} {error}");
        match documents.iter_mut().find(|(known, _)| *known == name) {
            Some((_, several)) => several.push(document),
            None => documents.push((name, vec![document])),
        }
    }
    if std::env::var_os("FLATCLIP_WRITE_SCHEMAS").is_some() {
        documents.iter().for_each(|(name, several)| write(name, several));
        return;
    }
    for (name, several) in &documents {
        several.iter().for_each(|document| check(document, &schema(&home, name), name));
    }
    let mut named: Vec<&str> = documents.iter().map(|(name, _)| *name).chain(["error"]).collect();
    named.sort_unstable();
    let (list, _) = run(&home, "schema");
    let listed: Vec<&str> = list["schemas"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert_eq!(listed, named, "every schema has an example here");
}

#[test]
fn errors_are_documents_too() {
    let home = Home::new();
    for line in ["predict x.jpg", "predict", "bogus", "report ."] {
        let (_, error) = run(&home, line);
        check(&error, &schema(&home, "error"), "error");
        assert!(error["code"].is_string(), "{line}: {error}");
    }
}

//! The HTML reference of the routes, generated from the OpenAPI description.

use serde_json::Value;
use std::fmt::Write as _;

pub(crate) fn page() -> String {
    let description: Value = serde_json::from_str(&crate::openapi_json()).unwrap_or_default();
    let mut body = String::new();
    for (path, item) in description["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            route(&mut body, &description, path, method, operation);
        }
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>flatclip routes</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"icon.svg\">\n<link rel=\"stylesheet\" href=\"style.css\">\n</head>\n<body class=\"docs\">\n<header><h1>Routes</h1>\
         <p>Made from <a href=\"openapi.json\">openapi.json</a>. <a href=\"./\">The page</a> makes ready requests to copy.</p>\
         </header>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn route(out: &mut String, description: &Value, path: &str, method: &str, operation: &Value) {
    let text = |value: &Value| escape(value.as_str().unwrap_or_default());
    let (method, path) = (method.to_uppercase(), escape(path));
    let _ = write!(out, "<section><h2><code>{method} {path}</code></h2>\n<p>{}</p>\n", text(&operation["summary"]));
    if operation["description"].is_string() {
        let _ = writeln!(out, "<p>{}</p>", text(&operation["description"]));
    }
    let body = &operation["requestBody"]["content"];
    for (_, content) in body.as_object().into_iter().flatten() {
        fields(out, "Fields of the request", resolved(description, &content["schema"]), description);
    }
    let ok = ["200", "201"].iter().map(|status| &operation["responses"][status]["content"]);
    for content in ok.filter_map(Value::as_object).flat_map(|kinds| kinds.values()) {
        fields(out, "Fields of the answer", resolved(description, &content["schema"]), description);
    }
    let _ = write!(out, "<p class=\"statuses\">");
    for (status, response) in operation["responses"].as_object().into_iter().flatten() {
        let _ = write!(out, "<span><b>{}</b> {}</span> ", escape(status), text(&response["description"]));
    }
    out.push_str("</p></section>\n");
}

/// Resolves a schema through a reference or into the items of a list.
fn resolved<'d>(description: &'d Value, schema: &'d Value) -> &'d Value {
    let schema = if schema["items"].is_object() { &schema["items"] } else { schema };
    match schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        Some(name) => &description["components"]["schemas"][name],
        None => schema,
    }
}

fn fields(out: &mut String, title: &str, schema: &Value, description: &Value) {
    let Some(properties) = schema["properties"].as_object().filter(|properties| !properties.is_empty()) else { return };
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let _ = write!(out, "<details><summary>{title}</summary><table><tbody>");
    rows(out, "", properties, &required, description);
    out.push_str("</tbody></table></details>\n");
}

/// One row per field; the fields of an object field are listed below it, one level deep.
fn rows(
    out: &mut String,
    prefix: &str,
    properties: &serde_json::Map<String, Value>,
    required: &[&str],
    description: &Value,
) {
    for (name, property) in properties {
        let kind = match (property["type"].as_str(), property["$ref"].as_str()) {
            (Some("array"), _) => "list",
            (Some(kind), _) => kind,
            (None, Some(reference)) => reference.rsplit('/').next().unwrap_or_default(),
            _ => "any",
        };
        let mark = if required.contains(&name.as_str()) { " (always)" } else { "" };
        let inner = resolved(description, property);
        let says = property["description"].as_str().or(inner["description"].as_str()).unwrap_or_default();
        let (name, kind, says) = (escape(&format!("{prefix}{name}")), escape(kind), escape(says));
        let _ = write!(out, "<tr><th scope=\"row\"><code>{name}</code></th><td>{kind}{mark}</td><td>{says}</td></tr>");
        if let Some(fields) = inner["properties"].as_object().filter(|_| prefix.is_empty() && !inner.eq(property)) {
            rows(out, &format!("{name}."), fields, &[], description);
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_route_is_on_the_page() {
        let page = super::page();
        for route in ["POST /v1/classify", "GET /v2/models/{model}", "DELETE /v1/sessions/{id}", "candidate_labels"] {
            assert!(page.contains(route), "{route}");
        }
        assert!(!page.contains("<script"));
    }
}

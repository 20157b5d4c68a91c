//! The OpenAPI description of the routes, generated from the code.

use crate::problem::{ErrorBody, FlatErrorBody};
use crate::routes::{classify, embed, health, hugging_face, lists, oip, openai, page, session, slice};
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ArrayBuilder, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    Content, HttpMethod, OpenApi as Description, Ref, RefOr, Required, Response, SecurityRequirement,
};
use utoipa::{Modify, OpenApi};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "flatclip",
        description = "Answers and embeddings of CLIP-like models with test-time adaptation, led by flatness.",
    ),
    paths(
        classify::classify, slice::slice, embed::images, embed::texts,
        session::open, session::show, session::close, session::classify,
        lists::models, lists::model, lists::methods, lists::prompts, lists::class_sets, lists::limits, page::opening,
        page::sample,
        hugging_face::task, openai::embeddings,
        oip::server, oip::all_statistics, oip::model, oip::model_ready, oip::config, oip::statistics, oip::infer,
        health::live, health::ready, health::metrics,
    ),
    components(schemas(ErrorBody, FlatErrorBody)),
    modifiers(&Forms, &Refusals),
)]
struct Routes;

/// Adds forms to requests with images: the same fields, with files instead of base64 and texts instead of lists.
struct Forms;

impl Modify for Forms {
    fn modify(&self, description: &mut Description) {
        let Some(components) = &mut description.components else { return };
        for operation in description.paths.paths.values_mut().filter_map(|item| item.post.as_mut()) {
            let Some(RefOr::T(body)) = operation.request_body.as_mut() else { continue };
            let Some(RefOr::T(Content { schema: Some(RefOr::Ref(json)), .. })) = body.content.get("application/json")
            else {
                continue;
            };
            let name = json.ref_location.rsplit('/').next().unwrap_or_default().to_owned();
            let Some(RefOr::T(Schema::Object(object))) = components.schemas.get(&name) else { continue };
            let mut form = object.clone();
            if !form.properties.contains_key("image") {
                continue;
            }
            let file = ObjectBuilder::new()
                .schema_type(Type::String)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)))
                .description(Some("The file of an image."));
            let files: Schema = match form.properties.remove("images") {
                Some(_) => ArrayBuilder::new().items(file).description(Some("The files of images.")).into(),
                None => file.into(),
            };
            form.properties.insert("image".to_owned(), files.into());
            for (list, text) in [("classes", "Class names"), ("templates", "Texts with `{}` for the class name")] {
                if let Some(property) = form.properties.get_mut(list) {
                    let text = format!("{text}, separated by commas, or as a list in JSON.");
                    *property =
                        Schema::from(ObjectBuilder::new().schema_type(Type::String).description(Some(text))).into();
                }
            }
            let form_name = name.replace("RequestBody", "Request").replace("Request", "Form");
            let content = Content::new(Some(Ref::from_schema_name(&form_name)));
            body.content.insert("multipart/form-data".to_owned(), content.into());
            components.schemas.insert(form_name, Schema::Object(form).into());
            // Needed because openapi-python-client 0.28 and 0.29 generate broken code for two kinds of bodies without an optional
            // parameter.
            let id = ParameterBuilder::new().name("x-request-id").parameter_in(ParameterIn::Header);
            let id = id.required(Required::False).description(Some("Request id chosen by the client, for the log"));
            let id = id.schema(Some(ObjectBuilder::new().schema_type(Type::String)));
            operation.parameters.get_or_insert_default().push(id.build().into());
        }
    }
}

/// Adds the error responses and the API key to every route.
struct Refusals;

/// Errors of every route.
const ANY: &[(&str, &str)] = &[
    ("401", "No key, or a wrong one"),
    ("403", "The Host or Origin header is not allowed"),
    ("500", "Internal error"),
];
/// Errors of routes with a name in the path.
const NAMED: &[(&str, &str)] = &[("404", "Unknown name")];
/// Errors of routes with a body.
const WITH_BODY: &[(&str, &str)] = &[
    ("400", "The body cannot be read"),
    ("404", "Unknown name"),
    ("408", "The body arrived too slowly"),
    ("413", "A limit is exceeded"),
    ("415", "Unsupported content type or encoding"),
    ("422", "A value is invalid, or an image cannot be decoded"),
    ("429", "The queue is full"),
    ("503", "Memory for requests is used up at the moment, or the server is stopping"),
    ("504", "The deadline passed"),
];
/// Errors of readiness routes.
const READINESS: &[(&str, &str)] = &[("503", "Not ready")];

impl Modify for Refusals {
    fn modify(&self, description: &mut Description) {
        for (path, item) in &mut description.paths.paths {
            let flat = path.starts_with("/v2") || path.starts_with("/hf");
            let schema = if flat { "FlatErrorBody" } else { "ErrorBody" };
            let operations = [
                (HttpMethod::Get, item.get.as_mut()),
                (HttpMethod::Post, item.post.as_mut()),
                (HttpMethod::Delete, item.delete.as_mut()),
            ];
            for (method, operation) in operations.into_iter().filter_map(|(m, operation)| Some((m, operation?))) {
                let more = match method {
                    HttpMethod::Post => WITH_BODY,
                    _ if path.ends_with("ready") || path == "/readyz" => READINESS,
                    _ => &[],
                };
                let named = if path.contains('{') { NAMED } else { &[] };
                for &(status, text) in ANY.iter().chain(more).chain(named) {
                    let content = Content::new(Some(Ref::from_schema_name(schema)));
                    let mut response = Response::new(text);
                    response.content.insert("application/json".to_owned(), content.into());
                    operation.responses.responses.entry(status.to_owned()).or_insert(response.into());
                }
                operation.security =
                    Some(vec![SecurityRequirement::default(), SecurityRequirement::new("key", [""; 0])]);
            }
        }
        if let Some(components) = &mut description.components {
            let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
            components.add_security_scheme("key", SecurityScheme::Http(bearer));
        }
    }
}

/// The description as in the file `openapi.json` of this crate and at `/openapi.json`.
pub fn openapi_json() -> String {
    Routes::openapi().to_pretty_json().map(|json| json + "\n").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_description_is_that_of_the_code() {
        let committed = include_str!("../openapi.json");
        assert!(
            committed == super::openapi_json(),
            "openapi.json is not current; `flatclip serve --openapi > crates/flatclip-serve/openapi.json` writes it"
        );
    }
}

//! OpenAPI document of the admin API, made from the table of operations and the types of their bodies.

use super::operations::{Method, OPERATIONS, Operation, OperationResponse, Parameter, SERVER, error_schema};
use super::response;
use super::types::EventView;
use axum::http::StatusCode;
use axum::response::Response;
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

pub(super) async fn serve() -> Response {
    response::json(StatusCode::OK, &*DOCUMENT)
}

/// The document, in OpenAPI 3.1.
pub fn document() -> Value {
    let settings = || {
        SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        })
    };
    // Defaults are for readers of answers; the gateway always sends these fields.
    let sent = settings().for_serialize().with_transform(RecursiveTransform(without_default));
    let mut written = sent.into_generator();
    let mut read = settings().for_deserialize().into_generator();
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = format!("/api/v1{}", operation.path);
        let methods = paths.entry(path).or_insert_with(|| json!({}));
        let method = match operation.method {
            Method::Get => "get",
            Method::Post => "post",
        };
        methods[method] = describe(operation, &mut written, &mut read);
    }
    // Sent as data of the event stream, which has no schema of its own.
    written.subschema_for::<EventView>();
    let mut schemas = written.take_definitions(true);
    schemas.extend(read.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "gripfast admin API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Status of a running gateway and its servers, and actions on them. Reading is open on \
                            loopback. Actions need the token in `STATE_DIR/admin.token`, and from a browser the same \
                            origin.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn without_default(schema: &mut Schema) {
    schema.remove("default");
}

fn describe(operation: &Operation, written: &mut SchemaGenerator, read: &mut SchemaGenerator) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": responses(operation, written),
    });
    let server = operation.path.starts_with("/upstreams/{name}").then_some(&SERVER);
    let parameters: Vec<Value> = server.into_iter().chain(operation.parameters).map(parameter).collect();
    if !parameters.is_empty() {
        described["parameters"] = parameters.into();
    }
    if let Some(body) = operation.body {
        let content = json!({ "application/json": { "schema": body(read) } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    if operation.method == Method::Post {
        described["security"] = json!([{ "token": [] }]);
    }
    described
}

fn parameter(parameter: &Parameter) -> Value {
    match parameter {
        Parameter::Path { name, text, words } => {
            let schema = match words {
                [] => json!({ "type": "string" }),
                words => json!({ "type": "string", "enum": words }),
            };
            json!({ "name": name, "in": "path", "required": true, "description": text, "schema": schema })
        }
        Parameter::Query { name, text, schema } => {
            json!({ "name": name, "in": "query", "description": text, "schema": schema() })
        }
        Parameter::Header { name, text } => {
            json!({ "name": name, "in": "header", "description": text, "schema": { "type": "string" } })
        }
    }
}

fn responses(operation: &Operation, written: &mut SchemaGenerator) -> Value {
    let mut responses = Map::new();
    let (status, response) = match &operation.response {
        OperationResponse::Json { status, text, schema } => {
            (*status, content(text, "application/json", json!(schema(written))))
        }
        OperationResponse::Events { text } => {
            (200, content(text, "text/event-stream", json!({ "type": "string" })))
        }
        OperationResponse::Document => {
            (200, content("OpenAPI document.", "application/json", json!({ "type": "object" })))
        }
    };
    responses.insert(status.to_string(), response);
    let guards: &[(u16, &str)] = match operation.method {
        Method::Get => &[],
        Method::Post => &[
            (401, "The admin token is missing or wrong."),
            (403, "The request comes from a web page of another origin, or the tool is denied."),
        ],
    };
    let refusals = operation.errors.iter().map(|refused| (refused.status, refused.text));
    for (status, text) in guards.iter().copied().chain(refusals) {
        let schema = json!(error_schema(written));
        responses.insert(status.to_string(), content(text, "application/json", schema));
    }
    Value::Object(responses)
}

fn content(text: &str, kind: &str, schema: Value) -> Value {
    json!({ "description": text, "content": { kind: { "schema": schema } } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ref_in_the_document_resolves() {
        let document = document();
        let mut refs = Vec::new();
        gather(&document, &mut refs);
        assert!(refs.len() > 10, "{refs:?}");
        for reference in refs {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
        }
    }

    fn gather(value: &Value, refs: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                refs.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| gather(value, refs));
            }
            Value::Array(items) => items.iter().for_each(|item| gather(item, refs)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

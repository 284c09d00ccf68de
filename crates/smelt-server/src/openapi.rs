//! `/openapi.json`, from the table of routes and the tables of parameters.

use axum::http::Method;
use axum::response::Response;
use serde_json::{Map, Value, json};
use smelt_api::{ApiError, params};

use crate::app::{Call, json};
use crate::info::VERSION;
use crate::routes::{Access, ROUTES, Route};

/// Bodies that routes take.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "max_tokens": 64}"#,
    ),
    ("/v1/completions", r#"{"prompt": "The sky is", "max_tokens": 16}"#),
    (
        "/v1/responses",
        r#"{"input": "Why is the sky blue?", "instructions": "Be terse.", "max_output_tokens": 64}"#,
    ),
    ("/v1/responses/input_tokens", r#"{"input": "Why is the sky blue?"}"#),
    (
        "/v1/messages",
        r#"{"model": "MODEL", "max_tokens": 64, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}"#,
    ),
    (
        "/v1/messages/count_tokens",
        r#"{"model": "MODEL", "messages": [{"role": "user", "content": "Why is the sky blue?"}]}"#,
    ),
    (
        "/api/chat",
        r#"{"model": "MODEL", "messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": false}"#,
    ),
    ("/api/generate", r#"{"model": "MODEL", "prompt": "Why is the sky blue?", "stream": false}"#),
    ("/v1/embeddings", r#"{"input": "Why is the sky blue?"}"#),
    ("/embeddings", r#"{"input": "Why is the sky blue?", "pooling": "none"}"#),
    ("/v1/rerank", r#"{"query": "sky", "documents": ["The sky is blue.", "Grass is green."]}"#),
    ("/completion", r#"{"prompt": "The sky is", "n_predict": 16}"#),
    ("/infill", r#"{"input_prefix": "fn one() -> u8 {", "input_suffix": "}", "n_predict": 16}"#),
    ("/apply-template", r#"{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}"#),
    (
        "/v1/chat/completions/input_tokens",
        r#"{"messages": [{"role": "user", "content": "Why is the sky blue?"}]}"#,
    ),
    ("/api/embed", r#"{"model": "MODEL", "input": "Why is the sky blue?"}"#),
    ("/api/embeddings", r#"{"model": "MODEL", "prompt": "Why is the sky blue?"}"#),
    ("/api/show", r#"{"model": "MODEL"}"#),
    ("/tokenize", r#"{"content": "Why is the sky blue?"}"#),
    ("/detokenize", r#"{"tokens": [1, 2, 3]}"#),
];

/// The shapes of errors, by dialect.
fn errors() -> Value {
    let text = json!({"type": "string"});
    let object = |fields: Value| {
        let required: Vec<&String> = fields.as_object().into_iter().flat_map(Map::keys).collect();
        json!({"type": "object", "required": required, "properties": fields})
    };
    let param = json!({"type": ["string", "null"], "description": "the parameter to blame, as a path"});
    json!({
        "OpenAiError": object(json!({
            "error": object(json!({"message": text, "type": text, "param": param, "code": text})),
        })),
        "AnthropicError": object(json!({
            "type": {"const": "error"}, "error": object(json!({"type": text, "message": text})), "request_id": text,
        })),
        "OllamaError": object(json!({"error": text})),
    })
}

pub(crate) async fn show(_: Call) -> Result<Response, ApiError> {
    Ok(json(&document()))
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        for path in route.paths() {
            let entry = paths.entry(path.replace("{*", "{")).or_insert_with(|| json!({}));
            entry[route.method.as_str().to_ascii_lowercase()] = operation(route);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Smelt", "version": VERSION},
        "paths": paths,
        "components": {"schemas": errors(), "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    })
}

fn operation(route: &Route) -> Value {
    let shape = format!("#/components/schemas/{:?}Error", route.dialect);
    let error = json!({
        "description": "an error, in the shape of the interface that the route belongs to",
        "content": {"application/json": {"schema": {"$ref": shape}}},
    });
    let mut operation = json!({
        "summary": route.about,
        "responses": {"200": {"description": "what was asked for"}, "4XX": error, "5XX": error},
    });
    let mut parameters = Vec::new();
    for name in route.path.split('/').filter_map(|piece| piece.strip_prefix('{')?.strip_suffix('}')) {
        let name = name.trim_start_matches('*');
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}));
    }
    match route.params {
        Some(tables) if route.method == Method::POST => {
            let mut content = json!({"schema": params::schema(tables)});
            if let Some((_, example)) = EXAMPLES.iter().find(|(path, _)| *path == route.path) {
                content["example"] = serde_json::from_str(example).unwrap_or_default();
            }
            operation["requestBody"] = json!({"required": true, "content": {"application/json": content}});
        }
        Some(tables) => parameters.extend(
            tables
                .iter()
                .copied()
                .flatten()
                .map(|param| json!({"name": param.name, "in": "query", "schema": param.schema()})),
        ),
        None => {}
    }
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if route.access == Access::Keyed {
        operation["security"] = json!([{}, {"key": []}]);
    }
    operation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        let operations: usize = paths.values().map(|path| path.as_object().unwrap().len()).sum();
        assert_eq!(operations, ROUTES.iter().flat_map(Route::paths).count());
        let chat =
            &paths["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(chat["required"], json!(["messages"]));
        assert_eq!(chat["properties"]["temperature"]["maximum"], 2.0);
        assert_eq!(chat["properties"]["messages"]["items"]["required"], json!(["role"]));
        assert_eq!(chat["properties"]["stop"]["anyOf"][2]["type"], "null");
        let error = &paths["/api/chat"]["post"]["responses"]["4XX"]["content"]["application/json"]["schema"];
        let shape = error["$ref"].as_str().unwrap().trim_start_matches('#');
        assert_eq!(document.pointer(shape).unwrap()["required"], json!(["error"]));
        assert_eq!(paths["/v1/models/{model}"]["get"]["parameters"][0]["name"], "model");
    }
}

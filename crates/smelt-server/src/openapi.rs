//! `/openapi.json`, from the table of routes and the tables of parameters.

use axum::http::Method;
use axum::response::Response;
use serde_json::{Map, Value, json};
use smelt_api::{ApiError, params};

use crate::app::{Call, json};
use crate::info::VERSION;
use crate::routes::{Access, ROUTES, Route};

pub(crate) async fn show(_: Call) -> Result<Response, ApiError> {
    Ok(json(&document()))
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = route.path.replace("{*", "{");
        let entry = paths.entry(path).or_insert_with(|| json!({}));
        entry[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Smelt", "version": VERSION},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    })
}

fn operation(route: &Route) -> Value {
    let error = json!({"description": "an error, in the shape of the interface that the route belongs to"});
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
            let schema = params::schema(tables);
            operation["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": schema}}});
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
        assert_eq!(operations, ROUTES.len());
        let chat =
            &paths["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(chat["required"], json!(["messages"]));
        assert_eq!(chat["properties"]["temperature"]["maximum"], 2.0);
        assert_eq!(paths["/v1/models/{model}"]["get"]["parameters"][0]["name"], "model");
    }
}

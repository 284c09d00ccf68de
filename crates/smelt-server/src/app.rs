//! One request: its id, who may ask it, its body, its route, and what is told about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{MethodFilter, on};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use jiff::Timestamp;
use serde::Serialize;
use smelt_api::{ApiError, Code, Dialect};

use crate::access::{allowed_origin, check_key, check_origin};
use crate::info::Cards;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::openai::responses;
use crate::pull::Pulls;
use crate::routes::{Access, ROUTES, Route, dialect_of, methods_of};
use crate::settings::Settings;
use crate::stream::to_json;
use crate::trace::{Trace, Tracer};

/// The header that carries a request's id, both ways.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The name under which Anthropic's clients look for it.
const ANTHROPIC_ID: HeaderName = HeaderName::from_static("request-id");
/// Characters of an id that a client gives.
const MOST_ID: usize = 128;

/// What all requests share.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) settings: Settings,
    pub(crate) models: Models,
    pub(crate) metrics: Metrics,
    pub(crate) tracer: Tracer,
    pub(crate) pulls: Pulls,
    /// The responses that are kept.
    pub(crate) responses: responses::Store,
    /// What lists tell of models.
    pub(crate) cards: Cards,
    /// Whether models that are to be warm are not there yet.
    pub(crate) warming: AtomicBool,
    /// Whether the server takes no more requests.
    pub(crate) draining: AtomicBool,
    /// Whether it listens to this machine only.
    pub(crate) loopback: bool,
    pub(crate) started: Timestamp,
}

impl App {
    fn scheme(&self) -> &'static str {
        if self.settings.tls.is_some() { "https" } else { "http" }
    }

    /// Whether requests can be answered, and the word for it.
    pub(crate) fn health(&self) -> (bool, &'static str) {
        match () {
            () if self.draining.load(Ordering::Relaxed) => (false, "draining"),
            () if self.models.are_restarting() => (false, "restarting"),
            () if self.warming.load(Ordering::Relaxed) => (false, "loading"),
            () => (true, "ok"),
        }
    }
}

/// A request on its way to a handler.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    /// The request's id.
    pub(crate) id: String,
    /// Of the route that it came by.
    pub(crate) dialect: Dialect,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Names and values behind the path's `?`, decoded.
    pub(crate) query: Vec<(String, String)>,
    /// Which of the server's keys it has, if the server has keys.
    pub(crate) key: Option<usize>,
    /// The variable part of the path, decoded.
    pub(crate) tail: Option<String>,
    pub(crate) arrival: Instant,
    /// The request's span.
    pub(crate) trace: Trace,
}

impl Call {
    /// Counts the fields that nobody knows.
    pub(crate) fn tolerate(&self, unknown: &[String]) {
        if !unknown.is_empty() {
            self.app.metrics.unknown_fields.add(unknown.len() as u64);
            tracing::debug!(request = self.id, fields = ?unknown, "unknown fields were tolerated");
        }
    }

    /// An error as a document of the request's dialect.
    pub(crate) fn error_body(&self, error: &ApiError) -> serde_json::Value {
        error.body(self.dialect, &self.id)
    }
}

/// A JSON response.
pub(crate) fn json(value: &impl Serialize) -> Response {
    with_type("application/json", to_json(value))
}

/// A response of some type.
pub(crate) fn with_type(content_type: &'static str, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The routes, ready to serve.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let filter = match route.method {
            Method::GET => MethodFilter::GET,
            Method::DELETE => MethodFilter::DELETE,
            _ => MethodFilter::POST,
        };
        for path in route.paths() {
            let app = app.clone();
            let serve = move |params: Result<RawPathParams, RawPathParamsRejection>, request: Request| {
                let tail = params.map(|params| params.iter().next().map(|(_, value)| value.to_owned()));
                serve(app.clone(), route, tail.map_err(|error| error.to_string()), request)
            };
            router = router.route(path, on(filter, serve));
        }
    }
    let (lost, wrong) = (app.clone(), app.clone());
    router
        .fallback(move |request: Request| absent(lost.clone(), request))
        .method_not_allowed_fallback(move |request: Request| absent(wrong.clone(), request))
}

/// Answers one request of a route.
async fn serve(
    app: Arc<App>,
    route: &'static Route,
    tail: Result<Option<String>, String>,
    request: Request,
) -> Response {
    let arrival = Instant::now();
    let (parts, body) = request.into_parts();
    let id = request_id(&parts.headers);
    let origin = allowed_origin(&parts.headers, &app.settings);
    let in_flight = app.metrics.in_flight.enter();
    let trace = match route.access {
        Access::Keyed => app.tracer.begin(route, &parts, (&id, app.scheme())),
        Access::Open => Trace::none(),
    };
    let answer = async {
        check_origin(&parts.headers, &app.settings, app.loopback)?;
        let key = match route.access {
            Access::Keyed => check_key(&parts.headers, &app.settings.api_keys)?,
            Access::Open => None,
        };
        let tail = tail.map_err(|error| ApiError::new(Code::NotFound, error))?;
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let query = query.into_owned().collect();
        let body = match route.params {
            Some(_) if route.method == Method::POST => read_body(&app, &parts.headers, body).await?,
            _ => Bytes::new(),
        };
        let (app, id, trace) = (app.clone(), id.clone(), trace.clone());
        let (dialect, headers) = (route.dialect, parts.headers);
        let call = Call { app, id, dialect, headers, body, query, key, tail, arrival, trace };
        (route.handler)(call).await
    };
    let mut response = answer.await.unwrap_or_else(|error| {
        trace.failed(error.code);
        refuse(&error, route.dialect, &id)
    });
    drop(in_flight);
    let status = response.status().as_u16();
    trace.status(status);
    app.metrics.request(route.method.as_str(), route.path, status);
    // Probes come all the time and would hide the rest; the metrics count them.
    if route.access != Access::Open {
        tracing::info!(
            request = id,
            method = route.method.as_str(),
            path = route.path,
            status,
            seconds = arrival.elapsed().as_secs_f64(),
            "request"
        );
    }
    finish(&mut response, route.dialect, &id, origin);
    response
}

/// Answers what no route takes.
async fn absent(app: Arc<App>, request: Request) -> Response {
    let path = request.uri().path();
    let (dialect, id) = (dialect_of(path), request_id(request.headers()));
    let origin = allowed_origin(request.headers(), &app.settings);
    let methods = methods_of(path);
    let allow = HeaderValue::from_str(&methods.join(", "));
    let mut response = if methods.is_empty() {
        refuse(
            &ApiError::new(Code::NotFound, format!("there is no route {path:?}; /openapi.json lists them")),
            dialect,
            &id,
        )
    } else if request.method() == Method::OPTIONS && origin.is_some() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*, authorization"));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        response
    } else {
        let message = format!("{path} takes {}, not {}", methods.join(" and "), request.method());
        refuse(&ApiError::new(Code::MethodNotAllowed, message), dialect, &id)
    };
    if let (Ok(allow), false) = (allow, methods.is_empty()) {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    app.metrics.request(request.method().as_str(), "", response.status().as_u16());
    finish(&mut response, dialect, &id, origin);
    response
}

/// An error as a response.
fn refuse(error: &ApiError, dialect: Dialect, id: &str) -> Response {
    let mut response = json(&error.body(dialect, id));
    *response.status_mut() =
        StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if error.code == Code::InvalidApiKey {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

fn finish(response: &mut Response, dialect: Dialect, id: &str, origin: Option<HeaderValue>) {
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(id) {
        if dialect == Dialect::Anthropic {
            headers.insert(ANTHROPIC_ID, id.clone());
        }
        headers.insert(REQUEST_ID, id);
    }
    if let Some(origin) = origin {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("x-request-id, retry-after"),
        );
    }
}

/// The client's own id if it is a plain word, so that a request can be followed through routers; else a new one.
fn request_id(headers: &HeaderMap) -> String {
    let is_plain = |id: &&str| {
        (1..=MOST_ID).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b))
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(is_plain);
    given.map_or_else(|| format!("{:032x}", fastrand::u128(..)), str::to_owned)
}

async fn read_body(app: &App, headers: &HeaderMap, body: Body) -> Result<Bytes, ApiError> {
    let limits = &app.settings.limits;
    let too_large = || {
        let message = format!("the body is larger than {} bytes", limits.body);
        ApiError::new(Code::TooLarge, message)
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|n| n > limits.body as u64) {
        return Err(too_large());
    }
    let collect = Limited::new(body, limits.body).collect();
    match tokio::time::timeout(limits.body_time, collect).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(error)) => Err(ApiError::new(Code::InvalidJson, format!("the body can't be read: {error}"))),
        Err(_) => {
            let message = format!("the body did not arrive in {} s", limits.body_time.as_secs());
            Err(ApiError::new(Code::RequestTimeout, message))
        }
    }
}

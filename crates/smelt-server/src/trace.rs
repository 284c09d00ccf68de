//! Spans of requests for OpenTelemetry: one of each, from its arrival to the end of its answer, sent by OTLP over HTTP.
//!
//! They tell which route, which model, how many tokens, how long and how it ended, in the words of OpenTelemetry's conventions
//! for HTTP and for generative AI (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>); waits are named as vLLM's spans
//! name them, as the conventions have no word for these.
//!
//! Architecture Invariant: what is said in a prompt or an answer is in no span, nor are error messages, which may repeat it.
//!
//! Architecture Invariant: no request waits for a collector. Spans go to a thread of the exporter through a queue with an end;
//! where that is full they are lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::http::Uri;
use axum::http::request::Parts;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span};
use smelt_api::Code;
use smelt_api::openai::FinishReason;
use smelt_engine::Finish;

use crate::daemon;
use crate::info::VERSION;
use crate::openai::finish_reason;
use crate::routes::Route;
use crate::settings::Error;

/// Where spans of requests are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traces {
    /// The collector's address, to which `/v1/traces` is added.
    pub endpoint: String,
    /// What this server is called there.
    pub service: String,
}

/// For the collector to take a batch.
const PATIENCE: Duration = Duration::from_secs(10);
/// For what is not sent yet when the server ends.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

/// What begins spans, if they are wanted.
#[derive(Debug)]
pub(crate) struct Tracer(Option<(SdkTracerProvider, SdkTracer)>);

impl Tracer {
    /// Starts the exporter's thread, where there is a collector. It is not asked for anything yet.
    ///
    /// # Errors
    /// If the collector's address is none.
    pub(crate) fn new(traces: Option<&Traces>) -> Result<Self, Error> {
        let Some(traces) = traces else { return Ok(Self(None)) };
        let wrong = |why: String| Error::Collector { endpoint: traces.endpoint.clone(), why };
        let uri: Uri = traces.endpoint.parse().map_err(|e| wrong(format!("{e}")))?;
        // `Uri` drops what stands behind a `#`, and with it the path that is appended.
        let is_plain = uri.query().is_none() && !traces.endpoint.contains('#');
        if !matches!(uri.scheme_str(), Some("http" | "https")) || !is_plain {
            return Err(wrong("it has to be like http://HOST:4318".into()));
        }
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", traces.endpoint.trim_end_matches('/')))
            .with_timeout(PATIENCE)
            .with_http_client(Collector::new(&uri));
        let exporter = exporter.build().map_err(|e| wrong(e.to_string()))?;
        let resource = Resource::builder()
            .with_service_name(traces.service.clone())
            .with_attribute(KeyValue::new("service.version", VERSION));
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter);
        let provider = provider.with_resource(resource.build()).build();
        let tracer = provider.tracer("smelt");
        Ok(Self(Some((provider, tracer))))
    }

    /// Begins a request's span, below the one that the request names in its `traceparent`.
    pub(crate) fn begin(&self, route: &Route, request: &Parts, (id, scheme): (&str, &'static str)) -> Trace {
        let Some((_, tracer)) = &self.0 else { return Trace(None) };
        let parent = TraceContextPropagator::new()
            .extract_with_context(&Context::new(), &HeaderExtractor(&request.headers));
        let attributes = [
            KeyValue::new("http.request.method", route.method.as_str().to_owned()),
            KeyValue::new("http.route", route.path),
            KeyValue::new("url.scheme", scheme),
            KeyValue::new("url.path", request.uri.path().to_owned()),
            KeyValue::new("gen_ai.request.id", id.to_owned()),
        ];
        let span = tracer
            .span_builder(format!("{} {}", route.method, route.path))
            .with_kind(SpanKind::Server)
            .with_attributes(attributes)
            .start_with_context(tracer, &parent);
        let told = Told {
            span,
            path: route.path,
            arrival: Instant::now(),
            is_begun: false,
            has_token: false,
            input: 0,
            cached: 0,
            output: 0,
            reasons: Vec::new(),
            error: None,
        };
        Trace(Some(Arc::new(Mutex::new(told))))
    }

    /// Sends what there is, if the collector takes it in time. It blocks.
    pub(crate) fn finish(&self) {
        if let Some((provider, _)) = &self.0
            && let Err(error) = provider.shutdown_with_timeout(LAST_PATIENCE)
        {
            tracing::warn!(%error, "the last spans may be lost");
        }
    }
}

/// A request's span, which ends with the last of its clones. Without a collector it takes everything and keeps nothing.
#[derive(Debug, Clone)]
pub(crate) struct Trace(Option<Arc<Mutex<Told>>>);

/// What a span was told.
#[derive(Debug)]
struct Told {
    span: Span,
    path: &'static str,
    arrival: Instant,
    /// Whether the engine has begun, and whether it has said something.
    is_begun: bool,
    has_token: bool,
    /// Tokens of all prompts, those found in the cache, and those of all answers.
    input: usize,
    cached: usize,
    output: usize,
    /// Why answers ended.
    reasons: Vec<StringValue>,
    error: Option<&'static str>,
}

/// The convention's word for what a route that asks a model does; rankings have none.
fn operation(path: &str) -> &'static str {
    match path.rsplit('/').next() {
        Some("embeddings" | "embed") => "embeddings",
        Some("rerank") => "rerank",
        _ if path.contains("/chat") || path.contains("/messages") || path.contains("/responses") => "chat",
        _ => "text_completion",
    }
}

impl Trace {
    /// Of a request that nobody asks about.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    fn with(&self, tell: impl FnOnce(&mut Told)) {
        if let Some(told) = &self.0 {
            tell(&mut told.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The request is one for a model.
    pub(crate) fn asks(&self, model: &str) {
        self.with(|told| {
            told.set("gen_ai.provider.name", "smelt");
            told.set("gen_ai.operation.name", operation(told.path));
            told.set("gen_ai.request.model", model.to_owned());
            told.set("gen_ai.response.model", model.to_owned());
        });
    }

    /// How tokens are chosen and when an answer ends at the latest.
    pub(crate) fn wishes(&self, request: &daemon::Request) {
        self.with(|told| {
            told.set("gen_ai.request.choice.count", count(request.n));
            told.set("gen_ai.request.temperature", f64::from(request.sampler.temperature));
            told.set("gen_ai.request.top_p", f64::from(request.sampler.top_p));
            if let Some(most) = request.max_tokens {
                told.set("gen_ai.request.max_tokens", count(most));
            }
        });
    }

    /// The engine has begun with a prompt of so many tokens, of which it had some in its cache.
    pub(crate) fn begun(&self, prompt: usize, cached: usize) {
        self.with(|told| {
            if !std::mem::replace(&mut told.is_begun, true) {
                told.set("gen_ai.latency.time_in_queue", told.arrival.elapsed().as_secs_f64());
            }
            told.input += prompt;
            told.cached += cached;
        });
    }

    /// The model has said something.
    pub(crate) fn token(&self) {
        self.with(|told| {
            if !std::mem::replace(&mut told.has_token, true) {
                told.set("gen_ai.latency.time_to_first_token", told.arrival.elapsed().as_secs_f64());
            }
        });
    }

    /// An answer of so many tokens is complete.
    pub(crate) fn answered(&self, tokens: usize, finish: Finish, has_calls: bool) {
        self.with(|told| {
            told.output += tokens;
            let reason = match finish_reason(finish, has_calls) {
                FinishReason::Stop => "stop",
                FinishReason::Length => "length",
                FinishReason::ToolCalls => "tool_calls",
            };
            told.reasons.push(reason.into());
        });
    }

    /// The response begins.
    pub(crate) fn status(&self, status: u16) {
        self.with(|told| told.set("http.response.status_code", i64::from(status)));
    }

    /// The request failed.
    pub(crate) fn failed(&self, code: Code) {
        self.with(|told| {
            told.fail(code.name());
            // What a client does wrong is no error of the server's span.
            if code.status() >= 500 {
                told.span.set_status(Status::error(""));
            }
        });
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn cancelled(&self) {
        self.with(|told| told.fail("cancelled"));
    }
}

impl Told {
    fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.span.set_attribute(KeyValue::new(name, value));
    }

    /// The first failure is the one that counts.
    fn fail(&mut self, error: &'static str) {
        if self.error.is_none() {
            self.error = Some(error);
            self.set("error.type", error);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if self.is_begun {
            self.set("gen_ai.usage.input_tokens", count(self.input));
            self.set("gen_ai.usage.cache_read.input_tokens", count(self.cached));
            self.set("gen_ai.usage.output_tokens", count(self.output));
        }
        if !self.reasons.is_empty() {
            let reasons = std::mem::take(&mut self.reasons);
            self.set("gen_ai.response.finish_reasons", Value::Array(Array::String(reasons)));
        }
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A collector, asked by the exporter's own thread.
#[derive(Debug)]
struct Collector {
    agent: ureq::Agent,
    /// Where it is, for the log.
    host: String,
    /// Whether the last batch was lost: that is told once.
    is_lost: AtomicBool,
}

impl Collector {
    fn new(endpoint: &Uri) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .user_agent(concat!("smelt/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: agent.into(), host: host(endpoint), is_lost: AtomicBool::new(false) }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let response = self.agent.run(Request::from_parts(parts, &body[..]))?;
        let (parts, mut body) = response.into_parts();
        Ok(Response::from_parts(parts, body.read_to_vec()?.into()))
    }
}

/// Host and port of an address: the log needs neither its user nor its password.
fn host(address: &Uri) -> String {
    let port = address.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", address.host().unwrap_or_default())
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request);
        let problem = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_lost = self.is_lost.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(why) if !was_lost => {
                tracing::warn!(collector = self.host, why, "spans can't be sent");
            }
            None if was_lost => tracing::info!(collector = self.host, "spans can be sent again"),
            _ => {}
        }
        Ok(sent?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collectors_have_addresses() {
        let at = |endpoint: &str| {
            let traces = Traces { endpoint: endpoint.into(), service: "s".into() };
            Tracer::new(Some(&traces)).map(drop).map_err(|error| error.to_string())
        };
        for fine in ["http://127.0.0.1:4318", "https://collector.example/base/"] {
            assert_eq!(at(fine), Ok(()));
        }
        for wrong in
            ["", "127.0.0.1:4318", "grpc://127.0.0.1:4317", "http://a b", "http://a/?b", "http://a/#b"]
        {
            assert!(at(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_log_names_no_password() {
        for (address, said) in [
            ("http://user:secret@collector.example:4318/base", "collector.example:4318"),
            ("https://[::1]/", "[::1]"),
        ] {
            assert_eq!(host(&address.parse().unwrap()), said);
        }
    }

    #[test]
    fn routes_have_operations() {
        for (path, name) in [
            ("/v1/chat/completions", "chat"),
            ("/v1/responses", "chat"),
            ("/v1/messages", "chat"),
            ("/api/chat", "chat"),
            ("/v1/completions", "text_completion"),
            ("/api/generate", "text_completion"),
            ("/v1/embeddings", "embeddings"),
            ("/api/embed", "embeddings"),
            ("/v1/rerank", "rerank"),
        ] {
            assert_eq!(operation(path), name);
        }
    }
}

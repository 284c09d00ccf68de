//! `/metrics`: numbers for Prometheus, under Smelt's names, under vLLM's, which routers know, and under llama.cpp's.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::Response;
use jiff::Timestamp;
use smelt_api::ApiError;
use smelt_engine::scheduler::{Histogram, SECONDS, Stats};

use crate::app::{App, Call, with_type};
use crate::info::{VERSION, seconds};
use crate::models::Offer;

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many there are of something right now.
#[derive(Debug, Default)]
pub(crate) struct Gauge(AtomicU64);

impl Gauge {
    /// One more, until the value that comes back is dropped.
    pub(crate) fn enter(&self) -> Entered<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Entered(self)
    }
}

/// One of a [`Gauge`].
#[derive(Debug)]
pub(crate) struct Entered<'a>(&'a Gauge);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Method, route and status of a request. Routes are those of the table, so that there can't be many.
type Label = (&'static str, &'static str, u16);

/// What the server counts itself; the engine counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<Label, u64>>,
    /// Requests whose handler has not answered yet.
    pub(crate) in_flight: Gauge,
    /// Fields of bodies that nobody knows.
    pub(crate) unknown_fields: Counter,
    /// Blocks of instructions that were left out because they change with every request.
    pub(crate) volatile_blocks: Counter,
}

/// Methods that are counted under their names.
const METHODS: [&str; 3] = ["GET", "POST", "OPTIONS"];

impl Metrics {
    /// Counts an answered request.
    pub(crate) fn request(&self, method: &str, route: &'static str, status: u16) {
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or("other");
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((method, route, status)).or_default() += 1;
    }
}

/// A number of the engine: Smelt's name, vLLM's, what it is, whether it only grows, and how it is read.
struct Series(&'static str, Option<&'static str>, &'static str, bool, fn(&Stats) -> f64);

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

static SERIES: &[Series] = &[
    Series("requests_running", Some("num_requests_running"), "answers that are computed", false, |s| {
        s.running as f64
    }),
    Series("requests_waiting", Some("num_requests_waiting"), "requests that wait", false, |s| {
        s.waiting as f64
    }),
    Series("kv_usage_ratio", Some("kv_cache_usage_perc"), "share of the cache in use, 0 to 1", false, |s| {
        share(s.kv_pages_used, s.kv_pages)
    }),
    Series("kv_pages_used", None, "pages of the cache in use", false, |s| s.kv_pages_used as f64),
    Series("kv_pages_kept", None, "pages kept for prompts to come", false, |s| s.kv_pages_kept as f64),
    Series("kv_pages", None, "pages that may be", false, |s| s.kv_pages as f64),
    Series(
        "prefix_queries_total",
        Some("prefix_cache_queries_total"),
        "prompt tokens looked up",
        true,
        |s| s.prefix_queries as f64,
    ),
    Series(
        "prefix_hits_total",
        Some("prefix_cache_hits_total"),
        "prompt tokens found in the cache",
        true,
        |s| s.prefix_hits as f64,
    ),
    Series("prompt_tokens_total", Some("prompt_tokens_total"), "tokens of prompts", true, |s| {
        s.prompt_tokens as f64
    }),
    Series("generation_tokens_total", Some("generation_tokens_total"), "tokens of answers", true, |s| {
        s.generation_tokens as f64
    }),
    Series("texts_pooled_total", None, "texts that embeddings or scores were made of", true, |s| {
        s.pooled as f64
    }),
    Series("preemptions_total", Some("num_preemptions_total"), "answers that had to make room", true, |s| {
        s.preemptions as f64
    }),
    Series("steps_total", None, "steps of the model", true, |s| s.steps as f64),
    Series("rows_total", None, "rows of all steps", true, |s| s.rows as f64),
    Series("requests_total", None, "requests accepted", true, |s| s.requests as f64),
    Series("requests_failed_total", None, "requests that failed", true, |s| s.failed as f64),
];

/// A histogram of the engine: Smelt's name, vLLM's, what it is, and how it is read.
struct Times(&'static str, &'static str, &'static str, fn(&Stats) -> &Histogram);

static TIMES: &[Times] = &[
    Times("time_to_first_token_seconds", "time_to_first_token_seconds", "from arrival to first token", |s| {
        &s.time_to_first_token
    }),
    Times("inter_token_seconds", "inter_token_latency_seconds", "between two tokens", |s| &s.inter_token),
    Times("request_seconds", "e2e_request_latency_seconds", "from arrival to end", |s| &s.end_to_end),
    Times("queue_seconds", "request_queue_time_seconds", "from arrival to start", |s| &s.queue_time),
];

/// A number under llama.cpp's name, over all models, as its server has one: what it is, whether it only grows, and how it is
/// read.
struct Overall(&'static str, &'static str, bool, fn(&[&Stats]) -> f64);

fn sum(all: &[&Stats], value: impl Fn(&Stats) -> f64) -> f64 {
    all.iter().map(|stats| value(stats)).sum()
}

/// Prompt tokens that were computed.
fn processed(s: &Stats) -> f64 {
    s.prompt_tokens.saturating_sub(s.prefix_hits) as f64
}

/// Seconds from requests' start to their first token.
fn prompt_seconds(s: &Stats) -> f64 {
    (s.time_to_first_token.sum - s.queue_time.sum).max(0.0)
}

fn rate(all: &[&Stats], of: fn(&Stats) -> f64, seconds: fn(&Stats) -> f64) -> f64 {
    let seconds = sum(all, seconds);
    if seconds > 0.0 { sum(all, of) / seconds } else { 0.0 }
}

static OVERALL: &[Overall] = &[
    Overall("prompt_tokens_total", "prompt tokens computed", true, |all| sum(all, processed)),
    Overall("prompt_tokens_cached_total", "prompt tokens found in the cache", true, |all| {
        sum(all, |s| s.prefix_hits as f64)
    }),
    Overall("prompt_seconds_total", "seconds from start to first token", true, |all| {
        sum(all, prompt_seconds)
    }),
    Overall("tokens_predicted_total", "tokens of answers", true, |all| {
        sum(all, |s| s.generation_tokens as f64)
    }),
    Overall("tokens_predicted_seconds_total", "seconds from first tokens to last ones", true, |all| {
        sum(all, |s| s.inter_token.sum)
    }),
    Overall("n_decode_total", "steps of the model", true, |all| sum(all, |s| s.steps as f64)),
    Overall("prompt_tokens_seconds", "prompt tokens a second, so far", false, |all| {
        rate(all, processed, prompt_seconds)
    }),
    Overall("predicted_tokens_seconds", "tokens a second behind the first, so far", false, |all| {
        rate(all, |s| s.inter_token.count() as f64, |s| s.inter_token.sum)
    }),
    Overall("requests_processing", "answers that are computed", false, |all| sum(all, |s| s.running as f64)),
    Overall("requests_deferred", "requests that wait", false, |all| sum(all, |s| s.waiting as f64)),
];

/// A reason in vLLM's word, and how many answers ended for it.
type End = (&'static str, fn(&Stats) -> u64);

/// Why answers ended.
static ENDS: &[End] =
    &[("stop", |s| s.finished_stop), ("length", |s| s.finished_length), ("abort", |s| s.cancelled)];

pub(crate) async fn show(call: Call) -> Result<Response, ApiError> {
    // The format's own version, not Prometheus's.
    let mut response = with_type("text/plain; version=0.0.4; charset=utf-8", text(&call.app).await);
    // Where llama.cpp's clients find it.
    response.headers_mut().insert("process-start-time-unix", seconds(call.app.started).into());
    Ok(response)
}

/// A document under construction. Writing to a string can't fail.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, kind: &str, about: &str) {
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let _ = match labels {
            "" => writeln!(self.0, "{name} {value}"),
            labels => writeln!(self.0, "{name}{{{labels}}} {value}"),
        };
    }
}

async fn text(app: &App) -> String {
    let mut models: Vec<(String, Stats)> = Vec::new();
    let mut restarts = Vec::new();
    // All are asked at once: one that is frozen has its time, and not each behind the other.
    let ask = |offer: Arc<Offer>| {
        let handle = offer.handle.clone();
        (offer, tokio::spawn(async move { handle.stats().await }))
    };
    let asked: Vec<_> = app.models.offers().into_iter().map(ask).collect();
    for (offer, stats) in asked {
        let label = format!("model_name=\"{}\"", escape(&offer.source.name));
        restarts.push((label.clone(), offer.handle.restarts()));
        models.push((label, stats.await.unwrap_or_default()));
    }
    let mut text = Text::default();
    own(&mut text, app);
    for Series(own, alias, about, grows, value) in SERIES {
        let kind = if *grows { "counter" } else { "gauge" };
        let names = [Some(format!("smelt_{own}")), alias.map(|alias| format!("vllm:{alias}"))];
        for name in names.into_iter().flatten() {
            text.head(&name, kind, about);
            models.iter().for_each(|(label, stats)| text.line(&name, label, value(stats)));
        }
    }
    let all: Vec<&Stats> = models.iter().map(|(_, stats)| stats).collect();
    for Overall(name, about, grows, value) in OVERALL {
        let name = format!("llamacpp:{name}");
        text.head(&name, if *grows { "counter" } else { "gauge" }, about);
        text.line(&name, "", value(&all));
    }
    text.head("smelt_engine_restarts_total", "counter", "how often an engine was lost and started again");
    restarts.iter().for_each(|(label, count)| text.line("smelt_engine_restarts_total", label, *count as f64));
    for name in ["smelt_answers_total", "vllm:request_success_total"] {
        text.head(name, "counter", "answers by how they ended");
        for (label, stats) in &models {
            for (end, count) in ENDS {
                text.line(name, &format!("{label},finished_reason=\"{end}\""), count(stats) as f64);
            }
        }
    }
    for Times(own, alias, about, histogram) in TIMES {
        for name in [format!("smelt_{own}"), format!("vllm:{alias}")] {
            text.head(&name, "histogram", about);
            models.iter().for_each(|(label, stats)| times(&mut text, &name, label, histogram(stats)));
        }
    }
    text.head("vllm:cache_config_info", "gauge", "how the cache is divided");
    for (label, stats) in &models {
        let labels =
            format!("{label},block_size=\"{}\",num_gpu_blocks=\"{}\"", stats.page_tokens, stats.kv_pages);
        text.line("vllm:cache_config_info", &labels, 1.0);
    }
    // Its value is when it was last true. Routers that place adapters learn from it that there is no room for one.
    text.head("vllm:lora_requests_info", "gauge", "adapters in use");
    let adapters = "max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"";
    text.line("vllm:lora_requests_info", adapters, seconds(Timestamp::now()) as f64);
    text.0
}

/// What the server itself counts.
fn own(text: &mut Text, app: &App) {
    text.head("smelt_info", "gauge", "the version");
    text.line("smelt_info", &format!("version=\"{VERSION}\""), 1.0);
    text.head("process_start_time_seconds", "gauge", "when the server began, in seconds since 1970");
    text.line("process_start_time_seconds", "", seconds(app.started) as f64);
    text.head("smelt_http_requests_total", "counter", "requests by route and status");
    let requests = app.metrics.requests.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for ((method, route, status), count) in requests {
        let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
        text.line("smelt_http_requests_total", &labels, count as f64);
    }
    text.head("smelt_http_requests_in_flight", "gauge", "requests that are not answered yet");
    text.line("smelt_http_requests_in_flight", "", app.metrics.in_flight.0.load(Ordering::Relaxed) as f64);
    let counters = [
        ("smelt_unknown_fields_total", "fields of requests that nobody knows", &app.metrics.unknown_fields),
        (
            "smelt_volatile_blocks_total",
            "blocks left out because they change always",
            &app.metrics.volatile_blocks,
        ),
    ];
    for (name, about, counter) in counters {
        text.head(name, "counter", about);
        text.line(name, "", counter.get() as f64);
    }
}

fn times(text: &mut Text, name: &str, label: &str, histogram: &Histogram) {
    let mut total = 0;
    for (bound, count) in SECONDS.iter().zip(&histogram.counts) {
        total += count;
        text.line(&format!("{name}_bucket"), &format!("{label},le=\"{bound:?}\""), total as f64);
    }
    text.line(&format!("{name}_bucket"), &format!("{label},le=\"+Inf\""), histogram.count() as f64);
    text.line(&format!("{name}_sum"), label, histogram.sum);
    text.line(&format!("{name}_count"), label, histogram.count() as f64);
}

/// A label's value.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

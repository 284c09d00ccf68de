//! Answers of a server on this machine that has the model already.
//!
//! Prompts are made here, from the same file, so that conversations are rendered and fitted as ever: the server gets
//! tokens, by OpenAI's interface. What that can't say is for a model that is loaded here.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use smelt_api::openai::CompletionRequest;
use smelt_engine::sampler::{Mirostat, SamplerSettings, Stage};
use smelt_engine::{Event, Model, Request, Settings};

use super::flags::Structure;
use super::summary::Summary;
use crate::report::Hinted;
use crate::servers::{self, Client, Record};
use crate::{context, interrupt, wait};

/// How soon Ctrl-C is noticed, and a server's state.
const TICK: Duration = Duration::from_millis(50);

/// What is said of a stream that ends too early.
const BROKEN: &str = "it broke off; the answer is not complete";

/// A model of a server.
#[derive(Debug)]
pub(super) struct Remote {
    model: Model,
    /// What the server calls it.
    name: String,
    record: Record,
}

impl Remote {
    /// The server that has this file, if one runs. Waits for it to be ready.
    ///
    /// # Errors
    /// If it can't answer, or the file can't be read.
    pub(super) fn find(file: &Path, context: &context::Context) -> Result<Option<Self>> {
        let Ok(file) = file.canonicalize() else { return Ok(None) };
        let found = servers::running(&context.state)?.known.into_iter().find_map(|server| {
            let served = server.record.models.iter().find(|served| served.file == file)?.clone();
            Some((server.record, served))
        });
        let Some((record, served)) = found else { return Ok(None) };
        let model = Model::open(&file, &Settings { context: served.context, ..Settings::default() })?;
        let remote = Self { model, name: served.name, record };
        wait::with_spinner("waiting for the server to load its models", || remote.ready())?;
        Ok(Some(remote))
    }

    pub(super) fn model(&self) -> &Model {
        &self.model
    }

    /// What computes, for people.
    pub(super) fn describe(&self) -> String {
        format!("the server on {} (process {})", self.record.url(), self.record.pid)
    }

    fn ready(&self) -> Result<()> {
        let client = Client::new(&self.record);
        loop {
            match client.health().map_err(|error| self.failed(&error))?.as_str() {
                "ok" => return Ok(()),
                "loading" => std::thread::sleep(TICK),
                other => return Err(self.failed(&anyhow::anyhow!("it says that it is {other}"))),
            }
        }
    }

    fn failed(&self, error: &anyhow::Error) -> anyhow::Error {
        let problem = format!("{} has the model, and failed: {error:#}", self.describe());
        Hinted { problem, hint: "--local runs the model here, without the server".to_owned() }.into()
    }

    /// Whether the server can be asked for such answers.
    ///
    /// # Errors
    /// What its interface can't say.
    pub(super) fn check(
        &self,
        sampler: &SamplerSettings,
        stop: &[String],
        breakers: &[String],
    ) -> Result<(), String> {
        let mut body = sampling(sampler, breakers);
        body.insert("prompt".into(), json!([0]));
        body.insert("stop".into(), json!(stop));
        let read = CompletionRequest::read(Value::Object(body).to_string().as_bytes());
        read.map(drop).map_err(|error| error.message)
    }

    /// One answer; text goes to `sink` as it comes.
    ///
    /// # Errors
    /// If the server refuses the request, or breaks off.
    pub(super) fn generate(
        &self,
        request: &Request,
        breakers: &[String],
        structure: Option<&Structure>,
        sink: &mut dyn FnMut(&Event<'_>) -> bool,
    ) -> Result<Summary> {
        let body = self.body(request, breakers, structure);
        let client = Client::new(&self.record);
        let (lines, received) = mpsc::channel();
        // Of its own, because reading can't be interrupted. It ends with the next line that nobody takes.
        std::thread::spawn(move || match client.stream("/v1/completions", &body) {
            Ok(mut stream) => drop(stream.try_for_each(|line| lines.send(line.context(BROKEN)))),
            Err(error) => drop(lines.send(Err(error))),
        });
        let mut answer = Answer::new(request);
        loop {
            match received.recv_timeout(TICK) {
                Ok(line) => match line.and_then(|line| answer.take(&line, sink)) {
                    Ok(true) => {}
                    Ok(false) => return Ok(answer.summary),
                    Err(error) => return Err(self.failed(&error)),
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.failed(&anyhow::anyhow!(BROKEN)));
                }
            }
            if interrupt::pressed() {
                return Ok(answer.summary);
            }
        }
    }

    fn body(&self, request: &Request, breakers: &[String], structure: Option<&Structure>) -> Value {
        let mut body = sampling(&request.sampler, breakers);
        let fields = [
            ("model", json!(self.name)),
            ("prompt", json!(request.prompt)),
            ("stream", true.into()),
            ("stream_options", json!({"include_usage": true})),
            ("max_tokens", request.max_tokens.map_or(json!(-1), Value::from)),
            ("stop", json!(request.stop)),
            ("ignore_eos", request.ignore_eos.into()),
            ("skip_special_tokens", (!request.show_special).into()),
        ];
        body.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        body.extend(structure.map(|structure| (structure.field.to_owned(), structure.value.clone())));
        body.into()
    }
}

/// The sampler's settings as fields of a request. A stage that the chain lacks is not asked for, as that would bring it in.
fn sampling(sampler: &SamplerSettings, breakers: &[String]) -> Map<String, Value> {
    let stages = [
        ("temperature", sampler.temperature, Stage::Temperature),
        ("top_p", sampler.top_p, Stage::TopP),
        ("min_p", sampler.min_p, Stage::MinP),
        ("typical_p", sampler.typical_p, Stage::Typical),
        ("top_n_sigma", sampler.top_n_sigma, Stage::TopNSigma),
        ("xtc_probability", sampler.xtc_probability, Stage::Xtc),
    ];
    let stages = stages.into_iter().filter(|(.., stage)| sampler.chain.contains(stage));
    let numbers = [
        ("repeat_penalty", sampler.repeat_penalty),
        ("presence_penalty", sampler.presence_penalty),
        ("frequency_penalty", sampler.frequency_penalty),
        ("dry_multiplier", sampler.dry_multiplier),
        ("xtc_threshold", sampler.xtc_threshold),
    ];
    let numbers = stages.map(|(name, value, _)| (name, value)).chain(numbers);
    let mut body: Map<String, Value> = numbers.map(|(name, value)| (name.to_owned(), json!(value))).collect();
    if sampler.chain.contains(&Stage::TopK) {
        body.insert("top_k".into(), sampler.top_k.into());
    }
    let window = |n: Option<u32>| n.map_or(json!(-1), Value::from);
    body.insert("repeat_last_n".into(), window(sampler.penalty_last_n));
    if sampler.dry_multiplier > 0.0 {
        body.insert("dry_base".into(), json!(sampler.dry_base));
        body.insert("dry_allowed_length".into(), sampler.dry_allowed_length.into());
        body.insert("dry_penalty_last_n".into(), window(sampler.dry_last_n));
        body.insert("dry_sequence_breakers".into(), json!(breakers));
    }
    body.insert("mirostat".into(), if sampler.mirostat.is_some() { 2 } else { 0 }.into());
    if let Some(Mirostat { tau, eta }) = sampler.mirostat {
        body.insert("mirostat_tau".into(), json!(tau));
        body.insert("mirostat_eta".into(), json!(eta));
    }
    // The server may have a seed of its own.
    body.insert("seed".into(), sampler.seed.map_or(json!(-1), Value::from));
    // A ban has no number in JSON, and OpenAI's word for it is -100.
    let bias = |(id, bias): &(u32, f32)| {
        (id.to_string(), json!(if *bias == f32::NEG_INFINITY { -100.0 } else { *bias }))
    };
    body.insert("logit_bias".into(), sampler.logit_bias.iter().map(bias).collect::<Map<_, _>>().into());
    body
}

/// What a chunk of an answer holds.
#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Choice {
    text: String,
    finish_reason: Option<String>,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    prompt_tokens_details: PromptDetails,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Deserialize)]
struct Failure {
    message: String,
}

/// An answer while it comes.
struct Answer {
    start: Instant,
    max_tokens: Option<usize>,
    summary: Summary,
}

impl Answer {
    fn new(request: &Request) -> Self {
        let summary = Summary {
            finish_reason: "cancelled",
            detail: "cancelled",
            stop: None,
            prompt_tokens: request.prompt.len(),
            cached_tokens: 0,
            completion_tokens: 0,
            time_to_first_token: Duration::ZERO,
            decode_time: Duration::ZERO,
            seed: request.sampler.seed.unwrap_or_default(),
        };
        Self { start: Instant::now(), max_tokens: request.max_tokens, summary }
    }

    /// Takes a line of the stream; false if it was the last one, or nobody wants more.
    fn take(&mut self, line: &str, sink: &mut dyn FnMut(&Event<'_>) -> bool) -> Result<bool> {
        // What has no data keeps the connection alive.
        let Some(data) = line.strip_prefix("data: ") else { return Ok(true) };
        if data == "[DONE]" {
            return Ok(false);
        }
        let chunk: Chunk = serde_json::from_str(data).context("its answer makes no sense")?;
        if let Some(Failure { message }) = chunk.error {
            bail!("{message}");
        }
        let summary = &mut self.summary;
        if let Some(usage) = chunk.usage {
            summary.prompt_tokens = usage.prompt_tokens;
            summary.cached_tokens = usage.prompt_tokens_details.cached_tokens;
            summary.completion_tokens = usage.completion_tokens;
            if summary.finish_reason == "length" {
                let is_whole = self.max_tokens.is_some_and(|most| summary.completion_tokens >= most);
                summary.detail = if is_whole { "max_tokens" } else { "context_full" };
            }
        }
        let Some(choice) = chunk.choices.into_iter().next() else { return Ok(true) };
        if let Some(reason) = choice.finish_reason {
            (summary.finish_reason, summary.detail) = match (reason.as_str(), &choice.stop_reason) {
                ("length", _) => ("length", "max_tokens"),
                (_, Some(_)) => ("stop", "stop_string"),
                (_, None) => ("stop", "end_token"),
            };
            summary.stop = choice.stop_reason;
        }
        if choice.text.is_empty() {
            return Ok(true);
        }
        // As near as a client can tell, until the usage comes.
        summary.completion_tokens += 1;
        let now = self.start.elapsed();
        if summary.time_to_first_token.is_zero() {
            summary.time_to_first_token = now;
        }
        summary.decode_time = now - summary.time_to_first_token;
        Ok(sink(&Event::Text(&choice.text)))
    }
}

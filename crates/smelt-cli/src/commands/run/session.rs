//! A model, the conversation that its cache holds, and one answer after the other.

use std::sync::Arc;

use anyhow::Result;
use smelt_engine::chat::{Fitted, Message, RenderOptions};
use smelt_engine::sampler::breaker_sequences;
use smelt_engine::tokenizer::Special;
use smelt_engine::{Engine, Finish, Model, Request, Sequence};

use super::super::prompt::encode;
use super::knobs::Knobs;
use super::printer::{Printer, Style};
use super::remote::Remote;
use super::summary::Summary;
use crate::interrupt::{self, Listener};
use crate::report::{self, Usage};

/// Seeds that are picked here stay below this, so that every JSON reader gets them whole.
const SEEDS: u64 = 1 << 53;

/// A model, and what answers with it.
pub(super) struct Session {
    host: Host,
    breakers: Option<Arc<[Vec<u32>]>>,
    quiet: bool,
    /// Ctrl-C ends an answer here, not the process.
    listener: Listener,
}

/// What answers.
enum Host {
    /// This process, with the model's cache.
    Here { engine: Box<Engine>, sequence: Sequence, bandwidth: Option<f64> },
    /// A server.
    There(Box<Remote>),
}

/// An answer.
pub(super) struct Answer {
    /// Its text.
    pub(super) text: String,
    /// How it went.
    pub(super) summary: Summary,
    /// Whether Ctrl-C ended it.
    pub(super) interrupted: bool,
}

impl Session {
    /// A session that computes here; `quiet` leaves out progress and notes.
    pub(super) fn here(mut engine: Engine, quiet: bool) -> Self {
        engine.interrupt_on(interrupt::flag());
        let engine = Box::new(engine);
        Self::new(Host::Here { engine, sequence: Sequence::default(), bandwidth: None }, quiet)
    }

    /// A session that asks a server.
    pub(super) fn there(remote: Remote, quiet: bool) -> Self {
        Self::new(Host::There(Box::new(remote)), quiet)
    }

    fn new(host: Host, quiet: bool) -> Self {
        Self { host, breakers: None, quiet, listener: Listener::new() }
    }

    /// The model.
    pub(super) fn model(&self) -> &Model {
        match &self.host {
            Host::Here { engine, .. } => engine.model(),
            Host::There(remote) => remote.model(),
        }
    }

    fn backend(&self) -> String {
        match &self.host {
            Host::Here { engine, .. } => engine.device().description,
            Host::There(remote) => remote.describe(),
        }
    }

    /// Begins a new turn: what Ctrl-C ended before is over.
    pub(super) fn begin(&self) {
        self.listener.renew();
    }

    /// Tokens that a prompt leaves free: the longest answer, as far as that leaves half of the context to the prompt.
    fn reserve(&self, knobs: &Knobs) -> usize {
        let context = self.model().facts().context;
        knobs.max_tokens.unwrap_or(context / 4).min(context / 2)
    }

    /// A conversation as a prompt.
    pub(super) fn fit_chat(&self, messages: &[Message], knobs: &Knobs) -> Result<Fitted> {
        let options = RenderOptions {
            add_generation_prompt: true,
            enable_thinking: knobs.think,
            ..RenderOptions::default()
        };
        let options = options.at(jiff::Zoned::now().datetime());
        let system = knobs.system.iter().map(|text| Message::new("system", text.as_str()));
        let messages: Vec<Message> = system.chain(messages.iter().cloned()).collect();
        Ok(self.model().fit_chat(&messages, &options, self.reserve(knobs), knobs.overflow)?)
    }

    /// Plain text as a prompt. BOS is as the vocabulary says; an EOS would end the text that is to be continued.
    pub(super) fn fit_text(&self, text: &str, special: Special, knobs: &Knobs) -> Result<Fitted> {
        let tokenizer = self.model().tokenizer();
        let mut tokens = encode(tokenizer, text, special, self.quiet);
        if tokenizer.adds_eos() {
            tokens.pop();
        }
        Ok(self.model().fit_tokens(tokens, self.reserve(knobs), knobs.overflow)?)
    }

    /// Answers and prints. What the cache holds of the prompt already is not computed again.
    pub(super) fn answer(&mut self, fitted: Fitted, knobs: &Knobs, style: Style) -> Result<Answer> {
        let mut sampler = knobs.sampler.clone();
        let seed = *sampler.seed.get_or_insert_with(|| fastrand::u64(..SEEDS));
        if let Host::There(remote) = &self.host {
            remote.check(&sampler, &knobs.stop, &knobs.dry_breakers).map_err(Usage)?;
        }
        if sampler.dry_multiplier > 0.0 && matches!(self.host, Host::Here { .. }) {
            sampler.dry_breakers = self.dry_breakers(&knobs.dry_breakers)?;
        }
        let mut printer = Printer::new(style, self.quiet);
        printer.start(self.model().facts(), &self.backend(), &fitted, seed, self.quiet)?;
        let request = Request {
            prompt: fitted.tokens,
            sampler,
            max_tokens: knobs.max_tokens,
            stop: knobs.stop.clone(),
            ignore_eos: knobs.ignore_eos,
            show_special: knobs.show_special,
            grammar: knobs.structure.as_ref().map(|structure| structure.grammar.clone()),
        };
        let summary = match &mut self.host {
            Host::Here { engine, sequence, .. } => {
                let outcome = engine.generate(sequence, &request, &mut |event| {
                    printer.event(&event) && !interrupt::pressed()
                })?;
                Summary::new(&outcome, &request.stop)
            }
            Host::There(remote) => {
                let structure = knobs.structure.as_ref();
                remote
                    .generate(&request, &knobs.dry_breakers, structure, &mut |event| printer.event(event))?
            }
        };
        let interrupted = interrupt::pressed();
        let text = printer.end(&summary)?;
        if summary.detail == Finish::ContextFull.detail() && !self.quiet {
            let context = self.model().facts().context;
            report::warn(&format!(
                "the answer ends because the context is full: {context} tokens; --ctx sets how many it holds"
            ));
        }
        Ok(Answer { text, summary, interrupted })
    }

    fn dry_breakers(&mut self, texts: &[String]) -> Result<Arc<[Vec<u32>]>> {
        if let Some(breakers) = &self.breakers {
            return Ok(breakers.clone());
        }
        let tokenizer = self.model().tokenizer();
        let pieces =
            (0..tokenizer.vocab_size() as u32).filter_map(|id| Some((id, tokenizer.token_bytes(id, true)?)));
        let tokenize = |text: &str| tokenizer.encode(text, Special::Text, false);
        let breakers: Arc<[Vec<u32>]> = breaker_sequences(texts, pieces, tokenize)?.into();
        self.breakers = Some(breakers.clone());
        Ok(breakers)
    }

    /// Says how fast an answer came, and how that compares to what the memory gives.
    pub(super) fn tell_speed(&mut self, summary: &Summary) -> Result<()> {
        // What a server's threads can read is not for a client to measure.
        let bandwidth = match &mut self.host {
            Host::There(_) => None,
            Host::Here { bandwidth: Some(known), .. } => Some(*known),
            Host::Here { engine, bandwidth, .. } => {
                *bandwidth = engine.measure_bandwidth()?;
                *bandwidth
            }
        };
        let facts = self.model().facts();
        let rate = |rate: f64| if rate.is_finite() { format!("{rate:.1} tokens/s") } else { "-".to_owned() };
        let (prompt, cached) = (summary.prompt_tokens, summary.cached_tokens);
        let first = summary.time_to_first_token.as_secs_f64();
        let mut lines = vec![
            format!("prompt:      {prompt} tokens, {cached} of them cached; {}", rate(summary.prompt_rate())),
            format!("first token: after {:.0} ms", first * 1e3),
            format!("answer:      {} tokens; {}", summary.completion_tokens, rate(summary.decode_rate())),
        ];
        // A step reads the weights, and the keys and values of all tokens so far: half of the answer, on average.
        let behind = prompt as f64 + summary.completion_tokens as f64 / 2.0;
        let bytes = facts.weight_bytes_per_token as f64 + facts.kv_bytes_per_token as f64 * behind;
        let read = bytes * summary.decode_rate() / 1e9;
        match bandwidth {
            Some(memory) if read.is_finite() => {
                lines.push(format!(
                    "memory:      {read:.2} GB/s of the {memory:.2} GB/s that the threads can read"
                ));
            }
            _ => {}
        }
        lines.push(format!("backend:     {}", self.backend()));
        lines.push(format!("seed:        {}", summary.seed));
        lines.iter().for_each(|line| report::note(line));
        Ok(())
    }
}

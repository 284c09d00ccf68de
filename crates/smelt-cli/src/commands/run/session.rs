//! A model, the conversation that its cache holds, and one answer after the other.

use std::sync::Arc;

use anyhow::Result;
use smelt_engine::chat::{Fitted, Message, RenderOptions};
use smelt_engine::sampler::breaker_sequences;
use smelt_engine::tokenizer::Special;
use smelt_engine::{Engine, Finish, Outcome, Request, Sequence};

use super::super::prompt::encode;
use super::knobs::Knobs;
use super::printer::{Printer, Style};
use crate::interrupt::{self, Listener};
use crate::report;

/// Seeds that are picked here stay below this, so that every JSON reader gets them whole.
const SEEDS: u64 = 1 << 53;

/// A loaded model with its cache.
pub(super) struct Session {
    pub(super) engine: Engine,
    sequence: Sequence,
    breakers: Option<Arc<[Vec<u32>]>>,
    bandwidth: Option<f64>,
    quiet: bool,
    /// Ctrl-C ends an answer here, not the process.
    listener: Listener,
}

/// An answer.
pub(super) struct Answer {
    /// Its text.
    pub(super) text: String,
    /// How it went.
    pub(super) outcome: Outcome,
    /// Whether Ctrl-C ended it.
    pub(super) interrupted: bool,
}

impl Session {
    /// A session; `quiet` leaves out progress and notes.
    pub(super) fn new(mut engine: Engine, quiet: bool) -> Self {
        engine.interrupt_on(interrupt::flag());
        Self {
            engine,
            sequence: Sequence::default(),
            breakers: None,
            bandwidth: None,
            quiet,
            listener: Listener::new(),
        }
    }

    /// Begins a new turn: what Ctrl-C ended before is over.
    pub(super) fn begin(&self) {
        self.listener.renew();
    }

    /// Tokens that a prompt leaves free: the longest answer, as far as that leaves half of the context to the prompt.
    fn reserve(&self, knobs: &Knobs) -> usize {
        let context = self.engine.facts().context;
        knobs.max_tokens.unwrap_or(context / 4).min(context / 2)
    }

    /// A conversation as a prompt.
    pub(super) fn fit_chat(&self, messages: &[Message], knobs: &Knobs) -> Result<Fitted> {
        let options = RenderOptions {
            add_generation_prompt: true,
            enable_thinking: knobs.think,
            now: Some(jiff::Zoned::now().datetime()),
            ..RenderOptions::default()
        };
        let system = knobs.system.iter().map(|text| Message::new("system", text.as_str()));
        let messages: Vec<Message> = system.chain(messages.iter().cloned()).collect();
        Ok(self.engine.model().fit_chat(&messages, &options, self.reserve(knobs), knobs.overflow)?)
    }

    /// Plain text as a prompt. BOS is as the vocabulary says; an EOS would end the text that is to be continued.
    pub(super) fn fit_text(&self, text: &str, special: Special, knobs: &Knobs) -> Result<Fitted> {
        let tokenizer = self.engine.tokenizer();
        let mut tokens = encode(tokenizer, text, special, self.quiet);
        if tokenizer.adds_eos() {
            tokens.pop();
        }
        Ok(self.engine.model().fit_tokens(tokens, self.reserve(knobs), knobs.overflow)?)
    }

    /// Answers and prints. What the cache holds of the prompt already is not computed again.
    pub(super) fn answer(&mut self, fitted: Fitted, knobs: &Knobs, style: Style) -> Result<Answer> {
        let mut sampler = knobs.sampler.clone();
        let seed = *sampler.seed.get_or_insert_with(|| fastrand::u64(..SEEDS));
        if sampler.dry_multiplier > 0.0 {
            sampler.dry_breakers = self.dry_breakers(&knobs.dry_breakers)?;
        }
        let mut printer = Printer::new(style, self.quiet);
        printer.start(&self.engine, &fitted, seed, self.quiet)?;
        let request = Request {
            prompt: fitted.tokens,
            sampler,
            max_tokens: knobs.max_tokens,
            stop: knobs.stop.clone(),
            ignore_eos: knobs.ignore_eos,
            show_special: knobs.show_special,
            grammar: knobs.grammar.clone(),
        };
        let outcome = self.engine.generate(&mut self.sequence, &request, &mut |event| {
            printer.event(&event) && !interrupt::pressed()
        })?;
        let interrupted = interrupt::pressed();
        let text = printer.end(&outcome, &request.stop)?;
        if outcome.finish == Finish::ContextFull && !self.quiet {
            let context = self.engine.facts().context;
            report::warn(&format!(
                "the answer ends because the context is full: {context} tokens; --ctx sets how many it holds"
            ));
        }
        Ok(Answer { text, outcome, interrupted })
    }

    fn dry_breakers(&mut self, texts: &[String]) -> Result<Arc<[Vec<u32>]>> {
        if let Some(breakers) = &self.breakers {
            return Ok(breakers.clone());
        }
        let tokenizer = self.engine.tokenizer();
        let pieces =
            (0..tokenizer.vocab_size() as u32).filter_map(|id| Some((id, tokenizer.token_bytes(id, true)?)));
        let tokenize = |text: &str| tokenizer.encode(text, Special::Text, false);
        let breakers: Arc<[Vec<u32>]> = breaker_sequences(texts, pieces, tokenize)?.into();
        self.breakers = Some(breakers.clone());
        Ok(breakers)
    }

    /// Says how fast an answer came, and how that compares to what the memory gives.
    pub(super) fn tell_speed(&mut self, outcome: &Outcome) -> Result<()> {
        if self.bandwidth.is_none() {
            self.bandwidth = self.engine.measure_bandwidth()?;
        }
        let facts = self.engine.facts();
        let rate = |rate: f64| if rate.is_finite() { format!("{rate:.1} tokens/s") } else { "-".to_owned() };
        let (prompt, cached) = (outcome.prompt_tokens, outcome.cached_tokens);
        let first = outcome.time_to_first_token.as_secs_f64();
        let mut lines = vec![
            format!("prompt:      {prompt} tokens, {cached} of them cached; {}", rate(outcome.prompt_rate())),
            format!("first token: after {:.0} ms", first * 1e3),
            format!("answer:      {} tokens; {}", outcome.tokens.len(), rate(outcome.decode_rate())),
        ];
        // A step reads the weights, and the keys and values of all tokens so far: half of the answer, on average.
        let behind = prompt as f64 + outcome.tokens.len() as f64 / 2.0;
        let bytes = facts.weight_bytes_per_token as f64 + facts.kv_bytes_per_token as f64 * behind;
        let read = bytes * outcome.decode_rate() / 1e9;
        match self.bandwidth {
            Some(memory) if read.is_finite() => {
                lines.push(format!(
                    "memory:      {read:.2} GB/s of the {memory:.2} GB/s that the threads can read"
                ));
            }
            _ => {}
        }
        lines.push(format!("backend:     {}", self.engine.device().description));
        lines.push(format!("seed:        {}", outcome.seed));
        lines.iter().for_each(|line| report::note(line));
        Ok(())
    }
}

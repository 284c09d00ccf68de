//! One answer at a time, into a cache that the caller keeps.

use crate::emitter::{Emission, Emitted, Emitter};
use crate::lines::LineLimits;
use crate::runner::Want;
use crate::sampler::SamplerSettings;
use crate::{Engine, Error, Grammar, Sequence};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What to generate.
#[derive(Debug, Clone)]
pub struct Request {
    /// The whole prompt; what of it the sequence already holds is not computed again.
    pub prompt: Vec<u32>,
    /// How to choose tokens.
    pub sampler: SamplerSettings,
    /// Tokens to generate; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// Strings that end the answer; nothing of them is emitted.
    pub stop: Vec<String>,
    /// Go on behind a token that ends the answer.
    pub ignore_eos: bool,
    /// Emit the texts of control tokens.
    pub show_special: bool,
    /// What the answer must look like.
    pub grammar: Option<Grammar>,
}

/// What happens while generating.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<'a> {
    /// So much of the prompt is computed.
    Prefill { done: usize, total: usize },
    /// A token was chosen; its text may still be held back.
    Token(u32),
    /// Text, in whole characters.
    Text(&'a str),
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Finish {
    /// The model ended it, by this token.
    EndOfGeneration(u32),
    /// A stop string, by its index.
    StopString(usize),
    /// `max_tokens` are reached.
    MaxTokens,
    /// A line ended, or began, where [`crate::LineLimits`] say so.
    Line,
    /// The context is full.
    ContextFull,
    /// The sink said so, or the flag of [`Engine::interrupt_on`].
    Cancelled,
}

impl Finish {
    /// The field's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EndOfGeneration(_) | Self::StopString(_) => "stop",
            Self::MaxTokens | Self::Line | Self::ContextFull => "length",
            Self::Cancelled => "cancelled",
        }
    }

    /// What exactly it was, where [`Finish::name`] has one word for two reasons.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::EndOfGeneration(_) => "end_token",
            Self::StopString(_) => "stop_string",
            Self::MaxTokens => "max_tokens",
            Self::Line => "line",
            Self::ContextFull => "context_full",
            Self::Cancelled => "cancelled",
        }
    }
}

/// How an answer went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub finish: Finish,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, taken from the cache.
    pub cached_tokens: usize,
    /// Tokens generated, the ending one not counted.
    pub tokens: Vec<u32>,
    /// From the start to the first token's choice.
    pub time_to_first_token: Duration,
    /// From the first token's choice to the last's.
    pub decode_time: Duration,
    /// The seed in use: with it the answer can be repeated.
    pub seed: u64,
}

impl Outcome {
    /// Prompt tokens computed per second.
    #[must_use]
    pub fn prompt_rate(&self) -> f64 {
        (self.prompt_tokens - self.cached_tokens) as f64 / self.time_to_first_token.as_secs_f64()
    }

    /// Tokens per second behind the first.
    #[must_use]
    pub fn decode_rate(&self) -> f64 {
        self.tokens.len().saturating_sub(1) as f64 / self.decode_time.as_secs_f64()
    }
}

/// The sink: false ends the answer.
pub type Sink<'a> = dyn FnMut(Event<'_>) -> bool + 'a;

impl Engine {
    /// Computes the prompt behind what `sequence` shares with it, then generates. The sequence holds all that was
    /// computed afterwards, so that the next turn goes on from there.
    ///
    /// # Errors
    /// If the prompt is empty or doesn't fit, a setting is out of range, the grammar can't be enforced, or the model
    /// computes nonsense.
    pub fn generate(
        &mut self,
        sequence: &mut Sequence,
        request: &Request,
        sink: &mut Sink<'_>,
    ) -> Result<Outcome, Error> {
        let start = Instant::now();
        let prompt = &request.prompt;
        let context = self.model.facts.context;
        self.model.facts.check_generates()?;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > context {
            return Err(Error::ContextExceeded { prompt: prompt.len(), reserve: 0, context });
        }
        let emission = Emission {
            sampler: request.sampler.clone(),
            stop: request.stop.clone(),
            lines: LineLimits::default(),
            max_tokens: request.max_tokens,
            context,
            ignore_eos: request.ignore_eos,
            show_special: request.show_special,
            shown: Arc::default(),
            logprobs: None,
            post_sampling: false,
            constraint: request.grammar.as_ref().map(|grammar| self.model.constrain(grammar)).transpose()?,
        };
        let mut emitter = Emitter::new(&self.model, emission, prompt)?;
        // The last token is always computed, because its logits are needed.
        let cached_tokens = sequence.common_prefix(prompt).min(prompt.len() - 1);
        self.runner.truncate(sequence, cached_tokens);
        let mut outcome = Outcome {
            finish: Finish::Cancelled,
            prompt_tokens: prompt.len(),
            cached_tokens,
            tokens: Vec::new(),
            time_to_first_token: Duration::ZERO,
            decode_time: Duration::ZERO,
            seed: emitter.seed(),
        };
        let mut progress =
            |done: usize| sink(Event::Prefill { done: cached_tokens + done, total: prompt.len() });
        let Some(mut emitted) =
            self.advance(sequence, &prompt[cached_tokens..], &mut emitter, &mut progress)?
        else {
            return Ok(outcome);
        };
        let first = Instant::now();
        outcome.time_to_first_token = first - start;
        outcome.finish = loop {
            if let Some(token) = emitted.token {
                outcome.tokens.push(token);
                outcome.decode_time = first.elapsed();
                if !sink(Event::Token(token)) {
                    break Finish::Cancelled;
                }
            }
            if !emitted.text.is_empty() && !sink(Event::Text(&emitted.text)) {
                break Finish::Cancelled;
            }
            let token = match (emitted.finish, emitted.token) {
                (None, Some(token)) => token,
                (finish, _) => break finish.unwrap_or(Finish::Cancelled),
            };
            match self.advance(sequence, &[token], &mut emitter, &mut |_| true)? {
                Some(next) => emitted = next,
                None => break Finish::Cancelled,
            }
        };
        Ok(outcome)
    }

    /// Computes `tokens` and emits what follows them; `None` if the sink or the flag ended it.
    fn advance(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        emitter: &mut Emitter,
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<Option<Emitted>, Error> {
        let mut emitted = None;
        let mut emit = |_: usize, logits: &mut [f32]| {
            emitted = Some(emitter.next(logits)?);
            Ok(())
        };
        match self.runner.extend(sequence, tokens, Want::Last, progress, &mut emit) {
            Ok(_) => Ok(emitted),
            Err(Error::Backend(smelt_backend::Error::Interrupted)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

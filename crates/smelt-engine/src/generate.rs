//! The one token loop and the one emitter.

use crate::runner::Want;
use crate::sampler::{SampleError, Sampler, SamplerSettings};
use crate::stop::StopMatcher;
use crate::{Engine, Error, Sequence};
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it, by this token.
    EndOfGeneration(u32),
    /// A stop string, by its index.
    StopString(usize),
    /// `max_tokens` are reached.
    MaxTokens,
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
            Self::MaxTokens | Self::ContextFull => "length",
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
    /// If the prompt is empty or doesn't fit, a setting is out of range, or the model computes nonsense.
    pub fn generate(
        &mut self,
        sequence: &mut Sequence,
        request: &Request,
        sink: &mut Sink<'_>,
    ) -> Result<Outcome, Error> {
        let start = Instant::now();
        let prompt = &request.prompt;
        let context = self.facts.context;
        if prompt.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        if prompt.len() > context {
            return Err(Error::ContextExceeded { prompt: prompt.len(), reserve: 0, context });
        }
        let mut sampler = Sampler::new(request.sampler.clone(), self.runner.vocab_size, prompt)?;
        let mut emitter = Emitter {
            stop: StopMatcher::new(&request.stop)?,
            text: self.tokenizer.stream_after(prompt.last().copied(), request.show_special),
        };
        // The last token is always computed, because its logits are needed.
        let cached_tokens = sequence.common_prefix(prompt).min(prompt.len() - 1);
        self.runner.truncate(sequence, cached_tokens);
        let mut loop_state = Loop { engine: self, sampler: &mut sampler, next: None, step: 0 };
        let mut outcome = Outcome {
            finish: Finish::Cancelled,
            prompt_tokens: prompt.len(),
            cached_tokens,
            tokens: Vec::new(),
            time_to_first_token: Duration::ZERO,
            decode_time: Duration::ZERO,
            seed: loop_state.sampler.seed(),
        };
        let mut progress =
            |done: usize| sink(Event::Prefill { done: cached_tokens + done, total: prompt.len() });
        if !loop_state.advance(sequence, &prompt[cached_tokens..], &mut progress)? {
            return Ok(outcome);
        }
        let first = Instant::now();
        outcome.time_to_first_token = first - start;
        let max_tokens = request.max_tokens.unwrap_or(usize::MAX);
        outcome.finish = loop {
            if outcome.tokens.len() >= max_tokens {
                break Finish::MaxTokens;
            }
            let token = loop_state.next.take().expect("every step samples");
            if loop_state.engine.tokenizer.is_eog(token) && !request.ignore_eos {
                break Finish::EndOfGeneration(token);
            }
            outcome.tokens.push(token);
            outcome.decode_time = first.elapsed();
            if let Some(finish) = emitter.push(token, sink) {
                break finish;
            }
            if outcome.tokens.len() >= max_tokens {
                break Finish::MaxTokens;
            }
            if sequence.tokens.len() >= context {
                break Finish::ContextFull;
            }
            if !loop_state.advance(sequence, &[token], &mut |_| true)? {
                break Finish::Cancelled;
            }
        };
        emitter.finish(&mut outcome.finish, sink);
        Ok(outcome)
    }
}

/// Steps and samples.
struct Loop<'a> {
    engine: &'a mut Engine,
    sampler: &'a mut Sampler,
    next: Option<u32>,
    step: usize,
}

impl Loop<'_> {
    /// Computes `tokens` and chooses the next one.
    fn advance(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        progress: &mut dyn FnMut(usize) -> bool,
    ) -> Result<bool, Error> {
        let Self { engine, sampler, next, step } = self;
        let model = &engine.facts.name;
        let mut sample = |_: usize, logits: &mut [f32]| {
            let token = sampler.sample(logits).map_err(|source| match source {
                SampleError::NotFinite { .. } => Error::Logits { model: model.clone(), step: *step, source },
                other => Error::Sampler(other),
            })?;
            sampler.accept(token);
            *next = Some(token);
            Ok(())
        };
        let complete = match engine.runner.extend(sequence, tokens, Want::Last, progress, &mut sample) {
            Err(Error::Backend(smelt_backend::Error::Interrupted)) => false,
            other => other?,
        };
        *step += 1;
        Ok(complete || self.next.is_some())
    }
}

/// Tokens to text that may be shown: whole characters, nothing of a stop string.
struct Emitter {
    text: smelt_tokenizer::Detokenizer,
    stop: StopMatcher,
}

impl Emitter {
    /// Emits what `token` completes.
    fn push(&mut self, token: u32, sink: &mut Sink<'_>) -> Option<Finish> {
        if !sink(Event::Token(token)) {
            return Some(Finish::Cancelled);
        }
        let text = self.text.push(token);
        self.emit(&text, sink)
    }

    fn emit(&mut self, text: &str, sink: &mut Sink<'_>) -> Option<Finish> {
        let emit = self.stop.push(text);
        if !emit.text.is_empty() && !sink(Event::Text(emit.text)) {
            return Some(Finish::Cancelled);
        }
        emit.stopped.map(Finish::StopString)
    }

    /// Emits what was held back, unless a stop string or the sink ended the answer.
    fn finish(mut self, finish: &mut Finish, sink: &mut Sink<'_>) {
        if matches!(finish, Finish::StopString(_) | Finish::Cancelled) {
            return;
        }
        let text = self.text.finish();
        if let Some(stopped) = self.emit(&text, sink) {
            *finish = stopped;
            return;
        }
        let held = self.stop.finish();
        if !held.is_empty() {
            sink(Event::Text(&held));
        }
    }
}

//! Measurements of a model: logits, perplexity, speed.

use crate::runner::{Runner, Want};
use crate::sampler::SampleError;
use crate::{Engine, Error, Sequence};
use smelt_tokenizer::Special;
use std::time::{Duration, Instant};

/// Tokens of a prompt that warm up.
const WARM_UP_PROMPT: usize = 512;
/// Tokens of an answer that warm up.
const WARM_UP_STEPS: usize = 16;

/// Takes the index of a token and the logits behind it.
pub type LogitsSink<'a> = dyn FnMut(usize, &[f32]) -> Result<(), Error> + 'a;

/// Perplexity of a text, so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Perplexity {
    /// Chunks done.
    pub chunks: usize,
    /// Chunks to do.
    pub total: usize,
    /// Tokens that counted.
    pub tokens: usize,
    /// Mean negative log-likelihood, in nats.
    pub nll: f64,
    /// Standard error of the mean.
    pub nll_error: f64,
}

impl Perplexity {
    /// `exp(nll)`.
    #[must_use]
    pub fn value(&self) -> f64 {
        self.nll.exp()
    }

    /// Standard error of the perplexity, to first order.
    #[must_use]
    pub fn error(&self) -> f64 {
        self.value() * self.nll_error
    }
}

impl Engine {
    /// Logits behind every one of `tokens`, in order, `(index, logits)`.
    ///
    /// # Errors
    /// If there are no tokens, more than the context holds, or one outside the vocabulary; or the logits are no numbers.
    pub fn logits(&mut self, tokens: &[u32], sink: &mut LogitsSink<'_>) -> Result<(), Error> {
        self.model.facts.check_generates()?;
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt);
        }
        let context = self.model.facts.context;
        if tokens.len() > context {
            return Err(Error::ContextExceeded { prompt: tokens.len(), reserve: 0, context });
        }
        let mut sequence = Sequence::default();
        let model = &self.model.facts.name;
        let mut checked = |index: usize, logits: &mut [f32]| {
            check_finite(model, index, logits)?;
            sink(index, logits)
        };
        let done = self.runner.extend(&mut sequence, tokens, Want::From(0), &mut |_| true, &mut checked);
        self.release(sequence);
        done.map(|_| ())
    }

    /// Perplexity by llama.cpp's protocol: the text is cut into chunks of `context` tokens, each starting with BOS
    /// where the model has one, and the second half of each chunk counts.
    ///
    /// # Errors
    /// If the text has fewer than two chunks, or the model fails.
    pub fn perplexity(
        &mut self,
        text: &str,
        context: usize,
        chunks: Option<usize>,
        progress: &mut dyn FnMut(&Perplexity) -> bool,
    ) -> Result<Perplexity, Error> {
        self.model.facts.check_generates()?;
        let tokens = self.model.tokenizer.encode(text, Special::Text, true);
        if context < 4 || context > self.model.facts.context {
            let range = format!("between 4 and {}", self.model.facts.context);
            return Err(Error::Setting { name: "ctx", value: context.to_string(), range });
        }
        if tokens.len() < 2 * context {
            return Err(Error::TextTooShort { tokens: tokens.len(), needed: 2 * context, context });
        }
        let total = (tokens.len() / context).min(chunks.unwrap_or(usize::MAX));
        let bos = self.model.tokenizer.bos().filter(|_| self.model.tokenizer.adds_bos());
        let mut state = Perplexity { chunks: 0, total, tokens: 0, nll: 0.0, nll_error: 0.0 };
        let (mut sum, mut sum_of_squares) = (0.0, 0.0);
        for chunk in tokens.chunks_exact(context).take(total) {
            let mut chunk = chunk.to_vec();
            if let Some(bos) = bos {
                chunk[0] = bos;
            }
            let mut sequence = Sequence::default();
            let first = context / 2;
            let model = &self.model.facts.name;
            let mut count = |index: usize, logits: &mut [f32]| {
                check_finite(model, index, logits)?;
                if let Some(next) = chunk.get(index + 1) {
                    let nll = negative_log_likelihood(logits, *next);
                    sum += nll;
                    sum_of_squares += nll * nll;
                    state.tokens += 1;
                }
                Ok(())
            };
            let done =
                self.runner.extend(&mut sequence, &chunk, Want::From(first), &mut |_| true, &mut count);
            self.release(sequence);
            done?;
            state.chunks += 1;
            let n = state.tokens as f64;
            state.nll = sum / n;
            state.nll_error = ((sum_of_squares / n - state.nll * state.nll).max(0.0) / (n - 1.0)).sqrt();
            if !progress(&state) {
                break;
            }
        }
        Ok(state)
    }

    /// Times to compute `n_prompt` tokens, in batches, behind `depth` others, which are computed once; a first run that
    /// warms caches and threads up isn't among them.
    ///
    /// # Errors
    /// If they don't fit, or the model fails.
    pub fn time_prefill(
        &mut self,
        n_prompt: usize,
        depth: usize,
        repetitions: u32,
    ) -> Result<Vec<Duration>, Error> {
        self.check_fits(depth + n_prompt)?;
        let tokens = self.probe_tokens(depth + n_prompt);
        let warm_up = n_prompt.min(WARM_UP_PROMPT);
        self.time(&tokens[..depth], 1, repetitions, |runner, sequences, is_warm_up| {
            let timed = &tokens[depth..][..if is_warm_up { warm_up } else { n_prompt }];
            let (all, ignore) = (&mut |_| true, &mut |_: usize, _: &mut [f32]| Ok(()));
            runner.extend(&mut sequences[0], timed, Want::Last, all, ignore).map(drop)
        })
    }

    /// Times to compute `n_gen` tokens of each of `parallel` sequences, one of each at a time, behind `depth` others,
    /// which are computed once; a first run that warms caches and threads up isn't among them.
    ///
    /// # Errors
    /// If they don't fit, or the model fails.
    pub fn time_decode(
        &mut self,
        n_gen: usize,
        depth: usize,
        parallel: usize,
        repetitions: u32,
    ) -> Result<Vec<Duration>, Error> {
        self.check_fits(depth + n_gen)?;
        let tokens = self.probe_tokens(depth + n_gen * parallel);
        let (before, timed) = tokens.split_at(depth);
        let warm_up = n_gen.min(WARM_UP_STEPS);
        self.time(before, parallel, repetitions, |runner, sequences, is_warm_up| {
            let mut steps = timed.chunks(parallel).take(if is_warm_up { warm_up } else { n_gen });
            steps.try_for_each(|tokens| runner.step_each(sequences, tokens))
        })
    }

    /// Runs and times `run`, which appends to sequences of the tokens `before`, and which is told whether it warms up.
    fn time(
        &mut self,
        before: &[u32],
        sequences: usize,
        repetitions: u32,
        mut run: impl FnMut(&mut Runner, &mut [Sequence], bool) -> Result<(), Error>,
    ) -> Result<Vec<Duration>, Error> {
        let mut sequences: Vec<Sequence> = (0..sequences).map(|_| Sequence::default()).collect();
        let mut measure = || {
            for sequence in &mut sequences {
                self.runner.extend(sequence, before, Want::Last, &mut |_| true, &mut |_, _| Ok(()))?;
            }
            let mut times = Vec::new();
            for repetition in 0..=repetitions {
                let start = Instant::now();
                run(&mut self.runner, &mut sequences, repetition == 0)?;
                times.push(start.elapsed());
                for sequence in &mut sequences {
                    self.runner.truncate(sequence, before.len());
                }
            }
            times.remove(0);
            Ok(times)
        };
        let times = measure();
        sequences.into_iter().for_each(|sequence| self.release(sequence));
        times
    }

    /// Fails if a sequence can't have `n` tokens.
    fn check_fits(&self, n: usize) -> Result<(), Error> {
        self.model.facts.check_generates()?;
        let context = self.model.facts.context;
        if n > context {
            return Err(Error::ContextExceeded { prompt: n, reserve: 0, context });
        }
        Ok(())
    }

    /// Tokens spread over the vocabulary, the same every time. Which they are doesn't matter for speed, except to
    /// experts: a single token would load the same ones.
    fn probe_tokens(&self, n: usize) -> Vec<u32> {
        let vocab_size = self.runner.vocab_size as u64;
        (0..n as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % vocab_size) as u32).collect()
    }
}

/// `−ln softmax(logits)[token]`. Exponentials are f32, because there are as many as the vocabulary has tokens; their sum
/// is f64.
fn negative_log_likelihood(logits: &[f32], token: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.chunks(64).map(|c| f64::from(c.iter().map(|l| (l - max).exp()).sum::<f32>())).sum();
    sum.ln() - f64::from(logits[token as usize] - max)
}

/// Fails where a logit is NaN or infinite: no measure of it would mean anything.
fn check_finite(model: &str, step: usize, logits: &[f32]) -> Result<(), Error> {
    match logits.iter().position(|l| l.is_nan() || *l == f32::INFINITY) {
        None => Ok(()),
        Some(token) => {
            let source = SampleError::NotFinite { token: token as u32, value: logits[token] };
            Err(Error::Logits { model: model.into(), step, source })
        }
    }
}

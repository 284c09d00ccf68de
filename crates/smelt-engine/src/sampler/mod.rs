//! Choosing the next token from the model's logits.
//!
//! A step edits single logits (bias, penalties, DRY), narrows the tokens down through a chain of stages, and draws one.
//! The order and meaning of the stages are those of llama.cpp's default chain, with four things made exact: ties go to
//! the lowest id, arithmetic between logits is `f64`, a DRY breaker inside another one counts, and a finite logit never
//! becomes infinite. [`Sampler::sample`] puts the edited logits back, so that the caller still has what the model said.
//!
//! **Reproducibility.** Each sampler has its own generator, PCG XSL RR 128/64 (O'Neill 2014, `rand_pcg::Pcg64`), seeded
//! from [`SamplerSettings::seed`]. A step that is not greedy takes exactly two numbers from it, one for XTC's decision
//! and one for the draw, whether or not they are needed: a sequence's tokens depend on its seed, its logits and how
//! many tokens it drew before, and on nothing else.

mod candidates;
mod dry;
mod edits;
mod error;
mod history;
mod infill;
mod logprobs;
mod names;
mod recommended;
mod settings;
mod stages;

pub use dry::{MAX_BREAKER_TOKENS, breaker_sequences};
pub use error::SampleError;
pub use logprobs::{LogProbs, top_logprobs};
pub use names::Named;
pub use recommended::{Recommendation, Recommended, Wish};
pub use settings::{Mirostat, SamplerSettings, Stage};

use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use smelt_tokenizer::Tokenizer;

use candidates::Candidates;
use dry::Dry;
use edits::Edits;
use history::History;

/// Chooses the tokens of one sequence.
///
/// A clone continues exactly as the original would: speculation samples from a clone and drops it, or keeps it.
#[derive(Debug, Clone)]
pub struct Sampler {
    settings: SamplerSettings,
    vocab_size: usize,
    seed: u64,
    rng: Pcg64,
    /// The stages of the settings' chain that can change anything, in order.
    stages: Vec<Stage>,
    history: History,
    dry: Option<Dry>,
    /// Mirostat's threshold in bits.
    mu: Option<f64>,
    candidates: Candidates,
    tokenizer: Option<Tokenizer>,
    undo: Vec<(u32, f32)>,
}

/// Random seeds stay below this so that they survive JSON readers that hold every number as a double.
const RANDOM_SEEDS: u64 = 1 << 53;

impl Sampler {
    /// A sampler for a vocabulary of `vocab_size` tokens that has already seen `prompt`.
    ///
    /// # Errors
    /// What [`SamplerSettings::validate`] refuses, and [`SampleError::UnknownToken`].
    pub fn new(settings: SamplerSettings, vocab_size: usize, prompt: &[u32]) -> Result<Self, SampleError> {
        settings.validate()?;
        settings.validate_tokens(vocab_size)?;
        let count_window = if settings.penalties_active() { window(settings.penalty_last_n) } else { 0 };
        let look_back = if settings.dry_active() { window(settings.dry_last_n) } else { 0 };
        let runs = |stage: &Stage| match settings.mirostat {
            Some(_) => *stage == Stage::Temperature,
            None => true,
        };
        let stages = settings.chain.iter().filter(|stage| runs(stage) && settings.is_active(**stage));
        let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..RANDOM_SEEDS));
        Ok(Self {
            vocab_size,
            seed,
            rng: Pcg64::seed_from_u64(seed),
            stages: stages.copied().collect(),
            history: History::new(count_window, look_back, prompt),
            dry: settings.dry_active().then(|| Dry::new(&settings)),
            // The authors start at twice the target.
            mu: settings.mirostat.map(|mirostat| 2.0 * f64::from(mirostat.tau)),
            candidates: Candidates::new(),
            tokenizer: None,
            undo: Vec::new(),
            settings,
        })
    }

    /// Tells it what tokens stand for, which [`Stage::Infill`] needs: without, that stage leaves all candidates.
    #[must_use]
    pub fn knowing(self, tokenizer: Tokenizer) -> Self {
        Self { tokenizer: Some(tokenizer), ..self }
    }

    /// The seed in use, also when it was picked at random: with it in the settings, the same tokens come again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The settings that the sampler was built with.
    pub fn settings(&self) -> &SamplerSettings {
        &self.settings
    }

    /// Chooses a token. Masked tokens (−inf) are never chosen. `logits` (vocab_size) are edited on the way and restored.
    ///
    /// The token does not enter the history: call [`Sampler::accept`] for each token that the sequence really takes.
    ///
    /// # Errors
    /// [`SampleError::NotFinite`] if a logit is NaN or +inf, [`SampleError::AllMasked`] if no token can be chosen,
    /// [`SampleError::WrongLength`] if there are not as many logits as tokens.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32, SampleError> {
        if self.is_arg_max() {
            return self.with_edits(logits, |_, edited| arg_max(edited).ok_or(SampleError::AllMasked));
        }
        let (chance, point) = draws(&mut self.rng);
        self.narrow(logits, chance)?;
        let (token, probability) = self.candidates.pick(point).ok_or(SampleError::AllMasked)?;
        if let (Some(mu), Some(Mirostat { tau, eta })) = (&mut self.mu, self.settings.mirostat) {
            *mu -= f64::from(eta) * (-probability.log2() - f64::from(tau));
        }
        Ok(token)
    }

    /// The distribution that [`Sampler::sample`] would draw from: (token, probability) of the tokens left, likeliest
    /// first. Changes nothing in what later calls return.
    ///
    /// # Errors
    /// Those of [`Sampler::sample`].
    pub fn distribution(&mut self, logits: &mut [f32]) -> Result<Vec<(u32, f32)>, SampleError> {
        if self.is_arg_max() {
            return self.with_edits(logits, |_, edited| {
                arg_max(edited).map(|token| vec![(token, 1.0)]).ok_or(SampleError::AllMasked)
            });
        }
        let (chance, _) = draws(&mut self.rng.clone());
        self.narrow(logits, chance)?;
        self.candidates.sort();
        let softmax = self.candidates.softmax();
        let items = self.candidates.items().iter();
        Ok(items.map(|c| (c.id, softmax.probability(f64::from(c.logit)) as f32)).collect())
    }

    /// Adds a token to what the penalties and DRY look at.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Whether the greatest logit is the choice, whatever else there is: only [`Stage::Infill`] may end an answer before.
    fn is_arg_max(&self) -> bool {
        self.settings.is_greedy() && !self.stages.contains(&Stage::Infill)
    }

    /// Leaves the tokens that the step may choose from in `candidates`.
    fn narrow(&mut self, logits: &mut [f32], chance: f64) -> Result<(), SampleError> {
        self.with_edits(logits, |sampler, edited| {
            let Self { settings, stages, candidates, tokenizer, mu, .. } = sampler;
            let (any, rest) = match stages.split_first() {
                Some((Stage::TopK, rest)) => (candidates.fill_top(edited, settings.top_k as usize), rest),
                _ => (candidates.fill(edited), stages.as_slice()),
            };
            if !any {
                return Err(SampleError::AllMasked);
            }
            for &stage in rest {
                match (stage, &*tokenizer) {
                    (Stage::Infill, Some(tokenizer)) => infill::run(tokenizer, edited, candidates),
                    _ => stages::run(stage, settings, candidates, chance),
                }
            }
            if settings.is_greedy() {
                candidates.keep_top(1);
            }
            if let Some(mu) = *mu {
                stages::mirostat(mu, candidates);
            }
            Ok(())
        })
    }

    /// Checks the logits and calls `then` while they are edited.
    fn with_edits<T>(
        &mut self,
        logits: &mut [f32],
        then: impl FnOnce(&mut Self, &[f32]) -> Result<T, SampleError>,
    ) -> Result<T, SampleError> {
        if logits.len() != self.vocab_size {
            return Err(SampleError::WrongLength { got: logits.len(), vocab_size: self.vocab_size });
        }
        check_finite(logits)?;
        let mut undo = std::mem::take(&mut self.undo);
        let mut edits = Edits::new(logits, &mut undo);
        edits.add_bias(&self.settings.logit_bias);
        edits.penalise(&self.settings, self.history.counts());
        if let Some(dry) = &mut self.dry {
            dry.apply(&self.history, &mut edits);
        }
        let result = then(self, edits.logits);
        drop(edits);
        self.undo = undo;
        result
    }
}

/// The two random numbers of a step, at least 0 and under 1: for XTC, and for the draw.
fn draws(rng: &mut Pcg64) -> (f64, f64) {
    // 53 bits, all that an f64 below 1 can hold evenly.
    let mut unit = || (rng.next_u64() >> 11) as f64 * (0.5f64).powi(53);
    (unit(), unit())
}

/// The greatest logit's token, on ties the lowest; `None` if all are masked.
fn arg_max(logits: &[f32]) -> Option<u32> {
    let max = logits.iter().fold(f32::NEG_INFINITY, |max, &logit| max.max(logit));
    if max == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|&logit| logit == max).map(|token| token as u32)
}

fn check_finite(logits: &[f32]) -> Result<(), SampleError> {
    // Not `!any(..)`: without an early exit the compiler compares with vector instructions.
    let fine = logits.iter().fold(true, |fine, &logit| fine & (logit < f32::INFINITY));
    if fine {
        return Ok(());
    }
    let bad = logits.iter().zip(0..).find(|&(&logit, _)| logit.is_nan() || logit == f32::INFINITY);
    bad.map_or(Ok(()), |(&value, token)| Err(SampleError::NotFinite { token, value }))
}

/// A window of the settings in tokens.
fn window(last_n: Option<u32>) -> usize {
    last_n.map_or(usize::MAX, |n| n as usize)
}

//! Requests that want numbers of texts, not text: embeddings, labels' scores, logits of some tokens.
//!
//! Such a request is a job like any other whose answers end behind their prompts. A causal model computes them in chunks,
//! among others' tokens; a text whose tokens all see each other is one part of one step. Only so many of a request's
//! texts wait or run at a time, and each further one queues as if it had come just then: a thousand texts leave room
//! for whoever comes after them.

use super::batch::Part;
use super::core::Core;
use super::job::{Answer, Goal, Key, Work};
use super::request::{Event, EventSink, Failure, PRIORITIES, SubmitError};
use super::thread::{Handle, Ticket};
use super::{Limits, setting};
use crate::{Error, Model};
use serde::{Deserialize, Serialize};
use smelt_backend::Output;
use smelt_models::{Head, Pooling};
use std::sync::Arc;

/// Most texts of one request.
pub const MAX_TEXTS: usize = 2048;

/// A text to be computed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// Its tokens, at least one, with those that the vocabulary puts around a text.
    pub tokens: Vec<u32>,
    /// The segment of each, where a model tells a text's parts apart; empty where all are of segment 0.
    pub segments: Vec<u32>,
}

impl From<Vec<u32>> for Text {
    fn from(tokens: Vec<u32>) -> Self {
        Self { tokens, segments: Vec::new() }
    }
}

/// What is wanted of each text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Its embedding, `[hidden_dim]`: the states of its tokens, pooled, of whatever length they are. [`crate::Facts::pooling`]
    /// is what the file says. Unpooled they are a row for each token, `[tokens, hidden_dim]`.
    Embedding(Pooling),
    /// The scores of the model's labels, `[n_labels]`, as the model gives them.
    Labels,
    /// The logits of these tokens behind the text.
    Logits(Arc<[u32]>),
}

/// Texts, and what is wanted of each.
#[derive(Clone, Serialize, Deserialize)]
pub struct PoolRequest {
    /// One to [`MAX_TEXTS`] texts.
    pub texts: Vec<Text>,
    /// What is wanted.
    pub task: Task,
    /// As [`super::Request::priority`].
    pub priority: i32,
}

impl std::fmt::Debug for PoolRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Texts stay out of logs.
        let (texts, task) = (self.texts.len(), &self.task);
        f.debug_struct("PoolRequest").field("texts", &texts).field("task", task).finish_non_exhaustive()
    }
}

/// Takes what steps give of one text.
#[derive(Debug, Clone)]
pub(super) struct Pooler {
    task: Task,
    causal: bool,
    /// Tokens whose states were taken.
    taken: usize,
    /// The sum of those that count, or each of them where they aren't pooled.
    states: Vec<f64>,
}

impl Pooler {
    pub(super) fn new(task: Task, causal: bool) -> Self {
        Self { task, causal, taken: 0, states: Vec::new() }
    }

    pub(super) fn output(&self) -> Output {
        match self.task {
            Task::Embedding(_) => Output::States,
            Task::Labels | Task::Logits(_) => Output::Logits,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        !self.causal
    }

    /// How many leading tokens of `n` need no computing if the cache has them: not those whose states are to be taken
    /// still, nor the last.
    pub(super) fn reusable(&self, n: usize) -> usize {
        match self.task {
            Task::Embedding(Pooling::None | Pooling::Mean) => self.taken.min(n - 1),
            Task::Embedding(Pooling::First) if self.taken == 0 => 0,
            _ => n - 1,
        }
    }

    /// Takes the state of token `index` of `n`.
    fn take(&mut self, state: &[f32], index: usize, n: usize) {
        // A text that lost its pages may be computed again from before where it was.
        if index < self.taken {
            return;
        }
        self.taken = index + 1;
        let state = state.iter().map(|value| f64::from(*value));
        let counts = match self.task {
            Task::Embedding(Pooling::None) => return self.states.extend(state),
            Task::Embedding(Pooling::Mean) => true,
            Task::Embedding(Pooling::First) => index == 0,
            Task::Embedding(Pooling::Last) => index + 1 == n,
            Task::Labels | Task::Logits(_) => false,
        };
        if counts {
            self.states.resize(state.len(), 0.0);
            self.states.iter_mut().zip(state).for_each(|(sum, value)| *sum += value);
        }
    }

    /// What is wanted of a text whose steps are done: `row` is the last token's logits, or its labels' scores.
    ///
    /// # Errors
    /// If it is no number.
    fn values(&self, row: &[f32], model: &Model) -> Result<Vec<f32>, Error> {
        let values: Vec<f32> = match &self.task {
            Task::Embedding(pooling) => {
                let n = if *pooling == Pooling::Mean { self.taken as f64 } else { 1.0 };
                self.states.iter().map(|sum| (sum / n) as f32).collect()
            }
            Task::Labels => row.to_vec(),
            Task::Logits(ids) => ids.iter().map(|id| row[*id as usize]).collect(),
        };
        match values.iter().all(|value| value.is_finite()) {
            true => Ok(values),
            false => Err(Error::States { model: model.facts.name.clone() }),
        }
    }
}

impl Handle {
    /// Gives a request for numbers to the engine. Texts are checked here, on the caller's thread. There comes one
    /// [`Event::Pooled`] for each, in any order, then [`Event::Done`].
    ///
    /// `sink` takes the events on the engine's thread and must not block.
    ///
    /// # Errors
    /// Why it wasn't accepted; then `sink` is never called.
    pub fn pool(&self, request: PoolRequest, sink: EventSink) -> Result<Ticket, SubmitError> {
        self.accept(sink, request.priority, |model, limits| {
            check(&request, model, limits)?;
            let pooler = Pooler::new(request.task, model.facts.causal);
            Ok(Work::Pool(request.texts.into_iter().map(|text| (text, pooler.clone())).collect()))
        })
    }
}

/// Checks all that comes from outside.
fn check(request: &PoolRequest, model: &Model, limits: &Limits) -> Result<(), SubmitError> {
    let facts = &model.facts;
    let unable = |what, why| Err(Error::Unable { model: facts.name.clone(), what, why }.into());
    let vocab_size = facts.vocab_size;
    let in_vocabulary = |tokens: &[u32]| match tokens.iter().find(|token| **token as usize >= vocab_size) {
        Some(token) => Err(Error::TokenRange { token: *token, vocab_size }),
        None => Ok(()),
    };
    match &request.task {
        Task::Embedding(_) => {}
        Task::Labels if matches!(facts.head, Head::Labels(_)) => {}
        Task::Labels => return unable("score texts", "it has no labels"),
        Task::Logits(_) if !facts.generates() => return unable("tell logits of tokens", "it writes no text"),
        Task::Logits(ids) => in_vocabulary(ids)?,
    }
    if !(1..=MAX_TEXTS).contains(&request.texts.len()) {
        return Err(setting("texts", request.texts.len(), format!("between 1 and {MAX_TEXTS}")).into());
    }
    if !PRIORITIES.contains(&request.priority) {
        let (low, high) = PRIORITIES.into_inner();
        return Err(setting("priority", request.priority, format!("between {low} and {high}")).into());
    }
    for Text { tokens, segments } in &request.texts {
        if tokens.is_empty() {
            return Err(Error::EmptyPrompt.into());
        }
        if tokens.len() > limits.context {
            return Err(SubmitError::TooLong { prompt_tokens: tokens.len(), context: limits.context });
        }
        in_vocabulary(tokens)?;
        if !segments.is_empty() && segments.len() != tokens.len() {
            return Err(
                setting("segments", segments.len(), format!("{}, one per token", tokens.len())).into()
            );
        }
        if let Some(segment) = segments.iter().find(|segment| **segment as usize >= facts.segments) {
            return Err(setting("segment", segment, format!("below {}", facts.segments)).into());
        }
    }
    Ok(())
}

impl Core {
    /// Lets the next of a job's texts wait, as if it came now.
    pub(super) fn begin_text(&mut self, job: u64) {
        let due = |core: &Self, priority| core.due((core.clock)(), priority);
        let Some(entry) = self.jobs.get_mut(&job) else { return };
        let Some((text, pooler)) = entry.texts.pop_front() else { return };
        let (index, priority) = (entry.next_text, entry.priority);
        entry.next_text += 1;
        let key = Key { due: due(self, priority), job, index };
        self.waiting.insert(key, Answer::new(text, Goal::Pool(pooler)));
    }

    /// Takes what a step gave of a text; if that was all, tells what was wanted. `row` is the first of its rows in what
    /// the step gave.
    pub(super) fn advance_pooled(
        &mut self,
        part: &Part,
        mut answer: Answer,
        row: usize,
    ) -> Result<(), Failure> {
        let (end, n) = (answer.held.computed, answer.tokens.len());
        let Goal::Pool(pooler) = &mut answer.goal else { return Ok(()) };
        if pooler.output() == Output::States {
            for i in 0..part.rows {
                pooler.take(self.stepper.row(row + i), end - part.rows + i, n);
            }
        }
        if end < n {
            self.running.insert(part.key, answer);
            return Ok(());
        }
        match pooler.values(self.stepper.row(row), &self.model) {
            Ok(values) => self.tell_pooled(part.key, answer, values),
            Err(error) => return Err(self.end_failed(answer, error)),
        }
        Ok(())
    }

    fn tell_pooled(&mut self, key: Key, answer: Answer, values: Vec<f32>) {
        self.cache.end(answer.held, &answer.tokens);
        self.stats.pooled += 1;
        let Some(job) = self.jobs.get_mut(&key.job) else { return };
        job.voice.tell(Event::Pooled { index: key.index, values });
        self.end_answer(key.job);
        self.begin_text(key.job);
    }
}

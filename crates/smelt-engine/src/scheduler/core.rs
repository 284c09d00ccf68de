//! The scheduler without its thread: who waits, who runs, and one step after the other.

use super::batch::{Part, Plan, plan};
use super::cache::{Cache, Held};
use super::job::{Answer, Goal, Job, Key, PromptLogprobs, Submission, Work};
use super::request::{Event, Failure, Usage};
use super::stats::Stats;
use super::stepper::Stepper;
use super::{Limits, panic_message};
use crate::emitter::{Emitted, Emitter, token_info};
use crate::{Error, Finish, Model};
use smelt_backend::{Output, PAGE_TOKENS, SequenceInput, StepInputs};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Tells the time. A simulation has its own.
pub(super) type Clock = Box<dyn Fn() -> Instant + Send>;

/// All requests and the model.
pub(super) struct Core {
    pub(super) model: Arc<Model>,
    pub(super) stepper: Box<dyn Stepper>,
    pub(super) cache: Cache,
    limits: Limits,
    pub(super) clock: Clock,
    epoch: Instant,
    pub(super) jobs: BTreeMap<u64, Job>,
    /// Answers without pages, in the order in which they go on.
    pub(super) waiting: BTreeMap<Key, Answer>,
    /// Answers with pages. When pages run out, the last one's are taken.
    pub(super) running: BTreeMap<Key, Answer>,
    jobs_so_far: u64,
    /// Requests that are accepted and have not begun.
    queued: Arc<AtomicUsize>,
    pub(super) stats: Stats,
}

impl Core {
    pub(super) fn new(
        model: Arc<Model>,
        stepper: Box<dyn Stepper>,
        limits: Limits,
        queued: Arc<AtomicUsize>,
        clock: Clock,
    ) -> Self {
        Self {
            cache: Cache::new(limits.pages, model.facts.causal),
            model,
            stepper,
            epoch: clock(),
            limits,
            clock,
            jobs: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            jobs_so_far: 0,
            queued,
            stats: Stats { kv_pages: limits.pages, page_tokens: PAGE_TOKENS, ..Stats::default() },
        }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Takes a request into the queue.
    pub(super) fn submit(&mut self, submission: Submission) {
        let Submission { voice, priority, arrival, work } = submission;
        self.stats.requests += 1;
        self.jobs_so_far += 1;
        let id = self.jobs_so_far;
        let mut job = Job {
            voice,
            priority,
            arrival,
            started: None,
            prompt_tokens: 0,
            progress: None,
            open: 0,
            texts: VecDeque::new(),
            next_text: 0,
        };
        match work {
            Work::Write { prompt, mut emitters, prompt_logprobs, fresh, progress } => {
                job.progress = progress.then_some(0);
                (job.prompt_tokens, job.open) = (prompt.len(), emitters.len());
                let siblings = emitters.split_off(1);
                let Some(emitter) = emitters.pop() else { return };
                let first = token_info(&self.model.tokenizer, &[], prompt[0], None);
                let prompt_infos = prompt_logprobs
                    .zip(first.ok())
                    .map(|(top, info)| PromptLogprobs { top, infos: vec![info] });
                let answer = Answer::new(prompt.into(), Goal::Write(Box::new(emitter)));
                let key = Key { due: self.due(arrival, priority), job: id, index: 0 };
                self.waiting.insert(key, Answer { siblings, prompt: prompt_infos, fresh, ..answer });
                self.jobs.insert(id, job);
            }
            Work::Pool(texts) => {
                job.prompt_tokens = texts.iter().map(|(text, _)| text.tokens.len()).sum();
                job.open = texts.len();
                job.texts = texts;
                self.jobs.insert(id, job);
                (0..self.limits.sequences.div_ceil(2)).for_each(|_| self.begin_text(id));
            }
        }
    }

    /// When what came at a time is due: waiting counts for as much as priority, so whoever is due first will be served,
    /// whatever comes later.
    pub(super) fn due(&self, arrival: Instant, priority: i32) -> i128 {
        let nanoseconds = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX / 4096);
        nanoseconds(arrival.saturating_duration_since(self.epoch))
            + i128::from(priority) * nanoseconds(self.limits.aging)
    }

    /// Computes one step for whoever has a part in it, and tells what came of it.
    pub(super) fn step(&mut self) {
        self.sweep();
        self.admit();
        let Plan { parts, output } = plan(&self.running, self.stepper.limits(), self.limits.budget);
        let parts = self.secure(parts);
        if !parts.is_empty() {
            self.stats.steps += 1;
            match self.compute(&parts, output) {
                Ok(()) => self.advance_all(&parts, output),
                Err(Error::Backend(smelt_backend::Error::Interrupted)) => {}
                Err(error) => {
                    let failure = Failure::Engine(Arc::new(error));
                    parts.iter().for_each(|part| self.fail(part.key.job, failure.clone()));
                }
            }
        }
        self.count();
    }

    /// Lets go of requests that nobody waits for any more.
    fn sweep(&mut self) {
        let cancelled = |job: &Job| job.voice.is_cancelled();
        let gone: Vec<u64> = self.jobs.iter().filter(|(_, job)| cancelled(job)).map(|(id, _)| *id).collect();
        for id in gone {
            self.stats.cancelled += 1;
            self.remove(id);
        }
    }

    /// Gives waiting answers their places, strictly in order: one that doesn't fit is not passed by others, or it would
    /// wait for ever. One that is more urgent takes the place of one that is less.
    fn admit(&mut self) {
        while let Some((key, answer)) = self.waiting.first_key_value() {
            let key = *key;
            let full = self.running.len() >= self.limits.sequences;
            if !full && fits(answer, &self.running, &mut self.cache) {
                self.begin(key);
                continue;
            }
            let priority = |key: Key| self.jobs.get(&key.job).map_or(0, |job| job.priority);
            match self.running.last_key_value() {
                Some((last, _)) if *last > key && priority(*last) > priority(key) => {
                    let last = *last;
                    self.preempt(last);
                }
                _ => break,
            }
        }
    }

    fn begin(&mut self, key: Key) {
        let Some(mut answer) = self.waiting.remove(&key) else { return };
        let reusable = answer.reusable();
        // What is computed from here on is this request's own.
        answer.fresh = false;
        match self.cache.begin(&answer.tokens[..reusable], &mut *self.stepper) {
            Ok(held) => answer.held = held,
            Err(error) => {
                self.fail(key.job, Failure::Engine(Arc::new(error)));
                return;
            }
        }
        let cached_tokens = answer.held.computed;
        self.running.insert(key, answer);
        let Some(job) = self.jobs.get_mut(&key.job).filter(|job| job.started.is_none()) else { return };
        job.started = Some(cached_tokens);
        self.queued.fetch_sub(1, Ordering::Relaxed);
        let prompt_tokens = job.prompt_tokens;
        self.stats.prefix_queries += reusable as u64;
        self.stats.prefix_hits += cached_tokens as u64;
        self.stats.prompt_tokens += prompt_tokens as u64;
        self.stats.queue_time.add((self.clock)().saturating_duration_since(job.arrival));
        job.voice.tell(Event::Started { cached_tokens, prompt_tokens });
    }

    /// Takes an answer's pages; it goes on later, from what is then still kept of them.
    fn preempt(&mut self, key: Key) {
        let Some(mut answer) = self.running.remove(&key) else { return };
        self.stats.preemptions += 1;
        self.cache.end(std::mem::take(&mut answer.held), &answer.tokens);
        self.waiting.insert(key, answer);
    }

    /// Gets the pages that the parts need, those first that are due first; the last to be due give theirs.
    fn secure(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut secured: Vec<Part> = parts.into_iter().filter(|part| self.secure_part(part)).collect();
        secured.retain(|part| self.running.contains_key(&part.key));
        secured
    }

    fn secure_part(&mut self, part: &Part) -> bool {
        while let Some(answer) = self.running.get_mut(&part.key) {
            let end = answer.held.computed + part.rows;
            if answer.held.pages.len() * PAGE_TOKENS >= end {
                return true;
            }
            match self.cache.take(&mut *self.stepper) {
                Ok(Some(page)) => answer.held.pages.push(page),
                Ok(None) if self.running.len() > 1 => {
                    let last = self.running.last_key_value().map_or(part.key, |(key, _)| *key);
                    self.preempt(last);
                }
                Ok(None) => {
                    let error = Error::CacheFull { tokens: self.cache.capacity() * PAGE_TOKENS };
                    self.fail(part.key.job, Failure::Engine(Arc::new(error)));
                }
                Err(error) => self.fail(part.key.job, Failure::Engine(Arc::new(error))),
            }
        }
        false
    }

    fn compute(&mut self, parts: &[Part], output: Output) -> Result<(), Error> {
        let (mut tokens, mut positions, mut sequence) = (Vec::new(), Vec::new(), Vec::new());
        let (mut sequences, mut segments, mut logit_rows) = (Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            let answer = &self.running[&part.key];
            let (first, end) = (answer.held.computed, answer.held.computed + part.rows);
            tokens.extend_from_slice(&answer.tokens[first..end]);
            positions.extend(first as u32..end as u32);
            sequence.extend(std::iter::repeat_n(sequences.len() as u32, part.rows));
            sequences.push(SequenceInput { pages: &answer.held.pages });
            if !answer.segments.is_empty() {
                segments.resize(tokens.len() - part.rows, 0);
                segments.extend_from_slice(&answer.segments[first..end]);
            }
            let wanted = (tokens.len() - part.rows + part.first_wanted) as u32;
            logit_rows.extend(wanted..wanted + part.wanted as u32);
        }
        if !segments.is_empty() {
            segments.resize(tokens.len(), 0);
        }
        self.stats.rows += tokens.len() as u64;
        self.stepper.run(&StepInputs {
            tokens: &tokens,
            positions: &positions,
            sequence: &sequence,
            sequences: &sequences,
            segments: &segments,
            logit_rows: &logit_rows,
            output,
        })
    }

    fn advance_all(&mut self, parts: &[Part], output: Output) {
        let mut row = 0;
        for part in parts {
            // An answer's failure takes the others to the same prompt along.
            if let Some(answer) = self.running.remove(&part.key)
                && let Err(failure) = self.advance(part, answer, row)
            {
                self.fail(part.key.job, failure);
            }
            row += match output {
                Output::Logits => part.wanted,
                Output::States => part.rows,
            };
        }
    }

    /// Notes what a step computed of an answer; if that was all, chooses its next token.
    fn advance(&mut self, part: &Part, mut answer: Answer, row: usize) -> Result<(), Failure> {
        let first = answer.held.computed;
        answer.held.computed += part.rows;
        answer.served = self.stats.steps;
        self.cache.publish(&mut answer.held, &answer.tokens);
        if let Goal::Pool(_) = answer.goal {
            return self.advance_pooled(part, answer, row);
        }
        if let Some(job) = self.jobs.get_mut(&part.key.job) {
            job.tell_progress(answer.held.computed);
        }
        if let Some(prompt) = &mut answer.prompt {
            let prompt_tokens = self.jobs.get(&part.key.job).map_or(0, |job| job.prompt_tokens);
            for i in 0..part.wanted {
                let next = first + i + 1;
                if next == prompt.infos.len() && next < prompt_tokens {
                    let (tokenizer, top) = (&self.model.tokenizer, Some(prompt.top));
                    let info = token_info(tokenizer, self.stepper.row(row + i), answer.tokens[next], top);
                    match info {
                        Ok(info) => prompt.infos.push(info),
                        Err(error) => return Err(self.end_failed(answer, error)),
                    }
                }
            }
            if prompt.infos.len() == prompt_tokens
                && let Some(prompt) = answer.prompt.take()
                && let Some(job) = self.jobs.get_mut(&part.key.job)
            {
                job.voice.tell(Event::PromptLogprobs(prompt.infos));
            }
        }
        if answer.missing() > 0 {
            self.running.insert(part.key, answer);
            return Ok(());
        }
        let row = row + part.wanted - 1;
        let siblings = std::mem::take(&mut answer.siblings);
        for (i, emitter) in siblings.into_iter().enumerate() {
            if let Err(failure) = self.fork(Key { index: i + 1, ..part.key }, emitter, &answer, row) {
                self.cache.end(answer.held, &answer.tokens);
                return Err(failure);
            }
        }
        self.choose(part.key, answer, row)
    }

    pub(super) fn end_failed(&mut self, answer: Answer, error: Error) -> Failure {
        self.cache.end(answer.held, &answer.tokens);
        Failure::Engine(Arc::new(error))
    }

    /// Begins another answer to a prompt that is computed.
    fn fork(&mut self, key: Key, emitter: Emitter, leader: &Answer, row: usize) -> Result<(), Failure> {
        // Without a place of its own it waits, and finds the prompt's whole pages in the cache.
        let held = if self.running.len() + 1 < self.limits.sequences {
            let held = self.cache.fork(&leader.held, &mut *self.stepper);
            held.map_err(|error| Failure::Engine(Arc::new(error)))?
        } else {
            Held::default()
        };
        let answer = Answer::new(leader.tokens.clone().into(), Goal::Write(Box::new(emitter)));
        let answer = Answer { held, served: leader.served, ..answer };
        self.choose(key, answer, row)
    }

    /// Chooses an answer's next token and tells what that completes.
    fn choose(&mut self, key: Key, mut answer: Answer, row: usize) -> Result<(), Failure> {
        let Goal::Write(emitter) = &mut answer.goal else { return Ok(()) };
        let logits = self.stepper.row(row);
        let emitted = match catch_unwind(AssertUnwindSafe(|| emitter.next(logits))) {
            Ok(Ok(emitted)) => emitted,
            Ok(Err(error)) => return Err(self.end_failed(answer, error)),
            Err(panic) => {
                self.cache.end(answer.held, &answer.tokens);
                return Err(Failure::Panic(panic_message(&*panic)));
            }
        };
        let Emitted { token, text, tokens, finish } = emitted;
        if let Some(token) = token {
            answer.tokens.push(token);
            self.time_token(key, &mut answer);
        }
        if let Some(job) = self.jobs.get_mut(&key.job)
            && (!text.is_empty() || !tokens.is_empty())
        {
            job.voice.tell(Event::Delta { index: key.index, text, tokens });
        }
        match finish {
            Some(finish) => self.finish(key, answer, finish),
            None if answer.held.pages.is_empty() => {
                self.waiting.insert(key, answer);
            }
            None => {
                self.running.insert(key, answer);
            }
        }
        Ok(())
    }

    fn time_token(&mut self, key: Key, answer: &mut Answer) {
        let now = (self.clock)();
        self.stats.generation_tokens += 1;
        match answer.last_token.replace(now) {
            Some(last) => self.stats.inter_token.add(now.saturating_duration_since(last)),
            None if key.index == 0 => {
                if let Some(job) = self.jobs.get(&key.job) {
                    self.stats.time_to_first_token.add(now.saturating_duration_since(job.arrival));
                }
            }
            None => {}
        }
    }

    fn finish(&mut self, key: Key, answer: Answer, finish: Finish) {
        self.cache.end(answer.held, &answer.tokens);
        match finish {
            Finish::MaxTokens | Finish::Line | Finish::ContextFull => self.stats.finished_length += 1,
            Finish::EndOfGeneration(_) | Finish::StopString(_) | Finish::Cancelled => {
                self.stats.finished_stop += 1;
            }
        }
        let (Some(job), Goal::Write(emitter)) = (self.jobs.get_mut(&key.job), answer.goal) else { return };
        let usage = Usage {
            prompt_tokens: job.prompt_tokens,
            cached_tokens: job.started.unwrap_or(0),
            completion_tokens: emitter.count(),
            seed: emitter.seed(),
        };
        job.voice.tell(Event::Finished { index: key.index, finish, usage });
        self.end_answer(key.job);
    }

    /// Notes that an answer of a job ended; the last ends the job.
    pub(super) fn end_answer(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.open -= 1;
        if job.open == 0 {
            job.voice.tell(Event::Done);
            self.stats.end_to_end.add((self.clock)().saturating_duration_since(job.arrival));
            self.remove(id);
        }
    }

    /// Ends a request with an error.
    fn fail(&mut self, id: u64, failure: Failure) {
        if let Some(mut job) = self.remove(id) {
            self.stats.failed += 1;
            job.voice.tell(Event::Failed(failure));
        }
    }

    /// Ends all requests with an error.
    pub(super) fn fail_all(&mut self, failure: &Failure) {
        while let Some(id) = self.jobs.first_key_value().map(|(id, _)| *id) {
            self.fail(id, failure.clone());
        }
        self.count();
    }

    /// Takes a request out, and gives what it held back.
    fn remove(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if job.started.is_none() {
            self.queued.fetch_sub(1, Ordering::Relaxed);
        }
        for answers in [&mut self.running, &mut self.waiting] {
            let keys: Vec<Key> = answers.keys().filter(|key| key.job == id).copied().collect();
            for answer in keys.iter().filter_map(|key| answers.remove(key)) {
                self.cache.end(answer.held, &answer.tokens);
            }
        }
        Some(job)
    }

    fn count(&mut self) {
        self.stats.running = self.running.len();
        self.stats.waiting = self.waiting.len();
        self.stats.kv_pages_used = self.cache.in_use();
        self.stats.kv_pages_kept = self.cache.kept();
        self.stats.kv_pages = self.cache.capacity();
    }
}

/// Whether there are pages for all of an answer's tokens, for what running prompts still lack, and for one more page of
/// each. Alone it always fits.
fn fits(answer: &Answer, running: &BTreeMap<Key, Answer>, cache: &mut Cache) -> bool {
    let lacking = |a: &Answer| a.tokens.len().div_ceil(PAGE_TOKENS).saturating_sub(a.held.pages.len());
    let promised: usize = running.values().map(lacking).sum();
    running.is_empty()
        || cache.cost(&answer.tokens, answer.reusable()) + promised + running.len() <= cache.available()
}

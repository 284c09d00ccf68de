//! Thousands of random requests over a fake model.
//!
//! The fake model's next token depends on every token in the pages of its sequence, so an answer is right only if each
//! page holds what it should: after sharing, copying, eviction, preemption, cancelling and failing. Its states do too, so
//! that the same holds for embeddings.

use super::Limits;
use super::core::Core;
use super::job::Work;
use super::pool::{Pooler, Task};
use super::request::{Event, Failure, Request, SubmitError};
use super::stepper::Stepper;
use super::thread::{Scheduler, Ticket, submission, writing};
use crate::sampler::SamplerSettings;
use crate::{Engine, Error, Model, Settings};
use fastrand::Rng;
use smelt_backend::{Output, PAGE_TOKENS, StepInputs, StepLimits};
use smelt_models::Pooling;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn model() -> Arc<Model> {
    let file = smelt_testdata::data("tiny/llama/llama-f16.gguf");
    Engine::load(&file, &Settings::default()).unwrap().model().clone()
}

/// The fake model: what follows `tokens`.
fn next(tokens: impl Iterator<Item = u32>, vocab_size: usize) -> u32 {
    let mix =
        |hash: u64, token: u32| (hash ^ u64::from(token)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    (tokens.fold(1, mix) % vocab_size as u64) as u32
}

/// The fake model's state behind `tokens`.
fn state(tokens: impl Iterator<Item = u32>) -> [f32; 2] {
    let angle = next(tokens, 1 << 20) as f32;
    [angle.cos(), angle.sin()]
}

struct Fake {
    limits: StepLimits,
    vocab_size: usize,
    pages: Vec<[u32; PAGE_TOKENS]>,
    /// Pages that memory gives.
    memory: usize,
    out: Vec<Vec<f32>>,
    rng: Rng,
    /// One step of so many fails.
    failing: Option<usize>,
}

impl Stepper for Fake {
    fn limits(&self) -> StepLimits {
        self.limits
    }

    fn reserve_pages(&mut self, pages: usize) -> Result<(), Error> {
        if pages > self.memory {
            return Err(Error::CacheFull { tokens: 0 });
        }
        self.pages.resize(pages, [u32::MAX; PAGE_TOKENS]);
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32, tokens: usize) {
        assert!(from != to && tokens <= PAGE_TOKENS);
        let source = self.pages[from as usize];
        self.pages[to as usize] = [u32::MAX; PAGE_TOKENS];
        self.pages[to as usize][..tokens].copy_from_slice(&source[..tokens]);
    }

    fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error> {
        assert!(!inputs.tokens.is_empty());
        let fits = inputs.tokens.len() <= self.limits.rows;
        assert!(fits || inputs.sequences.len() == 1, "a step too long, and not of one text");
        assert!(inputs.logit_rows.len() <= self.limits.logit_rows);
        let mut written = BTreeSet::new();
        for (row, position) in inputs.positions.iter().enumerate() {
            let (slot, offset) = (*position as usize / PAGE_TOKENS, *position as usize % PAGE_TOKENS);
            let sequence = inputs.sequence[row] as usize;
            let page = inputs.sequences[sequence].pages[slot];
            assert!(written.insert((page, offset)), "two rows go to the same place");
            for (other, input) in inputs.sequences.iter().enumerate() {
                assert!(other == sequence || !input.pages.contains(&page), "a shared page is written to");
            }
            self.pages[page as usize][offset] = inputs.tokens[row];
        }
        if self.failing.is_some_and(|n| self.rng.usize(..n) == 0) {
            return Err(Error::EmptyPrompt);
        }
        self.out.clear();
        let all: Vec<u32> = (0..inputs.tokens.len() as u32).collect();
        let rows = if inputs.output == Output::States { &all } else { inputs.logit_rows };
        for row in rows {
            let pages = inputs.sequences[inputs.sequence[*row as usize] as usize].pages;
            let tokens = pages.iter().flat_map(|page| self.pages[*page as usize]);
            let tokens = tokens.take(inputs.positions[*row as usize] as usize + 1);
            self.out.push(match inputs.output {
                Output::States => state(tokens).into(),
                Output::Logits => {
                    let mut logits = vec![0.0; self.vocab_size];
                    logits[next(tokens, self.vocab_size) as usize] = 9.0;
                    logits
                }
            });
        }
        Ok(())
    }

    fn row(&mut self, row: usize) -> &mut [f32] {
        &mut self.out[row]
    }
}

/// What is known of a request from its events.
#[derive(Debug, Default)]
struct Seen {
    started: bool,
    fresh: bool,
    computed: Option<usize>,
    /// Of the prompt's tokens, where that is told: those whose probability is, and those that are computed.
    prompt_logprobs: Option<usize>,
    tokens: Vec<Vec<u32>>,
    pooled: Vec<Vec<f32>>,
    finished: usize,
    end: Option<Result<(), String>>,
}

impl Seen {
    fn take(&mut self, event: Event, prompt_tokens: usize) {
        assert!(self.end.is_none(), "{event:?} behind the end");
        match event {
            Event::Started { cached_tokens, prompt_tokens: told } => {
                assert!(!self.started && told == prompt_tokens);
                assert!(cached_tokens < if self.fresh { 1 } else { prompt_tokens });
                (self.started, self.computed) = (true, self.computed.map(|_| cached_tokens));
            }
            Event::Progress { computed_tokens } => {
                assert!(self.computed.replace(computed_tokens).is_some_and(|told| told < computed_tokens));
            }
            Event::PromptLogprobs(infos) => assert_eq!(self.prompt_logprobs.replace(infos.len()), Some(0)),
            Event::Delta { index, tokens, .. } => {
                assert!(self.started && self.computed.is_none_or(|told| told == prompt_tokens));
                self.tokens[index].extend(tokens.iter().map(|token| token.id));
            }
            Event::Finished { index, usage, .. } => {
                assert_eq!(usage.completion_tokens, self.tokens[index].len());
                assert!(self.prompt_logprobs.is_none_or(|told| told == prompt_tokens));
                self.finished += 1;
            }
            Event::Pooled { index, values } => {
                assert!(self.started && self.pooled[index].is_empty());
                self.pooled[index] = values;
            }
            Event::Done => self.end = Some(Ok(())),
            Event::Failed(failure) => self.end = Some(Err(failure.to_string())),
        }
    }
}

struct Client {
    prompt: Vec<u32>,
    n: usize,
    max_tokens: usize,
    ticket: Option<Ticket>,
    seen: Arc<Mutex<Seen>>,
    /// The events behind which the sink says break.
    breaks_after: Arc<AtomicUsize>,
    cancelled: bool,
}

/// Who wants embeddings of texts, or logits behind them.
struct Reader {
    texts: Vec<Vec<u32>>,
    task: Task,
    ticket: Option<Ticket>,
    seen: Arc<Mutex<Seen>>,
    cancelled: bool,
}

impl Reader {
    /// What a text's values are.
    fn right(&self, text: &[u32], vocab_size: usize) -> Vec<f32> {
        let logit = |id: &u32| if next(text.iter().copied(), vocab_size) == *id { 9.0 } else { 0.0 };
        let state = |end: usize| state(text[..end].iter().copied());
        match &self.task {
            Task::Logits(ids) => ids.iter().map(logit).collect(),
            Task::Labels => unreachable!("nobody asks for them"),
            Task::Embedding(Pooling::None) => (1..=text.len()).flat_map(state).collect(),
            Task::Embedding(Pooling::First) => state(1).into(),
            Task::Embedding(Pooling::Last) => state(text.len()).into(),
            Task::Embedding(Pooling::Mean) => {
                let sum = |i: usize| (1..=text.len()).fold(0.0, |sum, end| sum + f64::from(state(end)[i]));
                [0, 1].map(|i| (sum(i) / text.len() as f64) as f32).into()
            }
        }
    }
}

struct World {
    model: Arc<Model>,
    limits: Limits,
    core: Core,
    time: Arc<AtomicU64>,
    epoch: Instant,
    queued: Arc<AtomicUsize>,
    clients: Vec<Client>,
    readers: Vec<Reader>,
    rng: Rng,
}

impl World {
    fn new(seed: u64, limits: Limits, step: StepLimits, failing: Option<usize>, memory: usize) -> Self {
        let model = model();
        let (time, epoch) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let fake = Fake {
            limits: step,
            vocab_size: model.facts.vocab_size,
            pages: Vec::new(),
            memory,
            out: Vec::new(),
            rng: Rng::with_seed(seed + 1),
            failing,
        };
        let now = time.clone();
        let clock = Box::new(move || epoch + Duration::from_millis(now.load(Ordering::Relaxed)));
        let queued = Arc::new(AtomicUsize::new(0));
        let core = Core::new(model.clone(), Box::new(fake), limits, queued.clone(), clock);
        let (clients, readers, rng) = (Vec::new(), Vec::new(), Rng::with_seed(seed));
        Self { model, limits, core, time, epoch, queued, clients, readers, rng }
    }

    fn submit(&mut self, prompt: Vec<u32>, n: usize, max_tokens: usize, priority: i32, breaks_after: usize) {
        let [prompt_logprobs, fresh, progress] = [(); 3].map(|()| self.rng.usize(..8) == 0);
        let (prompt_told, computed) = (prompt_logprobs.then_some(0), progress.then_some(0));
        let seen = Seen { tokens: vec![Vec::new(); n], fresh, ..Seen::default() };
        let seen = Arc::new(Mutex::new(Seen { prompt_logprobs: prompt_told, computed, ..seen }));
        let request = Request {
            n,
            max_tokens: Some(max_tokens),
            priority,
            prompt_logprobs,
            fresh,
            progress,
            ..Request::new(prompt.clone(), SamplerSettings::greedy())
        };
        let (told, length, left) = (seen.clone(), prompt.len(), Arc::new(AtomicUsize::new(breaks_after)));
        let breaks = left.clone();
        let sink = move |event| {
            told.lock().unwrap().take(event, length);
            match breaks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) {
                Ok(_) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        };
        let arrival = self.epoch + Duration::from_millis(self.time.load(Ordering::Relaxed));
        let work = writing(request, &self.model, &self.limits).unwrap();
        let (submission, ticket) = submission(Box::new(sink), priority, arrival, work);
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.core.submit(submission);
        self.clients.push(Client {
            prompt,
            n,
            max_tokens,
            ticket: Some(ticket),
            seen,
            breaks_after: left,
            cancelled: false,
        });
    }

    /// A prompt that shares its beginning with many others.
    fn prompt(&mut self) -> Vec<u32> {
        let length = 1 + self.rng.usize(..200).min(self.limits.context - 1);
        let family = self.rng.u32(..4);
        let common = self.rng.usize(..=length);
        let own = self.rng.u32(..500);
        let token = |i| 3 + (i * 7 + family + if i as usize >= common { own } else { 0 }) % 500;
        (0..length as u32).map(token).collect()
    }

    fn read_any(&mut self) {
        let texts: Vec<_> = (0..1 + self.rng.usize(..12)).map(|_| self.prompt()).collect();
        let task = match Pooling::ALL.get(self.rng.usize(..5)) {
            Some(pooling) => Task::Embedding(*pooling),
            None => Task::Logits([7, 9].into()),
        };
        // Texts of which every token sees all others must be computed in one piece.
        let causal = matches!(task, Task::Logits(_)) || self.rng.bool();
        let pooler = Pooler::new(task.clone(), causal);
        let work = texts.iter().map(|text| (text.clone().into(), pooler.clone())).collect();
        let seen = Arc::new(Mutex::new(Seen { pooled: vec![Vec::new(); texts.len()], ..Seen::default() }));
        let (told, length) = (seen.clone(), texts.iter().map(Vec::len).sum());
        let sink = move |event| {
            told.lock().unwrap().take(event, length);
            ControlFlow::Continue(())
        };
        let arrival = self.epoch + Duration::from_millis(self.time.load(Ordering::Relaxed));
        let priority = self.rng.i32(-2..=2);
        let (submission, ticket) = submission(Box::new(sink), priority, arrival, Work::Pool(work));
        self.queued.fetch_add(1, Ordering::Relaxed);
        self.core.submit(submission);
        self.readers.push(Reader { texts, task, ticket: Some(ticket), seen, cancelled: false });
    }

    fn submit_any(&mut self) {
        if self.rng.usize(..5) == 0 {
            return self.read_any();
        }
        let prompt = self.prompt();
        let (n, max_tokens) = (1 + self.rng.usize(..6).saturating_sub(3), self.rng.usize(..60));
        let priority = self.rng.i32(-2..=2);
        let breaks_after = if self.rng.usize(..10) == 0 { self.rng.usize(..20) } else { usize::MAX };
        self.submit(prompt, n, max_tokens, priority, breaks_after);
    }

    fn cancel_any(&mut self) {
        let i = self.rng.usize(..self.clients.len());
        let client = &mut self.clients[i];
        client.ticket = None;
        client.cancelled |= client.seen.lock().unwrap().end.is_none();
        if let Some(reader) = self.readers.last_mut().filter(|_| self.rng.usize(..3) == 0) {
            reader.ticket = None;
            reader.cancelled |= reader.seen.lock().unwrap().end.is_none();
        }
    }

    /// A step; something must come of it, if only that those whose turn it was made room for others.
    fn step(&mut self) {
        let sum = |core: &Core| core.stats.rows + core.stats.failed + core.stats.preemptions;
        let before = sum(&self.core);
        self.core.step();
        self.time.fetch_add(10, Ordering::Relaxed);
        let stats = &self.core.stats;
        assert!(sum(&self.core) > before || self.core.is_idle(), "nothing moves: {stats:?}");
        assert!(stats.running <= self.limits.sequences && stats.kv_pages_used <= stats.kv_pages);
    }

    /// What the answer to a prompt is, with all of the machine for itself.
    fn right(&self, client: &Client) -> Vec<u32> {
        let mut tokens = client.prompt.clone();
        let end = client.prompt.len() + client.max_tokens;
        while tokens.len() < end.min(self.limits.context + 1) {
            let token = next(tokens.iter().copied(), self.model.facts.vocab_size);
            if self.model.tokenizer.is_eog(token) {
                break;
            }
            tokens.push(token);
        }
        tokens.split_off(client.prompt.len())
    }

    /// Checks every request and that nothing is held any more.
    fn check(&self, may_fail: bool) {
        assert!(self.core.is_idle() && self.core.running.is_empty() && self.core.waiting.is_empty());
        assert_eq!(self.core.cache.in_use(), 0);
        assert_eq!(self.core.cache.available(), self.core.cache.capacity());
        assert_eq!(self.queued.load(Ordering::Relaxed), 0);
        let mut complete = 0;
        for (i, client) in self.clients.iter().enumerate() {
            let seen = client.seen.lock().unwrap();
            let right = self.right(client);
            for tokens in &seen.tokens {
                assert!(right.starts_with(tokens), "request {i}: {tokens:?} is no beginning of {right:?}");
            }
            let cancelled = client.cancelled || client.breaks_after.load(Ordering::Relaxed) == 0;
            match &seen.end {
                Some(Ok(())) => {
                    complete += 1;
                    assert_eq!(seen.finished, client.n);
                    assert!(seen.tokens.iter().all(|tokens| *tokens == right), "request {i}");
                }
                Some(Err(failure)) => assert!(may_fail, "request {i}: {failure}"),
                None => assert!(cancelled, "request {i} has no end"),
            }
        }
        for (i, reader) in self.readers.iter().enumerate() {
            let seen = reader.seen.lock().unwrap();
            let right = |text: &Vec<u32>| reader.right(text, self.model.facts.vocab_size);
            for (text, values) in reader.texts.iter().zip(&seen.pooled).filter(|(_, v)| !v.is_empty()) {
                assert_eq!(*values, right(text), "reader {i}, {:?}", reader.task);
            }
            match &seen.end {
                Some(Ok(())) => assert!(seen.pooled.iter().all(|values| !values.is_empty())),
                Some(Err(failure)) => assert!(may_fail, "reader {i}: {failure}"),
                None => assert!(reader.cancelled, "reader {i} has no end"),
            }
        }
        assert!(complete > self.clients.len() / 3, "{complete} of {} are complete", self.clients.len());
    }
}

fn limits(sequences: usize, pages: usize) -> Limits {
    Limits {
        sequences,
        budget: sequences + PAGE_TOKENS,
        pages,
        queue: usize::MAX,
        aging: Duration::from_millis(500),
        context: pages * PAGE_TOKENS,
    }
}

#[test]
fn every_request_ends_and_every_answer_is_right() {
    let steps = |rows, logit_rows| StepLimits { rows, logit_rows };
    let cases = [
        (limits(6, 24), steps(64, 8), None, usize::MAX),
        (limits(6, 7), steps(64, 8), None, usize::MAX),
        (limits(3, 200), steps(16, 2), None, usize::MAX),
        (limits(12, 40), steps(40, 1), None, usize::MAX),
        (limits(5, 16), steps(1, 1), None, usize::MAX),
        (limits(8, 30), steps(64, 8), Some(40), usize::MAX),
        (limits(8, 64), steps(64, 8), None, 24),
    ];
    for (seed, (limits, step, failing, memory)) in cases.into_iter().enumerate() {
        let limits = Limits { context: limits.context.min(memory.saturating_mul(PAGE_TOKENS)), ..limits };
        let mut world = World::new(seed as u64, limits, step, failing, memory);
        for _ in 0..400 {
            // Now a crowd, now nobody.
            for _ in 0..world.rng.usize(..8) {
                world.submit_any();
            }
            for _ in 0..world.rng.usize(..60) {
                world.step();
            }
            if world.rng.usize(..3) == 0 && !world.clients.is_empty() {
                world.cancel_any();
            }
        }
        let mut steps = 0;
        while !world.core.is_idle() {
            world.step();
            steps += 1;
            assert!(steps < 1_000_000);
        }
        world.check(failing.is_some());
        let stats = &world.core.stats;
        let all_happens =
            stats.prefix_hits > 0 && stats.cancelled > 0 && stats.preemptions > 0 && stats.pooled > 100;
        assert!(all_happens, "case {seed}: {stats:?}");
    }
}

#[test]
fn an_urgent_request_goes_first_and_none_waits_for_ever() {
    let step = StepLimits { rows: 64, logit_rows: 8 };
    let mut world = World::new(9, limits(2, 64), step, None, usize::MAX);
    let ended = |world: &World, i: usize| world.clients[i].seen.lock().unwrap().end.is_some();
    for priority in [0, 0, 2] {
        world.submit(vec![7; 50], 1, 40, priority, usize::MAX);
    }
    for _ in 0..4 {
        world.step();
    }
    // It takes the place of one that runs.
    world.submit(vec![9; 30], 1, 2, -2, usize::MAX);
    world.step();
    assert!(world.clients[3].seen.lock().unwrap().started);
    // More urgent requests come than can be served. The one of priority 2 is due after 2 x 500 ms of them.
    let mut steps = 0;
    while !ended(&world, 2) {
        if steps % 10 == 0 {
            world.submit(vec![steps as u32 % 500; 60], 1, 20, -2, usize::MAX);
        }
        world.step();
        steps += 1;
        assert!(steps < 2000, "the patient one starves");
    }
    while !world.core.is_idle() {
        world.step();
    }
    world.check(false);
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    let step = StepLimits { rows: 64, logit_rows: 8 };
    let mut world = World::new(5, limits(4, 200), step, None, usize::MAX);
    world.submit(vec![5; 4000], 1, 1, 0, usize::MAX);
    world.step();
    world.submit(vec![6; 40], 1, 1, 0, usize::MAX);
    let mut steps = 0;
    while world.clients[1].seen.lock().unwrap().end.is_none() {
        world.step();
        steps += 1;
    }
    assert!(steps <= 3, "{steps} steps");
}

#[test]
fn many_texts_leave_room_for_others() {
    let step = StepLimits { rows: 64, logit_rows: 8 };
    let mut world = World::new(6, limits(4, 200), step, None, usize::MAX);
    let pooler = Pooler::new(Task::Embedding(Pooling::Mean), true);
    let texts = (0..1000).map(|i| (vec![3 + i % 400; 60].into(), pooler.clone())).collect();
    let sink = Box::new(|_| ControlFlow::Continue(()));
    let (texts, _ticket) = submission(sink, 0, world.epoch, Work::Pool(texts));
    world.queued.fetch_add(1, Ordering::Relaxed);
    world.core.submit(texts);
    world.step();
    world.submit(vec![6; 40], 1, 5, 0, usize::MAX);
    let mut steps = 0;
    while world.clients[0].seen.lock().unwrap().end.is_none() {
        world.step();
        steps += 1;
    }
    assert!(steps <= 16, "{steps} steps");
    assert!(world.core.stats.pooled >= 5, "texts wait for the answer");
}

#[test]
fn a_panic_in_a_sink_or_a_constraint_hits_its_own_request_only() {
    struct Bad;
    impl crate::Constraint for Bad {
        fn mask(&mut self) -> Result<Option<&[u32]>, String> {
            panic!("a bad grammar")
        }
        fn accept(&mut self, _: u32) -> Result<(), String> {
            Ok(())
        }
        fn fork(&self) -> Box<dyn crate::Constraint> {
            Box::new(Bad)
        }
    }
    let mut world = World::new(5, limits(4, 64), StepLimits { rows: 64, logit_rows: 8 }, None, usize::MAX);
    let failures = Arc::new(Mutex::new(Vec::new()));
    let told = failures.clone();
    let sink = move |event| {
        if let Event::Failed(failure) = event {
            told.lock().unwrap().push(failure);
        }
        ControlFlow::Continue(())
    };
    let request = Request::new(vec![4; 40], SamplerSettings::greedy());
    let bad: Request = Request { constraint: Some(Box::new(Bad)), ..request };
    let work = |request| writing(request, &world.model, &world.limits).unwrap();
    let (bad, _ticket) = submission(Box::new(sink), 0, world.epoch, work(bad));
    let request = Request::new(vec![4; 40], SamplerSettings::greedy());
    let (rude, _other) = submission(Box::new(|_| panic!("a bad sink")), 0, world.epoch, work(request));
    world.queued.fetch_add(2, Ordering::Relaxed);
    world.core.submit(bad);
    world.core.submit(rude);
    world.submit(vec![4; 40], 1, 10, 0, usize::MAX);
    while !world.core.is_idle() {
        world.step();
    }
    world.check(false);
    let failures = failures.lock().unwrap();
    assert!(matches!(&failures[..], [Failure::Panic(why)] if why == "a bad grammar"));
    assert_eq!(world.core.stats.cancelled, 1);
}

#[test]
fn a_panic_of_the_model_fails_all_requests_and_stops_the_scheduler() {
    struct Broken;
    impl Stepper for Broken {
        fn limits(&self) -> StepLimits {
            StepLimits { rows: 8, logit_rows: 8 }
        }
        fn reserve_pages(&mut self, _: usize) -> Result<(), Error> {
            Ok(())
        }
        fn copy_page(&mut self, _: u32, _: u32, _: usize) {}
        fn run(&mut self, _: &StepInputs<'_>) -> Result<(), Error> {
            std::thread::sleep(Duration::from_millis(50));
            panic!("a kernel is wrong")
        }
        fn row(&mut self, _: usize) -> &mut [f32] {
            &mut []
        }
    }
    let scheduler = Scheduler::spawn(model(), Box::new(Broken), limits(2, 16), Arc::default()).unwrap();
    let handle = scheduler.handle();
    let (failures, failed) = std::sync::mpsc::channel();
    let request = || Request::new(vec![4; 40], SamplerSettings::greedy());
    let submit = || {
        let failures = failures.clone();
        let sink = move |event| {
            if let Event::Failed(failure) = event {
                failures.send(failure).unwrap();
            }
            ControlFlow::Continue(())
        };
        handle.submit(request(), Box::new(sink))
    };
    let _tickets: Vec<Ticket> = (0..3).map(|_| submit().unwrap()).collect();
    for _ in 0..3 {
        let failure = failed.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(matches!(failure, Failure::Panic(why) if why == "a kernel is wrong"));
    }
    assert!(matches!(submit(), Err(SubmitError::Stopped(why)) if why == "a kernel is wrong"));
    assert!(!handle.is_running() && failed.try_recv().is_err());
}

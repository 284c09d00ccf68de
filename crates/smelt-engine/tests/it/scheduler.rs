//! The scheduler on real kernels: answers under load are those of the engine alone.

use crate::common::{exact, load};
use smelt_engine::sampler::SamplerSettings;
use smelt_engine::scheduler::{
    Event, Failure, Handle, KvBudget, Request, Scheduler, SchedulerSettings, SubmitError, Ticket, Usage,
};
use smelt_engine::{Constraint, Engine, Finish, KvFormat, Sequence, Settings, TokenInfo};
use smelt_testdata::data;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

const MODEL: &str = "tiny/llama/llama-f16.gguf";
/// Plain layers, sliding windows, experts, quantised weights, and the formats of keys and values.
const CASES: &[(&str, KvFormat)] = &[
    (MODEL, KvFormat::F32),
    ("tiny/gemma3/gemma3-f16.gguf", KvFormat::F16),
    ("tiny/qwen2moe/qwen2moe-f16.gguf", KvFormat::Q8_0),
    ("tiny/quants/llama-kq-Q4_K_S.gguf", KvFormat::Q4_0),
];
const PATIENCE: Duration = Duration::from_secs(60);

/// One thread: what is tested is who computes what with whom, and the threads of several tests would fight.
fn engine(model: &str, format: KvFormat) -> Engine {
    load(&data(model), &Settings { threads: Some(1), kv_formats: format.into(), ..exact() })
}

fn start(settings: &SchedulerSettings) -> Scheduler {
    Scheduler::start(engine(MODEL, KvFormat::F32), settings).unwrap()
}

fn settings() -> SchedulerSettings {
    SchedulerSettings { kv: KvBudget::Pages(64), token_budget: 48, ..SchedulerSettings::default() }
}

/// A prompt that begins as all others of the same `family` do.
fn prompt(family: u32, len: u32, seed: u32) -> Vec<u32> {
    let token = |i: u32| 3 + (i * 7 + family * 31 + if i > len / 2 { seed * 13 } else { 0 }) % 500;
    (0..len).map(token).collect()
}

fn greedy(prompt: Vec<u32>, max_tokens: usize) -> Request {
    Request {
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..Request::new(prompt, SamplerSettings::greedy())
    }
}

fn submit(handle: &Handle, request: Request) -> (Ticket, Receiver<Event>) {
    let (events, received) = mpsc::channel();
    let sink = move |event| match events.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    (handle.submit(request, Box::new(sink)).unwrap(), received)
}

/// What a request came to.
#[derive(Debug, Default)]
struct Answers {
    cached: usize,
    prompt: Option<Vec<TokenInfo>>,
    text: Vec<String>,
    tokens: Vec<Vec<TokenInfo>>,
    finish: Vec<Option<(Finish, Usage)>>,
    failure: Option<Failure>,
}

impl Answers {
    fn ids(&self, index: usize) -> Vec<u32> {
        self.tokens[index].iter().map(|token| token.id).collect()
    }
}

fn collect(received: &Receiver<Event>, n: usize) -> Answers {
    let mut answers = Answers {
        text: vec![String::new(); n],
        tokens: vec![Vec::new(); n],
        finish: vec![None; n],
        ..Answers::default()
    };
    loop {
        match received.recv_timeout(PATIENCE).expect("an event that ends the request") {
            Event::Started { cached_tokens, .. } => answers.cached = cached_tokens,
            Event::PromptLogprobs(infos) => answers.prompt = Some(infos),
            Event::Delta { index, text, tokens } => {
                answers.text[index].push_str(&text);
                answers.tokens[index].extend(tokens);
            }
            Event::Finished { index, finish, usage } => {
                assert!(answers.finish[index].replace((finish, usage)).is_none());
            }
            Event::Progress { .. } | Event::Pooled { .. } => unreachable!("nobody asked for it"),
            Event::Done => return answers,
            Event::Failed(failure) => {
                answers.failure = Some(failure);
                return answers;
            }
        }
    }
}

/// Answers of the engine alone.
fn alone(model: &str, format: KvFormat, requests: &[(Vec<u32>, usize)]) -> Vec<Vec<u32>> {
    let mut alone = engine(model, format);
    let mut answer = |(prompt, max_tokens): &(Vec<u32>, usize)| {
        let request = smelt_engine::Request {
            prompt: prompt.clone(),
            sampler: SamplerSettings::greedy(),
            max_tokens: Some(*max_tokens),
            stop: Vec::new(),
            ignore_eos: true,
            show_special: false,
            grammar: None,
        };
        let mut sequence = Sequence::default();
        let tokens = alone.generate(&mut sequence, &request, &mut |_| true).unwrap().tokens;
        alone.release(sequence);
        tokens
    };
    requests.iter().map(&mut answer).collect()
}

#[test]
fn greedy_answers_are_the_same_alone_and_under_load() {
    for &(model, format) in CASES {
        let vocab_size = engine(model, format).facts().vocab_size as u32;
        let of = |i: u32| prompt(i % 3, 1 + i * 37 % 150, i).iter().map(|t| t % vocab_size).collect();
        let requests: Vec<(Vec<u32>, usize)> = (0..16).map(|i| (of(i), 60 + i as usize * 11 % 40)).collect();
        let alone = alone(model, format, &requests);
        // Enough pages for all, and so few that answers lose theirs to others.
        for pages in [512, 7] {
            let settings = SchedulerSettings { kv: KvBudget::Pages(pages), max_sequences: 9, ..settings() };
            let scheduler = Scheduler::start(engine(model, format), &settings).unwrap();
            let handle = scheduler.handle();
            for _ in 0..2 {
                let open: Vec<_> = requests
                    .iter()
                    .map(|(prompt, max_tokens)| submit(&handle, greedy(prompt.clone(), *max_tokens)))
                    .collect();
                for (i, (_ticket, received)) in open.iter().enumerate() {
                    let answers = collect(received, 1);
                    assert!(answers.failure.is_none(), "{:?}", answers.failure);
                    assert_eq!(answers.ids(0), alone[i], "{model}: request {i}, {pages} pages");
                }
            }
            scheduler.shutdown(PATIENCE);
            let stats = handle.stats();
            assert_eq!((stats.preemptions > 0, stats.prefix_hits > 0), (pages == 7, true), "{stats:?}");
            assert_eq!((stats.requests, stats.finished_length, stats.kv_pages_used), (32, 32, 0));
        }
    }
}

#[test]
fn a_prefix_is_computed_once() {
    let scheduler = start(&settings());
    let handle = scheduler.handle();
    let long = prompt(1, 105, 0);
    let (_ticket, received) = submit(&handle, greedy(long.clone(), 8));
    let first = collect(&received, 1);
    assert_eq!(first.cached, 0);
    // The answer is in the cache too, but for its last token, which was not computed.
    let next_turn = [&long[..], &first.ids(0), &[5, 6]].concat();
    let (_ticket, received) = submit(&handle, greedy(next_turn.clone(), 8));
    assert_eq!(collect(&received, 1).cached, 112);
    let (_ticket, received) = submit(&handle, greedy(long.clone(), 8));
    let again = collect(&received, 1);
    assert_eq!((again.cached, again.ids(0)), (104, first.ids(0)));
    assert_eq!(again.finish[0].unwrap().1.cached_tokens, 104);
}

#[test]
fn several_answers_share_their_prompt() {
    let scheduler = start(&SchedulerSettings { max_sequences: 3, ..settings() });
    let handle = scheduler.handle();
    let sampler = SamplerSettings { seed: Some(7), ..SamplerSettings::neutral() };
    let request = |seed: u64, n| Request {
        n,
        sampler: SamplerSettings { seed: Some(seed), ..sampler.clone() },
        ..greedy(prompt(2, 70, 1), 20)
    };
    let (_ticket, received) = submit(&handle, request(7, 5));
    let together = collect(&received, 5);
    assert!(handle.stats().rows < 70 + 5 * 20 + 3 * 96, "{:?}", handle.stats());
    for i in 0..5 {
        let (_ticket, received) = submit(&handle, request(7 + i as u64, 1));
        assert_eq!(collect(&received, 1).ids(0), together.ids(i), "answer {i}");
        assert_eq!(together.finish[i].unwrap().1.seed, 7 + i as u64);
    }
}

#[test]
fn log_probabilities_are_the_models() {
    let tokens = prompt(1, 90, 3);
    let mut alone = engine(MODEL, KvFormat::F32);
    let mut right = Vec::new();
    alone
        .logits(&tokens, &mut |i, row| {
            let distribution = smelt_engine::sampler::LogProbs::new(row).unwrap();
            right.push((tokens.get(i + 1).map(|t| distribution.of(*t)), distribution.top(3)));
            Ok(())
        })
        .unwrap();
    let scheduler = start(&settings());
    let handle = scheduler.handle();
    // The cache must not stand in for logits that are wanted.
    for _ in 0..2 {
        let request = Request { logprobs: Some(3), prompt_logprobs: true, ..greedy(tokens.clone(), 2) };
        let (_ticket, received) = submit(&handle, request);
        let answers = collect(&received, 1);
        let infos = answers.prompt.unwrap();
        assert_eq!(infos.iter().map(|info| info.id).collect::<Vec<u32>>(), tokens);
        assert_eq!((infos[0].logprob, infos[0].top.len(), answers.cached), (None, 0, 0));
        for (info, (logprob, top)) in infos[1..].iter().zip(&right) {
            assert_eq!(Some(info.logprob), *logprob);
            assert_eq!(&info.top.iter().map(|t| (t.id, t.logprob)).collect::<Vec<_>>(), top);
        }
        let first = &answers.tokens[0][0];
        assert_eq!((first.id, first.logprob.unwrap()), right[89].1[0]);
    }
}

#[test]
fn who_goes_away_frees_his_place() {
    let scheduler = start(&settings());
    let handle = scheduler.handle();
    let (ticket, received) = submit(&handle, greedy(prompt(1, 40, 0), 1_000_000));
    while !matches!(received.recv_timeout(PATIENCE).unwrap(), Event::Delta { .. }) {}
    drop(ticket);
    // In the middle of a prompt too: this one takes many steps.
    let (ticket, in_prefill) = submit(&handle, greedy(prompt(2, 120, 0), 1));
    drop(ticket);
    // A sink that says break is the same.
    let sink = |_| ControlFlow::Break(());
    let _ticket = handle.submit(greedy(prompt(3, 20, 0), 1_000_000), Box::new(sink)).unwrap();
    let (_ticket, other) = submit(&handle, greedy(prompt(1, 40, 0), 4));
    assert!(collect(&other, 1).failure.is_none());
    while received.recv_timeout(PATIENCE).is_ok() {}
    assert_eq!(in_prefill.recv_timeout(PATIENCE).unwrap_err(), RecvTimeoutError::Disconnected);
    scheduler.shutdown(PATIENCE);
    let stats = handle.stats();
    assert_eq!((stats.running, stats.kv_pages_used, stats.cancelled), (0, 0, 3), "{stats:?}");
}

#[test]
fn what_cannot_be_done_is_refused_at_once() {
    let scheduler = start(&SchedulerSettings { max_queue: 2, max_sequences: 1, ..settings() });
    let handle = scheduler.handle();
    let refused =
        |request: Request| handle.submit(request, Box::new(|_| panic!("no event"))).map(|_| ()).unwrap_err();
    let context = handle.context();
    let error = refused(greedy(vec![3; context + 1], 1));
    assert!(matches!(error, SubmitError::TooLong { prompt_tokens, context: c } if prompt_tokens == c + 1));
    for request in [
        greedy(Vec::new(), 1),
        greedy(vec![1_000_000], 1),
        Request { n: 0, ..greedy(vec![3], 1) },
        Request { priority: 5000, ..greedy(vec![3], 1) },
        Request { logprobs: Some(5000), ..greedy(vec![3], 1) },
        Request { stop: vec![String::new()], ..greedy(vec![3], 1) },
        Request {
            sampler: SamplerSettings { top_p: 7.0, ..SamplerSettings::neutral() },
            ..greedy(vec![3], 1)
        },
    ] {
        assert!(matches!(refused(request), SubmitError::Invalid(_)));
    }
    let (_running, received) = submit(&handle, greedy(vec![3; 8], 1_000_000));
    while !matches!(received.recv_timeout(PATIENCE).unwrap(), Event::Started { .. }) {}
    let _waiting: Vec<_> = (0..2).map(|_| submit(&handle, greedy(vec![4; 8], 1))).collect();
    let error = refused(greedy(vec![5; 8], 1));
    assert!(matches!(error, SubmitError::QueueFull { waiting: 2, .. }), "{error}");
    scheduler.shutdown(Duration::ZERO);
    assert!(matches!(refused(greedy(vec![5; 8], 1)), SubmitError::Stopping));
    assert!(matches!(collect(&received, 1).failure, Some(Failure::Stopped)));
}

#[test]
fn a_shutdown_waits_for_answers() {
    let scheduler = start(&settings());
    let handle = scheduler.handle();
    let open: Vec<_> = (0..4).map(|i| submit(&handle, greedy(prompt(i, 60, i), 10))).collect();
    scheduler.shutdown(PATIENCE);
    for (_ticket, received) in &open {
        assert_eq!(collect(received, 1).ids(0).len(), 10);
    }
    assert!(!handle.is_running());
}

/// Lets 40 and 300 come in turns, and the answer end after four of them.
struct Turns {
    taken: Vec<u32>,
    end: u32,
    mask: Vec<u32>,
}

impl Constraint for Turns {
    fn mask(&mut self) -> Result<Option<&[u32]>, String> {
        let next = if self.taken.len() == 4 { self.end } else { [40, 300][self.taken.len() % 2] };
        self.mask = vec![0; next as usize / 32 + 1];
        self.mask[next as usize / 32] = 1 << (next % 32);
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.taken.push(token);
        Ok(())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self { taken: self.taken.clone(), end: self.end, mask: Vec::new() })
    }
}

#[test]
fn an_answer_keeps_to_its_constraint() {
    let scheduler = start(&settings());
    let handle = scheduler.handle();
    let end = handle.model().tokenizer().eos().unwrap();
    let request = |sampler| -> Request {
        let constraint = Turns { taken: Vec::new(), end, mask: Vec::new() };
        let request = Request::new(prompt(1, 40, 0), sampler);
        Request { constraint: Some(Box::new(constraint)), logprobs: Some(2), n: 2, ..request }
    };
    for sampler in [SamplerSettings::greedy(), SamplerSettings::default()] {
        let (_ticket, received) = submit(&handle, request(sampler));
        let answers = collect(&received, 2);
        for i in 0..2 {
            assert_eq!(answers.ids(i), [40, 300, 40, 300]);
            assert_eq!(answers.finish[i].unwrap().0, Finish::EndOfGeneration(end));
            // The model's own distribution knows of no constraint.
            assert!(answers.tokens[i].iter().all(|t| t.logprob.unwrap() < -0.5 && t.top[0].id != t.id));
        }
    }
}

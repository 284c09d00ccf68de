//! A flag that another thread raises ends an answer, and costs nothing but the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{exact, load, reference};
use smelt_engine::sampler::SamplerSettings;
use smelt_engine::{Engine, Error, Event, Finish, Request, Sequence};
use smelt_testdata::data;

fn request(prompt: Vec<u32>) -> Request {
    Request {
        prompt,
        sampler: SamplerSettings::greedy(),
        max_tokens: Some(4),
        stop: Vec::new(),
        ignore_eos: true,
        show_special: false,
        grammar: None,
    }
}

fn prompt(tokens: u32) -> Vec<u32> {
    (0..tokens).map(|i| 3 + i * 7 % 500).collect()
}

fn tiny(settings: &smelt_engine::Settings) -> (Engine, Arc<AtomicBool>) {
    let mut engine = load(&data("tiny/llama/llama-f16.gguf"), settings);
    let flag = Arc::new(AtomicBool::new(false));
    engine.interrupt_on(flag.clone());
    (engine, flag)
}

#[test]
fn an_interrupted_answer_leaves_the_sequence_usable() {
    for settings in [exact(), reference()] {
        let (mut engine, flag) = tiny(&settings);
        let (short, long) = (request(prompt(40)), request(prompt(100)));
        let right = engine.generate(&mut Sequence::default(), &long, &mut |_| true).unwrap().tokens;
        let mut sequence = Sequence::default();
        engine.generate(&mut sequence, &short, &mut |_| true).unwrap();
        let computed = sequence.tokens().len();
        flag.store(true, Ordering::SeqCst);
        let outcome = engine.generate(&mut sequence, &long, &mut |_| true).unwrap();
        assert_eq!((outcome.finish, outcome.tokens.len()), (Finish::Cancelled, 0));
        assert!(sequence.tokens().len() <= computed, "nothing was computed");
        assert!(matches!(
            engine.logits(&[1, 2], &mut |_, _| Ok(())),
            Err(Error::Backend(smelt_backend::Error::Interrupted))
        ));
        flag.store(false, Ordering::SeqCst);
        let outcome = engine.generate(&mut sequence, &long, &mut |_| true).unwrap();
        assert_eq!((outcome.tokens, outcome.cached_tokens), (right, 40));
    }
}

/// The whole prompt is one step, and its progress is only told when it is done.
#[test]
fn a_long_step_is_interrupted_in_its_middle() {
    let settings = smelt_engine::Settings { batch: 2048, context: Some(4096), ..reference() };
    let (mut engine, flag) = tiny(&settings);
    let (long, mut steps) = (request(prompt(2048)), 0);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            flag.store(true, Ordering::SeqCst);
        });
        engine.generate(&mut Sequence::default(), &long, &mut |event| {
            steps += usize::from(matches!(event, Event::Prefill { .. }));
            true
        })
    });
    assert_eq!((outcome.unwrap().finish, steps), (Finish::Cancelled, 0));
}

#[test]
fn a_template_that_does_not_compile_hinders_chats_only() {
    let file = crate::common::changed(|writer| {
        writer.set("tokenizer.chat_template", "{% if %}").unwrap();
    });
    let mut engine = load(file.path(), &exact());
    engine.generate(&mut Sequence::default(), &request(prompt(8)), &mut |_| true).unwrap();
    engine.logits(&[1, 2], &mut |_, _| Ok(())).unwrap();
    let message = smelt_engine::chat::Message::new("user", "Hello");
    let error = engine.model().encode_chat(&[message], &Default::default()).unwrap_err().to_string();
    assert!(error.contains("chat template, line 1: "), "{error}");
}

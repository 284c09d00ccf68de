//! Whole answers of real vocabularies: byte-level BPE and SentencePiece.

use super::{allows, constrain};
use serde_json::{Value, json};
use smelt_engine::sampler::SamplerSettings;
use smelt_engine::scheduler::{Event, Failure, Request, Scheduler, SchedulerSettings};
use smelt_engine::tokenizer::answer::ThinkTags;
use smelt_engine::tokenizer::{Special, TokenKind};
use smelt_engine::{Constraint, Engine, Finish, Grammar, Model, Settings};
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::Duration;

const MODELS: &[&str] = &["SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"];

fn load(name: &str) -> Engine {
    let file = smelt_testdata::fetched(&format!("models/{name}"));
    let settings = Settings { context: Some(512), threads: Some(2), ..Settings::default() };
    Engine::load(&file, &settings).unwrap()
}

fn person() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tags": {"type": "array", "maxItems": 2, "items": {"enum": ["a", "b\"", "é"]}},
        },
    })
}

/// The text of an answer to `prompt`, with its end.
fn answer(
    scheduler: &Scheduler,
    constraint: Option<Box<dyn Constraint>>,
    request: Request,
) -> (Vec<String>, Vec<Finish>) {
    let (sender, events) = mpsc::channel();
    let n = request.n;
    let sink = move |event| match sender.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let _ticket = scheduler.handle().submit(Request { constraint, ..request }, Box::new(sink)).unwrap();
    let (mut texts, mut ends) = (vec![String::new(); n], Vec::new());
    for event in events {
        match event {
            Event::Delta { index, text, .. } => texts[index].push_str(&text),
            Event::Finished { finish, .. } => ends.push(finish),
            Event::Failed(failure) => panic!("{failure}"),
            _ => {}
        }
    }
    (texts, ends)
}

fn request(model: &Model, seed: u64) -> Request {
    let prompt = model.tokenizer().encode("Tell me about a person.", Special::Text, true);
    let sampler = SamplerSettings { temperature: 1.5, seed: Some(seed), ..SamplerSettings::default() };
    Request { max_tokens: Some(120), ..Request::new(prompt, sampler) }
}

#[test]
fn answers_meet_the_schema_and_end_where_it_does() {
    for name in MODELS {
        let engine = load(name);
        let model = engine.model().clone();
        let scheduler = Scheduler::start(engine, &SchedulerSettings::default()).unwrap();
        let constraint = constrain(&model, Grammar::from_json_schema(&person())).unwrap();
        let (texts, ends) = answer(&scheduler, Some(constraint), Request { n: 4, ..request(&model, 7) });
        for (text, end) in texts.iter().zip(&ends) {
            assert!(matches!(end, Finish::EndOfGeneration(_)), "{name}: {end:?}: {text}");
            let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
            let names: Vec<&String> = value.as_object().unwrap().keys().collect();
            assert_eq!(names, ["name", "age", "tags"], "{name}");
            assert!(value["age"].as_u64().is_some_and(|age| age <= 120), "{name}: {text}");
            assert!(value["name"].as_str().is_some_and(|name| name.chars().count() <= 12), "{name}: {text}");
        }
        scheduler.shutdown(Duration::ZERO);
    }
}

#[test]
fn tokens_of_every_kind_are_constrained() {
    for name in MODELS {
        let model = load(name).model().clone();
        let tokenizer = model.tokenizer();
        let mut constraint = constrain(&model, Grammar::regex("(?s:.)*")).unwrap();
        let mask = constraint.mask().unwrap().unwrap();
        for id in 0..tokenizer.vocab_size() as u32 {
            let bytes = tokenizer.token_bytes(id, true).unwrap();
            let shown = format!("{name}: {id} {:?} {:?}", tokenizer.kind(id), tokenizer.piece(id));
            match tokenizer.kind(id).unwrap() {
                TokenKind::Control => assert_eq!(allows(mask, id), tokenizer.is_eog(id), "{shown}"),
                TokenKind::Normal | TokenKind::UserDefined if std::str::from_utf8(bytes).is_ok() => {
                    assert_eq!(allows(mask, id), !bytes.is_empty() || tokenizer.is_eog(id), "{shown}");
                }
                _ => {}
            }
        }
        // Nothing is allowed beyond the vocabulary.
        let beyond = tokenizer.vocab_size() as u32..mask.len() as u32 * 32;
        assert!(beyond.into_iter().all(|id| !allows(mask, id)), "{name}");
        // An end is allowed where the answer may end, and behind it nothing else is.
        let mut constraint = constrain(&model, Grammar::regex("ab")).unwrap();
        let end = tokenizer.eog_ids()[0];
        assert!(!allows(constraint.mask().unwrap().unwrap(), end));
        for id in tokenizer.encode("ab", Special::Text, false) {
            let bytes = tokenizer.token_bytes(id, false).unwrap();
            if bytes != b" " {
                constraint.accept(id).unwrap();
            }
        }
        constraint.accept(end).unwrap();
        let only_ends = |mask: &[u32]| {
            (0..tokenizer.vocab_size() as u32).all(|id| !allows(mask, id) || tokenizer.is_eog(id))
        };
        assert!(only_ends(constraint.mask().unwrap().unwrap()));
        constraint.accept(end).unwrap();
        assert!(only_ends(constraint.mask().unwrap().unwrap()));
    }
}

#[test]
fn thoughts_are_free_and_the_answer_behind_them_is_not() {
    let engine = load(MODELS[0]);
    let model = engine.model().clone();
    let tokenizer = model.tokenizer();
    let encode = |text: &str| tokenizer.encode(text, Special::Text, false);
    let tags = ThinkTags::of_template("</think>").unwrap();
    let grammar = Grammar::from_json_schema(&json!({"const": {"a": 1}})).unwrap();
    let (brace, end) = (encode("{")[0], tokenizer.eog_ids()[0]);
    // What the prompt has opened, what the model says up to the answer, and whether an end was forbidden at the beginning.
    for (is_open, said) in [
        (true, "I think</thin</think>"),
        (true, "a < b</think>\n\n"),
        (false, "<think>{} I think</think>\n"),
        (false, "<think></think>"),
        (false, ""),
    ] {
        let then = model.constrain(&grammar).unwrap();
        let mut constraint = model.behind_thoughts(then, tags, is_open);
        for id in encode(said) {
            let mask = constraint.mask().unwrap().unwrap();
            assert!(allows(mask, id) && !allows(mask, end), "{said:?}: {:?}", tokenizer.piece(id));
            constraint.accept(id).unwrap();
        }
        // A copy begins where the other one is.
        let mut fork = constraint.fork();
        for constraint in [&mut constraint, &mut fork] {
            assert!(!allows(constraint.mask().unwrap().unwrap(), encode("a")[0]), "{said:?}");
            for id in encode(r#"{"a":1}"#) {
                assert!(allows(constraint.mask().unwrap().unwrap(), id), "{said:?}");
                constraint.accept(id).unwrap();
            }
            let mask = constraint.mask().unwrap().unwrap();
            assert!(allows(mask, end) && !allows(mask, brace), "{said:?}");
        }
    }
    // No token closes the block and goes on with the answer unseen.
    let then = model.constrain(&grammar).unwrap();
    let mut constraint = model.behind_thoughts(then, tags, true);
    let crossing = (0..tokenizer.vocab_size() as u32).find(|id| {
        tokenizer
            .token_bytes(*id, false)
            .is_some_and(|bytes| bytes.starts_with(b">") && bytes.len() > 1 && bytes[1] == b'<')
    });
    for id in encode("</think") {
        constraint.accept(id).unwrap();
    }
    let mask = constraint.mask().unwrap().unwrap();
    assert!(allows(mask, encode(">")[0]) && !allows(mask, crossing.unwrap()));
}

#[test]
fn a_grammar_that_grows_too_complex_fails_its_request_only() {
    let engine = load(MODELS[0]);
    let model = engine.model().clone();
    let scheduler = Scheduler::start(engine, &SchedulerSettings::default()).unwrap();
    struct Complex;
    impl Constraint for Complex {
        fn mask(&mut self) -> Result<Option<&[u32]>, String> {
            Err("the lexer is too complex".into())
        }
        fn accept(&mut self, _: u32) -> Result<(), String> {
            Ok(())
        }
        fn fork(&self) -> Box<dyn Constraint> {
            Box::new(Self)
        }
    }
    let (sender, events) = mpsc::channel();
    let sink = move |event| {
        let _ = sender.send(event);
        ControlFlow::Continue(())
    };
    let failing: Request = Request { constraint: Some(Box::new(Complex)), ..request(&model, 1) };
    let _ticket = scheduler.handle().submit(failing, Box::new(sink)).unwrap();
    let constraint = constrain(&model, Grammar::json_object()).unwrap();
    let other = Request { max_tokens: Some(8), ..request(&model, 1) };
    let (texts, _) = answer(&scheduler, Some(constraint), other);
    assert!(texts[0].starts_with('{'), "{texts:?}");
    let failed = events.iter().find_map(|event| match event {
        Event::Failed(Failure::Engine(error)) => Some(error.to_string()),
        _ => None,
    });
    assert!(failed.is_some_and(|error| error.contains("the lexer is too complex")));
}

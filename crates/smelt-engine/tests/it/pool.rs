//! Embeddings and scores: against references, and the same alone and under load.

use crate::common::{changed, exact, ids, load, models};
use smelt_checkpoint::{Array, Value};
use smelt_engine::sampler::SamplerSettings;
use smelt_engine::scheduler::{
    Event, Handle, KvBudget, PoolRequest, Request, Scheduler, SchedulerSettings, SubmitError, Task, Text,
};
use smelt_engine::tokenizer::Special;
use smelt_engine::{EUCLIDEAN, Engine, Error, Head, Infill, KvFormat, Pooling, Settings, normalize};
use smelt_testdata::{Npz, data, fetched, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);
const MINILM: &str = "models/all-MiniLM-L6-v2.F32.gguf";

fn one_thread() -> Settings {
    Settings { threads: Some(1), ..exact() }
}

fn start(engine: Engine) -> Scheduler {
    Scheduler::start(engine, &SchedulerSettings::default()).unwrap()
}

/// What comes of a request's texts.
fn pool(handle: &Handle, texts: Vec<Text>, task: Task) -> Result<Vec<Vec<f32>>, String> {
    let n = texts.len();
    let (events, received) = mpsc::channel();
    let sink = move |event| match events.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let request = PoolRequest { texts, task, priority: 0 };
    let _ticket = handle.pool(request, Box::new(sink)).map_err(|error| error.to_string())?;
    let mut all = vec![Vec::new(); n];
    loop {
        match received.recv_timeout(PATIENCE).expect("an event that ends the request") {
            Event::Pooled { index, values } => all[index] = values,
            Event::Done => return Ok(all),
            Event::Failed(failure) => return Err(failure.to_string()),
            _ => {}
        }
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// The largest difference of two values, relative to the largest right one.
fn off(found: &[f32], right: &[f32]) -> f32 {
    assert_eq!(found.len(), right.len());
    let largest = right.iter().fold(0f32, |most, value| most.max(value.abs()));
    found.iter().zip(right).fold(0f32, |most, (f, r)| most.max((f - r).abs())) / largest
}

#[test]
fn minilm_gives_the_references_embeddings() {
    let references = json("refs/minilm.json");
    let embeddings: Vec<Vec<f32>> = serde_json::from_value(references["embeddings"].clone()).unwrap();
    // As exact as can be, and as it is by default.
    for (settings, most) in [(one_thread(), 2e-6), (Settings::default(), 2e-4)] {
        let engine = load(&fetched(MINILM), &settings);
        let facts = engine.facts();
        assert_eq!((facts.pooling, facts.head, facts.causal), (Pooling::Mean, Head::None, false));
        let texts: Vec<Vec<u32>> = references["sentences"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| engine.tokenizer().encode(text.as_str().unwrap(), Special::Text, true))
            .collect();
        let right: Vec<Vec<u32>> = serde_json::from_value(references["ids"].clone()).unwrap();
        assert_eq!(texts, right);
        let scheduler = start(engine);
        let texts = texts.into_iter().map(Text::from).collect();
        let mut found = pool(&scheduler.handle(), texts, Task::Embedding(Pooling::Mean)).unwrap();
        for (found, right) in found.iter_mut().zip(&embeddings) {
            normalize(found, EUCLIDEAN);
            let off = found.iter().zip(right).fold(0f32, |most, (f, r)| most.max((f - r).abs()));
            assert!(off < most && cosine(found, right) > 1.0 - 1e-5, "off by {off}");
        }
        assert!(cosine(&found[0], &found[1]) > cosine(&found[0], &found[2]) + 0.3);
    }
}

/// How far what a scheduler makes of a text is from the arrays of `states/ref.npz` that begin with `name`, at most: the
/// difference of a value, relative to the largest, and 1 - the cosine. Of each pooling, and of single tokens' states.
fn distance_of_states(engine: Engine, name: &str, tokens: &[u32]) -> (f32, f64) {
    let reference = Npz::open("states/ref.npz");
    let right = |part: &str| reference.f32(&format!("{name}.{part}"));
    let width = engine.facts().hidden_dim;
    let scheduler = start(engine);
    let found = |pooling| {
        let text = vec![tokens.to_vec().into()];
        pool(&scheduler.handle(), text, Task::Embedding(pooling)).unwrap().remove(0)
    };
    let poolings = [(Pooling::Mean, "mean"), (Pooling::First, "first"), (Pooling::Last, "last")];
    let mut pairs: Vec<_> =
        poolings.iter().map(|(pooling, part)| (found(*pooling), right(part).values)).collect();
    let states = found(Pooling::None);
    assert_eq!(states.len(), tokens.len() * width);
    let (rows, positions) = (right("states"), reference.i32(&format!("{name}.positions")).values);
    pairs.extend(
        positions.iter().enumerate().map(|(i, position)| {
            (states[*position as usize * width..][..width].to_vec(), rows.row(i).to_vec())
        }),
    );
    pairs.iter().fold((0.0, 0.0), |(far, angle): (f32, f64), (found, right)| {
        (far.max(off(found, right)), angle.max(1.0 - cosine(found, right)))
    })
}

#[test]
fn states_of_decoders_equal_transformers() {
    // As exact as can be, in short steps, and as it is by default, where keys and values lose 13 of 24 bits.
    let exactly = (1e-5, 1e-10);
    for (settings, bars) in [
        (one_thread(), exactly),
        (Settings { batch: 16, ..one_thread() }, exactly),
        (Settings::default(), (3e-3, 3e-6)),
    ] {
        let mut engines = Vec::new();
        for name in models() {
            let tokens = ids(&Npz::open(&format!("tiny/{name}/ref.npz")).i32("input_ids").values);
            let engine = load(&data(&format!("tiny/{name}/{name}-f16.gguf")), &settings);
            assert_eq!((engine.facts().pooling, engine.facts().causal), (Pooling::Last, true));
            engines.push((engine, name, tokens));
        }
        // A decoder that was made to see all of its text.
        let file = changed(|writer| writer.set("llama.attention.causal", false).unwrap());
        let engine = load(file.path(), &settings);
        assert_eq!((engine.facts().pooling, engine.facts().causal), (Pooling::Mean, false));
        let tokens = ids(&Npz::open("tiny/llama/ref.npz").i32("input_ids").values);
        engines.push((engine, "llama-full".to_owned(), tokens));
        let mut bad = Vec::new();
        for (engine, name, tokens) in engines {
            let (far, angle) = distance_of_states(engine, &name, &tokens);
            println!("{name}: off by {far:.1e}, 1 - cosine {angle:.1e}");
            if far > bars.0 || angle > bars.1 {
                bad.push(name);
            }
        }
        assert!(bad.is_empty(), "{bad:?} are further than {bars:?}");
    }
}

/// Both round activations to eight bits, and so are as far from exact as quantised models are, by chance one or the other
/// further: angles of up to 2.3e-3 and 1.9e-3 (1 - cosine), the sums of all within 1 % of each other.
#[test]
fn embeddings_of_real_decoders_are_as_exact_as_llama_cpps() {
    let references = json("refs/embeddings.json");
    let vectors = |value: &serde_json::Value| serde_json::from_value::<Vec<Vec<f32>>>(value.clone()).unwrap();
    let angle = |a: &[f32], b: &[f32]| 1.0 - cosine(a, b);
    let (mut our_sum, mut their_sum) = (0.0, 0.0);
    for (file, model) in references["models"].as_object().unwrap() {
        let engine = load(&fetched(&format!("models/{file}")), &Settings::default());
        let texts: Vec<Text> = references["texts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|text| engine.tokenizer().encode(text.as_str().unwrap(), Special::Text, true).into())
            .collect();
        let ids: Vec<Vec<u32>> = serde_json::from_value(model["ids"].clone()).unwrap();
        assert!(texts.iter().map(|text| &text.tokens).eq(&ids), "{file}");
        let scheduler = start(engine);
        for pooling in [Pooling::Mean, Pooling::Last] {
            let right = &model[pooling.name()];
            let found = pool(&scheduler.handle(), texts.clone(), Task::Embedding(pooling)).unwrap();
            let (exact, theirs) = (vectors(&right["exact"]), vectors(&right["llama_cpp"]));
            for (i, (exact, theirs)) in exact.iter().zip(&theirs).enumerate() {
                let (ours, theirs) = (angle(&found[i], exact), angle(theirs, exact));
                let what =
                    format!("{file}, {}, text {i}: {ours:.1e}, llama.cpp {theirs:.1e}", pooling.name());
                assert!(ours < 2.0 * theirs && off(&found[i], exact) < 0.06, "{what}");
                (our_sum, their_sum) = (our_sum + ours, their_sum + theirs);
            }
        }
    }
    assert!(our_sum < 1.1 * their_sum, "{our_sum:.1e} in all, llama.cpp {their_sum:.1e}");
}

#[test]
fn files_say_how_states_are_pooled() {
    let pooling = |causal: bool, number: Option<u32>| {
        let file = changed(|writer| {
            writer.set("llama.attention.causal", causal).unwrap();
            number.iter().for_each(|number| writer.set("llama.pooling_type", *number).unwrap());
        });
        Engine::load(file.path(), &one_thread()).map(|engine| engine.facts().pooling)
    };
    let (none, mean, first, last) = (Pooling::None, Pooling::Mean, Pooling::First, Pooling::Last);
    for (number, causal, full) in [
        (None, last, mean),
        (Some(0), none, none),
        (Some(1), mean, mean),
        (Some(2), first, first),
        (Some(3), last, last),
        // What a reranker scores: the last token, which has seen all, or else the first.
        (Some(4), last, first),
    ] {
        assert_eq!((pooling(true, number).unwrap(), pooling(false, number).unwrap()), (causal, full));
    }
    let error = pooling(true, Some(5)).unwrap_err().to_string();
    assert!(error.contains("llama.pooling_type") && error.contains("is 5"), "{error}");
}

#[test]
fn labels_are_scored_as_the_reference_does() {
    let reference = Npz::open("bert/ref.npz");
    let scheduler = start(load(&data("bert/bert-f16.gguf"), &one_thread()));
    let text = |name: &str| ids(&reference.i32(name).values);
    let pair = Text { tokens: text("input_ids"), segments: text("segments") };
    let single = Text::from(text("second_input_ids"));
    let texts = vec![pair, single.clone()];
    let found = pool(&scheduler.handle(), texts, Task::Labels).unwrap();
    for (found, name) in found.iter().zip(["scores", "second_scores"]) {
        let right = reference.f32(name).values;
        assert!((found[0] - right[0]).abs() < 1e-4, "{name}: {found:?}, where {right:?} is right");
    }
    let right = reference.f32("second_states");
    let states = |pooling| {
        pool(&scheduler.handle(), vec![single.clone()], Task::Embedding(pooling)).unwrap().remove(0)
    };
    assert!(off(&states(Pooling::First), right.row(0)) < 1e-5);
    assert!(off(&states(Pooling::None), &right.values) < 1e-5);
}

#[test]
fn states_of_a_bert_that_rotates_equal_transformers() {
    let reference = Npz::open("nomic-bert/ref.npz");
    let scheduler = start(load(&data("nomic-bert/nomic-bert-f16.gguf"), &one_thread()));
    let text = |name: &str| ids(&reference.i32(name).values);
    let pair = Text { tokens: text("input_ids"), segments: text("segments") };
    let texts = vec![pair, text("second_input_ids").into()];
    let found = pool(&scheduler.handle(), texts, Task::Embedding(Pooling::None)).unwrap();
    for (found, name) in found.iter().zip(["states", "second_states"]) {
        assert!(off(found, &reference.f32(name).values) < 1e-5, "{name}");
    }
}

/// Models, what is wanted of them, and how much cache there is.
fn cases() -> Vec<(PathBuf, Task, usize)> {
    let (bert, llama) = (data("bert/bert-f16.gguf"), data("tiny/llama/llama-f16.gguf"));
    vec![
        (bert.clone(), Task::Embedding(Pooling::First), 64),
        (bert, Task::Labels, 5),
        (data("nomic-bert/nomic-bert-f16.gguf"), Task::Embedding(Pooling::Mean), 64),
        (llama.clone(), Task::Embedding(Pooling::Last), 64),
        (data("tiny/gemma3/gemma3-f16.gguf"), Task::Logits([5, 300].into()), 9),
        (llama.clone(), Task::Embedding(Pooling::Mean), 64),
        (llama.clone(), Task::Embedding(Pooling::Mean), 9),
        (llama, Task::Embedding(Pooling::None), 9),
    ]
}

#[test]
fn texts_are_the_same_alone_and_under_load() {
    for (file, task, pages) in cases() {
        let engine = load(&file, &Settings { kv_formats: KvFormat::F16.into(), ..one_thread() });
        let (vocab_size, context) = (engine.facts().vocab_size as u32, engine.facts().context);
        let generates = engine.facts().generates();
        let text = |i: u32| -> Text {
            let token = |at: u32| (5 + at * 7 + if at > 20 { i * 13 } else { 0 }) % vocab_size;
            let length = (1 + i as usize * 37 % 140).min(context);
            Text::from((0..length as u32).map(token).collect::<Vec<u32>>())
        };
        let texts: Vec<Text> = (0..24).map(text).collect();
        let alone = start(engine);
        let right: Vec<Vec<f32>> = texts
            .iter()
            .map(|text| pool(&alone.handle(), vec![text.clone()], task.clone()).unwrap().remove(0))
            .collect();
        drop(alone);
        let settings = Settings { kv_formats: KvFormat::F16.into(), batch: 48, ..one_thread() };
        let settings = (load(&file, &settings), KvBudget::Pages(pages));
        let limits = SchedulerSettings { kv: settings.1, max_sequences: 7, ..SchedulerSettings::default() };
        let crowd = Scheduler::start(settings.0, &limits).unwrap();
        let handle = crowd.handle();
        std::thread::scope(|scope| {
            for part in texts.chunks(8).zip(right.chunks(8)) {
                let (handle, task) = (&handle, &task);
                scope.spawn(move || {
                    let found = pool(handle, part.0.to_vec(), task.clone()).unwrap();
                    assert_eq!(found, part.1, "{}, {task:?}", handle.model().file().display());
                });
            }
            // Where the model writes, somebody has it write meanwhile.
            if generates {
                let mut request = Request::new((3..90).collect(), SamplerSettings::greedy());
                (request.max_tokens, request.ignore_eos) = (Some(40), true);
                let (events, received) = mpsc::channel();
                let sink = move |event| {
                    events.send(event).unwrap();
                    ControlFlow::Continue(())
                };
                let _ticket = handle.submit(request, Box::new(sink)).unwrap();
                while !matches!(received.recv_timeout(PATIENCE).unwrap(), Event::Done) {}
            }
        });
    }
}

#[test]
fn a_text_longer_than_a_step_is_computed_whole() {
    let settings = Settings { batch: 16, ..one_thread() };
    let long = Text::from((0..60).map(|i| 5 + i % 40).collect::<Vec<u32>>());
    let embed = |settings: &Settings| {
        let scheduler = start(load(&data("bert/bert-f16.gguf"), settings));
        pool(&scheduler.handle(), vec![long.clone()], Task::Embedding(Pooling::First)).unwrap()
    };
    assert_eq!(embed(&settings), embed(&one_thread()));
}

#[test]
fn what_a_model_is_not_made_for_is_refused() {
    let bert = start(load(&data("bert/bert-f16.gguf"), &one_thread()));
    let request = Request::new(vec![5; 10], SamplerSettings::greedy());
    let refused = bert.handle().submit(request, Box::new(|_| ControlFlow::Continue(())));
    assert!(matches!(refused, Err(SubmitError::Invalid(Error::Unable { .. }))), "{refused:?}");
    let llama = start(load(&data("tiny/llama/llama-f16.gguf"), &one_thread()));
    let refuse = |scheduler: &Scheduler, text: Text, task: Task, why: &str| {
        let error = pool(&scheduler.handle(), vec![text], task).unwrap_err();
        assert!(error.contains(why), "{error}");
    };
    let text = || Text::from(vec![5; 10]);
    refuse(&llama, text(), Task::Labels, "it has no labels");
    refuse(&bert, text(), Task::Logits([1].into()), "it writes no text");
    refuse(&llama, text(), Task::Logits([9999].into()), "token 9999 is outside");
    let embedding = || Task::Embedding(Pooling::Mean);
    refuse(&bert, vec![5; 65].into(), embedding(), "has 65 tokens, but the context holds 64");
    refuse(&bert, vec![].into(), embedding(), "empty");
    refuse(&bert, vec![9999].into(), embedding(), "token 9999 is outside");
    refuse(&bert, Text { segments: vec![0; 3], ..text() }, Task::Labels, "segments is 3");
    refuse(&bert, Text { segments: vec![2; 10], ..text() }, Task::Labels, "segment is 2");
    refuse(&llama, Text { segments: vec![1; 10], ..text() }, embedding(), "segment is 1");
    let longer = Settings { context: Some(65), ..one_thread() };
    let bert = Engine::load(&data("bert/bert-f16.gguf"), &longer).unwrap();
    assert_eq!(bert.facts().context, 64, "there are no more positions");
}

/// The tiny llama with two tokens that are answers, and a question of its own.
fn reranker() -> Engine {
    let good = load(&data("tiny/llama/llama-f16.gguf"), &one_thread());
    let tokenizer = good.tokenizer();
    let mut pieces: Vec<String> =
        (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.piece(id).unwrap().to_owned()).collect();
    (pieces[500], pieces[501]) = ("yes".into(), "no".into());
    let file = changed(|writer| {
        writer.set("tokenizer.ggml.tokens", Value::Array(Array::String(pieces))).unwrap();
        writer.set("tokenizer.chat_template.rerank", "Q: {query}\nD: {document}\nA:").unwrap();
    });
    load(file.path(), &one_thread())
}

#[test]
fn answers_to_a_question_tell_what_is_relevant() {
    let mut engine = reranker();
    let documents: Vec<String> = ["the sea", "{query} <s>", ""].map(String::from).into();
    let reranking = engine.model().rerank("fish", &documents, Some("find it")).unwrap();
    assert_eq!(reranking.task, Task::Logits([500, 501].into()));
    let right: Vec<f32> = reranking
        .texts
        .iter()
        .map(|text| {
            let mut last = Vec::new();
            engine
                .logits(&text.tokens, &mut |_, row| {
                    last = row.to_vec();
                    Ok(())
                })
                .unwrap();
            let (yes, no) = (f64::from(last[500]).exp(), f64::from(last[501]).exp());
            (yes / (yes + no)) as f32
        })
        .collect();
    // What a document says is text, whatever it looks like.
    let text = |i: usize| engine.tokenizer().decode(&reranking.texts[i].tokens, true);
    assert!(text(1).contains("D: {query} <s>\nA:"), "{}", text(1));
    let bos = engine.tokenizer().bos().unwrap();
    assert_eq!(reranking.texts[1].tokens.iter().filter(|id| **id == bos).count(), 1);
    let scheduler = start(engine);
    let found = pool(&scheduler.handle(), reranking.texts.clone(), reranking.task.clone()).unwrap();
    for (values, right) in found.iter().zip(right) {
        let found = reranking.relevance(values);
        assert!((found - right).abs() < 1e-5, "{found}, where {right} is right");
    }
}

#[test]
fn pairs_have_the_form_that_cross_encoders_know() {
    let reference = Npz::open("bert/ref.npz");
    let engine = load(&data("bert/bert-f16.gguf"), &one_thread());
    let document = "a fish swims in the sea , a cat is a cat .".to_owned();
    let reranking = engine.model().rerank("what lives in the sea ?", &[document], None).unwrap();
    let text = |name: &str| ids(&reference.i32(name).values);
    let right = Text { tokens: text("input_ids"), segments: text("segments") };
    assert_eq!(reranking.texts, [right]);
    assert_eq!(reranking.relevance(&[0.0]), 0.5);
    let llama = load(&data("tiny/llama/llama-f16.gguf"), &one_thread());
    let error = llama.model().rerank("a", &["b".into()], None).unwrap_err().to_string();
    assert!(error.contains("can't rerank"), "{error}");
}

#[test]
fn text_is_filled_in_between_the_vocabularys_own_marks() {
    let file = changed(|writer| {
        for (role, id) in [("fim_pre", 10u32), ("fim_suf", 11), ("fim_mid", 12)] {
            writer.set(&format!("tokenizer.ggml.{role}_token_id"), id).unwrap();
        }
    });
    let engine = load(file.path(), &one_thread());
    let encode = |text| engine.tokenizer().encode(text, Special::Text, false);
    let bos = engine.tokenizer().bos().unwrap();
    let right = [vec![bos, 10], encode("def f("), vec![11], encode("return x</s>"), vec![12]].concat();
    let around = Infill { prefix: "def f(", suffix: "return x</s>", ..Infill::default() };
    assert_eq!(engine.model().infill(around).unwrap(), right);
    // What was begun stands behind the mark, and other files in front, parted as the vocabulary can.
    let files = [(Some("a.h".to_owned()), "int a;".to_owned()), (None, "b</s>".to_owned())];
    let with_files = Infill { begun: "int", files: &files, ..around };
    let snippet = "\n\n--- snippet ---\n\n";
    let shown = [encode(snippet), encode("int a;"), encode(snippet), encode("b</s>")].concat();
    let wanted = [&[bos][..], &shown, &right[1..], &encode("int")].concat();
    assert_eq!(engine.model().infill(with_files).unwrap(), wanted);
    let file = changed(|writer| {
        let roles = [("fim_pre", 10u32), ("fim_suf", 11), ("fim_mid", 12), ("fim_rep", 13), ("fim_sep", 14)];
        for (role, id) in roles {
            writer.set(&format!("tokenizer.ggml.{role}_token_id"), id).unwrap();
        }
    });
    let parted = load(file.path(), &one_thread());
    let shown = [
        [vec![13], encode("repository\n")].concat(),
        [vec![14], encode("a.h\n"), encode("int a;")].concat(),
        [vec![14], encode("file\n"), encode("b</s>")].concat(),
        [vec![14], encode("this_file\n")].concat(),
    ];
    let wanted = [&[bos][..], &shown.concat(), &right[1..], &encode("int")].concat();
    assert_eq!(parted.model().infill(with_files).unwrap(), wanted);
    let none = load(&data("tiny/llama/llama-f16.gguf"), &one_thread());
    let error = none.model().infill(Infill::default()).unwrap_err().to_string();
    assert!(error.contains("can't fill text in"), "{error}");
}

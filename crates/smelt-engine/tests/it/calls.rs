//! Every family's calls are held to their tools' schemas.

use serde_json::{Map, Value, json};
use smelt_engine::tokenizer::Special;
use smelt_engine::tokenizer::answer::{
    CallFormat, FORMATS, Held, Part, Reader, ReaderOptions, ThinkTags, Tool, ToolSet,
};
use smelt_engine::{Calls, Constraint, Engine, Grammar, GrammarError, Model, Settings};

fn tools() -> ToolSet {
    let weather = json!({
        "type": "object",
        "properties": {
            "location": {"type": "string"}, "days": {"type": "integer", "minimum": 1}, "unit": {"enum": ["C", "F"]},
            "exact": {"type": "boolean"}, "limits": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["location", "days"], "additionalProperties": false,
    });
    let time = json!({"type": "object", "properties": {"zone": {"type": "string"}, "utc": {"type": "boolean"}}, "additionalProperties": false});
    let now = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let tool = |name: &str, parameters| Tool { name: name.to_owned(), parameters };
    ToolSet::new(vec![tool("get_weather", weather), tool("get_time", time), tool("now", now)])
}

/// Whether an answer may be this text: how many bytes of it may be, and whether it may end there.
fn follow(model: &Model, constraint: &dyn Constraint, text: &str) -> (usize, bool) {
    let mut constraint = constraint.fork();
    let allowed = |constraint: &mut dyn Constraint, token: u32| {
        let mask = constraint.mask().unwrap_or_else(|e| panic!("{e}: {text}"));
        mask.is_none_or(|mask| {
            mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
        })
    };
    let mut done = 0;
    for token in model.tokenizer().encode(text, Special::Text, false) {
        if !allowed(&mut *constraint, token) {
            return (done, false);
        }
        constraint.accept(token).unwrap();
        done += model.tokenizer().token_bytes(token, true).unwrap().len();
    }
    (done, allowed(&mut *constraint, model.tokenizer().eog_ids()[0]))
}

fn constrain(model: &Model, format: &CallFormat, one_call: bool) -> Box<dyn Constraint> {
    let grammar = Grammar::calls(&format.shape(&tools(), one_call), model.tokenizer());
    model.constrain(&grammar.unwrap()).unwrap_or_else(|e| panic!("{}: {e}", format.name))
}

fn object(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}

#[test]
fn calls_are_held_to_their_schemas() {
    let engine =
        Engine::load(&smelt_testdata::data("tiny/llama3/llama3-f16.gguf"), &Settings::default()).unwrap();
    let model = engine.model();
    let full = json!({"location": "a b", "days": 2, "unit": "C", "exact": true, "limits": [1, 2.5]});
    let (least, later) =
        (json!({"location": "x", "days": 1}), json!({"location": "x", "days": 1, "exact": false}));
    let (zone, utc, none) = (json!({"zone": "CET"}), json!({"utc": true}), json!({}));
    for format in FORMATS {
        let (one, many) = (constrain(model, format, true), constrain(model, format, false));
        let weather = [&full, &least, &later].map(|arguments| ("get_weather", object(arguments)));
        let time = [&zone, &utc, &none].map(|arguments| ("get_time", object(arguments)));
        for call in weather.into_iter().chain(time).chain([("now", object(&none))]) {
            let text = format.write(&[call]);
            assert_eq!(follow(model, &*one, &text), (text.len(), true), "{}: {text}", format.name);
            assert_eq!(follow(model, &*many, &text), (text.len(), true), "{}: {text}", format.name);
        }
        let text = format.write(&[weather[0], time[1], ("now", object(&none))]);
        assert_eq!(follow(model, &*many, &text), (text.len(), true), "{}: {text}", format.name);
        assert!(follow(model, &*one, &text).0 < text.len(), "{}: {text}", format.name);
        // What a schema forbids can't be said, and nothing but calls can.
        let wrong = [
            json!({"location": "x"}),
            json!({"location": "x", "days": 0}),
            json!({"location": "x", "days": 1, "unit": "K"}),
        ];
        for arguments in &wrong {
            let text = format.write(&[("get_weather", object(arguments))]);
            let (done, ends) = follow(model, &*one, &text);
            assert!(done < text.len() || !ends, "{}: {text}", format.name);
        }
        let text = format.write(&[("launch", object(&none))]);
        assert!(follow(model, &*one, &text).0 < text.len(), "{}: {text}", format.name);
        assert_eq!(follow(model, &*one, "Hello"), (0, false), "{}", format.name);
    }
    let bad =
        ToolSet::new(vec![Tool { name: "f".into(), parameters: json!({"properties": {"a": {"not": {}}}}) }]);
    let error = Grammar::calls(&FORMATS[0].shape(&bad, true), model.tokenizer()).unwrap_err();
    assert!(matches!(error, GrammarError::Keyword { .. }) && error.to_string().contains("`not`"), "{error}");
}

/// Calls that the model may make, with content by `schema` if there is one.
fn possible(
    model: &Model,
    format: &CallFormat,
    one_call: bool,
    schema: Option<&Value>,
) -> Box<dyn Constraint> {
    let calls = Calls::new(format, &tools(), (one_call, schema.is_some()), model.tokenizer()).unwrap();
    let content = schema.map(|schema| model.constrain(&Grammar::from_json_schema(schema).unwrap()).unwrap());
    model.constrain_calls(&calls, content).unwrap_or_else(|e| panic!("{}: {e}", format.name))
}

fn tiny() -> Engine {
    Engine::load(&smelt_testdata::data("tiny/llama3/llama3-f16.gguf"), &Settings::default()).unwrap()
}

#[test]
fn calls_that_may_come_are_held_from_their_mark_on() {
    let engine = tiny();
    let model = engine.model();
    let full = json!({"location": "a b", "days": 2, "unit": "C", "exact": true, "limits": [1, 2.5]});
    let (least, none) = (json!({"location": "x", "days": 1}), json!({}));
    for format in FORMATS {
        let constraint = possible(model, format, false, None);
        let is_allowed = |text: &str| {
            let (done, ends) = follow(model, &*constraint, text);
            assert_eq!(done, text.len(), "{}: {text}", format.name);
            ends
        };
        // Content is free, and may end anywhere.
        for content in
            ["", "Hello <b>there</b>, [TOOL] {\"name\": \"x\"} <tool <", "<", "{\"name\": \"get", " \n{"]
        {
            assert!(is_allowed(content), "{}: {content}", format.name);
        }
        let written = |name: &str, arguments: &Value| format.write(&[(name, object(arguments))]);
        let (call, next) = (written("get_weather", &full), written("now", &none));
        assert!(is_allowed(&call), "{}", format.name);
        // Further calls may follow, and content before and behind. Without a mark, only at the beginning or behind a call.
        assert!(is_allowed(&format!("{call}{next}")) && is_allowed(&format!(" \n{call}\n\n{next} Well.")));
        let has_mark = format.name != "llama3";
        if has_mark {
            assert!(is_allowed(&format!("Let me see.\n{call}\n and {next}")), "{}", format.name);
        }
        // What has begun must be complete, of a tool that there is, and by its schema.
        for (at, _) in call.char_indices().filter(|(at, _)| *at + 3 > call.find("get_weather").unwrap() + 40)
        {
            assert!(!is_allowed(&call[..at]), "{}: {}", format.name, &call[..at]);
        }
        for (name, arguments) in [
            ("get_weather", json!({"location": "x"})),
            ("get_weather", json!({"location": "x", "days": 0})),
            ("get_weather", json!({"location": "x", "days": 1, "unit": "K"})),
            ("launch", json!({})),
        ] {
            if name == "launch" && !has_mark {
                continue;
            }
            for lead in ["", if has_mark { "So: " } else { "" }] {
                let text = format!("{lead}{}", written(name, &arguments));
                let (done, ends) = follow(model, &*constraint, &text);
                assert!(done < text.len() || !ends, "{}: {text}", format.name);
            }
        }
        let fork = constraint.fork();
        assert!(follow(model, &*fork, &written("get_weather", &least)).1, "{}", format.name);
    }
}

#[test]
fn content_by_a_schema_and_calls_are_alternatives() {
    let engine = tiny();
    let model = engine.model();
    let schema = json!({
        "type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["name", "size"], "additionalProperties": false,
    });
    let full = json!({"location": "a b", "days": 2});
    for format in FORMATS {
        let (many, one) =
            (possible(model, format, false, Some(&schema)), possible(model, format, true, Some(&schema)));
        let written = |calls: &[(&str, &Value)]| {
            let calls: Vec<_> = calls.iter().map(|(name, arguments)| (*name, object(arguments))).collect();
            format.write(&calls)
        };
        let call = written(&[("get_weather", &full)]);
        // One that names a tool is content as long as it isn't the beginning of a call.
        for content in
            [r#"{"name": "a <tool_call> [TOOL_CALLS]", "size": 1}"#, r#"{"name": "now", "size": 12}"#]
        {
            for constraint in [&many, &one] {
                assert_eq!(follow(model, &**constraint, content), (content.len(), true), "{}", format.name);
                assert_eq!(
                    follow(model, &**constraint, &call),
                    (call.len(), true),
                    "{}: {call}",
                    format.name
                );
            }
        }
        let calls = written(&[("get_weather", &full), ("now", &json!({}))]);
        assert_eq!(follow(model, &*many, &calls), (calls.len(), true), "{}: {calls}", format.name);
        assert!(follow(model, &*one, &calls).0 < calls.len(), "{}: {calls}", format.name);
        for wrong in ["Hello", r#"{"name": "x"}"#, r#"{"size": 1}"#] {
            let (done, ends) = follow(model, &*many, wrong);
            assert!(done < wrong.len() || !ends, "{}: {wrong}", format.name);
        }
        let wrong = written(&[("get_weather", &json!({"location": "x", "days": 0}))]);
        let (done, ends) = follow(model, &*many, &wrong);
        assert!(done < wrong.len() || !ends, "{}: {wrong}", format.name);
    }
}

#[test]
fn thoughts_stand_in_the_way_of_no_answer() {
    let engine = tiny();
    let model = engine.model();
    let tags = ThinkTags::of_template("</think>").unwrap();
    let hermes = FORMATS.iter().find(|format| format.name == "hermes").unwrap();
    let call = hermes.write(&[("now", &Map::new())]);
    let behind = |then: Box<dyn Constraint>| model.behind_thoughts(then, tags, false);
    // Answers that begin as the tag does, and thoughts in which nothing is a call.
    let free = behind(possible(model, hermes, false, None));
    for text in
        ["<b>bold</b>", "<thin", "<", " \n<think>a <tool_call> b</think>\n\n<c>", &call, "\n<think></think>x"]
    {
        assert_eq!(follow(model, &*free, text), (text.len(), true), "{text}");
    }
    let only = behind(constrain(model, hermes, false));
    for text in [call.clone(), format!("<think><tool_call></think>\n{call}")] {
        assert_eq!(follow(model, &*only, &text), (text.len(), true), "{text}");
    }
    for (text, most) in [("<b>", 1), ("<tool_call>\n{\"x", 14), ("<think></think><b>", 16)] {
        assert!(follow(model, &*only, text).0 <= most, "{text}");
    }
}

#[test]
fn a_schema_that_cannot_be_enforced_is_as_far_as_it_can() {
    let engine = tiny();
    let model = engine.model();
    let odd = json!({
        "type": "object", "properties": {"a": {"type": "integer", "not": {"const": 1}}, "b": {"$ref": "https://x.example"}},
        "required": ["a"], "unevaluatedProperties": false,
    });
    let tools = ToolSet::new(vec![Tool { name: "f".into(), parameters: odd }]);
    for format in FORMATS {
        let calls = Calls::new(format, &tools, (false, false), model.tokenizer()).unwrap();
        let constraint = model.constrain_calls(&calls, None).unwrap();
        for (arguments, is_allowed) in [(json!({"a": 1, "b": [2]}), true), (json!({"a": true}), false)] {
            let text = format.write(&[("f", object(&arguments))]);
            let is_whole = follow(model, &*constraint, &text) == (text.len(), true);
            assert_eq!(is_whole, is_allowed, "{}: {text}", format.name);
        }
    }
}

/// What hostile answers are made of.
const SHARDS: [&str; 24] = [
    "Hello ",
    "<",
    "\n",
    " ",
    "{",
    "{\"name\": \"get_weather\", ",
    "\"arguments\": {",
    "\"parameters\": {",
    "\"location\": \"",
    "\"",
    "}",
    "]",
    "get_weather",
    "now",
    "é🦙",
    "<think>",
    "</think>",
    ";",
    ",",
    "\\",
    "12",
    "[",
    "\u{a0}",
    "(",
];
/// With these an answer ends that is in the middle of something.
const ENDS: [&str; 16] =
    ["\"", "}", "]", ")", ">", "1", ":", " ", "<", "/", "\n", "a", "`", "|", "{", "days"];

/// What a model says that would say `wanted` and is held to `constraint`, and whether it came to its end.
fn say(
    model: &Model,
    mut constraint: Box<dyn Constraint>,
    wanted: &str,
    random: &mut fastrand::Rng,
) -> (Vec<u8>, bool) {
    let tokenizer = model.tokenizer();
    let encode = |text: &str| tokenizer.encode(text, Special::Text, false);
    let ends: Vec<u32> = ENDS.iter().map(|end| encode(end)[0]).collect();
    let mut wanted = encode(wanted).into_iter();
    let mut said = Vec::new();
    for step in 0..400 {
        let mask = constraint.mask().unwrap().map(<[u32]>::to_vec);
        let is_allowed = |token: &u32| {
            mask.as_ref().is_none_or(|mask| {
                mask.get(*token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
            })
        };
        let next = wanted.next();
        let end = tokenizer.eog_ids()[0];
        let end = (next.is_none() && is_allowed(&end)).then_some(end);
        let any = || {
            let from = random.u32(..tokenizer.vocab_size() as u32);
            (from..tokenizer.vocab_size() as u32)
                .chain(0..from)
                .find(|id| is_allowed(id))
                .expect("something is allowed")
        };
        let closing = || ends.iter().copied().cycle().skip(step).take(ends.len()).find(is_allowed);
        let token = end.or(next.filter(is_allowed)).or_else(closing).unwrap_or_else(any);
        if tokenizer.is_eog(token) {
            return (said, true);
        }
        constraint.accept(token).unwrap();
        said.extend_from_slice(tokenizer.token_bytes(token, false).unwrap());
    }
    (said, false)
}

#[test]
fn readers_are_certain_of_what_is_held_only() {
    let engine = tiny();
    let model = engine.model();
    let tags = ThinkTags::of_template("</think>").unwrap();
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "additionalProperties": false});
    let mut random = fastrand::Rng::with_seed(3);
    let (mut told, mut ended) = (0, 0);
    for format in FORMATS {
        let held = [Held::Calls, Held::CallsOrContent, Held::OnlyCalls].map(|held| {
            let constraint = match held {
                Held::OnlyCalls => constrain(model, format, false),
                _ => possible(model, format, false, (held == Held::CallsOrContent).then_some(&schema)),
            };
            (held, constraint)
        });
        let call = format.write(&[("get_weather", object(&json!({"location": "Rome", "days": 1})))]);
        for round in 0..24 {
            let mut wanted = String::new();
            for _ in 0..random.usize(1..8) {
                match random.u8(..4) {
                    0 => wanted.push_str(&call),
                    1 => wanted.extend(call.chars().take(random.usize(..60))),
                    _ => wanted.push_str(SHARDS[random.usize(..SHARDS.len())]),
                }
            }
            let (held, constraint) = &held[round % 3];
            let thinks = random.bool();
            let (said, is_whole) = match thinks {
                true => {
                    say(model, model.behind_thoughts(constraint.fork(), tags, false), &wanted, &mut random)
                }
                false => say(model, constraint.fork(), &wanted, &mut random),
            };
            let said = String::from_utf8_lossy(&said);
            let options = ReaderOptions {
                thinking: thinks.then_some(tags),
                thinking_is_content: random.bool(),
                calls: Some((format, tools().into())),
                held: *held,
                ..ReaderOptions::default()
            };
            let mut reader = Reader::new(options);
            let mut parts: Vec<Part> = said.split_inclusive(|_| true).flat_map(|c| reader.push(c)).collect();
            parts.extend(reader.finish());
            let mut calls: Vec<(String, String)> = Vec::new();
            for part in parts {
                match part {
                    Part::Call(name) => calls.push((name, String::new())),
                    Part::Arguments(more) => calls.last_mut().unwrap().1.push_str(&more),
                    Part::Content(_) | Part::Reasoning(_) => {}
                }
            }
            told += calls.len();
            ended += usize::from(is_whole);
            let whole = if is_whole { calls.len() } else { calls.len().saturating_sub(1) };
            for (name, arguments) in &calls[..whole] {
                let note = || format!("{} {held:?}: {arguments}: {said:?}, wanted {wanted:?}", format.name);
                let value: Value =
                    serde_json::from_str(arguments).unwrap_or_else(|e| panic!("{e}: {}", note()));
                let has = |name: &str| value.get(name).is_some();
                assert!(name != "get_weather" || (has("location") && has("days")), "{}", note());
            }
        }
    }
    assert!(told > 300 && ended > 300, "{told} calls in {ended} answers");
}

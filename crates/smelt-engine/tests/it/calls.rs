//! Every family's calls are held to their tools' schemas.

use serde_json::{Map, Value, json};
use smelt_engine::tokenizer::Special;
use smelt_engine::tokenizer::answer::{CallFormat, FORMATS, Tool, ToolSet};
use smelt_engine::{Constraint, Engine, Grammar, GrammarError, Model, Settings};

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
        let mask = constraint.mask().unwrap().unwrap();
        mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
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

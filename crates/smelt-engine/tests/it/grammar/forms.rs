//! Each way to say what an answer must look like.

use super::{accepts, allows, byte_tokens, constrain, model};
use serde_json::{Value, json};
use smelt_engine::{Grammar, GrammarError};

/// A grammar, texts that are whole answers, and texts that are not.
type Case = (Result<Grammar, GrammarError>, &'static [&'static str], &'static [&'static str]);

const ARITHMETIC: &str = r#"
root  ::= (expr "=" ws term "\n")+   # as in llama.cpp's own examples
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"#;

const JSON: &str = r#"
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"#;

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn cases() -> Vec<Case> {
    vec![
        (
            Grammar::json_object(),
            &["{}", r#"{"a": [1, {"b": null}]}"#, "{\n  \"é\": 1e5\n}"],
            &["[]", "1", "{} ", "{", " {}"],
        ),
        (Grammar::regex("[a-c]{2}|x/y|é+"), &["ab", "x/y", "éé"], &["a", "abc", "", "x"]),
        (Grammar::regex(r"\d{4}-\d\d"), &["2024-01"], &["2024-1", "a2024-01"]),
        (
            Grammar::choice(&texts(&["yes", "no", "a \"b\"\n/\\"])),
            &["yes", "no", "a \"b\"\n/\\"],
            &["", "ye", "yesno"],
        ),
        (Grammar::lark("start: \"a\" B?\nB: /[0-9]+/\n"), &["a", "a12"], &["", "12", "ab"]),
        (Grammar::text("start: \"a\"*"), &["", "aaa"], &["b"]),
        (Grammar::text(ARITHMETIC), &["a=1\n", "x +(y1 *2) = 3\nb=c\n"], &["a=", "a=1", "=1\n", "a==1\n"]),
        (
            Grammar::gbnf(JSON),
            &[r#"{"a": [1.5e3, true], "b": {}}"#, "{}"],
            &["[1]", r#"{"a":tru}"#, r#"{"a" 1}"#],
        ),
        (
            Grammar::gbnf("root ::= [^a-c] . [\\]\\-x-] \"\\u00e9\\x41\""),
            &["d\n]éA", "éé-éA"],
            &["a.]éA", "d.[éA"],
        ),
        (
            Grammar::gbnf("root ::= \"a\"{2} b{1,2} | \"[\" root \"]\"\nb ::= \"b\" | \"\""),
            &["aab", "[aabb]", "aa"],
            &["ab", "[aab"],
        ),
        (
            Grammar::from_json_schema(
                &json!({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "integer"}}}),
            ),
            &["1", "-7"],
            &["1.5", "\"1\""],
        ),
        // A name that isn't listed has one spelling, so it can't be a listed one in disguise.
        (
            Grammar::from_json_schema(&json!({"properties": {"a": {"type": "integer"}}})),
            &[r#"{"a":1,"b":""}"#],
            &[r#"{"\u0061":""}"#, r#"{"a":""}"#],
        ),
        // A model can't fill its answer with white space.
        (
            Grammar::from_json_schema(&json!({"type": "array"})),
            &["[1, 2]", "[\n  1,\n  2\n]"],
            &["[  ]", "[\n\n]", "[\r]"],
        ),
        // Zod's schema of a record; Pydantic's of a tagged union.
        (
            Grammar::from_json_schema(
                &json!({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {"type": "number"}}),
            ),
            &[r#"{"a":1.5}"#],
            &[r#"{"a":""}"#],
        ),
        (
            Grammar::from_json_schema(&tagged()),
            &[r#"{"kind":"cat","lives":9}"#, r#"{"kind":"dog"}"#],
            &[r#"{"kind":"dog","lives":9}"#, r#"{"kind":"cow"}"#, "{}"],
        ),
    ]
}

fn tagged() -> Value {
    let animal = |kind: &str, own: Value| {
        json!({
            "type": "object", "title": kind, "required": ["kind"], "additionalProperties": false,
            "properties": {"kind": {"const": kind, "type": "string"}, "lives": own},
        })
    };
    json!({
        "$defs": {"Cat": animal("cat", json!({"type": "integer"})), "Dog": animal("dog", json!(false))},
        "discriminator": {"propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
    })
}

#[test]
fn answers_are_what_the_grammar_says() {
    let model = model();
    let bytes = byte_tokens(model.tokenizer());
    for (grammar, yes, no) in cases() {
        let shown = format!("{grammar:?}");
        let constraint = constrain(&model, grammar).unwrap_or_else(|e| panic!("{shown}: {e}"));
        yes.iter().for_each(|text| assert!(accepts(&*constraint, text, &model, &bytes), "{text:?}: {shown}"));
        no.iter().for_each(|text| assert!(!accepts(&*constraint, text, &model, &bytes), "{text:?}: {shown}"));
    }
}

#[test]
fn what_cannot_be_enforced_is_told() {
    let model = model();
    let schema = |schema: Value| Grammar::from_json_schema(&schema);
    let deep = (0..200).fold(json!({}), |inner, _| json!({"items": inner}));
    let wide: Vec<Value> = (0..20_001).map(|_| json!({})).collect();
    let cases: Vec<(Result<Grammar, GrammarError>, &str)> = vec![
        (
            schema(json!({"properties": {"a/b": {"uniqueItems": true}}})),
            "`uniqueItems` at #/properties/a~1b:",
        ),
        (
            schema(json!({"oneOf": [{"type": "number"}, {"minimum": 2}]})),
            "`oneOf`: its options can't be told apart",
        ),
        (schema(json!({"items": {"type": "text"}})), "`type` at #/items:"),
        (schema(json!({"pattern": "(?=a)"})), "`pattern` at #: the pattern looks ahead"),
        (schema(json!({"pattern": "[b-a]"})), "`pattern`"),
        (schema(json!({"pattern": "a^b"})), "`pattern`"),
        (schema(json!({"pattern": "("})), "`pattern`"),
        (schema(json!({"$ref": "https://example.com/a.json"})), "`$ref` at #: nothing stands at"),
        (schema(json!({"$ref": "#/$defs/a"})), "`$ref`"),
        (schema(json!({"minLength": -1})), "`minLength` at #: it must be a whole number"),
        (schema(json!({"minLength": 3, "maxLength": 2, "type": "string"})), "`minLength`"),
        (schema(json!({"minItems": 3, "maxItems": 2, "type": "array"})), "`minItems`"),
        (schema(json!({"minimum": 3, "maximum": 2, "type": "number"})), "minimum"),
        (schema(json!({"minimum": 1e300, "type": "number"})), "`minimum` at #"),
        (schema(json!({"minProperties": 2})), "`minProperties` at #"),
        (
            schema(json!({"maxProperties": 2, "properties": {"a": {}, "b": {}, "c": {}}})),
            "`minProperties`: it and `maxProperties`",
        ),
        (schema(json!({"type": "object", "properties": {"a": false}, "required": ["a"]})), "`required`"),
        (schema(json!({"allOf": [{"multipleOf": 65_537}, {"multipleOf": 65_539}]})), "`multipleOf`"),
        (schema(json!({"items": 7})), "it must be an object, true or false"),
        (schema(json!("string")), "it must be an object, true or false"),
        (schema(json!(false)), "`false`: it allows no value"),
        (schema(json!({"type": "string", "const": 1})), "incompatible types"),
        (schema(json!({"$ref": "#"})), "no text meets it"),
        (schema(deep), "levels of the schema are limited"),
        (schema(json!({"allOf": wide})), "parts of the schema are limited"),
        (Grammar::regex(&"a".repeat(70_000)), "bytes of the grammar are limited"),
        (Grammar::regex(&"(".repeat(101)), "brackets within brackets"),
        (Grammar::regex("("), "unclosed group"),
        (Grammar::regex(r"(a)\1"), "backreference"),
        (Grammar::regex("[^\\x00-\\x{10FFFF}]"), "no text meets it"),
        (Grammar::choice(&[]), "nothing to choose from"),
        (Grammar::lark("start: a"), "unknown name"),
        (Grammar::lark(""), "no start"),
        (Grammar::gbnf("a ::= \"b\""), "no rule `root`"),
        (Grammar::gbnf("root ::= a"), "`root` uses `a`"),
        (Grammar::gbnf("root ::= \"a\"\nroot ::= \"b\""), "line 2: the rule `root` is defined twice"),
        (Grammar::gbnf("root ::= \"a"), "line 1: a string or a class has no end"),
        (Grammar::gbnf("root ::= \"a\"{3,2}"), "`{3,2}`"),
        (Grammar::gbnf("root ::= \"\\q\""), "`\\q` is no escape"),
        (Grammar::gbnf("root ::= (\"a\""), "`)` is missing"),
        (Grammar::gbnf("root ::= \"a\" ) "), "a name of a rule is missing"),
        (Grammar::gbnf("root ::= []"), "a class is empty"),
    ];
    for (i, (grammar, problem)) in cases.into_iter().enumerate() {
        let shown: String = format!("{grammar:?}").chars().take(300).collect();
        let Err(error) = constrain(&model, grammar) else { panic!("{i}: {shown} should fail: {problem}") };
        let error = error.to_string();
        assert!(
            problem.split('|').any(|part| error.contains(part)),
            "{i}: {shown}: {error:?} has no {problem:?}"
        );
    }
}

#[test]
fn large_and_odd_grammars_end_in_a_small_stack() {
    let nested =
        |open: &str, inner: &str, close: &str| [open.repeat(98), inner.into(), close.repeat(98)].concat();
    let doubling: String = (0..60).map(|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1)).collect();
    let words: Vec<String> = (0..5000).map(|i| format!("word{i}")).collect();
    let branches: Vec<Value> =
        (0..500).map(|i| json!({"properties": {format!("p{i}"): {"type": "string"}}})).collect();
    let nested_schema = (0..45).fold(json!({"type": "string"}), |inner, i| match i % 2 {
        0 => json!({"items": inner}),
        _ => json!({"properties": {"a": inner}}),
    });
    let grammars: Vec<(&str, Result<Grammar, GrammarError>)> = vec![
        ("nested regex", Grammar::regex(&nested("(", "a", ")*"))),
        ("nested lark", Grammar::lark(&format!("start: {}", nested("(", "\"a\"", ")*")))),
        ("nested gbnf", Grammar::gbnf(&format!("root ::= {}", nested("(", "\"a\"", ")*")))),
        ("repeats", Grammar::regex("(((a{1,1000}){1,1000}){1,1000}){1,1000}")),
        ("classes", Grammar::regex(&r"\w\p{L}[^a]".repeat(2000))),
        ("alternatives", Grammar::regex(&["a|"; 20_000].concat())),
        ("concatenation", Grammar::regex(&"(a|bc)".repeat(8_000))),
        ("doubling", Grammar::gbnf(&format!("root ::= r0\n{doubling}r60 ::= \"a\""))),
        ("left recursion", Grammar::gbnf("root ::= root root | \"a\"")),
        ("words", Grammar::choice(&words)),
        ("branches", Grammar::from_json_schema(&json!({"anyOf": branches}))),
        ("product", Grammar::from_json_schema(&json!({"allOf": vec![json!({"anyOf": branches}); 4]}))),
        ("nested schema", Grammar::from_json_schema(&nested_schema)),
        ("long strings", Grammar::from_json_schema(&json!({"type": "string", "minLength": 1_000_000}))),
        (
            "long pattern",
            Grammar::from_json_schema(&json!({"type": "string", "pattern": "^(a|b)*a(a|b){1000}$"})),
        ),
        ("many items", Grammar::from_json_schema(&json!({"type": "array", "minItems": 1_000_000_000}))),
    ];
    let model = model();
    let run = move || {
        for (name, grammar) in grammars {
            let start = std::time::Instant::now();
            let result = constrain(&model, grammar);
            // Whether it can be used or not, a few steps go by.
            if let Ok(mut constraint) = result {
                for _ in 0..20 {
                    let Ok(Some(mask)) = constraint.mask() else { break };
                    let Some(token) = (0..512).rev().find(|token| allows(mask, *token)) else { break };
                    constraint.accept(token).unwrap();
                }
            }
            // Far more than they take, so that a slow machine is no failure.
            assert!(start.elapsed().as_secs() < 60, "{name}: {:?}", start.elapsed());
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

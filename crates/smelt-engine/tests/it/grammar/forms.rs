//! Each way to say what an answer must look like.

use super::{accepts, allows, byte_tokens, constrain, model};
use serde_json::{Map, Value, json};
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

/// Patterns that meet on one value, however they come together.
#[test]
fn many_patterns_on_one_value_are_refused() {
    let pattern = |i: usize| json!({"type": "string", "pattern": format!(".*a.{{{i}}}b")});
    let all = |n: usize| json!({"allOf": (1..=n).map(pattern).collect::<Vec<_>>()});
    let definitions = |n: usize| {
        let mut all: Map<String, Value> = (0..n)
            .map(|i| {
                let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
                (format!("d{i}"), json!({"allOf": [pattern(i), next]}))
            })
            .collect();
        all.insert(format!("d{n}"), json!({"type": "string"}));
        json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": all})
    };
    for n in [5, 39] {
        for schema in [
            all(n),
            definitions(n),
            json!({"allOf": [all(3), {"anyOf": [all(2), {}]}]}),
            json!({"items": {"pattern": "a", "allOf": [all(4)]}}),
        ] {
            match Grammar::from_json_schema(&schema) {
                Err(GrammarError::Keyword { keyword, .. }) => assert_eq!(keyword, "pattern"),
                other => panic!("{schema}: {other:?}"),
            }
        }
    }
    for schema in [all(4), definitions(4), json!({"anyOf": (1..=39).map(pattern).collect::<Vec<_>>()})] {
        Grammar::from_json_schema(&schema).unwrap();
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
    let meeting: Vec<Value> =
        (36..40).map(|i| json!({"type": "string", "pattern": format!(".*a.{{{i}}}b")})).collect();
    let chain = |first: &str, is: &str| {
        let rules: String = (0..3500).map(|i| format!("{first}{i}{is}{first}{}\n", i + 1)).collect();
        format!("{rules}{first}3500{is}\"a\"\n")
    };
    let definitions: Map<String, Value> = (0..5000)
        .map(|i| (format!("d{i}"), json!({"items": {"$ref": format!("#/$defs/d{}", (i + 1) % 5000)}})))
        .collect();
    let grammars: Vec<(&str, Result<Grammar, GrammarError>)> = vec![
        ("chain of rules", Grammar::lark(&format!("start: r0\n{}", chain("r", ": ")))),
        ("chain of tokens", Grammar::lark(&format!("start: R0\n{}", chain("R", ": ")))),
        ("chain of gbnf", Grammar::gbnf(&format!("root ::= r0 | root\n{}", chain("r", " ::= ")))),
        (
            "chain of references",
            Grammar::from_json_schema(&json!({"$ref": "#/$defs/d0", "$defs": definitions})),
        ),
        ("stars", Grammar::gbnf(&format!("root ::= \"a\"{}", "*".repeat(60_000)))),
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
        ("patterns that meet", Grammar::from_json_schema(&json!({"allOf": meeting}))),
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

/// A number of thousandths, in the shortest way to write it, and with zeros behind it.
fn decimals(thousandths: i64) -> Vec<String> {
    let (sign, n) = (if thousandths < 0 { "-" } else { "" }, thousandths.unsigned_abs());
    let long = format!("{sign}{}.{:03}", n / 1000, n % 1000);
    let short = long.trim_end_matches('0').trim_end_matches('.');
    let point = long.len() - 4;
    let lengths = [point, point + 2, point + 3, point + 4];
    lengths
        .into_iter()
        .filter(|length| *length >= short.len())
        .map(|length| long[..length].to_owned())
        .collect()
}

fn decimal(thousandths: i64) -> String {
    decimals(thousandths).swap_remove(0)
}

#[test]
fn bounds_of_numbers_mean_what_they_say() {
    let model = model();
    let bytes = byte_tokens(model.tokenizer());
    let mut random = fastrand::Rng::with_seed(1);
    let mut compared = 0;
    for _ in 0..400 {
        let scale = *random.choice(&[1, 10, 100, 1000]).unwrap();
        let mut some = |most: i64| random.bool().then(|| random.i64(-most..=most) * scale);
        let bounds = [some(3000), some(3000), some(3000), some(3000)];
        let factor = some(40).map(i64::abs).filter(|factor| *factor > 0);
        let integer = random.bool();
        let mut schema = json!({"type": if integer { "integer" } else { "number" }});
        let number = |n: i64| -> Value { serde_json::from_str(&decimal(n)).unwrap() };
        let names = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"];
        let named = names.iter().zip(bounds).chain([(&"multipleOf", factor)]);
        named.for_each(|(name, bound)| {
            if let Some(bound) = bound {
                schema[*name] = number(bound);
            }
        });
        let [least, most, over, under] = bounds;
        let meets = |n: i64| {
            least.is_none_or(|b| n >= b)
                && most.is_none_or(|b| n <= b)
                && over.is_none_or(|b| n > b)
                && under.is_none_or(|b| n < b)
                && factor.is_none_or(|factor| n % factor == 0)
                && (!integer || n % 1000 == 0)
        };
        let near = bounds.iter().flatten().flat_map(|b| [b - 1000, b - 1, *b, b + 1, b + 1000]);
        let values: Vec<i64> = near.chain((0..20).map(|_| random.i64(-5000..=5000) * scale)).collect();
        let result = constrain(&model, Grammar::from_json_schema(&schema));
        for n in values.into_iter().filter(|n| *n != 0 || decimal(*n) == "0") {
            match &result {
                // What is refused allows nothing, or its bounds and factor are too much for a regular expression.
                Err(_) => {
                    assert!(!meets(n) || factor.is_some(), "{schema} is refused, but allows {}", decimal(n))
                }
                Ok(constraint) => {
                    compared += 1;
                    // Of a multiple of a fraction all digits may have to be written.
                    let is_accepted =
                        decimals(n).iter().any(|text| accepts(&**constraint, text, &model, &bytes));
                    assert_eq!(is_accepted, meets(n), "{schema}: {}", decimal(n));
                }
            }
        }
    }
    assert!(compared > 5000, "{compared}");
}

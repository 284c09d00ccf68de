//! JSON-Schema-Test-Suite, draft 2020-12.
//!
//! A grammar has one spelling per value, so a value counts as accepted if one of its spellings is: with the names of its
//! objects in any order, and whole numbers without a fraction.

use super::{accepts, byte_tokens, constrain, model};
use serde_json::{Value, json};
use smelt_engine::{Constraint, Grammar, GrammarError, Model};
use std::collections::BTreeMap;

/// Spellings that are tried of a value.
const MOST_SPELLINGS: usize = 1000;

/// How a value that is not treated as it should be is told.
const ACCEPTED: &str = "accepted";
const REFUSED: &str = "not accepted";

/// All spellings of a value.
fn spellings(value: &Value) -> Vec<String> {
    let joined = |parts: Vec<Vec<String>>, open: &str, close: &str| {
        let mut all = vec![String::new()];
        for part in parts {
            let extend = |prefix: &String| {
                let comma = if prefix.is_empty() { "" } else { "," };
                part.iter().map(|text| format!("{prefix}{comma}{text}")).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(extend).collect();
            assert!(all.len() <= MOST_SPELLINGS, "{value}");
        }
        all.into_iter().map(|inner| format!("{open}{inner}{close}")).collect::<Vec<_>>()
    };
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|x| x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0);
            let mut all: Vec<String> = whole.iter().map(|x| format!("{x:.0}")).collect();
            all.push(number.to_string());
            all.dedup();
            all
        }
        Value::Array(items) => joined(items.iter().map(spellings).collect(), "[", "]"),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| -> Vec<String> {
                spellings(value).iter().map(|text| format!("{}:{text}", json!(name))).collect()
            };
            let fields: Vec<_> = fields.iter().map(field).collect();
            orders(fields.len())
                .iter()
                .flat_map(|order| joined(order.iter().map(|i| fields[*i].clone()).collect(), "{", "}"))
                .collect()
        }
        other => vec![other.to_string()],
    }
}

/// All orders of `n` things.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let insert = |order: Vec<usize>| {
        (0..n).map(move |at| {
            let mut order = order.clone();
            order.insert(at, n - 1);
            order
        })
    };
    orders(n - 1).into_iter().flat_map(insert).collect()
}

/// What came of the suite.
#[derive(Debug, Default)]
struct Count {
    enforced: usize,
    refused: BTreeMap<String, usize>,
    values: usize,
    wrong: Vec<String>,
}

fn run(files: &[&str], schema_of: impl Fn(&Value) -> Value) -> Count {
    let model = model();
    let bytes = byte_tokens(model.tokenizer());
    let mut count = Count::default();
    for file in files {
        for case in smelt_testdata::json(&format!("json-schema-test-suite/{file}")).as_array().unwrap() {
            let schema = schema_of(&case["schema"]);
            match constrain(&model, Grammar::from_json_schema(&schema)) {
                Err(GrammarError::Keyword { keyword, .. }) => *count.refused.entry(keyword).or_default() += 1,
                Err(error) => count.wrong.push(format!("{file}: {}: {error}: {schema}", case["description"])),
                Ok(constraint) => {
                    count.enforced += 1;
                    compare(&*constraint, case, &model, &bytes, &mut count);
                }
            }
        }
    }
    count
}

fn compare(constraint: &dyn Constraint, case: &Value, model: &Model, bytes: &[u32], count: &mut Count) {
    for test in case["tests"].as_array().unwrap() {
        count.values += 1;
        let is_accepted = spellings(&test["data"]).iter().any(|text| accepts(constraint, text, model, bytes));
        if test["valid"] != is_accepted {
            let (what, which) = (&case["description"], &test["description"]);
            let fault = if is_accepted { ACCEPTED } else { REFUSED };
            count.wrong.push(format!("{fault} {}: {what}, {which}, for {}", test["data"], case["schema"]));
        }
    }
}

fn files(folder: &str) -> Vec<String> {
    let folder = smelt_testdata::data("json-schema-test-suite").join(folder);
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
    names.sort();
    names
}

#[test]
fn what_is_enforced_is_enforced_exactly_and_the_rest_is_refused_by_keyword() {
    let files = files("");
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let count = run(&files, Value::clone);
    assert!(count.wrong.is_empty(), "{}: {}", count.wrong.len(), count.wrong.join("\n"));
    // What docs/server.md tells.
    let refused = count.refused.values().sum::<usize>();
    assert_eq!((count.enforced, count.values, refused), (174, 688, 209), "{:#?}", count.refused);
}

#[test]
fn formats_of_strings_are_never_wider_than_the_standards() {
    let files: Vec<String> = files("format").iter().map(|name| format!("format/{name}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let count = run(
        &files,
        |schema| json!({"type": ["string", "null", "boolean", "number", "array", "object"], "format": schema["format"]}),
    );
    assert_eq!(count.enforced, 11);
    // Internationalised names, quoted mailboxes, addresses within addresses, leap seconds.
    let (narrower, wider): (Vec<&String>, Vec<_>) =
        count.wrong.iter().partition(|case| case.starts_with(REFUSED));
    assert!(wider.is_empty(), "{wider:#?}");
    assert!(narrower.len() < count.values / 10, "{narrower:#?}");
}

//! Chat templates render as Hugging Face's code renders them.
//!
//! `tests/data/chat/refs.json.gz` holds what `transformers` (Jinja2) gives for every template of llama.cpp's source
//! tree and for the language tests beside it; `make_refs.py` there makes it.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::PathBuf;

use serde_json::{Map, Value};
use smelt_tokenizer::chat::{ChatTemplate, FAMILIES, Message, RenderOptions, TemplateError, family_for};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

pub(crate) fn json(path: &str) -> Value {
    let path = root().join("tests/data/chat").join(path);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    if path.extension().is_some_and(|e| e == "gz") {
        flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    } else {
        text = String::from_utf8(bytes).unwrap();
    }
    serde_json::from_str(&text).unwrap()
}

/// Every template: llama.cpp's by file name, ours under `language/`.
pub(crate) fn templates() -> BTreeMap<String, String> {
    let fetched = root().join("target/fetched/llama.cpp/models/templates");
    let own = root().join("tests/data/chat/language");
    let mut out = BTreeMap::new();
    for (folder, prefix) in [(&fetched, ""), (&own, "language/")] {
        let entries = std::fs::read_dir(folder)
            .unwrap_or_else(|e| panic!("{}: {e}; run cargo xtask fetch", folder.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "jinja") {
                let name = format!("{prefix}{}", path.file_name().unwrap().to_string_lossy());
                out.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    out
}

pub(crate) fn messages(case: &Value) -> Vec<Message> {
    let list = case["messages"].as_array().unwrap();
    list.iter().enumerate().map(|(i, m)| Message::from_json(i, m.clone()).unwrap()).collect()
}

pub(crate) fn options(case: &Value) -> RenderOptions {
    let list = |key: &str| case[key].as_array().cloned();
    let mut extra = case["options"].as_object().cloned().unwrap_or_default();
    RenderOptions {
        tools: list("tools"),
        documents: list("documents"),
        add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap_or(true),
        enable_thinking: extra.remove("enable_thinking").and_then(|v| v.as_bool()),
        extra,
        now: Some(jiff::civil::date(2025, 3, 9).at(14, 5, 6, 0)),
    }
}

/// Where we do better than Jinja2 and mean to: template, what Jinja2 says.
const DIFFERENCES: &[(&str, &str)] =
    // The template is llama.cpp's own, written for an engine whose `map` gives a list.
    &[("llama-cpp-deepseek-r1.jinja", "TypeError: Object of type generator is not JSON serializable")];

/// Says how `got` differs from the reference, if it does.
fn difference(reference: &Map<String, Value>, got: Result<String, TemplateError>) -> Option<String> {
    let text = |key: &str| reference.get(key).and_then(Value::as_str);
    match (got, text("text"), text("raised"), text("failed")) {
        (Ok(got), Some(want), ..) if got == want => None,
        (Err(TemplateError::Raised { message, .. }), _, Some(want), _) if message == want => None,
        (Err(TemplateError::Runtime { .. }), _, _, Some(_)) => None,
        (got, ..) => Some(format!("want {reference:?}\n got {got:?}")),
    }
}

#[test]
fn renders_as_jinja2() {
    let (refs, cases) = (json("refs.json.gz"), json("cases.json"));
    let templates = templates();
    let refs = refs["templates"].as_object().unwrap();
    assert_eq!(
        refs.keys().collect::<Vec<_>>(),
        templates.keys().collect::<Vec<_>>(),
        "the references are for other templates; run tests/data/chat/make_refs.py"
    );
    let mut failures = Vec::new();
    for (name, source) in &templates {
        let template = match ChatTemplate::new(source, "<BOS>", "<EOS>") {
            Ok(template) => template,
            Err(e) => {
                failures.push(format!("{name}: {e}"));
                continue;
            }
        };
        for (case_name, case) in cases.as_object().unwrap() {
            let rendered = template.render(&messages(case), &options(case)).map(|r| r.text);
            let reference = refs[name][case_name].as_object().unwrap();
            let failed = reference.get("failed").and_then(Value::as_str).unwrap_or_default();
            if DIFFERENCES.contains(&(name.as_str(), failed)) && rendered.is_ok() {
                continue;
            }
            if let Some(difference) = difference(reference, rendered) {
                failures.push(format!("{name}, {case_name}:\n{difference}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn templates_are_told_the_date() {
    let source = "{{ date_string or 'no date' }} {{ strftime_now('%H:%M') }}";
    let template = ChatTemplate::new(source, "", "").unwrap();
    let now = jiff::civil::date(2025, 3, 9).at(14, 5, 6, 0);
    let render = |options: RenderOptions| template.render(&[], &options).unwrap().text;
    assert_eq!(render(RenderOptions::default().at(now)), "09 Mar 2025 14:05");
    let extra = serde_json::from_str(r#"{"date_string": "a Sunday"}"#).unwrap();
    assert_eq!(render(RenderOptions { extra, ..RenderOptions::default() }.at(now)), "a Sunday 14:05");
}

#[test]
fn an_exception_of_the_template_is_quoted() {
    let template = ChatTemplate::new("\n{{ raise_exception('Only ' ~ 1 ~ ' turn') }}", "", "").unwrap();
    let error = template.render(&[], &RenderOptions::default()).unwrap_err();
    assert_eq!(error, TemplateError::Raised { line: 2, message: "Only 1 turn".to_owned() });
    assert_eq!(
        error.to_string(),
        "the model's chat template refuses these messages (line 2): \"Only 1 turn\""
    );
}

#[test]
fn hostile_templates_stop() {
    let cases = [
        // Time.
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}".to_owned(),
        "{{ range(99999999999) }}".to_owned(),
        "{{ 'x' * 99999999999 }}".to_owned(),
        "{{ [[]] * 99999999999 }}".to_owned(),
        "{{ 9 ** 9 ** 9 }}".to_owned(),
        "{{ '%99999999999d' % 1 }}".to_owned(),
        "{{ 'a'.center(99999999999) }}".to_owned(),
        "{{ ('ab\\n' * 999999) | indent(9999) }}".to_owned(),
        // Space.
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}".to_owned(),
        "{% set ns = namespace(s='x') %}{% for i in range(99999) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% endfor %}"
            .to_owned(),
        // Values that share their parts: exponential to compare and print.
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = \
         [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}"
            .to_owned(),
        "{% set ns = namespace(a=['']) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}\
         {{ ns.a | tojson }}"
            .to_owned(),
        // Depth.
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".to_owned(),
        "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".to_owned(),
        "{% set ns = namespace(a=[]) %}{% for i in range(999999) %}{% set ns.a = [ns.a] %}{% endfor %}".to_owned(),
        "{% set ns = namespace(a='') %}{% for i in range(999999) %}{% set ns.a = namespace(b=ns) %}{% endfor %}\
         {{ ns }}"
            .to_owned(),
        format!("{{{{ {}1{} }}}}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        format!("{{{{ a{} }}}}", ".b".repeat(100_000)),
        format!("{{{{ a{} }}}}", "|trim".repeat(100_000)),
        format!("{{{{ a{} }}}}", " if b else a".repeat(50_000)),
        format!("{{{{ 'a'{} }}}}", " ~ 'a'".repeat(3900)),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(80_000)),
        "{% if a %}".repeat(50_000),
        "{% for a in b %}".repeat(50_000),
        "x".repeat(2 << 20),
        "\n".repeat(70_000),
    ];
    for source in cases {
        let label: String = source.chars().take(120).collect();
        let error = match ChatTemplate::new(&source, "", "") {
            Ok(template) => {
                template.render(&[], &RenderOptions::default()).map(|r| r.text.len()).unwrap_err()
            }
            Err(e) => e,
        };
        let refused = matches!(
            error,
            TemplateError::Limit { .. } | TemplateError::Syntax { .. } | TemplateError::Runtime { .. }
        );
        assert!(refused, "{label}: {error}");
    }
}

#[test]
fn namespaces_and_macros_that_hold_themselves_are_freed() {
    let source = "{% set ns = namespace(a=1) %}{% set ns.a = ns %}{% macro m() %}{{ ns.a is defined }}{% endmacro %}\
                  {% set ns.m = m %}{{ m() }}";
    let template = ChatTemplate::new(source, "", "").unwrap();
    assert_eq!(template.render(&[], &RenderOptions::default()).unwrap().text, "True");
}

#[test]
fn messages_need_a_role() {
    for (json, problem) in [
        (serde_json::json!("hi"), "must be an object"),
        (serde_json::json!({"content": "hi"}), "has no role"),
        (serde_json::json!({"role": 1}), "must be a string"),
    ] {
        let error = Message::from_json(3, json).unwrap_err().to_string();
        assert!(error.starts_with("message 3: ") && error.contains(problem), "{error}");
    }
}

#[test]
fn a_date_must_be_given_to_be_used() {
    let template = ChatTemplate::new("{{ strftime_now('%d %B %Y') }}", "", "").unwrap();
    let now = Some(jiff::civil::date(2026, 1, 2).at(3, 4, 5, 0));
    let options = RenderOptions { now, ..RenderOptions::default() };
    assert_eq!(template.render(&[], &options).unwrap().text, "02 January 2026");
    assert!(template.render(&[], &RenderOptions::default()).unwrap_err().to_string().contains("date"));
}

#[test]
fn families_are_chosen_by_architecture_and_vocabulary() {
    let cases: [(&str, &[&str], &str); 14] = [
        ("gemma3", &["<start_of_turn>", "<end_of_turn>"], "gemma"),
        ("qwen2", &["<|im_start|>", "<|im_end|>"], "qwen"),
        ("qwen3moe", &["<|im_start|>", "<|im_end|>"], "qwen"),
        ("llama", &["<|im_start|>", "<|im_end|>"], "chatml"),
        ("llama", &["<|im_start|>", "<|im_end|>", "<reponame>"], "smollm"),
        ("llama", &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], "llama3"),
        ("llama", &["[INST]", "[/INST]"], "mistral"),
        ("llama", &["<s>", "</s>"], "raw"),
        ("phi3", &["<|user|>", "<|assistant|>", "<|end|>"], "phi3"),
        ("phi3", &["<|im_start|>", "<|im_sep|>", "<|im_end|>"], "phi4"),
        ("granite", &["<|start_of_role|>", "<|end_of_role|>"], "granite"),
        ("olmo2", &[], "olmo2"),
        ("mamba", &["<|im_start|>", "<|im_end|>"], "chatml"),
        ("mamba", &[], "raw"),
    ];
    for (architecture, tokens, name) in cases {
        assert_eq!(family_for(architecture, |t| tokens.contains(&t)).name, name, "{architecture} {tokens:?}");
    }
}

#[test]
fn families_render() {
    let conversation = [
        Message::new("system", "S"),
        Message::new("user", "U"),
        Message::new("assistant", "A"),
        Message::new("user", "V"),
    ];
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let expected = json("families.json");
    assert_eq!(expected.as_object().unwrap().len(), FAMILIES.len());
    for family in FAMILIES {
        let template = ChatTemplate::new(family.template, "<s>", "</s>").unwrap();
        let text = template.render(&conversation, &options).unwrap().text;
        assert_eq!(expected[family.name], text, "{}", family.name);
    }
}

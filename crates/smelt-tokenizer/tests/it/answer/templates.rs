//! Templates, and what they show of their models' answers.

use serde_json::{Value, json};
use smelt_tokenizer::answer::{ReaderOptions, ThinkTags};
use smelt_tokenizer::chat::{ChatTemplate, Declares, Message, RenderOptions, Replays};

use super::{read, tools};
use crate::chat::{messages, templates};

/// Templates whose calls are not read: newer notations, and templates that want variables of their own.
const UNREAD: &[&str] = &[
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja",
    "GigaChat3-10B-A1.8B.jinja",
    "Kimi-K3.jinja",
    "MiniMax-M3.jinja",
    "fireworks-ai-llama-3-firefunction-v2.jinja",
    "llm-jp-llm-jp-4.1-8b-thinking.jinja",
    "meetkai-functionary-medium-v3.2.jinja",
    "muse-glimmer.jinja",
    "openai-gpt-oss-120b.jinja",
    "tencent-Hy3.jinja",
    "upstage-Solar-Open-100B.jinja",
];

/// The calls of a conversation that this template has rendered, results behind them.
fn replayed(template: &ChatTemplate, calls: &[Value]) -> Option<Vec<(String, Value)>> {
    let declared = json!([{"type": "function", "function": {
        "name": "get_weather", "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
    }}]);
    let call = |(i, arguments): (usize, &Value)| {
        let function = json!({"name": "get_weather", "arguments": arguments.to_string()});
        json!({"id": format!("call_{i}"), "type": "function", "function": function})
    };
    let list: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let conversation = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": list},
        {"role": "tool", "tool_call_id": "call_0", "content": "sunny-21"},
        {"role": "tool", "tool_call_id": "call_1", "content": "rainy-12"},
    ]);
    let conversation = messages(&json!({"messages": conversation}));
    let render = |messages: &[Message], add_generation_prompt: bool| {
        let now = Some(jiff::civil::date(2025, 3, 9).at(14, 5, 6, 0));
        let tools = declared.as_array().cloned();
        let options = RenderOptions { tools, add_generation_prompt, now, ..RenderOptions::default() };
        template.render_chat(messages, &options).map(|rendered| rendered.text)
    };
    let whole = render(&conversation, true).ok()?;
    for word in ["get_weather", "Paris", "Rome", "sunny-21", "rainy-12"] {
        assert!(whole.contains(word), "no {word} in {whole}");
    }
    let prompt = render(&conversation[..1], false).ok()?;
    let answer = whole.strip_prefix(prompt.trim_end()).unwrap_or(&whole);
    let format = template.abilities().calls;
    // Without a mark, a call begins where a turn does.
    let turns: Vec<&str> = match format.name {
        "llama3" => answer.split("<|end_header_id|>").collect(),
        _ => vec![answer],
    };
    let options = ReaderOptions { calls: Some((format, tools())), ..ReaderOptions::default() };
    Some(turns.into_iter().flat_map(|turn| read(&options, [turn]).calls).collect())
}

#[test]
fn what_templates_write_is_read_back() {
    let calls = [
        json!({"location": "Paris", "days": 2, "exact": true, "limits": [1, 2.5], "note": "é <x>"}),
        json!({"location": "Rome"}),
    ];
    let want: Vec<(String, Value)> = calls.iter().map(|a| ("get_weather".to_owned(), a.clone())).collect();
    let mut unread = Vec::new();
    for (name, source) in templates().into_iter().filter(|(name, _)| !name.starts_with("language/")) {
        let template = ChatTemplate::new(&source, "<BOS>", "<EOS>").unwrap();
        if replayed(&template, &calls).is_none_or(|read| read != want) {
            unread.push(name);
        }
    }
    assert_eq!(unread, UNREAD);
}

#[test]
fn templates_show_what_they_can() {
    let (itself, not) = (Declares::Itself, Declares::Not);
    let cases = [
        ("Qwen-Qwen3-0.6B.jinja", "hermes", Some("</think>"), itself, Replays::Objects),
        ("Qwen3-Coder.jinja", "qwen-xml", None, itself, Replays::Objects),
        ("meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3", None, itself, Replays::Objects),
        ("mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral", None, itself, Replays::Objects),
        (
            "mistralai-Ministral-3-14B-Reasoning-2512.jinja",
            "mistral-args",
            Some("[/THINK]"),
            itself,
            Replays::Objects,
        ),
        ("google-gemma-4-31B-it.jinja", "gemma4", Some("<channel|>"), itself, Replays::Objects),
        ("google-gemma-2-2b-it.jinja", "generic", None, not, Replays::Not),
        ("LFM2-8B-A1B.jinja", "lfm2", None, itself, Replays::Not),
        ("meetkai-functionary-medium-v3.2.jinja", "generic", None, itself, Replays::Texts),
        ("deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-v3.1", Some("</think>"), not, Replays::Objects),
    ];
    let templates = templates();
    for (name, format, close, declares, replays) in cases {
        let template = ChatTemplate::new(&templates[name], "<BOS>", "<EOS>").unwrap();
        let found = template.abilities();
        assert_eq!(found.calls.name, format, "{name}");
        let close_found = found.thinking.map(|tags| tags.close);
        assert_eq!((close_found, found.declares, found.replays), (close, declares, replays), "{name}");
    }
    // Phi-4-mini's way: the system message has the tools.
    let phi = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}<|end|>{% endfor %}";
    let template = ChatTemplate::new(phi, "", "").unwrap();
    assert_eq!(
        (template.abilities().declares, template.abilities().calls.name),
        (Declares::FromSystem, "phi")
    );
    let tools = json!([{"type": "function", "function": {"name": "get"}}]);
    let options = RenderOptions { tools: tools.as_array().cloned(), ..RenderOptions::default() };
    let rendered = template.render_chat(&[Message::new("user", "Hi")], &options).unwrap();
    assert!(rendered.text.starts_with("<|system|><|tool|>[{\"name\":\"get\""), "{}", rendered.text);
    // What a user says opens no think block, and marks in arguments are text.
    let (tags, open) = (ThinkTags::of_template("</think>").unwrap(), "<|im_start|>assistant\n<think>\n");
    assert!(tags.is_open(open) && !tags.is_open("<think></think>\n\n"));
}

//! A model that says what a test wants.
//!
//! Every token has one successor, whatever stands before it: attention and feed-forward are zero, a token's embedding is
//! an axis of its own, and the output matrix leads from each axis to the next token. So the last token of the prompt
//! chooses what is said, and it is said token by token like any answer.

use std::path::PathBuf;
use std::sync::OnceLock;

/// A script: the character that starts it where a prompt ends with it, and its tokens.
type Script = (char, &'static [&'static str]);

/// The scripts. A text stands in one of them only, since it has one successor.
const SCRIPTS: &[Script] = &[
    ('A', &["Hello", " there", "."]),
    ('B', &["<think>Let", " me", " see.</think>\n\n", "42"]),
    (
        'C',
        &[
            "I look.\n",
            "<tool_call>",
            "\n{\"name\": \"get_weather\", \"arg",
            "uments\": {\"location\": ",
            "\"Rome\"}}",
            "\n",
            "</tool_call>",
        ],
    ),
    (
        'D',
        &[
            "<tool_call>\n{\"name\": \"get_weather\", ",
            "\"arguments\": {\"location\": }}\n</tool_call>",
            " Sorry.",
        ],
    ),
    (
        'E',
        &[
            "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Oslo\"}}</tool_call>",
            "<tool_call>{\"name\": \"get_time\", \"arguments\": ",
            "{}}</tool_call>",
        ],
    ),
    (
        'F',
        &[
            "<think>Rome, ",
            "I think.</think>",
            "<tool_call>{\"name\": \"get_weather\", ",
            "\"arguments\": {\"location\": \"Nice\"}}</tool_call>",
        ],
    ),
    ('G', &["<tool_call>{\"name\": \"launch\", \"arguments\": {}}</tool_call>"]),
    ('>', &["Fine."]),
];
/// What is said where the prompt ends with `<think>`, and where thought was closed by force.
const THOUGHTS: [&str; 9] =
    ["one ", "two ", "three ", "four ", "five ", "six ", "seven.", "</think>", "Done."];
const AFTER: &str = "At last.";
/// The marks of a text to be filled in, and what is said behind the last of them.
const MARKS: [&str; 3] = ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"];
const FILLED: [&str; 2] = ["return", " one;"];

/// The template: it declares tools, replays calls, thinks where it is told to.
const TEMPLATE: &str = r#"
{%- for tool in tools or [] %}{{ tool | tojson }}{{ '\n' }}{% endfor -%}
{%- for m in messages %}{{ '<|' ~ m.role ~ '|>' }}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %}{{ '<tool_call>\n{"name": "' ~ c.function.name ~ '", "arguments": ' ~ (c.function.arguments | tojson) ~ '}\n</tool_call>' }}{% endfor %}
{%- endfor %}
{%- if add_generation_prompt and enable_thinking %}<think>{% endif %}"#;

/// Width of the model: an axis per token.
const WIDTH: usize = 384;
const CONTROL: i32 = 3;
const BYTE: i32 = 6;

/// The model's file, written once per run.
pub(crate) fn model() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = std::env::temp_dir().join(format!("smelt-scripted-{}.gguf", std::process::id()));
        std::fs::write(&file, gguf()).unwrap();
        file
    })
    .clone()
}

fn gguf() -> Vec<u8> {
    let mut tokens: Vec<(String, i32)> = vec![("<unk>".into(), 2), ("</s>".into(), CONTROL)];
    tokens.extend((0..=255).map(|byte| (format!("<0x{byte:02X}>"), BYTE)));
    let mut next = vec![1; WIDTH];
    let id = |text: &str, tokens: &mut Vec<(String, i32)>| {
        let piece = if text.len() == 1 {
            format!("<0x{:02X}>", text.as_bytes()[0])
        } else {
            text.replace(' ', "\u{2581}")
        };
        let is_mark = matches!(text, "<think>" | "</think>" | "<tool_call>" | "</tool_call>");
        let kind = if is_mark || MARKS.contains(&text) { CONTROL } else { 1 };
        tokens.iter().position(|(known, _)| *known == piece).unwrap_or_else(|| {
            tokens.push((piece, kind));
            tokens.len() - 1
        })
    };
    let chains = SCRIPTS.iter().map(|(start, said)| (start.to_string(), said.to_vec()));
    let chains = chains.chain([("<think>".into(), THOUGHTS.to_vec()), ("\n".into(), vec![AFTER])]);
    let chains = chains.chain([(MARKS[2].into(), FILLED.to_vec())]);
    for mark in MARKS {
        id(mark, &mut tokens);
    }
    for (start, said) in chains.collect::<Vec<_>>() {
        let mut last = id(&start, &mut tokens);
        for text in said {
            let token = id(text, &mut tokens);
            // A line break within a script would lead out of it.
            if text == "\n" {
                continue;
            }
            assert_eq!(next[last], 1, "{text:?} would have two forerunners");
            next[last] = token;
            last = token;
        }
    }
    assert!(tokens.len() <= WIDTH);
    let (count, keys) = keys(&tokens);
    let tensors = tensors(tokens.len(), &next);
    let mut out = Bytes(b"GGUF".to_vec());
    out.u32(3);
    out.u64(tensors.len());
    out.u64(count);
    out.0.extend(keys.0);
    let mut offset = 0_usize;
    for Tensor(name, shape, data) in &tensors {
        out.text(name);
        out.u32(shape.len() as u32);
        shape.iter().for_each(|length| out.u64(*length));
        out.u32(u32::from(shape.len() == 2));
        out.u64(offset);
        offset = (offset + data.len()).next_multiple_of(32);
    }
    for Tensor(.., data) in tensors {
        out.0.resize(out.0.len().next_multiple_of(32), 0);
        out.0.extend(data);
    }
    out.0
}

/// How many keys, and their bytes.
fn keys(tokens: &[(String, i32)]) -> (usize, Bytes) {
    let n = tokens.len();
    let mut keys = Bytes::default();
    let mut count = 0;
    let mut key = |name: &str, kind: u32, value: &dyn Fn(&mut Bytes)| {
        keys.text(name);
        keys.u32(kind);
        value(&mut keys);
        count += 1;
    };
    let text = |value: &'static str| move |bytes: &mut Bytes| bytes.text(value);
    let number = |value: u32| move |bytes: &mut Bytes| bytes.u32(value);
    key("general.architecture", 8, &text("llama"));
    key("general.name", 8, &text("scripted"));
    key("llama.context_length", 4, &number(4096));
    key("llama.embedding_length", 4, &number(WIDTH as u32));
    key("llama.block_count", 4, &number(1));
    key("llama.feed_forward_length", 4, &number(32));
    key("llama.attention.head_count", 4, &number(6));
    key("llama.attention.layer_norm_rms_epsilon", 6, &number(1e-5_f32.to_bits()));
    key("tokenizer.ggml.model", 8, &text("llama"));
    key("tokenizer.ggml.add_bos_token", 7, &|bytes| bytes.0.push(0));
    key("tokenizer.ggml.add_space_prefix", 7, &|bytes| bytes.0.push(0));
    key("tokenizer.ggml.unknown_token_id", 4, &number(0));
    key("tokenizer.ggml.eos_token_id", 4, &number(1));
    key("tokenizer.chat_template", 8, &text(TEMPLATE));
    key("tokenizer.ggml.tokens", 9, &|bytes| {
        bytes.u32(8);
        bytes.u64(n);
        tokens.iter().for_each(|(piece, _)| bytes.text(piece));
    });
    key("tokenizer.ggml.scores", 9, &|bytes| {
        bytes.u32(6);
        bytes.u64(n);
        (0..n).for_each(|_| bytes.u32(0));
    });
    key("tokenizer.ggml.token_type", 9, &|bytes| {
        bytes.u32(5);
        bytes.u64(n);
        tokens.iter().for_each(|(_, kind)| bytes.u32(*kind as u32));
    });

    (count, keys)
}

/// A tensor's name, shape and bytes.
struct Tensor(&'static str, Vec<usize>, Vec<u8>);

fn tensors(n: usize, next: &[usize]) -> Vec<Tensor> {
    // Values are f16 (0x3c00 is 1) in matrices, f32 in vectors.
    let one = 0x3c00_u16.to_le_bytes();
    let axes = |rows: usize, at: &dyn Fn(usize) -> Vec<usize>| {
        let mut data = vec![0; rows * WIDTH * 2];
        for row in 0..rows {
            for column in at(row) {
                data[(row * WIDTH + column) * 2..][..2].copy_from_slice(&one);
            }
        }
        data
    };
    let ones: Vec<u8> = std::iter::repeat_n(1_f32.to_le_bytes(), WIDTH).flatten().collect();
    let zeros = |rows: usize, columns: usize| vec![0; rows * columns * 2];
    let square = || (vec![WIDTH, WIDTH], zeros(WIDTH, WIDTH));
    let tensor = |name, (shape, data)| Tensor(name, shape, data);
    vec![
        tensor("token_embd.weight", (vec![WIDTH, n], axes(n, &|token| vec![token]))),
        tensor("blk.0.attn_norm.weight", (vec![WIDTH], ones.clone())),
        tensor("blk.0.attn_q.weight", square()),
        tensor("blk.0.attn_k.weight", square()),
        tensor("blk.0.attn_v.weight", square()),
        tensor("blk.0.attn_output.weight", square()),
        tensor("blk.0.ffn_norm.weight", (vec![WIDTH], ones.clone())),
        tensor("blk.0.ffn_gate.weight", (vec![WIDTH, 32], zeros(WIDTH, 32))),
        tensor("blk.0.ffn_up.weight", (vec![WIDTH, 32], zeros(WIDTH, 32))),
        tensor("blk.0.ffn_down.weight", (vec![32, WIDTH], zeros(WIDTH, 32))),
        tensor("output_norm.weight", (vec![WIDTH], ones)),
        tensor(
            "output.weight",
            (vec![WIDTH, n], axes(n, &|row| (0..n).filter(|token| next[*token] == row).collect())),
        ),
    ]
}

/// A file that grows.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    fn u64(&mut self, value: usize) {
        self.0.extend((value as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u64(text.len());
        self.0.extend(text.as_bytes());
    }
}

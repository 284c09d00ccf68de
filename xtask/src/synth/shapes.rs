//! The models whose shapes are written: sizes from their published configurations.

use smelt_checkpoint::Value;

/// A model's sizes, and the tiny model that lends everything else: family, rotation, tokenizer rules, template.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// The model that has this shape.
    pub(crate) title: &'static str,
    /// Below `tests/data/tiny`.
    pub(super) donor: &'static str,
    pub(crate) layers: usize,
    embedding: usize,
    feed_forward: usize,
    heads: usize,
    kv_heads: usize,
    head_size: usize,
    pub(super) vocab: usize,
    context: usize,
    experts: Option<Experts>,
    /// Whether the output is the token embedding's table.
    pub(super) tied: bool,
    /// Whether each head of q and k is normed.
    norms_heads: bool,
    /// Whether the file has a factor for each rotation frequency.
    scales_rope: bool,
}

struct Experts {
    count: usize,
    used: usize,
    feed_forward: usize,
}

/// All of them, smallest first.
pub(crate) static SHAPES: &[Shape] = &[
    Shape {
        name: "llama-1b",
        title: "Llama-3.2-1B",
        donor: "llama3/llama3-f16.gguf",
        layers: 16,
        embedding: 2048,
        feed_forward: 8192,
        heads: 32,
        kv_heads: 8,
        head_size: 64,
        vocab: 128_256,
        context: 131_072,
        experts: None,
        tied: true,
        norms_heads: false,
        scales_rope: true,
    },
    Shape {
        name: "qwen3-4b",
        title: "Qwen3-4B",
        donor: "qwen3/qwen3-f16.gguf",
        layers: 36,
        embedding: 2560,
        feed_forward: 9728,
        heads: 32,
        kv_heads: 8,
        head_size: 128,
        vocab: 151_936,
        context: 40_960,
        experts: None,
        tied: true,
        norms_heads: true,
        scales_rope: false,
    },
    Shape {
        name: "llama-8b",
        title: "Llama-3.1-8B",
        donor: "llama3/llama3-f16.gguf",
        layers: 32,
        embedding: 4096,
        feed_forward: 14_336,
        heads: 32,
        kv_heads: 8,
        head_size: 128,
        vocab: 128_256,
        context: 131_072,
        experts: None,
        tied: false,
        norms_heads: false,
        scales_rope: true,
    },
    Shape {
        name: "qwen3-30b-a3b",
        title: "Qwen3-30B-A3B",
        donor: "qwen3moe/qwen3moe-f16.gguf",
        layers: 48,
        embedding: 2048,
        feed_forward: 6144,
        heads: 32,
        kv_heads: 4,
        head_size: 128,
        vocab: 151_936,
        context: 40_960,
        experts: Some(Experts { count: 128, used: 8, feed_forward: 768 }),
        tied: false,
        norms_heads: true,
        scales_rope: false,
    },
];

/// The shape with this name.
pub(crate) fn find(name: &str) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

/// What a tensor is, as far as formats depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The table of token embeddings of a model that has another one for the output.
    Embedding,
    Output,
    QueryOrKey,
    Value,
    AttentionOutput,
    Down,
    GateOrUp,
    /// Never quantised: what chooses experts.
    Router,
    /// Never quantised, all ones: norms and rotation factors.
    Ones,
}

/// A tensor to be written.
pub(super) struct Tensor {
    pub(super) name: String,
    /// ggml's order: the length of a row first.
    pub(super) shape: Vec<usize>,
    pub(super) role: Role,
    pub(super) layer: usize,
}

impl Shape {
    /// The tensors of a model with the first `layers` of them.
    pub(super) fn tensors(&self, layers: usize) -> Vec<Tensor> {
        let mut tensors = Vec::new();
        let mut push = |name: &str, shape: &[usize], role, layer| {
            tensors.push(Tensor { name: format!("{name}.weight"), shape: shape.to_vec(), role, layer });
        };
        if self.scales_rope {
            push("rope_freqs", &[self.head_size / 2], Role::Ones, 0);
        }
        let (width, table) = (self.embedding, [self.embedding, self.vocab]);
        push("token_embd", &table, if self.tied { Role::Output } else { Role::Embedding }, 0);
        push("output_norm", &[width], Role::Ones, 0);
        if !self.tied {
            push("output", &table, Role::Output, 0);
        }
        let (queries, keys) = (self.heads * self.head_size, self.kv_heads * self.head_size);
        for layer in 0..layers {
            let mut push =
                |name: &str, shape: &[usize], role| push(&format!("blk.{layer}.{name}"), shape, role, layer);
            push("attn_norm", &[width], Role::Ones);
            push("attn_q", &[width, queries], Role::QueryOrKey);
            push("attn_k", &[width, keys], Role::QueryOrKey);
            push("attn_v", &[width, keys], Role::Value);
            push("attn_output", &[queries, width], Role::AttentionOutput);
            if self.norms_heads {
                push("attn_q_norm", &[self.head_size], Role::Ones);
                push("attn_k_norm", &[self.head_size], Role::Ones);
            }
            push("ffn_norm", &[width], Role::Ones);
            if let Some(Experts { count, feed_forward, .. }) = self.experts {
                push("ffn_gate_inp", &[width, count], Role::Router);
                push("ffn_gate_exps", &[width, feed_forward, count], Role::GateOrUp);
                push("ffn_up_exps", &[width, feed_forward, count], Role::GateOrUp);
                push("ffn_down_exps", &[feed_forward, width, count], Role::Down);
            } else {
                push("ffn_gate", &[width, self.feed_forward], Role::GateOrUp);
                push("ffn_up", &[width, self.feed_forward], Role::GateOrUp);
                push("ffn_down", &[self.feed_forward, width], Role::Down);
            }
        }
        tensors
    }

    /// The keys that differ from the donor's, without the family's name before them.
    pub(super) fn keys(&self, layers: usize) -> Vec<(&'static str, Value)> {
        let mut sizes = vec![
            ("block_count", layers),
            ("context_length", self.context),
            ("embedding_length", self.embedding),
            ("feed_forward_length", self.feed_forward),
            ("attention.head_count", self.heads),
            ("attention.head_count_kv", self.kv_heads),
            ("attention.key_length", self.head_size),
            ("attention.value_length", self.head_size),
            ("rope.dimension_count", self.head_size),
            ("vocab_size", self.vocab),
        ];
        if let Some(experts) = &self.experts {
            sizes.push(("expert_count", experts.count));
            sizes.push(("expert_used_count", experts.used));
            sizes.push(("expert_feed_forward_length", experts.feed_forward));
        }
        sizes.into_iter().map(|(key, size)| (key, Value::U32(size as u32))).collect()
    }
}

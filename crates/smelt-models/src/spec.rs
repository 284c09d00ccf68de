//! What a model is: data that the decoder compiles.
//!
//! Names are GGUF's and llama2.c's. A *layer* is a transformer layer; *block* is only ever a quantisation block.

use serde::{Deserialize, Serialize};
use smelt_backend::{Activation, Gating, Mask, RopeStyle};

/// A whole model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSpec {
    /// Values of the residual stream.
    pub hidden_dim: usize,
    /// Rows of the embedding.
    pub vocab_size: usize,
    /// Tokens that the model was trained to see.
    pub context_length: usize,
    /// What the layers begin with.
    pub embedding: EmbeddingSpec,
    /// The layers, first to last.
    pub layers: Vec<LayerSpec>,
    /// The kind of every norm.
    pub norm: Norm,
    /// Epsilon of every norm.
    pub norm_eps: f32,
    /// Whether the last layer's output is normed once more (`output_norm`).
    pub output_norm: bool,
    /// What is made of the last layer's output.
    pub head: Head,
    /// How a text's states become its embedding.
    pub pooling: Pooling,
    /// Logits are multiplied by this.
    pub logit_scale: f32,
    /// Then `cap · tanh(logit / cap)`.
    pub final_softcap: Option<f32>,
}

impl ModelSpec {
    /// Whether a token's state depends on those before it only, so that text can be made of it one token at a time.
    #[must_use]
    pub fn is_causal(&self) -> bool {
        self.layers.iter().all(|layer| layer.attention.mask == Mask::Causal)
    }
}

/// The sum that the layers begin with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EmbeddingSpec {
    /// The token's row of `token_embd` is multiplied by this.
    pub scale: f32,
    /// Rows of `position_embd`, where positions were learned: a sequence has no more tokens.
    pub positions: Option<usize>,
    /// Rows of `token_types`, where tokens have a segment.
    pub segments: Option<usize>,
    /// Whether the sum is normed (`token_embd_norm`).
    pub norm: bool,
}

/// The kind of norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Norm {
    /// `x / rms(x) · weight`: Llama.
    Rms,
    /// `(x − mean(x)) / deviation(x) · weight + bias`, the bias where there is one: BERT.
    Layer,
}

/// What is made of the last layer's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// Nothing: the model is for embeddings.
    None,
    /// A logit for each token: `output`, or `token_embd` where it is tied.
    Vocabulary,
    /// A score for each of so many labels of the text: `cls.output`, behind `tanh(cls · x)` where there is a `cls`.
    Labels(usize),
}

/// How the states of a text's tokens become its embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pooling {
    /// Not at all: each token has its own.
    None,
    /// Their mean.
    Mean,
    /// The first token's.
    First,
    /// The last token's.
    Last,
}

impl Pooling {
    /// All, in the order of the numbers that files and llama.cpp give them.
    pub const ALL: [Self; 4] = [Self::None, Self::Mean, Self::First, Self::Last];

    /// llama.cpp's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Mean => "mean",
            Self::First => "cls",
            Self::Last => "last",
        }
    }
}

/// Where a layer's norms stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormPlacement {
    /// Before attention and feed-forward (`attn_norm`, `ffn_norm`): Llama.
    Pre,
    /// After them, before the residual (`post_attention_norm`, `post_ffw_norm`): OLMo 2.
    Post,
    /// Both: Gemma 2.
    PreAndPost,
    /// Behind the residual: `x = norm(x + f(x))` (`attn_output_norm`, `layer_output_norm`): BERT.
    AfterResidual,
}

/// One layer: `x += scale · attention(x)`, then `x += scale · feed_forward(x)`.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerSpec {
    /// Norms.
    pub norms: NormPlacement,
    /// The mixer.
    pub attention: AttentionSpec,
    /// The feed-forward.
    pub feed_forward: FeedForward,
    /// What a part's output is multiplied by before it joins the residual.
    pub residual_scale: f32,
}

/// Whether matrices with the same input lie in one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fusion {
    /// `attn_q`, `attn_k`, `attn_v`; `ffn_gate`, `ffn_up`.
    Separate,
    /// `attn_qkv`; `ffn_up` holding gate then up: Phi-3.
    Fused,
}

/// Norms of queries and keys before rotation (`attn_q_norm`, `attn_k_norm`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QkNorm {
    /// None: Llama.
    None,
    /// Over each head: Qwen 3, Gemma 3.
    PerHead,
    /// Over all heads together: OLMo 2.
    AllHeads,
}

/// Rotary embedding of one layer.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeSpec {
    /// Which values pair up.
    pub style: RopeStyle,
    /// Inverse frequency of each pair, scaling applied; see [`crate::rope`].
    pub inv_freq: Vec<f32>,
    /// Sine and cosine are multiplied by this.
    pub magnitude: f32,
}

/// Grouped-query attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Values per query and key head.
    pub head_dim: usize,
    /// Values per value head.
    pub v_head_dim: usize,
    /// How q, k and v are stored.
    pub qkv: Fusion,
    /// Norms of q and k.
    pub qk_norm: QkNorm,
    /// Rotation; none in SmolLM 3's NoPE layers.
    pub rope: Option<RopeSpec>,
    /// Scores are multiplied by this.
    pub scale: f32,
    /// Soft cap of scores.
    pub softcap: Option<f32>,
    /// Which tokens see which.
    pub mask: Mask,
    /// Sliding window, in tokens.
    pub window: Option<usize>,
}

/// The second half of a layer.
#[derive(Debug, Clone, PartialEq)]
pub enum FeedForward {
    /// `down(activation(gate(x)) · up(x))`.
    Gated { ffn_dim: usize, gate_up: Fusion, activation: Activation },
    /// `down(activation(up(x)))`: BERT.
    Plain { ffn_dim: usize, activation: Activation },
    /// Mixture of experts.
    Moe(MoeSpec),
}

/// A mixture of gated experts.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeSpec {
    /// Experts.
    pub n_experts: usize,
    /// Experts per token.
    pub n_used: usize,
    /// Inner values of one expert.
    pub ffn_dim: usize,
    /// Router logits to weights.
    pub gating: Gating,
    /// Weights are multiplied by this.
    pub scale: f32,
    /// The experts' activation.
    pub activation: Activation,
    /// An expert that every token uses.
    pub shared: Option<SharedExpert>,
}

/// An expert that every token uses, weighed by `sigmoid(ffn_gate_inp_shexp · x)`: Qwen 2 MoE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedExpert {
    /// Inner values.
    pub ffn_dim: usize,
}

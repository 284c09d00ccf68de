//! The vocabulary: what a model graph is made of.
//!
//! Every operation works on the step's rows, or on its logit rows if its buffers say so. [`crate::reference`] specifies
//! each one; shapes below are `[rows, width]`.

use crate::{Buffer, KvCache, Program, RopeTable, Weight};

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation (Hendrycks and Gimpel 2016), as Gemma uses it.
    GeluTanh,
    /// GELU itself, `x · Φ(x)` with the normal distribution's Φ, as BERT uses it.
    Gelu,
}

/// Which pairs of a head a rotation turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeStyle {
    /// Neighbours `(2i, 2i + 1)`, as in the RoPE paper and GGUF's `llama`.
    Interleaved,
    /// Halves `(i, i + n/2)`, as in GPT-NeoX.
    Halves,
}

/// One output of a group of matmuls that share their input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Projection {
    /// `n_out × n_in`.
    pub weight: Weight,
    /// `[n_out]`, F32.
    pub bias: Option<Weight>,
    /// `[rows, n_out]`.
    pub out: Buffer,
}

/// Rotary position embedding, in place: `n_heads` heads of `head_dim` values; the table's pairs are the head's first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rope {
    /// `[rows, n_heads · head_dim]`.
    pub buffer: Buffer,
    /// One inverse frequency per pair.
    pub table: RopeTable,
    /// Which values pair up.
    pub style: RopeStyle,
    /// Values per head.
    pub head_dim: usize,
    /// Sine and cosine are multiplied by this (YaRN's and longrope's attention factor).
    pub magnitude: f32,
}

/// By what a row finds its row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Index {
    /// Its token.
    Token,
    /// Its position, where positions were learned.
    Position,
    /// Its segment ([`crate::StepInputs::segments`]): BERT's token types.
    Segment,
}

/// Which positions of its sequence a row sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mask {
    /// Those up to its own.
    #[default]
    Causal,
    /// Those up to the sequence's last in the step: all, where a text is computed in one step.
    Full,
}

/// Attention over the cache, which already holds the step's own keys and values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Attention {
    /// `[rows, n_heads · k_head_dim]`.
    pub q: Buffer,
    /// `[rows, n_heads · v_head_dim]`.
    pub out: Buffer,
    /// Holds keys and values; query head `h` reads KV head `h · n_kv_heads / n_heads`.
    pub cache: KvCache,
    /// Query heads.
    pub n_heads: usize,
    /// Scores are `scale · q·k`.
    pub scale: f32,
    /// Then `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// What a row sees.
    pub mask: Mask,
    /// Of a causal mask, row at position `p` sees positions `> p − window`.
    pub window: Option<usize>,
    /// `[n_heads]`, F32: one more score per head in the softmax, whose weight goes to no value (gpt-oss).
    pub sinks: Option<Weight>,
}

/// How router logits become weights of experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts, then the best `n_used`.
    Softmax,
    /// Softmax over all experts, the best `n_used`, divided by their sum.
    SoftmaxNormalized,
}

/// The stacked matrices of a layer's experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// `n_experts × ffn_dim × hidden_dim`.
    pub gate: Weight,
    /// `n_experts × ffn_dim × hidden_dim`.
    pub up: Weight,
    /// `n_experts × hidden_dim × ffn_dim`.
    pub down: Weight,
}

/// A mixture of experts: `out = Σ weight_e · down_e(activation(gate_e(x)) · up_e(x))` over each row's chosen experts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moe {
    /// `[rows, hidden_dim]`.
    pub input: Buffer,
    /// `[rows, n_experts]`.
    pub router: Buffer,
    /// The experts.
    pub experts: Experts,
    /// `[rows, hidden_dim]`.
    pub out: Buffer,
    /// Experts per row; of equal logits the lower index wins.
    pub n_used: usize,
    /// Logits to weights.
    pub gating: Gating,
    /// Weights are multiplied by this.
    pub scale: f32,
    /// The experts' activation.
    pub activation: Activation,
}

/// `buffer[row] *= sigmoid(gate[row])`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertGate {
    /// `[rows, width]`.
    pub buffer: Buffer,
    /// `[rows, 1]`.
    pub gate: Buffer,
}

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `out[row] = scale · table[index[row]]`.
    Embed { table: Weight, index: Index, out: Buffer, scale: f32 },
    /// `out = x / sqrt(mean(x²) + eps) · weight` over each run of `weight`'s length; `out` may be `input`.
    RmsNorm { input: Buffer, weight: Weight, out: Buffer, eps: f32 },
    /// `out = (x − mean(x)) / sqrt(var(x) + eps) · weight + bias` over each run of `weight`'s length; `out` may be
    /// `input`.
    LayerNorm { input: Buffer, weight: Weight, bias: Option<Weight>, out: Buffer, eps: f32 },
    /// `out = input · weightᵀ + bias` for each projection.
    MatMul { input: Buffer, projections: Vec<Projection> },
    /// Rotation by position.
    Rope(Rope),
    /// Writes the step's keys and values to the cache.
    KvWrite { k: Buffer, v: Buffer, cache: KvCache },
    /// Attention.
    Attention(Attention),
    /// `out = activation(gate) · up`; `out` may be `gate`.
    GatedActivation { gate: Buffer, up: Buffer, out: Buffer, activation: Activation },
    /// `buffer = activation(buffer)`.
    Activate { buffer: Buffer, activation: Activation },
    /// Mixture of experts.
    Moe(Moe),
    /// Weighs a shared expert's output.
    ExpertGate(ExpertGate),
    /// `out += scale · input`.
    Add { input: Buffer, out: Buffer, scale: f32 },
    /// `buffer *= factor`.
    Scale { buffer: Buffer, factor: f32 },
    /// `buffer = cap · tanh(buffer / cap)`.
    SoftCap { buffer: Buffer, cap: f32 },
    /// Copies the step's logit rows to a buffer of logit rows.
    GatherLogitRows { input: Buffer, out: Buffer },
}

/// Every operation's name, in the order of [`Op`].
pub const OP_NAMES: &[&str] = &[
    "embed",
    "rms_norm",
    "layer_norm",
    "matmul",
    "rope",
    "kv_write",
    "attention",
    "gated_activation",
    "activate",
    "moe",
    "expert_gate",
    "add",
    "scale",
    "soft_cap",
    "gather_logit_rows",
];

impl Op {
    /// The operation's name, one of [`OP_NAMES`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        let index = match self {
            Self::Embed { .. } => 0,
            Self::RmsNorm { .. } => 1,
            Self::LayerNorm { .. } => 2,
            Self::MatMul { .. } => 3,
            Self::Rope(_) => 4,
            Self::KvWrite { .. } => 5,
            Self::Attention(_) => 6,
            Self::GatedActivation { .. } => 7,
            Self::Activate { .. } => 8,
            Self::Moe(_) => 9,
            Self::ExpertGate(_) => 10,
            Self::Add { .. } => 11,
            Self::Scale { .. } => 12,
            Self::SoftCap { .. } => 13,
            Self::GatherLogitRows { .. } => 14,
        };
        OP_NAMES[index]
    }

    /// Checks the operands against each other; the message names the fault.
    pub(crate) fn check(&self, program: &Program) -> Result<(), String> {
        let p = Checker(program);
        match self {
            Self::Embed { table, index, out, .. } => {
                let t = p.matrix(*table)?;
                p.same("table and out", t.1, p.width(*out)?)?;
                // Positions and segments are checked against their tables with each step.
                if *index == Index::Token {
                    p.at_least("table rows", t.0, program.vocab_size)?;
                }
                p.all_rows(&[*out])
            }
            Self::RmsNorm { input, weight, out, .. } => {
                let n = p.vector(*weight)?;
                p.same("input and out", p.width(*input)?, p.width(*out)?)?;
                p.multiple("width", p.width(*input)?, n)?;
                p.same_rows(&[*input, *out])
            }
            Self::LayerNorm { input, weight, bias, out, .. } => {
                let n = p.vector(*weight)?;
                if let Some(bias) = bias {
                    p.same("weight and bias", n, p.vector(*bias)?)?;
                }
                p.same("input and out", p.width(*input)?, p.width(*out)?)?;
                p.multiple("width", p.width(*input)?, n)?;
                p.same_rows(&[*input, *out])
            }
            Self::MatMul { input, projections } => projections.iter().try_for_each(|x| {
                let (n_out, n_in) = p.matrix(x.weight)?;
                p.same("weight and input", n_in, p.width(*input)?)?;
                p.same("weight and out", n_out, p.width(x.out)?)?;
                if let Some(bias) = x.bias {
                    p.same("weight and bias", n_out, p.vector(bias)?)?;
                }
                p.distinct(*input, x.out)?;
                p.same_rows(&[*input, x.out])
            }),
            Self::Rope(x) => {
                p.multiple("width", p.width(x.buffer)?, x.head_dim)?;
                let pairs = program.ropes.get(x.table.index()).ok_or("no such rope table")?.len();
                p.at_least("head_dim", x.head_dim, 2 * pairs)?;
                p.all_rows(&[x.buffer])
            }
            Self::KvWrite { k, v, cache } => {
                let c = program.caches.get(cache.index()).ok_or("no such cache")?;
                p.same("k and cache", p.width(*k)?, c.n_kv_heads * c.k_head_dim)?;
                p.same("v and cache", p.width(*v)?, c.n_kv_heads * c.v_head_dim)?;
                p.all_rows(&[*k, *v])
            }
            Self::Attention(x) => p.attention(x),
            Self::GatedActivation { gate, up, out, .. } => {
                p.same("gate and up", p.width(*gate)?, p.width(*up)?)?;
                p.same("gate and out", p.width(*gate)?, p.width(*out)?)?;
                p.same_rows(&[*gate, *up, *out])
            }
            Self::Moe(x) => p.moe(x),
            Self::ExpertGate(x) => {
                p.same("gate width", p.width(x.gate)?, 1)?;
                p.distinct(x.gate, x.buffer)?;
                p.same_rows(&[x.buffer, x.gate])
            }
            Self::Add { input, out, .. } => {
                p.same("input and out", p.width(*input)?, p.width(*out)?)?;
                p.distinct(*input, *out)?;
                p.same_rows(&[*input, *out])
            }
            Self::Activate { buffer, .. } | Self::Scale { buffer, .. } | Self::SoftCap { buffer, .. } => {
                p.width(*buffer).map(|_| ())
            }
            Self::GatherLogitRows { input, out } => {
                p.same("input and out", p.width(*input)?, p.width(*out)?)?;
                p.all_rows(&[*input])?;
                if p.0.buffers[out.index()].logit_rows {
                    Ok(())
                } else {
                    Err("out is no buffer of logit rows".into())
                }
            }
        }
    }
}

/// Looks operands up and compares their shapes.
struct Checker<'a>(&'a Program);

impl Checker<'_> {
    fn width(&self, buffer: Buffer) -> Result<usize, String> {
        let spec = self.0.buffers.get(buffer.index()).ok_or_else(|| format!("no buffer {}", buffer.0))?;
        Ok(spec.width)
    }

    /// `(n_out, n_in)` of a single matrix.
    fn matrix(&self, weight: Weight) -> Result<(usize, usize), String> {
        let w = self.0.weights.get(weight.index()).ok_or_else(|| format!("no weight {}", weight.0))?;
        self.same("experts", w.n_experts, 1)?;
        Ok((w.n_out, w.n_in))
    }

    /// Length of an F32 vector.
    fn vector(&self, weight: Weight) -> Result<usize, String> {
        let (n_out, n_in) = self.matrix(weight)?;
        self.same("rows of a vector", n_out, 1)?;
        let w = &self.0.weights[weight.index()];
        if w.format.name != "F32" {
            return Err(format!("{} is {}, where F32 is needed", w.name, w.format.name));
        }
        self.at_least("length", n_in, 1)?;
        Ok(n_in)
    }

    fn same(&self, what: &str, a: usize, b: usize) -> Result<(), String> {
        if a == b { Ok(()) } else { Err(format!("{what}: {a} is not {b}")) }
    }

    fn at_least(&self, what: &str, a: usize, b: usize) -> Result<(), String> {
        if a >= b { Ok(()) } else { Err(format!("{what}: {a} is less than {b}")) }
    }

    fn multiple(&self, what: &str, a: usize, b: usize) -> Result<(), String> {
        if b > 0 && a.is_multiple_of(b) { Ok(()) } else { Err(format!("{what}: {a} is no multiple of {b}")) }
    }

    fn distinct(&self, a: Buffer, b: Buffer) -> Result<(), String> {
        if a == b { Err(format!("buffer {} is both input and output", a.0)) } else { Ok(()) }
    }

    fn all_rows(&self, buffers: &[Buffer]) -> Result<(), String> {
        let logit = buffers.iter().find(|b| self.0.buffers[b.index()].logit_rows);
        logit.map_or(Ok(()), |b| Err(format!("buffer {} has logit rows only", b.0)))
    }

    fn same_rows(&self, buffers: &[Buffer]) -> Result<(), String> {
        let kind = |b: &Buffer| self.0.buffers[b.index()].logit_rows;
        if buffers.windows(2).all(|w| kind(&w[0]) == kind(&w[1])) {
            Ok(())
        } else {
            Err("a buffer of all rows meets one of logit rows".into())
        }
    }

    fn attention(&self, x: &Attention) -> Result<(), String> {
        let c = self.0.caches.get(x.cache.index()).ok_or("no such cache")?;
        self.multiple("n_heads", x.n_heads, c.n_kv_heads)?;
        self.same("q", self.width(x.q)?, x.n_heads * c.k_head_dim)?;
        self.same("out", self.width(x.out)?, x.n_heads * c.v_head_dim)?;
        self.distinct(x.q, x.out)?;
        if let Some(sinks) = x.sinks {
            self.same("sinks and n_heads", self.vector(sinks)?, x.n_heads)?;
        }
        if x.window == Some(0) {
            return Err("a window of 0 sees nothing".into());
        }
        if x.window.is_some() && x.mask == Mask::Full {
            return Err("a window is of a causal mask".into());
        }
        self.all_rows(&[x.q, x.out])
    }

    fn moe(&self, x: &Moe) -> Result<(), String> {
        let hidden = self.width(x.input)?;
        let get = |w: Weight| self.0.weights.get(w.index()).ok_or_else(|| format!("no weight {}", w.0));
        let (gate, up, down) = (get(x.experts.gate)?, get(x.experts.up)?, get(x.experts.down)?);
        for w in [gate, up, down] {
            self.same("experts", w.n_experts, self.width(x.router)?)?;
        }
        self.same("gate", gate.n_in, hidden)?;
        self.same("up", up.n_in, hidden)?;
        self.same("gate and up", gate.n_out, up.n_out)?;
        self.same("down", down.n_in, gate.n_out)?;
        self.same("down and out", down.n_out, self.width(x.out)?)?;
        self.same("input and out", hidden, self.width(x.out)?)?;
        self.at_least("experts used", x.n_used, 1)?;
        self.at_least("experts", gate.n_experts, x.n_used)?;
        self.distinct(x.input, x.out)?;
        self.all_rows(&[x.input, x.router, x.out])
    }
}

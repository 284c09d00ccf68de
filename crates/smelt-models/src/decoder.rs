//! One decoder compiles every spec.
//!
//! ```text
//! tokens → embed → x                       BERT adds positions and segments, and norms the sum
//! each layer:   x += attention(norm(x))      q,k,v ← matmul; norm; rope; cache; attend; output
//!               x += feed_forward(norm(x))   gated, plain, or a mixture of experts
//! logit rows → norm → output → logits        or labels
//! all rows → norm → states                   the other end: what embeddings are made of
//! ```

use crate::tensors::Tensors;
use crate::{
    ARCHITECTURES, Architecture, AttentionSpec, EmbeddingSpec, Error, FeedForward, Fusion, Head, Keys,
    LayerSpec, ModelSpec,
};
use crate::{MoeSpec, Norm, NormPlacement, QkNorm, SharedExpert};
use smelt_backend::{
    Activation, Attention, Buffer, ExpertGate, Experts, Index, KvFormats, KvSpec, Moe, Op, Program,
    Projection, Rope, States, StepLimits, Weight, WeightBytes,
};
use smelt_checkpoint::Checkpoint;
use std::collections::HashMap;

/// What the engine decides about a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The largest step.
    pub limits: StepLimits,
    /// How keys and values are held.
    pub kv_formats: KvFormats,
    /// Tokens that a sequence may have; `None` for what the model was trained on.
    pub context: Option<usize>,
}

/// A checkpoint, compiled: ready for [`smelt_backend::Backend::prepare`].
#[derive(Debug)]
pub struct Model {
    /// The family.
    pub architecture: &'static Architecture,
    /// What was read from the metadata.
    pub spec: ModelSpec,
    /// The operations.
    pub program: Program,
    /// The bytes of `program.weights`.
    pub weights: Vec<WeightBytes>,
}

/// Reads a checkpoint's spec and compiles it.
///
/// # Errors
/// If no family claims the checkpoint, or keys and tensors don't fit each other.
pub fn load(checkpoint: &Checkpoint, options: &Options) -> Result<Model, Error> {
    let name = checkpoint.metadata().require_str("general.architecture")?;
    let Some(architecture) = ARCHITECTURES.iter().copied().find(|a| a.name == name) else {
        return Err(Error::UnknownArchitecture {
            file: checkpoint.path().into(),
            architecture: name.into(),
            supported: ARCHITECTURES.iter().map(|a| a.name).collect::<Vec<_>>().join(", "),
        });
    };
    let keys = Keys::new(checkpoint, architecture.name);
    let context = match options.context {
        Some(context) => context,
        None => keys.require_count("context_length")?,
    };
    let spec = (architecture.spec)(&keys, context)?;
    let mut compiler = Compiler {
        spec: &spec,
        kv_formats: options.kv_formats,
        program: Program { vocab_size: spec.vocab_size, limits: options.limits, ..Program::default() },
        tensors: Tensors::new(checkpoint),
        scratch: HashMap::new(),
    };
    compiler.model()?;
    let Compiler { program, tensors, .. } = compiler;
    let weights = tensors.finish(architecture.name)?;
    program
        .validate(&weights.iter().map(|w| w.len()).collect::<Vec<_>>())
        .map_err(|source| Error::Program { file: checkpoint.path().into(), source })?;
    Ok(Model { architecture, spec, program, weights })
}

/// Compiles one spec.
struct Compiler<'a> {
    spec: &'a ModelSpec,
    kv_formats: KvFormats,
    program: Program,
    tensors: Tensors<'a>,
    /// Buffers are shared by all layers: one per purpose and width.
    scratch: HashMap<(&'static str, usize), Buffer>,
}

impl Compiler<'_> {
    fn scratch(&mut self, purpose: &'static str, width: usize) -> Buffer {
        *self.scratch.entry((purpose, width)).or_insert_with(|| self.program.buffer(width))
    }

    fn push(&mut self, op: Op) {
        self.program.ops.push(op);
    }

    fn matrix(&mut self, name: &str, n_out: usize, n_in: usize) -> Result<Weight, Error> {
        self.tensors.matrix(&mut self.program, name, (n_out, n_in))
    }

    fn model(&mut self) -> Result<(), Error> {
        let x = self.embed()?;
        for (index, layer) in self.spec.layers.iter().enumerate() {
            self.layer(index, layer, x)?;
        }
        let ModelSpec { hidden_dim, output_norm, .. } = *self.spec;
        let norm = if output_norm { Some(self.norm_op("output_norm", hidden_dim)?) } else { None };
        let ops = norm.iter().map(|norm| norm(x, x)).collect();
        self.program.states = Some(States { after: self.program.ops.len(), ops, output: x });
        self.program.output = match self.spec.head {
            // Nobody asks for logits.
            Head::None => x,
            head => {
                let rows = self.program.logit_buffer(hidden_dim);
                self.push(Op::GatherLogitRows { input: x, out: rows });
                self.program.ops.extend(norm.iter().map(|norm| norm(rows, rows)));
                match head {
                    Head::Labels(n) => self.labels(rows, n)?,
                    _ => self.logits(rows)?,
                }
            }
        };
        Ok(())
    }

    /// What the layers begin with.
    fn embed(&mut self) -> Result<Buffer, Error> {
        let ModelSpec { hidden_dim, vocab_size, embedding, .. } = *self.spec;
        let EmbeddingSpec { scale, positions, segments, norm } = embedding;
        let x = self.scratch("x", hidden_dim);
        let table = self.matrix("token_embd.weight", vocab_size, hidden_dim)?;
        self.push(Op::Embed { table, index: Index::Token, out: x, scale });
        let others = [
            (Index::Segment, "token_types.weight", segments),
            (Index::Position, "position_embd.weight", positions),
        ];
        for (index, name, rows) in others {
            let Some(rows) = rows else { continue };
            let part = self.scratch("y", hidden_dim);
            let table = self.matrix(name, rows, hidden_dim)?;
            self.push(Op::Embed { table, index, out: part, scale: 1.0 });
            self.push(Op::Add { input: part, out: x, scale: 1.0 });
        }
        if norm {
            self.norm("token_embd_norm", x, x, hidden_dim)?;
        }
        Ok(x)
    }

    /// A logit for each token.
    fn logits(&mut self, rows: Buffer) -> Result<Buffer, Error> {
        let ModelSpec { hidden_dim, vocab_size, logit_scale, final_softcap, .. } = *self.spec;
        let logits = self.program.logit_buffer(vocab_size);
        let tied = !self.tensors.has("output.weight");
        let name = if tied { "token_embd.weight" } else { "output.weight" };
        let weight = self.matrix(name, vocab_size, hidden_dim)?;
        let bias = self.bias("output.bias", vocab_size)?;
        self.push(Op::MatMul { input: rows, projections: vec![Projection { weight, bias, out: logits }] });
        if logit_scale != 1.0 {
            self.push(Op::Scale { buffer: logits, factor: logit_scale });
        }
        if let Some(cap) = final_softcap {
            self.push(Op::SoftCap { buffer: logits, cap });
        }
        Ok(logits)
    }

    /// A score for each label.
    fn labels(&mut self, mut rows: Buffer, n: usize) -> Result<Buffer, Error> {
        let hidden_dim = self.spec.hidden_dim;
        let scores = self.program.logit_buffer(n);
        if self.tensors.has("cls.weight") {
            let dense = self.program.logit_buffer(hidden_dim);
            self.classify("cls", rows, dense)?;
            // A cap of 1 is tanh.
            self.push(Op::SoftCap { buffer: dense, cap: 1.0 });
            rows = dense;
        }
        self.classify("cls.output", rows, scores)?;
        Ok(scores)
    }

    fn classify(&mut self, name: &str, input: Buffer, out: Buffer) -> Result<(), Error> {
        let n_out = self.program.buffers[out.index()].width;
        let weight = self.matrix(&format!("{name}.weight"), n_out, self.spec.hidden_dim)?;
        let bias = self.bias(&format!("{name}.bias"), n_out)?;
        self.push(Op::MatMul { input, projections: vec![Projection { weight, bias, out }] });
        Ok(())
    }

    fn norm(&mut self, name: &str, input: Buffer, out: Buffer, width: usize) -> Result<(), Error> {
        let op = self.norm_op(name, width)?(input, out);
        self.push(op);
        Ok(())
    }

    /// The norm of that name, in groups of `width`, of any input and output.
    fn norm_op(&mut self, name: &str, width: usize) -> Result<impl Fn(Buffer, Buffer) -> Op + use<>, Error> {
        let ModelSpec { norm, norm_eps: eps, .. } = *self.spec;
        let weight = self.tensors.vector(&mut self.program, &format!("{name}.weight"), width)?;
        let bias = match norm {
            Norm::Rms => None,
            Norm::Layer => self.bias(&format!("{name}.bias"), width)?,
        };
        Ok(move |input, out| match norm {
            Norm::Rms => Op::RmsNorm { input, weight, out, eps },
            Norm::Layer => Op::LayerNorm { input, weight, bias, out, eps },
        })
    }

    fn bias(&mut self, name: &str, n: usize) -> Result<Option<Weight>, Error> {
        if !self.tensors.has(name) {
            return Ok(None);
        }
        self.tensors.vector(&mut self.program, name, n).map(Some)
    }

    fn layer(&mut self, index: usize, layer: &LayerSpec, x: Buffer) -> Result<(), Error> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let hidden_dim = self.spec.hidden_dim;
        let (pre, post, behind) = match layer.norms {
            NormPlacement::Pre => (true, false, false),
            NormPlacement::Post => (false, true, false),
            NormPlacement::PreAndPost => (true, true, false),
            NormPlacement::AfterResidual => (false, false, true),
        };
        let input = |c: &mut Self, norm: &str| {
            if !pre {
                return Ok(x);
            }
            let xb = c.scratch("xb", hidden_dim);
            c.norm(&name(norm), x, xb, hidden_dim).map(|()| xb)
        };
        let output = |c: &mut Self, [of_part, of_sum]: [&str; 2], y: Buffer| {
            if post {
                c.norm(&name(of_part), y, y, hidden_dim)?;
            }
            c.push(Op::Add { input: y, out: x, scale: layer.residual_scale });
            if behind { c.norm(&name(of_sum), x, x, hidden_dim) } else { Ok(()) }
        };
        let xb = input(self, "attn_norm")?;
        let y = self.attention(&name, &layer.attention, xb)?;
        output(self, ["post_attention_norm", "attn_output_norm"], y)?;
        let xb = input(self, "ffn_norm")?;
        let y = match &layer.feed_forward {
            FeedForward::Gated { ffn_dim, gate_up, activation } => {
                self.gated(&name, ["ffn_gate", "ffn_up", "ffn_down"], *ffn_dim, *gate_up, *activation, xb)?
            }
            FeedForward::Plain { ffn_dim, activation } => self.plain(&name, *ffn_dim, *activation, xb)?,
            FeedForward::Moe(moe) => self.moe(&name, moe, xb)?,
        };
        output(self, ["post_ffw_norm", "layer_output_norm"], y)
    }

    fn attention(
        &mut self,
        name: &dyn Fn(&str) -> String,
        a: &AttentionSpec,
        xb: Buffer,
    ) -> Result<Buffer, Error> {
        let (n_q, n_k, n_v) =
            (a.n_heads * a.head_dim, a.n_kv_heads * a.head_dim, a.n_kv_heads * a.v_head_dim);
        let (q, k, v) = (self.scratch("q", n_q), self.scratch("k", n_k), self.scratch("v", n_v));
        let projections =
            self.qkv(name, a.qkv, xb, &[("attn_q", q, n_q), ("attn_k", k, n_k), ("attn_v", v, n_v)])?;
        self.push(Op::MatMul { input: xb, projections });
        match a.qk_norm {
            QkNorm::None => {}
            QkNorm::PerHead => {
                self.norm(&name("attn_q_norm"), q, q, a.head_dim)?;
                self.norm(&name("attn_k_norm"), k, k, a.head_dim)?;
            }
            QkNorm::AllHeads => {
                self.norm(&name("attn_q_norm"), q, q, n_q)?;
                self.norm(&name("attn_k_norm"), k, k, n_k)?;
            }
        }
        if let Some(rope) = &a.rope {
            let table = self.program.rope(rope.inv_freq.clone());
            for buffer in [q, k] {
                let (style, head_dim, magnitude) = (rope.style, a.head_dim, rope.magnitude);
                self.push(Op::Rope(Rope { buffer, table, style, head_dim, magnitude }));
            }
        }
        let cache = self.program.cache(KvSpec {
            n_kv_heads: a.n_kv_heads,
            k_head_dim: a.head_dim,
            v_head_dim: a.v_head_dim,
            formats: self.kv_formats,
        });
        self.push(Op::KvWrite { k, v, cache });
        let n_attended = a.n_heads * a.v_head_dim;
        let attended = self.scratch("attended", n_attended);
        self.push(Op::Attention(Attention {
            q,
            out: attended,
            cache,
            n_heads: a.n_heads,
            scale: a.scale,
            softcap: a.softcap,
            mask: a.mask,
            window: a.window,
            sinks: None,
        }));
        self.project(&name("attn_output"), attended, n_attended, "y")
    }

    /// One matmul to the residual's width.
    fn project(
        &mut self,
        name: &str,
        input: Buffer,
        n_in: usize,
        purpose: &'static str,
    ) -> Result<Buffer, Error> {
        let hidden_dim = self.spec.hidden_dim;
        let out = self.scratch(purpose, hidden_dim);
        let weight = self.matrix(&format!("{name}.weight"), hidden_dim, n_in)?;
        let bias = self.bias(&format!("{name}.bias"), hidden_dim)?;
        self.push(Op::MatMul { input, projections: vec![Projection { weight, bias, out }] });
        Ok(out)
    }

    /// Matrices that share an input, each in its own tensor or one after another in `attn_qkv`.
    fn qkv(
        &mut self,
        name: &dyn Fn(&str) -> String,
        fusion: Fusion,
        input: Buffer,
        parts: &[(&str, Buffer, usize)],
    ) -> Result<Vec<Projection>, Error> {
        let n_in = self.program.buffers[input.index()].width;
        match fusion {
            Fusion::Separate => self.separate(name, n_in, parts),
            Fusion::Fused => self.fused(&name("attn_qkv"), n_in, parts),
        }
    }

    fn separate(
        &mut self,
        name: &dyn Fn(&str) -> String,
        n_in: usize,
        parts: &[(&str, Buffer, usize)],
    ) -> Result<Vec<Projection>, Error> {
        let part = |(part, out, n_out): &(&str, Buffer, usize)| {
            let weight = self.matrix(&name(&format!("{part}.weight")), *n_out, n_in)?;
            let bias = self.bias(&name(&format!("{part}.bias")), *n_out)?;
            Ok(Projection { weight, bias, out: *out })
        };
        parts.iter().map(part).collect()
    }

    fn fused(
        &mut self,
        name: &str,
        n_in: usize,
        parts: &[(&str, Buffer, usize)],
    ) -> Result<Vec<Projection>, Error> {
        let total: usize = parts.iter().map(|p| p.2).sum();
        let (weight_name, bias_name) = (format!("{name}.weight"), format!("{name}.bias"));
        let mut start = 0;
        let mut projections = Vec::new();
        for (_, out, n_out) in parts {
            let rows = start..start + n_out;
            let weight = self.tensors.rows(&mut self.program, &weight_name, (total, n_in), rows.clone())?;
            let bias = match self.tensors.has(&bias_name) {
                true => Some(self.tensors.part(&mut self.program, &bias_name, total, rows)?),
                false => None,
            };
            projections.push(Projection { weight, bias, out: *out });
            start += n_out;
        }
        Ok(projections)
    }

    /// `down(activation(gate(x)) · up(x))`.
    fn gated(
        &mut self,
        name: &dyn Fn(&str) -> String,
        [gate_name, up_name, down_name]: [&str; 3],
        ffn_dim: usize,
        fusion: Fusion,
        activation: Activation,
        xb: Buffer,
    ) -> Result<Buffer, Error> {
        let (gate, up) = (self.scratch("gate", ffn_dim), self.scratch("up", ffn_dim));
        let parts = [(gate_name, gate, ffn_dim), (up_name, up, ffn_dim)];
        let n_in = self.spec.hidden_dim;
        let projections = match fusion {
            Fusion::Separate => self.separate(name, n_in, &parts)?,
            Fusion::Fused => self.fused(&name(up_name), n_in, &parts)?,
        };
        self.push(Op::MatMul { input: xb, projections });
        self.push(Op::GatedActivation { gate, up, out: gate, activation });
        self.project(&name(down_name), gate, ffn_dim, "y")
    }

    /// `down(activation(up(x)))`.
    fn plain(
        &mut self,
        name: &dyn Fn(&str) -> String,
        ffn_dim: usize,
        activation: Activation,
        xb: Buffer,
    ) -> Result<Buffer, Error> {
        let up = self.scratch("up", ffn_dim);
        let projections = self.separate(name, self.spec.hidden_dim, &[("ffn_up", up, ffn_dim)])?;
        self.push(Op::MatMul { input: xb, projections });
        self.push(Op::Activate { buffer: up, activation });
        self.project(&name("ffn_down"), up, ffn_dim, "y")
    }

    fn moe(&mut self, name: &dyn Fn(&str) -> String, m: &MoeSpec, xb: Buffer) -> Result<Buffer, Error> {
        let hidden_dim = self.spec.hidden_dim;
        let router = self.scratch("router", m.n_experts);
        let weight = self.matrix(&name("ffn_gate_inp.weight"), m.n_experts, hidden_dim)?;
        self.push(Op::MatMul {
            input: xb,
            projections: vec![Projection { weight, bias: None, out: router }],
        });
        let mut stacked = |part: &str, n_out: usize, n_in: usize| {
            self.tensors.stacked(&mut self.program, &name(part), (m.n_experts, n_out, n_in))
        };
        let experts = Experts {
            gate: stacked("ffn_gate_exps.weight", m.ffn_dim, hidden_dim)?,
            up: stacked("ffn_up_exps.weight", m.ffn_dim, hidden_dim)?,
            down: stacked("ffn_down_exps.weight", hidden_dim, m.ffn_dim)?,
        };
        let out = self.scratch("experts", hidden_dim);
        self.push(Op::Moe(Moe {
            input: xb,
            router,
            experts,
            out,
            n_used: m.n_used,
            gating: m.gating,
            scale: m.scale,
            activation: m.activation,
        }));
        if let Some(SharedExpert { ffn_dim }) = m.shared {
            let parts = ["ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"];
            let buffer = self.gated(name, parts, ffn_dim, Fusion::Separate, m.activation, xb)?;
            let gate = self.scratch("shared gate", 1);
            let weight = self.matrix(&name("ffn_gate_inp_shexp.weight"), 1, hidden_dim)?;
            self.push(Op::MatMul {
                input: xb,
                projections: vec![Projection { weight, bias: None, out: gate }],
            });
            self.push(Op::ExpertGate(ExpertGate { buffer, gate }));
            self.push(Op::Add { input: buffer, out, scale: 1.0 });
        }
        Ok(out)
    }
}

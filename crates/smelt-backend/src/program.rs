//! A model compiled to operations.

use crate::{Error, Index, Op, Output, StepLimits};
use smelt_quant::Format;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
        impl $name {
            /// The index into the program's list.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

handle!(
    /// An activation buffer: f32, `[rows, width]`, rows varying by step.
    Buffer
);
handle!(
    /// A weight: `[experts,] n_out × n_in`, or a vector (`n_out = 1`).
    Weight
);
handle!(
    /// One layer's KV cache.
    KvCache
);
handle!(
    /// Rotation frequencies.
    RopeTable
);

/// Which rows a buffer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSpec {
    /// Values per row.
    pub width: usize,
    /// Whether its rows are the step's logit rows rather than all rows.
    pub logit_rows: bool,
}

/// The shape and format of a weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightSpec {
    /// The tensor's name, for messages.
    pub name: String,
    /// Block format of the bytes.
    pub format: &'static Format,
    /// Values per row (GGUF's `ne0`); a vector's length.
    pub n_in: usize,
    /// Rows per matrix (GGUF's `ne1`); 1 for a vector.
    pub n_out: usize,
    /// Stacked matrices (GGUF's `ne2`); 1 for an ordinary one.
    pub n_experts: usize,
}

impl WeightSpec {
    /// Bytes of the whole weight; `None` if a row is no whole number of blocks or the product overflows.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        self.format.row_bytes(self.n_in)?.checked_mul(self.n_out)?.checked_mul(self.n_experts)
    }
}

/// How keys or values are held. Blocks run along a head's values, one token's at a time; the last block of a head that
/// is no whole number of them is filled up with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvFormat {
    /// Half precision.
    #[default]
    F16,
    /// Single precision.
    F32,
    /// Bytes under a half-precision scale per 32 values.
    Q8_0,
    /// Four bits under a half-precision scale per 32 values.
    Q4_0,
}

impl KvFormat {
    /// Every format, the most precise first.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::Q8_0, Self::Q4_0];

    /// The block format, whose scalar code says what is kept of a value.
    #[must_use]
    pub fn blocks(self) -> &'static Format {
        match self {
            Self::F16 => &smelt_quant::formats::f16::F16,
            Self::F32 => &smelt_quant::formats::f32::F32,
            Self::Q8_0 => &smelt_quant::formats::q8_0::Q8_0,
            Self::Q4_0 => &smelt_quant::formats::q4_0::Q4_0,
        }
    }

    /// Its name, as settings spell it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
        }
    }

    /// Bytes of a head of `dim` values.
    #[must_use]
    pub fn head_bytes(self, dim: usize) -> usize {
        let blocks = self.blocks();
        dim.div_ceil(blocks.block_len) * blocks.block_bytes
    }
}

/// How keys and values are held, each by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvFormats {
    /// Format of keys.
    pub k: KvFormat,
    /// Format of values.
    pub v: KvFormat,
}

impl From<KvFormat> for KvFormats {
    /// One format for both.
    fn from(format: KvFormat) -> Self {
        Self { k: format, v: format }
    }
}

/// One layer's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvSpec {
    /// KV heads.
    pub n_kv_heads: usize,
    /// Values per key head.
    pub k_head_dim: usize,
    /// Values per value head.
    pub v_head_dim: usize,
    /// Formats of keys and values.
    pub formats: KvFormats,
}

impl KvSpec {
    /// Bytes that one token takes.
    #[must_use]
    pub fn bytes_per_token(&self) -> usize {
        let k = self.formats.k.head_bytes(self.k_head_dim);
        self.n_kv_heads * (k + self.formats.v.head_bytes(self.v_head_dim))
    }
}

/// A model, compiled: what [`crate::Backend::prepare`] takes. Handles index the lists.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Token ids are below this.
    pub vocab_size: usize,
    /// The largest step.
    pub limits: StepLimits,
    /// Activation buffers.
    pub buffers: Vec<BufferSpec>,
    /// Weights, in the order in which their bytes are given.
    pub weights: Vec<WeightSpec>,
    /// KV caches.
    pub caches: Vec<KvSpec>,
    /// Inverse frequencies of rotations, one per rotated pair, with YaRN and the like already applied.
    pub ropes: Vec<Vec<f32>>,
    /// The operations, in order.
    pub ops: Vec<Op>,
    /// The buffer that [`crate::Backend::read_output`] reads.
    pub output: Buffer,
    /// How hidden states are had instead, where they can be.
    pub states: Option<States>,
}

/// The program's other end: for steps that want each row's hidden state ([`crate::Output::States`]), not what the
/// model makes of some of them.
#[derive(Debug, Clone, PartialEq)]
pub struct States {
    /// How many of [`Program::ops`] come before.
    pub after: usize,
    /// What follows them.
    pub ops: Vec<Op>,
    /// `[rows, width]`: read by [`crate::Backend::read_output`].
    pub output: Buffer,
}

impl Default for StepLimits {
    fn default() -> Self {
        Self { rows: 512, logit_rows: 512 }
    }
}

impl Program {
    /// Adds a buffer of `width` values per row.
    pub fn buffer(&mut self, width: usize) -> Buffer {
        self.buffers.push(BufferSpec { width, logit_rows: false });
        Buffer(self.buffers.len() as u32 - 1)
    }

    /// Adds a buffer whose rows are the logit rows.
    pub fn logit_buffer(&mut self, width: usize) -> Buffer {
        self.buffers.push(BufferSpec { width, logit_rows: true });
        Buffer(self.buffers.len() as u32 - 1)
    }

    /// Adds a weight.
    pub fn weight(&mut self, spec: WeightSpec) -> Weight {
        self.weights.push(spec);
        Weight(self.weights.len() as u32 - 1)
    }

    /// Adds a KV cache.
    pub fn cache(&mut self, spec: KvSpec) -> KvCache {
        self.caches.push(spec);
        KvCache(self.caches.len() as u32 - 1)
    }

    /// Adds a table of inverse frequencies, or finds an equal one.
    pub fn rope(&mut self, inv_freq: Vec<f32>) -> RopeTable {
        let found = self.ropes.iter().position(|r| *r == inv_freq);
        let index = found.unwrap_or_else(|| {
            self.ropes.push(inv_freq);
            self.ropes.len() - 1
        });
        RopeTable(index as u32)
    }

    /// Checks that handles exist and that every operation's shapes fit, and that `weights` have the right sizes.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::Weight`] naming the first fault.
    pub fn validate(&self, weights: &[usize]) -> Result<(), Error> {
        if weights.len() != self.weights.len() {
            let what = format!("{} given, {} needed", weights.len(), self.weights.len());
            return Err(Error::Weight { name: "weights".into(), what });
        }
        for (spec, len) in self.weights.iter().zip(weights) {
            if spec.bytes() != Some(*len) {
                let what = format!("{len} bytes, where {:?} are needed for {spec:?}", spec.bytes());
                return Err(Error::Weight { name: spec.name.clone(), what });
            }
        }
        for (index, op) in self.all_ops().enumerate() {
            op.check(self).map_err(|what| Error::Shape { index, op: op.name(), what })?;
        }
        let outputs = [Some(self.output), self.states.as_ref().map(|states| states.output)];
        let fail = |what: &str| Err(Error::Shape { index: self.ops.len(), op: "output", what: what.into() });
        if outputs.into_iter().flatten().any(|buffer| buffer.index() >= self.buffers.len()) {
            return fail("no such buffer");
        }
        match &self.states {
            Some(states) if states.after > self.ops.len() => {
                fail("states follow more operations than there are")
            }
            Some(states) if self.buffers[states.output.index()].logit_rows => {
                fail("states are of logit rows only")
            }
            _ => Ok(()),
        }
    }

    /// Every operation, those of [`States`] last.
    pub fn all_ops(&self) -> impl Iterator<Item = &Op> {
        self.ops.iter().chain(self.states.iter().flat_map(|states| &states.ops))
    }

    /// The operations of a step that wants `output`, in order; `None` if this program has no such output.
    pub fn ops_for(&self, output: Output) -> Option<impl Iterator<Item = &Op>> {
        let (trunk, end) = match (output, &self.states) {
            (Output::Logits, _) => (self.ops.len(), &[][..]),
            (Output::States, Some(states)) => (states.after, &states.ops[..]),
            (Output::States, None) => return None,
        };
        Some(self.ops[..trunk].iter().chain(end))
    }

    /// The buffer that holds `output`.
    #[must_use]
    pub fn output_for(&self, output: Output) -> Buffer {
        match (output, &self.states) {
            (Output::States, Some(states)) => states.output,
            _ => self.output,
        }
    }

    /// Rows of the smallest table that is read by `index`; `None` if none is.
    #[must_use]
    pub fn table_rows(&self, by: Index) -> Option<usize> {
        let rows = |op: &Op| match op {
            Op::Embed { table, index, .. } if *index == by => Some(self.weights[table.index()].n_out),
            _ => None,
        };
        self.ops.iter().filter_map(rows).min()
    }

    /// Bytes of weights that one decoded token reads: every matrix once, of stacked experts the share in use, of the
    /// embedding one row.
    #[must_use]
    pub fn weight_bytes_per_token(&self) -> u64 {
        let mut parts = vec![0.0; self.weights.len()];
        for op in &self.ops {
            match op {
                Op::MatMul { projections, .. } => {
                    projections.iter().for_each(|p| parts[p.weight.index()] = 1.0)
                }
                Op::Moe(moe) => {
                    for weight in [moe.experts.gate, moe.experts.up, moe.experts.down] {
                        parts[weight.index()] =
                            moe.n_used as f64 / self.weights[weight.index()].n_experts as f64;
                    }
                }
                _ => {}
            }
        }
        let bytes = |(spec, part): (&WeightSpec, f64)| spec.bytes().unwrap_or(0) as f64 * part;
        self.weights.iter().zip(parts).map(bytes).sum::<f64>() as u64
    }
}

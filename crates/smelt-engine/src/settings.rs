//! What the caller decides about a load.

use smelt_backend::KvFormats;
use smelt_cpu::{IsaChoice, Numa, Repack};

/// Which backend runs the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The CPU's integer kernels.
    #[default]
    Cpu,
    /// The scalar f32 reference: exact and slow.
    Reference,
}

/// Settings of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The backend.
    pub backend: BackendChoice,
    /// Tokens that a sequence may have; `None` for what the model was trained on. Memory is taken as it fills.
    pub context: Option<usize>,
    /// Rows per prefill step.
    pub batch: usize,
    /// Rows per step whose logits are wanted; bounds the logits' memory.
    pub logit_rows: usize,
    /// How keys and values are held.
    pub kv_formats: KvFormats,
    /// Threads; `None` for what the container allows.
    pub threads: Option<usize>,
    /// Instruction set; by default the best that the CPU has.
    pub isa: IsaChoice,
    /// Where memory lies on machines with several nodes.
    pub numa: Numa,
    /// Whether weights are copied to faster memory.
    pub repack: Repack,
    /// Accept a tokenizer whose rules are unknown.
    pub force: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backend: BackendChoice::Cpu,
            context: None,
            batch: 512,
            logit_rows: 8,
            kv_formats: KvFormats::default(),
            threads: None,
            isa: IsaChoice::Auto,
            numa: Numa::Off,
            repack: Repack::Auto,
            force: false,
        }
    }
}

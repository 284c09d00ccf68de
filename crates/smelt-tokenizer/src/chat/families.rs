//! Built-in templates for checkpoints that carry none.

/// A template for a family of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// The name by which a user may ask for it.
    pub name: &'static str,
    /// Jinja source for [`ChatTemplate::new`](super::ChatTemplate::new).
    pub template: &'static str,
    /// GGUF architectures it is for; empty means any.
    pub architectures: &'static [&'static str],
    /// Tokens that the vocabulary must have. Without them the model has not seen this format.
    pub markers: &'static [&'static str],
    /// Whether [`family_for`] may choose it. A format that leaves no trace in vocabulary or architecture is given
    /// only when asked for by name.
    pub automatic: bool,
}

/// Every built-in template, the more particular before the more general; the last one fits any model.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "gemma",
        template: include_str!("families/gemma.jinja"),
        architectures: &["gemma", "gemma2", "gemma3"],
        markers: &["<start_of_turn>", "<end_of_turn>"],
        automatic: true,
    },
    Family {
        name: "granite",
        template: include_str!("families/granite.jinja"),
        architectures: &["granite", "granitemoe", "granitehybrid"],
        markers: &["<|start_of_role|>", "<|end_of_role|>"],
        automatic: true,
    },
    Family {
        name: "olmo2",
        template: include_str!("families/olmo2.jinja"),
        architectures: &["olmo2"],
        markers: &[],
        automatic: true,
    },
    Family {
        name: "phi4",
        template: include_str!("families/phi4.jinja"),
        architectures: &["phi3"],
        markers: &["<|im_start|>", "<|im_sep|>", "<|im_end|>"],
        automatic: true,
    },
    Family {
        name: "phi3",
        template: include_str!("families/phi3.jinja"),
        architectures: &["phi3"],
        markers: &["<|user|>", "<|assistant|>", "<|end|>"],
        automatic: true,
    },
    Family {
        name: "qwen",
        template: include_str!("families/qwen.jinja"),
        architectures: &["qwen2", "qwen3", "qwen2moe", "qwen3moe"],
        markers: &["<|im_start|>", "<|im_end|>"],
        automatic: true,
    },
    Family {
        name: "llama3",
        template: include_str!("families/llama3.jinja"),
        architectures: &["llama"],
        markers: &["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
        automatic: true,
    },
    Family {
        name: "smollm",
        template: include_str!("families/smollm.jinja"),
        architectures: &["llama"],
        markers: &["<|im_start|>", "<|im_end|>", "<reponame>"],
        automatic: true,
    },
    Family {
        name: "mistral",
        template: include_str!("families/mistral.jinja"),
        architectures: &["llama"],
        markers: &["[INST]", "[/INST]"],
        automatic: true,
    },
    Family {
        name: "llama2",
        template: include_str!("families/llama2.jinja"),
        architectures: &["llama"],
        markers: &[],
        automatic: false,
    },
    Family {
        name: "chatml",
        template: include_str!("families/chatml.jinja"),
        architectures: &[],
        markers: &["<|im_start|>", "<|im_end|>"],
        automatic: true,
    },
    RAW,
];

/// The messages' text and nothing else: for base models, which know no format.
const RAW: Family = Family {
    name: "raw",
    template: include_str!("families/raw.jinja"),
    architectures: &[],
    markers: &[],
    automatic: true,
};

/// The built-in template for a checkpoint of `architecture` (`general.architecture`) whose vocabulary `has_token`.
pub fn family_for(architecture: &str, has_token: impl Fn(&str) -> bool) -> &'static Family {
    FAMILIES
        .iter()
        .find(|f| {
            f.automatic
                && (f.architectures.is_empty() || f.architectures.contains(&architecture))
                && f.markers.iter().all(|m| has_token(m))
        })
        .unwrap_or(&RAW)
}

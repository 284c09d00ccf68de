//! Well-known texts of special tokens, for files whose metadata doesn't name them.
//!
//! Facts from llama.cpp's vocabulary loader (build 11434), which judges by the same texts.

use crate::source::SpecialIds;

/// A role, how to reach it in [`SpecialIds`], its key, and the texts that fill it when the key is absent.
pub(crate) struct Role {
    pub(crate) key: &'static str,
    pub(crate) field: fn(&mut SpecialIds) -> &mut Option<u32>,
    pub(crate) texts: &'static [&'static str],
}

/// Every role. Order matters only for messages.
pub(crate) const ROLES: &[Role] = &[
    Role { key: "tokenizer.ggml.bos_token_id", field: |s| &mut s.bos, texts: &[] },
    Role { key: "tokenizer.ggml.eos_token_id", field: |s| &mut s.eos, texts: &[] },
    Role {
        key: "tokenizer.ggml.eot_token_id",
        field: |s| &mut s.eot,
        texts: &[
            "<|eot_id|>",
            "<|im_end|>",
            "<|end|>",
            "<end_of_turn>",
            "<|endoftext|>",
            "<|end_of_text|>",
            "<EOT>",
            "_<EOT>",
            "[EOT]",
            "<｜end▁of▁sentence｜>",
            "<end_of_utterance>",
        ],
    },
    Role { key: "tokenizer.ggml.eom_token_id", field: |s| &mut s.eom, texts: &["<|eom_id|>"] },
    Role { key: "tokenizer.ggml.unknown_token_id", field: |s| &mut s.unk, texts: &[] },
    Role { key: "tokenizer.ggml.seperator_token_id", field: |s| &mut s.sep, texts: &[] },
    Role { key: "tokenizer.ggml.padding_token_id", field: |s| &mut s.pad, texts: &[] },
    Role { key: "tokenizer.ggml.mask_token_id", field: |s| &mut s.mask, texts: &[] },
    Role {
        key: "tokenizer.ggml.fim_pre_token_id",
        field: |s| &mut s.fim_pre,
        texts: &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
    },
    Role {
        key: "tokenizer.ggml.fim_suf_token_id",
        field: |s| &mut s.fim_suf,
        texts: &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
    },
    Role {
        key: "tokenizer.ggml.fim_mid_token_id",
        field: |s| &mut s.fim_mid,
        texts: &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
    },
    Role {
        key: "tokenizer.ggml.fim_pad_token_id",
        field: |s| &mut s.fim_pad,
        texts: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
    },
    Role {
        key: "tokenizer.ggml.fim_rep_token_id",
        field: |s| &mut s.fim_rep,
        texts: &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
    },
    Role { key: "tokenizer.ggml.fim_sep_token_id", field: |s| &mut s.fim_sep, texts: &["<|file_sep|>"] },
];

/// Texts that end a generation wherever they occur in a vocabulary.
pub(crate) const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Texts that end a generation only where the file itself calls them control tokens: to Gemma `</s>` is an HTML tag.
pub(crate) const END_TEXTS_IF_CONTROL: &[&str] = &["</s>"];

/// `text` is no end where all of `beside` are ends too: in these vocabularies it closes a part of an answer.
pub(crate) struct NotAnEnd {
    pub(crate) text: &'static str,
    pub(crate) beside: &'static [&'static str],
}

/// Exceptions to [`END_TEXTS`].
pub(crate) const NOT_ENDS: &[NotAnEnd] = &[
    NotAnEnd { text: "<|end|>", beside: &["<|return|>", "<|call|>"] },
    NotAnEnd { text: "<|end|>", beside: &["<|call|>", "<|flush|>"] },
    NotAnEnd { text: "<|end|>", beside: &["<|calls|>", "<|flush|>"] },
    NotAnEnd { text: "</s>", beside: &["<|tool_response>"] },
    NotAnEnd { text: "</s>", beside: &["<|plamo:eos|>"] },
];

/// Control tokens that structure an answer (the harmony format), so that they stay visible in decoded text.
pub(crate) const ALWAYS_SHOWN: &[&str] = &["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// White space that a special token swallows on one side, which GGUF files have no key for.
pub(crate) struct StripRule {
    /// Looks for these in the lower-case model name, the `pre` name and the architecture.
    pub(crate) name: &'static [&'static str],
    pub(crate) pre: &'static [&'static str],
    pub(crate) architecture: &'static [&'static str],
    /// The tokens that swallow what is left of them.
    pub(crate) left: &'static [&'static str],
    /// Whether every special token but those in `not_right` swallows what is right of it.
    pub(crate) right: bool,
    pub(crate) not_right: &'static [&'static str],
}

/// The first rule that applies wins.
pub(crate) const STRIP_RULES: &[StripRule] = &[
    StripRule {
        name: &[],
        pre: &["jina-v2-de", "jina-v2-es", "jina-v2-code", "mmbert"],
        architecture: &["nomic-bert-moe", "jina-bert-v3"],
        left: &["<mask>"],
        right: false,
        not_right: &[],
    },
    StripRule {
        name: &["phi-3", "phi3"],
        pre: &[],
        architecture: &[],
        left: &[],
        right: true,
        not_right: &["<unk>", "<s>", "<|endoftext|>"],
    },
    StripRule {
        name: &["modern-bert"],
        pre: &[],
        architecture: &[],
        left: &["[MASK]"],
        right: false,
        not_right: &[],
    },
];

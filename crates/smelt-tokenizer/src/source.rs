//! The plain description of a vocabulary that the engine fills from a checkpoint.

/// A vocabulary as its file states it; `None` is "the file doesn't say". Field names follow the `tokenizer.ggml.*` keys.
#[derive(Clone, Debug, Default)]
pub struct VocabSource {
    /// `tokenizer.ggml.model`: `llama`, `gpt2`, `gemma4`, `t5`, `bert`.
    pub model: String,
    /// `tokenizer.ggml.pre`: the name of the rules that split text into words (byte-pair kinds only).
    pub pre: Option<String>,
    /// `general.architecture`.
    pub architecture: String,
    /// `general.name`; some families' space rules around special tokens are known only by it.
    pub name: Option<String>,
    /// Texts, by id.
    pub tokens: Vec<String>,
    /// Log-probabilities or merge priorities, by id; empty or as long as `tokens`.
    pub scores: Vec<f32>,
    /// 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte, by id; empty or as long as `tokens`.
    pub token_types: Vec<i32>,
    /// `left right`, best first (byte-pair kinds only).
    pub merges: Vec<String>,
    /// Ids with a role.
    pub special: SpecialIds,
    /// Further ids that end a generation (`tokenizer.ggml.eos_token_ids` and the like).
    pub eog: Vec<u32>,
    /// Whether an encoded text starts with BOS.
    pub add_bos: Option<bool>,
    /// Whether an encoded text ends with EOS.
    pub add_eos: Option<bool>,
    /// Whether an encoded text ends with SEP (`bert`).
    pub add_sep: Option<bool>,
    /// Whether a space goes before the text.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces become one (`t5`).
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether spaces are written as U+2581 inside of the vocabulary (`t5`).
    pub escape_whitespaces: Option<bool>,
    /// Whether the space of `add_space_prefix` goes behind the text instead (`t5`).
    pub treat_whitespace_as_suffix: Option<bool>,
    /// Whether text becomes lower-case first (`bert`).
    pub lowercase: Option<bool>,
    /// Whether accents are dropped first (`bert`); as `lowercase` when unsaid.
    pub strip_accents: Option<bool>,
    /// SentencePiece's compiled normalization rules (`t5`).
    pub precompiled_charsmap: Option<Vec<u8>>,
}

/// Ids with a role, as `tokenizer.ggml.<role>_token_id` give them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is its key's name")]
pub struct SpecialIds {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
    pub pad: Option<u32>,
    pub mask: Option<u32>,
    pub fim_pre: Option<u32>,
    pub fim_suf: Option<u32>,
    pub fim_mid: Option<u32>,
    pub fim_pad: Option<u32>,
    pub fim_rep: Option<u32>,
    pub fim_sep: Option<u32>,
}

/// What to do with a vocabulary that is doubtful but usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Refuse it.
    Strict,
    /// Use it: an unknown `pre` splits by the `default` rules, repeated texts and unusable merges are tolerated.
    Force,
}

/// How an encoder reads text that looks like a control token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `<|im_end|>` in the text becomes that control token. For templates.
    Parse,
    /// It stays plain text. For whatever a user typed. User-defined tokens (type 4) are found all the same.
    Text,
}

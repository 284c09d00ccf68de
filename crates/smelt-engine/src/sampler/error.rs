//! What can be wrong with sampler settings or with the logits of a step.

/// Why a sampler was not built, or why a step has no token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SampleError {
    /// A numeric setting is NaN or outside its range.
    #[error("sampler setting `{field}` is {value}, which is not {range}; {off}")]
    Setting {
        /// The field of [`super::SamplerSettings`].
        field: &'static str,
        /// What it was set to.
        value: f32,
        /// The values that are allowed, as text.
        range: &'static str,
        /// The value that means "off" or the usual one, as text.
        off: &'static str,
    },
    /// A stage is listed twice in the chain.
    #[error("the sampler chain lists the stage `{stage}` more than once; list each stage at most once")]
    RepeatedStage {
        /// The stage's name.
        stage: &'static str,
    },
    /// A logit bias that is NaN or +inf.
    #[error("the logit bias of token {token} is {bias}; use a finite number, or -inf to ban the token")]
    Bias {
        /// The token that the bias is for.
        token: u32,
        /// The refused bias.
        bias: f32,
    },
    /// A token of the settings that the vocabulary does not have.
    #[error("`{field}` names token {token}, but the model's vocabulary has only {vocab_size} tokens")]
    UnknownToken {
        /// The field of [`super::SamplerSettings`].
        field: &'static str,
        /// The token that does not exist.
        token: u32,
        /// How many tokens there are.
        vocab_size: usize,
    },
    /// A DRY sequence breaker with no tokens or too many.
    #[error("a DRY sequence breaker has {len} tokens; it needs 1 to {max}: use a shorter string")]
    Breaker {
        /// How many tokens it has.
        len: usize,
        /// How many it may have.
        max: usize,
    },
    /// A row of logits of another length than the vocabulary.
    #[error("{got} logits were given to a sampler for a vocabulary of {vocab_size} tokens")]
    WrongLength {
        /// How many logits came.
        got: usize,
        /// How many there must be.
        vocab_size: usize,
    },
    /// A logit is NaN or +inf: the model's arithmetic overflowed or its file is damaged.
    #[error("the logit of token {token} is {value}, so no token can be chosen")]
    NotFinite {
        /// The first such token.
        token: u32,
        /// Its logit: NaN or +inf.
        value: f32,
    },
    /// Every token has a logit of −inf.
    #[error("all tokens are masked (every logit is -inf), so no token can be chosen")]
    AllMasked,
}

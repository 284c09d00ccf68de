//! The families, one file each. See `docs/adding-an-architecture.md`.

mod bert;
mod gemma;
mod gemma2;
mod gemma3;
mod granite;
mod llama;
mod nomic_bert;
mod olmo2;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen3moe;
mod smollm3;
mod toy;

use crate::{
    AttentionSpec, EmbeddingSpec, Error, FeedForward, Fusion, Head, Keys, LayerSpec, ModelSpec, MoeSpec,
    Norm, NormPlacement, Pooling, QkNorm, RopeSpec, rope,
};
use smelt_backend::{Activation, Gating, Mask, RopeStyle};

/// One family.
#[derive(Debug)]
pub struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// Published models of the family, for `smelt show` and the docs.
    pub models: &'static str,
    /// Reads the spec from metadata, for a cache of so many tokens.
    pub spec: fn(&Keys<'_>, context: usize) -> Result<ModelSpec, Error>,
}

/// Every family that Smelt runs.
pub static ARCHITECTURES: &[&Architecture] = &[
    &bert::BERT,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &granite::GRANITE,
    &llama::LLAMA,
    &nomic_bert::NOMIC_BERT,
    &olmo2::OLMO2,
    &phi3::PHI3,
    &qwen2::QWEN2,
    &qwen2moe::QWEN2MOE,
    &qwen3::QWEN3,
    &qwen3moe::QWEN3MOE,
    &smollm3::SMOLLM3,
    &toy::TOY,
];

/// What nearly every decoder is: pre-norms, grouped-query attention with rotation, a gated SiLU feed-forward, and no
/// scales or caps. A family starts from here and states its differences.
fn base(keys: &Keys<'_>, style: RopeStyle, context: usize) -> Result<ModelSpec, Error> {
    transformer(keys, Norm::Rms, |head_dim| rope::from_keys(keys, style, head_dim, context).map(Some))
}

/// [`base`] with any norm, and with a rotation for heads of so many values or none.
fn transformer(
    keys: &Keys<'_>,
    norm: Norm,
    rope: impl FnOnce(usize) -> Result<Option<RopeSpec>, Error>,
) -> Result<ModelSpec, Error> {
    let hidden_dim = keys.require_count("embedding_length")?;
    let n_layers = keys.n_layers()?;
    let heads = keys.count_per_layer("attention.head_count", n_layers)?;
    let kv_heads = match keys.checkpoint().metadata().get(&keys.full("attention.head_count_kv")) {
        Some(_) => keys.count_per_layer("attention.head_count_kv", n_layers)?,
        None => heads.clone(),
    };
    let ffn_dims = keys.count_per_layer("feed_forward_length", n_layers)?;
    let head_dim = keys.count("attention.key_length")?.unwrap_or(hidden_dim / heads[0]);
    let v_head_dim = keys.count("attention.value_length")?.unwrap_or(head_dim);
    check_heads(keys, &heads, &kv_heads, head_dim, v_head_dim)?;
    let rope = rope(head_dim)?;
    let mask = if keys.flag("attention.causal")? == Some(false) { Mask::Full } else { Mask::Causal };
    let layer = |index: usize| LayerSpec {
        norms: NormPlacement::Pre,
        attention: AttentionSpec {
            n_heads: heads[index],
            n_kv_heads: kv_heads[index],
            head_dim,
            v_head_dim,
            qkv: Fusion::Separate,
            qk_norm: QkNorm::None,
            rope: rope.clone(),
            scale: 1.0 / (head_dim as f32).sqrt(),
            softcap: None,
            mask,
            window: None,
        },
        feed_forward: FeedForward::Gated {
            ffn_dim: ffn_dims[index],
            gate_up: Fusion::Separate,
            activation: Activation::Silu,
        },
        residual_scale: 1.0,
    };
    Ok(ModelSpec {
        hidden_dim,
        vocab_size: vocab_size(keys)?,
        context_length: keys.require_count("context_length")?,
        embedding: EmbeddingSpec { scale: 1.0, positions: None, segments: None, norm: false },
        layers: (0..n_layers).map(layer).collect(),
        norm,
        norm_eps: keys.require_float(match norm {
            Norm::Rms => "attention.layer_norm_rms_epsilon",
            Norm::Layer => "attention.layer_norm_epsilon",
        })?,
        output_norm: true,
        head: head(keys)?.unwrap_or(Head::Vocabulary),
        pooling: pooling(keys, mask)?,
        logit_scale: 1.0,
        final_softcap: None,
    })
}

/// The labels that the file has scores for.
fn head(keys: &Keys<'_>) -> Result<Option<Head>, Error> {
    let Some(scores) = keys.checkpoint().tensor("cls.output.weight") else { return Ok(None) };
    Ok(Some(Head::Labels(scores.info.shape.get(1).copied().unwrap_or(1))))
}

/// The pooling that `pooling_type` names (llama.cpp's numbers), or what is usual where it doesn't: the last token of a
/// causal model has seen all others, where all see all their mean is taken. A scored text's embedding is the state that is
/// scored.
fn pooling(keys: &Keys<'_>, mask: Mask) -> Result<Pooling, Error> {
    const RANK: usize = 4;
    match (keys.count("pooling_type")?, mask) {
        (None, Mask::Full) => Ok(Pooling::Mean),
        (Some(RANK), Mask::Full) => Ok(Pooling::First),
        (None | Some(RANK), Mask::Causal) => Ok(Pooling::Last),
        (Some(number), _) => match Pooling::ALL.get(number) {
            Some(pooling) => Ok(*pooling),
            None => Err(keys.error("pooling_type", format!("is {number}, which is unknown"))),
        },
    }
}

/// The vocabulary is what the embedding says; a `vocab_size` key may count padding differently.
fn vocab_size(keys: &Keys<'_>) -> Result<usize, Error> {
    let embedding = keys.checkpoint().require("token_embd.weight")?;
    Ok(embedding.info.shape.get(1).copied().unwrap_or(1))
}

/// Heads that divide, and products that a real tensor could have.
fn check_heads(
    keys: &Keys<'_>,
    heads: &[usize],
    kv_heads: &[usize],
    k: usize,
    v: usize,
) -> Result<(), Error> {
    const LARGEST: usize = 1 << 24;
    if k == 0 || v == 0 {
        return Err(keys.error("attention.key_length", "is 0"));
    }
    for (n, n_kv) in heads.iter().zip(kv_heads) {
        if !n.is_multiple_of(*n_kv) {
            let what = format!("is {n_kv}, which does not divide the {n} query heads");
            return Err(keys.error("attention.head_count_kv", what));
        }
        if n.checked_mul(k.max(v)).is_none_or(|width| width > LARGEST) {
            return Err(keys.error("attention.head_count", format!("{n} heads of {} are too many", k.max(v))));
        }
    }
    Ok(())
}

/// The mixture that the `expert_*` keys describe; `None` if the model has no experts.
fn mixture(keys: &Keys<'_>, gating: Gating) -> Result<Option<MoeSpec>, Error> {
    let n_experts = keys.count("expert_count")?.unwrap_or(0);
    if n_experts == 0 {
        return Ok(None);
    }
    let n_used = keys.require_count("expert_used_count")?;
    if n_used > n_experts {
        return Err(keys.error("expert_used_count", format!("is {n_used} of {n_experts} experts")));
    }
    let ffn_dim = match keys.count("expert_feed_forward_length")? {
        Some(n) if n > 0 => n,
        _ => keys.require_count("feed_forward_length")?,
    };
    let gating = match keys.flag("expert_weights_norm")? {
        Some(true) => Gating::SoftmaxNormalized,
        Some(false) => Gating::Softmax,
        None => gating,
    };
    let scale = keys.float("expert_weights_scale")?.filter(|s| *s != 0.0).unwrap_or(1.0);
    Ok(Some(MoeSpec {
        n_experts,
        n_used,
        ffn_dim,
        gating,
        scale,
        activation: Activation::Silu,
        shared: None,
    }))
}

impl ModelSpec {
    /// Changes every layer; `f` gets its index.
    fn each_layer(mut self, f: impl Fn(usize, &mut LayerSpec)) -> Self {
        self.layers.iter_mut().enumerate().for_each(|(index, layer)| f(index, layer));
        self
    }

    /// Changes every layer's attention.
    fn each_attention(self, f: impl Fn(usize, &mut AttentionSpec)) -> Self {
        self.each_layer(|index, layer| f(index, &mut layer.attention))
    }
}

/// What BERT and its kin share: layer norms behind the residual, one on the sum that the layers begin with and none behind
/// them, and states as what they are for, or labels.
fn encoder(
    keys: &Keys<'_>,
    rope: impl FnOnce(usize) -> Result<Option<RopeSpec>, Error>,
) -> Result<ModelSpec, Error> {
    let mut spec = transformer(keys, Norm::Layer, rope)?;
    let segments = rows(keys, "token_types.weight");
    spec.embedding = EmbeddingSpec { scale: 1.0, positions: None, segments, norm: true };
    spec.output_norm = false;
    spec.head = head(keys)?.unwrap_or(Head::None);
    // What the key says of other families is the usual here.
    let mask = if keys.flag("attention.causal")? == Some(true) { Mask::Causal } else { Mask::Full };
    spec.pooling = pooling(keys, mask)?;
    Ok(spec.each_layer(|_, layer| {
        layer.norms = NormPlacement::AfterResidual;
        layer.attention.mask = mask;
    }))
}

/// Rows of a table, if the file has it.
fn rows(keys: &Keys<'_>, name: &str) -> Option<usize> {
    Some(keys.checkpoint().tensor(name)?.info.shape.get(1).copied().unwrap_or(1))
}

/// What Gemma's generations share: embeddings scaled by √hidden_dim, a GELU gate. (Norm weights are stored with their
/// `+ 1` already added.)
fn gemma_base(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let mut spec = base(keys, RopeStyle::Halves, context)?;
    spec.embedding.scale = (spec.hidden_dim as f32).sqrt();
    Ok(spec.each_layer(|_, layer| {
        if let FeedForward::Gated { activation, .. } = &mut layer.feed_forward {
            *activation = Activation::GeluTanh;
        }
    }))
}

/// A sliding window on all but every `period`-th layer, whose rotation is `local`.
fn alternate_windows(spec: ModelSpec, window: usize, period: usize, local: Option<&RopeSpec>) -> ModelSpec {
    spec.each_attention(|index, attention| {
        if index % period < period - 1 {
            attention.window = Some(window);
            if let Some(local) = local {
                attention.rope = Some(local.clone());
            }
        }
    })
}

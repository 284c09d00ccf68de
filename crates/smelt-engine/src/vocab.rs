//! From a checkpoint's metadata to the tokenizer's own description of a vocabulary.

use smelt_checkpoint::{Error, Metadata};
use smelt_tokenizer::{SpecialIds, VocabSource};

/// Keys under which files list further ids that end a generation.
const EOG_KEYS: &[&str] = &["tokenizer.ggml.eos_token_ids", "tokenizer.ggml.eog_token_ids"];

/// What `metadata` says about the vocabulary (`tokenizer.ggml.*`).
///
/// # Errors
/// If the model kind or the tokens are missing, or a key has another type than it should.
pub fn vocab_source(metadata: &Metadata) -> Result<VocabSource, Error> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let flag = |name: &str| metadata.bool(&key(name));
    let mut eog = Vec::new();
    for key in EOG_KEYS {
        eog.extend(metadata.u32_array(key)?.unwrap_or_default());
    }
    Ok(VocabSource {
        model: metadata.require_str(&key("model"))?.into(),
        pre: metadata.str(&key("pre"))?.map(Into::into),
        architecture: metadata.str("general.architecture")?.unwrap_or_default().into(),
        name: metadata.str("general.name")?.map(Into::into),
        tokens: metadata.require_str_array(&key("tokens"))?.to_vec(),
        scores: scores(metadata, &key("scores"))?,
        token_types: metadata.i32_array(&key("token_type"))?.unwrap_or_default(),
        merges: metadata.str_array(&key("merges"))?.unwrap_or_default().to_vec(),
        special: special_ids(metadata)?,
        eog,
        add_bos: flag("add_bos_token")?,
        add_eos: flag("add_eos_token")?,
        add_sep: flag("add_sep_token")?,
        add_space_prefix: flag("add_space_prefix")?,
        remove_extra_whitespaces: flag("remove_extra_whitespaces")?,
        escape_whitespaces: flag("escape_whitespaces")?,
        treat_whitespace_as_suffix: flag("treat_whitespace_as_suffix")?,
        lowercase: flag("normalizer.lowercase")?,
        strip_accents: flag("normalizer.strip_accents")?,
        precompiled_charsmap: charsmap(metadata, &key("precompiled_charsmap"))?,
    })
}

/// Some converters wrote the scores as integers.
fn scores(metadata: &Metadata, key: &str) -> Result<Vec<f32>, Error> {
    match metadata.f32_array(key) {
        Ok(scores) => Ok(scores.unwrap_or_default().to_vec()),
        Err(error) => match metadata.i32_array(key) {
            #[expect(clippy::cast_precision_loss, reason = "merge ranks are far below 2^24")]
            Ok(Some(scores)) => Ok(scores.into_iter().map(|s| s as f32).collect()),
            _ => Err(error),
        },
    }
}

/// The rules are bytes, signed in some files.
fn charsmap(metadata: &Metadata, key: &str) -> Result<Option<Vec<u8>>, Error> {
    let bytes = metadata.i32_array(key)?;
    Ok(bytes.map(|bytes| bytes.into_iter().map(|b| b.to_le_bytes()[0]).collect()))
}

fn special_ids(metadata: &Metadata) -> Result<SpecialIds, Error> {
    let id = |name: &str| metadata.u32(&format!("tokenizer.ggml.{name}_token_id"));
    // The second name is the one that older files use.
    let either = |name: &str, old: &str| Ok(id(name)?.or(id(old)?));
    Ok(SpecialIds {
        bos: either("bos", "cls")?,
        eos: id("eos")?,
        eot: id("eot")?,
        eom: id("eom")?,
        unk: id("unknown")?,
        sep: either("seperator", "separator")?,
        pad: id("padding")?,
        mask: id("mask")?,
        fim_pre: either("fim_pre", "prefix")?,
        fim_suf: either("fim_suf", "suffix")?,
        fim_mid: either("fim_mid", "middle")?,
        fim_pad: id("fim_pad")?,
        fim_rep: id("fim_rep")?,
        fim_sep: id("fim_sep")?,
    })
}

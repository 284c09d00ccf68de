//! Text between two others, by a model that was trained to fill it in (Bavarian et al. 2022, arXiv 2207.14255).

use crate::{Error, Model};
use smelt_tokenizer::Special;

impl Model {
    /// The prompt whose answer stands between `prefix` and `suffix`. What they say never becomes a control token.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for it.
    pub fn infill(&self, prefix: &str, suffix: &str) -> Result<Vec<u32>, Error> {
        let ids = self.tokenizer.special_ids();
        let (Some(pre), Some(suf), Some(mid)) = (ids.fim_pre, ids.fim_suf, ids.fim_mid) else {
            let why = "its vocabulary has no tokens for it";
            return Err(Error::Unable { model: self.facts.name.clone(), what: "fill text in", why });
        };
        let bos = self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos());
        let encode = |text| self.tokenizer.encode(text, Special::Text, false);
        Ok(bos
            .into_iter()
            .chain([pre])
            .chain(encode(prefix))
            .chain([suf])
            .chain(encode(suffix))
            .chain([mid])
            .collect())
    }
}

//! Text between two others, by a model that was trained to fill it in (Bavarian et al. 2022, arXiv 2207.14255), and that may
//! be shown other files of the same repository before (Qwen2.5-Coder, arXiv 2409.12186).

use crate::{Error, Model};
use smelt_tokenizer::Special;

/// What an answer stands between.
#[derive(Debug, Clone, Copy, Default)]
pub struct Infill<'a> {
    /// Text in front of it.
    pub prefix: &'a str,
    /// Text behind it.
    pub suffix: &'a str,
    /// What it begins with.
    pub begun: &'a str,
    /// Other files, names where they are known, and texts. A model whose vocabulary has no token that parts files reads them
    /// as one text.
    pub files: &'a [(Option<String>, String)],
}

/// What stands between files where the vocabulary has no token for it.
const SNIPPET: &str = "\n\n--- snippet ---\n\n";
/// What the repository, a file without a name and the file to be filled in are called: the pattern has places for names.
const REPOSITORY: &str = "repository\n";
const UNNAMED: &str = "file";
const THIS_FILE: &str = "this_file\n";

impl Model {
    /// The prompt whose answer stands between two texts. What they say never becomes a control token.
    ///
    /// # Errors
    /// If the vocabulary has no tokens for it.
    pub fn infill(&self, around: Infill<'_>) -> Result<Vec<u32>, Error> {
        let ids = self.tokenizer.special_ids();
        let (Some(pre), Some(suf), Some(mid)) = (ids.fim_pre, ids.fim_suf, ids.fim_mid) else {
            let why = "its vocabulary has no tokens for it";
            return Err(Error::Unable { model: self.facts.name.clone(), what: "fill text in", why });
        };
        let encode = |text: &str| self.tokenizer.encode(text, Special::Text, false);
        let mut tokens: Vec<u32> =
            self.tokenizer.bos().filter(|_| self.tokenizer.adds_bos()).into_iter().collect();
        if !around.files.is_empty() {
            tokens.extend(ids.fim_rep);
            tokens.extend(ids.fim_rep.map(|_| encode(REPOSITORY)).unwrap_or_default());
            for (name, text) in around.files {
                match ids.fim_sep {
                    Some(sep) => {
                        tokens.push(sep);
                        tokens.extend(encode(&format!("{}\n", name.as_deref().unwrap_or(UNNAMED))));
                    }
                    None => tokens.extend(encode(SNIPPET)),
                }
                tokens.extend(encode(text));
            }
            tokens.extend(ids.fim_sep);
            tokens.extend(ids.fim_sep.map(|_| encode(THIS_FILE)).unwrap_or_default());
        }
        tokens.push(pre);
        tokens.extend(encode(around.prefix));
        tokens.push(suf);
        tokens.extend(encode(around.suffix));
        tokens.push(mid);
        tokens.extend(encode(around.begun));
        Ok(tokens)
    }
}

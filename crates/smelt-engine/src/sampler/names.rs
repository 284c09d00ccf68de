//! What llama.cpp calls the stages, in requests and in files.

use super::Stage;

/// What a name of llama.cpp's stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A stage.
    Stage(Stage),
    /// The repetition penalties. They edit the logits, before all stages.
    Penalties,
    /// DRY, which does so too.
    Dry,
}

/// The names without `_` and `-`, a letter each first: where the stages are one word, it has these.
const NAMES: [(&[&str], Named); 10] = [
    (&["e", "penalties"], Named::Penalties),
    (&["d", "dry"], Named::Dry),
    (&["s", "topnsigma"], Named::Stage(Stage::TopNSigma)),
    (&["k", "topk"], Named::Stage(Stage::TopK)),
    (&["y", "typp", "typ", "typical", "typicalp"], Named::Stage(Stage::Typical)),
    (&["p", "topp", "nucleus"], Named::Stage(Stage::TopP)),
    (&["m", "minp"], Named::Stage(Stage::MinP)),
    (&["x", "xtc"], Named::Stage(Stage::Xtc)),
    (&["t", "temperature", "temp"], Named::Stage(Stage::Temperature)),
    (&["i", "infill"], Named::Stage(Stage::Infill)),
];

impl Named {
    /// What a name stands for, in any of its spellings: `top_k`, `top-k`, `TopK`, `k`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let plain = name.replace(['_', '-'], "").to_lowercase();
        NAMES.iter().find(|(names, _)| names.contains(&plain.as_str())).map(|(_, named)| *named)
    }

    /// Its name in answers and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stage(stage) => stage.name(),
            Self::Penalties => "penalties",
            Self::Dry => "dry",
        }
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        NAMES.iter().map(|(_, named)| *named)
    }
}

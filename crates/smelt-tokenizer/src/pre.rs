//! The pre-tokenizers that `tokenizer.ggml.pre` names, as data.
//!
//! Names and flags are those that llama.cpp (build 11434) knows.

use crate::patterns as p;
use crate::split::Spaces::{Cascade, KeepLast, Plain};
use crate::split::Step::{self, Match, Metaspace, Thousands};

/// One set of rules and the names that files give it.
#[derive(Debug)]
pub(crate) struct Pre {
    pub(crate) names: &'static [&'static str],
    pub(crate) steps: &'static [Step],
    /// A word that is a token as a whole stays whole, whatever the merges say.
    pub(crate) ignore_merges: bool,
    /// The same for words of nothing but newlines.
    pub(crate) whole_newlines: bool,
    /// BOS goes in front when the metadata doesn't say.
    pub(crate) add_bos: bool,
    /// BOS goes in front even when the metadata says it doesn't: converters wrote that by mistake.
    pub(crate) force_bos: bool,
    /// Whether SEP ends a text when the metadata doesn't say.
    pub(crate) add_sep: bool,
    /// Tokens are GPT-2's stand-ins for bytes; otherwise text with escaped spaces, and bytes are `<0xHH>`.
    pub(crate) byte_level: bool,
    /// The model was trained on text in Unicode's composed normal form.
    pub(crate) nfc: bool,
}

const BASE: Pre = Pre {
    names: &[],
    steps: &[],
    ignore_merges: false,
    whole_newlines: false,
    add_bos: false,
    force_bos: false,
    add_sep: false,
    byte_level: true,
    nfc: false,
};

/// What an unknown name falls back to when it is forced.
pub(crate) const DEFAULT: &str = "default";

/// The name that `tokenizer.ggml.model = gemma4` implies.
pub(crate) const GEMMA4: &str = "gemma4";

const GPT2: &[Step] = &[Match(p::GPT2, KeepLast)];
const DIGITS_GPT2: &[Step] = &[Match(r"\p{N}", Plain), Match(p::GPT2, KeepLast)];
const LLAMA3: &[Step] = &[Match(p::LLAMA3, KeepLast)];
const QWEN2: &[Step] = &[Match(p::QWEN2, KeepLast)];
const GPT4O: &[Step] = &[Match(p::GPT4O, KeepLast)];
const BLOOM: &[Step] = &[Match(p::BLOOM, Plain)];
const LINES: &[Step] = &[Match(p::LINES, Plain)];
const DEEPSEEK_V3: &[Step] =
    &[Match(r"\p{N}{1,3}", Plain), Match(p::CHINESE_KANA, Plain), Match(p::DEEPSEEK_V3, KeepLast)];

/// Every known pre-tokenizer.
pub(crate) const PRES: &[Pre] = &[
    Pre {
        names: &[DEFAULT],
        steps: &[
            Match(r"[\p{P}\$\+<=>\^~\|]+", Plain),
            Match(p::GPT2, KeepLast),
            Match(r"\p{N}+", Plain),
            Match("[0-9][0-9][0-9]", Plain),
        ],
        ..BASE
    },
    Pre {
        names: &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: LLAMA3,
        ignore_merges: true,
        add_bos: true,
        ..BASE
    },
    Pre { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], steps: LLAMA3, ..BASE },
    Pre { names: &["glm4", "glm5"], steps: LLAMA3, ignore_merges: true, ..BASE },
    Pre {
        names: &["minicpm5"],
        steps: &[Match(r"\p{N}{1,3}", Plain), Match(p::MINICPM5, KeepLast)],
        ignore_merges: true,
        ..BASE
    },
    Pre {
        names: &["jais-2"],
        steps: &[Match(p::LLAMA3, Cascade(&[512, 256, 128, 64, 32, 16, 8, 4]))],
        ..BASE
    },
    Pre {
        names: &["deepseek-llm"],
        steps: &[
            Match(r"[\r\n]", Plain),
            Match(p::DEEPSEEK_LETTERS, Plain),
            Match(p::DEEPSEEK_PUNCTUATION, Plain),
            Match(r"\s+$", Plain),
            Match(p::DEEPSEEK_CJK, Plain),
            Match(r"\p{N}+", Plain),
        ],
        ..BASE
    },
    Pre {
        names: &["deepseek-coder"],
        steps: &[
            Match(r"[\r\n]", Plain),
            Match(r"\s?\p{L}+", Plain),
            Match(r"\s?\p{P}+", Plain),
            Match(p::DEEPSEEK_CJK, Plain),
            Match(r"\p{N}", Plain),
        ],
        ..BASE
    },
    Pre { names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"], steps: DEEPSEEK_V3, ..BASE },
    Pre {
        names: &["spark2_5"],
        steps: &[
            Match(r"\p{N}{1,3}", Plain),
            Match(p::CHINESE_KANA, Plain),
            Match(p::SPARK2_5, KeepLast),
            Match(r"\p{N}", Plain),
        ],
        ..BASE
    },
    Pre {
        names: &["youtu"],
        steps: &[Match(p::YOUTU_SCRIPTS, Plain), Match(p::YOUTU, KeepLast)],
        ignore_merges: true,
        ..BASE
    },
    Pre {
        names: &["falcon"],
        steps: &[
            Match(r"[\p{P}\$\+<=>\^~\|`]+", Plain),
            Match(p::GPT2, KeepLast),
            Match("[0-9][0-9][0-9]", Plain),
        ],
        ..BASE
    },
    Pre { names: &["mpt", "olmo"], steps: GPT2, nfc: true, ..BASE },
    Pre {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        steps: GPT2,
        ..BASE
    },
    Pre { names: &["jina-v1-en", "jina-v2-code", "roberta-bpe"], steps: GPT2, add_sep: true, ..BASE },
    Pre {
        names: &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        steps: DIGITS_GPT2,
        ..BASE
    },
    Pre { names: &["qwen2"], steps: QWEN2, nfc: true, ..BASE },
    Pre {
        names: &[
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        steps: QWEN2,
        ..BASE
    },
    Pre { names: &["qwen35"], steps: &[Match(p::QWEN35, KeepLast)], ..BASE },
    Pre { names: &["poro-chat", "bloom", "gpt3-finnish"], steps: BLOOM, ..BASE },
    Pre { names: &["viking"], steps: &[Match(p::BLOOM, Plain), Match(r"\p{N}", Plain)], ..BASE },
    Pre {
        names: &["tekken"],
        steps: &[Match(p::TEKKEN, KeepLast)],
        ignore_merges: true,
        add_bos: true,
        ..BASE
    },
    Pre {
        names: &["chameleon"],
        steps: &[
            Match("<sentinel:[0-9]+>", Plain),
            Match("IMGIMG[A-I]{1,4}Z", Plain),
            Match(r"[\t\n]|    |  ", Plain),
            Match(r"\p{N}", Plain),
            Match(r"[\p{P}!-/:-@\[-`{-~]", Plain),
            Match(p::GPT2, KeepLast),
        ],
        add_bos: true,
        ..BASE
    },
    Pre { names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"], steps: GPT4O, ..BASE },
    Pre { names: &["granite-embed-multi-97m"], steps: GPT4O, ignore_merges: true, ..BASE },
    Pre {
        names: &["tiny_aya", "cohere2moe"],
        steps: &[Thousands { run: r"\d+", bounded: true }, Match(p::GPT4O, KeepLast)],
        ..BASE
    },
    Pre { names: &["kimi-k2"], steps: &[Match(p::KIMI_K2, KeepLast)], ..BASE },
    Pre {
        names: &["superbpe"],
        steps: &[Match(r"\p{N}+", Plain), Thousands { run: r"\d+", bounded: false }],
        ..BASE
    },
    Pre {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        steps: &[Match(p::BAILINGMOE, KeepLast)],
        ..BASE
    },
    Pre { names: &["seed-coder"], steps: &[Match(p::SEED_CODER, KeepLast)], ..BASE },
    Pre { names: &["ufakzeka"], steps: &[Match(p::UFAKZEKA, KeepLast)], ..BASE },
    Pre {
        names: &["afmoe"],
        steps: &[
            Thousands { run: r"\p{N}+", bounded: false },
            Match(p::AFMOE_SCRIPTS, Plain),
            Match(p::DEEPSEEK_V3, KeepLast),
        ],
        ..BASE
    },
    Pre { names: &["laguna"], steps: &[Match(p::LINES, Plain), Match(p::QWEN2, KeepLast)], ..BASE },
    Pre { names: &["exaone-moe"], steps: &[Match(p::EXAONE_MOE, KeepLast)], ..BASE },
    Pre {
        names: &[GEMMA4, "granite-embed-multi-311m"],
        steps: LINES,
        whole_newlines: true,
        add_bos: true,
        force_bos: true,
        byte_level: false,
        ..BASE
    },
    Pre { names: &["sarvam-moe"], steps: LINES, byte_level: false, ..BASE },
    Pre {
        names: &["mmbert"],
        steps: &[Match(p::LINES, Plain), Metaspace],
        whole_newlines: true,
        byte_level: false,
        ..BASE
    },
];

/// The rules that `name` stands for.
pub(crate) fn find(name: &str) -> Option<&'static Pre> {
    PRES.iter().find(|pre| pre.names.contains(&name))
}

/// All names, sorted, for messages and lists.
pub fn known_pre_names() -> Vec<&'static str> {
    let mut names: Vec<_> = PRES.iter().flat_map(|pre| pre.names).copied().collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::Splitter;

    #[test]
    fn names_are_unique_and_patterns_compile() {
        let names = known_pre_names();
        let mut unique = names.clone();
        unique.dedup();
        assert_eq!(names, unique);
        for pre in PRES {
            Splitter::new(pre.steps).unwrap_or_else(|e| panic!("{:?}: {e}", pre.names));
        }
    }
}

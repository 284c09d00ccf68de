//! Token ids of real vocabularies against llama.cpp's expected ids, real references, and Hugging Face's tokenizers.

use smelt_checkpoint::Checkpoint;
use smelt_engine::vocab::vocab_source;
use smelt_testdata::fetched;
use smelt_tokenizer::{Special, Strictness, Tokenizer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn load_with(path: &Path, strict: Strictness) -> Tokenizer {
    let checkpoint = Checkpoint::open(path).unwrap_or_else(|e| panic!("{e}"));
    let source = vocab_source(checkpoint.metadata()).unwrap_or_else(|e| panic!("{e}"));
    Tokenizer::new(source, strict).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn load(path: &Path) -> Tokenizer {
    load_with(path, Strictness::Strict)
}

/// The vocabularies of llama.cpp's source tree that have expected ids.
const WITH_IDS: &[&str] = &[
    "bert-bge",
    "command-r",
    "deepseek-coder",
    "deepseek-llm",
    "falcon",
    "gemma-4",
    "gpt-2",
    "llama-bpe",
    "llama-spm",
    "mpt",
    "phi-3",
    "qwen2",
    "qwen35",
    "refact",
    "starcoder",
];

/// A vocabulary file of llama.cpp, its inputs and the ids it expects.
fn llama_cpp_cases(name: &str) -> (PathBuf, Vec<(String, Vec<u32>)>) {
    let path = fetched(&format!("llama.cpp/models/ggml-vocab-{name}.gguf"));
    let beside = |extension| std::fs::read_to_string(path.with_added_extension(extension)).unwrap();
    // This line separates inputs, and the breaks around it belong to it; most files end with one.
    let inputs = beside("inp");
    let mut inputs: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
    if inputs.last() == Some(&"") {
        inputs.pop();
    }
    let ids = beside("out");
    let ids = ids.lines().map(|l| l.split_whitespace().map(|id| id.parse().unwrap()).collect());
    let cases: Vec<_> = inputs.iter().map(ToString::to_string).zip(ids).collect();
    assert_eq!(cases.len(), inputs.len(), "{name}");
    (path, cases)
}

#[test]
fn ids_equal_llama_cpps() {
    let mut wrong = Vec::new();
    for name in WITH_IDS {
        let (path, cases) = llama_cpp_cases(name);
        let tokenizer = load(&path);
        assert!(cases.len() > 40, "{name}: {} cases", cases.len());
        for (input, expected) in cases {
            let ids = tokenizer.encode(&input, Special::Text, false);
            if ids != expected {
                wrong.push(format!("{name}: {input:?}\n   gives {ids:?}\nexpected {expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// References of Hugging Face's tokenizers, and the file whose vocabulary is the same.
const SAME_VOCABULARY: &[(&str, &str)] = &[
    ("llama3_1", "llama.cpp/models/ggml-vocab-llama-bpe.gguf"),
    ("qwen3", "llama.cpp/models/ggml-vocab-qwen2.gguf"),
    ("gemma3", "models/gemma-3-270m-q4_k_m.gguf"),
    ("smollm2", "models/SmolLM2-135M-Instruct.Q4_1.gguf"),
];

#[derive(serde::Deserialize)]
struct RandomRefs {
    texts: Vec<String>,
    tokenizers: HashMap<String, Modes>,
}

#[derive(serde::Deserialize)]
struct Modes {
    parse: Vec<Vec<u32>>,
    /// Only where it differs.
    text: Vec<Option<Vec<u32>>>,
}

#[derive(serde::Deserialize)]
struct TextRefs {
    strings: Vec<String>,
    tokenizers: HashMap<String, Ids>,
}

#[derive(serde::Deserialize)]
struct Ids {
    ids: Vec<Vec<u32>>,
}

fn read<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = smelt_testdata::data(&format!("tokenizer/{name}"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[track_caller]
fn check_all(name: &str, cases: impl IntoIterator<Item = (String, Vec<u32>, Vec<u32>)>) {
    let (mut count, mut wrong) = (0, Vec::new());
    for (input, ids, expected) in cases {
        count += 1;
        if ids != expected {
            wrong.push(format!("{input:?}\n   gives {ids:?}\nexpected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{name}: {} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count >= 40, "{name}: only {count} cases");
}

#[test]
fn random_texts_equal_hugging_faces() {
    let refs: RandomRefs = read("random_refs.json");
    for (name, file) in SAME_VOCABULARY {
        let tokenizer = load(&fetched(file));
        let modes = &refs.tokenizers[*name];
        let parse = refs.texts.iter().zip(&modes.parse);
        check_all(
            name,
            parse.map(|(t, ids)| (t.clone(), tokenizer.encode(t, Special::Parse, false), ids.clone())),
        );
        // Gemma's GGUF files call its unused tokens control tokens, so they stay text; its tokenizer.json does not.
        let text = refs
            .texts
            .iter()
            .zip(modes.text.iter().zip(&modes.parse))
            .filter(|(t, _)| !t.contains("<unused"));
        check_all(
            name,
            text.map(|(t, (text, parse))| {
                let expected = text.as_ref().unwrap_or(parse).clone();
                (t.clone(), tokenizer.encode(t, Special::Text, false), expected)
            }),
        );
    }
}

#[test]
fn hard_strings_equal_the_references() {
    let refs: TextRefs = read("text_refs.json");
    for (name, file) in SAME_VOCABULARY.iter().filter(|(name, _)| refs.tokenizers.contains_key(*name)) {
        let tokenizer = load(&fetched(file));
        let cases = refs.strings.iter().zip(&refs.tokenizers[*name].ids);
        check_all(
            name,
            cases.map(|(t, ids)| (t.clone(), tokenizer.encode(t, Special::Parse, false), ids.clone())),
        );
    }
}

#[test]
fn real_texts_come_back_from_their_ids() {
    let inputs: RandomRefs = read("random_refs.json");
    for (name, file) in SAME_VOCABULARY {
        let tokenizer = load(&fetched(file));
        for text in inputs.texts.iter().filter(|t| t.is_ascii()) {
            let ids = tokenizer.encode(text, Special::Text, true);
            let decoded = tokenizer.decode(&ids[usize::from(tokenizer.adds_bos())..], true);
            assert_eq!(decoded, *text, "{name}");
        }
    }
}

#[test]
fn ends_of_real_vocabularies() {
    let ends = |file: &str| {
        let tokenizer = load(&fetched(file));
        let pieces = tokenizer.eog_ids().iter().map(|&id| tokenizer.piece(id).unwrap().to_string());
        pieces.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ends("models/SmolLM2-135M-Instruct.Q4_1.gguf"), "<|endoftext|> <|im_end|> <reponame>");
    assert_eq!(ends("models/gemma-3-270m-q4_k_m.gguf"), "<eos> <end_of_turn>");
    assert_eq!(ends("llama.cpp/models/ggml-vocab-llama-bpe.gguf"), "<|end_of_text|> <|eot_id|>");
}

/// Vocabularies from before `tokenizer.ggml.pre`: refused, unless forced.
#[test]
fn a_missing_pre_is_refused_unless_forced() {
    for name in ["aquila", "gpt-neox"] {
        let path = fetched(&format!("llama.cpp/models/ggml-vocab-{name}.gguf"));
        let checkpoint = Checkpoint::open(&path).unwrap();
        let source = vocab_source(checkpoint.metadata()).unwrap();
        let error = Tokenizer::new(source, Strictness::Strict).unwrap_err().to_string();
        assert!(error.contains("tokenizer.ggml.pre is missing"), "{error}");
        assert!(!load_with(&path, Strictness::Force).encode("Hello", Special::Text, false).is_empty());
    }
}

/// The prompt of every tiny model, whose ids Hugging Face's tokenizer gave.
#[test]
fn prompts_of_tiny_models_give_their_ids() {
    let folder = root().join("tests/data/tiny");
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let model = entry.unwrap().path();
        let name = model.file_name().unwrap().to_str().unwrap();
        let file = model.join(format!("{name}-f16.gguf"));
        if !model.join("ref.json").exists() || !file.exists() {
            continue;
        }
        let refs = smelt_testdata::json(&format!("tiny/{name}/ref.json"));
        let expected: Vec<u32> = serde_json::from_value(refs["input_ids"].clone()).unwrap();
        let ids = load(&file).encode(refs["prompt"].as_str().unwrap(), Special::Parse, true);
        assert_eq!(ids, expected, "{name}");
        count += 1;
    }
    assert!(count >= 10, "only {count} models in {}", folder.display());
}

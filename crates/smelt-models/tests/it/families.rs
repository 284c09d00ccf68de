//! Tiny random models of every family, against the logits that transformers gives in float32.

use smelt_backend::{Backend, KvFormat, PAGE_TOKENS, Reference, SequenceInput, StepInputs, StepLimits};
use smelt_checkpoint::Checkpoint;
use smelt_models::{ARCHITECTURES, Options, load};
use smelt_testdata::{Array, Npz, compare_logits, data};

/// Logits of every position of `tokens`, in one step.
fn logits(file: &str, tokens: &[u32]) -> Array<f32> {
    let checkpoint = Checkpoint::open(&data(file)).unwrap();
    let n = tokens.len();
    let limits = StepLimits { rows: n, logit_rows: n };
    let model =
        load(&checkpoint, &Options { limits, kv_formats: KvFormat::F32.into(), context: None }).unwrap();
    let vocab_size = model.spec.vocab_size;
    let mut backend = Reference::new();
    backend.prepare(model.program, model.weights).unwrap();
    let pages: Vec<u32> = (0..n.div_ceil(PAGE_TOKENS) as u32).collect();
    backend.reserve_pages(pages.len()).unwrap();
    let positions: Vec<u32> = (0..n as u32).collect();
    let inputs = StepInputs {
        tokens,
        positions: &positions,
        sequence: &vec![0; n],
        sequences: &[SequenceInput { pages: &pages }],
        logit_rows: &positions,
        ..StepInputs::default()
    };
    backend.run(&inputs).unwrap();
    let mut values = vec![0.0; n * vocab_size];
    backend.read_output(&mut values).unwrap();
    Array { shape: vec![n, vocab_size], values }
}

/// Every tiny model: the folder, and the family that must claim it.
const MODELS: &[(&str, &str)] = &[
    ("llama", "llama"),
    ("llama3", "llama"),
    ("mistral", "llama"),
    ("mixtral", "llama"),
    ("qwen2", "qwen2"),
    ("qwen2moe", "qwen2moe"),
    ("qwen3", "qwen3"),
    ("qwen3moe", "qwen3moe"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3"),
    ("phi3", "phi3"),
    ("phi3-longrope", "phi3"),
    ("olmo2", "olmo2"),
    ("granite", "granite"),
    ("smollm3", "smollm3"),
];

#[test]
fn logits_equal_transformers() {
    for (name, _) in MODELS {
        let reference = Npz::open(&format!("tiny/{name}/ref.npz"));
        let tokens: Vec<u32> = reference.i32("input_ids").values.iter().map(|t| *t as u32).collect();
        let found = logits(&format!("tiny/{name}/{name}-f16.gguf"), &tokens);
        let right = reference.f32("logits");
        for (i, position) in reference.i32("positions").values.iter().enumerate() {
            let d = compare_logits(found.row(*position as usize), right.row(i));
            assert!(d.max < 1e-5 && d.kl < 1e-8, "{name}, position {position}: {d:?}");
        }
    }
}

#[test]
fn every_family_has_a_model() {
    for architecture in ARCHITECTURES {
        let covered = MODELS.iter().any(|(_, family)| *family == architecture.name);
        // BERT and its kin have no logits: `bert.rs` is about them.
        assert!(
            covered || ["bert", "nomic-bert", "toy"].contains(&architecture.name),
            "no tiny model of {}",
            architecture.name
        );
    }
    for (name, family) in MODELS {
        let checkpoint = Checkpoint::open(&data(&format!("tiny/{name}/{name}-f16.gguf"))).unwrap();
        assert_eq!(load(&checkpoint, &Options::default()).unwrap().architecture.name, *family);
    }
}

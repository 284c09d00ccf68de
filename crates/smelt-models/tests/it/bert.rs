//! A tiny random BERT, against what numpy gives in double precision.

use smelt_backend::{
    Backend, KvFormat, Output, PAGE_TOKENS, Reference, SequenceInput, StepInputs, StepLimits,
};
use smelt_checkpoint::Checkpoint;
use smelt_models::{Head, Options, Pooling, load};
use smelt_testdata::{Npz, data};

/// The states of `tokens`, `[tokens, hidden_dim]`, and the label's score of the first.
fn run(tokens: &[i32], segments: &[i32]) -> (Vec<f32>, f32) {
    let checkpoint = Checkpoint::open(&data("bert/bert-f16.gguf")).unwrap();
    let options = Options { limits: StepLimits::default(), kv_formats: KvFormat::F32.into(), context: None };
    let model = load(&checkpoint, &options).unwrap();
    let spec = &model.spec;
    assert_eq!((spec.head, spec.pooling, spec.is_causal()), (Head::Labels(1), Pooling::First, false));
    let width = spec.hidden_dim;
    let mut backend = Reference::new();
    backend.prepare(model.program, model.weights).unwrap();
    let ids = |values: &[i32]| values.iter().map(|v| *v as u32).collect::<Vec<u32>>();
    let pages: Vec<u32> = (0..tokens.len().div_ceil(PAGE_TOKENS) as u32).collect();
    backend.reserve_pages(pages.len()).unwrap();
    let inputs = StepInputs {
        tokens: &ids(tokens),
        positions: &(0..tokens.len() as u32).collect::<Vec<u32>>(),
        sequence: &vec![0; tokens.len()],
        sequences: &[SequenceInput { pages: &pages }],
        segments: &ids(segments),
        logit_rows: &[],
        output: Output::States,
    };
    backend.run(&inputs).unwrap();
    let mut states = vec![0.0; tokens.len() * width];
    backend.read_output(&mut states).unwrap();
    let inputs = StepInputs { logit_rows: &[0], output: Output::Logits, ..inputs };
    backend.run(&inputs).unwrap();
    let mut score = [0.0];
    backend.read_output(&mut score).unwrap();
    (states, score[0])
}

fn near(found: &[f32], right: &[f32]) {
    assert_eq!(found.len(), right.len());
    let off = found.iter().zip(right).fold(0f32, |m, (f, r)| m.max((f - r).abs()));
    assert!(off < 2e-5, "off by {off}");
}

#[test]
fn states_and_scores_are_numpys() {
    let reference = Npz::open("bert/ref.npz");
    let pair = reference.i32("input_ids").values;
    let (states, score) = run(&pair, &reference.i32("segments").values);
    near(&states, &reference.f32("states").values);
    near(&[score], &reference.f32("scores").values);
    let (states, score) = run(&reference.i32("second_input_ids").values, &[]);
    near(&states, &reference.f32("second_states").values);
    near(&[score], &reference.f32("second_scores").values);
}

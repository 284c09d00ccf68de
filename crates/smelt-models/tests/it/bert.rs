//! Tiny random BERTs, against what numpy and transformers give in double precision.

use smelt_backend::{
    Backend, KvFormat, Output, PAGE_TOKENS, Reference, SequenceInput, StepInputs, StepLimits,
};
use smelt_checkpoint::Checkpoint;
use smelt_models::{Head, Options, Pooling, load};
use smelt_testdata::{Npz, data};

/// The states of `tokens`, `[tokens, hidden_dim]`, and the label's score of the first where the model has one.
fn run(file: &str, tokens: &[i32], segments: &[i32]) -> (Vec<f32>, Option<f32>) {
    let checkpoint = Checkpoint::open(&data(file)).unwrap();
    let options = Options { limits: StepLimits::default(), kv_formats: KvFormat::F32.into(), context: None };
    let model = load(&checkpoint, &options).unwrap();
    let spec = &model.spec;
    let (head, width) = (spec.head, spec.hidden_dim);
    let pooling = if head == Head::None { Pooling::Mean } else { Pooling::First };
    assert_eq!((spec.pooling, spec.is_causal()), (pooling, false));
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
    if head == Head::None {
        return (states, None);
    }
    let inputs = StepInputs { logit_rows: &[0], output: Output::Logits, ..inputs };
    backend.run(&inputs).unwrap();
    let mut score = [0.0];
    backend.read_output(&mut score).unwrap();
    (states, Some(score[0]))
}

fn near(found: &[f32], right: &[f32]) {
    assert_eq!(found.len(), right.len());
    let off = found.iter().zip(right).fold(0f32, |m, (f, r)| m.max((f - r).abs()));
    assert!(off < 2e-5, "off by {off}");
}

#[test]
fn states_and_scores_are_those_of_the_references() {
    for name in ["bert", "nomic-bert"] {
        let reference = Npz::open(&format!("{name}/ref.npz"));
        let file = format!("{name}/{name}-f16.gguf");
        let pair = reference.i32("input_ids").values;
        let (states, score) = run(&file, &pair, &reference.i32("segments").values);
        near(&states, &reference.f32("states").values);
        let (second_states, second_score) = run(&file, &reference.i32("second_input_ids").values, &[]);
        near(&second_states, &reference.f32("second_states").values);
        for (score, name) in [(score, "scores"), (second_score, "second_scores")] {
            score.iter().for_each(|score| near(&[*score], &reference.f32(name).values));
        }
    }
}

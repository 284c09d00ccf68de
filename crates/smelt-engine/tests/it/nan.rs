//! A model that computes nonsense is an error everywhere, never a token and never a measure.

use crate::common::{exact, load};
use smelt_checkpoint::{Checkpoint, GgufWriter};
use smelt_engine::sampler::SamplerSettings;
use smelt_engine::{Request, Sequence};
use smelt_testdata::data;

/// The tiny llama with a first output norm weight of `value`.
fn damaged(value: f32) -> tempfile::NamedTempFile {
    let good = Checkpoint::open(&data("tiny/llama/llama-f16.gguf")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in good.metadata().iter() {
        writer.set(key, value.clone()).unwrap();
    }
    for tensor in good.tensors() {
        writer.tensor(&tensor.name, tensor.format, &tensor.shape).unwrap();
    }
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    let mut out = writer.start(file.as_file()).unwrap();
    for tensor in good.tensors() {
        let mut bytes = good.require(&tensor.name).unwrap().bytes.to_vec();
        if tensor.name == "output_norm.weight" {
            bytes[..4].copy_from_slice(&value.to_le_bytes());
        }
        out.append(&tensor.name, &bytes).unwrap();
    }
    out.finish().unwrap();
    file
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    for value in [f32::NAN, f32::INFINITY] {
        let file = damaged(value);
        let mut engine = load(file.path(), &exact());
        let request = Request {
            prompt: vec![1, 2, 3],
            sampler: SamplerSettings::greedy(),
            max_tokens: Some(4),
            stop: Vec::new(),
            ignore_eos: false,
            show_special: false,
            grammar: None,
        };
        let text = "to be or not to be ".repeat(40);
        let errors = [
            engine.generate(&mut Sequence::default(), &request, &mut |_| true).map(|_| ()).unwrap_err(),
            engine.logits(&[1, 2, 3], &mut |_, _| Ok(())).unwrap_err(),
            engine.perplexity(&text, 32, Some(1), &mut |_| true).map(|_| ()).unwrap_err(),
        ];
        for error in errors {
            let error = error.to_string();
            assert!(error.contains("are not numbers") && error.contains("Llama"), "{error}");
        }
    }
}

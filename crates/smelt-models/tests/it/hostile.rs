//! Checkpoints that lie: every one is refused with an error that names the key or tensor.

use smelt_checkpoint::{Checkpoint, GgufWriter, Value};
use smelt_models::{Options, load};
use smelt_testdata::data;

/// A toy checkpoint of two layers, hidden 32, 4 heads, 2 of them for keys; `edit` may change keys and tensor shapes.
fn toy(edit: impl Fn(&mut Vec<(String, Value)>, &mut Vec<(String, Vec<usize>)>)) -> Checkpoint {
    let key = |k: &str, v: Value| (k.to_owned(), v);
    let mut keys = vec![
        key("general.architecture", Value::from("toy")),
        key("toy.block_count", Value::U32(2)),
        key("toy.context_length", Value::U32(64)),
        key("toy.embedding_length", Value::U32(32)),
        key("toy.feed_forward_length", Value::U32(64)),
        key("toy.attention.head_count", Value::U32(4)),
        key("toy.attention.head_count_kv", Value::U32(2)),
        key("toy.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
    ];
    let mut tensors =
        vec![("token_embd.weight".to_owned(), vec![32, 40]), ("output_norm.weight".to_owned(), vec![32])];
    for layer in 0..2 {
        for (part, shape) in [
            ("attn_norm", vec![32]),
            ("attn_q", vec![32, 32]),
            ("attn_k", vec![32, 16]),
            ("attn_v", vec![32, 16]),
            ("attn_output", vec![32, 32]),
            ("ffn_norm", vec![32]),
            ("ffn_gate", vec![32, 64]),
            ("ffn_up", vec![32, 64]),
            ("ffn_down", vec![64, 32]),
        ] {
            tensors.push((format!("blk.{layer}.{part}.weight"), shape));
        }
    }
    edit(&mut keys, &mut tensors);
    let mut writer = GgufWriter::new();
    for (key, value) in keys {
        writer.set(&key, value).unwrap();
    }
    let f32 = smelt_quant::by_name("F32").unwrap();
    for (name, shape) in &tensors {
        writer.tensor(name, f32, shape).unwrap();
    }
    let mut out = writer.start(Vec::new()).unwrap();
    for (name, shape) in &tensors {
        out.append(name, &vec![0; 4 * shape.iter().product::<usize>()]).unwrap();
    }
    Checkpoint::from_bytes(out.finish().unwrap()).unwrap()
}

fn set(keys: &mut [(String, Value)], key: &str, value: Value) {
    keys.iter_mut().find(|(k, _)| k == key).unwrap().1 = value;
}

#[test]
fn a_toy_loads() {
    let model = load(&toy(|_, _| {}), &Options::default()).unwrap();
    assert_eq!(model.spec.layers.len(), 2);
    assert_eq!(model.spec.layers[1].attention.window, Some(4));
    assert_eq!(model.spec.logit_scale, 2.0);
}

#[test]
fn lies_are_refused_by_name() {
    type Edit = fn(&mut Vec<(String, Value)>, &mut Vec<(String, Vec<usize>)>);
    let cases: &[(&str, Edit)] = &[
        ("\"gpt-9\" is not supported; supported are: bert", |k, _| {
            set(k, "general.architecture", Value::from("gpt-9"));
        }),
        ("toy.block_count: is 4294967295, but the file has 20 tensors", |k, _| {
            set(k, "toy.block_count", Value::U32(u32::MAX));
        }),
        ("toy.block_count: is 0", |k, _| set(k, "toy.block_count", Value::U32(0))),
        ("blk.2.attn_norm.weight", |k, _| set(k, "toy.block_count", Value::U32(3))),
        ("9 tensors of this file (blk.1.attn_norm.weight", |k, _| set(k, "toy.block_count", Value::U32(1))),
        ("toy.attention.head_count_kv: is 3, which does not divide the 4 query heads", |k, _| {
            set(k, "toy.attention.head_count_kv", Value::U32(3));
        }),
        ("toy.attention.head_count: 4294967292 heads", |k, _| {
            set(k, "toy.attention.head_count", Value::U32(u32::MAX - 3));
            k.push(("toy.attention.key_length".into(), Value::U32(8)));
        }),
        ("toy.attention.key_length: is 0", |k, _| {
            k.push(("toy.attention.key_length".into(), Value::U32(0)));
        }),
        ("toy.rope.dimension_count: is 9 for heads of 8", |k, _| {
            k.push(("toy.rope.dimension_count".into(), Value::U32(9)));
        }),
        ("toy.rope.freq_base: is -1", |k, _| k.push(("toy.rope.freq_base".into(), Value::F32(-1.0)))),
        ("toy.rope.scaling.type: \"spiral\" is unknown", |k, _| {
            k.push(("toy.rope.scaling.type".into(), Value::from("spiral")));
        }),
        ("tensor blk.0.ffn_up.weight is [32, 63], where [32, 64] is needed", |_, t| t[9].1[1] = 63),
        ("tensor output_norm.weight is [31], where [32] is needed", |_, t| t[1].1[0] = 31),
        ("extra.weight", |_, t| t.push(("extra.weight".into(), vec![4]))),
        ("toy.attention.head_count: has 1 entries for 2 layers", |k, _| {
            set(k, "toy.attention.head_count", Value::from(vec![4u32]));
        }),
        ("toy.feed_forward_length", |k, _| set(k, "toy.feed_forward_length", Value::from("many"))),
        ("tensor rope_freqs.weight is [3], where [4] is needed", |_, t| {
            t.push(("rope_freqs.weight".into(), vec![3]))
        }),
    ];
    for (expected, edit) in cases {
        let error = load(&toy(edit), &Options::default()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} should say {expected:?}");
    }
}

#[test]
fn no_key_of_any_value_panics() {
    for name in ["llama/llama", "gemma3/gemma3", "phi3-longrope/phi3-longrope", "qwen2moe/qwen2moe"] {
        let good = Checkpoint::open(&data(&format!("tiny/{name}-f16.gguf"))).unwrap();
        let architecture = good.metadata().require_str("general.architecture").unwrap().to_owned();
        for (target, _) in good.metadata().iter().filter(|(k, _)| k.starts_with(&architecture)) {
            for value in [
                Value::U32(0),
                Value::U32(1),
                Value::U32(3),
                Value::U32(u32::MAX),
                Value::F32(0.0),
                Value::F32(f32::NAN),
                Value::F32(-1e30),
                Value::from("x"),
                Value::from(vec![0u32; 3]),
            ] {
                let mut writer = GgufWriter::new();
                for (key, old) in good.metadata().iter() {
                    writer.set(key, if key == target { value.clone() } else { old.clone() }).unwrap();
                }
                for tensor in good.tensors() {
                    writer.tensor(&tensor.name, tensor.format, &tensor.shape).unwrap();
                }
                let mut out = writer.start(Vec::new()).unwrap();
                for tensor in good.tensors() {
                    out.append(&tensor.name, &good.require(&tensor.name).unwrap().bytes).unwrap();
                }
                let edited = Checkpoint::from_bytes(out.finish().unwrap()).unwrap();
                if let Err(error) = load(&edited, &Options::default()) {
                    assert!(!error.to_string().is_empty(), "{target}");
                }
            }
        }
    }
}

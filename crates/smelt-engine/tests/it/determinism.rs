//! The same bits however a prompt is cut, on any number of threads, with any instruction set.

use crate::common::{exact, ids, load, logits};
use smelt_engine::{Isa, IsaChoice, Settings};
use smelt_testdata::{Npz, data};

#[test]
fn logits_do_not_depend_on_how_they_are_computed() {
    for (file, npz) in [
        ("tiny/quants/llama-kq-Q4_K_S", "tiny/quants/llama-kq-Q4_K_S"),
        ("tiny/quants/llama-kq-Q4_0", "tiny/quants/llama-kq-Q4_0"),
        ("tiny/gemma3/gemma3-f16", "tiny/gemma3/ref"),
        ("tiny/qwen2moe/qwen2moe-f16", "tiny/qwen2moe/ref"),
    ] {
        let tokens = ids(&Npz::open(&format!("{npz}.npz")).i32("input_ids").values);
        let file = data(&format!("{file}.gguf"));
        let right = logits(&mut load(&file, &exact()), &tokens);
        let mut variants = Vec::new();
        for batch in [1, 2, 7, 64] {
            variants.push((format!("batch {batch}"), Settings { batch, ..exact() }));
        }
        for threads in [1, 3] {
            variants.push((format!("{threads} threads"), Settings { threads: Some(threads), ..exact() }));
        }
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            variants.push((isa.name().to_owned(), Settings { isa: IsaChoice::Only(isa), ..exact() }));
        }
        for (what, settings) in variants {
            let found = logits(&mut load(&file, &settings), &tokens);
            let same = found.values.iter().zip(&right.values).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{}: other bits with {what}", file.display());
        }
    }
}

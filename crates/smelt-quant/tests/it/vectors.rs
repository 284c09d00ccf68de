//! Dequantisation equals the `gguf` Python package bit for bit, and quantisation equals ggml's.

use crate::data::{Random, dequantized, encoded, vectors};
use smelt_quant::FORMATS;

#[test]
fn dequantize_is_bit_exact_with_gguf() {
    for format in FORMATS {
        let (blocks, expected) = vectors(format);
        assert_eq!(blocks.len() / format.block_bytes * format.block_len, expected.len(), "{}", format.name);
        let values = dequantized(format, &blocks);
        for (i, (v, e)) in values.iter().zip(&expected).enumerate() {
            let (block, at) = (i / format.block_len, i % format.block_len);
            assert_eq!(v.to_bits(), e.to_bits(), "{} block {block} value {at}: {v} not {e}", format.name);
        }
    }
}

#[test]
fn quantize_is_bit_exact_with_ggml() {
    for format in FORMATS {
        // Floats have one right rounding, which the round trip checks; the IQ4 searches are wider than ggml's.
        let Some(quantize) = format.quantize else { continue };
        if format.block_len == 1 || format.name.starts_with("IQ4") {
            continue;
        }
        let (values, expected) = encoded(format);
        let mut bytes = vec![0; format.row_bytes(values.len()).expect("whole blocks")];
        quantize(&values, &mut bytes);
        let blocks = bytes.chunks(format.block_bytes).zip(expected.chunks(format.block_bytes));
        for (i, (block, expected)) in blocks.enumerate() {
            assert_eq!(block, expected, "{} block {i}", format.name);
        }
    }
}

#[test]
fn any_bytes_decode() {
    let mut random = Random(1);
    for format in FORMATS {
        for fill in [0u8, 0xff, 0x7f, 0x80] {
            dequantized(format, &vec![fill; format.block_bytes * 3]);
        }
        dequantized(format, &random.bytes(format.block_bytes * 500));
    }
}

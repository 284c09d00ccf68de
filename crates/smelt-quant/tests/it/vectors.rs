//! Dequantisation equals the `gguf` Python package bit for bit.

use crate::data::{Random, dequantized, vectors};
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
fn any_bytes_decode() {
    let mut random = Random(1);
    for format in FORMATS {
        for fill in [0u8, 0xff, 0x7f, 0x80] {
            dequantized(format, &vec![fill; format.block_bytes * 3]);
        }
        dequantized(format, &random.bytes(format.block_bytes * 500));
    }
}

//! `Q8_0`: 32 signed bytes and one scale.
//!
//! ```text
//! byte   0 1      2 .. 33
//!        d: f16   qs: 32 × i8          w = d · qs
//! ```

use crate::{Activation, ErrorBudget, Format, Row};
use half::f16;

/// The block as it lies in the file.
#[repr(C)]
struct Block {
    d: [u8; 2],
    qs: [i8; 32],
}
const _: () = assert!(size_of::<Block>() == 34);

fn split(block: &[u8; 34]) -> (f32, &[u8]) {
    (f16::from_le_bytes([block[0], block[1]]).to_f32(), &block[2..])
}

fn dequantize(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.as_chunks::<34>().0.iter().zip(out.chunks_exact_mut(32)) {
        let (d, qs) = split(block);
        for (o, q) in out.iter_mut().zip(qs) {
            *o = f32::from(*q as i8) * d;
        }
    }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    for (chunk, block) in values.chunks_exact(32).zip(out.as_chunks_mut::<34>().0) {
        let amax = chunk.iter().fold(0f32, |m, v| m.max(v.abs()));
        let d = amax / 127.0;
        let inverse = if d > 0.0 { 1.0 / d } else { 0.0 };
        block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
        for (q, v) in block[2..].iter_mut().zip(chunk) {
            *q = (v * inverse).round() as i8 as u8;
        }
    }
}

fn vec_dot(bytes: &[u8], row: Row<'_>) -> f32 {
    let Row::Q8x32 { codes, scales, .. } = row else { unreachable!("Q8_0 takes Q8x32 activations") };
    let blocks = bytes.as_chunks::<34>().0.iter().zip(codes.chunks_exact(32)).zip(scales);
    blocks.fold(0f32, |acc, ((block, a), d_a)| {
        let (d, qs) = split(block);
        let dot: i32 = qs.iter().zip(a).map(|(&q, &a)| i32::from(q as i8) * i32::from(a)).sum();
        (d * d_a).mul_add(dot as f32, acc)
    })
}

/// Eight bits with one scale per 32 values.
pub static Q8_0: Format = Format {
    name: "Q8_0",
    ggml_type: 8,
    block_len: 32,
    block_bytes: 34,
    activation: Activation::Q8x32,
    dequantize,
    quantize: Some(quantize),
    vec_dot,
    budget: ErrorBudget { rmse: 0.008, dot: 0.01 },
};

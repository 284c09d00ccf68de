//! `F32`: little-endian IEEE single precision.

use crate::{Activation, ErrorBudget, Format, Row, dot_f32};

fn values(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b))
}

fn dequantize(bytes: &[u8], out: &mut [f32]) {
    for (o, v) in out.iter_mut().zip(values(bytes)) {
        *o = v;
    }
}

fn quantize(input: &[f32], out: &mut [u8]) {
    for (o, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(input) {
        *o = v.to_le_bytes();
    }
}

fn vec_dot(bytes: &[u8], row: Row<'_>) -> f32 {
    let Row::F32(x) = row else { unreachable!("F32 takes f32 activations") };
    dot_f32(values(bytes), x)
}

/// Single precision floats.
pub static F32: Format = Format {
    name: "F32",
    ggml_type: 0,
    block_len: 1,
    block_bytes: 4,
    activation: Activation::F32,
    dequantize,
    quantize: Some(quantize),
    vec_dot,
    budget: ErrorBudget { rmse: 0.0, dot: 1e-6 },
};

//! Activations as int8: the other operand of every integer dot product.
//!
//! A row is quantised once per group of matmuls that read it. Values are symmetric: `x ≈ scale · code` with codes in
//! −127..=127, so no kernel ever meets −128 (an AVX2 `vpsignb`/`vpmaddubsw` pair would overflow on it).

/// The layout of activations that a weight format's dot product takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Plain f32, for float weights.
    F32,
    /// One scale and one sum per 32 values.
    Q8x32,
    /// One scale per 256 values, one sum per 16.
    Q8x256,
}

/// One row of activations.
#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    /// The values.
    F32(&'a [f32]),
    /// `codes.len()` is a multiple of 32; `scales` and `sums` have one entry per 32 codes.
    Q8x32 { codes: &'a [i8], scales: &'a [f32], sums: &'a [i16] },
    /// `codes.len()` is a multiple of 256; one scale per 256 codes, one sum per 16.
    Q8x256 { codes: &'a [i8], scales: &'a [f32], sums: &'a [i16] },
}

/// Quantises a row with one scale per `block` values and one sum per `group` values (`group` divides `block`).
/// A block whose largest magnitude is zero or not finite gets scale = that magnitude and codes 0 for zero;
/// a NaN or infinity in the input makes the scale NaN, so that it reaches the result.
pub fn quantize_row(
    values: &[f32],
    block: usize,
    group: usize,
    codes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i16],
) {
    for (b, chunk) in values.chunks_exact(block).enumerate() {
        let amax = chunk.iter().fold(0f32, |m, v| if v.is_nan() { f32::NAN } else { m.max(v.abs()) });
        let finite = amax.is_finite();
        let inverse = if amax > 0.0 && finite { 127.0 / amax } else { 0.0 };
        scales[b] = if finite { amax / 127.0 } else { f32::NAN };
        let out = &mut codes[b * block..][..block];
        for (c, v) in out.iter_mut().zip(chunk) {
            *c = if finite { (v * inverse).round_ties_even() as i8 } else { 0 };
        }
        for (s, g) in sums[b * block / group..].iter_mut().zip(out.chunks_exact(group)) {
            *s = g.iter().map(|&c| i16::from(c)).sum();
        }
    }
}

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
    Q8x32 {
        /// Values over their scale, −127..=127.
        codes: &'a [i8],
        /// Never negative; NaN where an activation was not finite.
        scales: &'a [f32],
        /// Sums of codes.
        sums: &'a [i16],
    },
    /// `codes.len()` is a multiple of 256; one scale per 256 codes, one sum per 16.
    Q8x256 {
        /// Values over their scale, −127..=127.
        codes: &'a [i8],
        /// Never negative; NaN where an activation was not finite.
        scales: &'a [f32],
        /// Sums of codes.
        sums: &'a [i16],
    },
}

impl Activation {
    /// Values per scale and values per sum; `None` for plain floats.
    #[must_use]
    pub const fn shape(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => None,
            Self::Q8x32 => Some((32, 32)),
            Self::Q8x256 => Some((256, 16)),
        }
    }
}

/// The scale of a block whose largest magnitude is `amax`: `amax / 127`, in blocks of 32 rounded to half precision.
///
/// Half precision is what GGML's `Q8_0` activations have. An own, finer scale would be no more exact in the end (the
/// codes' rounding weighs thirty times as much) and would make every model differ from what GGML computes. Scales that
/// half precision can't hold as normal numbers are left as they are.
#[must_use]
pub fn block_scale(amax: f32, block: usize) -> f32 {
    const NORMAL_HALVES: std::ops::Range<f32> = 6.103_515_6e-5..65504.0;
    let scale = amax / 127.0;
    if block != 32 || !NORMAL_HALVES.contains(&scale) {
        return scale;
    }
    // Half precision keeps 10 of 23 fraction bits; ties go to even.
    let bits = scale.to_bits();
    f32::from_bits((bits + 0x0FFF + ((bits >> 13) & 1)) & !0x1FFF)
}

/// Quantises a row with one scale per `block` values and one sum per `group` values (`group` divides `block`).
///
/// In each block, with `amax` the largest magnitude: `scale = amax / 127` (see [`block_scale`]), and every code is
/// `round_ties_even(value · (127 / amax))`, which is −127..=127. Two kinds of block differ:
/// - one with a NaN or an infinity gets scale NaN and codes 0, so that the NaN reaches every result;
/// - one so small that `127 / amax` overflows (all zeros, or `amax` below 2⁻¹²¹) gets scale 0 and codes 0.
///
/// Whole blocks of `values` are quantised; `codes`, `scales` and `sums` must have room for them.
pub fn quantize_row(
    values: &[f32],
    block: usize,
    group: usize,
    codes: &mut [i8],
    scales: &mut [f32],
    sums: &mut [i16],
) {
    let rows = values.chunks_exact(block).zip(codes.chunks_exact_mut(block)).zip(scales);
    for (((values, codes), scale), sums) in rows.zip(sums.chunks_exact_mut(block / group)) {
        let finite = values.iter().all(|v| v.is_finite());
        let amax = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let inverse = 127.0 / amax;
        let usable = finite && inverse.is_finite();
        *scale = match (finite, usable) {
            (false, _) => f32::NAN,
            (true, false) => 0.0,
            (true, true) => block_scale(amax, block),
        };
        for (c, v) in codes.iter_mut().zip(values) {
            *c = if usable { (v * inverse).round_ties_even() as i8 } else { 0 };
        }
        for (s, g) in sums.iter_mut().zip(codes.chunks_exact(group)) {
            *s = g.iter().map(|&c| i16::from(c)).sum();
        }
    }
}

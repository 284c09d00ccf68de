//! Codes that are indices into a table of levels.

use super::{TINY, inverse, peak};
use crate::codebooks::E2M1_DOUBLED;

/// The index of the level nearest to `x`; `levels` ascend. A tie takes the upper level.
pub(crate) fn nearest_level(levels: &[i8; 16], x: f32) -> u8 {
    levels.windows(2).filter(|pair| x + x >= f32::from(pair[0]) + f32::from(pair[1])).count() as u8
}

/// The scale `d` for `x ≈ d · levels[code]`, by trying fifteen that map the peak to around the first level.
pub(crate) fn weighted_scale(levels: &[i8; 16], x: &[f32; 32]) -> f32 {
    let max = peak(x);
    if max.abs() < TINY {
        return 0.0;
    }
    let first = f32::from(levels[0]);
    // The negated peak first: the table is not symmetric.
    let starts = std::iter::once(inverse(-max / first));
    let tries = starts.chain((-7i8..=7).map(|step| (f32::from(step) + first) / max));
    let (mut best, mut scale) = (f32::NEG_INFINITY, 0.0);
    for inverse in tries {
        let (mut xq, mut qq) = (0f32, 0f32);
        for &x in x {
            let q = f32::from(levels[usize::from(nearest_level(levels, inverse * x))]);
            xq += x * x * q * x;
            qq += x * x * q * q;
        }
        if qq > 0.0 && xq * xq > best * qq {
            scale = xq / qq;
            best = scale * xq;
        }
    }
    scale
}

/// The E2M1 code for which `scale · E2M1_DOUBLED[code]` is nearest to `x`; the first of equals.
pub(crate) fn nearest_e2m1(x: f32, scale: f32) -> u8 {
    let error = |code: u8| (scale * f32::from(E2M1_DOUBLED[usize::from(code)]) - x).abs();
    (1..16).fold(0, |best, code| if error(code) < error(best) { code } else { best })
}

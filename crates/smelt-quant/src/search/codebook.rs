//! Codes that are indices into a table of levels.

use super::{TINY, inverse, peak};
use crate::codebooks::{E2M1_DOUBLED, IQ4};

/// Sixteen ascending levels, ready to search.
pub(crate) struct Levels {
    values: [f32; 16],
    midpoints: [f32; 15],
}

/// The levels of `IQ4_NL` and `IQ4_XS`.
pub(crate) static IQ4_LEVELS: Levels = Levels::new(&IQ4);

impl Levels {
    const fn new(levels: &[i8; 16]) -> Self {
        let (mut values, mut midpoints) = ([0.0; 16], [0.0; 15]);
        let mut i = 0;
        while i < 16 {
            values[i] = levels[i] as f32;
            if i > 0 {
                midpoints[i - 1] = (values[i - 1] + values[i]) / 2.0;
            }
            i += 1;
        }
        Self { values, midpoints }
    }

    /// The index of the level nearest to `x`; a tie takes the upper one.
    pub(crate) fn nearest(&self, x: f32) -> u8 {
        self.midpoints.iter().map(|&middle| u8::from(x >= middle)).sum()
    }

    /// The scale `d` for `x ≈ d · level`, weighted by the square of each value: the best of sixteen that map the peak
    /// to around the lowest level, or the peak's negative to it (the levels are not symmetric).
    pub(crate) fn scale(&self, x: &[f32; 32]) -> f32 {
        let max = peak(x);
        if max.abs() < TINY {
            return 0.0;
        }
        let lowest = self.values[0];
        let starts = std::iter::once(-lowest / max);
        let (mut gain, mut scale) = (f32::NEG_INFINITY, 0.0);
        for inverse in starts.chain((-7i8..=7).map(|step| (f32::from(step) + lowest) / max)) {
            let (mut xq, mut qq) = (0f32, 0f32);
            for &x in x {
                let q = self.values[usize::from(self.nearest(inverse * x))];
                xq += x * x * q * x;
                qq += x * x * q * q;
            }
            if qq > 0.0 && xq * xq > gain * qq {
                scale = xq / qq;
                gain = scale * xq;
            }
        }
        scale
    }

    /// The codes of `x ≈ d · level`.
    pub(crate) fn codes(&self, x: &[f32; 32], d: f32) -> [u8; 32] {
        let inverse = inverse(d);
        x.map(|x| self.nearest(inverse * x))
    }
}

/// The E2M1 code for which `scale · E2M1_DOUBLED[code]` is nearest to `x`; the first of equals.
pub(crate) fn nearest_e2m1(x: f32, scale: f32) -> u8 {
    let error = |code: u8| (scale * f32::from(E2M1_DOUBLED[usize::from(code)]) - x).abs();
    let closer = |best: (u8, f32), code| {
        let error = error(code);
        if error < best.1 { (code, error) } else { best }
    };
    (1..16).fold((0, error(0)), closer).0
}

//! Codes `0 ..= max` under a scale and a minimum that is subtracted (`Q2_K`, `Q4_K`, `Q5_K`).

use super::nearest;
use crate::layout::F16;

/// How a format searches, and the ranges of its parts.
pub(crate) struct Affine {
    /// Values per scale.
    pub(crate) group: usize,
    /// Largest code.
    pub(crate) max_code: i32,
    /// Largest integer scale and minimum.
    pub(crate) max_scale: i32,
    /// The first offset tried from `max_code`, in tenths.
    pub(crate) first_tenth: i32,
    /// The number of further offsets tried, a tenth apart.
    pub(crate) steps: i32,
    /// Absolute error weighted by magnitude, instead of squared error weighted by magnitude and group norm.
    pub(crate) absolute: bool,
}

/// 256 quantised values; the first `256 / group` entries of `scales` and `mins` are used.
pub(crate) struct AffineSuperBlock {
    pub(crate) d: F16,
    pub(crate) dmin: F16,
    pub(crate) scales: [u8; 16],
    pub(crate) mins: [u8; 16],
    pub(crate) codes: [u8; 256],
}

/// `x ≈ scale · code + min` with `min ≤ 0`.
#[derive(Clone, Copy)]
struct Line {
    scale: f32,
    min: f32,
    codes: [u8; 32],
}

impl Affine {
    fn codes(&self, x: &[f32], low: f32, inverse: f32) -> [u8; 32] {
        let mut codes = [0; 32];
        for (code, x) in codes.iter_mut().zip(x) {
            *code = nearest(inverse * (x - low)).clamp(0, self.max_code) as u8;
        }
        codes
    }

    fn weights(&self, x: &[f32], weights: &mut [f32]) {
        let norm = match self.absolute {
            true => 0.0,
            false => (x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32).sqrt(),
        };
        for (w, x) in weights.iter_mut().zip(x) {
            *w = norm + x.abs();
        }
    }

    fn error(&self, x: &[f32], w: &[f32], line: &Line) -> f32 {
        let mut error = 0.0;
        for ((&x, &w), &code) in x.iter().zip(w).zip(&line.codes) {
            let diff = line.scale * f32::from(code) + line.min - x;
            error += w * if self.absolute { diff.abs() } else { diff * diff };
        }
        error
    }

    /// Scale, negated minimum and codes of one group.
    fn search(&self, x: &[f32], codes: &mut [u8]) -> (f32, f32) {
        let low = x.iter().fold(0f32, |m, &v| m.min(v));
        let high = x.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
        let mut weights = [0f32; 32];
        let weights = &mut weights[..x.len()];
        self.weights(x, weights);
        if high == low {
            codes.fill(0);
            return (0.0, -low);
        }
        let inverse = self.max_code as f32 / (high - low);
        let mut best = Line { scale: 1.0 / inverse, min: low, codes: self.codes(x, low, inverse) };
        let mut best_error = self.error(x, weights, &best);
        for step in 0..=self.steps {
            // Each attempt starts from the best minimum so far.
            let levels = 0.1 * (self.first_tenth + step) as f32 + self.max_code as f32;
            let codes = self.codes(x, best.min, levels / (high - best.min));
            let Some(line) = fit(x, weights, codes) else { continue };
            let error = self.error(x, weights, &line);
            if error < best_error {
                (best, best_error) = (line, error);
            }
        }
        codes.copy_from_slice(&best.codes[..codes.len()]);
        (best.scale, -best.min)
    }

    /// Searches each group, rounds scales and minima to integers, then rounds the values once more to what those give.
    pub(crate) fn quantize(&self, values: &[f32; 256]) -> AffineSuperBlock {
        let mut codes = [0u8; 256];
        let (mut scales, mut mins) = ([0f32; 16], [0f32; 16]);
        let groups = values.chunks_exact(self.group).zip(codes.chunks_exact_mut(self.group));
        for (g, (x, codes)) in groups.enumerate() {
            (scales[g], mins[g]) = self.search(x, codes);
        }
        let (d, scales) = self.integers(&scales);
        let (dmin, mins) = self.integers(&mins);
        let groups = values.chunks_exact(self.group).zip(codes.chunks_exact_mut(self.group));
        for (g, (x, codes)) in groups.enumerate() {
            let (scale, min) = (d.get() * f32::from(scales[g]), dmin.get() * f32::from(mins[g]));
            if scale == 0.0 {
                continue;
            }
            for (code, &x) in codes.iter_mut().zip(x) {
                *code = nearest((x + min) / scale).clamp(0, self.max_code) as u8;
            }
        }
        AffineSuperBlock { d, dmin, scales, mins, codes }
    }

    fn integers(&self, parts: &[f32; 16]) -> (F16, [u8; 16]) {
        let top = parts.iter().fold(0f32, |m, &v| m.max(v));
        let inverse = if top > 0.0 { self.max_scale as f32 / top } else { 0.0 };
        let whole = parts.map(|v| nearest(inverse * v).clamp(0, self.max_scale) as u8);
        (F16::new(top / self.max_scale as f32), whole)
    }
}

/// The weighted least-squares line for given codes, if there is one.
fn fit(x: &[f32], w: &[f32], codes: [u8; 32]) -> Option<Line> {
    let (mut sw, mut sx, mut sl, mut sll, mut sxl) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for ((&x, &w), &code) in x.iter().zip(w).zip(&codes) {
        let l = f32::from(code);
        sw += w;
        sx += w * x;
        sl += w * l;
        sll += w * l * l;
        sxl += w * l * x;
    }
    let det: f32 = sw * sll - sl * sl;
    if det <= 0.0 || det.is_nan() {
        return None;
    }
    let min = (sll * sx - sl * sxl) / det;
    Some(match min > 0.0 {
        true => Line { scale: sxl / sll, min: 0.0, codes },
        false => Line { scale: (sw * sxl - sx * sl) / det, min, codes },
    })
}

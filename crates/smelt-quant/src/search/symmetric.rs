//! Codes `−n ..= n−1` around zero under one scale, weighted by the square of each value. Where the scale is zero the
//! codes are −n, which formats store as 0 bits.

use super::{TINY, nearest, peak};

/// The two sums that give the best scale `xl / ll` of fixed codes, and its gain `xl² / ll`.
#[derive(Clone, Copy, Default)]
struct Fit {
    xl: f32,
    ll: f32,
}

impl Fit {
    fn add(&mut self, x: f32, code: i32) {
        let (w, code) = (x * x, code as f32);
        self.xl += w * x * code;
        self.ll += w * code * code;
    }

    fn remove(mut self, x: f32, code: i32) -> Self {
        let (w, code) = (x * x, code as f32);
        self.xl -= w * x * code;
        self.ll -= w * code * code;
        self
    }

    fn scale(self) -> f32 {
        if self.ll > 0.0 { self.xl / self.ll } else { 0.0 }
    }

    /// Whether these codes leave less error, each under its own best scale.
    fn beats(self, other: Self) -> bool {
        self.ll > 0.0 && self.xl * self.xl * other.ll > other.xl * other.xl * self.ll
    }
}

fn code_of(x: f32, inverse: f32, n: i32) -> i32 {
    nearest(inverse * x).clamp(-n, n - 1)
}

/// Tries nineteen scales around the one that maps the peak to `−n`; gives the best scale and its codes.
pub(crate) fn sweep<const N: usize>(x: &[f32; N], n: i32) -> (f32, [i8; N]) {
    let max = peak(x);
    if max.abs() < TINY {
        return (0.0, [-n as i8; N]);
    }
    let attempt = |step: i32| {
        let inverse = -(n as f32 + 0.1 * step as f32) / max;
        let mut fit = Fit::default();
        for &x in x {
            fit.add(x, code_of(x, inverse, n));
        }
        (fit, inverse)
    };
    let mut best = attempt(0);
    for step in (-9..=9).filter(|&step| step != 0) {
        let candidate = attempt(step);
        if candidate.0.beats(best.0) {
            best = candidate;
        }
    }
    (best.0.scale(), x.map(|x| code_of(x, best.1, n) as i8))
}

/// Starts from the scale that maps the peak to `−n` and moves single codes while that lowers the error.
pub(crate) fn descend<const N: usize>(x: &[f32; N], n: i32) -> (f32, [i8; N]) {
    let max = peak(x);
    if max.abs() < TINY {
        return (0.0, [-n as i8; N]);
    }
    let inverse = -(n as f32) / max;
    let mut codes = x.map(|x| code_of(x, inverse, n));
    let mut fit = Fit::default();
    for (&x, &code) in x.iter().zip(&codes) {
        fit.add(x, code);
    }
    for _ in 0..5 {
        let mut changed = false;
        for (&x, code) in x.iter().zip(&mut codes) {
            let without = fit.remove(x, *code);
            if without.xl <= 0.0 {
                continue;
            }
            let moved = nearest(x * without.ll / without.xl).clamp(-n, n - 1);
            let mut with = without;
            with.add(x, moved);
            if moved != *code && with.beats(fit) {
                (fit, *code, changed) = (with, moved, true);
            }
        }
        if !changed {
            break;
        }
    }
    (fit.scale(), codes.map(|code| code as i8))
}

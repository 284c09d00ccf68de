//! The integer dot product against exact arithmetic and against plain floats.

use crate::data::{Quantized, Random, dequantized, quantized_normals, vectors};
use smelt_quant::{Activation, FORMATS, Format};

/// `Σ w·x` and `Σ |w·x|`.
fn exact(weights: &[f32], x: &[f64]) -> (f64, f64) {
    let products = || weights.iter().zip(x).map(|(w, x)| f64::from(*w) * x);
    (products().sum(), products().map(f64::abs).sum())
}

/// The committed blocks as one row, then quantised normal rows: bytes of rows to test with.
fn rows(format: &Format, random: &mut Random) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    // Committed floats go up to the largest that there is: their products overflow.
    if format.activation != Activation::F32 {
        rows.push(vectors(format).0);
    }
    rows.extend((0..16).filter_map(|_| quantized_normals(format, 1024, random)).map(|(_, bytes)| bytes));
    rows
}

#[test]
fn dot_equals_exact_arithmetic() {
    let mut random = Random(4);
    for format in FORMATS {
        for bytes in rows(format, &mut random) {
            let weights = dequantized(format, &bytes);
            let x = Quantized::new(format.activation, &random.normals(weights.len()));
            let (sum, scale) = exact(&weights, &x.decoded());
            let error = (f64::from((format.vec_dot)(&bytes, x.row())) - sum).abs() / scale;
            assert!(error <= 1e-7, "{}: off by {error:e} of Σ|w·x|", format.name);
        }
    }
}

#[test]
fn dot_is_near_the_float_dot() {
    let mut random = Random(5);
    for format in FORMATS {
        let mut worst = 0f64;
        for bytes in rows(format, &mut random) {
            let weights = dequantized(format, &bytes);
            let values = random.normals(weights.len());
            let x = Quantized::new(format.activation, &values);
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let (sum, scale) = exact(&weights, &values);
            worst = worst.max((f64::from((format.vec_dot)(&bytes, x.row())) - sum).abs() / scale);
        }
        println!("{:8} dot {worst:.2e}", format.name);
        let budget = f64::from(format.budget.dot);
        assert!(worst <= budget, "{}: off by {worst:e} of Σ|w·x|, budget {budget:e}", format.name);
    }
}

#[test]
fn any_bytes_multiply() {
    let mut random = Random(6);
    for format in FORMATS {
        let n = 256 * 40;
        let x = Quantized::new(format.activation, &random.normals(n));
        for _ in 0..10 {
            let bytes = random.bytes(format.row_bytes(n).expect("whole blocks"));
            (format.vec_dot)(&bytes, x.row());
        }
        for fill in [0u8, 0xff, 0x7f, 0x80] {
            (format.vec_dot)(&vec![fill; format.row_bytes(n).expect("whole blocks")], x.row());
        }
    }
}

#[test]
fn nan_activations_reach_the_result() {
    for format in FORMATS {
        let bytes = vectors(format).0;
        let n = bytes.len() / format.block_bytes * format.block_len;
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            // Finite weights of both signs and zero times infinity make NaN in floats too, somewhere in the row.
            let mut values = vec![1.0; n];
            values[..256].fill(bad);
            let x = Quantized::new(format.activation, &values);
            let result = (format.vec_dot)(&bytes, x.row());
            assert!(result.is_nan(), "{}: {bad} gave {result}", format.name);
        }
    }
}

//! Quantising and decoding again stays within each format's budget.

use crate::data::{Random, dequantized, quantized_normals};
use smelt_quant::FORMATS;

#[test]
fn round_trip_error_is_within_the_budget() {
    let mut random = Random(2);
    for format in FORMATS {
        let Some((values, bytes)) = quantized_normals(format, 256 * 64, &mut random) else { continue };
        let decoded = dequantized(format, &bytes);
        let square: f64 = values.iter().zip(&decoded).map(|(v, d)| f64::from(v - d).powi(2)).sum();
        let rmse = (square / values.len() as f64).sqrt() as f32;
        println!("{:8} rmse {rmse:.6}", format.name);
        let budget = format.budget.rmse;
        assert!(rmse <= budget, "{}: rmse {rmse} is over {budget}", format.name);
        assert!(rmse >= 0.8 * budget, "{}: rmse {rmse} leaves the budget {budget} slack", format.name);
    }
}

#[test]
fn any_values_quantize() {
    let mut random = Random(3);
    let edges = [0.0, -0.0, 1e-45, 1e-38, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    for format in FORMATS {
        let Some(quantize) = format.quantize else { continue };
        let mut bytes = vec![0; format.row_bytes(512).expect("whole blocks")];
        for edge in edges {
            quantize(&[edge; 512], &mut bytes);
            dequantized(format, &bytes);
            let mut mixed = random.normals(512);
            mixed.iter_mut().step_by(37).for_each(|v| *v = edge);
            quantize(&mixed, &mut bytes);
            dequantized(format, &bytes);
        }
    }
}

#[test]
fn zeros_stay_zero() {
    for format in FORMATS {
        let Some(quantize) = format.quantize else { continue };
        let mut bytes = vec![0xaa; format.row_bytes(512).expect("whole blocks")];
        quantize(&[0.0; 512], &mut bytes);
        assert!(dequantized(format, &bytes).iter().all(|&v| v == 0.0), "{}", format.name);
    }
}

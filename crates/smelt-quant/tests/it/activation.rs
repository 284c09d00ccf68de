//! Quantised activations.

use crate::data::Random;
use smelt_quant::Activation;
use smelt_quant::activation::quantize_row;

const SHAPES: [(usize, usize); 2] = [(32, 32), (256, 16)];

fn quantize(values: &[f32], (block, group): (usize, usize)) -> (Vec<i8>, Vec<f32>, Vec<i16>) {
    let n = values.len();
    let (mut codes, mut scales, mut sums) = (vec![99; n], vec![9.0; n / block], vec![99; n / group]);
    quantize_row(values, block, group, &mut codes, &mut scales, &mut sums);
    (codes, scales, sums)
}

#[test]
fn shapes_are_the_documented_ones() {
    assert_eq!(Activation::F32.shape(), None);
    assert_eq!(Activation::Q8x32.shape(), Some(SHAPES[0]));
    assert_eq!(Activation::Q8x256.shape(), Some(SHAPES[1]));
}

#[test]
fn codes_are_nearest_and_sums_add_up() {
    let values = Random(7).normals(1024);
    for shape in SHAPES {
        let (codes, scales, sums) = quantize(&values, shape);
        for (i, (&v, &c)) in values.iter().zip(&codes).enumerate() {
            let scale = scales[i / shape.0];
            // Half a step; the scale's own rounding to half precision moves the greatest code by 127 / 2¹¹ steps more.
            let steps = if shape.0 == 32 { 0.5001 + 127.0 / 2048.0 } else { 0.5001 };
            assert!((v - scale * f32::from(c)).abs() <= steps * scale, "value {i}");
            assert_ne!(c, -128);
        }
        for (s, g) in sums.iter().zip(codes.chunks(shape.1)) {
            assert_eq!(i32::from(*s), g.iter().map(|&c| i32::from(c)).sum::<i32>());
        }
    }
}

#[test]
fn scales_of_32_values_are_halves_where_halves_are_normal() {
    for i in 1..100_000u32 {
        let amax = i as f32 * 0.0137;
        let scale = smelt_quant::activation::block_scale(amax, 32);
        assert_eq!(scale, half::f16::from_f32(amax / 127.0).to_f32(), "{amax}");
        assert_eq!(smelt_quant::activation::block_scale(amax, 256), amax / 127.0);
    }
    for amax in [1e-30, 1e-3, 1e30] {
        assert_eq!(smelt_quant::activation::block_scale(amax, 32), amax / 127.0);
    }
}

#[test]
fn zeros_have_scale_zero() {
    for shape in SHAPES {
        let (codes, scales, sums) = quantize(&[-0.0; 512], shape);
        assert!(codes.iter().all(|&c| c == 0) && sums.iter().all(|&s| s == 0));
        assert!(scales.iter().all(|s| s.to_bits() == 0));
    }
}

#[test]
fn extremes_never_give_the_code_without_a_negative() {
    for shape in SHAPES {
        for amax in [1e-45, 1e-39, 3e-37, 4e-37, 1e-30, 1.0, 1e30, f32::MAX] {
            let values: Vec<f32> = (0..512).map(|i| if i % 3 == 0 { -amax } else { amax * 0.4 }).collect();
            let (codes, scales, _) = quantize(&values, shape);
            assert!(codes.iter().all(|&c| c != -128), "{amax:e}");
            assert!(scales.iter().all(|s| s.is_finite() && *s >= 0.0), "{amax:e}");
        }
    }
}

#[test]
fn what_is_not_finite_makes_its_own_block_nan() {
    for shape in SHAPES {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 17, shape.0 - 1] {
                let mut values = vec![1.0; 512];
                values[at] = bad;
                let (codes, scales, _) = quantize(&values, shape);
                assert!(scales[0].is_nan() && codes[..shape.0].iter().all(|&c| c == 0));
                assert!(scales[1..].iter().all(|s| s.is_finite()));
            }
        }
    }
}

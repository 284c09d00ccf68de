//! The length of embeddings.

/// The usual norm: length 1.
pub const EUCLIDEAN: i32 = 2;

/// Divides an embedding by its norm, in llama.cpp's numbers: `p` for (∑ |v|ᵖ)^(1/p), 0 so that the largest value becomes
/// ±32760, −1 for not at all. One of only zeros stays as it is.
pub fn normalize(embedding: &mut [f32], norm: i32) {
    let largest = embedding.iter().fold(0.0, |most: f64, v| most.max(f64::from(v.abs())));
    if norm < 0 || largest == 0.0 {
        return;
    }
    // Relative to the largest, so that no power overflows.
    let powers = embedding.iter().map(|v| (f64::from(v.abs()) / largest).powi(norm));
    let divisor = match norm {
        0 => largest / 32760.0,
        p => largest * powers.sum::<f64>().powf(1.0 / f64::from(p)),
    };
    embedding.iter_mut().for_each(|v| *v = (f64::from(*v) / divisor) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_get_the_length_that_is_asked_for() {
        let normalized = |norm| {
            let mut values = [3.0, 0.0, -4.0];
            normalize(&mut values, norm);
            values
        };
        assert_eq!(normalized(-1), [3.0, 0.0, -4.0]);
        assert_eq!(normalized(0), [24570.0, 0.0, -32760.0]);
        assert_eq!(normalized(1), [3.0 / 7.0, 0.0, -4.0 / 7.0]);
        assert_eq!(normalized(2), [0.6, 0.0, -0.8]);
        assert!((normalized(3)[0] - 3.0 / 91f32.cbrt()).abs() < 1e-6);
        // The largest value alone is left of it.
        assert!((normalized(64)[2] + 1.0).abs() < 1e-6);
        for norm in -1..=64 {
            for extreme in [f32::MAX, f32::MIN_POSITIVE, 1e-45] {
                let mut values = [extreme, -extreme];
                normalize(&mut values, norm);
                assert!(values.iter().all(|v| v.is_finite() && *v != 0.0), "{extreme}, {norm}: {values:?}");
            }
            let mut zeros = [0.0, -0.0];
            normalize(&mut zeros, norm);
            assert_eq!(zeros, [0.0, 0.0]);
        }
    }
}

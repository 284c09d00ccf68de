//! Codes of the IQ formats: entries of a codebook with signs.

use crate::codebooks::even_signs;

/// 256 codes from 32 grid entries of eight magnitudes and 32 sign bytes (bit set = negative).
pub(crate) fn signed(grid: impl Fn(usize) -> [i8; 8], signs: impl Fn(usize) -> u8) -> [i8; 256] {
    let mut codes = [0; 256];
    for (i, out) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let (magnitudes, signs) = (grid(i), signs(i));
        *out = std::array::from_fn(|k| if signs >> k & 1 == 1 { -magnitudes[k] } else { magnitudes[k] });
    }
    codes
}

/// Two grid entries of four as one of eight.
pub(crate) fn pair([a, b, c, d]: [i8; 4], [e, f, g, h]: [i8; 4]) -> [i8; 8] {
    [a, b, c, d, e, f, g, h]
}

/// The word that `IQ2_XXS` and `IQ3_XXS` keep per 32 values: the scale in bits 28-31, below it four sign indices.
#[derive(Clone, Copy)]
pub(crate) struct SignsAndScale(u32);

impl SignsAndScale {
    pub(crate) fn new(bytes: [u8; 4]) -> Self {
        Self(u32::from_le_bytes(bytes))
    }

    /// `2 · scale + 1`.
    pub(crate) fn odd_scale(self) -> i32 {
        odd((self.0 >> 28) as u8)
    }

    /// The sign byte of values `8k .. 8k + 8`.
    pub(crate) fn signs(self, k: usize) -> u8 {
        even_signs((self.0 >> (7 * k) & 127) as u8)
    }
}

/// `2 · scale + 1`.
pub(crate) fn odd(scale: u8) -> i32 {
    2 * i32::from(scale) + 1
}

/// Scale `g` of nibbles, low ones first, as an odd integer.
pub(crate) fn odd_nibble(scales: &[u8], g: usize) -> i32 {
    odd(scales[g / 2] >> (g % 2 * 4) & 15)
}

/// Codes `8 · trit ± 1` of `IQ1_S` and `IQ1_M`: 32 grid entries, each with a shift of one eighth down or up.
pub(crate) fn shifted(grid: impl Fn(usize) -> [i8; 8], down: impl Fn(usize) -> bool) -> [i8; 256] {
    let mut codes = [0; 256];
    for (i, out) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let shift = if down(i) { -1 } else { 1 };
        *out = grid(i).map(|trit| 8 * trit + shift);
    }
    codes
}

//! The codebooks of formats whose codes are indices: tables, expanded at compile time.

mod grids;

/// The sixteen levels of `IQ4_NL` and `IQ4_XS`.
pub static IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice the sixteen values of an E2M1 float (`MXFP4`, `NVFP4`), so that they are integers.
pub static E2M1_DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Magnitudes of `IQ2_XXS`, in eighths.
pub static IQ2_XXS: [[i8; 8]; 256] = expand(grids::IQ2_XXS, 2, &EIGHTHS);
/// Magnitudes of `IQ2_XS`, in eighths.
pub static IQ2_XS: [[i8; 8]; 512] = expand(grids::IQ2_XS, 2, &EIGHTHS);
/// Magnitudes of `IQ2_S`, in eighths.
pub static IQ2_S: [[i8; 8]; 1024] = expand(grids::IQ2_S, 2, &EIGHTHS);
/// Magnitudes of `IQ3_XXS`, in quarters.
pub static IQ3_XXS: [[i8; 4]; 256] = expand(grids::IQ3_XXS, 4, &[4, 12, 20, 28, 36, 44, 52, 62]);
/// Magnitudes of `IQ3_S`.
pub static IQ3_S: [[i8; 4]; 512] = expand(grids::IQ3_S, 4, &[1, 3, 5, 7, 9, 11, 13, 15]);
/// Trits of `IQ1_S` and `IQ1_M`.
pub static IQ1: [[i8; 8]; 2048] = expand(grids::IQ1_S, 2, &[-1, 0, 1]);

/// The levels of the IQ2 grids.
const EIGHTHS: [i8; 3] = [8, 25, 43];

/// Entry `e`, value `k` is `levels[e >> (bits · k)]`.
const fn expand<const N: usize, const K: usize>(packed: [u16; N], bits: u32, levels: &[i8]) -> [[i8; K]; N] {
    let mut grid = [[0; K]; N];
    let mut entry = 0;
    while entry < N {
        let mut k = 0;
        while k < K {
            let index = packed[entry] >> (bits * k as u32) & ((1 << bits) - 1);
            grid[entry][k] = levels[index as usize];
            k += 1;
        }
        entry += 1;
    }
    grid
}

/// The eight signs that seven bits stand for (bit set = negative): the eighth makes the number of minus signs even.
#[must_use]
pub const fn even_signs(index: u8) -> u8 {
    let index = index & 127;
    index | (index.count_ones() as u8 & 1) << 7
}

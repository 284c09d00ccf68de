//! `TQ1_0`: trits, five to a byte (the last four bytes hold four each), f16 scale; zero at 1.

use super::by_row::{ByRow, RowBlock, half_at};
use crate::matmul::class::{BITS_4, Scaled};

pub(crate) struct Tq1_0;

impl ByRow<54> for Tq1_0 {
    type Class = Scaled<32, BITS_4, false>;
    const ZERO: i32 = 1;

    #[inline(always)]
    fn decode(block: &[u8; 54]) -> RowBlock {
        let mut codes = [0; 256];
        // Where a run of bytes begins, how long it is, and where its values begin; trit n of a run's bytes follows
        // trit n − 1 of all of them.
        for (byte, len, value, trits) in [(0, 32, 0, 5), (32, 16, 160, 5), (48, 4, 240, 4)] {
            let mut power = 1u8;
            for n in 0..trits {
                for m in 0..len {
                    let high = u16::from(block[byte + m].wrapping_mul(power)) * 3;
                    codes[value + n * len + m] = (high >> 8) as u8;
                }
                power = power.wrapping_mul(3);
            }
        }
        RowBlock { d: half_at(block, 52), scales: [1; 16], codes }
    }
}

//! `IQ4_XS`: f16 scale, eight 6-bit scales (zero at 32) as 2 bytes of high crumbs and 4 of low nibbles, then for each
//! group 16 bytes of nibbles (low: values 0..16, high: 16..32) that index the levels of `IQ4_NL`.

use super::iq4_nl::levels;
use super::{Sink, Unpack, lane_scales, look_up, nibbles};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_8, Scaled};

pub(crate) struct Iq4Xs;

impl Unpack<136> for Iq4Xs {
    type Class = Scaled<32, BITS_8, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 136>, v: usize, out: &mut impl Sink<S>) {
        let [head, low] = s.dword_pairs(rows, v, 0);
        out.d(s, 0, s.f16_low(head));
        let (nibble, crumb, bias) = (s.splat(15), s.splat(0x30), s.splat(-32));
        // Bits 4 and 5 of group 0 at their place, those of the next two bits further on.
        let high = s.shr(head, 12);
        let mut scales = [bias; 8];
        for g in 0..8 {
            let x = s.or(s.and(s.shr(low, 4 * g as u32), nibble), s.and(s.shr(high, 2 * g as u32), crumb));
            scales[g] = s.add(x, bias);
        }
        lane_scales(s, &scales, 128, out);
        for g in 0..8 {
            out.codes(s, 8 * g, look_up(s, levels::<S>(), nibbles(s, s.quads(rows, v, 8 + 16 * g))));
        }
    }
}

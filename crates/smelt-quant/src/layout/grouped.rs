//! Blocks of groups with one float scale each, dotted with [`Activation::Q8x32`](crate::Activation::Q8x32).

use super::{blocks, dot};
use crate::Row;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// `N` values `w = d · code`, or `w = d · code + m` where the format has a minimum.
pub(crate) struct Group<const N: usize> {
    pub(crate) d: f32,
    /// Only formats with `N = 32` have it, since activations carry one sum per 32 codes.
    pub(crate) m: Option<f32>,
    pub(crate) codes: [i8; N],
}

/// A block of [`GROUPS`](Self::GROUPS) groups of `N` values (16 or 32).
pub(crate) trait Grouped<const N: usize>:
    FromBytes + KnownLayout + Immutable + Unaligned + 'static
{
    const GROUPS: usize = 1;
    fn group(&self, index: usize) -> Group<N>;
}

fn groups<B: Grouped<N>, const N: usize>(bytes: &[u8]) -> impl Iterator<Item = Group<N>> + '_ {
    blocks::<B>(bytes).iter().flat_map(|block| (0..B::GROUPS).map(move |g| block.group(g)))
}

pub(crate) fn dequantize<B: Grouped<N>, const N: usize>(bytes: &[u8], out: &mut [f32]) {
    for (group, out) in groups::<B, N>(bytes).zip(out.as_chunks_mut::<N>().0) {
        for (o, &code) in out.iter_mut().zip(&group.codes) {
            let value = group.d * f32::from(code);
            // Adding a zero instead would lose the sign of −0.
            *o = group.m.map_or(value, |m| value + m);
        }
    }
}

pub(crate) fn vec_dot<B: Grouped<N>, const N: usize>(bytes: &[u8], row: Row<'_>) -> f32 {
    let Row::Q8x32 { codes, scales, sums } = row else { unreachable!("the format takes Q8x32 activations") };
    let mut acc = 0f32;
    for (i, (group, a)) in groups::<B, N>(bytes).zip(codes.as_chunks::<N>().0).enumerate() {
        let block = i * N / 32;
        acc = (group.d * scales[block]).mul_add(dot(&group.codes, a) as f32, acc);
        if let Some(m) = group.m {
            acc = m.mul_add(scales[block] * f32::from(sums[block]), acc);
        }
    }
    acc
}

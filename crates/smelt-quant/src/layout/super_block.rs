//! Blocks of 256 values with integer group scales, dotted with [`Activation::Q8x256`](crate::Activation::Q8x256).

use super::{blocks, dot};
use crate::Row;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// 256 values `w = d · scale · code − dmin · min`, with `scale` and `min` per 16 values.
///
/// Formats whose groups are 32 long repeat each scale: `Σ scale · dot` is an exact integer either way.
pub(crate) struct Unpacked {
    pub(crate) d: f32,
    pub(crate) scales: [i32; 16],
    pub(crate) codes: [i8; 256],
    pub(crate) mins: Option<Mins>,
}

/// The part that is subtracted.
pub(crate) struct Mins {
    pub(crate) dmin: f32,
    pub(crate) mins: [i32; 16],
}

/// A block of 256 values.
pub(crate) trait SuperBlock: FromBytes + KnownLayout + Immutable + Unaligned {
    fn unpack(&self) -> Unpacked;
}

/// Scales of groups of 32 as scales of groups of 16.
pub(crate) fn per_16(scales: [i32; 8]) -> [i32; 16] {
    std::array::from_fn(|i| scales[i / 2])
}

pub(crate) fn dequantize<B: SuperBlock>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in blocks::<B>(bytes).iter().zip(out.as_chunks_mut::<256>().0) {
        let u = block.unpack();
        let groups = u.codes.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0);
        for (g, (codes, out)) in groups.enumerate() {
            let scale = u.d * u.scales[g] as f32;
            let min = u.mins.as_ref().map_or(0.0, |m| m.dmin * m.mins[g] as f32);
            for (o, &code) in out.iter_mut().zip(codes) {
                *o = scale * f32::from(code) - min;
            }
        }
    }
}

pub(crate) fn vec_dot<B: SuperBlock>(bytes: &[u8], row: Row<'_>) -> f32 {
    let Row::Q8x256 { codes, scales, sums } = row else {
        unreachable!("the format takes Q8x256 activations")
    };
    let rows = codes.as_chunks::<256>().0.iter().zip(scales).zip(sums.as_chunks::<16>().0);
    let mut acc = 0f32;
    for (block, ((codes, d_a), sums)) in blocks::<B>(bytes).iter().zip(rows) {
        let u = block.unpack();
        let groups = u.codes.as_chunks::<16>().0.iter().zip(codes.as_chunks::<16>().0);
        let isum: i32 = groups.zip(&u.scales).map(|((w, a), scale)| scale * dot(w, a)).sum();
        acc = (u.d * d_a).mul_add(isum as f32, acc);
        if let Some(m) = u.mins {
            let msum: i32 = m.mins.iter().zip(sums).map(|(min, sum)| min * i32::from(*sum)).sum();
            acc = (-(m.dmin * d_a)).mul_add(msum as f32, acc);
        }
    }
    acc
}

//! One token: each block is multiplied as soon as it is unpacked.
//!
//! Unpacking a chunk of a panel and multiplying it after that would leave the memory idle during the second half, and one
//! token has no other work to hide that behind. Here blocks are unpacked one by one, so that the loads of the next
//! blocks overlap with the products of this one; and only as many rows run at once as a vector has lanes, because the
//! hardware follows few streams of addresses better than many.

use super::acts::ActRow;
use super::class::Class;
use super::micro::add_block;
use super::tile::{OneBlock, PANEL, Panel};
use super::unpack::Unpack;
use crate::isa::{Line, Op, Simd, prefetch};
use core::marker::PhantomData;

/// Multiplies a panel's whole rows with one token.
pub(crate) struct Single<'a, U, const B: usize> {
    pub(crate) panel: Panel<'a>,
    pub(crate) blocks: usize,
    pub(crate) acts: ActRow<'a>,
    /// Sixteen sums.
    pub(crate) sums: &'a mut Line,
    pub(crate) format: PhantomData<U>,
}

impl<U: Unpack<B>, const B: usize> Op for Single<'_, U, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { panel, blocks, acts, sums, format: _ } = self;
        assert!(blocks * U::BLOCK <= acts.len());
        let rows_bytes = S::LANES * panel.row_bytes();
        let mut one = OneBlock::new();
        for v in 0..PANEL / S::LANES {
            let mut acc = [[s.splat_f(0.0)]];
            for b in 0..blocks {
                for line in 0..(S::LANES * B).div_ceil(64) {
                    prefetch(panel.address((v + 1) * rows_bytes + b * S::LANES * B + line * 64));
                }
                let rows = panel.blocks::<B>(v * S::LANES, S::LANES, b);
                U::unpack(s, rows, 0, &mut one.block(U::SHAPE));
                for part in 0..U::BLOCK / U::Class::VALUES {
                    let block = one.part::<U::Class>(part);
                    let value = b * U::BLOCK + part * U::Class::VALUES;
                    // SAFETY: the block's values lie inside the row (asserted).
                    unsafe { add_block::<S, U::Class, 1, 1>(s, block, &[acts], value, &mut acc) };
                }
            }
            s.store_f(sums, v, acc[0][0]);
        }
    }
}

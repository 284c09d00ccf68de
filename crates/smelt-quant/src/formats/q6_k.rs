//! `Q6_K`: 256 signed six-bit codes in sixteen groups, each with a signed byte as scale.
//!
//! ```text
//! byte   0 .. 127   128 .. 191   192 .. 207         208 209
//!        ql         qh           scales: 16 × i8    d: f16
//!
//! ql: value 128h + l, bits 0-3, in the low nibble of byte 64h + l (l = 0..63), value 128h + 64 + l in its high nibble
//! qh: value 128h + 32s + l, bits 4 and 5, in bits 2s and 2s + 1 of byte 32h + l
//! w = d · scale · (q − 32)
//! ```
//!
//! Kernels: `Q8x256`, groups of 16, `d_w = d`, `scale_g` −128..=127, no minima; codes are `q − 32` in −32..=31 (zero
//! point 32).

use crate::layout::bits::{crumbs_256, nibbles, pack_crumbs_256, pack_nibbles};
use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::layout::{F16, quantize_blocks};
use crate::search::{TINY, inverse, nearest, peak, sweep};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    ql: [[u8; 64]; 2],
    qh: [u8; 64],
    scales: [i8; 16],
    d: F16,
}
const _: () = assert!(size_of::<Block>() == 210);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let low: [[u8; 128]; 2] = self.ql.each_ref().map(nibbles);
        let high = crumbs_256(&self.qh);
        Unpacked {
            d: self.d.get(),
            scales: self.scales.map(i32::from),
            codes: std::array::from_fn(|i| (low[i / 128][i % 128] | high[i] << 4) as i8 - 32),
            mins: None,
        }
    }
}

fn encode(values: &[f32; 256]) -> Block {
    let (mut scales, mut codes) = ([0f32; 16], [0i8; 256]);
    let groups = || values.as_chunks::<16>().0.iter();
    for ((x, scale), codes) in groups().zip(&mut scales).zip(codes.as_chunks_mut::<16>().0) {
        (*scale, *codes) = sweep(x, 32);
    }
    let top = peak(&scales);
    let factor = if top.abs() < TINY { 0.0 } else { -128.0 / top };
    let scales = scales.map(|s| nearest(factor * s).clamp(-128, 127) as i8);
    let d = F16::new(inverse(factor));
    for ((x, &scale), codes) in groups().zip(&scales).zip(codes.as_chunks_mut::<16>().0) {
        let scale = d.get() * f32::from(scale);
        if scale != 0.0 {
            *codes = x.map(|x| nearest(x / scale).clamp(-32, 31) as i8);
        }
    }
    let codes = codes.map(|q| (q + 32) as u8);
    let halves: [&[u8; 128]; 2] = std::array::from_fn(|h| &codes.as_chunks().0[h]);
    Block { ql: halves.map(pack_nibbles), qh: pack_crumbs_256(&codes.map(|q| q >> 4)), scales, d }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Six bits with eight-bit scales per 16 values.
pub static Q6_K: Format = Format {
    name: "Q6_K",
    ggml_type: 14,
    block_len: 256,
    block_bytes: 210,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0187, dot: 0.003 },
};

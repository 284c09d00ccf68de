//! `TQ1_0`: 256 trits, five to a byte, and one scale (ternary models).
//!
//! ```text
//! byte   0 .. 47   48 .. 51   52 53
//!        qs        qh         d: f16
//!
//! A byte holds trits t0 .. t4 as ceil(256 · (81·t0 + 27·t1 + 9·t2 + 3·t3 + t4) / 243), so that
//! t_n = ((byte · 3^n mod 256) · 3) >> 8.
//! values 32n + m        (n = 0..5, m = 0..32): t_n of qs[m]
//! values 160 + 16n + m  (n = 0..5, m = 0..16): t_n of qs[32 + m]
//! values 240 + 4n + m   (n = 0..4, m = 0..4):  t_n of qh[m]
//! w = d · (t − 1)
//! ```
//!
//! Kernels: `Q8x256`, one group, `d_w = d`, `scale_g = 1`, no minima; codes are `t − 1` in −1..=1 (zero point 1), also
//! for bytes that no quantiser writes.

use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::layout::{F16, quantize_blocks};
use crate::search::{amax, inverse};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    qs: [u8; 48],
    qh: [u8; 4],
    d: F16,
}
const _: () = assert!(size_of::<Block>() == 54);

const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

/// Trit `n` of a byte.
fn trit(byte: u8, n: usize) -> i8 {
    ((u16::from(byte.wrapping_mul(POWERS[n])) * 3) >> 8) as i8
}

/// Where value `i` is: byte (of `qs`, then `qh`) and trit.
fn place(i: usize) -> (usize, usize) {
    match i {
        0..160 => (i % 32, i / 32),
        160..240 => (32 + i % 16, (i - 160) / 16),
        _ => (48 + i % 4, (i - 240) / 4),
    }
}

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let byte = |at: usize| if at < 48 { self.qs[at] } else { self.qh[at - 48] };
        let code = |i: usize| {
            let (at, n) = place(i);
            trit(byte(at), n) - 1
        };
        Unpacked { d: self.d.get(), scales: [1; 16], codes: std::array::from_fn(code), mins: None }
    }
}

/// The scale is the largest magnitude: exact for weights that are ternary already.
fn encode(values: &[f32; 256]) -> Block {
    let d = amax(values);
    let inverse = inverse(d);
    let mut packed = [0u16; 52];
    for (i, v) in values.iter().enumerate() {
        let (at, n) = place(i);
        packed[at] += u16::from(POWERS[4 - n]) * ((v * inverse).round().clamp(-1.0, 1.0) + 1.0) as u16;
    }
    let byte = |sum: u16| (u32::from(sum) * 256).div_ceil(243) as u8;
    let qs = std::array::from_fn(|m| byte(packed[m]));
    Block { qs, qh: std::array::from_fn(|m| byte(packed[48 + m])), d: F16::new(d) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Trits packed five to a byte with one scale per 256 values.
pub static TQ1_0: Format = Format {
    name: "TQ1_0",
    ggml_type: 34,
    block_len: 256,
    block_bytes: 54,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.87, dot: 0.003 },
};

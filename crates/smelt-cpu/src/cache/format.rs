//! How caches hold numbers: as codes in lines of sixteen, some of them under a scale per 32 values of a head.
//!
//! A value is its code times its scale, which is exact in f32: a kernel that reads a quantised cache does the very
//! operations that it would do on a cache of f32 that holds the rounded values.

use crate::memory::Plain;
use crate::wide::Wide;
use smelt_backend::KvFormat;

/// Values of a head that share a scale.
pub(crate) const BLOCK: usize = 32;

/// A storage of keys or values.
pub(crate) trait Format: std::fmt::Debug + Copy + Send + Sync + 'static {
    /// One value, or two of them where values are half a byte.
    type Code: Plain + Default + std::fmt::Debug;
    const FORMAT: KvFormat;
    /// Codes of a block: half a block's values where a code holds two. Code `i` then holds the values `i` and, in its
    /// upper half, `i + CODES`.
    const CODES: usize;
    /// Whether blocks have scales.
    const SCALED: bool;

    /// Sixteen values, unscaled; `shift` is where their bits begin in a code.
    fn load<W: Wide>(w: W, line: &[Self::Code; 16], shift: u32) -> W::V;

    /// Codes and scale of a block; what lies behind a head's last value is zero.
    fn encode<W: Wide>(w: W, values: &[f32; BLOCK], codes: &mut [Self::Code; BLOCK]) -> u16;
}

/// Single precision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Single;

/// Half precision.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Half;

/// Bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Q8;

/// Half bytes, 8 more than what they stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Q4;

impl Format for Single {
    type Code = f32;
    const FORMAT: KvFormat = KvFormat::F32;
    const CODES: usize = BLOCK;
    const SCALED: bool = false;

    #[inline(always)]
    fn load<W: Wide>(w: W, line: &[f32; 16], _: u32) -> W::V {
        w.load(line)
    }
    #[inline(always)]
    fn encode<W: Wide>(_: W, values: &[f32; BLOCK], codes: &mut [f32; BLOCK]) -> u16 {
        *codes = *values;
        0
    }
}

impl Format for Half {
    type Code = u16;
    const FORMAT: KvFormat = KvFormat::F16;
    const CODES: usize = BLOCK;
    const SCALED: bool = false;

    #[inline(always)]
    fn load<W: Wide>(w: W, line: &[u16; 16], _: u32) -> W::V {
        w.load_half(line)
    }
    #[inline(always)]
    fn encode<W: Wide>(w: W, values: &[f32; BLOCK], codes: &mut [u16; BLOCK]) -> u16 {
        for (values, codes) in values.as_chunks::<16>().0.iter().zip(codes.as_chunks_mut::<16>().0) {
            w.store_half(w.load(values), codes);
        }
        0
    }
}

impl Format for Q8 {
    type Code = i8;
    const FORMAT: KvFormat = KvFormat::Q8_0;
    const CODES: usize = BLOCK;
    const SCALED: bool = true;

    #[inline(always)]
    fn load<W: Wide>(w: W, line: &[i8; 16], _: u32) -> W::V {
        w.load_bytes(line)
    }
    fn encode<W: Wide>(_: W, values: &[f32; BLOCK], codes: &mut [i8; BLOCK]) -> u16 {
        let (scale, bytes) = block::<34>(Self::FORMAT, values);
        codes.iter_mut().zip(&bytes[2..]).for_each(|(code, byte)| *code = *byte as i8);
        scale
    }
}

impl Format for Q4 {
    type Code = u8;
    const FORMAT: KvFormat = KvFormat::Q4_0;
    const CODES: usize = BLOCK / 2;
    const SCALED: bool = true;

    #[inline(always)]
    fn load<W: Wide>(w: W, line: &[u8; 16], shift: u32) -> W::V {
        w.load_nibbles(line, shift)
    }
    fn encode<W: Wide>(_: W, values: &[f32; BLOCK], codes: &mut [u8; BLOCK]) -> u16 {
        let (scale, bytes) = block::<18>(Self::FORMAT, values);
        codes[..Self::CODES].copy_from_slice(&bytes[2..]);
        scale
    }
}

/// A block as files hold it, and its scale, which comes first.
fn block<const N: usize>(format: KvFormat, values: &[f32; BLOCK]) -> (u16, [u8; N]) {
    let mut bytes = [0; N];
    format.blocks().quantize.expect("formats of caches can be written")(values, &mut bytes);
    (u16::from_le_bytes([bytes[0], bytes[1]]), bytes)
}

//! Every operation of every token against the plain arrays of the same width, bit for bit.

use super::*;

/// Runs each operation on the same noise and gathers the bits of the results.
struct EveryOperation;

/// Sixteen rows of noise, and lines of it.
fn noise() -> ([[u8; 64]; 16], [Line; 4]) {
    let mut x = 0x1234_5678_9ABC_DEF1u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    let rows = core::array::from_fn(|_| core::array::from_fn(|_| next() as u8));
    (rows, core::array::from_fn(|_| Line(core::array::from_fn(|_| (next() >> 16) as u32))))
}

impl Op for EveryOperation {
    type Output = Vec<[u32; 16]>;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Self::Output {
        let mut out = Vec::new();
        let (rows, lines) = noise();
        let rows = rows.each_ref();
        let bytes: Vec<u8> = rows.iter().flat_map(|r| r.iter().copied()).collect();
        let finite = |x: S::I| s.to_f(s.sar(x, 7));
        // The first vector only: the second of a narrower token is the same code.
        let mut keep = |x: S::I| {
            let mut line = Line::ZERO;
            s.store(&mut line, 0, x);
            out.push(line.0);
        };
        let [a, b, c, d] =
            [s.load(&lines[0], 0), s.load(&lines[1], 0), s.load(&lines[2], 0), s.load(&lines[3], 0)];
        // Activations are never −128 (here of both signs), and a partial holds one pair of 7-bit codes.
        let acts = s.xor(s.and(b, s.splat(0x3F3F_3F3F)), s.splat(0x00FF_FF00));
        let codes = s.and(a, s.splat(0x7F7F_7F7F));
        let scale = s.or(s.and(c, s.splat(0x3F)), s.shl(s.and(c, s.splat(0x3F)), 16));
        let small = s.and(d, s.splat(0xFFFF));
        for x in [
            s.splat(-5),
            s.and(a, b),
            s.or(a, b),
            s.xor(a, b),
            s.shl(a, 5),
            s.shr(a, 5),
            s.sar(a, 5),
            s.add(a, b),
            s.mul(a, b),
            s.max(a, b),
            s.eq_bytes(s.and(a, s.splat(0x0101_0101)), s.and(b, s.splat(0x0101_0101))),
            s.lookup(rows[0].first_chunk().expect("64 bytes"), s.and(a, s.splat(0x0F0F_0F0F))),
            s.spread_byte::<0>(a),
            s.spread_byte::<1>(a),
            s.spread_byte::<2>(a),
            s.spread_byte::<3>(a),
            s.dwords(&rows, 0, 3),
            s.end(small, s.mac(s.begin(small), codes, acts)),
            s.end_scaled(small, s.mac(s.begin(s.splat(0)), codes, acts), scale),
            s.madd(c, s.and(a, s.splat(0x0FFF_0FFF)), b),
            s.bits(s.splat_f(1.5)),
            s.bits(s.load_f(&lines[0], 0)),
            s.bits(s.load_f32_bytes(&bytes[5..])),
            s.bits(s.load_bf16_bytes(&bytes[5..])),
            s.bits(s.mul_f(finite(a), finite(b))),
            s.bits(s.fma(finite(a), finite(b), finite(c))),
            s.bits(s.fnma(finite(a), finite(b), finite(c))),
            s.bits(s.to_f(a)),
            s.to_i(s.mul_f(finite(a), s.splat_f(0.5))),
            s.bits(s.f16_low(s.and(a, s.splat(0x7BFF)))),
            s.bits(s.f16_high(s.and(a, s.splat(0x7BFF_FFFF)))),
        ] {
            keep(x);
        }
        for x in s.quads(&rows, 0, 7) {
            keep(x);
        }
        // With bytes that use all eight bits, both conventions end in the same product.
        let wide = s.end(s.splat(0), s.mac_wide(s.begin(s.splat(0)), a, acts));
        let offset = s.end(s.splat(0), s.mac(s.begin(s.splat(0)), s.splat(0x4040_4040), acts));
        let twice = s.add(offset, offset);
        keep(if S::SIGNED_WIDE { wide } else { s.add(wide, s.mul(twice, s.splat(-1))) });
        out
    }
}

fn check(got: Vec<[u32; 16]>, want: Vec<[u32; 16]>, lanes: usize) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(&want).enumerate() {
        assert_eq!(got[..lanes], want[..lanes], "operation {i}");
    }
}

#[test]
fn avx2_does_what_the_arrays_do() {
    #[cfg(target_arch = "x86_64")]
    if let Some(s) = Avx2::new() {
        check(s.vectorize(EveryOperation), Plain::<8>.vectorize(EveryOperation), 8);
    }
}

#[test]
fn avx512_does_what_the_arrays_do() {
    #[cfg(target_arch = "x86_64")]
    if let Some(s) = Avx512Vnni::new() {
        check(s.vectorize(EveryOperation), Plain::<16>.vectorize(EveryOperation), 16);
    }
}

#[test]
fn plain_widths_agree() {
    check(Plain::<8>.vectorize(EveryOperation), Plain::<16>.vectorize(EveryOperation), 8);
}

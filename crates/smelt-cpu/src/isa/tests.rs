//! Every operation of every token against the plain arrays, bit for bit, in every vector of a line.

use super::*;
use core::array::from_fn;
use smelt_quant::codebooks;

static IQ1: Codebook<8, 2048> = Codebook::new(codebooks::IQ1);
static IQ2_S: Codebook<8, 1024> = Codebook::new(codebooks::IQ2_S);
static IQ2_XXS: Codebook<8, 256> = Codebook::new(codebooks::IQ2_XXS);
static IQ3_S: Codebook<4, 512> = Codebook::new(codebooks::IQ3_S);
static IQ3_XXS: Codebook<4, 256> = Codebook::new(codebooks::IQ3_XXS);

/// Masks of bytes that leave no NaN or infinity, whichever byte a half or bfloat begins at.
const FINITE_F16: u8 = 0xFB;
const FINITE_BF16: u8 = 0xBF;

/// What the operations work on.
struct Inputs {
    rows: [[u8; 64]; 16],
    lines: [Line; 3],
    /// Activation bytes: all but −128.
    acts: Line,
}

impl Inputs {
    /// Noise, each byte of it put through `byte`.
    fn new(seed: u64, byte: impl Fn(u8) -> u8) -> Self {
        let mut x = 0x1234_5678_9ABC_DEF1 ^ seed << 8;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            byte((x >> 24) as u8)
        };
        let rows: [[u8; 64]; 16] = from_fn(|_| from_fn(|_| next()));
        let mut line = || Line(from_fn(|_| u32::from_le_bytes(from_fn(|_| next()))));
        let lines = from_fn(|_| line());
        let acts =
            line().0.map(|x| u32::from_le_bytes(x.to_le_bytes().map(|b| if b == 0x80 { 0x81 } else { b })));
        Self { rows, lines, acts: Line(acts) }
    }

    /// The rows with `mask` on every byte.
    fn masked(&self, mask: u8) -> [[u8; 64]; 16] {
        self.rows.map(|row| row.map(|b| b & mask))
    }

    /// Noise of all bytes, and of those at which signs, saturation and carries go wrong.
    fn all() -> Vec<Self> {
        let edges = [0x00, 0x01, 0x7F, 0x80, 0x81, 0xFF];
        let noise = (0..16).map(|seed| Self::new(seed, |b| b));
        noise.chain((16..48).map(|seed| Self::new(seed, |b| edges[usize::from(b) % edges.len()]))).collect()
    }
}

/// Named operations, each with the sixteen lanes of its result.
#[derive(Default)]
struct Results(Vec<(&'static str, [u32; 16])>);

impl Results {
    /// Keeps what `f` gives for each vector of a line.
    #[inline(always)]
    fn each<S: Simd>(&mut self, s: S, name: &'static str, f: impl Fn(usize) -> S::I) {
        let mut line = Line::ZERO;
        for v in 0..16 / S::LANES {
            s.store(&mut line, v, f(v));
        }
        self.0.push((name, line.0));
    }

    /// The same for floats, through their own store.
    #[inline(always)]
    fn each_f<S: Simd>(&mut self, s: S, name: &'static str, f: impl Fn(usize) -> S::F) {
        let mut line = Line::ZERO;
        for v in 0..16 / S::LANES {
            s.store_f(&mut line, v, f(v));
        }
        self.0.push((name, line.0));
    }
}

/// Runs each operation on the inputs.
struct EveryOperation<'a>(&'a Inputs);

impl Op for EveryOperation<'_> {
    type Output = Results;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> Results {
        let mut out = Results::default();
        integers(s, self.0, &mut out);
        rows(s, self.0, &mut out);
        dot_products(s, self.0, &mut out);
        float_loads(s, self.0, &mut out);
        floats(s, self.0, &mut out);
        out
    }
}

#[inline(always)]
fn integers<S: Simd>(s: S, inputs: &Inputs, out: &mut Results) {
    let a = |v| s.load(&inputs.lines[0], v);
    let b = |v| s.load(&inputs.lines[1], v);
    out.each(s, "splat", |_| s.splat(-5));
    out.each(s, "load", a);
    out.each(s, "and", |v| s.and(a(v), b(v)));
    out.each(s, "or", |v| s.or(a(v), b(v)));
    out.each(s, "xor", |v| s.xor(a(v), b(v)));
    for n in [0, 1, 4, 8, 16, 24, 31] {
        out.each(s, "shl", |v| s.shl(a(v), n));
        out.each(s, "shr", |v| s.shr(a(v), n));
        out.each(s, "sar", |v| s.sar(a(v), n));
    }
    out.each(s, "add", |v| s.add(a(v), b(v)));
    out.each(s, "mul", |v| s.mul(a(v), b(v)));
    out.each(s, "max", |v| s.max(a(v), b(v)));
    let bits = s.splat(0x8001_0103_u32 as i32);
    out.each(s, "eq_bytes", |v| s.eq_bytes(s.and(a(v), bits), s.and(b(v), bits)));
    let bit = s.splat(0x8001_1004_u32 as i32);
    out.each(s, "sub_where", |v| s.sub_where(a(v), b(v), s.load(&inputs.lines[2], v), bit));
    let table = inputs.rows[0].first_chunk().expect("16 of 64 bytes");
    out.each(s, "lookup", |v| s.lookup(table, s.and(a(v), s.splat(0x0F0F_0F0F))));
    for i in 0..2 {
        out.each(s, "lookup4 of 256", |v| s.lookup4(&IQ3_XXS, a(v))[i]);
        out.each(s, "lookup4 of 512", |v| s.lookup4(&IQ3_S, a(v))[i]);
        for half in 0..2 {
            out.each(s, "lookup8 of 256", |v| s.lookup8(&IQ2_XXS, a(v))[i][half]);
            out.each(s, "lookup8 of 1024", |v| s.lookup8(&IQ2_S, a(v))[i][half]);
            out.each(s, "lookup8 of 2048", |v| s.lookup8(&IQ1, a(v))[i][half]);
        }
    }
    out.each(s, "halves 0 1", |v| s.halves::<0, 1>(a(v)));
    out.each(s, "halves 3 2", |v| s.halves::<3, 2>(a(v)));
    out.each(s, "signed_halves 2 2", |v| s.signed_halves::<2, 2>(a(v)));
    out.each(s, "signed_halves 0 3", |v| s.signed_halves::<0, 3>(a(v)));
    out.each(s, "mul_halves", |v| s.mul_halves(a(v), b(v)));
    out.each(s, "spread_byte 0", |v| s.spread_byte::<0>(a(v)));
    out.each(s, "spread_byte 1", |v| s.spread_byte::<1>(a(v)));
    out.each(s, "spread_byte 2", |v| s.spread_byte::<2>(a(v)));
    out.each(s, "spread_byte 3", |v| s.spread_byte::<3>(a(v)));
}

#[inline(always)]
fn rows<S: Simd>(s: S, inputs: &Inputs, out: &mut Results) {
    let rows = Rows::of(&inputs.rows);
    for offset in [0, 7, 48] {
        for j in 0..4 {
            out.each(s, "quads", |v| s.quads(rows, v, offset)[j]);
        }
    }
    for offset in [0, 3, 60] {
        out.each(s, "dwords", |v| s.dwords(rows, v, offset));
    }
    for offset in [0, 5, 56] {
        for j in 0..2 {
            out.each(s, "dword_pairs", |v| s.dword_pairs(rows, v, offset)[j]);
        }
    }
    let finite = inputs.masked(FINITE_F16);
    for offset in [0, 1, 62] {
        out.each_f(s, "f16s", |v| s.f16s(Rows::of(&finite), v, offset));
    }
}

#[inline(always)]
fn dot_products<S: Simd>(s: S, inputs: &Inputs, out: &mut Results) {
    let [a, b, sum] = [0, 1, 2].map(|i| move |v| s.load(&inputs.lines[i], v));
    let acts = |v| s.load(&inputs.acts, v);
    let masked = |v, mask: i32| s.and(a(v), s.splat(mask));
    // A narrow partial holds one step of 7-bit codes, or eight of 4-bit ones.
    let one = |v, sum| s.mac(s.begin(sum), masked(v, 0x7F7F_7F7F), acts(v));
    out.each(s, "mac", |v| s.end(sum(v), one(v, sum(v))));
    out.each(s, "eight of mac", |v| {
        let codes = masked(v, 0x0F0F_0F0F);
        let partial = (0..8).fold(s.begin(sum(v)), |partial, _| s.mac(partial, codes, acts(v)));
        s.end(sum(v), partial)
    });
    out.each(s, "end_scaled", |v| {
        let half = s.and(b(v), s.splat(0xFFFF));
        s.end_scaled(sum(v), one(v, s.splat(0)), s.or(half, s.shl(half, 16)))
    });
    out.each(s, "end_scaled_narrow", |v| {
        let (half, codes) = (s.and(b(v), s.splat(0xFFFF)), masked(v, 0x0F0F_0F0F));
        let partial = (0..4).fold(s.begin(s.splat(0)), |partial, _| s.mac(partial, codes, acts(v)));
        s.end_scaled_narrow(sum(v), partial, s.or(half, s.shl(half, 16)))
    });
    // Wide partials hold any number of steps of any codes.
    out.each(s, "many of mac", |v| {
        let codes = masked(v, 0x7F7F_7F7F);
        let (mut total, mut partial) = (sum(v), s.begin(sum(v)));
        for _ in 0..64 {
            if !S::EXACT_PARTIAL {
                partial = s.begin(total);
            }
            partial = s.mac(partial, codes, acts(v));
            total = s.end(total, partial);
        }
        total
    });
    // With bytes that use all eight bits, both conventions end in the product of `a − 128`.
    out.each(s, "mac_wide", |v| {
        let w = if S::SIGNED_WIDE { s.xor(a(v), s.splat(0x8080_8080_u32 as i32)) } else { a(v) };
        let wide = s.end(sum(v), s.mac_wide(s.begin(sum(v)), w, acts(v)));
        let half = s.mac(s.begin(s.splat(0)), s.splat(0x4040_4040), acts(v));
        let offset = s.mul(s.end(s.splat(0), half), s.splat(-2));
        if S::SIGNED_WIDE { wide } else { s.add(wide, offset) }
    });
    out.each(s, "madd", |v| s.madd(sum(v), a(v), b(v)));
    // The rows of vector `v` have bytes of their own; both conventions end in the product of signed bytes.
    let codes: [i8; 512] = from_fn(|i| inputs.acts.0[i / 4 % 16].to_le_bytes()[i % 4] as i8);
    for offset in [0, 3, 32] {
        out.each(s, "dots", |v| {
            let (first, codes) = (v * S::LANES, &codes[v * S::LANES * 32..]);
            let rows: [[u8; 64]; 16] = from_fn(|r| inputs.rows[(first + r) % 16]);
            let dots = s.dots(Rows::of(&rows), offset, codes);
            let zeros = s.dots(Rows::of(&[[0; 64]; 16]), 0, codes);
            s.add(dots, s.mul(zeros, s.splat(-1)))
        });
    }
}

#[inline(always)]
fn float_loads<S: Simd>(s: S, inputs: &Inputs, out: &mut Results) {
    out.each_f(s, "load_f", |v| s.load_f(&inputs.lines[0], v));
    let floats = inputs.lines[1].floats();
    out.each_f(s, "load_slice", |v| s.load_slice(&floats[v * S::LANES..][..S::LANES]));
    let [f32s, f16s, bf16s] = [0xFF, FINITE_F16, FINITE_BF16].map(|mask| inputs.masked(mask));
    for offset in [0, 5] {
        let part = |rows: &[[u8; 64]; 16], v, size: usize| {
            rows.as_flattened()[offset + v * S::LANES * size..][..S::LANES * size].to_vec()
        };
        out.each_f(s, "load_f32_bytes", |v| s.load_f32_bytes(&part(&f32s, v, 4)));
        out.each_f(s, "load_f16_bytes", |v| s.load_f16_bytes(&part(&f16s, v, 2)));
        out.each_f(s, "load_bf16_bytes", |v| s.load_bf16_bytes(&part(&bf16s, v, 2)));
    }
}

#[inline(always)]
fn floats<S: Simd>(s: S, inputs: &Inputs, out: &mut Results) {
    let a = |v| s.load(&inputs.lines[0], v);
    // Integers of 25 bits: products and sums of them have to be rounded.
    let [x, y, z] = [0, 1, 2].map(|i| move |v| s.to_f(s.sar(s.load(&inputs.lines[i], v), 7)));
    out.each_f(s, "splat_f", |_| s.splat_f(1.5));
    out.each_f(s, "mul_f", |v| s.mul_f(x(v), y(v)));
    out.each_f(s, "fma", |v| s.fma(x(v), y(v), z(v)));
    out.each_f(s, "fnma", |v| s.fnma(x(v), y(v), z(v)));
    out.each_f(s, "to_f", |v| s.to_f(a(v)));
    for scale in [0.5, 0.25, 2f32.powi(-18)] {
        out.each(s, "to_i", |v| s.to_i(s.mul_f(x(v), s.splat_f(scale))));
    }
    out.each(s, "bits", |v| s.bits(x(v)));
    out.each_f(s, "with_bits", |v| s.with_bits(s.and(a(v), s.splat(0x7F7F_FFFF))));
    let integers = inputs.rows.map(|row| Line(from_fn(|i| u32::from_le_bytes(from_fn(|j| row[4 * i + j])))));
    let lines = integers.map(|line| Line(line.0.map(|x| ((x as i32 >> 7) as f32).to_bits())));
    out.0.push(("reduce_lines", s.reduce_lines(&lines).0));
    let halves = |v| s.and(a(v), s.splat(0xFBFF_FBFF_u32 as i32));
    out.each_f(s, "f16_low", |v| s.f16_low(halves(v)));
    out.each_f(s, "f16_high", |v| s.f16_high(halves(v)));
}

/// Whether `s` gives the bits that sixteen plain lanes give.
fn check(s: impl Simd) {
    for (i, inputs) in Inputs::all().iter().enumerate() {
        let (got, want) =
            (s.vectorize(EveryOperation(inputs)), Plain::<16>.vectorize(EveryOperation(inputs)));
        assert_eq!(got.0.len(), want.0.len());
        for (got, want) in got.0.iter().zip(&want.0) {
            assert_eq!(got, want, "inputs {i}");
        }
    }
}

#[test]
fn avx2_does_what_the_arrays_do() {
    #[cfg(target_arch = "x86_64")]
    if let Some(s) = Avx2::new() {
        check(s);
    }
}

#[test]
fn avx512_does_what_the_arrays_do() {
    #[cfg(target_arch = "x86_64")]
    if let Some(s) = Avx512Vnni::new() {
        check(s);
    }
}

#[test]
fn plain_widths_agree() {
    check(Plain::<8>);
}

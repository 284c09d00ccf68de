use super::*;

/// Applies one function to many values.
struct Map<'a, F>(&'a [f32], F);

trait Function: Copy {
    fn of<W: Wide>(self, w: W, x: W::V) -> W::V;
}

impl<F: Function> WideOp for Map<'_, F> {
    type Output = Vec<f32>;
    #[inline(always)]
    fn run<W: Wide>(self, w: W) -> Vec<f32> {
        let mut out = vec![0.0; self.0.len()];
        for (x, out) in self.0.chunks(16).zip(out.chunks_mut(16)) {
            w.store_part(self.1.of(w, w.load_part(x)), out);
        }
        out
    }
}

#[derive(Clone, Copy)]
enum Name {
    Exp,
    Tanh,
    Sigmoid,
    ThroughHalf,
}

impl Function for Name {
    #[inline(always)]
    fn of<W: Wide>(self, w: W, x: W::V) -> W::V {
        match self {
            Name::Exp => w.exp(x),
            Name::Tanh => w.tanh(x),
            Name::Sigmoid => w.sigmoid(x),
            Name::ThroughHalf => {
                let mut half = [0; 16];
                w.store_half(x, &mut half);
                w.load_half(&half)
            }
        }
    }
}

fn samples() -> Vec<f32> {
    let mut values: Vec<f32> = (-90_000..90_000).map(|i| i as f32 * 1e-3).collect();
    values.extend((-2000..2000).map(|i| i as f32 * 1e-6));
    values.extend([0.0, -0.0, 1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY]);
    values
}

#[test]
fn functions_are_accurate() {
    let x = samples();
    for (value, e) in x.iter().zip(Vectors::Plain.run(Map(&x, Name::Exp))) {
        let exact = f64::from(value.clamp(-87.0, 87.0)).exp();
        assert!((f64::from(e) / exact - 1.0).abs() < 2.4e-7, "exp {value} = {e}, not {exact}");
    }
    for (value, t) in x.iter().zip(Vectors::Plain.run(Map(&x, Name::Tanh))) {
        assert!((f64::from(t) - f64::from(*value).tanh()).abs() < 2e-7, "tanh {value} = {t}");
    }
    for (value, s) in x.iter().zip(Vectors::Plain.run(Map(&x, Name::Sigmoid))) {
        let exact = 1.0 / (1.0 + (-f64::from(*value)).exp());
        assert!((f64::from(s) - exact).abs() < 2e-7, "sigmoid {value} = {s}");
    }
}

#[test]
fn instruction_sets_agree_bit_for_bit() {
    let x = samples();
    for name in [Name::Exp, Name::Tanh, Name::Sigmoid, Name::ThroughHalf] {
        let plain = Vectors::Plain.run(Map(&x, name));
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let other = Vectors::new(isa).run(Map(&x, name));
            assert!(plain.iter().zip(&other).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa:?}");
        }
    }
}

/// Bytes, nibbles and the largest lane of sixteen values.
struct Sixteen<'a>(&'a [f32; 16], &'a [i8; 16]);

impl WideOp for Sixteen<'_> {
    type Output = [f32; 49];
    #[inline(always)]
    fn run<W: Wide>(self, w: W) -> [f32; 49] {
        let mut out = [w.largest(w.load(self.0)); 49];
        let bytes = self.1.map(|b| b as u8);
        let lines = [w.load_bytes(self.1), w.load_nibbles(&bytes, 0), w.load_nibbles(&bytes, 4)];
        for (line, out) in lines.into_iter().zip(out.as_chunks_mut::<16>().0) {
            w.store(line, out);
        }
        out
    }
}

#[test]
fn bytes_nibbles_and_the_largest_lane_are_exact() {
    for first in 0..256 {
        let bytes: [i8; 16] = std::array::from_fn(|i| (first + 37 * i) as u8 as i8);
        let mut lanes = bytes.map(|b| f32::from(b) * 0.37 - 50.0);
        lanes[first % 16] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0][first / 16 % 4];
        let largest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let found = Vectors::new(isa).run(Sixteen(&lanes, &bytes));
            for i in 0..16 {
                let nibbles = [bytes[i] as u8 & 15, bytes[i] as u8 >> 4].map(|n| f32::from(n) - 8.0);
                let right = [f32::from(bytes[i]), nibbles[0], nibbles[1]];
                assert_eq!([found[i], found[16 + i], found[32 + i]], right, "{isa:?}, byte {}", bytes[i]);
            }
            assert_eq!(found[48], largest, "{isa:?}: {lanes:?}");
        }
        assert_eq!(Vectors::new(Isa::Scalar).run(Sixteen(&[f32::NAN; 16], &bytes))[48], f32::NEG_INFINITY);
    }
}

#[test]
fn nan_stays_nan() {
    let nans = [f32::NAN, f32::from_bits(0x7FC0_0001), f32::from_bits(0xFFFF_FFFF)];
    for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
        for name in [Name::Exp, Name::Tanh, Name::Sigmoid, Name::ThroughHalf] {
            assert!(Vectors::new(isa).run(Map(&nans, name)).iter().all(|v| v.is_nan()));
        }
    }
}

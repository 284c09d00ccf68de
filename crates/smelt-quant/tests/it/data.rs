//! Random numbers, activation rows, and the committed vectors.

use smelt_quant::activation::quantize_row;
use smelt_quant::{Activation, Format, Row};
use std::path::Path;

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    pub(crate) fn normal(&mut self) -> f32 {
        let radius = (-2.0 * self.unit().ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }

    pub(crate) fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }
}

/// A quantised activation row that owns its parts.
pub(crate) struct Quantized {
    activation: Activation,
    values: Vec<f32>,
    codes: Vec<i8>,
    scales: Vec<f32>,
    sums: Vec<i16>,
}

impl Quantized {
    pub(crate) fn new(activation: Activation, values: &[f32]) -> Self {
        let n = values.len();
        let (mut codes, mut scales, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        if let Some((block, group)) = activation.shape() {
            assert_eq!(n % block, 0, "the row has whole blocks");
            codes = vec![0; n];
            scales = vec![0.0; n / block];
            sums = vec![0; n / group];
            quantize_row(values, block, group, &mut codes, &mut scales, &mut sums);
        }
        Self { activation, values: values.to_vec(), codes, scales, sums }
    }

    pub(crate) fn row(&self) -> Row<'_> {
        let Self { codes, scales, sums, .. } = self;
        match self.activation {
            Activation::F32 => Row::F32(&self.values),
            Activation::Q8x32 => Row::Q8x32 { codes, scales, sums },
            Activation::Q8x256 => Row::Q8x256 { codes, scales, sums },
        }
    }

    /// What the codes stand for, without rounding.
    pub(crate) fn decoded(&self) -> Vec<f64> {
        match self.activation.shape() {
            None => self.values.iter().copied().map(f64::from).collect(),
            Some((block, _)) => {
                let scale = |i: usize| f64::from(self.scales[i / block]);
                self.codes.iter().enumerate().map(|(i, &c)| f64::from(c) * scale(i)).collect()
            }
        }
    }
}

pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> Vec<u8> {
    let path = crate_dir().join("../../tests/data/quant").join(file);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}; run tests/data/quant/make.py", path.display()))
}

fn read_f32(file: &str) -> Vec<f32> {
    read(file).as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// The committed blocks of a format, and their values according to the `gguf` Python package.
pub(crate) fn vectors(format: &Format) -> (Vec<u8>, Vec<f32>) {
    (read(&format!("{}.blocks.bin", format.name)), read_f32(&format!("{}.values.bin", format.name)))
}

/// Committed values, and what ggml's reference quantiser of a format makes of them.
pub(crate) fn encoded(format: &Format) -> (Vec<f32>, Vec<u8>) {
    (read_f32("original.bin"), read(&format!("{}.encoded.bin", format.name)))
}

pub(crate) fn dequantized(format: &Format, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / format.block_bytes * format.block_len];
    (format.dequantize)(bytes, &mut values);
    values
}

/// `n` standard normal values in the format, or `None` where Smelt does not write it.
pub(crate) fn quantized_normals(
    format: &Format,
    n: usize,
    random: &mut Random,
) -> Option<(Vec<f32>, Vec<u8>)> {
    let values = random.normals(n);
    let mut bytes = vec![0; format.row_bytes(n).expect("whole blocks")];
    format.quantize?(&values, &mut bytes);
    Some((values, bytes))
}

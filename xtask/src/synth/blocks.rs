//! Random blocks of any format, with small finite values.

use anyhow::{Result, ensure};
use smelt_quant::Format;

/// SplitMix64: small, fast, and good enough for weights that nobody reads.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
        radius * angle.cos()
    }
}

/// The spread of weights, that of trained models: products of normed activations stay about as large as those.
const SIGMA: f64 = 0.02;
/// Values in a pool: few enough to be made in a moment, many enough to fit no first-level cache.
const VALUES: usize = 1 << 17;

/// Blocks that rows are cut from. Which values they hold doesn't matter for speed; that there are no zeros, infinities
/// or denormal numbers does.
pub(super) struct Pool {
    format: &'static Format,
    bytes: Vec<u8>,
}

impl Pool {
    pub(super) fn new(format: &'static Format, random: &mut Random) -> Result<Self> {
        let blocks = (VALUES / format.block_len).max(1);
        let bytes = match format.quantize {
            Some(quantize) => {
                let values: Vec<f32> =
                    (0..blocks * format.block_len).map(|_| (random.normal() * SIGMA) as f32).collect();
                let mut bytes = vec![0; blocks * format.block_bytes];
                quantize(&values, &mut bytes);
                bytes
            }
            None => random_blocks(format, blocks, random)?,
        };
        Ok(Self { format, bytes })
    }

    /// Writes whole rows of `row_bytes` into `out`, each cut from the pool at a random block.
    pub(super) fn fill(&self, out: &mut [u8], row_bytes: usize, random: &mut Random) {
        let blocks = self.bytes.len() / self.format.block_bytes;
        for row in out.chunks_mut(row_bytes) {
            let mut start = random.below(blocks) * self.format.block_bytes;
            let mut rest = row;
            while !rest.is_empty() {
                let n = rest.len().min(self.bytes.len() - start);
                let (head, tail) = rest.split_at_mut(n);
                head.copy_from_slice(&self.bytes[start..start + n]);
                (start, rest) = (0, tail);
            }
        }
    }
}

/// Blocks of a format that Smelt only reads: random bits, of which those are kept whose values are of a sane size. One
/// block in ten is, whatever the scale's place in it.
fn random_blocks(format: &'static Format, blocks: usize, random: &mut Random) -> Result<Vec<u8>> {
    const TRIES: usize = 1_000;
    let mut bytes = Vec::with_capacity(blocks * format.block_bytes);
    let (mut block, mut values) = (vec![0; format.block_bytes], vec![0f32; format.block_len]);
    for _ in 0..blocks.saturating_mul(TRIES) {
        block.iter_mut().for_each(|byte| *byte = random.next() as u8);
        (format.dequantize)(&block, &mut values);
        let largest =
            values.iter().fold(0f32, |largest, x| if x.is_nan() { *x } else { largest.max(x.abs()) });
        let sane = (SIGMA as f32 / 2.0..SIGMA as f32 * 8.0).contains(&largest);
        if sane && values.iter().all(|x| x.is_finite()) {
            bytes.extend_from_slice(&block);
            if bytes.len() == blocks * format.block_bytes {
                break;
            }
        }
    }
    ensure!(
        bytes.len() == blocks * format.block_bytes,
        "random bytes make no sane {} blocks: it needs a quantiser",
        format.name
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_every_format_are_small_and_finite() {
        for format in smelt_quant::FORMATS {
            let pool = Pool::new(format, &mut Random::new(1)).expect("blocks");
            let mut values = vec![0f32; pool.bytes.len() / format.block_bytes * format.block_len];
            (format.dequantize)(&pool.bytes, &mut values);
            assert!(values.iter().all(|x| x.abs() < 0.5), "{}", format.name);
            assert!(values.iter().any(|x| *x != 0.0), "{}", format.name);
        }
    }
}

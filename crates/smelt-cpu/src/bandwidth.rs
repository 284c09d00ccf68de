//! Measures how fast the threads read memory.

use crate::memory::{Buffer, Slots};
use crate::pool::Pool;
use smelt_backend::Error;
use std::time::Instant;

/// More than any last-level cache that this is likely to run on shares among a few cores.
const BYTES: usize = 256 << 20;
/// Bytes that a thread takes at a time.
const CHUNK: usize = 1 << 20;
/// The first pass touches the pages; the best of the others counts.
const PASSES: usize = 5;

/// GB/s of reading, all threads together.
pub(crate) fn measure(pool: &Pool) -> Result<f64, Error> {
    const VALUES: usize = CHUNK / size_of::<u64>();
    let mut buffer = Buffer::<u64>::new("the bandwidth test", Some(BYTES / size_of::<u64>()))?;
    // Untouched pages would all be the one page of zeros.
    buffer.as_mut_slice().fill(1);
    let sums: Slots<u64> = Slots::new(pool.threads());
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = Instant::now();
        pool.chunks(BYTES / CHUNK, |worker, chunk| {
            let values = &buffer.as_slice()[chunk * VALUES..][..VALUES];
            // SAFETY: the pool's worker index.
            let sum = unsafe { sums.get(worker) };
            *sum = values.iter().fold(*sum, |sum, x| sum.wrapping_add(*x));
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    std::hint::black_box(&sums);
    Ok(BYTES as f64 / best / 1e9)
}

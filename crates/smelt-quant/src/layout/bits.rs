//! How several formats pack codes smaller than a byte.

/// `B` bytes to `N = 2B` codes: all low nibbles, then all high nibbles.
pub(crate) fn nibbles<const B: usize, const N: usize>(bytes: &[u8; B]) -> [u8; N] {
    const { assert!(N == 2 * B) };
    std::array::from_fn(|i| if i < B { bytes[i] & 15 } else { bytes[i - B] >> 4 })
}

/// The inverse of [`nibbles`], of the low four bits of each code.
pub(crate) fn pack_nibbles<const N: usize, const B: usize>(codes: &[u8; N]) -> [u8; B] {
    const { assert!(N == 2 * B) };
    std::array::from_fn(|i| codes[i] & 15 | codes[i + B] << 4)
}

/// 256 nibbles in runs of 64: each 32 bytes hold 32 low nibbles, then 32 high ones.
pub(crate) fn nibbles_256(bytes: &[u8; 128]) -> [u8; 256] {
    std::array::from_fn(|i| bytes[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15)
}

/// The inverse of [`nibbles_256`], of the low four bits of each code.
pub(crate) fn pack_nibbles_256(codes: &[u8; 256]) -> [u8; 128] {
    std::array::from_fn(|i| {
        let low = i / 32 * 64 + i % 32;
        codes[low] & 15 | codes[low + 32] << 4
    })
}

/// 256 crumbs (two bits) in runs of 128: each 32 bytes hold 32 lowest crumbs, then the next higher ones.
pub(crate) fn crumbs_256(bytes: &[u8; 64]) -> [u8; 256] {
    std::array::from_fn(|i| bytes[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3)
}

/// The inverse of [`crumbs_256`], of the low two bits of each code.
pub(crate) fn pack_crumbs_256(codes: &[u8; 256]) -> [u8; 64] {
    std::array::from_fn(|i| {
        let low = i / 32 * 128 + i % 32;
        (0..4).fold(0, |byte, k| byte | (codes[low + 32 * k] & 3) << (2 * k))
    })
}

/// 256 bits across 32 bytes: bit `k` of byte `l` belongs to value `32k + l`.
pub(crate) fn bit_planes_256(bytes: &[u8; 32]) -> [u8; 256] {
    std::array::from_fn(|i| bytes[i % 32] >> (i / 32) & 1)
}

/// The inverse of [`bit_planes_256`], of the lowest bit of each code.
pub(crate) fn pack_bit_planes_256(codes: &[u8; 256]) -> [u8; 32] {
    std::array::from_fn(|l| (0..8).fold(0, |byte, k| byte | (codes[32 * k + l] & 1) << k))
}

/// Eight scales and eight minima of six bits each, as `Q4_K` and `Q5_K` pack them.
///
/// ```text
/// byte 0..3    scale j+4 bits 4-5 | scale j         j = 0..3
/// byte 4..7    min j+4 bits 4-5   | min j
/// byte 8..11   min j+4 bits 0-3   | scale j+4 bits 0-3
/// ```
pub(crate) fn k_scales(bytes: &[u8; 12]) -> ([i32; 8], [i32; 8]) {
    let pick = |low: usize, shift: usize| {
        std::array::from_fn(|j| {
            i32::from(match j {
                0..4 => bytes[low + j] & 63,
                _ => bytes[4 + j] >> shift & 15 | bytes[low + j - 4] >> 6 << 4,
            })
        })
    };
    (pick(0, 0), pick(4, 4))
}

/// The inverse of [`k_scales`].
pub(crate) fn pack_k_scales(scales: &[u8], mins: &[u8]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => scales[i] & 63 | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] & 63 | mins[i] >> 4 << 6,
        _ => scales[i - 4] & 15 | mins[i - 4] << 4,
    })
}

/// Adds bit `j` of `high` as bit 4 of code `j`.
pub(crate) fn fifth_bits(high: &[u8; 4], low: [u8; 32]) -> [u8; 32] {
    let high = u32::from_le_bytes(*high);
    std::array::from_fn(|j| low[j] | ((high >> j & 1) as u8) << 4)
}

/// The inverse of [`fifth_bits`].
pub(crate) fn pack_fifth_bits(codes: &[u8; 32]) -> [u8; 4] {
    let bits = codes.iter().enumerate().fold(0u32, |bits, (j, code)| bits | u32::from(code >> 4 & 1) << j);
    bits.to_le_bytes()
}

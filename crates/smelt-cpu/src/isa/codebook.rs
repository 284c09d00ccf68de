//! Codebooks of signed bytes, as they are and in the small form that permutations of registers take.

/// `N` entries of `W` (4 or 8) values, of which few differ.
#[derive(Debug)]
pub(crate) struct Codebook<const W: usize, const N: usize> {
    entries: [[i8; W]; N],
    /// Each entry in 16 bits: value `k` is the level of the `16 / W` bits from `8·(k mod 2) + 16 / W · ⌊k / 2⌋` on. So two bytes
    /// shifted right give two neighbouring values.
    pub(super) fields: [u16; N],
    /// The values that occur.
    pub(super) levels: [u8; 16],
}

impl<const W: usize, const N: usize> Codebook<W, N> {
    /// The codebook of these entries.
    ///
    /// # Panics
    /// If there are more levels than fit the fields; codebooks are constants, so the build fails.
    pub(crate) const fn new(entries: [[i8; W]; N]) -> Self {
        assert!(N.is_power_of_two() && N >= 64 && (W == 4 || W == 8));
        let (mut fields, mut levels, mut known) = ([0; N], [0; 16], 0);
        let mut i = 0;
        while i < W * N {
            let (entry, k) = (i / W, i % W);
            let value = entries[entry][k] as u8;
            let mut level = 0;
            while level < known && levels[level] != value {
                level += 1;
            }
            if level == known {
                assert!(known < 1 << (16 / W));
                levels[known] = value;
                known += 1;
            }
            fields[entry] |= (level as u16) << (8 * (k % 2) + 16 / W * (k / 2));
            i += 1;
        }
        Self { entries, fields, levels }
    }

    /// Entry `index` modulo `N`, without a branch.
    #[inline(always)]
    pub(super) fn entry(&self, index: u16) -> &[i8; W] {
        &self.entries[usize::from(index) % N]
    }
}

//! What the micro-kernels know of a format: its range of codes and how its scales are laid out.
//!
//! # Why 16-bit partials don't overflow
//!
//! On AVX2 a step adds `w₀·a₀ + w₁·a₁` to an `i16`, with `0 ≤ w ≤ MAX` and `|a| ≤ 127`. [`Class::DEPTH`] steps fit if
//! `DEPTH · 2 · MAX · 127 ≤ 32,767`, that is `DEPTH · MAX ≤ 129`: eight steps (a whole group of 32) for 4-bit codes,
//! four for 5-bit, two for 6-bit, one for 7-bit codes. Codes that need eight bits take [`crate::isa::Simd::mac_wide`].
//! A format rounds its largest code up to a number of bits, so that few micro-kernels serve all formats.

use super::tile::TileShape;

/// Largest code of four bits, and so on.
pub(crate) const BITS_4: i32 = 15;
pub(crate) const BITS_5: i32 = 31;
pub(crate) const BITS_6: i32 = 63;
pub(crate) const BITS_7: i32 = 127;
pub(crate) const BITS_8: i32 = 255;

/// The constants of a family of formats; formats with equal constants share their micro-kernel.
pub(crate) trait Class: 'static {
    /// Values that share a scale: 16 or 32.
    const GROUP: usize;
    /// Largest unsigned code.
    const MAX: i32;
    /// Unsigned code that means zero, where the kernel has to know it: [`Floats`] without minima.
    const ZERO: i32;
    /// Whether the format has minima; if not, its codes have a zero.
    const MINS: bool;
    /// Values of a tile's block: the group for [`Floats`], 256 for [`Scaled`].
    const VALUES: usize;
    /// Whether scales inside a block are integers.
    const INTEGER_SCALES: bool;

    /// Whether codes use all eight bits.
    const WIDE: bool = Self::MAX > 127;
    /// Whether a group's dot product fits 16 bits.
    const NARROW: bool = Self::GROUP as i32 * Self::MAX * 127 <= i16::MAX as i32;
    /// Steps that a 16-bit partial holds: a power of two, at most a group's.
    const DEPTH: usize = {
        let fits = (129 / Self::MAX) as usize;
        let steps = Self::GROUP / 4;
        if fits >= 8 && steps == 8 {
            8
        } else if fits >= 4 {
            4
        } else if fits >= 2 {
            2
        } else {
            1
        }
    };
    /// The lines of a block.
    const SHAPE: TileShape = TileShape {
        codes: Self::VALUES / 4,
        scales: if Self::INTEGER_SCALES { 256 / Self::GROUP } else { 0 },
        pairs: if Self::INTEGER_SCALES { 128 / Self::GROUP } else { 0 },
        floats: 1,
    };
}

/// One float scale (and minimum) a group: `Q8x32` activations.
pub(crate) struct Floats<const GROUP: usize, const MAX: i32, const ZERO: i32, const MINS: bool>;

impl<const GROUP: usize, const MAX: i32, const ZERO: i32, const MINS: bool> Class
    for Floats<GROUP, MAX, ZERO, MINS>
{
    const GROUP: usize = GROUP;
    const MAX: i32 = MAX;
    const ZERO: i32 = ZERO;
    const MINS: bool = MINS;
    const VALUES: usize = GROUP;
    const INTEGER_SCALES: bool = false;
}

/// Super-blocks of 256 with one float scale (and minimum) and integer ones a group: `Q8x256` activations. The tile's
/// pairs hold the minima, or if there are none the scales times minus the code that means zero.
pub(crate) struct Scaled<const GROUP: usize, const MAX: i32, const MINS: bool>;

impl<const GROUP: usize, const MAX: i32, const MINS: bool> Class for Scaled<GROUP, MAX, MINS> {
    const GROUP: usize = GROUP;
    const MAX: i32 = MAX;
    const ZERO: i32 = 0;
    const MINS: bool = MINS;
    const VALUES: usize = 256;
    const INTEGER_SCALES: bool = true;
}

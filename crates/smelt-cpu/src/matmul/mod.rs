//! Matrix products of quantised or float weights with activations.
//!
//! # One algorithm for decode and prefill
//!
//! Sixteen rows of weights (a *panel*) are unpacked, a few hundred values at a time, to a tile in the first-level
//! cache whose vector lanes are rows ([`unpack`]); a micro-kernel multiplies the tile with many tokens ([`micro`]). For a
//! few tokens the same two steps run block by block in registers ([`mod@few`]): with lanes = rows the packed bytes are
//! transposed once, which costs fewer instructions than reducing a vector of partial sums for every row and block, and
//! leaves decode bound by memory. It also makes one order of float operations hold for all batch sizes by construction.
//!
//! All formats meet in two micro-kernels, which differ in whether a group's scale is a float or an integer. Float
//! weights have kernels of their own ([`float`]).

mod acts;
mod class;
mod few;
mod float;
mod in_order;
mod micro;
mod sink;
#[cfg(test)]
mod tests;
mod tile;
mod unpack;

pub use acts::{ActsWriter, QuantizedActs, Tokens};

use crate::isa::{Isa, Line, prefetch};
use class::Class;
use core::marker::PhantomData;
use core::num::NonZero;
use core::ops::Range;
pub(crate) use few::FEW;
use few::Few;
use float::FloatKind;
use in_order::{InOrder, Order};
use micro::Micro;
use smelt_quant::{Activation, Format};
use tile::{PANEL, Panel, Tile, Weights};
use unpack::{Dots, Unpack, UnpackBlocks};

/// Values of a row that are unpacked at a time: with 16 rows 16 KiB of codes, which leaves half of a small
/// first-level cache to scales and activations.
const CHUNK: usize = 1024;

/// Memory that a thread's matmuls work in; grown on first use, never shrunk.
#[derive(Debug, Default)]
pub struct Scratch {
    tiles: [Tile; 2],
    sums: Vec<Line>,
    order: Order,
    /// A copy of the last rows, where they don't fill a panel.
    edge: Vec<u8>,
    /// See [`Scratch::expect`].
    next: Option<NonZero<usize>>,
}

impl Scratch {
    /// Behind the rows of its next matmul the thread reads what begins at `next`, if that isn't the row behind them: it is asked
    /// for while the last ones are multiplied. It is an address, not a borrow: nothing but prefetches uses it.
    pub(crate) fn expect(&mut self, next: Option<&[u8]>) {
        self.next = next.and_then(|bytes| NonZero::new(bytes.as_ptr().addr()));
    }

    /// Grows the sums to `n` lines.
    fn fit_sums(&mut self, n: usize) {
        if self.sums.len() < n {
            self.sums.resize(n, Line::ZERO);
        }
    }
}

/// Where results go: value `(t, r)` at `t · stride + r`.
#[derive(Debug, Clone, Copy)]
pub struct OutView<'a> {
    start: *mut f32,
    len: usize,
    stride: usize,
    owner: PhantomData<&'a mut [f32]>,
}

// SAFETY: it stands for `&mut [f32]`; `matmul_rows` makes callers keep threads apart.
unsafe impl Send for OutView<'_> {}
// SAFETY: as above.
unsafe impl Sync for OutView<'_> {}

impl<'a> OutView<'a> {
    /// A view of `out` with `stride` values from one token's row to the next.
    pub fn new(out: &'a mut [f32], stride: usize) -> Self {
        Self { start: out.as_mut_ptr(), len: out.len(), stride, owner: PhantomData }
    }

    /// A view of `len` floats from `start` on, for threads that share a buffer: no `&mut` may span what others write.
    ///
    /// # Safety
    /// The floats stay allocated and initialised for the view's lifetime.
    pub(crate) unsafe fn from_raw(start: *mut f32, len: usize, stride: usize) -> Self {
        Self { start, len, stride, owner: PhantomData }
    }

    /// Writes the values of rows `first..` of token row `t`.
    ///
    /// # Safety
    /// Nobody else uses these values at the same time.
    #[inline(always)]
    unsafe fn write(&self, t: usize, first: usize, values: &[f32]) {
        let at = t * self.stride + first;
        assert!(at + values.len() <= self.len, "the result has room for {} values", self.len);
        // SAFETY: inside the slice that `new` took, and ours for now by the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(values.as_ptr(), self.start.add(at), values.len()) }
    }
}

/// The kernel of one format on one instruction set, chosen once a weight.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    format: &'static Format,
    isa: Isa,
    path: Path,
}

/// How a kernel computes.
#[derive(Debug, Clone, Copy)]
enum Path {
    /// Through a tile: unpack, then multiply; or both at once for a few tokens.
    Tile { unpack: UnpackFn, multiply: MultiplyFn, few: FewFn, in_order: bool },
    /// Float weights.
    Float(FloatKind),
    /// Row by row with the format's scalar dot product.
    Oracle,
}

type UnpackFn = fn(Isa, &Panel<'_>, Range<usize>, &mut Tile);
type FewFn = fn(Isa, Weights<'_>, Range<usize>, &QuantizedActs, Tokens<'_>, &mut Scratch);
type MultiplyFn = fn(Isa, &[Tile], values: Range<usize>, &QuantizedActs, Tokens<'_>, &mut [Line]);

fn unpack_blocks<U: Unpack<B>, const B: usize>(
    isa: Isa,
    panel: &Panel<'_>,
    blocks: Range<usize>,
    tile: &mut Tile,
) {
    tile.fit(U::SHAPE, blocks.len());
    isa.run(UnpackBlocks::<U, B> { panel, blocks, tile, format: PhantomData });
}

fn few<U: Unpack<B>, const B: usize>(
    isa: Isa,
    weights: Weights<'_>,
    rows: Range<usize>,
    acts: &QuantizedActs,
    tokens: Tokens<'_>,
    Scratch { sums, edge, .. }: &mut Scratch,
) {
    isa.run(Few::<U, B> { weights, rows, edge, acts, tokens, sums, format: PhantomData });
}

fn in_order<U: Dots<B>, const B: usize>(
    isa: Isa,
    weights: Weights<'_>,
    rows: Range<usize>,
    acts: &QuantizedActs,
    tokens: Tokens<'_>,
    Scratch { sums, edge, order, .. }: &mut Scratch,
) {
    let few = Few::<U, B> { weights, rows, edge, acts, tokens, sums, format: PhantomData };
    isa.run(InOrder { few, order });
}

fn multiply<C: Class>(
    isa: Isa,
    tiles: &[Tile],
    values: Range<usize>,
    acts: &QuantizedActs,
    tokens: Tokens<'_>,
    sums: &mut [Line],
) {
    let blocks = values.len() / C::VALUES;
    isa.run(Micro::<C> { tiles, blocks, acts, tokens, k0: values.start, sums, class: PhantomData });
}

impl Path {
    fn tile<U: Unpack<B>, const B: usize>() -> Self {
        Path::Tile {
            unpack: unpack_blocks::<U, B>,
            multiply: multiply::<U::Class>,
            few: few::<U, B>,
            in_order: false,
        }
    }

    /// The same, but one token reads the weights in their order.
    fn in_order<U: Dots<B>, const B: usize>() -> Self {
        Path::Tile {
            unpack: unpack_blocks::<U, B>,
            multiply: multiply::<U::Class>,
            few: in_order::<U, B>,
            in_order: true,
        }
    }

    fn of(format: &Format) -> Self {
        match format.name {
            "F32" => Path::Float(FloatKind::F32),
            "F16" => Path::Float(FloatKind::F16),
            "BF16" => Path::Float(FloatKind::Bf16),
            name => unpack::path(name).unwrap_or(Path::Oracle),
        }
    }
}

impl Kernel {
    /// The kernel for weights in `format`.
    ///
    /// # Panics
    /// If the CPU lacks the instruction set; [`Isa::resolve`] never gives such a one.
    #[must_use]
    pub fn for_format(format: &'static Format, isa: Isa) -> Self {
        assert!(isa.available(), "this CPU has no {}", isa.name());
        Self { format, isa, path: Path::of(format) }
    }

    /// The weights' format.
    #[must_use]
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// The instruction set.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The activations that it takes.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.format.activation
    }

    /// Whether it is faster than the format's scalar dot product.
    #[must_use]
    pub fn is_accelerated(&self) -> bool {
        !matches!(self.path, Path::Oracle)
    }

    /// Output rows that threads should split by for so many tokens: other splits give the same bits, more slowly.
    #[must_use]
    pub fn row_granule(&self, tokens: usize) -> usize {
        if tokens <= FEW { PANEL } else { PANEL * self.isa.panels() }
    }
}

/// `out[t][r] = Σᵢ weights[r][i] · acts[t][i]` for the given rows and tokens.
///
/// `weights` holds whole rows of `acts.k()` values in the kernel's format, row after row; each byte of the rows is read
/// once. Any split over rows and tokens gives the same bits.
///
/// # Safety
/// While it runs nobody else uses the values of `out` that belong to these rows and tokens.
///
/// # Panics
/// If rows or tokens are out of range, or the activations are of another kind than the kernel takes.
pub unsafe fn matmul_rows(
    kernel: &Kernel,
    weights: &[u8],
    rows: Range<usize>,
    acts: &QuantizedActs,
    tokens: Tokens<'_>,
    out: OutView<'_>,
    scratch: &mut Scratch,
) {
    let (format, k) = (kernel.format, acts.k());
    assert_eq!(acts.kind(), format.activation, "{} takes other activations", format.name);
    let row_bytes = format.row_bytes(k).expect("a row is whole blocks");
    assert!(
        rows.end.checked_mul(row_bytes).is_some_and(|end| end <= weights.len()),
        "rows ..{} of {row_bytes} bytes in {} bytes of {}",
        rows.end,
        weights.len(),
        format.name
    );
    if rows.is_empty() || tokens.is_empty() {
        return;
    }
    let behind = weights.as_ptr().wrapping_add(rows.end * row_bytes);
    let next = scratch.next.take().map_or(behind, |next| core::ptr::without_provenance(next.get()));
    let job = Job { kernel, weights: Weights { bytes: weights, row_bytes, next }, acts, tokens, out };
    // SAFETY: the caller's promise is handed on.
    unsafe {
        match kernel.path {
            Path::Tile { unpack, multiply, few, .. } => {
                if tokens.len() <= FEW {
                    job.few(rows, few, scratch);
                } else {
                    job.through_tiles(rows, unpack, multiply, scratch);
                }
            }
            Path::Float(kind) => {
                let (weights, sums) = (&weights[..rows.end * row_bytes], &mut scratch.sums);
                float::Job { weights, rows, acts, tokens, out, sums }.run(kernel.isa, kind);
            }
            Path::Oracle => job.row_by_row(rows),
        }
    }
}

/// Asks the cache for what [`matmul_rows`] reads first with few tokens, of rows `first..` of weights with `row_bytes` bytes
/// a row. The loop itself looks only a few blocks ahead, and would wait for memory again and again until its
/// prefetching is in its stride.
pub(crate) fn prefetch_few(kernel: &Kernel, weights: &[u8], row_bytes: usize, first: usize) {
    /// Lines of each row. By the time they are used up, more are on their way.
    const LINES: usize = 6;
    let start = weights.as_ptr().wrapping_add(first * row_bytes);
    let rows = match kernel.path {
        Path::Tile { in_order: false, .. } => PANEL,
        Path::Tile { .. } | Path::Float(_) | Path::Oracle => 1,
    };
    for line in 0..(LINES * PANEL / rows).min((PANEL / rows * row_bytes).div_ceil(64)) {
        for row in 0..rows {
            prefetch(start.wrapping_add(row * row_bytes + line * 64));
        }
    }
}

/// The unchanging arguments of one call.
struct Job<'a> {
    kernel: &'a Kernel,
    weights: Weights<'a>,
    acts: &'a QuantizedActs,
    tokens: Tokens<'a>,
    out: OutView<'a>,
}

impl Job<'_> {
    /// # Safety
    /// As [`matmul_rows`], for at most [`FEW`] tokens.
    unsafe fn few(&self, rows: Range<usize>, few: FewFn, scratch: &mut Scratch) {
        let n = self.tokens.len();
        scratch.fit_sums(rows.len().div_ceil(PANEL) * n);
        few(self.kernel.isa, self.weights, rows.clone(), self.acts, self.tokens, scratch);
        for (p, first) in rows.clone().step_by(PANEL).enumerate() {
            let wanted = PANEL.min(rows.end - first);
            for t in 0..n {
                let sums = scratch.sums[p * n + t].floats();
                // SAFETY: the caller's promise.
                unsafe { self.out.write(self.tokens.out_row(t), first, &sums[..wanted]) };
            }
        }
    }

    /// # Safety
    /// As [`matmul_rows`].
    unsafe fn through_tiles(
        &self,
        rows: Range<usize>,
        unpack: UnpackFn,
        multiply: MultiplyFn,
        scratch: &mut Scratch,
    ) {
        let (isa, k, n) = (self.kernel.isa, self.acts.k(), self.tokens.len());
        let block_len = self.kernel.format.block_len;
        let most = isa.panels();
        scratch.fit_sums(n * most);
        for first in rows.clone().step_by(PANEL * most) {
            let panels = (rows.end - first).div_ceil(PANEL).min(most);
            let (sums, tiles) = (&mut scratch.sums[..n * panels], &mut scratch.tiles[..panels]);
            sums.fill(Line::ZERO);
            for k0 in (0..k).step_by(CHUNK / most) {
                let k1 = (k0 + CHUNK / most).min(k);
                for (p, tile) in tiles.iter_mut().enumerate() {
                    let panel = self.weights.panel(first + p * PANEL, rows.end, &mut scratch.edge);
                    unpack(isa, &panel, k0 / block_len..k1 / block_len, tile);
                }
                multiply(isa, tiles, k0..k1, self.acts, self.tokens, sums);
            }
            for (i, sum) in sums.iter().enumerate() {
                let (t, first) = (i / panels, first + i % panels * PANEL);
                let wanted = PANEL.min(rows.end - first);
                // SAFETY: the caller's promise.
                unsafe { self.out.write(self.tokens.out_row(t), first, &sum.floats()[..wanted]) };
            }
        }
    }

    /// # Safety
    /// As [`matmul_rows`].
    unsafe fn row_by_row(&self, rows: Range<usize>) {
        let Weights { bytes, row_bytes, .. } = self.weights;
        for r in rows {
            let bytes = &bytes[r * row_bytes..][..row_bytes];
            for t in 0..self.tokens.len() {
                let dot = (self.kernel.format.vec_dot)(bytes, self.acts.oracle_row(self.tokens.row(t)));
                // SAFETY: the caller's promise.
                unsafe { self.out.write(self.tokens.out_row(t), r, &[dot]) };
            }
        }
    }
}

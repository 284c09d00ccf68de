//! Block formats: what the bytes of a quantised weight mean.
//!
//! One file per format under [`formats`]; each ends in one [`Format`] descriptor, and [`FORMATS`] lists them all.
//! The scalar code here is written for reading and is the oracle for every faster kernel, for ever.
//!
//! Each format's own page says what `d_w`, `m_w`, `scale_g`, `min_g` and the codes are, and how long its groups are.
//!
//! # The canonical float steps
//!
//! A dot product of a quantised row with an int8 row is exact integer arithmetic inside a block and a *fixed*
//! sequence of float steps between blocks, so that every kernel (scalar, AVX2, AVX-512, one token or a thousand)
//! gives the same bits:
//!
//! - [`Activation::Q8x32`]: for each group in order (32 values; 16 in `NVFP4`, where two groups share a `d_a`),
//!   `acc = fma(d_w * d_a, dot as f32, acc)`, then, where the format has a minimum,
//!   `acc = fma(m_w, d_a * (sum as f32), acc)`.
//! - [`Activation::Q8x256`]: for each super-block in order, `acc = fma(d_w * d_a, isum as f32, acc)` with
//!   `isum = Σ scale_g · dot_g` in `i32`, then, where the format has minima,
//!   `acc = fma(-(dmin_w * d_a), msum as f32, acc)` with `msum = Σ min_g · sum_g` in `i32`.
//! - [`Activation::F32`]: sixteen partial sums, lane `l` takes the values with index `≡ l (mod 16)` in order
//!   (`fma`), then [`reduce16`].
//!
//! The arguments of an `fma` are `f32`, each rounded on its own: products, and integers converted with `as f32`.

pub mod activation;
pub mod codebooks;
pub mod formats;
mod layout;
mod search;

pub use activation::{Activation, Row};
pub use formats::FORMATS;

/// How far a format's own round trip may be from the original, for tests and for `smelt show`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ErrorBudget {
    /// Root mean square error of `dequantize(quantize(x))` for standard normal `x`; 0 where Smelt has no quantiser.
    pub rmse: f32,
    /// Largest |int8 dot − f32 dot| over Σ|w·x|, for rows of 1024 or more standard normal activations.
    pub dot: f32,
}

/// Encodes whole blocks of values: `values.len() / block_len * block_bytes == out.len()`.
pub type Encoder = fn(values: &[f32], out: &mut [u8]);

/// Describes one block format. `ggml_type` and `name` are GGUF's.
#[derive(Debug)]
pub struct Format {
    /// GGUF's name, e.g. `Q4_K`.
    pub name: &'static str,
    /// GGUF's type id.
    pub ggml_type: u32,
    /// Values per block.
    pub block_len: usize,
    /// Bytes per block.
    pub block_bytes: usize,
    /// The activation layout that `vec_dot` takes.
    pub activation: Activation,
    /// Decodes whole blocks: `bytes.len() / block_bytes * block_len == out.len()`.
    pub dequantize: fn(bytes: &[u8], out: &mut [f32]),
    /// Encodes whole blocks; `None` where Smelt only reads the format.
    pub quantize: Option<Encoder>,
    /// Dot product of one row of blocks with one activation row, in the canonical float steps.
    pub vec_dot: fn(bytes: &[u8], row: Row<'_>) -> f32,
    /// Error budgets, checked by the tests.
    pub budget: ErrorBudget,
}

impl Format {
    /// Bytes of `n` values, or `None` if `n` is no multiple of the block or the product overflows.
    #[must_use]
    pub fn row_bytes(&self, n: usize) -> Option<usize> {
        if !n.is_multiple_of(self.block_len) {
            return None;
        }
        (n / self.block_len).checked_mul(self.block_bytes)
    }
}

/// Two descriptors are the same format if their GGUF ids are.
impl PartialEq for Format {
    fn eq(&self, other: &Self) -> bool {
        self.ggml_type == other.ggml_type
    }
}

impl Eq for Format {}

/// The format with GGUF's type id.
#[must_use]
pub fn by_ggml_type(id: u32) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|f| f.ggml_type == id)
}

/// The format with GGUF's name, ignoring case.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Format> {
    FORMATS.iter().copied().find(|f| f.name.eq_ignore_ascii_case(name))
}

/// The fixed tree that ends every f32 dot product: lanes 8 apart, then 4, 2, 1.
#[must_use]
pub fn reduce16(lanes: [f32; 16]) -> f32 {
    let mut v = lanes;
    for step in [8, 4, 2, 1] {
        for i in 0..step {
            v[i] += v[i + step];
        }
    }
    v[0]
}

/// The scalar oracle of an f32 dot product: see the module's canonical float steps.
#[must_use]
pub fn dot_f32(a: impl Iterator<Item = f32>, b: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    for (i, (x, y)) in a.zip(b).enumerate() {
        lanes[i % 16] = x.mul_add(*y, lanes[i % 16]);
    }
    reduce16(lanes)
}

//! `BF16`: the upper half of a little-endian single precision float.

use crate::layout::float::{self, Float};
use crate::{Activation, ErrorBudget, Format};
use half::bf16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The value as it lies in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Brain([u8; 2]);
const _: () = assert!(size_of::<Brain>() == 2);

impl Float for Brain {
    fn decode(self) -> f32 {
        bf16::from_le_bytes(self.0).to_f32()
    }

    /// Rounds to nearest even; a NaN stays a (quiet) NaN.
    fn encode(value: f32) -> Self {
        Self(bf16::from_f32(value).to_le_bytes())
    }
}

/// Brain floats.
pub static BF16: Format = Format {
    name: "BF16",
    ggml_type: 30,
    block_len: 1,
    block_bytes: 2,
    activation: Activation::F32,
    dequantize: float::dequantize::<Brain>,
    quantize: Some(float::quantize::<Brain>),
    vec_dot: float::vec_dot::<Brain>,
    budget: ErrorBudget { rmse: 0.0018, dot: 1e-7 },
};

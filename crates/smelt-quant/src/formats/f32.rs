//! `F32`: little-endian IEEE single precision.

use crate::layout::float::{self, Float};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The value as it lies in the file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Single([u8; 4]);
const _: () = assert!(size_of::<Single>() == 4);

impl Float for Single {
    fn decode(self) -> f32 {
        f32::from_le_bytes(self.0)
    }

    fn encode(value: f32) -> Self {
        Self(value.to_le_bytes())
    }
}

/// Single precision floats.
pub static F32: Format = Format {
    name: "F32",
    ggml_type: 0,
    block_len: 1,
    block_bytes: 4,
    activation: Activation::F32,
    dequantize: float::dequantize::<Single>,
    quantize: Some(float::quantize::<Single>),
    vec_dot: float::vec_dot::<Single>,
    budget: ErrorBudget { rmse: 0.0, dot: 1e-7 },
};

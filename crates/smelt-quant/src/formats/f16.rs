//! `F16`: little-endian IEEE half precision.

use crate::layout::F16 as Half;
use crate::layout::float::{self, Float};
use crate::{Activation, ErrorBudget, Format};

const _: () = assert!(size_of::<Half>() == 2);

impl Float for Half {
    fn decode(self) -> f32 {
        self.get()
    }

    fn encode(value: f32) -> Self {
        Self::new(value)
    }
}

/// Half precision floats.
pub static F16: Format = Format {
    name: "F16",
    ggml_type: 1,
    block_len: 1,
    block_bytes: 2,
    activation: Activation::F32,
    dequantize: float::dequantize::<Half>,
    quantize: Some(float::quantize::<Half>),
    vec_dot: float::vec_dot::<Half>,
    budget: ErrorBudget { rmse: 2.2e-4, dot: 1e-7 },
};

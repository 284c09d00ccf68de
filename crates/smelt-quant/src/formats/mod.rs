//! The block formats, one file each.
//!
//! A file draws its block, says what its bytes mean and what a kernel needs to know, and ends in one descriptor.

pub mod bf16;
pub mod f16;
pub mod f32;
pub mod iq1_m;
pub mod iq1_s;
pub mod iq2_s;
pub mod iq2_xs;
pub mod iq2_xxs;
pub mod iq3_s;
pub mod iq3_xxs;
pub mod iq4_nl;
pub mod iq4_xs;
pub mod mxfp4;
pub mod nvfp4;
pub mod q2_k;
pub mod q3_k;
pub mod q4_0;
pub mod q4_1;
pub mod q4_k;
pub mod q5_0;
pub mod q5_1;
pub mod q5_k;
pub mod q6_k;
pub mod q8_0;
pub mod q8_k;
pub mod tq1_0;
pub mod tq2_0;

use crate::Format;

/// Every format that Smelt reads, in order of GGUF's type ids.
pub static FORMATS: &[&Format] = &[
    &f32::F32,
    &f16::F16,
    &q4_0::Q4_0,
    &q4_1::Q4_1,
    &q5_0::Q5_0,
    &q5_1::Q5_1,
    &q8_0::Q8_0,
    &q2_k::Q2_K,
    &q3_k::Q3_K,
    &q4_k::Q4_K,
    &q5_k::Q5_K,
    &q6_k::Q6_K,
    &q8_k::Q8_K,
    &iq2_xxs::IQ2_XXS,
    &iq2_xs::IQ2_XS,
    &iq3_xxs::IQ3_XXS,
    &iq1_s::IQ1_S,
    &iq4_nl::IQ4_NL,
    &iq3_s::IQ3_S,
    &iq2_s::IQ2_S,
    &iq4_xs::IQ4_XS,
    &iq1_m::IQ1_M,
    &bf16::BF16,
    &tq1_0::TQ1_0,
    &tq2_0::TQ2_0,
    &mxfp4::MXFP4,
    &nvfp4::NVFP4,
];

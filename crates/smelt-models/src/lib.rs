//! Architectures as data, and the decoder that turns a spec into a program of backend operations.
//!
//! A family is one file under [`families`]: it reads a checkpoint's metadata into a [`ModelSpec`], one [`LayerSpec`] per
//! layer. Differences between families are fields of the spec; [`decoder`] compiles every spec, and never asks which
//! family it came from.
//!
//! Architecture Invariant: nothing here names a device, a SIMD type or a file format.

pub mod decoder;
mod error;
pub mod families;
mod keys;
pub mod rope;
mod spec;
mod tensors;

pub use decoder::{Model, Options, load};
pub use error::Error;
pub use families::{ARCHITECTURES, Architecture};
pub use keys::Keys;
pub use spec::{
    AttentionSpec, EmbeddingSpec, FeedForward, Fusion, Head, LayerSpec, ModelSpec, MoeSpec, Norm,
    NormPlacement, Pooling, QkNorm, RopeSpec, SharedExpert,
};

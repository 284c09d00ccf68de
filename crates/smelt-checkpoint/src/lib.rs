//! Model files: reading and writing GGUF.
//!
//! [`Checkpoint::open`] maps a file (or all parts of a split one), checks every count, length, offset and product
//! in it against the bytes that exist, and gives [`Metadata`] and named [`Tensor`]s that view the map. [`GgufWriter`]
//! writes the same format. Files come from strangers: whatever the bytes are, the answer is a checkpoint or an
//! [`Error`] that names the file, the key or tensor and the offset, and memory use stays in proportion to the file.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod checkpoint;
mod error;
mod metadata;
mod mmap;
mod parse;
mod split;
mod value;
mod writer;

pub use checkpoint::{Checkpoint, Tensor, TensorBytes, TensorInfo};
pub use error::{Error, Place, Problem};
pub use metadata::Metadata;
pub use value::{Array, Value};
pub use writer::{GgufWriter, TensorWriter};

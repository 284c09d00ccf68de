//! The CPU backend: integer kernels, attention, thread pool.
#![expect(unsafe_code, reason = "vector instructions, and threads that write disjoint parts of one buffer")]

pub mod isa;
pub mod matmul;

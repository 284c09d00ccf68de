//! The CPU backend: integer kernels, attention, thread pool.
//!
//! A program is compiled to stages, each at most one region of a persistent pool; weights stay in their file format, in
//! place. Results don't depend on the number of threads, on the instruction set, or on what else is in a step: the
//! order of float operations is fixed for every output value.
#![expect(unsafe_code, reason = "vector instructions, and threads that write disjoint parts of one buffer")]

mod attention;
mod backend;
mod bandwidth;
mod cache;
mod elementwise;
pub mod isa;
pub mod matmul;
mod memory;
mod moe;
mod peak;
mod placement;
mod plan;
mod pool;
mod products;
mod rope;
mod rows;
mod topology;
mod wide;

pub use backend::{Cpu, CpuError, CpuSettings};
pub use isa::{Isa, IsaChoice};
pub use peak::Peaks;
pub use placement::{Numa, Repack};
pub use topology::{Node, System, ThreadPlan, nodes};

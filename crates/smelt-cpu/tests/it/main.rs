//! Tests of the CPU backend through its public face.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod attention;
mod bits;
mod conformance;
mod quota;
mod topology;

use smelt_cpu::isa::{Isa, IsaChoice};
use smelt_cpu::{Cpu, CpuSettings};

/// A backend with a fixed number of threads and instruction set.
fn cpu(threads: usize, isa: Isa) -> Cpu {
    Cpu::new(CpuSettings { threads: Some(threads), isa: IsaChoice::Only(isa), ..CpuSettings::default() })
        .unwrap()
}

/// The instruction sets of this machine.
fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.available())
}

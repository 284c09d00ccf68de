//! The conformance cases, on every instruction set and with several numbers of threads.

use crate::{cpu, isas};
use smelt_backend::conformance::cases;
use smelt_cpu::isa::Isa;

/// One number of threads is enough here: the next test shows that all give the same bits.
#[test]
fn every_case_holds() {
    let mut failures = Vec::new();
    for case in cases() {
        if let Err(message) = case.check(&mut || Box::new(cpu(2, isas().last().unwrap_or(Isa::Scalar)))) {
            failures.push(message);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn results_are_the_same_bits_on_every_instruction_set_and_number_of_threads() {
    for case in cases() {
        let bits = |threads, isa| -> Vec<Vec<u32>> {
            let outputs = case.outputs(&mut cpu(threads, isa)).unwrap();
            outputs.into_iter().map(|step| step.into_iter().map(f32::to_bits).collect()).collect()
        };
        let expected = bits(1, Isa::Scalar);
        for isa in isas() {
            for threads in [1, 2, 3] {
                assert!(bits(threads, isa) == expected, "{}: {isa:?}, {threads} threads", case.name);
            }
        }
    }
}

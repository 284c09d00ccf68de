//! Tests of the seam itself: the reference against hand-computed values, and the case list against the vocabulary.

use smelt_backend::{OP_NAMES, Reference, conformance};

#[test]
fn every_operation_has_a_case() {
    let cases = conformance::cases();
    for name in OP_NAMES {
        assert!(cases.iter().any(|c| c.op == *name), "no conformance case for {name}");
    }
}

#[test]
fn the_reference_runs_every_case() {
    for case in conformance::cases() {
        case.check(&mut || Box::new(Reference::new())).unwrap();
        let outputs = case.outputs(&mut Reference::new()).unwrap();
        assert!(outputs.iter().flatten().any(|v| *v != 0.0), "{}: all zero", case.name);
        assert!(outputs.iter().flatten().all(|v| v.is_finite()), "{}: not finite", case.name);
    }
}

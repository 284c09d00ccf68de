//! The one list of conformance cases.

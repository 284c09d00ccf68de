//! Architectures as data, and the decoder that turns a spec into a program of backend operations.

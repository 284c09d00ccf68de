//! The CPU backend: integer kernels, attention, thread pool.

//! Model files: reading and writing GGUF.

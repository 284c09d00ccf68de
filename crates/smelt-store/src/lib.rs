//! The model catalogue, downloads, and the store of model files on disk.

//! Test helpers: where test data lives, and a reader of .npy and .npz files.

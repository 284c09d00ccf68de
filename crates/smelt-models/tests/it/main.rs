//! Every family against transformers' logits, on the reference backend.

mod families;
mod hostile;

//! What every format promises, checked over `FORMATS`.

mod activation;
mod data;
mod dot;
mod registry;
mod round_trip;
mod vectors;

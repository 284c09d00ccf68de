//! The `smelt` command.

fn main() {}

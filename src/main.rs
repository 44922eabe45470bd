//! The `tuskline` binary.
fn main() {}

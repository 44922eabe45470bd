//! Rebuild when a migration file is added: `include_dir`-style macros notice only edits.
fn main() {
    println!("cargo:rerun-if-changed=migrations");
}

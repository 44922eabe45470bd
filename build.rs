//! `embed_migrations!` reads a directory, which cargo does not see: without this, a new file would be missed.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}

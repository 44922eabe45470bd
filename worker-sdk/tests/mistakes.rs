//! The answers of the compiler to common mistakes: each names the mistake where it was made.

/// The texts are those of Rust 1.95.
#[test]
#[ignore = "compiles the SDK once more: two minutes, in a leg of its own"]
fn a_common_mistake_is_named_where_it_was_made() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}

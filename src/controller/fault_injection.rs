//! Mutants: flaws that the controller does not have, built only with `--cfg mutants` and switched on by name, so
//! that the checks which promise to find such flaws can be seen to find them.

/// Whether the flaw is switched on in this process.
pub(super) fn is(flaw: &str) -> bool {
    std::env::var("TUSKLINE_MUTANT").as_deref() == Ok(flaw)
}

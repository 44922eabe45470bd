//! Mutants: flaws that this crate does not have, built only with `--cfg mutants` and switched on
//! by name, so that the checks which promise to find such flaws can be seen to find them.

/// Whether the flaw is switched on in this process.
pub(crate) fn is(flaw: &str) -> bool {
    static SWITCHED_ON: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("TUSKLINE_MUTANT").ok());
    SWITCHED_ON.as_deref() == Some(flaw)
}

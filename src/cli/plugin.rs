//! The line and the code of a monitoring plugin, for `doctor --monitoring` and for a wrong call of it.

use std::process::ExitCode;

use super::output;

/// Nothing was examined.
pub const UNKNOWN: u8 = 3;

/// Whether this process was called for monitoring, also if its call is wrong.
pub fn is_asked() -> bool {
    std::env::args_os().any(|word| word == "--monitoring")
}

/// Tells that the call is wrong.
pub fn refused(said: &str) -> ExitCode {
    // The code says it as well.
    let _ = output::put(&line("UNKNOWN", said));
    ExitCode::from(UNKNOWN)
}

/// The first line, without performance data. These would begin at a bar.
pub fn line(state: &str, said: &str) -> String {
    format!("TUSKLINE {state} - {}", output::clean(said).replace('|', "/"))
}

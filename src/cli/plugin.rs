//! First line and exit code of a monitoring plugin, for `doctor --monitoring` and for a wrong call
//! of it.

use std::process::ExitCode;

use super::{output, secrets};

pub const UNKNOWN: u8 = 3;

/// Whether this process was called for monitoring, also if its call is wrong.
pub fn is_asked() -> bool {
    std::env::args_os().any(|word| word == "--monitoring")
}

/// Prints that the call is wrong.
pub fn refused(said: &str) -> ExitCode {
    // If it cannot be printed, the exit code says the same.
    let _ = output::put(&line("UNKNOWN", said));
    ExitCode::from(UNKNOWN)
}

/// The first line, without performance data. A bar in the text would begin them, so it is replaced.
pub fn line(state: &str, said: &str) -> String {
    format!("TUSKLINE {state} - {}", output::clean(&secrets::hide(said)).replace('|', "/"))
}

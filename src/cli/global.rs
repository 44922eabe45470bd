//! The options of every command, and its outcome.

use std::process::ExitCode;

use clap::{ArgAction, Args};

/// Result of a command: its exit code, or an error that `program::run` prints.
pub type Outcome = anyhow::Result<ExitCode>;

/// Heading of what every command takes, so that a command's own options stand apart.
const GLOBAL: &str = "Global options";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// PostgreSQL address, postgresql://user@host/database; else DATABASE_URL, else the server of
    /// a running `tuskline dev`.
    #[arg(long, global = true, value_name = "URL", env = "TUSKLINE_DATABASE_URL")]
    #[arg(hide_env_values = true, help_heading = GLOBAL)]
    pub database_url: Option<String>,
    /// Act as this role, of which the login is a member.
    #[arg(long, global = true, value_name = "NAME", env = "TUSKLINE_ROLE")]
    #[arg(hide_env_values = true, help_heading = GLOBAL)]
    pub role: Option<String>,
    /// Print JSON.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub json: bool,
    /// Say more on standard error; twice for everything. TUSKLINE_LOG takes a tracing filter.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    pub verbose: u8,
}

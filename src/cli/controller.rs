//! `controller`: runs lambdas in processes of any language.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::WorkerConfig;

use super::database;
use super::global::{Global, Outcome};
use crate::controller::{self, Options, wire_log};
use crate::duration;

/// Arguments of `controller`.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// Executors to keep running. Isolated lambdas have processes of their own beside them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// The command is a zygote: it imports the application once, and forks the executors.
    #[arg(long)]
    zygote: bool,
    /// Where executors find the controller; a new directory by default.
    #[arg(long, value_name = "PATH", env = "TUSKLINE_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
    /// Define lambdas that are unknown, with default settings, instead of refusing them.
    #[arg(long)]
    define_missing: bool,
    /// On SIGTERM, how long running tasks may take to finish.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::parse)]
    drain_grace: Duration,
    /// How long a task that was told to stop may take, before its process is ended.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration::parse)]
    cancel_grace: Duration,
    /// Name of the installation that the database must have.
    #[arg(long, value_name = "NAME", env = "TUSKLINE_INSTALLATION", hide_env_values = true)]
    installation: Option<String>,
    /// Time between heartbeats, for tests: T, L and M follow in the usual proportion.
    #[arg(long, value_name = "DURATION", hide = true, value_parser = duration::parse)]
    heartbeat: Option<Duration>,
    /// How long an executor with a free slot may ask for nothing, for tests.
    #[arg(long, value_name = "DURATION", default_value = "30s", hide = true, value_parser = duration::parse)]
    silence: Duration,
    /// Write each message of executors and each answer to this file, as lines of JSON with their payloads.
    #[arg(long, value_name = "FILE")]
    wire_log: Option<PathBuf>,
    /// Cut off each N-th answer, for tests: executors must repeat their messages.
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u64).range(2..))]
    lose_answers: Option<u64>,
    /// Command of an executor, for example: tusk executor app:tusk.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Arguments of the hidden command that becomes an executor.
#[derive(Debug, Args)]
pub struct StartArgs {
    /// Its command.
    #[arg(last = true, required = true)]
    pub command: Vec<OsString>,
}

pub async fn run(global: &Global, args: ControllerArgs, end: CancellationToken) -> Outcome {
    let address = database::find_given(global)?;
    tracing::info!("{}", database::shown(&address));
    let mut config =
        args.heartbeat.map_or_else(WorkerConfig::default, WorkerConfig::with_heartbeat);
    config.installation = args.installation.filter(|name| !name.is_empty());
    config.drain_grace = args.drain_grace;
    config.cancel_grace = args.cancel_grace;
    let options = Options {
        address,
        role: global.role.clone(),
        command: args.command,
        processes: usize::from(args.processes),
        is_zygote: args.zygote,
        socket: args.socket,
        define_missing: args.define_missing,
        config,
        silence: args.silence,
        wire: wire_log::Options { log: args.wire_log, lose_answers: args.lose_answers },
    };
    Ok(ExitCode::from(controller::run(options, end).await?))
}

//! The frame of a program: it parses the command line, starts the log on standard error, runs the
//! command and prints an error as text. `tuskline`, the bench and the demo share it.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tokio_util::sync::CancellationToken;

use super::failure;
use super::global::{Global, Outcome};

/// The command line of a program, as clap parses it.
pub trait Program: Parser {
    /// The options that every command takes.
    fn global(&self) -> &Global;

    /// Whether it runs for long and tells what it does.
    fn serves(&self) -> bool {
        false
    }

    /// Whether it draws on the terminal. There a line of the log would overwrite the picture.
    fn draws(&self) -> bool {
        false
    }

    /// Runs the command before this process has a second thread; none: it needs the runtime.
    fn before_threads(&self) -> Option<Outcome> {
        None
    }

    /// Runs the command.
    fn execute(self) -> impl Future<Output = Outcome>;
}

/// Runs the program with the arguments of this process.
pub fn run<P: Program>() -> ExitCode {
    let program = match P::try_parse() {
        Ok(program) => program,
        Err(refused) => return failure::report_usage(&refused),
    };
    let (json, verbose) = (program.global().json, program.global().verbose);
    if !(program.draws() && std::io::stderr().is_terminal()) {
        start_tracing(verbose, program.serves(), json);
    }
    if let Some(outcome) = program.before_threads() {
        return outcome.unwrap_or_else(|error| failure::report(&error, json));
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure::report(&error.into(), json),
    };
    let code = match runtime.block_on(program.execute()) {
        Ok(code) => code,
        Err(error) => failure::report(&error, json),
    };
    // A lambda's or a driver's blocking thread must not hold up the end.
    runtime.shutdown_background();
    code
}

/// Cancelled by the first SIGTERM or SIGINT. A second one ends the process at once.
///
/// # Errors
/// The signal handlers cannot be installed.
pub fn end_of_process() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let end = CancellationToken::new();
    let token = end.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            if token.is_cancelled() {
                std::process::exit(1);
            }
            tracing::info!("stopping");
            token.cancel();
        }
    });
    Ok(end)
}

/// To standard error. Commands say warnings only; `serve` tells what it does.
fn start_tracing(verbose: u8, serves: bool, json: bool) {
    use tracing_subscriber::EnvFilter;
    let ours = match (verbose, serves) {
        (0, false) => "warn",
        (0, true) => "info",
        (1, _) => "debug",
        _ => "trace",
    };
    // The driver repeats every NOTICE of the server.
    let usual = format!("warn,tuskline={ours},tokio_postgres=warn");
    let filter = std::env::var("TUSKLINE_LOG")
        .ok()
        .and_then(|filter| EnvFilter::try_new(filter).ok())
        .unwrap_or_else(|| EnvFilter::new(usual));
    let said = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // Only the first of a process wins; another is no harm.
    let _ =
        if serves && json { said.json().try_init() } else { said.with_target(false).try_init() };
}

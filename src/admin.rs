//! The command line: what owners and operators do without opening `psql`.
//!
//! Promises: `--json` on every command; tables that fit the terminal, plain when piped; one line
//! for an error, with what to do about it; exit code 0 done, 1 failed, 2 wrong call.
//! Must never: print a password, or control characters that came out of the database.

mod bench;
mod breaker;
mod bulk;
mod chain;
mod database;
mod dead;
mod demo;
mod dev;
mod doctor;
pub(crate) mod duration;
mod failure;
mod gate;
mod installation;
mod lambda;
mod limit;
mod output;
mod periodic;
mod psql;
mod purge;
mod repair;
mod server;
mod task;
mod unique;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use tokio_util::sync::CancellationToken;

/// What a command comes to: its exit code, or an error that `failure` puts into words.
type Outcome = anyhow::Result<ExitCode>;

#[derive(Debug, Parser)]
#[command(name = "tuskline", version, max_term_width = 100, propagate_version = true)]
#[command(about = "Asynchronous tasks; the only moving part is PostgreSQL.")]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Heading of what every command takes, so that a command's own options stand apart.
const GLOBAL: &str = "Global options";

/// What every command takes.
#[derive(Debug, Args)]
struct Global {
    /// PostgreSQL address, postgresql://user@host/database; else DATABASE_URL, else the server of
    /// a running `tuskline dev`.
    #[arg(long, global = true, value_name = "URL", env = "TUSKLINE_DATABASE_URL")]
    #[arg(hide_env_values = true, help_heading = GLOBAL)]
    database_url: Option<String>,
    /// Print JSON.
    #[arg(long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Say more on standard error; twice for everything. TUSKLINE_LOG takes a tracing filter.
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = GLOBAL)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the schema, or bring it to this version.
    Migrate(server::MigrateArgs),
    /// Give this installation another name, for a restored copy; its old workers get no more work.
    Adopt(installation::AdoptArgs),
    /// Run the store consumer, the schedules and the janitor until told to stop.
    Serve(server::ServeArgs),
    /// Start a private PostgreSQL, migrate it and serve, until Ctrl-C.
    Dev(dev::DevArgs),
    /// Watch thousands of real tasks be scheduled, killed midway, recovered and finished.
    Demo(demo::DemoArgs),
    #[command(hide = true)]
    DemoWorker(demo::DemoWorkerArgs),
    /// Measure what a task costs, on a throw-away PostgreSQL unless --database-url names another.
    Bench(bench::BenchArgs),
    #[command(hide = true)]
    BenchWorker(crate::bench::WorkerOptions),
    /// Define, alter and list lambdas.
    #[command(subcommand)]
    Lambda(lambda::LambdaCommand),
    /// Pause, drop, divert or slow down the tasks of a lambda, and let them go again.
    #[command(subcommand)]
    Gate(gate::GateCommand),
    /// Limit how many tasks run at a time or in a second, and keep an order.
    #[command(subcommand)]
    Limit(limit::LimitCommand),
    /// Say what a unique key means to a lambda.
    #[command(subcommand)]
    Unique(unique::UniqueCommand),
    /// Schedule, follow and cancel tasks.
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Schedule, show, cancel and retry tasks that wait for each other.
    #[command(subcommand)]
    Chain(chain::ChainCommand),
    /// Look at tasks that have failed for good, and let them begin anew.
    #[command(subcommand)]
    Dead(dead::DeadCommand),
    /// Pause a lambda by itself when its attempts fail of one cause.
    #[command(subcommand)]
    Breaker(breaker::BreakerCommand),
    /// Cancel, retry, reprioritise or move all tasks that a filter names.
    #[command(subcommand)]
    Bulk(bulk::BulkCommand),
    /// Delete tasks that have ended before their retention is over.
    Purge(purge::PurgeArgs),
    /// Define schedules of tasks that come again and again, show, pause and foresee them.
    #[command(subcommand)]
    Periodic(periodic::PeriodicCommand),
    /// Examine the database and its settings.
    Doctor,
    /// Make the tables, functions and numbers that rows name and a restore did not bring.
    Repair(repair::RepairArgs),
    /// Open psql on the database.
    Psql(psql::PsqlArgs),
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(refused) => return failure::report_usage(&refused),
    };
    start_tracing(cli.global.verbose, matches!(cli.command, Command::Serve(_)), cli.global.json);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure::report(&error.into(), cli.global.json),
    };
    let json = cli.global.json;
    let code = match runtime.block_on(execute(cli)) {
        Ok(code) => code,
        Err(error) => failure::report(&error, json),
    };
    // A lambda's or a driver's blocking thread must not hold up the end.
    runtime.shutdown_background();
    code
}

async fn execute(cli: Cli) -> Outcome {
    let global = &cli.global;
    match cli.command {
        Command::Migrate(args) => server::migrate(global, args).await,
        Command::Adopt(args) => installation::adopt(global, args).await,
        Command::Serve(args) => server::serve(global, args, end_of_process()?).await,
        Command::Dev(args) => dev::run(global, args, end_of_process()?).await,
        Command::Demo(args) => demo::run(global, args, end_of_process()?).await,
        Command::DemoWorker(args) => demo::work(args).await,
        Command::Bench(args) => bench::run(global, args, end_of_process()?).await,
        Command::BenchWorker(options) => bench::work(global, options).await,
        Command::Lambda(command) => lambda::run(global, command).await,
        Command::Gate(command) => gate::run(global, command).await,
        Command::Limit(command) => limit::run(global, command).await,
        Command::Unique(command) => unique::run(global, command).await,
        Command::Task(command) => task::run(global, command).await,
        Command::Bulk(command) => bulk::run(global, command).await,
        Command::Purge(args) => purge::run(global, args, end_of_process()?).await,
        Command::Chain(command) => chain::run(global, command).await,
        Command::Dead(command) => dead::run(global, command).await,
        Command::Breaker(command) => breaker::run(global, command).await,
        Command::Periodic(command) => periodic::run(global, command).await,
        Command::Doctor => doctor::run(global).await,
        Command::Repair(args) => repair::run(global, args).await,
        Command::Psql(args) => psql::run(global, &args).await,
        Command::Completions { shell } => completions(shell),
    }
}

fn completions(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tuskline", &mut script);
    output::put(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Cancelled by the first SIGTERM or SIGINT. A second one ends the process at once.
fn end_of_process() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let end = CancellationToken::new();
    let told = end.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
            if told.is_cancelled() {
                std::process::exit(1);
            }
            tracing::info!("stopping");
            told.cancel();
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
    // The driver and refinery repeat every NOTICE of the server.
    let usual =
        format!("warn,tuskline={ours},tuskline_sdk={ours},tokio_postgres=warn,refinery_core=warn");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

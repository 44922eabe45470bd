//! The command line: what owners and operators do without opening `psql`.
//!
//! Promises: `--json` on every command; tables that fit the terminal, plain when piped; one line
//! for an error, with what to do about it; exit code 0 done, 1 failed, 2 wrong call.
//! Must never: print a password, or control characters that came out of the database.

mod arguments;
mod breaker;
mod chain;
#[cfg(feature = "dev")]
mod conform;
mod controller;
mod database;
mod dead_letter;
mod define;
#[cfg(feature = "dev")]
mod dev;
mod doctor;
mod failure;
mod gate;
mod global;
mod health;
mod installation;
mod lambda;
mod limit;
mod operation;
mod order;
mod output;
mod pages;
mod periodic;
mod plan;
mod plugin;
mod program;
mod psql;
mod repair;
mod rights;
mod roles;
mod secrets;
mod server;
mod stats;
mod task;
mod top;
mod uninstall;
mod unique_key;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::controller::{environment, guardian, start};

pub use database::{find_given, parse};
pub use failure::{Failed, WrongCall, failed};
pub use global::{Global, Outcome};
pub use output::{put, put_json};
pub use program::{Program, end_of_process, run};
pub use psql::command as psql_on;

#[derive(Debug, Parser)]
#[command(name = "tuskline", version, max_term_width = 100, propagate_version = true)]
#[command(about = "Asynchronous tasks; the only moving part is PostgreSQL.")]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the schema, or bring it to this version.
    Migrate(server::MigrateArgs),
    /// Give this installation another name, for a restored copy; its old workers get no more work.
    Adopt(installation::AdoptArgs),
    /// Run the store consumer, the schedules and the janitor until told to stop.
    Serve(server::ServeArgs),
    /// Run lambdas in processes of any language, and end those that go on too long.
    Controller(controller::ControllerArgs),
    /// Run an executor against the conformance kit, on a throw-away PostgreSQL.
    #[cfg(feature = "dev")]
    Conform(conform::ConformArgs),
    /// Become an executor: what the controller's guardian starts.
    #[command(hide = true, name = environment::START)]
    StartExecutor(controller::StartArgs),
    /// Ask a running `tuskline serve` whether it is up, or ready; exit code 0 or 1.
    Health(health::HealthArgs),
    /// Start a private PostgreSQL, migrate it and serve, until Ctrl-C.
    #[cfg(feature = "dev")]
    Dev(dev::DevArgs),
    /// Define, alter and list lambdas.
    #[command(subcommand)]
    Lambda(lambda::LambdaCommand),
    /// Define lambdas with their settings, limits, gates and schedules from a file.
    Define(define::DefineArgs),
    /// Pause, drop, divert or slow down the tasks of a lambda, and let them go again.
    #[command(subcommand)]
    Gate(gate::GateCommand),
    /// Limit how many tasks run at a time or in a second, and keep an order.
    #[command(subcommand)]
    Limit(limit::LimitCommand),
    /// Run tasks of one ordering key in order; list and unblock keys that wait for a failed task.
    #[command(subcommand)]
    Order(order::OrderCommand),
    /// Say what a unique key means to a lambda.
    #[command(subcommand)]
    UniqueKey(unique_key::UniqueKeyCommand),
    /// Schedule, follow and cancel tasks.
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Schedule, show, cancel and retry tasks that wait for each other.
    #[command(subcommand)]
    Chain(chain::ChainCommand),
    /// Look at tasks that have failed for good.
    #[command(subcommand)]
    DeadLetter(dead_letter::DeadLetterCommand),
    /// Pause a lambda by itself when its attempts fail of one cause.
    #[command(subcommand)]
    Breaker(breaker::BreakerCommand),
    /// Cancel, retry, move, purge or redrive all tasks that a filter names.
    #[command(subcommand)]
    Operation(operation::OperationCommand),
    /// Define schedules of tasks that come again and again, show, pause and foresee them.
    #[command(subcommand)]
    Periodic(periodic::PeriodicCommand),
    /// Show attempts, delays to the start and run times (95th percentiles), and waits of the last minutes.
    Stats(stats::StatsArgs),
    /// Watch lambdas, queues, workers, waits and dead letters on the terminal; pause and redrive.
    Top(top::TopArgs),
    /// Examine the database, its settings, its sessions and its space.
    Doctor(doctor::DoctorArgs),
    /// Make the tables, functions and numbers that rows name and a restore did not bring.
    Repair(repair::RepairArgs),
    /// Grant rights on a lambda to a role.
    Grant(rights::GrantArgs),
    /// Revoke rights on a lambda from a role.
    Revoke(rights::GrantArgs),
    /// List the rights of roles on lambdas.
    Rights(rights::RightsArgs),
    /// List the groups of roles, and print the SQL that makes them.
    Roles(roles::RolesArgs),
    /// Print the SQL that removes Tuskline from the database.
    Uninstall(uninstall::UninstallArgs),
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
    run::<Cli>()
}

impl Program for Cli {
    fn global(&self) -> &Global {
        &self.global
    }

    fn serves(&self) -> bool {
        matches!(self.command, Command::Serve(_) | Command::Controller(_))
    }

    fn draws(&self) -> bool {
        matches!(self.command, Command::Top(_)) && !self.global.json
    }

    /// A guardian and an executor that starts have one thread.
    fn before_threads(&self) -> Option<Outcome> {
        match &self.command {
            Command::StartExecutor(args) => Some(Ok(start::become_executor(&args.command))),
            Command::Controller(_) if std::env::var_os(environment::GUARDIAN).is_none() => {
                Some(guardian::run().map(ExitCode::from).map_err(Into::into))
            }
            _ => None,
        }
    }

    async fn execute(self) -> Outcome {
        let global = &self.global;
        let open = database::open(global);
        match self.command {
            // These have exit codes of their own.
            Command::Health(args) => return health::run(global, &args).await,
            Command::Task(command) => return task::run(global, command).await,
            Command::Operation(command) => return operation::run(global, command).await,
            Command::Controller(args) => {
                return controller::run(global, args, end_of_process()?).await;
            }
            #[cfg(feature = "dev")]
            Command::Conform(args) => return conform::run(global, args, end_of_process()?).await,
            // It became another program, or has failed already.
            Command::StartExecutor(_) => return Ok(ExitCode::FAILURE),
            Command::Doctor(args) => return doctor::run(global, args).await,
            Command::Migrate(args) => server::migrate(global, args).await,
            Command::Adopt(args) => installation::adopt(global, args).await,
            Command::Serve(args) => server::serve(global, args, end_of_process()?).await,
            #[cfg(feature = "dev")]
            Command::Dev(args) => dev::run(global, args, end_of_process()?).await,
            Command::Lambda(command) => lambda::run(global, open.await?.client(), command).await,
            Command::Define(args) => define::run(global, args).await,
            Command::Gate(command) => gate::run(global, open.await?.client(), command).await,
            Command::Limit(command) => limit::run(global, open.await?.client(), command).await,
            Command::Order(command) => order::run(global, open.await?.client(), command).await,
            Command::UniqueKey(command) => {
                unique_key::run(global, open.await?.client(), command).await
            }
            Command::Chain(command) => chain::run(global, command).await,
            Command::DeadLetter(command) => {
                dead_letter::run(global, open.await?.client(), command).await
            }
            Command::Breaker(command) => breaker::run(global, open.await?.client(), command).await,
            Command::Periodic(command) => periodic::run(global, command).await,
            Command::Stats(args) => stats::run(global, open.await?.client(), args).await,
            Command::Top(args) => top::run(global, args).await,
            Command::Repair(args) => repair::run(global, args).await,
            Command::Grant(args) => rights::grant(global, open.await?.client(), &args).await,
            Command::Revoke(args) => rights::revoke(global, open.await?.client(), &args).await,
            Command::Rights(args) => rights::list(global, open.await?.client(), &args).await,
            Command::Roles(args) => roles::run(global, &args).await,
            Command::Uninstall(args) => uninstall::run(global, &args).await,
            Command::Psql(args) => psql::run(global, &args),
            Command::Completions { shell } => completions(shell),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tuskline", &mut script);
    Ok(output::put(&String::from_utf8_lossy(&script))?)
}

/// Without the feature no private PostgreSQL is looked for.
#[cfg(not(feature = "dev"))]
mod dev {
    pub fn running() -> Option<tuskline_sdk::Address> {
        None
    }

    pub fn psql() -> Option<std::path::PathBuf> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}

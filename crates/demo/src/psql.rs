//! `psql` on what the last demo left.

use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tuskline::cli::{Outcome, psql_on};
use tuskline_postgres::{Cluster, Options, Stop, default_data_dir};

use super::run::DATABASE;

/// Arguments of `psql`.
#[derive(Debug, Args)]
pub struct PsqlArgs {
    /// Arguments for psql itself, after `--`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs it, on a server that is started for as long as psql runs.
pub async fn run(args: &PsqlArgs) -> Outcome {
    let mut cluster = Cluster::start(Options::durable(default_data_dir())).await?.owned();
    let mut psql = psql_on(&cluster.config(DATABASE).into())?;
    psql.args(&args.arguments);
    // Ctrl-C is psql's own: it cancels a query there.
    let _ignored = signal(SignalKind::interrupt())?;
    let ended = tokio::task::spawn_blocking(move || psql.status()).await?;
    cluster.stop(Stop::Fast).await?;
    let code = ended?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

//! `migrate` and `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Global, Outcome, database, output};
use crate::archive::Directory;
use crate::config::JanitorOptions;
use crate::migrate::{self, Functions};
use crate::serve::{self, Options, Role};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Roles to run; all of them by default.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["store-consumer", "periodic", "janitor"])]
    roles: Vec<Role>,
    /// Answer /healthz and /readyz here, e.g. 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS", env = "TUSKLINE_LISTEN", hide_env_values = true)]
    listen: Option<SocketAddr>,
    /// Write tasks here, as JSON lines, before they are deleted, of lambdas with --archive file.
    #[arg(long, value_name = "DIR", env = "TUSKLINE_ARCHIVE_DIR", hide_env_values = true)]
    archive_dir: Option<PathBuf>,
}

pub async fn migrate(global: &Global) -> Outcome {
    let config = database::find_given(global)?;
    let report = migrate::migrate(&config).await?;
    output::answer(global, &json!(report), &told(&report))?;
    Ok(ExitCode::SUCCESS)
}

fn told(report: &migrate::Report) -> String {
    let functions = match report.functions {
        Functions::Unchanged => "unchanged",
        Functions::Replaced => "installed",
        Functions::Recreated => "made anew",
    };
    let tables = match report.applied.as_slice() {
        [] => "unchanged".to_owned(),
        applied => format!("applied {}", applied.join(", ")),
    };
    format!("tables: {tables}\nfunctions: set {} {functions}", report.function_set)
}

pub async fn serve(global: &Global, args: ServeArgs, end: CancellationToken) -> Outcome {
    let config = database::find_given(global)?;
    tracing::info!("{}", database::shown(&config));
    let archive = args.archive_dir.map(Directory::open).transpose()?;
    let janitor = JanitorOptions { archive, ..JanitorOptions::default() };
    let options = Options { roles: args.roles, listen: args.listen, janitor, ..Options::default() };
    serve::run(config, options, end).await?;
    Ok(ExitCode::SUCCESS)
}

//! `migrate` and `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::global::Global;
use super::pages::PagesArgs;
use super::{database, installation, output, plan};
use crate::archive::Directory;
use crate::config::{DEFAULT_INSTALLATION, JanitorOptions};
use crate::duration;
use crate::migrate::{self, Functions};
use crate::serve::{self, Options, Role};

/// Arguments of `migrate`.
#[derive(Debug, Args)]
pub struct MigrateArgs {
    /// Name a database that has no name yet. Its workers and servers must then say the name.
    #[arg(long, value_name = "NAME")]
    installation: Option<String>,
    /// Range of ids, 0 to 63, of a new database: no two cells issue the same id. Chosen once; 0 by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=63))]
    cell: Option<u8>,
    /// Change nothing: print the statements, their locks, and the sessions that block them now.
    #[arg(long, conflicts_with_all = ["installation", "cell"])]
    plan: bool,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Roles to run; all of them by default.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["store-consumer", "periodic", "janitor"])]
    roles: Vec<Role>,
    /// Name of the installation that the database must have.
    #[arg(long, value_name = "NAME", env = "TUSKLINE_INSTALLATION", hide_env_values = true)]
    installation: Option<String>,
    /// Answer pages, calls by HTTP, /metrics, /scale, /healthz and /readyz here, e.g. 127.0.0.1:8080.
    #[arg(long, value_name = "ADDRESS", env = "TUSKLINE_LISTEN", hide_env_values = true)]
    listen: Option<SocketAddr>,
    /// Write tasks of lambdas with --archive file here, as JSON lines, before they are deleted.
    #[arg(long, value_name = "DIR", env = "TUSKLINE_ARCHIVE_DIR", hide_env_values = true)]
    archive_dir: Option<PathBuf>,
    /// How long statistics are kept, e.g. 12h or 30d.
    #[arg(
        long,
        value_name = "DURATION",
        env = "TUSKLINE_STATISTICS_RETENTION",
        hide_env_values = true
    )]
    #[arg(default_value = "3d", value_parser = duration::parse)]
    statistics_retention: Duration,
    #[command(flatten)]
    pages: PagesArgs,
}

pub async fn migrate(global: &Global, args: MigrateArgs) -> Result<()> {
    let address = database::find_given(global)?;
    if args.plan {
        return plan::run(global, &address).await;
    }
    let report = match args.cell {
        Some(cell) => migrate::migrate_in_cell(&address, cell).await?,
        None => migrate::migrate(&address).await?,
    };
    let installation = installation::name(&address, args.installation.as_deref()).await?;
    let mut answer = json!(report);
    answer["installation"] = json!(installation.name);
    answer["cell"] = json!(installation.cell);
    let text = format!("{}\ninstallation: {installation}", text_of(&report));
    output::answer(global, &answer, &text)
}

fn text_of(report: &migrate::Report) -> String {
    let functions = match report.functions {
        Functions::Newer => {
            return format!(
                "the database is newer (function set {}); this binary (function set {}) works with it: \
                 nothing to do",
                report.schema_version,
                migrate::SCHEMA_VERSION
            );
        }
        Functions::Unchanged => "unchanged",
        Functions::Replaced => "installed",
        Functions::Recreated => "replaced; some were dropped and created again",
    };
    let tables = match report.applied.as_slice() {
        [] => "unchanged".to_owned(),
        applied => format!("applied {}", applied.join(", ")),
    };
    format!("tables: {tables}\nfunctions: set {} {functions}", report.schema_version)
}

pub async fn serve(global: &Global, args: ServeArgs, end: CancellationToken) -> Result<()> {
    // The server stays what its login is. The role is that of people without a token.
    let address = database::find_given(&Global { role: None, ..global.clone() })?;
    tracing::info!("{}", database::shown(&address));
    let archive = args.archive_dir.map(Directory::open).transpose()?;
    let statistics_retention = args.statistics_retention;
    let janitor = JanitorOptions { archive, statistics_retention, ..JanitorOptions::default() };
    let named = args.installation.filter(|name| !name.is_empty());
    let options = Options {
        roles: args.roles,
        listen: args.listen,
        tls: args.pages.tls()?,
        pages: args.pages.options(args.listen, global.role.as_deref())?,
        installation: named.unwrap_or_else(|| DEFAULT_INSTALLATION.to_owned()),
        janitor,
        ..Options::default()
    };
    Ok(serve::run(address, options, end).await?)
}

//! `psql`: the DBA's door, on the database that the other commands use.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use clap::Args;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::failure::{Failed, failed};
use super::{Global, Outcome, database};
use crate::embedded::{self, Cluster, Stop};

/// Arguments of `psql`.
#[derive(Debug, Args)]
pub struct PsqlArgs {
    /// Open what the last demo left, starting PostgreSQL for as long as psql runs.
    #[arg(long)]
    demo: bool,
    /// Arguments for psql itself, after `--`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Becomes psql. The address goes by environment, where no process list shows a password.
pub async fn run(global: &Global, args: &PsqlArgs) -> Outcome {
    if args.demo {
        return on_demo(args).await;
    }
    let config = database::find(global)?;
    let mut psql = Command::new(program()?);
    psql.args(&args.arguments).envs(environment(&config));
    let error = psql.exec();
    Err(failed(format!("cannot run {}: {error}", psql.get_program().display())))
}

async fn on_demo(args: &PsqlArgs) -> Outcome {
    let usual = embedded::Options::durable(embedded::default_data_dir());
    let mut cluster = Cluster::start(usual).await?;
    let mut psql = Command::new(program()?);
    psql.args(&args.arguments).envs(environment(&cluster.config(crate::demo::DATABASE)));
    // Ctrl-C is psql's own: it cancels a query there.
    let _ignored = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    let ended = tokio::task::spawn_blocking(move || psql.status()).await?;
    cluster.stop(Stop::Fast).await?;
    let code = ended?.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

fn environment(config: &Config) -> Vec<(&'static str, String)> {
    let hosts = config.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    });
    let ports = config.get_ports().iter().map(ToString::to_string);
    let joined = |list: Vec<String>| Some(list.join(",")).filter(|text| !text.is_empty());
    let ssl_mode = match config.get_ssl_mode() {
        SslMode::Disable => "disable",
        SslMode::Require => "require",
        _ => "prefer",
    };
    let known = [
        ("PGHOST", joined(hosts.collect())),
        ("PGPORT", joined(ports.collect())),
        ("PGUSER", config.get_user().map(str::to_owned)),
        ("PGDATABASE", config.get_dbname().map(str::to_owned)),
        ("PGPASSWORD", config.get_password().map(|p| String::from_utf8_lossy(p).into_owned())),
        ("PGOPTIONS", config.get_options().map(str::to_owned)),
        ("PGSSLMODE", Some(ssl_mode.to_owned())),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Debian's is a wrapper that may find no client behind it.
fn answers(psql: &Path) -> bool {
    let asked = Command::new(psql).arg("--version").stdin(Stdio::null()).output();
    asked.is_ok_and(|said| said.status.success())
}

/// `psql` of the path, else the one beside the embedded server's binaries.
fn program() -> Result<PathBuf> {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .map(|dir| dir.join("psql"))
        .find(|psql| psql.is_file() && answers(psql));
    let beside_server = || Some(crate::embedded::Binaries::find().ok()?.dir.join("psql"));
    on_path.or_else(beside_server).filter(|psql| psql.is_file()).ok_or_else(|| {
        let hint = Some("install PostgreSQL's client programs".to_owned());
        Failed { what: "psql is not installed".to_owned(), hint }.into()
    })
}

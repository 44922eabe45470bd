//! `psql`: the DBA's door, on the database that the other commands use.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;
use clap::Args;
use tuskline_sdk::{Address, host_name};

use super::failure::{Failed, failed};
use super::global::Global;
use super::{database, dev};

/// Arguments of `psql`.
#[derive(Debug, Args)]
pub struct PsqlArgs {
    /// Arguments for psql itself, after `--`.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Becomes psql.
pub fn run(global: &Global, args: &PsqlArgs) -> Result<()> {
    let address = database::find(global)?;
    let mut psql = command(&address)?;
    let error = psql.args(&args.arguments).exec();
    Err(failed(format!("cannot run {}: {error}", psql.get_program().display())))
}

/// psql on a database. The address goes by environment, where no process list shows a password.
///
/// # Errors
/// It is not installed.
pub fn command(address: &Address) -> Result<Command> {
    let mut psql = Command::new(program()?);
    psql.envs(environment(address));
    Ok(psql)
}

fn environment(address: &Address) -> Vec<(&'static str, String)> {
    let config = address.config();
    let hosts = config.get_hosts().iter().map(host_name);
    let ports = config.get_ports().iter().map(ToString::to_string);
    let joined = |list: Vec<String>| Some(list.join(",")).filter(|text| !text.is_empty());
    let known = [
        ("PGHOST", joined(hosts.collect())),
        ("PGPORT", joined(ports.collect())),
        ("PGUSER", config.get_user().map(str::to_owned)),
        ("PGDATABASE", config.get_dbname().map(str::to_owned)),
        ("PGPASSWORD", config.get_password().map(|p| String::from_utf8_lossy(p).into_owned())),
        ("PGOPTIONS", config.get_options().map(str::to_owned)),
    ];
    let known = known.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.chain(address.tls_environment()).collect()
}

/// Debian's is a wrapper that may find no client behind it.
fn answers(psql: &Path) -> bool {
    let asked = Command::new(psql).arg("--version").stdin(Stdio::null()).output();
    asked.is_ok_and(|said| said.status.success())
}

/// `psql` of the path, else the one beside the binaries of the private server.
fn program() -> Result<PathBuf> {
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>())
        .map(|dir| dir.join("psql"))
        .find(|psql| psql.is_file() && answers(psql));
    on_path.or_else(dev::psql).filter(|psql| psql.is_file()).ok_or_else(|| {
        let hint = Some("install PostgreSQL's client programs".to_owned());
        Failed { what: "psql is not installed".to_owned(), hint }.into()
    })
}

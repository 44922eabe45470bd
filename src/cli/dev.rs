//! `dev`: everything for the first five minutes in one process: a private PostgreSQL that keeps
//! its data, migrated, with the server's roles, until Ctrl-C. An ordinary role owns the schema, so
//! rights on lambdas can be granted.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use tokio_postgres::Config;
use tokio_util::sync::CancellationToken;
use tuskline_postgres::{Binaries, Cluster, OWNER, Options, Stop, default_data_dir};
use tuskline_sdk::Address;

use super::failure::failed;
use super::global::Global;
use super::output;
use crate::pages::{self, Access};
use crate::serve;

/// Its database.
const DATABASE: &str = "tuskline";

/// Arguments of `dev`.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Where the cluster lives; other commands find the default place by themselves.
    #[arg(long, value_name = "DIRECTORY", env = "TUSKLINE_DATA_DIR", hide_env_values = true)]
    data_dir: Option<PathBuf>,
    /// Also listen on this port of 127.0.0.1, with a generated password.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Answer pages, /metrics, /scale, /healthz and /readyz here; else on 127.0.0.1:8080, or a free
    /// port. Who opens the pages on this machine may act.
    #[arg(long, value_name = "ADDRESS", env = "TUSKLINE_LISTEN", hide_env_values = true)]
    listen: Option<SocketAddr>,
}

pub async fn run(global: &Global, args: DevArgs, end: CancellationToken) -> Result<()> {
    let data_dir = args.data_dir.unwrap_or_else(default_data_dir);
    let settings = vec![("idle_in_transaction_session_timeout".to_owned(), "5min".to_owned())];
    let durable = Options::durable(data_dir);
    let options = Options { tcp_port: args.port, settings, ..durable };
    let mut cluster = Cluster::start(options).await?.owned();
    let served = serve_on(global, &cluster, args.listen, end).await;
    let stopped = cluster.stop(Stop::Fast).await;
    served?;
    Ok(stopped?)
}

async fn serve_on(
    global: &Global,
    cluster: &Cluster,
    listen: Option<SocketAddr>,
    end: CancellationToken,
) -> Result<()> {
    cluster.create_database(DATABASE, None).await?;
    let config = cluster.config(DATABASE);
    crate::migrate::migrate(&config).await?;
    let listen = free(listen);
    put(global, cluster, listen)?;
    let access = Access { role: OWNER.to_owned(), acts_freely: true, ..Access::default() };
    let pages = pages::Options { access, ..pages::Options::default() };
    let pages = listen.ip().is_loopback().then_some(pages);
    let options = serve::Options { listen: Some(listen), pages, ..serve::Options::default() };
    tokio::select! {
        served = serve::run(config, options, end) => Ok(served?),
        () = ended(cluster) => Err(failed("PostgreSQL ended by itself; its server.log says why")),
    }
}

/// The address with a port that is free: that of `--listen`, or the usual one, or any.
fn free(listen: Option<SocketAddr>) -> SocketAddr {
    let usual = SocketAddr::from(([127, 0, 0, 1], 8080));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let bound = match listen {
        Some(named) if named.port() != 0 => return named,
        Some(named) => TcpListener::bind(named),
        None => TcpListener::bind(usual).or_else(|_| TcpListener::bind(any)),
    };
    bound.and_then(|listener| listener.local_addr()).unwrap_or(usual)
}

/// Completes when the server has gone without being told to.
async fn ended(cluster: &Cluster) {
    while cluster.is_running() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn put(global: &Global, cluster: &Cluster, listen: SocketAddr) -> std::io::Result<()> {
    let (url, psql) = (cluster.url(DATABASE), cluster.psql_command(DATABASE));
    let pages = listen.ip().is_loopback().then(|| format!("http://{listen}/"));
    if global.json {
        return output::put_json(
            &json!({"url": url, "tcp": cluster.tcp_url(DATABASE), "psql": psql,
                    "pages": pages, "attached": cluster.attached()}),
        );
    }
    let how = if cluster.attached() { "attached to a running one" } else { "started" };
    output::put(&format!("PostgreSQL {how}; serving until Ctrl-C"))?;
    output::put(&format!("  url   {url}"))?;
    if let Some(tcp) = cluster.tcp_url(DATABASE) {
        output::put(&format!("  tcp   {tcp}"))?;
    }
    output::put(&format!("  psql  {psql}"))?;
    pages.map_or(Ok(()), |pages| output::put(&format!("  pages {pages}")))
}

/// The database of one that runs on the usual data directory. Its pid file says where the server
/// answers. A server that is gone leaves one behind: then there is no socket either.
pub fn running() -> Option<Address> {
    let pid_file = std::fs::read_to_string(default_data_dir().join("data/postmaster.pid")).ok()?;
    let mut lines = pid_file.lines().skip(3);
    let port: u16 = lines.next()?.trim().parse().ok()?;
    let socket_dir = lines.next()?.trim();
    if !Path::new(socket_dir).join(format!(".s.PGSQL.{port}")).exists() {
        return None;
    }
    let mut config = Config::new();
    config.host_path(socket_dir).port(port).user(OWNER).dbname(DATABASE);
    Some(config.into())
}

/// The `psql` beside the server's binaries.
pub fn psql() -> Option<PathBuf> {
    Some(Binaries::find().ok()?.dir.join("psql"))
}

//! `health`: asks a running server, for images and units that have no HTTP client.
//!
//! Promises: an answer within `DEADLINE`; exit code 0 for a 200, else 1.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::failure::{Failed, failed};
use super::global::{Global, Outcome};
use super::output;

/// Longest wait for the answer. The server gives one sooner.
const DEADLINE: Duration = Duration::from_secs(5);

/// Longest answer that is read, in bytes. An answer of the server has some hundred.
const MOST_BYTES: u64 = 64 * 1024;

/// Arguments of `health`.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Address of the server: its own --listen. 0.0.0.0 and [::] mean this machine.
    #[arg(long, value_name = "ADDRESS", env = "TUSKLINE_LISTEN", hide_env_values = true)]
    listen: SocketAddr,
    /// Ask /readyz: can it do its work? Without this, ask /healthz.
    #[arg(long)]
    ready: bool,
}

pub async fn run(global: &Global, args: &HealthArgs) -> Outcome {
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let address = on_this_machine(args.listen);
    let asked = timeout(DEADLINE, ask(address, path)).await;
    let answer = asked
        .map_err(|_| failed(format!("{address} did not answer within {} s", DEADLINE.as_secs())))?
        .map_err(|error| silent(address, &error))?;
    let (ok, report) = read(&answer).with_context(|| format!("{address} is no tuskline serve"))?;
    let status = output::field(&report, "status");
    output::answer(global, &report, &if ok { status } else { report.to_string() })?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A server that listens on every address answers on the loopback one.
fn on_this_machine(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

async fn ask(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer).await?;
    Ok(answer)
}

/// Returns whether the status is 200, and the JSON object of the answer.
fn read(answer: &str) -> Result<(bool, Value)> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    Ok((head.starts_with("HTTP/1.1 200 "), serde_json::from_str(body)?))
}

fn silent(address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    Failed {
        what: format!("no answer from {address}: {error}"),
        hint: Some("is `tuskline serve --listen` running there?".to_owned()),
    }
    .into()
}

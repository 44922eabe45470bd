//! The bench: what a task costs, measured on the embedded PostgreSQL with fsync on.
//!
//! `cargo bench --bench bench -- drain [--tasks 200000] [--workers 1] [--payload-bytes 150] [--json]`
//! preloads a queue, then lets worker processes drain it, and prints tasks/s with the exact costs:
//! WAL bytes, and CPU of the server and of the workers.

mod cost;
mod drain;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let workload = if args.is_empty() { "drain".to_owned() } else { args.remove(0) };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let run = runtime.block_on(async {
        match workload.as_str() {
            "drain" => drain::run(&drain::Options::parse(&args)?).await,
            "worker" => drain::work(&args).await,
            other => anyhow::bail!("unknown workload {other:?}: drain"),
        }
    });
    match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

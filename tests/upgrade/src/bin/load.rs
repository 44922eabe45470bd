//! The load of `./x upgrade`, as one build of the SDK makes it: a client that schedules, or a worker.
//!
//! Each build has this program, so an old client and a new worker meet in one database.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_postgres::NoTls;
use tuskline_sdk::{Client, Context, Data, Failure, Lambda, Payload, Worker};

/// Between two calls of `schedule`.
const PACE: Duration = Duration::from_millis(8);

/// A task in so many fails at its first attempt.
const FAILS: u64 = 50;

#[derive(Parser)]
struct Load {
    /// Address of the database.
    #[arg(long)]
    url: String,
    /// Name of this build in the table of effects.
    #[arg(long)]
    build: String,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Schedules tasks until it is asked to stop, then prints how many calls failed.
    Schedule,
    /// Works until it is asked to stop.
    Work,
}

#[derive(Serialize, Deserialize)]
struct Step {
    client: String,
    n: u64,
}

impl Payload for Step {
    const LAMBDA: &'static str = "step";
}

#[derive(Serialize)]
struct Scheduled {
    scheduled: u64,
    failed: u64,
    error: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let load = Load::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let done = match load.role {
        Role::Schedule => schedule(&load).await,
        Role::Work => work(&load).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn schedule(load: &Load) -> anyhow::Result<()> {
    let client = Client::connect(&load.url).await?;
    let mut report = Scheduled { scheduled: 0, failed: 0, error: None };
    let mut stop = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0.. {
        tokio::select! {
            _ = stop.recv() => break,
            _ = pace.tick() => {}
        }
        match client.schedule(Step { client: load.build.clone(), n }).await {
            Ok(_) => report.scheduled += 1,
            Err(error) => {
                report.failed += 1;
                report.error = Some(error.to_string());
            }
        }
    }
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// The table of effects, and the name of this build in it.
struct Effects {
    client: tokio_postgres::Client,
    build: String,
}

async fn step(step: Step, context: Context, effects: Data<Effects>) -> Result<(), Failure> {
    let sql = "insert into effect (client, n, worker, attempt, schema)
               values ($1, $2, $3, $4, tuskline.version())";
    let (n, attempt) = (i64::try_from(step.n)?, i32::from(context.attempt()));
    effects.client.execute(sql, &[&step.client, &n, &effects.build, &attempt]).await?;
    if step.n.is_multiple_of(FAILS) && attempt == 1 {
        return Err(Failure::retry_after(Duration::from_millis(100), "the first attempt"));
    }
    Ok(())
}

async fn work(load: &Load) -> anyhow::Result<()> {
    let (client, connection) = tokio_postgres::connect(&load.url, NoTls).await?;
    tokio::spawn(connection);
    let effects = Effects { client, build: load.build.clone() };
    let began = Instant::now();
    Worker::builder(&load.url).data(effects).serve(Lambda::new(step).slots(8)).run().await?;
    eprintln!("worked for {:?}", began.elapsed());
    Ok(())
}

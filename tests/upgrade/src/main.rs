//! `./x upgrade`: two builds share a database while it is migrated under load.
//!
//! Old and new clients schedule, and old and new workers work, on the old schema. After `migrate`
//! they go on, on the new one. The first grant closes their lambda, and they go on. Then the old
//! server and the old worker end. No call may fail, and no task may be lost. No attempt may fail or
//! be repeated, except those that the load plans. A result that the schema refuses is repeated by
//! another worker and loses nothing. Last, the registration of an old worker without a right ends.

mod builds;
mod count;
mod rights;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use tokio::time::sleep;
use tokio_postgres::{Client, NoTls};
use tuskline_postgres::Cluster;

use builds::Build;
use count::Verdict;

#[derive(Parser)]
struct Upgrade {
    /// Directory of the programs of the old build.
    #[arg(long)]
    old: PathBuf,
    /// Directory of the programs of the new build.
    #[arg(long)]
    new: PathBuf,
    /// Seconds of a phase: there are three and a quarter.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Print the verdict as JSON.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Upgrade::parse();
    let cluster = Cluster::temporary(Vec::new()).await?.owned();
    cluster.create_database("upgrade", None).await?;
    let url = cluster.url("upgrade");
    let verdict = run(&arguments, &url).await?;
    if arguments.json {
        println!("{}", serde_json::to_string(&verdict)?);
    } else {
        print!("{verdict}");
    }
    Ok(if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run(arguments: &Upgrade, url: &str) -> Result<Verdict> {
    let old = Build::new("old", &arguments.old, url);
    let new = Build::new("new", &arguments.new, url);
    let phase = Duration::from_secs(arguments.seconds);
    old.migrate().await?;
    let client = connect(url).await?;
    client.batch_execute(count::SETUP).await?;
    client.batch_execute(rights::ROLES).await?;
    let old_set = set(&client).await?;
    let mut old_server = old.serve()?;
    let clients = [old.schedule()?, new.schedule()?];
    // Either worker may take nearly all tasks, so each is alone for a time.
    say("old schema: a server of the old build, a worker of the new one, then one of the old one");
    let new_worker = new.work()?;
    sleep(phase / 2).await;
    let old_worker = old.work()?;
    new_worker.stop().await?;
    sleep(phase / 2).await;
    say("the new build migrates, while all of them work");
    let new_worker = new.work()?;
    sleep(phase / 4).await;
    new.migrate().await?;
    let new_set = set(&client).await?;
    sleep(phase / 2).await;
    say("new schema: the worker of the old build is alone");
    new_worker.stop().await?;
    sleep(phase / 2).await;
    say("its lambda is closed, while it works");
    let closed_at = rights::close(&client).await?;
    sleep(phase / 2).await;
    old_server.assert_running()?;
    say("the server of the new build takes over, then the old worker ends");
    let new_worker = new.work()?;
    let new_server = new.serve()?;
    old_server.stop().await?;
    old_worker.stop().await?;
    sleep(phase).await;
    let mut said = Vec::new();
    for client in clients {
        said.push(client.stop().await?);
    }
    let sets = (old_set, new_set);
    let mut verdict = count::until_done(&client, &said, sets, arguments.seconds).await?;
    new_worker.stop().await?;
    say("the lambda is closed to a worker of the old build without a right");
    verdict.rights = Some(rights::examine(&old, &client, closed_at).await?);
    new_server.stop().await?;
    Ok(verdict)
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.context("the database")?;
    tokio::spawn(connection);
    Ok(client)
}

/// The function set that is installed.
async fn set(client: &Client) -> Result<i32> {
    Ok(client.query_one("select tuskline.version()", &[]).await?.get(0))
}

fn say(text: &str) {
    eprintln!("{text}");
}

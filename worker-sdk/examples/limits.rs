//! Limits: two exports at a time and fifty per second, over all workers and hosts.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example limits
//! ```
//!
//! It prints:
//!
//! ```text
//! the limits of export: at most 2 at a time, 50 per second
//! 6 exports are done
//! more than 2 at a time: never
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Status, Worker};

const LAMBDA: &str = "export";
const LIMIT: Duration = Duration::from_secs(30);

/// Exports that run now, and the most that ever did.
#[derive(Default)]
struct Load {
    now: AtomicU32,
    most: AtomicU32,
}

async fn export(load: Arc<Load>) {
    let now = load.now.fetch_add(1, Ordering::SeqCst) + 1;
    load.most.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(100)).await; // the work
    load.now.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let limits = "select tuskline.set_limit('export', p_max_concurrency => 2);
                  select tuskline.set_limit('export', p_per_second => 50);";
    let connection = client.connection().await?;
    connection.batch_execute(limits).await?;
    // The view also has the permits that are held and the tasks that wait.
    let look =
        "select max(max_concurrency), max(per_second) from tuskline.limits where lambda = $1";
    let row = connection.query_one(look, &[&LAMBDA]).await?;
    let (most, per_second): (i32, f64) = (row.get(0), row.get(1));
    println!("the limits of {LAMBDA}: at most {most} at a time, {per_second} per second");

    let tables = (1..=6).map(|table| NewTask::new(LAMBDA, &table));
    let ids = client.schedule_many(tables).await?;

    let load = Arc::new(Load::default());
    let shared = Arc::clone(&load);
    let body = move |_table: u32, _: Context| export(Arc::clone(&shared));
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, body))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let mut done = 0;
    for id in ids {
        let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
        done += u32::from(end.status == Status::Success);
    }
    println!("{done} exports are done");
    let most = load.most.load(Ordering::SeqCst);
    println!("more than 2 at a time: {}", if most > 2 { "once" } else { "never" });
    stop.cancel();
    worker.await??;
    Ok(())
}

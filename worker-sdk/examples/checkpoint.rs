//! A long task reports its progress, and its next attempt continues where the last one stopped.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example checkpoint
//! ```
//!
//! It prints:
//!
//! ```text
//! attempt 1 begins at row 0
//! attempt 2 begins at row 3000
//! success: 100 %, 5000 of 5000 rows
//! ```

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Worker};

const LAMBDA: &str = "import";
const LIMIT: Duration = Duration::from_secs(30);

async fn import(rows: u32, context: Context) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut done: u32 = context.checkpoint().await?.unwrap_or(0);
    println!("attempt {} begins at row {done}", context.attempt());
    while done < rows {
        if done == 3000 && context.attempt() == 1 {
            return Err("the connection to the source broke".into());
        }
        done += 1000; // ... and the work
        // Each is a commit of its own: once a second is enough.
        context.save(&done).await?;
        let percent = 100.0 * done as f32 / rows as f32;
        context.progress(percent, &format!("{done} of {rows} rows")).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;

    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, import))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let id = client.schedule(&NewTask::new(LAMBDA, &5000)).await?;
    let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
    let percent = end.percent.unwrap_or_default();
    println!("{}: {percent} %, {}", end.status, end.message.unwrap_or_default());
    stop.cancel();
    worker.await??;
    Ok(())
}

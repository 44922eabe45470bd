//! A chain: one task splits a text, three count in parallel, and one adds up their outputs.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example fan_out
//! ```
//!
//! It prints:
//!
//! ```text
//! split: success, ["the database","is","the queue itself"]
//! count: success, 2
//! count: success, 1
//! count: success, 3
//! total: success, 6
//! ```

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Chain, Client, Context, Failure, Lambda, NewTask, Worker};

const LIMIT: Duration = Duration::from_secs(30);

async fn split(text: String) -> Result<Vec<String>, Failure> {
    Ok(text.split(" / ").map(str::to_owned).collect())
}

/// Counts the words of one part of what the task before it returned.
async fn count(part: usize, context: Context) -> Result<usize, Failure> {
    let parents = context.parents().await?;
    let parts = parents.first().and_then(|parent| parent.output.as_ref());
    let text = parts.and_then(|parts| parts[part].as_str()).unwrap_or_default();
    Ok(text.split_whitespace().count())
}

/// Adds up what the tasks before it returned.
async fn total((): (), context: Context) -> Result<u64, Failure> {
    let parents = context.parents().await?;
    let counts = parents.iter().filter_map(|parent| parent.output.as_ref()?.as_u64());
    Ok(counts.sum())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    for name in ["split", "count", "total"] {
        client.define_lambda(name).await?;
    }

    let mut chain = Chain::new();
    let split_text = chain.task(NewTask::new("split", &"the database / is / the queue itself"));
    let mut counts = Vec::new();
    for part in 0..3 {
        let count_part = chain.task(NewTask::new("count", &part));
        chain.after(count_part, split_text);
        counts.push(count_part);
    }
    let sum = chain.task(NewTask::new("total", &()));
    for count_part in counts {
        chain.after(sum, count_part); // it runs when all three have succeeded
    }
    let scheduled = client.schedule_chain(&chain).await?;

    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named("split", split))
        .serve(Lambda::named("count", count))
        .serve(Lambda::named("total", total));
    let worker = tokio::spawn(worker.until(stop.clone().cancelled_owned()).run());
    for id in scheduled.ids {
        let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
        println!("{}: {}, {}", end.lambda, end.status, end.output.unwrap_or_default());
    }
    stop.cancel();
    worker.await??;
    Ok(())
}

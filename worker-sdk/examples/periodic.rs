//! A schedule: one task at each tick of a cron, however many servers run.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example periodic
//! ```
//!
//! It prints:
//!
//! ```text
//! the first deploy: Defined
//! the next deploy: Unchanged
//! tick 1: a short report
//! tick 2: a short report
//! the schedule is dropped
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, Overlap, Periodic, Worker};

const LAMBDA: &str = "tell_report";
const NAME: &str = "example_report";
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;

    // Six fields: the first is the second. '30 2 * * *' is each night at half past two.
    let schedule = Periodic::new(NAME, LAMBDA, "* * * * * *")
        .zone("Europe/Berlin")
        .payload(&"short")
        .overlap(Overlap::Skip); // no task while the last one has not ended
    println!("the first deploy: {:?}", client.define_periodic(&schedule).await?);
    println!("the next deploy: {:?}", client.define_periodic(&schedule).await?);

    let (done, mut reports) = unbounded_channel();
    let body = move |kind: String, _: Context| {
        let done = done.clone();
        async move { done.send(kind) }
    };
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, body))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    for tick in 1..=2 {
        let kind = timeout(LIMIT, reports.recv()).await?.ok_or("the worker has ended")?;
        println!("tick {tick}: a {kind} report");
    }
    let connection = client.connection().await?;
    connection.execute("select tuskline.drop_periodic($1)", &[&NAME]).await?;
    println!("the schedule is dropped");
    stop.cancel();
    worker.await??;
    Ok(())
}

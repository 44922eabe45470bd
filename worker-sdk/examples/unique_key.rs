//! A unique key: a call that is repeated schedules nothing twice.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example unique_key
//! ```
//!
//! It prints:
//!
//! ```text
//! repeated at once: the same task
//! charging 20 EUR
//! the task: success
//! repeated after its end: the same task
//! charged 1 time
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Worker};

const LAMBDA: &str = "charge";
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    // A key holds for ever. Other scopes: until the claim, until the end, for a period.
    let unique = "select tuskline.set_unique($1, 'forever')";
    client.connection().await?.execute(unique, &[&LAMBDA]).await?;

    // The order's number stands for what makes the call the same call.
    let order = fastrand::u64(..);
    let charge = NewTask::new(LAMBDA, &20).unique_key(format!("order {order}"));
    let same = |again, first| if again == first { "the same task" } else { "another task" };
    let id = client.schedule(&charge).await?;
    println!("repeated at once: {}", same(client.schedule(&charge).await?, id));

    let charged = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&charged);
    let body = move |euros: u32, _: Context| {
        let counter = Arc::clone(&counter);
        async move {
            counter.fetch_add(1, Ordering::Relaxed);
            println!("charging {euros} EUR");
        }
    };
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, body))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());
    let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
    println!("the task: {}", end.status);

    println!("repeated after its end: {}", same(client.schedule(&charge).await?, id));
    stop.cancel();
    worker.await??;
    println!("charged {} time", charged.load(Ordering::Relaxed));
    Ok(())
}

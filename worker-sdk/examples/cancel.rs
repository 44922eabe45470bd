//! Cancel a task that runs: its body notices, cleans up and stops.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example cancel
//! ```
//!
//! It prints:
//!
//! ```text
//! exporting
//! asked to stop: the half-written file is removed
//! cancel a task that runs: Requested
//! the task that ran: cancelled
//! cancel a task that waits: Cancelled
//! cancel a task that has ended: TooLate
//! ```

use std::error::Error;
use std::time::Duration;

use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Worker};

const LAMBDA: &str = "export_file";
const LIMIT: Duration = Duration::from_secs(30);

/// Writes a file for an hour, unless it is asked to stop.
async fn export(context: Context) -> Outcome {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_secs(3600)) => Outcome::Success(None),
        // Also at the attempt's timeout, and when the worker stops or has lost the database.
        () = context.cancelled() => {
            println!("asked to stop: the half-written file is removed");
            Outcome::retriable("asked to stop")
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;

    let (begin, mut begun) = unbounded_channel();
    let body = move |_file: String, context: Context| {
        println!("exporting");
        let _ = begin.send(());
        export(context)
    };
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, body))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let running = client.schedule(&NewTask::new(LAMBDA, &"orders.csv")).await?;
    timeout(LIMIT, begun.recv()).await?.ok_or("the worker has ended")?;
    let answer = client.cancel(running, Some("the customer left")).await?;
    let end = client.wait(running, LIMIT).await?.ok_or("the task is gone")?;
    println!("cancel a task that runs: {answer:?}");
    println!("the task that ran: {}", end.status);

    let tomorrow = Duration::from_secs(86_400);
    let later = NewTask::new(LAMBDA, &"users.csv").after(tomorrow);
    let waiting = client.schedule(&later).await?;
    let answer = client.cancel(waiting, None).await?;
    println!("cancel a task that waits: {answer:?}");
    let answer = client.cancel(waiting, None).await?;
    println!("cancel a task that has ended: {answer:?}");
    stop.cancel();
    worker.await??;
    Ok(())
}

//! OTLP: the spans of a request and of each attempt of its task reach a collector.
//!
//! Start a database and a server with `./x dev`, and a collector that listens on port 4318. Then, with the address
//! that `./x dev` prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --features otlp --example otlp
//! ```
//!
//! It prints, with and without a collector:
//!
//! ```text
//! attempt 1
//! attempt 2
//! success
//! ```

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tuskline_sdk::tracing_subscriber::{self, prelude::*};
use tuskline_sdk::{Client, Context, Failure, Lambda, NewTask, Otlp, TaskId, TraceLayer, Worker};

const LAMBDA: &str = "send_receipt";

async fn send_receipt(_: String, context: Context) -> Result<(), Failure> {
    println!("attempt {}", context.attempt());
    match context.attempt() {
        1 => Err(Failure::retry_after(Duration::from_millis(100), "the mail server is busy")),
        _ => Ok(()),
    }
}

/// The request of a user. The task takes the trace context of this span.
async fn buy(client: &Client, user: &str) -> Result<TaskId, tuskline_sdk::Error> {
    client.schedule(NewTask::new(LAMBDA, &user)).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let otlp = Otlp::from_env("shop")?;
    // Add the layers of your own here, as the one that writes the log.
    tracing_subscriber::registry().with(otlp.layer()).init();

    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .layer(TraceLayer)
        .serve(Lambda::named(LAMBDA, send_receipt))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let id = buy(&client, "ada").instrument(tracing::info_span!("buy")).await?;
    let end = client.wait(id, Duration::from_secs(60)).await?.ok_or("the task is gone")?;
    println!("{}", end.status);
    stop.cancel();
    worker.await??;

    // The spans that the collector does not have yet.
    otlp.shutdown();
    Ok(())
}

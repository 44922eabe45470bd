//! A batch: three pictures are resized, and one report runs when all of them have ended.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example batch
//! ```
//!
//! It prints:
//!
//! ```text
//! picture 1: success
//! picture 2: fatal_failure
//! picture 3: success
//! report: success, "2 of 3 are resized"
//! ```

use std::error::Error;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Status, Worker};

const LIMIT: Duration = Duration::from_secs(30);

async fn resize(picture: u32, _: Context) -> Outcome {
    match picture {
        2 => Outcome::fatal("the file is empty"),
        _ => Outcome::Success(None),
    }
}

/// It finds the ends of the batch, successes and failures alike.
async fn report(_: Value, context: Context) -> Result<Value, tuskline_sdk::Error> {
    let pictures = context.parents().await?;
    let resized = pictures.iter().filter(|one| one.status == Some(Status::Success)).count();
    Ok(format!("{resized} of {} are resized", pictures.len()).into())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    for name in ["resize_picture", "report_batch"] {
        client.define_lambda(name).await?;
    }

    // One commit: all pictures and the report, or nothing. A batch has at most 10,000 tasks.
    let pictures = (1..=3).map(|picture| NewTask::new("resize_picture", &picture));
    let then = NewTask::new("report_batch", &());
    let batch = client.schedule_many_then(pictures, then).await?;

    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named("resize_picture", resize))
        .serve(Lambda::named("report_batch", report));
    let worker = tokio::spawn(worker.until(stop.clone().cancelled_owned()).run());
    for (picture, id) in (1..).zip(batch.ids) {
        let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
        println!("picture {picture}: {}", end.status);
    }
    let end = client.wait(batch.then, LIMIT).await?.ok_or("the task is gone")?;
    println!("report: {}, {}", end.status, end.output.unwrap_or_default());
    stop.cancel();
    worker.await??;
    Ok(())
}

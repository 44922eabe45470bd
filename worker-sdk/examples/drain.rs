//! A graceful shutdown: the task that runs finishes, the task that waits stays in its queue.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example drain
//! ```
//!
//! It prints:
//!
//! ```text
//! encoding film 1
//! the worker is told to stop
//! film 1 is encoded
//! the worker has ended
//! film 1: success
//! film 2: enqueued
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Worker, WorkerConfig};

const LAMBDA: &str = "encode";
const LIMIT: Duration = Duration::from_secs(30);

/// Two signals between the service and the body, so that this example prints the same each time.
#[derive(Default)]
struct Signals {
    begun: Notify,
    finish: Notify,
}

async fn encode(film: u32, signals: Arc<Signals>) {
    println!("encoding film {film}");
    signals.begun.notify_one();
    signals.finish.notified().await; // the work
    println!("film {film} is encoded");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let films = [NewTask::new(LAMBDA, &1), NewTask::new(LAMBDA, &2)];
    let ids = client.schedule_many(&films).await?;

    let signals = Arc::new(Signals::default());
    let shared = Arc::clone(&signals);
    let body = move |film: u32, _: Context| encode(film, Arc::clone(&shared));
    let mut config = WorkerConfig::default();
    config.drain_grace = Duration::from_secs(60); // a body that takes longer is asked to stop
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url).config(config).serve(Lambda::named(LAMBDA, body).slots(1));
    // Without `until` the worker stops at SIGTERM and SIGINT.
    let worker = tokio::spawn(worker.until(stop.clone().cancelled_owned()).run());

    timeout(LIMIT, signals.begun.notified()).await?;
    println!("the worker is told to stop");
    stop.cancel();
    // The work of film 1 takes until the worker has announced that it claims nothing more.
    let connection = client.connection().await?;
    let draining = "select count(*) > 0 from tuskline.executors
                     where state = 'draining' and $1 = any (lambdas)";
    while !connection.query_one(draining, &[&LAMBDA]).await?.get::<_, bool>(0) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    signals.finish.notify_one();
    worker.await??;
    println!("the worker has ended");
    for (film, id) in (1..).zip(&ids) {
        let now = client.status(*id).await?.ok_or("the task is gone")?;
        println!("film {film}: {}", now.status);
    }
    client.cancel(ids[1], Some("the end of the example")).await?;
    Ok(())
}

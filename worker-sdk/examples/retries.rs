//! Retries: backoff, a delay of the body's choice, a snooze, and a failure that is final.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example retries
//! ```
//!
//! It prints:
//!
//! ```text
//! backoff: success, attempt 3, failures 2: 503 service unavailable
//! delay: success, attempt 2, failures 1: 429 too many requests
//! snooze: success, attempt 1, failures 0
//! down: dead, attempt 4, failures 4: 503 service unavailable
//! unknown: fatal_failure, attempt 1, failures 1: no such account
//! ```

use std::error::Error;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Failure, Lambda, NewTask, Worker};

const LAMBDA: &str = "call_bank";
const LIMIT: Duration = Duration::from_secs(30);

async fn call_bank(account: String, context: Context) -> Result<(), Failure> {
    match account.as_str() {
        // Any `Err` is retried, and so is a panic: after some 100 ms, 200 ms, 400 ms, ...
        "backoff" if context.attempt() < 3 => Err("503 service unavailable".into()),
        // After `p_max_attempts` failures the task is dead.
        "down" => Err("503 service unavailable".into()),
        // The bank has said when to come back.
        "delay" if context.attempt() < 2 => {
            let after = Duration::from_millis(500);
            Err(Failure::retry_after(after, "429 too many requests"))
        }
        // It is no failure that the bank is closed, so this uses up no attempt.
        "snooze" if context.checkpoint::<bool>().await?.is_none() => {
            context.save(&true).await?; // the next execution finds it
            Err(Failure::snooze(Duration::from_millis(500)))
        }
        // It can never succeed: there is no second attempt.
        "unknown" => Err(Failure::fatal("no such account")),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    let settings =
        "select tuskline.alter_lambda($1, p_max_attempts => 4, p_retry_base => '100 ms')";
    client.connection().await?.execute(settings, &[&LAMBDA]).await?;

    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, call_bank))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let accounts = ["backoff", "delay", "snooze", "down", "unknown"];
    let mut tasks = Vec::new();
    for account in accounts {
        tasks.push(NewTask::new(LAMBDA, &account));
    }
    for (account, id) in accounts.iter().zip(client.schedule_many(&tasks).await?) {
        let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
        let why = end.error.map(|error| format!(": {error}")).unwrap_or_default();
        let (attempt, failures) = (end.attempt, end.failures);
        println!("{account}: {}, attempt {attempt}, failures {failures}{why}", end.status);
    }
    stop.cancel();
    worker.await??;
    Ok(())
}

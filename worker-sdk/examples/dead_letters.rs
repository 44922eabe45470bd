//! Dead letters: payments fail for good, an operator looks at the cause, mends it, and lets them run again.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example dead_letters
//! ```
//!
//! It prints:
//!
//! ```text
//! 3 dead letters: no exchange rate for payment 3
//! the redrive would release 3
//! the redrive is done: 3 released, 0 died again
//! payment 1: success
//! payment 2: success
//! payment 3: success
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Action, Client, Context, Lambda, NewTask, Operation, Outcome, Worker};

const LAMBDA: &str = "pay_out";
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;

    let mended = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&mended);
    let body = move |payment: u32, _: Context| {
        let outcome = match shared.load(Ordering::Relaxed) {
            true => Outcome::Success(None),
            false => Outcome::fatal(format!("no exchange rate for payment {payment}")),
        };
        std::future::ready(outcome)
    };
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, body))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let payments = (1..=3).map(|one| NewTask::new(LAMBDA, &one));
    let ids = client.schedule_many(payments).await?;
    for id in &ids {
        client.wait(*id, LIMIT).await?;
    }

    // One cause has one fingerprint: its message without the digits.
    let look = "select tasks, message, fingerprint from tuskline.dead_groups where lambda = $1";
    let group = client.connection().await?.query_one(look, &[&LAMBDA]).await?;
    let (tasks, message, cause): (i64, &str, &str) = (group.get(0), group.get(1), group.get(2));
    println!("{tasks} dead letters: {message}");

    mended.store(true, Ordering::Relaxed);
    let redrive = Operation::new(Action::Redrive).lambda(LAMBDA).fingerprint(cause).canary();
    let preview = client.preview_operation(&redrive).await?;
    println!("the redrive would release {}", preview.iter().map(|one| one.tasks).sum::<i64>());
    let number = client.start_operation(&redrive, Some("the exchange rates are back")).await?;
    let end = loop {
        let now = client.operation_progress(number).await?.ok_or("the operation is gone")?;
        if !matches!(now.state.as_str(), "running" | "canary") {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    println!(
        "the redrive is {}: {} released, {} died again",
        end.state, end.changed, end.died_again
    );
    for (payment, id) in (1..).zip(ids) {
        let end = client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
        println!("payment {payment}: {}", end.status);
    }
    stop.cancel();
    worker.await??;
    Ok(())
}

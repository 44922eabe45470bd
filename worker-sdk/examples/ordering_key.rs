//! An ordering key: the events of one account run one at a time and in order, those of two accounts beside
//! each other.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example ordering_key
//! ```
//!
//! It prints:
//!
//! ```text
//! ada: open, deposit fails, deposit, close
//! bob: open, close
//! ```

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Worker};

const LAMBDA: &str = "apply_event";
const LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Serialize, Deserialize)]
struct Event {
    account: String,
    kind: String,
}

/// The events that were applied, with their accounts, in order.
type Journal = Arc<Mutex<Vec<(String, String)>>>;

async fn apply(Event { account, kind }: Event, context: Context, journal: Journal) -> Outcome {
    let write = |text: String| {
        journal.lock().unwrap_or_else(PoisonError::into_inner).push((account.clone(), text));
    };
    if kind == "deposit" && context.attempt() == 1 {
        write(format!("{kind} fails"));
        return Outcome::retriable("the ledger is locked"); // the retry keeps its position
    }
    write(kind);
    Outcome::Success(None)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(LAMBDA).await?;
    // When an event fails for good, the next ones of its account wait. Or: 'skip', 'dead'.
    let order = "select tuskline.set_order($1, 'block')";
    client.connection().await?.execute(order, &[&LAMBDA]).await?;

    let events =
        [("ada", "open"), ("bob", "open"), ("ada", "deposit"), ("bob", "close"), ("ada", "close")];
    let mut tasks = Vec::new();
    for (account, kind) in events {
        let event = Event { account: account.into(), kind: kind.into() };
        tasks.push(NewTask::new(LAMBDA, &event).ordering_key(account));
    }
    let ids = client.schedule_many(&tasks).await?;

    let journal = Journal::default();
    let shared = Arc::clone(&journal);
    let body = move |event: Event, context: Context| apply(event, context, Arc::clone(&shared));
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url)
        .serve(Lambda::named(LAMBDA, body))
        .until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());
    for id in ids {
        client.wait(id, LIMIT).await?.ok_or("the task is gone")?;
    }
    stop.cancel();
    worker.await??;

    let journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
    for account in ["ada", "bob"] {
        let of_account = journal.iter().filter(|(of, _)| of == account);
        let kinds: Vec<_> = of_account.map(|(_, kind)| kind.as_str()).collect();
        println!("{account}: {}", kinds.join(", "));
    }
    Ok(())
}

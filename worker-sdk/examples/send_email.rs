//! A service and its worker in one file: schedules a few mails, executes them, stops.
//!
//! Start a database with `./x dev`, then, with the url it prints:
//! `TUSKLINE_DATABASE_URL=... cargo run -p tuskline-sdk --example send_email`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Lambda, NewTask, Outcome, Priority, Status, Worker};

#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
    subject: String,
}

/// What an error means is decided here: a bad address will never be good, a busy mail server will.
async fn send_email(email: Email, context: Context, sent: Arc<AtomicU32>) -> Outcome {
    if !email.to.contains('@') {
        return Outcome::fatal(format!("{} is no address", email.to));
    }
    if email.to.starts_with("busy") && context.attempt() < 3 {
        return Outcome::retriable("450 mailbox busy");
    }
    println!("attempt {}: {} <- {}", context.attempt(), email.to, email.subject);
    sent.fetch_add(1, Ordering::Relaxed);
    Outcome::Success(Some(serde_json::json!({ "accepted": email.to })))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda("send_email").await?;

    let mail = |to: &str| Email { to: to.into(), subject: "Your order".into() };
    let tasks = [
        NewTask::new("send_email", &mail("ada@example.org"))?.priority(Priority::High),
        NewTask::new("send_email", &mail("busy@example.org"))?.collection("receipts")?,
        NewTask::new("send_email", &mail("later@example.org"))?.after(Duration::from_secs(2)),
        NewTask::new("send_email", &mail("nowhere"))?,
    ];
    let ids = client.schedule_many(&tasks).await?;

    let stop = CancellationToken::new();
    let sent = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&sent);
    let lambda = Lambda::new("send_email", move |email, context| {
        send_email(email, context, Arc::clone(&counter))
    });
    let worker = tokio::spawn(Worker::new(&url)?.lambda(lambda).until(stop.clone()).run());

    for id in ids {
        loop {
            let status = client.status(id).await?.ok_or("the task is gone")?;
            if status.status.is_terminal() {
                let said = status.error.unwrap_or_else(|| format!("{:?}", status.output));
                println!(
                    "task {id}: {} after {} attempt(s): {said}",
                    status.status, status.attempt
                );
                assert!(matches!(status.status, Status::Success | Status::FatalFailure));
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    println!("{} mails sent", sent.load(Ordering::Relaxed));
    stop.cancel();
    worker.await??;
    Ok(())
}

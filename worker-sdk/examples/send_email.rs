//! A service and its worker in one file: it schedules three mails, sends them, and stops.
//!
//! Start a database and a server with `./x dev`. Then, with the address that it prints:
//!
//! ```sh
//! TUSKLINE_DATABASE_URL=... cargo run -q -p tuskline-sdk --example send_email
//! ```
//!
//! It prints:
//!
//! ```text
//! attempt 1: Your order -> ada@example.org
//! attempt 2: Your order -> busy@example.org
//! ada@example.org: success, {"accepted":"ada@example.org"}
//! busy@example.org: success, {"accepted":"busy@example.org"}
//! nowhere: fatal_failure, nowhere is no address
//! ```

use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use tuskline_sdk::{Client, Context, Failure, NewTask, Payload, Priority, Worker};

const LIMIT: Duration = Duration::from_secs(30);

#[derive(Serialize, Deserialize)]
struct Email {
    to: String,
    subject: String,
}

impl Payload for Email {
    const LAMBDA: &'static str = "send_email";

    fn defaults(&self, task: NewTask) -> NewTask {
        task.priority(Priority::High)
    }
}

/// The answer of the mail server.
#[derive(Serialize)]
struct Accepted {
    accepted: String,
}

/// The body decides what an error means: a wrong address stays wrong, a busy mail server does not stay busy.
async fn send_email(email: Email, context: Context) -> Result<Accepted, Failure> {
    if !email.to.contains('@') {
        return Err(Failure::fatal(format!("{} is no address", email.to)));
    }
    if email.to.starts_with("busy") && context.attempt() == 1 {
        return Err("450 mailbox busy".into()); // any error is retried
    }
    println!("attempt {}: {} -> {}", context.attempt(), email.subject, email.to);
    Ok(Accepted { accepted: email.to })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    let client = Client::connect(&url).await?;
    client.define_lambda(Email::LAMBDA).await?;

    // The service: three mails, in one commit.
    let addresses = ["ada@example.org", "busy@example.org", "nowhere"];
    let mails = addresses.map(|to| Email { to: to.into(), subject: "Your order".into() });
    let ids = client.schedule_many(mails).await?;

    // The worker: usually a process of its own, which runs until SIGTERM.
    let stop = CancellationToken::new();
    let worker = Worker::builder(&url).lambda(send_email).until(stop.clone().cancelled_owned());
    let worker = tokio::spawn(worker.run());

    let mut ends = Vec::new();
    for id in ids {
        ends.push(client.wait(id, LIMIT).await?.ok_or("the task is gone")?);
    }
    for (to, end) in addresses.iter().zip(ends) {
        let result = end.output.map(|output| output.to_string()).or(end.error);
        println!("{to}: {}, {}", end.status, result.unwrap_or_default());
    }
    stop.cancel();
    worker.await??;
    Ok(())
}

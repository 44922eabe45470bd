use std::time::Duration;

use serde_json::json;
use tuskline_sdk::{Context, Lambda, NewTask, WorkerBuilder};
use tuskline_testing::{Database, Error};

const DAY: Duration = Duration::from_secs(86_400);

// Under test: a sign-up schedules a mail for a day later.
async fn sign_up(to: String, context: Context) -> Result<(), tuskline_sdk::Error> {
    let mail = NewTask::new("send_mail", &json!({ "to": to, "about": "first day" })).after(DAY);
    context.schedule(&mail).await?;
    Ok(())
}

async fn send_mail(mail: serde_json::Value, _: Context) -> Result<(), String> {
    match mail["to"].as_str() {
        Some(to) if to.contains('@') => Ok(()),
        _ => Err(format!("no address: {}", mail["to"])),
    }
}

fn worker(db: &Database) -> WorkerBuilder {
    db.worker()
        .serve(Lambda::named("sign_up", sign_up))
        .serve(Lambda::named("send_mail", send_mail))
}

#[tokio::test]
async fn a_sign_up_is_followed_by_a_mail_a_day_later() -> Result<(), Error> {
    let db = Database::new().await?;
    db.define(&["sign_up", "send_mail"]).await?;
    db.pin().await?;
    db.client().schedule(&NewTask::new("sign_up", &"ada@example.org")).await?;

    db.drain(worker(&db)).await?.assert_all_succeeded();
    let mails = db.scheduled("send_mail").await?;
    let mail = mails.with(json!({ "to": "ada@example.org" })).due_in(DAY).once();

    db.advance(DAY).await?;
    db.drain(worker(&db)).await?.assert_all_succeeded();
    db.task(mail.id).await?.assert_succeeded();
    Ok(())
}

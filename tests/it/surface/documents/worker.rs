use tuskline_sdk::{Context, Error, Lambda, Outcome, Worker};

#[derive(serde::Deserialize)]
struct Email {
    to: String,
}

async fn send_email(email: Email, context: Context) -> Outcome {
    println!("task {} attempt {}: mail to {}", context.task(), context.attempt(), email.to);
    Outcome::Success(None)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    Worker::new("postgresql://localhost/app")?
        .lambda(Lambda::new("send_email", send_email))
        .run()
        .await
}

use tuskline_sdk::{Context, Failure, Payload, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Email {
    to: String,
}

impl Payload for Email {
    const LAMBDA: &'static str = "send_email";
}

async fn send_email(email: Email, context: Context) -> Result<(), Failure> {
    if !email.to.contains('@') {
        return Err(Failure::fatal("not an address")); // never again
    }
    println!("task {} attempt {}: mail to {}", context.task(), context.attempt(), email.to);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("TUSKLINE_DATABASE_URL").map_err(|_| "set TUSKLINE_DATABASE_URL")?;
    Ok(Worker::builder(&url).lambda(send_email).run().await?)
}

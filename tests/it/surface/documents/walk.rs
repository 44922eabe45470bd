use std::net::SocketAddr;

use tuskline_sdk::{Error, Failure, Payload, Worker};

#[derive(serde::Serialize, serde::Deserialize)]
struct Charge {
    card: u64,
    country: String,
}

impl Payload for Charge {
    const LAMBDA: &'static str = "charge";
}

async fn charge(charge: Charge) -> Result<(), Failure> {
    let mended = std::env::var("RELEASE").is_ok_and(|release| release == "2");
    if charge.country == "us" && !mended {
        return Err(Failure::fatal("the gateway refuses the currency"));
    }
    println!("charged {} {}", charge.country, charge.card);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let database = std::env::var("DATABASE_URL").unwrap_or_default();
    let metrics = std::env::var("METRICS").ok().and_then(|address| address.parse().ok());
    let metrics = metrics.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 9464)));
    Worker::builder(database).metrics(metrics).lambda(charge).run().await
}

use std::time::Duration;
use tuskline_sdk::{Client, Definition, Definitions, Error, Limit, Periodic, Unique};

async fn deploy(client: &Client) -> Result<(), Error> {
    let lambdas = Definitions::of_version(env!("CARGO_PKG_VERSION"))
        .lambda(Definition::new("send_email").max_attempts(5).unique(Unique::forever()))
        .lambda(
            Definition::new("build_report")
                .attempt_timeout(Duration::from_secs(1800))
                .limit(Limit::concurrency(4))
                .schedule(Periodic::new("nightly", "build_report", "30 2 * * *")),
        );
    for lambda in client.define(&lambdas).await? {
        println!("{lambda}");
    }
    Ok(())
}

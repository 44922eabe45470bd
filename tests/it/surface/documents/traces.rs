use tuskline_sdk::tracing_subscriber::{self, fmt, prelude::*};
use tuskline_sdk::{Error, Otlp, TraceLayer, WorkerBuilder};

async fn run(worker: WorkerBuilder) -> Result<(), Error> {
    let otlp = Otlp::from_env("shop")?; // service.name, unless the environment names one
    tracing_subscriber::registry().with(fmt::layer()).with(otlp.layer()).init();
    worker.layer(TraceLayer).run().await?;
    otlp.shutdown(); // sends what is left
    Ok(())
}

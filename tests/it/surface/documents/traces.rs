use tuskline_sdk::tracing_subscriber::filter::{LevelFilter, Targets};
use tuskline_sdk::tracing_subscriber::{self, fmt, prelude::*};
use tuskline_sdk::{Error, Otlp, TraceLayer, WorkerBuilder};

async fn run(worker: WorkerBuilder) -> Result<(), Error> {
    let otlp = Otlp::from_env("shop")?; // service.name, unless the environment names one
    let quiet = Targets::new()
        .with_default(LevelFilter::INFO)
        .with_target("tokio_postgres", LevelFilter::WARN); // at debug it logs your statements' parameters
    let log = fmt::layer().with_filter(quiet);
    tracing_subscriber::registry().with(log).with(otlp.layer()).init();
    worker.layer(TraceLayer).run().await?;
    otlp.shutdown(); // sends what is left
    Ok(())
}

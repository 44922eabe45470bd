use tracing_subscriber::EnvFilter;

fn start_log() -> Result<(), Box<dyn std::error::Error>> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info")); // RUST_LOG
    let filter = filter.add_directive("tokio_postgres=warn".parse()?); // also with RUST_LOG=debug
    tracing_subscriber::fmt().with_env_filter(filter).init();
    Ok(())
}

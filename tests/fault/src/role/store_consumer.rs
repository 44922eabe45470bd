//! A server process: the loops of `tuskline serve`.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::Order;

pub(super) async fn serve(order: &Order) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("info").init();
    let token = CancellationToken::new();
    let stopping = token.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        terminate.recv().await;
        stopping.cancel();
    });
    tuskline::serve::run(
        order.url.parse::<tuskline_sdk::Address>()?,
        tuskline::serve::Options::default(),
        token,
    )
    .await?;
    Ok(())
}

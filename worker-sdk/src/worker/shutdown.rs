//! When to stop: SIGTERM or SIGINT, or the caller's own word.

use tokio_util::sync::CancellationToken;

/// Cancels the token at the first SIGTERM or SIGINT. A second one ends the process at once.
pub(crate) fn on_signal(token: CancellationToken) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        for round in 0.. {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if round > 0 {
                std::process::exit(130);
            }
            tracing::info!("draining: no new claims, running tasks may finish");
            token.cancel();
        }
    });
    Ok(())
}

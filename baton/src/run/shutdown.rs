//! Ctrl-C and SIGTERM.

use tokio::signal::unix::{SignalKind, signal as on};

/// Ready when the process is asked to end. A second Ctrl-C does not wait for the drain.
pub(super) async fn signal() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (on(SignalKind::interrupt()), on(SignalKind::terminate())) else {
        tracing::error!("signals cannot be caught; only a kill ends this process");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => tracing::info!("Ctrl-C: what is open may end; again to end at once"),
        _ = terminate.recv() => tracing::info!("SIGTERM: what is open may end"),
    }
    tokio::spawn(async move {
        interrupt.recv().await;
        tracing::warn!("ended at once");
        std::process::exit(130);
    });
}

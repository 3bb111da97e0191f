//! SIGHUP: the configuration is read again, from the same file, environment and flags as at the start.

use super::running::Running;
use crate::output::stderr_is_terminal;
use rustix::process::{Signal, getpid, kill_process};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Reads the configuration again at every SIGHUP, until dropped. One that comes because the terminal was closed ends
/// the process as SIGTERM does.
pub(super) async fn follow(running: Arc<Running>) -> Infallible {
    let Ok(mut hangups) = signal(SignalKind::hangup()) else {
        tracing::error!("SIGHUP cannot be caught: the configuration stays as it is");
        return pending().await;
    };
    let had_terminal = stderr_is_terminal();
    loop {
        // There are signals for as long as the process lives.
        hangups.recv().await;
        if had_terminal && !stderr_is_terminal() {
            tracing::info!("the terminal is closed: what is open may end");
            // A process can send itself a signal.
            let _ = kill_process(getpid(), Signal::TERM);
            return pending().await;
        }
        // The log says what came of it.
        let _ = running.reload_and_log();
    }
}

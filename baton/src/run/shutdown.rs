//! Ctrl-C and SIGTERM, and the end of the process that started this one.

use rustix::process::{Signal, getpid, kill_process};
use threads::Doing;
use tokio::signal::unix::{SignalKind, signal as on};
use tokio::sync::oneshot;

/// Ready when the process is asked to end. A second Ctrl-C does not wait for the drain.
pub(super) async fn signal() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (on(SignalKind::interrupt()), on(SignalKind::terminate())) else {
        tracing::error!("signals cannot be caught; only a kill ends this process");
        return std::future::pending().await;
    };
    let (tell, told) = oneshot::channel();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => tracing::info!("Ctrl-C: what is open may end; again to end at once"),
            _ = terminate.recv() => tracing::info!("SIGTERM: what is open may end"),
        }
        // Where nobody waits for it any more, the process is ending for another reason already, and takes too long
        // for somebody.
        if tell.send(()).is_ok() {
            interrupt.recv().await;
        }
        tracing::warn!("ended at once");
        std::process::exit(130);
    });
    // The task ends the process if it ends otherwise.
    let _ = told.await;
}

/// Does as Ctrl-C does when the input is closed. The process that started this one holds the other end of it. So this
/// process does not outlive that one, whatever ends it, and even while this process starts and looks at no signal yet.
pub(crate) fn end_with_input() {
    let thread = threads::spawn("baton-input".to_owned(), || {
        threads::does(Doing::WaitsForInput);
        // An error is an end.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        // A process can send itself a signal.
        let _ = kill_process(getpid(), Signal::INT);
    });
    if let Err(error) = thread {
        tracing::error!(%error, "the end of the input is not noticed: no thread could be started");
    }
}

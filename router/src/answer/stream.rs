//! The answer as a stream of server-sent events. One buffer serves all of them.

use super::delta::{Delta, Finish, Taken};
use super::run::{Run, Sink};
use super::writer::Writer;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Bytes that the buffer has at first: some events.
const BUFFER_BYTES: usize = 4096;

/// Returns the events of `run`'s answer, as `writer` writes them. `keepalive`: after so long without an event,
/// something is sent that keeps the connection alive.
pub(crate) fn events(
    run: Run,
    writer: Box<dyn Writer>,
    keepalive: Option<Duration>,
) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let events = Events { writer, out: BytesMut::with_capacity(BUFFER_BYTES) };
    stream::unfold(Some((run, events)), move |state| async move {
        let (mut run, mut events) = state?;
        let due = keepalive.map(|keepalive| Instant::now() + keepalive);
        while events.out.is_empty() {
            if run.over() {
                events.writer.end(run.taken(), &mut events.out);
                return Some((Ok(events.out.freeze()), None));
            }
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            let advanced = tokio::select! {
                biased;
                ready = run.ready() => match ready {
                    Ok(()) => run.advance(&mut events).await,
                    Err(error) => Err(error),
                },
                () = is_due => {
                    events.writer.keep_alive(&mut events.out);
                    Ok(())
                }
            };
            if let Err(error) = advanced {
                events.writer.error(&error, &mut events.out);
                return Some((Ok(events.out.freeze()), None));
            }
        }
        let bytes = events.out.split().freeze();
        Some((Ok(bytes), Some((run, events))))
    })
}

/// Events that are written and not sent yet.
struct Events {
    writer: Box<dyn Writer>,
    out: BytesMut,
}

impl Sink for Events {
    fn begin(&mut self, taken: Taken) {
        self.writer.begin(taken, &mut self.out);
    }

    fn delta(&mut self, sequence: usize, delta: &Delta) {
        self.writer.delta(sequence, delta, &mut self.out);
    }

    fn finish(&mut self, sequence: usize, finish: Finish) {
        self.writer.finish(sequence, finish, &mut self.out);
    }
}

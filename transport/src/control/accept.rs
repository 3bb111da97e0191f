//! Who connects, where the system has nothing left to take them in with: listeners stay readable then, and would be tried without end.
//! And who is closed, where that may take long.

use super::{FIRST_CONNECTION, Loop, TCP, UNIX, now};
use rustix::event::epoll::{self, EventData, EventFlags};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Where nobody can be taken in, nobody is for so long. Who connects waits meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Whether somebody is taken in now.
#[derive(Default)]
pub(super) struct Accepting {
    /// Until when nobody is.
    pub(super) paused_until: Option<Instant>,
    /// It was told that nobody can be, and nobody has been since.
    is_told: bool,
}

impl Accepting {
    /// Somebody was taken in.
    pub(super) fn accepted(&mut self) {
        self.is_told = false;
    }
}

impl Loop<'_> {
    /// Nobody can be taken in now.
    pub(super) fn pause_accepting(&mut self, error: &io::Error) {
        let worker = &self.station.config.name;
        tracing::debug!(worker, %error, "nobody was accepted");
        if !std::mem::replace(&mut self.accepting.is_told, true) {
            tracing::warn!(worker, %error, "peers that connect are kept waiting (ulimit -n: open files)");
        }
        self.listen_for(EventFlags::empty());
        self.accepting.paused_until = Some(now() + ACCEPT_PAUSE);
    }

    /// Takes in again who connects, once the pause is over.
    pub(super) fn resume_accepting(&mut self) {
        if self.accepting.paused_until.take_if(|until| *until <= now()).is_some() {
            self.listen_for(EventFlags::IN);
        }
    }

    /// Closes a connection to the Unix socket by a thread of its own, where descriptors may wait in it: whatever they are of is
    /// closed, too, and that may take as long as who sent them likes. As many threads wait for that as there are open files left, without
    /// which nobody is taken in.
    pub(super) fn throw_away(&self, connection: impl Send + 'static) {
        let close = move || {
            drop(connection);
            Ok(())
        };
        if let Err(error) = self.station.spawn("close", close) {
            tracing::warn!(worker = self.station.config.name, %error, "no thread to close a connection");
        }
    }

    fn listen_for(&self, flags: EventFlags) {
        let unix = self.listeners.unix.as_ref().map(|unix| (unix.as_fd(), UNIX));
        let tcp = self.listeners.tcp.iter().map(AsFd::as_fd).zip(TCP..FIRST_CONNECTION);
        for (listener, token) in unix.into_iter().chain(tcp) {
            let modified = epoll::modify(self.epoll, listener, EventData::new_u64(token), flags);
            debug_assert!(modified.is_ok(), "it has been listened to since the beginning");
        }
    }
}

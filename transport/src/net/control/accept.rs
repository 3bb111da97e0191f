//! Who connects, where strangers have every place, or where the system has nothing left to take anybody in with:
//! listeners stay readable then, and would be tried without end. And who is closed, where that may take long.

use super::channel::Channel;
use super::serve::Serving;
use super::{Connection, ControlLoop, Direction, FIRST_CONNECTION, Listeners, TCP_TOKENS, UNIX_TOKEN};
use crate::agent::config::AgentConfig;
use crate::agent::counts::Refusal;
use crate::clock::now;
use crate::failure::Failure;
use crate::net::socket::Socket;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use threads::Doing;

/// Who connects to one listener, before it is others' turn: it stays readable as long as more wait.
pub(super) const ACCEPTS_PER_TURN: usize = 16;
/// Where nobody can be taken in, nobody is for so long. Who connects waits meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections that wait to be closed, where that may take long. As many more as are open may join them; nobody
/// else is taken in meanwhile.
const CLOSING_MAX: usize = 1024;

/// Whether somebody is taken in now, and who is closed.
pub(super) struct Accepting {
    /// The listeners where nobody is taken in, each with the time until which that is so.
    paused: BTreeMap<u64, Instant>,
    /// It was told that nobody can be, and nobody has been since.
    is_told: bool,
    closer: Option<Closer>,
}

impl Accepting {
    /// Errors: no thread can be started, where closing wants one.
    pub(super) fn new(config: &AgentConfig, listeners: &Listeners) -> io::Result<Self> {
        let start = || Closer::start(format!("{}-close", config.name), &config.failure);
        let closer = listeners.unix_takes_descriptors.then(start).transpose()?;
        Ok(Self { paused: BTreeMap::new(), is_told: false, closer })
    }

    /// Returns when somebody may be taken in again where nobody is.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.paused.values().min().copied()
    }

    /// Closes a connection to the Unix socket without waiting for that: descriptors may wait in it, and whatever
    /// they are of is closed, too, which may take as long as who sent them likes.
    pub(super) fn throw_away(&self, connection: Channel) {
        if let Some(closer) = &self.closer {
            closer.close(connection);
        }
    }

    fn closes_too_many(&self) -> bool {
        self.closer.as_ref().is_some_and(|closer| closer.waiting.load(Ordering::Relaxed) >= CLOSING_MAX)
    }
}

/// A thread that closes what may take long to close.
struct Closer {
    queue: Sender<Box<dyn Send>>,
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Nobody waits for the thread's end, which comes after the last connection is closed.
    fn start(name: String, failure: &Failure) -> io::Result<Self> {
        let (queue, closed) = channel::<Box<dyn Send>>();
        let waiting = Arc::<AtomicUsize>::default();
        let left = waiting.clone();
        failure.spawn(name, move || {
            while let Ok(connection) = threads::during(Doing::WaitsForClosed, || closed.recv()) {
                drop(connection);
                left.fetch_sub(1, Ordering::Relaxed);
            }
            Ok::<_, io::Error>(())
        })?;
        Ok(Self { queue, waiting })
    }

    fn close(&self, connection: impl Send + 'static) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread takes them for as long as there is this end of the queue.
        let _ = self.queue.send(Box::new(connection));
    }
}

impl ControlLoop<'_> {
    /// Takes in who connects to a listener. The oldest stranger gives way where there is no place left.
    pub(super) fn accept(&mut self, listener: u64) {
        let is_unix = listener == UNIX_TOKEN;
        for _ in 0..ACCEPTS_PER_TURN {
            if is_unix && self.accepting.closes_too_many() {
                return self.pause(listener);
            }
            let Some(socket) = self.listener(listener) else { return };
            let socket = match rustix::net::accept_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                // It is gone already.
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => match self.strangers.oldest().filter(|_| is_want(error)) {
                    Some(oldest) => {
                        self.give_way(oldest);
                        continue;
                    }
                    None => return self.pause_accepting(error),
                },
            };
            self.accepting.is_told = false;
            if self.strangers.is_full()
                && let Some(oldest) = self.strangers.oldest()
            {
                self.give_way(oldest);
            }
            if let Err(error) = self.meet(socket, is_unix) {
                tracing::debug!(worker = self.agent.config.name, %error, "a connection cannot be watched");
            }
        }
    }

    /// Waits for what a stranger says.
    fn meet(&mut self, socket: OwnedFd, is_unix: bool) -> io::Result<()> {
        let tls = self.agent.config.tls.as_ref().filter(|_| !is_unix);
        let channel = Channel::new(Socket::accepted(socket, tls)?, is_unix).of_stranger();
        let is_wary = is_unix && self.listeners.unix_takes_descriptors;
        let channel = if is_wary { channel.wary() } else { channel };
        let number = self.next;
        epoll::add(self.strangers_epoll, channel.socket(), EventData::new_u64(number), EventFlags::IN)?;
        self.next += 1;
        self.connections.insert(number, Connection { channel, direction: Direction::Incoming(Serving::new()) });
        self.strangers.enter(number, now());
        Ok(())
    }

    /// A stranger is closed for the sake of another. It is told nothing: closed without a word, a peer tries
    /// again. Nor does the system keep anything of it, such as its port, which peers of this host want.
    fn give_way(&mut self, number: u64) {
        self.agent.counts.refused(Refusal::Crowd);
        if let Some(Connection { channel, .. }) = self.connections.get(&number) {
            // A socket that has failed already is closed anyway.
            let _ = sockopt::set_socket_linger(channel.socket(), Some(Duration::ZERO));
        }
        self.close(number);
    }

    /// Nobody can be taken in now.
    fn pause_accepting(&mut self, error: Errno) {
        let worker = &self.agent.config.name;
        tracing::debug!(worker, %error, "nobody was accepted");
        if !std::mem::replace(&mut self.accepting.is_told, true) {
            tracing::warn!(worker, %error, "peers that connect are kept waiting (ulimit -n: open files)");
        }
        (UNIX_TOKEN..FIRST_CONNECTION).for_each(|listener| self.pause(listener));
    }

    fn pause(&mut self, listener: u64) {
        self.listen_for(listener, EventFlags::empty());
        self.accepting.paused.insert(listener, now() + ACCEPT_PAUSE);
    }

    /// Takes in again who connects, once the pause is over.
    pub(super) fn resume_accepting(&mut self) {
        let over: Vec<_> = self.accepting.paused.extract_if(.., |_, until| *until <= now()).collect();
        over.into_iter().for_each(|(listener, _)| self.listen_for(listener, EventFlags::IN));
    }

    fn listener(&self, token: u64) -> Option<BorrowedFd<'_>> {
        match token {
            UNIX_TOKEN => self.listeners.unix.as_ref().map(AsFd::as_fd),
            network => self.listeners.tcp.get(network.checked_sub(TCP_TOKENS)? as usize).map(AsFd::as_fd),
        }
    }

    fn listen_for(&self, token: u64, flags: EventFlags) {
        if let Some(listener) = self.listener(token) {
            let modified = epoll::modify(self.epoll, listener, EventData::new_u64(token), flags);
            debug_assert!(modified.is_ok(), "it has been listened to since the beginning");
        }
    }
}

/// Returns whether what is wanting is something of which strangers may have all.
fn is_want(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Receiver;

    /// Takes as long to close as somebody else likes.
    struct Slow(Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn what_takes_long_to_close_keeps_nobody_but_its_like() {
        let closer = Closer::start("test".to_owned(), &Failure::new()).expect("a thread starts");
        let (let_go, waits) = channel();
        closer.close(Slow(waits));
        for _ in 1..CLOSING_MAX {
            closer.close(());
        }
        let accepting = Accepting { paused: BTreeMap::new(), is_told: false, closer: Some(closer) };
        assert!(accepting.closes_too_many());
        drop(let_go);
        while accepting.closes_too_many() {
            std::thread::yield_now();
        }
    }
}

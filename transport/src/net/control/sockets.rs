//! The sockets of an agent: listeners, and the options that every connection gets.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use threads::Doing;

/// A peer of which nothing is heard, though it was asked, for so long is gone: its transfers end and it is lost.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(5);
/// After so long without a byte, the kernel asks whether the peer is still there.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// How long to connect takes at most, by address.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Names that the process looks up at once for its agents; one more is an error. A thread each.
const LOOKUPS_MAX: usize = 16;
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// How long each answer of the other end may take until both know each other.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(3);

/// How a connection within the host avoids congestion, of which there is none: by what every kernel has and any
/// user may take. One that paces what it sends (`bbr`) halves the bandwidth there. Between hosts it is the
/// operator's choice, as for the rest of the system.
const LOOPBACK_CONGESTION: &str = "reno";

/// Whether descriptors that are sent to a socket get there: Linux from 6.16 on.
const SO_PASSRIGHTS: libc::c_int = 83;
/// Connections to a listener that wait to be accepted, or as many as the system allows (`net.core.somaxconn`, 4096
/// unless it was changed). They wait in their order: at 50,000 accepted a second, the last one for less than a
/// tenth of a second.
const BACKLOG: i32 = 4096;

/// Networks on which an agent listens.
pub(crate) const LISTENERS_MAX: usize = 8;

/// Where other processes reach the agent.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) unix: Option<UnixListener>,
    /// Whether who connects to it can bring descriptors, which nobody wants of them.
    pub(crate) unix_takes_descriptors: bool,
    /// One for each network, at most [`LISTENERS_MAX`].
    pub(crate) tcp: Vec<TcpListener>,
}

impl Listeners {
    /// Listens on the abstract socket `name`.
    pub(crate) fn listen_unix(&mut self, name: &str) -> io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Before anybody connects: their connections have it from this one.
        self.unix_takes_descriptors = !refuse_descriptors(&socket);
        rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        rustix::net::listen(&socket, BACKLOG)?;
        self.unix = Some(socket.into());
        Ok(())
    }

    /// Listens on `host:port`, and returns the address that it listens on. There is room for [`LISTENERS_MAX`].
    pub(crate) fn listen_tcp(&mut self, bind: &str) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(bind)?;
        listener.set_nonblocking(true)?;
        // The standard library's own backlog is 128; to listen again changes it.
        rustix::net::listen(&listener, BACKLOG)?;
        let address = listener.local_addr()?;
        self.tcp.push(listener);
        Ok(address)
    }
}

/// Has the system refuse descriptors that are sent to a Unix socket, and to those that are accepted from it.
/// `false`: it does not know how.
fn refuse_descriptors(socket: &OwnedFd) -> bool {
    let pass: libc::c_int = 0;
    // SAFETY: the descriptor is open and the value has the size that is said.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const pass).cast(),
            size_of_val(&pass) as libc::socklen_t,
        )
    };
    outcome == 0
}

/// Connects to the abstract socket `name`. What is read and written over it takes [`ANSWER_MAX`] at most.
pub(crate) fn connect_unix(name: &str) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connecting waits, too, where the other end is there but takes nobody.
    limit(&socket, Some(ANSWER_MAX))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Why the addresses of a name are not found.
#[derive(Debug, thiserror::Error)]
enum LookupError {
    #[error("the name has no address")]
    NoAddress,
    #[error("{LOOKUPS_MAX} names are being looked up, none of which is answered")]
    TooMany,
    #[error("looking up {0} timed out")]
    TimedOut(String),
}

impl From<LookupError> for io::Error {
    fn from(error: LookupError) -> Self {
        let kind = match error {
            LookupError::NoAddress => io::ErrorKind::NotFound,
            LookupError::TooMany => io::ErrorKind::ResourceBusy,
            LookupError::TimedOut(_) => io::ErrorKind::TimedOut,
        };
        Self::new(kind, error)
    }
}

/// Connects to `host:port`. What is read and written over it takes `patience` at most.
pub(crate) fn connect_tcp(address: &str, patience: Duration) -> io::Result<OwnedFd> {
    let mut last = io::Error::from(LookupError::NoAddress);
    for address in resolve(address, CONNECT_MAX.min(patience))? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX.min(patience)) {
            Ok(stream) => {
                prepare_tcp(&stream)?;
                limit(&stream, Some(patience))?;
                return Ok(stream.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Looks up the addresses of `host:port`, for `patience` at most: the system's resolver takes as long as it likes,
/// so it has a thread of its own, unless there is nothing to look up.
fn resolve(address: &str, patience: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let room = |busy| (busy < LOOKUPS_MAX).then_some(busy + 1);
    if LOOKUPS.fetch_update(Ordering::AcqRel, Ordering::Acquire, room).is_err() {
        return Err(LookupError::TooMany.into());
    }
    let (sender, found) = sync_channel(1);
    let name = address.to_owned();
    let lookup = threads::spawn("transport-lookup".to_owned(), move || {
        threads::does(Doing::LooksUpName);
        let addresses = name.to_socket_addrs().map(Vec::from_iter);
        LOOKUPS.fetch_sub(1, Ordering::AcqRel);
        // Nobody may wait for it any more.
        let _ = sender.send(addresses);
    });
    if let Err(error) = lookup {
        LOOKUPS.fetch_sub(1, Ordering::AcqRel);
        return Err(error);
    }
    found.recv_timeout(patience).map_err(|_| LookupError::TimedOut(address.to_owned()))?
}

/// No waiting for more to send, and an end after `SILENCE_MAX` of silence.
pub(crate) fn prepare_tcp(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_tcp_nodelay(socket, true)?;
    let peer = rustix::net::getpeername(socket)?.and_then(|peer| SocketAddr::try_from(peer).ok());
    if peer.is_some_and(|peer| peer.ip().is_loopback()) {
        // If it does not work, it is slower.
        let _ = sockopt::set_tcp_congestion(socket, LOOPBACK_CONGESTION);
    }
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(socket, (SILENCE_MAX - PROBE_AFTER).as_secs() as u32)?;
    sockopt::set_tcp_user_timeout(socket, SILENCE_MAX.as_millis() as u32)?;
    Ok(())
}

/// Reads and writes fail after `time`.
fn limit(socket: impl AsFd, time: Option<Duration>) -> io::Result<()> {
    let socket = socket.as_fd();
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, time)?;
    sockopt::set_socket_timeout(socket, sockopt::Timeout::Send, time)?;
    Ok(())
}

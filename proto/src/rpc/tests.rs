use super::*;
use crate::queue::{Sender, queue};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Nothing that works takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that wait at either end.
const QUEUE_BYTES: usize = 64 << 10;

/// A service whose sessions say back what they hear. Whoever begins with anything but `stranger` has proven itself.
struct Echo {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        Self::within(PortLimits::default()).await
    }

    async fn within(limits: PortLimits) -> Self {
        let session = move |stranger: Stranger, mut incoming: Incoming| async move {
            let first = incoming.message().await?.unwrap_or_default();
            if first == b"no" {
                return Err(Status::failed_precondition("not you"));
            }
            if first != b"stranger" && !stranger.has_proven_itself() {
                return Err(Status::resource_exhausted("no place"));
            }
            let (sender, outgoing) = queue(QUEUE_BYTES);
            tokio::spawn(async move {
                let mut message = Some(first);
                while let Some(bytes) = message {
                    let reply = if bytes == b"enough" { Err(Status::aborted("as you say")) } else { Ok(bytes) };
                    if sender.send(reply).await.is_err() {
                        return;
                    }
                    message = incoming.message().await.unwrap_or_default();
                }
            });
            Ok(outgoing)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = stopped.await;
        };
        Self { address, stop, served: tokio::spawn(serve(listener, limits, session, shutdown)) }
    }

    /// A session that has said `first`.
    async fn open(&self, first: &[u8]) -> Result<(Sender<Vec<u8>>, Incoming), Status> {
        let (sender, outgoing) = queue(QUEUE_BYTES);
        sender.try_send(first.to_vec(), 0).expect("it is empty");
        let (incoming, gate) = open(&self.address.to_string(), None, outgoing).await?;
        gate.open();
        Ok((sender, incoming))
    }

    /// A connection that has said `bytes`.
    async fn raw(&self, bytes: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.expect("it listens");
        stream.write_all(bytes).await.expect("it is taken");
        stream
    }
}

/// Waits until the other end has closed the connection.
async fn closed(mut stream: TcpStream) {
    let closed = async { while stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {} };
    timeout(PATIENCE, closed).await.expect("such a connection is closed");
}

async fn next(incoming: &mut Incoming) -> Result<Option<Vec<u8>>, Status> {
    timeout(PATIENCE, incoming.message()).await.expect("something comes")
}

#[tokio::test]
async fn bytes_come_as_they_went_and_in_order() {
    let echo = Echo::start().await;
    let (sender, mut incoming) = echo.open(b"first").await.expect("it is let in");
    assert_eq!(next(&mut incoming).await.expect("no error").as_deref(), Some(&b"first"[..]));
    let messages: Vec<Vec<u8>> = (0..200_usize).map(|at| vec![at as u8; at * at * 5]).collect();
    let said = async {
        for message in &messages {
            sender.send(message.clone()).await.expect("it is heard");
        }
    };
    let heard = async {
        for message in &messages {
            assert_eq!(next(&mut incoming).await.expect("no error").as_ref(), Some(message));
        }
    };
    tokio::join!(said, heard);
    drop(sender);
    assert_eq!(next(&mut incoming).await.expect("an end is no error"), None);
}

#[tokio::test]
async fn a_refusal_says_why_at_once_or_later() {
    let echo = Echo::start().await;
    let status = echo.open(b"no").await.expect_err("it is refused");
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "not you"));
    let (sender, mut incoming) = echo.open(b"yes").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    sender.send(b"enough".to_vec()).await.expect("it is heard");
    let status = next(&mut incoming).await.expect_err("it is over");
    assert_eq!((status.code(), status.message()), (Code::Aborted, "as you say"));
    let nobody = open("127.0.0.1:1", None, queue(QUEUE_BYTES).1).await.expect_err("nobody listens");
    assert_eq!(nobody.code(), Code::Unavailable);
}

#[tokio::test]
async fn what_is_no_session_disturbs_nobody() {
    let echo = Echo::start().await;
    let (sender, mut incoming) = echo.open(b"a").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[255; 4096]] {
        closed(echo.raw(garbage).await).await;
    }
    // HTTP/2, and then frames that are none.
    closed(echo.raw(&[PREFACE, &[255; 4096]].concat()).await).await;
    sender.send(b"b".to_vec()).await.expect("it is heard");
    assert_eq!(next(&mut incoming).await.expect("no error").as_deref(), Some(&b"b"[..]));
}

/// How a client of HTTP/2 begins: the preface, and settings that change nothing.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0 a ping ";

/// The head of a request, which its body is to follow: POST, http, and the path as it is.
fn request(path: &str) -> Vec<u8> {
    let length = path.len() as u8;
    [b"\0\0", &[length + 4][..], b"\x01\x04\0\0\0\x01\x83\x86\x04", &[length], path.as_bytes()].concat()
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_proves_nothing_is_dropped_whatever_it_says() {
    let echo = Echo::start().await;
    let pings = PING.repeat(3000);
    for said in [&b""[..], PREFACE, &[PREFACE, &request(PATH)].concat(), &[PREFACE, &pings].concat()] {
        closed(echo.raw(said).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_connection_of_a_refused_or_ended_session_is_closed() {
    let echo = Echo::start().await;
    closed(echo.raw(&[PREFACE, &request("/elsewhere")].concat()).await).await;
    // Its stream is over; a client that leaves the connection open does not keep it.
    let no = b"\0\0\x07\0\0\0\0\0\x01\0\0\0\0\x02no";
    closed(echo.raw(&[PREFACE, &request(PATH), no].concat()).await).await;
    let enough = b"\0\0\x11\0\0\0\0\0\x01\0\0\0\0\x01a\0\0\0\0\x06enough";
    closed(echo.raw(&[PREFACE, &request(PATH), enough].concat()).await).await;
}

#[tokio::test]
async fn little_is_read_from_a_stranger() {
    let echo = Echo::start().await;
    // Of many messages only the first are heard. The session is answered, and yet its connection is closed.
    let (sender, mut incoming) = echo.open(b"stranger").await.expect("it is answered");
    let talks = async { while sender.send(vec![7; 100]).await.is_ok() {} };
    let hears = async {
        let mut heard = 0;
        while let Ok(Some(message)) = incoming.message().await {
            heard += message.len();
        }
        heard
    };
    let ((), heard) = timeout(PATIENCE, async { tokio::join!(talks, hears) }).await.expect("it is closed");
    assert!(heard <= gate::UNPROVEN_BYTES_MAX as usize, "{heard} bytes");
}

#[tokio::test]
async fn a_stranger_that_announces_a_long_message_is_refused_before_it_comes() {
    let (sender, mut heard) = mpsc::channel(1);
    let session = move |_: Stranger, mut incoming: Incoming| {
        let sender = sender.clone();
        async move {
            sender.send(incoming.message().await).await.expect("the test waits");
            Err::<Outgoing, _>(Status::aborted("it is heard"))
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let mut stream = TcpStream::connect(listener.local_addr().expect("it is bound")).await.expect("it listens");
    tokio::spawn(serve(listener, PortLimits::default(), session, std::future::pending()));
    // The head of a message of 64 MiB.
    let head = b"\0\0\x05\0\0\0\0\0\x01\0\x04\0\0\0";
    stream.write_all(&[PREFACE, &request(PATH), head].concat()).await.expect("it is taken");
    let status = timeout(PATIENCE, heard.recv()).await.expect("it is heard").expect("of the session");
    assert!(status.expect_err("it is too long").message().contains("too long"));
}

/// Strangers fill every place of a port, from the address of a client that then proves itself; and a session from
/// before goes on.
async fn check_strangers_make_room(limits: PortLimits, strangers: usize) {
    let echo = Echo::within(limits).await;
    let (sender, mut incoming) = echo.open(b"before").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    let kinds = [Vec::new(), PREFACE.to_vec(), [PREFACE, &request("/elsewhere")].concat(), [PREFACE, PING].concat()];
    let mut open = Vec::new();
    for said in kinds.iter().cycle().take(strangers) {
        open.push(echo.raw(said).await);
    }
    let (another, mut hears) = echo.open(b"after").await.expect("there is a place");
    assert_eq!(next(&mut hears).await.expect("no error").as_deref(), Some(&b"after"[..]));
    another.send(vec![7; 1 << 20]).await.expect("it is heard");
    assert_eq!(next(&mut hears).await.expect("no error").expect("a message").len(), 1 << 20);
    sender.send(b"undisturbed".to_vec()).await.expect("it is heard");
    assert_eq!(next(&mut incoming).await.expect("no error").as_deref(), Some(&b"undisturbed"[..]));
    // The first of them made room.
    closed(open.swap_remove(0)).await;
}

#[tokio::test]
async fn strangers_make_room_for_who_proves_itself() {
    check_strangers_make_room(PortLimits { unproven_max: 4, proven_max: 2 }, 32).await;
}

#[tokio::test]
async fn sessions_are_bounded_and_strangers_take_none_of_their_places() {
    let echo = Echo::within(PortLimits { unproven_max: 4, proven_max: 1 }).await;
    let (sender, mut incoming) = echo.open(b"first").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    assert_eq!(echo.open(b"second").await.expect_err("there is one").code(), Code::ResourceExhausted);
    drop((sender, incoming));
    // Its place is free as soon as its connection is closed.
    let again = async { while echo.open(b"again").await.is_err() {} };
    timeout(PATIENCE, again).await.expect("there is a place");
}

#[tokio::test]
async fn who_does_not_read_fills_a_bounded_queue_and_gets_all_once_it_does() {
    let echo = Echo::start().await;
    let (sender, mut incoming) = echo.open(b"first").await.expect("it is let in");
    // More than queues and windows of both ends hold.
    let mut sent = 1;
    while timeout(Duration::from_millis(200), sender.send(vec![7; 64 << 10])).await.is_ok_and(|sent| sent.is_ok()) {
        sent += 1;
        assert!(sent < 10_000, "somebody keeps all of it");
    }
    for _ in 0..sent {
        assert!(next(&mut incoming).await.expect("no error").is_some());
    }
}

#[tokio::test]
async fn a_shutdown_brings_the_last_messages_out() {
    let echo = Echo::start().await;
    let (sender, mut incoming) = echo.open(b"first").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    echo.stop.send(()).expect("it serves");
    sender.send(b"last".to_vec()).await.expect("it is heard");
    assert_eq!(next(&mut incoming).await.expect("no error").as_deref(), Some(&b"last"[..]));
    drop(sender);
    assert_eq!(next(&mut incoming).await.expect("an end is no error"), None);
    timeout(PATIENCE, echo.served).await.expect("it ends").expect("no panic");
}

#[tokio::test]
async fn many_idle_sessions_open_and_close() {
    // Four hundred connections are eight hundred sockets here: about what a process may have unasked.
    const SESSIONS: usize = 400;
    let echo = Echo::start().await;
    let mut open = Vec::new();
    for _ in 0..SESSIONS {
        let (sender, mut incoming) = echo.open(b"a").await.expect("it is let in");
        next(&mut incoming).await.expect("no error");
        open.push((sender, incoming));
    }
    for (sender, incoming) in &mut open {
        sender.send(b"b".to_vec()).await.expect("it is heard");
        assert!(next(incoming).await.expect("no error").is_some());
    }
    drop(open);
    echo.stop.send(()).expect("it serves");
    timeout(PATIENCE, echo.served).await.expect("it ends").expect("no panic");
}

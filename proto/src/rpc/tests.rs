use super::*;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Nothing that works takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service whose sessions say back what they hear.
struct Echo {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl Echo {
    async fn start(queue: usize) -> Self {
        let session = move |mut incoming: Incoming| async move {
            let first = incoming.message().await?.unwrap_or_default();
            if first == b"no" {
                return Err(Status::failed_precondition("not you"));
            }
            let (sender, outgoing) = mpsc::channel(queue);
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
        Self { address, stop, served: tokio::spawn(serve(listener, session, shutdown)) }
    }

    /// A session that has said `first`.
    async fn open(&self, first: &[u8]) -> Result<(mpsc::Sender<Vec<u8>>, Incoming), Status> {
        let (sender, outgoing) = mpsc::channel(64);
        sender.try_send(first.to_vec()).expect("it is empty");
        Ok((sender, open(&self.address.to_string(), outgoing).await?))
    }
}

async fn next(incoming: &mut Incoming) -> Result<Option<Vec<u8>>, Status> {
    timeout(PATIENCE, incoming.message()).await.expect("something comes")
}

#[tokio::test]
async fn bytes_come_as_they_went_and_in_order() {
    let echo = Echo::start(64).await;
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
    let echo = Echo::start(64).await;
    let status = echo.open(b"no").await.expect_err("it is refused");
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "not you"));
    let (sender, mut incoming) = echo.open(b"yes").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    sender.send(b"enough".to_vec()).await.expect("it is heard");
    let status = next(&mut incoming).await.expect_err("it is over");
    assert_eq!((status.code(), status.message()), (Code::Aborted, "as you say"));
    let nobody = open("127.0.0.1:1", mpsc::channel(1).1).await.expect_err("nobody listens");
    assert_eq!(nobody.code(), Code::Unavailable);
}

#[tokio::test]
async fn what_is_no_session_disturbs_nobody() {
    let echo = Echo::start(64).await;
    let (sender, mut incoming) = echo.open(b"a").await.expect("it is let in");
    next(&mut incoming).await.expect("no error");
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], &[255; 4096]] {
        let mut stream = TcpStream::connect(echo.address).await.expect("it listens");
        stream.write_all(garbage).await.expect("it is taken");
        let closed = async { while stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {} };
        timeout(PATIENCE, closed).await.expect("such a connection is closed");
    }
    // HTTP/2, and then frames that are none.
    let mut stream = TcpStream::connect(echo.address).await.expect("it listens");
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("it is taken");
    stream.write_all(&[255; 4096]).await.expect("it is taken");
    let closed = async { while stream.read(&mut [0; 4096]).await.is_ok_and(|bytes| bytes > 0) {} };
    timeout(PATIENCE, closed).await.expect("such a connection is closed");
    sender.send(b"b".to_vec()).await.expect("it is heard");
    assert_eq!(next(&mut incoming).await.expect("no error").as_deref(), Some(&b"b"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_says_nothing_is_dropped() -> io::Result<()> {
    let echo = Echo::start(64).await;
    let mut silent = TcpStream::connect(echo.address).await?;
    let mut half = TcpStream::connect(echo.address).await?;
    half.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await?;
    for stream in [&mut silent, &mut half] {
        while stream.read(&mut [0; 64]).await.is_ok_and(|bytes| bytes > 0) {}
    }
    Ok(())
}

#[tokio::test]
async fn who_does_not_read_fills_a_bounded_queue_and_gets_all_once_it_does() {
    let echo = Echo::start(4).await;
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
    let echo = Echo::start(64).await;
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
    let echo = Echo::start(4).await;
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

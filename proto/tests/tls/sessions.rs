//! A service whose sessions say back what they hear, behind a port with TLS.

use crate::certificates::{Authority, Pair, put};
use proto::queue::{Sender, queue};
use proto::rpc::{Incoming, PortLimits, Status, Stranger, open, serve};
use proto::tls::{Port, PortUse, Tls, TlsFiles};
use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Nothing that works takes nearly as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const QUEUE_BYTES: usize = 64 << 10;
/// Connections at once that have proven nothing.
const UNPROVEN_MAX: usize = 8;

/// The files of a process.
pub(crate) fn files(own: Option<&Pair>, clients: Option<&Authority>, workers: Option<&Authority>) -> TlsFiles {
    TlsFiles {
        identity: own.map(|pair| (pair.certificate.clone(), pair.key.clone())),
        client_authorities: clients.map(Authority::file),
        authorities: workers.map(Authority::file),
        server_name: None,
    }
}

pub(crate) fn load(files: TlsFiles) -> Tls {
    Tls::load(files).unwrap_or_else(|error| panic!("{error}"))
}

async fn echo(stranger: Stranger, mut incoming: Incoming) -> Result<proto::rpc::Outgoing, Status> {
    let (sender, outgoing) = queue(QUEUE_BYTES);
    assert!(stranger.has_proven_itself());
    tokio::spawn(async move {
        while let Ok(Some(message)) = incoming.message().await {
            if sender.send(Ok(message)).await.is_err() {
                return;
            }
        }
    });
    Ok(outgoing)
}

pub(crate) async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// A worker with these files, at this address.
pub(crate) async fn worker(tls: &Tls) -> SocketAddr {
    let (listener, address) = listener().await;
    let limits = PortLimits { unproven_max: UNPROVEN_MAX, proven_max: 64 };
    tokio::spawn(serve(tls.port(listener, PortUse::Sessions), limits, echo, std::future::pending()));
    address
}

/// A session of a router with these files.
pub(crate) async fn dial(tls: &Tls, address: SocketAddr) -> Result<Session, Status> {
    let (sender, outgoing) = queue(QUEUE_BYTES);
    let opened = timeout(PATIENCE, open(&address.to_string(), tls.connector().as_ref(), outgoing)).await;
    let (incoming, gate) = opened.expect("it is answered or refused")?;
    gate.open();
    Ok(Session { sender, incoming })
}

pub(crate) struct Session {
    sender: Sender<Vec<u8>>,
    incoming: Incoming,
}

impl Session {
    /// Says something, and hears it again.
    pub(crate) async fn check(&mut self, message: &[u8]) {
        self.sender.send(message.to_vec()).await.expect("it is heard");
        let heard = timeout(PATIENCE, self.incoming.message()).await.expect("something comes");
        assert_eq!(heard.expect("the session goes on").as_deref(), Some(message));
    }
}

#[tokio::test]
async fn both_ends_show_a_certificate_and_say_everything() {
    let authority = Authority::new("the cluster's");
    let at_worker = load(files(Some(&authority.issue("worker", &["127.0.0.1"])), Some(&authority), None));
    let at_router = load(files(Some(&authority.issue("router", &["router"])), None, Some(&authority)));
    let mut session = dial(&at_router, worker(&at_worker).await).await.expect("both are known");
    for message in [&b"a"[..], &[7; 200_000], b"b"] {
        session.check(message).await;
    }
}

#[tokio::test]
async fn a_name_may_be_expected_that_is_not_the_host() {
    let authority = Authority::new("the cluster's");
    let at_worker = load(files(Some(&authority.issue("worker", &["baton-worker"])), None, None));
    let named = |name: &str| TlsFiles { server_name: Some(name.to_owned()), ..files(None, None, Some(&authority)) };
    let address = worker(&at_worker).await;
    dial(&load(named("baton-worker")), address).await.expect("that is its name").check(b"a").await;
    let status = dial(&load(named("other")), address).await.err().expect("it is not its name");
    assert!(status.message().contains("is for DnsName(\"baton-worker\"), not for other"), "{status}");
}

#[tokio::test]
async fn those_that_say_nothing_keep_nobody_out() {
    let authority = Authority::new("the cluster's");
    let at_worker = load(files(Some(&authority.issue("worker", &["127.0.0.1"])), None, None));
    let (at_router, address) = (load(files(None, None, Some(&authority))), worker(&at_worker).await);
    let mut silent = Vec::new();
    for _ in 0..3 * UNPROVEN_MAX {
        silent.push(TcpStream::connect(address).await.expect("it listens"));
        dial(&at_router, address).await.expect("others are no hindrance").check(b"a").await;
    }
    // Those that came first had to make room, and none stays for long.
    for mut stream in silent {
        let closed = timeout(PATIENCE, stream.read(&mut [0])).await.expect("it is closed");
        assert!(!closed.is_ok_and(|bytes| bytes > 0));
    }
}

#[tokio::test]
async fn files_are_read_again_and_sessions_go_on() {
    let (first, second) = (Authority::new("one"), Authority::new("another"));
    let pair = first.issue("worker", &["127.0.0.1"]);
    let tls = load(files(Some(&pair), None, None));
    let expiry = tls.expiry_s();
    let told = Arc::new((std::sync::Mutex::new(Vec::new()), Notify::new()));
    tokio::spawn({
        let (tls, told) = (tls.clone(), told.clone());
        async move {
            let tell = |result: Result<(), proto::tls::TlsError>| {
                told.0.lock().expect("nobody panics with it").push(result.map_err(|error| error.to_string()));
                told.1.notify_one();
            };
            match tls.follow(tell).await {}
        }
    });
    let last = async || {
        timeout(PATIENCE, told.1.notified()).await.expect("it is told");
        told.0.lock().expect("nobody panics with it").last().cloned().expect("something was told")
    };
    let address = worker(&tls).await;
    let [knows_first, knows_second] = [&first, &second].map(|authority| load(files(None, None, Some(authority))));
    let mut session = dial(&knows_first, address).await.expect("it is known");

    // A certificate without its key, as when only one file was replaced yet.
    let other = second.issue("other", &["127.0.0.1"]);
    put(&pair.certificate, &fs::read_to_string(&other.certificate).expect("it is there"));
    let error = last().await.expect_err("they do not belong together");
    assert!(error.contains("worker.key does not belong to the certificate in"), "{error}");
    dial(&knows_first, address).await.expect("what was there before goes on").check(b"a").await;
    assert_eq!(tls.expiry_s(), expiry);

    put(&pair.key, &fs::read_to_string(&other.key).expect("it is there"));
    assert_eq!(last().await, Ok(()));
    dial(&knows_second, address).await.expect("the new one is shown").check(b"b").await;
    let error = dial(&knows_first, address).await.err().expect("the old one is not").to_string();
    assert!(error.contains("unknown issuer"), "{error}");
    session.check(b"the session goes on").await;

    // A file that is gone changes nothing either.
    fs::remove_file(&pair.key).expect("it is there");
    let error = last().await.expect_err("there is no key");
    assert!(error.contains("worker.key"), "{error}");
    dial(&knows_second, address).await.expect("what was there before goes on").check(b"c").await;
}

#[tokio::test]
async fn a_port_without_a_certificate_speaks_no_tls() {
    let (tls, (listener, address)) = (load(TlsFiles::default()), listener().await);
    let port: Port = tls.port(listener, PortUse::Api);
    assert_eq!((port.acceptor.is_none(), port.url().expect("it is bound")), (true, format!("http://{address}")));
    assert!(tls.connector().is_none());
    assert_eq!(tls.expiry_s(), None);
}

//! A router that the test plays, in front of a worker whose inbox the test reads.

use super::*;
use crate::inbox::{Inbound, Inbox, inbox};
use crate::outbox::SessionSend;
use domain::session::{ModelShape, PeerAddress, Role};
use domain::{Incarnation, WorkerId};
use proto::session::{decode_from_worker, encode_to_worker};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
const SERVED: Served =
    Served { weights: [1; 32], shape: SHAPE, layout: 7, block_tokens: 16, token_bytes: 64, context_tokens: 512 };

struct Door {
    inbox: Inbox,
    address: SocketAddr,
}

/// A session that a worker let in.
struct Let {
    sender: mpsc::Sender<Vec<u8>>,
    incoming: Incoming,
    send: SessionSend,
    ended: Arc<AtomicBool>,
}

impl Door {
    async fn open() -> Self {
        let inbox = inbox();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (id, incarnation, name) = (WorkerId(3), Incarnation(9), "decode".to_owned());
        let peer = PeerInfo { id, incarnation, name, role: Role::Decode, address: PeerAddress::default() };
        let identity = Identity { peer, served: SERVED, secret: Secret::new("hush") };
        tokio::spawn(serve(listener, inbox.input(), identity, std::future::pending()));
        Self { inbox, address }
    }

    /// What happens next to the worker.
    async fn event(&self) -> Inbound {
        loop {
            match self.inbox.receiver.try_recv() {
                Ok(event) => return event,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    async fn say(&self, first: Vec<u8>) -> Result<(mpsc::Sender<Vec<u8>>, Incoming), Status> {
        let (sender, outgoing) = mpsc::channel(64);
        sender.try_send(first).expect("it is empty");
        Ok((sender, proto::rpc::open(&self.address.to_string(), outgoing).await?))
    }

    /// The worker's hello to a router that says this.
    async fn hello(&self, router: &RouterHello) -> Result<(mpsc::Sender<Vec<u8>>, Incoming, Hello), Status> {
        let (sender, mut incoming) = self.say(encode_to_worker(&ToWorker::Hello(router.clone()))).await?;
        let bytes = incoming.message().await?.expect("a message");
        match decode_from_worker(&bytes).expect("it can be read") {
            FromWorker::Hello(hello) => Ok((sender, incoming, *hello)),
            other => panic!("no hello: {other:?}"),
        }
    }

    async fn let_in(&self) -> Let {
        let router = router();
        let (sender, incoming, hello) = self.hello(&router).await.expect("it is answered");
        let proof = hello.router_proof(&Secret::new("hush"), &router);
        sender.send(encode_to_worker(&ToWorker::Proof(proof))).await.expect("it is heard");
        match self.event().await {
            Inbound::Opened { send, ended, .. } => Let { sender, incoming, send, ended },
            _ => panic!("no session"),
        }
    }
}

fn router() -> RouterHello {
    RouterHello { protocol: PROTOCOL, router: 5, nonce: [4; 32] }
}

#[tokio::test]
async fn a_router_that_knows_the_secret_is_let_in() {
    let door = Door::open().await;
    let router = router();
    let (_, _, hello) = door.hello(&router).await.expect("it is answered");
    assert_eq!((hello.peer.id, hello.served, hello.protocol), (WorkerId(3), SERVED, PROTOCOL));
    assert!(hello.is_proven(&Secret::new("hush"), &router) && !hello.is_proven(&Secret::new("x"), &router));

    let Let { sender, mut incoming, send, ended } = door.let_in().await;
    send(b"to the router".to_vec()).expect("there is room");
    assert_eq!(incoming.message().await.expect("no error").as_deref(), Some(&b"to the router"[..]));
    sender.send(b"to the worker".to_vec()).await.expect("it is heard");
    let Inbound::Session { bytes, .. } = door.event().await else { panic!("another event") };
    assert_eq!(bytes, b"to the worker");
    assert!(!ended.load(Ordering::Acquire));
    drop((sender, incoming));
    while !ended.load(Ordering::Acquire) {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_worker_ends_a_session_by_dropping_it() {
    let door = Door::open().await;
    let Let { sender: _sender, mut incoming, send, ended } = door.let_in().await;
    send(b"the last".to_vec()).expect("there is room");
    drop(send);
    assert_eq!(incoming.message().await.expect("no error").as_deref(), Some(&b"the last"[..]));
    assert_eq!(incoming.message().await.expect("an end is no error"), None);
    while !ended.load(Ordering::Acquire) {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn others_are_refused_and_told_why() {
    let door = Door::open().await;
    let other = RouterHello { protocol: PROTOCOL + 1, ..router() };
    let status = door.hello(&other).await.expect_err("another version");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("must be of one version"), "{status}");

    let status = door.say(encode_to_worker(&ToWorker::Heartbeat)).await.expect_err("no hello");
    assert_eq!(status.message(), "a session begins with a hello");
    let status = door.say(vec![255; 99]).await.expect_err("no message");
    assert_eq!(status.code(), Code::InvalidArgument);

    let (sender, mut incoming, hello) = door.hello(&router()).await.expect("it is answered");
    let wrong = hello.router_proof(&Secret::new("x"), &router());
    sender.send(encode_to_worker(&ToWorker::Proof(wrong))).await.expect("it is heard");
    let status = incoming.message().await.expect_err("another secret");
    assert_eq!(status.code(), Code::Unauthenticated);
    let (sender, mut incoming, _) = door.hello(&router()).await.expect("it is answered");
    sender.send(encode_to_worker(&ToWorker::Heartbeat)).await.expect("it is heard");
    assert_eq!(incoming.message().await.expect_err("no proof").code(), Code::Unauthenticated);
    assert!(door.inbox.receiver.try_recv().is_err(), "the worker saw none of them");
}

#[tokio::test]
async fn a_router_that_refuses_a_worker_after_all_has_no_session() {
    let door = Door::open().await;
    let Let { sender, mut incoming, send, ended } = door.let_in().await;
    let refused = ToWorker::Refused { why: "another layout".to_owned() };
    sender.send(encode_to_worker(&refused)).await.expect("it is heard");
    while !ended.load(Ordering::Acquire) {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(door.inbox.receiver.try_recv().is_err(), "the worker's thread has nothing to do with it");
    drop(send);
    assert_eq!(incoming.message().await.expect("an end is no error"), None);
}

#[tokio::test]
async fn a_worker_that_has_ended_lets_nobody_in() {
    let Door { inbox, address } = Door::open().await;
    drop(inbox.receiver);
    let door = Door { inbox: crate::inbox(), address };
    let (sender, mut incoming, hello) = door.hello(&router()).await.expect("it is answered");
    let proof = hello.router_proof(&Secret::new("hush"), &router());
    sender.send(encode_to_worker(&ToWorker::Proof(proof))).await.expect("it is heard");
    assert_eq!(incoming.message().await.expect_err("nobody is there").code(), Code::Unavailable);
}

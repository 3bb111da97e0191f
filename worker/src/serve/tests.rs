//! A router that the test plays, in front of a worker whose inbox the test reads.

use super::*;
use crate::config::INBOX_BYTES_MAX;
use crate::inbox::{Inbound, Inbox, inbox};
use crate::outbox::SessionSend;
use domain::session::{ModelShape, PeerAddress, Role, RouterHello};
use domain::{Incarnation, Secret, WorkerId};
use proto::queue::weight;
use proto::rpc::Code;
use proto::session::{decode_from_worker, encode_to_worker};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
/// Bytes of a session that wait at the router.
const QUEUE_BYTES: usize = 1 << 20;
const SERVED: Served = Served {
    weights: [1; 32],
    shape: SHAPE,
    layout: 7,
    block_tokens: 16,
    token_bytes: 64,
    context_tokens: 512,
    batch_invariant: true,
    grammars: true,
};

struct Door {
    inbox: Inbox,
    address: SocketAddr,
    role: watch::Sender<Role>,
}

/// A session that a worker let in.
struct Let {
    sender: Sender<Vec<u8>>,
    incoming: Incoming,
    send: SessionSend,
    ended: Arc<AtomicBool>,
}

impl Door {
    /// Knows the secret `hush`, and accepts `old` for a while.
    async fn open() -> Self {
        let inbox = inbox();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (id, incarnation, name) = (WorkerId(3), Incarnation(9), "decode".to_owned());
        let peer = PeerInfo { id, incarnation, name, role: Role::Decode, address: PeerAddress::default() };
        let secrets = Secrets::new(Secret::new("hush"), Some(Secret::new("old")));
        let (role, seen) = watch::channel(peer.role);
        let identity = Identity { peer, role: seen, served: SERVED, secrets };
        tokio::spawn(serve(listener, inbox.input(), identity, std::future::pending()));
        Self { inbox, address, role }
    }

    /// Returns what happens next to the worker.
    async fn event(&self) -> Inbound {
        loop {
            match self.inbox.receiver.try_recv() {
                Ok(event) => return event,
                Err(_) => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    async fn say(&self, first: Vec<u8>) -> Result<(Sender<Vec<u8>>, Incoming), Status> {
        let (sender, outgoing) = queue(QUEUE_BYTES);
        sender.try_send(first, 0).expect("it is empty");
        let (incoming, gate) = proto::rpc::open(&self.address.to_string(), None, outgoing).await?;
        gate.open();
        Ok((sender, incoming))
    }

    /// The worker's challenge to a router that says this.
    async fn challenge(&self, router: RouterHello) -> Result<(Sender<Vec<u8>>, Incoming, Opening), Status> {
        let (sender, mut incoming) = self.say(encode_to_worker(&ToWorker::Hello(router))).await?;
        match message(&mut incoming).await? {
            FromWorker::Challenge(worker) => Ok((sender, incoming, Opening { router, worker })),
            other => panic!("no challenge: {other:?}"),
        }
    }

    /// The worker's hello to a router that knows `secret`.
    async fn hello(&self, secret: &str) -> Result<(Sender<Vec<u8>>, Incoming, Opening, Hello), Status> {
        self.hello_to(router(), secret).await
    }

    async fn hello_to(
        &self,
        router: RouterHello,
        secret: &str,
    ) -> Result<(Sender<Vec<u8>>, Incoming, Opening, Hello), Status> {
        let (sender, mut incoming, opening) = self.challenge(router).await?;
        let proof = opening.router_proof(&Secret::new(secret));
        sender.send(encode_to_worker(&ToWorker::Proof(proof))).await.expect("it is heard");
        match message(&mut incoming).await? {
            FromWorker::Hello(hello) => Ok((sender, incoming, opening, *hello)),
            other => panic!("no hello: {other:?}"),
        }
    }

    async fn let_in(&self) -> Let {
        let (sender, incoming, ..) = self.hello("hush").await.expect("it is answered");
        match self.event().await {
            Inbound::Opened { send, ended, .. } => Let { sender, incoming, send, ended },
            _ => panic!("no session"),
        }
    }
}

async fn message(incoming: &mut Incoming) -> Result<FromWorker, Status> {
    let bytes = incoming.message().await?.expect("a message");
    Ok(decode_from_worker(&bytes).expect("it can be read"))
}

fn router() -> RouterHello {
    RouterHello { versions: PROTOCOL, router: 5, nonce: [4; 32] }
}

#[tokio::test]
async fn a_router_that_knows_the_secret_is_let_in() {
    let door = Door::open().await;
    for known in ["hush", "old"] {
        let (_sender, _incoming, opening, hello) = door.hello(known).await.expect("it is answered");
        assert_eq!((hello.peer.id, hello.served), (WorkerId(3), SERVED));
        for secret in ["hush", "old", "x"] {
            let proves = opening.proves_worker(&Secret::new(secret), &hello);
            assert_eq!(proves, secret == known, "{known} is answered by {known}");
        }
        assert!(matches!(door.event().await, Inbound::Opened { .. }));
    }

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
async fn a_router_learns_the_role_of_now() {
    let door = Door::open().await;
    for role in [Role::Prefill, Role::Decode] {
        door.role.send_replace(role);
        let (_sender, _incoming, opening, hello) = door.hello("hush").await.expect("it is answered");
        assert_eq!(hello.peer.role, role);
        assert!(opening.proves_worker(&Secret::new("hush"), &hello));
    }
}

#[tokio::test]
async fn routers_of_the_release_before_and_of_the_next_one_are_let_in() {
    let door = Door::open().await;
    let Versions { oldest, newest } = PROTOCOL;
    for (versions, protocol) in [((oldest, oldest), oldest), ((newest, newest + 1), newest)] {
        let router = RouterHello { versions: Versions { oldest: versions.0, newest: versions.1 }, ..router() };
        let (_sender, _incoming, opening, hello) = door.hello_to(router, "hush").await.expect("it is answered");
        assert_eq!(opening.protocol(), Some(protocol));
        assert!(opening.proves_worker(&Secret::new("hush"), &hello));
        assert!(matches!(door.event().await, Inbound::Opened { .. }));
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
async fn strangers_are_told_one_sentence_and_change_nothing() {
    let door = Door::open().await;
    for (oldest, shown) in [(PROTOCOL.newest + 1, "7 to 8"), (PROTOCOL.oldest - 2, "3 to 4")] {
        let other = RouterHello { versions: Versions { oldest, newest: oldest + 1 }, ..router() };
        let status = door.challenge(other).await.expect_err("another version");
        assert_eq!(status.code(), Code::FailedPrecondition);
        let ranges =
            format!("the worker speaks protocol {PROTOCOL}, the router {shown}; they have no version in common");
        assert!(status.message().contains(&ranges), "{status}");
    }

    // Where another worker is, and that this one lives for ever: from somebody who has proven nothing.
    let (id, incarnation, name) = (WorkerId(1), Incarnation(u64::MAX), "mine".to_owned());
    let address = PeerAddress { process: 1, unix: String::new(), tcp: "10.0.0.1:1".to_owned() };
    let peer = encode_to_worker(&ToWorker::Peer(PeerInfo { id, incarnation, name, role: Role::Prefill, address }));
    let mut told = Vec::new();
    for first in [encode_to_worker(&ToWorker::Heartbeat), peer.clone(), vec![255; 99]] {
        told.push(door.say(first).await.map(|_| ()).expect_err("no hello"));
    }
    for second in [encode_to_worker(&ToWorker::Heartbeat), peer, vec![255; 99]] {
        let (sender, mut incoming, _) = door.challenge(router()).await.expect("it is challenged");
        sender.send(second).await.expect("it is heard");
        told.push(incoming.message().await.expect_err("no proof"));
    }
    for other in ["x", ""] {
        told.push(door.hello(other).await.map(|_| ()).expect_err("another secret"));
    }
    for status in told {
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, STRANGER));
    }
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
    let Door { inbox, address, role } = Door::open().await;
    drop(inbox.receiver);
    let door = Door { inbox: crate::inbox(), address, role };
    let (_sender, mut incoming, ..) = door.hello("hush").await.expect("it is answered");
    assert_eq!(incoming.message().await.expect_err("nobody is there").code(), Code::Unavailable);
}

#[tokio::test]
async fn a_worker_that_does_not_look_into_its_inbox_loses_no_session() {
    /// Far more than the inbox, the queues and the connection hold.
    const COUNT: u32 = 20_000;
    let door = Door::open().await;
    let Let { sender, incoming: _incoming, send: _send, ended } = door.let_in().await;
    let message = |number: u32| [&number.to_le_bytes()[..], &[7; 2 << 10]].concat();
    let said = async {
        for number in 0..COUNT {
            sender.send(message(number)).await.expect("the session is open");
        }
    };
    let heard = async {
        let routers = &door.inbox.input.routers;
        while routers.taken() + weight(message(0).len()) <= INBOX_BYTES_MAX {
            sleep(Duration::from_millis(5)).await;
        }
        for number in 0..COUNT {
            let Inbound::Session { bytes, .. } = door.event().await else { panic!("another event") };
            assert_eq!(bytes, message(number), "in order, and none is lost");
        }
    };
    tokio::join!(said, heard);
    assert!(!ended.load(Ordering::Acquire));
}

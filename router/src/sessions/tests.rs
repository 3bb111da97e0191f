//! The dialer, in front of workers that the test plays over the network.

use super::*;
use discovery::{About, Change, Discovery, Entry, Key, Member, StaticList, StaticWatcher, Topology};
use domain::session::{
    Challenge, FromWorker, ModelShape, Opening, PROTOCOL, PeerAddress, PeerInfo, Role, Served, ToWorker,
};
use domain::{Incarnation, Secret, Secrets, Versions, WorkerId};
use proto::queue::queue;
use proto::rpc::{Incoming, Outgoing, PortLimits, Status, Stranger};
use proto::session::{decode_to_worker, encode_from_worker};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Nothing that works takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const SHAPE: ModelShape = ModelShape { vocab: 4096, layers: 2, hidden: 64 };
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

/// How a played worker begins a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Good,
    /// It speaks these versions.
    Speaks(Versions),
    OtherSecret,
    /// Somebody on the way names another address.
    OtherAddress,
    /// Its hello comes without a challenge.
    Unasked,
    Nonsense,
}

/// A worker that begins in this manner, and then says back what it hears.
async fn answer(
    manner: Manner,
    id: u32,
    served: Served,
    stranger: Stranger,
    mut incoming: Incoming,
) -> Result<Outgoing, Status> {
    let first = incoming.message().await?.expect("a hello");
    let ToWorker::Hello(router) = decode_to_worker(&first).expect("it can be read") else { panic!("no hello") };
    let (name, address) = (format!("worker-{id}"), PeerAddress::default());
    let peer = PeerInfo { id: WorkerId(id), incarnation: Incarnation(1), name, role: Role::Decode, address };
    let versions = if let Manner::Speaks(versions) = manner { versions } else { PROTOCOL };
    let worker = Challenge { versions, nonce: [3; 32] };
    let opening = Opening { router, worker };
    let hello = |secret: &str| {
        let mut hello = opening.hello(&Secret::new(secret), peer.clone(), served);
        if manner == Manner::OtherAddress {
            hello.peer.address.tcp = "10.0.0.1:1".to_owned();
        }
        encode_from_worker(&FromWorker::Hello(Box::new(hello)))
    };
    let first = match manner {
        Manner::Nonsense => vec![255; 9],
        Manner::Unasked => hello("hush"),
        _ => encode_from_worker(&FromWorker::Challenge(worker)),
    };
    let second = hello(if manner == Manner::OtherSecret { "x" } else { "hush" });
    let (sender, outgoing) = queue(1 << 20);
    sender.try_send(Ok(first), 0).expect("it is empty");
    tokio::spawn(async move {
        let Ok(Some(proof)) = incoming.message().await else { return };
        let ToWorker::Proof(proof) = decode_to_worker(&proof).expect("it can be read") else { panic!("no proof") };
        assert!(opening.proven_by(&Secret::new("hush").into(), &proof).is_some());
        assert!(stranger.has_proven_itself());
        let _ = sender.send(Ok(second)).await;
        // Without a sign of its step loop there is no session.
        let _ = sender.send(Ok(encode_from_worker(&FromWorker::Heartbeat))).await;
        while let Ok(Some(bytes)) = incoming.message().await {
            if bytes == b"end" || sender.send(Ok(bytes)).await.is_err() {
                return;
            }
        }
    });
    Ok(outgoing)
}

async fn worker(listener: TcpListener, manner: Manner, id: u32, served: Served) -> JoinHandle<()> {
    let session = move |stranger, incoming| answer(manner, id, served, stranger, incoming);
    tokio::spawn(proto::rpc::serve(listener, PortLimits::default(), session, std::future::pending()))
}

async fn port() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Returns what the dialer knows.
fn secrets() -> Secrets {
    Secret::new("hush").into()
}

/// Returns a worker of a directory that says that it has this id, or nothing of it.
fn member(key: u32, address: SocketAddr, id: Option<u32>) -> Member {
    let address: discovery::Address = address.to_string().parse().expect("an address");
    let entry = |id| Entry {
        id: WorkerId(id),
        incarnation: Incarnation(1),
        name: format!("worker-{id}"),
        role: Role::Decode,
        address: address.clone(),
        ops: None,
        model: String::new(),
        layout: 0,
        topology: Topology::default(),
    };
    let about = id.map_or(About::Nothing, |id| About::Worker(entry(id)));
    Member { key: Key(key.to_string()), address, about }
}

/// A directory that the test writes.
struct Written(mpsc::UnboundedReceiver<Change>);

impl Discovery for Written {
    async fn next(&mut self) -> Change {
        match self.0.recv().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }
}

/// Returns a dialer that follows a directory, and how to write in that.
fn follow_written() -> (Sessions, mpsc::UnboundedSender<Change>) {
    let (dialer, sessions) = Dialer::new(SHAPE);
    let (write, written) = mpsc::unbounded_channel();
    tokio::spawn(async move { dialer.follow(Written(written), secrets(), None).await });
    (sessions, write)
}

/// Returns a dialer that follows these.
fn follow(addresses: &[SocketAddr]) -> Sessions {
    let list = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let (dialer, sessions) = Dialer::new(SHAPE);
    let list = StaticList::parse(&list).expect("addresses");
    tokio::spawn(async move { dialer.follow(StaticWatcher::new(watch::channel(list).1), secrets(), None).await });
    sessions
}

async fn link(sessions: &mut Sessions) -> WorkerLink {
    let link = timeout(PATIENCE, sessions.links.recv()).await;
    let mut link = link.expect("a session begins").expect("the dialer lives");
    assert_eq!(link.receive.recv().await, Some(encode_from_worker(&FromWorker::Heartbeat)));
    link
}

async fn error(manner: Manner) -> String {
    let (listener, address) = port().await;
    let _worker = worker(listener, manner, 1, SERVED).await;
    let remote = remote::Remote::new(member(0, address, None), secrets(), None, 1);
    remote.dial().await.err().expect("no session").to_string()
}

#[tokio::test]
async fn a_session_carries_messages_until_either_end_drops_it() {
    let (listener, address) = port().await;
    let _worker = worker(listener, Manner::Good, 1, SERVED).await;
    let mut sessions = follow(&[address]);
    let mut first = link(&mut sessions).await;
    assert_eq!(sessions.service.borrow().map(|service| service.served), Some(SERVED));
    assert_eq!((first.peer.id, first.peer.name.as_str()), (WorkerId(1), "worker-1"));
    first.send.try_send(b"hello".to_vec(), 0).expect("there is room");
    assert_eq!(first.receive.recv().await.as_deref(), Some(&b"hello"[..]));
    // The worker drops it.
    first.send.try_send(b"end".to_vec(), 0).expect("there is room");
    assert_eq!(first.receive.recv().await, None);
    drop(first);
    // The router drops it; a session is begun again each time.
    drop(link(&mut sessions).await);
    link(&mut sessions).await;
}

#[tokio::test]
async fn a_worker_that_comes_later_or_returns_is_found() {
    let (listener, address) = port().await;
    drop(listener);
    let mut sessions = follow(&[address]);
    for life in 0..3 {
        let listener = TcpListener::bind(address).await.expect("the port is free");
        let worker = worker(listener, Manner::Good, 1, SERVED).await;
        let mut link = link(&mut sessions).await;
        link.send.try_send(vec![life], 0).expect("there is room");
        assert_eq!(link.receive.recv().await, Some(vec![life]));
        worker.abort();
        assert!(worker.await.is_err_and(|error| error.is_cancelled()));
        // Its connections outlive the listener here, as they would not a process.
        drop(link);
    }
}

#[tokio::test]
async fn what_does_not_belong_is_refused_with_the_reason() {
    for manner in [Manner::OtherSecret, Manner::OtherAddress] {
        let text = error(manner).await;
        assert!(text.contains("does not know the secret"), "{text}");
    }
    let text = error(Manner::Unasked).await;
    assert!(text.contains("does not begin with a challenge"), "{text}");
    let text = error(Manner::Nonsense).await;
    assert!(text.contains("cannot be read"), "{text}");
}

#[tokio::test]
async fn a_session_has_the_newest_version_that_both_ends_speak() {
    let Versions { oldest, newest } = PROTOCOL;
    let speaks = |oldest, newest| Manner::Speaks(Versions { oldest, newest });
    for (manner, protocol) in [
        (Manner::Good, newest),
        (speaks(oldest, oldest), oldest),
        (speaks(newest, newest + 1), newest),
        (speaks(oldest - 1, newest + 9), newest),
    ] {
        let (listener, address) = port().await;
        let _worker = worker(listener, manner, 1, SERVED).await;
        assert_eq!(link(&mut follow(&[address])).await.protocol, protocol);
    }
    for (oldest, newest, shown) in [(newest + 1, newest + 2, "7 to 8"), (oldest - 1, oldest - 1, "4")] {
        let text = error(speaks(oldest, newest)).await;
        let ranges =
            format!("the router speaks protocol {PROTOCOL}, the worker {shown}; they have no version in common");
        assert!(text.contains(&ranges) && text.contains("upgrade one release at a time"), "{text}");
    }
}

#[tokio::test]
async fn nobody_is_introduced_who_has_not_proven_to_be_it() {
    let mut addresses = Vec::new();
    let mut workers = Vec::new();
    for (id, manner) in [(1, Manner::Good), (2, Manner::OtherSecret), (3, Manner::OtherAddress), (4, Manner::Unasked)] {
        let (listener, address) = port().await;
        workers.push(worker(listener, manner, id, SERVED).await);
        addresses.push(address);
    }
    let mut sessions = follow(&addresses);
    assert_eq!(link(&mut sessions).await.peer.id, WorkerId(1));
    // It is dialed again and again; the others never come to be links, of which the brain would introduce the peers.
    for _ in 0..3 {
        assert_eq!(link(&mut sessions).await.peer.id, WorkerId(1));
    }
}

#[tokio::test]
async fn workers_of_another_model_and_twins_are_left_out() {
    let mut addresses = Vec::new();
    let mut workers = Vec::new();
    for (id, weights) in [(1, 1), (2, 2), (1, 1)] {
        let (listener, address) = port().await;
        workers.push(worker(listener, Manner::Good, id, Served { weights: [weights; 32], ..SERVED }).await);
        addresses.push(address);
    }
    let mut sessions = follow(&addresses);
    let _first = link(&mut sessions).await;
    let second = timeout(Duration::from_millis(500), sessions.links.recv()).await;
    assert!(second.is_err(), "of two models, and of two with one id, one is enough: {second:?}");
}

#[tokio::test]
async fn contexts_are_those_of_the_workers_that_decode_now() {
    let mut addresses = Vec::new();
    let mut workers = Vec::new();
    for (id, context_tokens) in [(1, 512), (2, 128)] {
        let (listener, address) = port().await;
        workers.push(worker(listener, Manner::Good, id, Served { context_tokens, ..SERVED }).await);
        addresses.push(address);
    }
    let mut sessions = follow(&addresses);
    let links = [link(&mut sessions).await, link(&mut sessions).await];
    let mut service = sessions.service.clone();
    let mut until = async |context: u32| {
        let is_so = |service: &Option<Service>| service.is_some_and(|it| it.served.context_tokens == context);
        timeout(PATIENCE, service.wait_for(is_so)).await.expect("contexts follow roles").expect("the dialer lives");
    };
    until(512).await;
    let mut open = Links::default();
    links.into_iter().for_each(|link| open.open(link));
    open.show_role(WorkerId(1), Role::Prefill);
    until(128).await;
    open.show_role(WorkerId(1), Role::Decode);
    until(512).await;
}

#[tokio::test]
async fn a_worker_that_left_keeps_its_session_and_is_not_dialed_again() {
    let (listener, address) = port().await;
    let _worker = worker(listener, Manner::Good, 1, SERVED).await;
    let (mut sessions, write) = follow_written();
    write.send(Change::Joined(member(1, address, Some(1)))).expect("it is followed");
    let mut first = link(&mut sessions).await;
    write.send(Change::Left(Key("1".to_owned()))).expect("it is followed");
    let nothing = timeout(Duration::from_millis(500), sessions.links.recv()).await;
    assert!(nothing.is_err(), "it has a session: {nothing:?}");
    first.send.try_send(b"hello".to_vec(), 0).expect("there is room");
    assert_eq!(first.receive.recv().await.as_deref(), Some(&b"hello"[..]));
    drop(first);
    let nothing = timeout(Duration::from_secs(2), sessions.links.recv()).await;
    assert!(nothing.is_err(), "it left: {nothing:?}");
    // It comes again, and stays though a directory takes it back and forth.
    for _ in 0..3 {
        write.send(Change::Joined(member(1, address, Some(1)))).expect("it is followed");
        write.send(Change::Left(Key("1".to_owned()))).expect("it is followed");
    }
    write.send(Change::Joined(member(1, address, Some(1)))).expect("it is followed");
    drop(link(&mut sessions).await);
    link(&mut sessions).await;
}

#[tokio::test]
async fn a_worker_is_dialed_where_it_is_now_and_only_as_who_it_is() {
    let (listener, there) = port().await;
    let _other = worker(listener, Manner::Good, 2, SERVED).await;
    let (listener, here) = port().await;
    let _worker = worker(listener, Manner::Good, 1, SERVED).await;
    let (mut sessions, write) = follow_written();
    // Its address is another worker's by now.
    write.send(Change::Joined(member(1, there, Some(1)))).expect("it is followed");
    let nothing = timeout(Duration::from_millis(500), sessions.links.recv()).await;
    assert!(nothing.is_err(), "it is another worker: {nothing:?}");
    write.send(Change::Changed(member(1, here, Some(1)))).expect("it is followed");
    let first = link(&mut sessions).await;
    assert_eq!(first.peer.id, WorkerId(1));
    write.send(Change::Joined(member(2, there, Some(2)))).expect("it is followed");
    assert_eq!(link(&mut sessions).await.peer.id, WorkerId(2));
}

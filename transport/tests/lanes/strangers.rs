//! Strangers: however many they are and whatever they say, peers connect and read. And they learn nothing, and
//! change nothing.

use crate::certificates::{authority, good};
use crate::ends::*;
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, Secret, WorkerId};
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use transport::{AgentConfig, Hub, Lane, Refusal, TLS_NAME};

const LEN: usize = 1 << 20;
/// Whom a reader dials while what it says is recorded.
const RECORDER: WorkerId = WorkerId(9);
/// Connections that one thread of an attack opens at most: no attack goes on for ever.
const ATTEMPTS_MAX: usize = 1_000_000;
/// Of those that the agent closes first, after a word, the system remembers the port for a while, of which readers
/// of the same host want some.
const WORDS_MAX: usize = 5_000;
/// How long a connection takes at most where the queue of the listener is full.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// Bytes of a frame before its body.
const HEAD: usize = 5;
const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const REFUSED: u8 = 4;
/// Where the version is in the body of a hello or a challenge.
const VERSION: usize = 6;

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 1).to_le_bytes()[..], &[kind], body].concat()
}

/// The next frame of a stream: its kind and its body. `None`: there is no more.
fn read_frame(stream: &mut impl Read) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).ok()?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize - 1];
    stream.read_exact(&mut body).ok()?;
    Some((head[4], body))
}

fn only_tcp(config: &mut AgentConfig) {
    config.lanes = vec![Lane::Tcp];
}

fn refused(end: &End, why: Refusal) -> u64 {
    end.agent.counts().refused.iter().find(|(other, _)| *other == why).map_or(0, |(_, count)| *count)
}

/// Has a reader dial a listener of the test.
fn dial(reader: &End) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let tcp = listener.local_addr().expect("it is bound").to_string();
    let address = PeerAddress { tcp, ..PeerAddress::default() };
    let (name, role, incarnation) = ("recorder".to_owned(), Role::Prefill, Incarnation(1));
    reader.agent.introduce(PeerInfo { id: RECORDER, incarnation, name, role, address });
    reader.agent.connect(RECORDER);
    listener.accept().expect("the reader dials").0
}

/// The body of a hello as peers say it, for whoever listened on the way to say it again.
fn recorded_hello() -> Vec<u8> {
    let (kind, body) = read_frame(&mut dial(&end(&Hub::new(), READER, 1, 8, only_tcp))).expect("it says hello");
    assert_eq!(kind, HELLO);
    body
}

/// The same with its last byte changed, so that it proves nothing.
fn wrong(mut body: Vec<u8>) -> Vec<u8> {
    *body.last_mut().expect("it is not empty") ^= 1;
    body
}

/// What an agent says to one who says this, until it closes the connection.
fn answers(owner: &End, says: &[&[u8]]) -> Vec<(u8, Vec<u8>)> {
    let mut stream = TcpStream::connect(&owner.info.address.tcp).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    let mut answers = Vec::new();
    for said in says {
        stream.write_all(said).expect("it is open");
        answers.extend(read_frame(&mut stream));
    }
    answers.extend(std::iter::from_fn(|| read_frame(&mut stream)));
    answers
}

/// Threads that connect at full pace and close the oldest of their connections. They end when this is dropped.
#[derive(Default)]
struct Attack {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Attack {
    /// One more thread, that keeps so many connections open.
    fn go(&mut self, attempts: usize, kept: usize, connect: impl Fn() -> Option<OwnedFd> + Send + 'static) {
        let over = self.over.clone();
        self.threads.push(std::thread::spawn(move || {
            let mut open = VecDeque::with_capacity(kept + 1);
            for socket in std::iter::repeat_with(connect).take(attempts).take_while(|_| !over.load(Ordering::SeqCst)) {
                open.extend(socket);
                if open.len() > kept {
                    open.pop_front();
                }
            }
        }));
    }

    /// One that connects to the victim's port from the victim's own address, and says this.
    fn tcp(&mut self, owner: &End, attempts: usize, kept: usize, says: Vec<u8>) {
        let address = owner.info.address.tcp.parse().expect("it listens");
        self.go(attempts, kept, move || {
            let mut stream = TcpStream::connect_timeout(&address, CONNECT_MAX).ok()?;
            sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).ok()?;
            stream.write_all(&says).ok()?;
            Some(stream.into())
        });
    }

    fn unix(&mut self, owner: &End, attempts: usize, kept: usize, says: Vec<u8>) {
        let address = SocketAddr::from_abstract_name(&owner.info.address.unix).expect("it is a name");
        self.go(attempts, kept, move || {
            let mut stream = UnixStream::connect_addr(&address).ok()?;
            stream.write_all(&says).ok()?;
            Some(stream.into())
        });
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            thread.join().expect("it does not panic");
        }
    }
}

#[test]
fn strangers_at_full_pace_keep_no_peer_from_another() {
    let owner = end(&Hub::new(), OWNER, 1, LEN, |_| ());
    owner.fill();
    let bytes = owner.bytes();
    let reads = |reader: &End| {
        reader.wipe();
        reader.post(OWNER, vec![batch(LEN, 0, &[(0, 0)])]);
        assert!(reader.ended().result.is_ok());
        assert!(reader.bytes() == bytes, "a byte is wrong");
    };
    let linked = end(&Hub::new(), READER, 1, LEN, only_tcp);
    linked.agent.introduce(owner.info.clone());
    linked.connect(OWNER);

    let hello = recorded_hello();
    let half = frame(HELLO, &hello)[..HEAD + 20].to_vec();
    // Together more than there are places, and few enough to leave the process some.
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let kept = usize::try_from(descriptors / 16 * 3).map_or(3000, |share| share.min(3000));
    let mut attack = Attack::default();
    attack.tcp(&owner, ATTEMPTS_MAX, kept, Vec::new());
    attack.tcp(&owner, ATTEMPTS_MAX, kept / 8, half);
    attack.tcp(&owner, WORDS_MAX, kept / 8, frame(HELLO, &wrong(hello.clone())));
    attack.tcp(&owner, ATTEMPTS_MAX, kept / 8, frame(HELLO, &hello));
    attack.unix(&owner, ATTEMPTS_MAX, kept, Vec::new());
    while refused(&owner, Refusal::Crowd) == 0 {
        std::thread::yield_now();
    }
    let given_way = refused(&owner, Refusal::Crowd);
    for id in [10, 11] {
        let reader = end(&Hub::new(), WorkerId(id), 1, LEN, only_tcp);
        reader.agent.introduce(owner.info.clone());
        assert_eq!(reader.connect(OWNER), Lane::Tcp);
        reads(&reader);
        reads(&linked);
    }
    let reader = end(&Hub::new(), WorkerId(12), 1, LEN, |config| config.lanes = vec![Lane::Shm]);
    reader.agent.introduce(owner.info.clone());
    assert_eq!(reader.connect(OWNER), Lane::Shm);
    reads(&reader);
    assert!(refused(&owner, Refusal::Crowd) > given_way, "the attack goes on");
    drop(attack);
    assert_eq!(linked.agent.counts().lost, 0);
    linked.hears_nothing();
}

#[test]
fn a_stranger_learns_nothing() {
    let owner = end(&Hub::new(), OWNER, 1, 8, only_tcp);
    let hello = recorded_hello();
    let refusal = (REFUSED, b"refused".to_vec());
    // Whatever is wrong.
    for says in [frame(HELLO, &wrong(hello.clone())), frame(HELLO, b"who is there?"), frame(PROOF, &hello)] {
        assert_eq!(answers(&owner, &[&says]), std::slice::from_ref(&refusal));
    }
    // Who recorded a hello gets no further.
    let two = [&frame(HELLO, &hello)[..], &frame(PROOF, &[7; 100])];
    let [(CHALLENGE, challenge), last] = &answers(&owner, &two)[..] else { panic!("it answers otherwise") };
    assert_eq!(last, &refusal);
    // The name of the protocol, its oldest version, a nonce, and its newest version.
    assert_eq!((challenge.len(), &challenge[..VERSION + 2]), (VERSION + 2 + 32 + 2, &hello[..VERSION + 2]));
    let again = &answers(&owner, &two)[0].1;
    assert_ne!(again, challenge, "each nonce is new");
}

#[test]
fn another_version_is_told_of_at_both_ends() {
    let owner = end(&Hub::new(), OWNER, 1, 8, only_tcp);
    let mut other = recorded_hello();
    let own = other[VERSION];
    other[VERSION] += 1;
    let told = answers(&owner, &[&frame(HELLO, &other)]);
    assert_eq!((told[0].0, told[0].1[VERSION]), (CHALLENGE, own), "{told:?}");
    assert_eq!(refused(&owner, Refusal::Protocol), 1);

    let reader = end(&Hub::new(), READER, 1, 8, only_tcp);
    let mut dialled = dial(&reader);
    read_frame(&mut dialled).expect("it says hello");
    dialled.write_all(&frame(CHALLENGE, &other[..VERSION + 2 + 32])).expect("it listens");
    let reason = reader.lost(RECORDER);
    let expect = format!("it speaks version {} of the transport's protocol, this worker {own}; ", own + 1);
    assert!(reason.contains(&expect), "{reason}");
}

#[test]
fn a_stranger_that_claims_to_be_a_peer_changes_nothing() {
    for life in [1, u64::MAX] {
        let owner = end(&Hub::new(), OWNER, 1, 8, |_| ());
        let reader = end(&Hub::new(), READER, 1, 8, |_| ());
        owner.agent.introduce(reader.info.clone());
        let impostor = end(&Hub::new(), READER, life, 8, |config| config.secrets = Secret::new("a guess").into());
        impostor.agent.introduce(owner.info.clone());
        impostor.agent.connect(OWNER);
        impostor.lost(OWNER);
        // Neither where the reader is has changed, nor which life of it counts.
        owner.agent.send(READER, b"to the reader".to_vec()).expect("it is known");
        assert_eq!(reader.message(), (OWNER, b"to the reader".to_vec()));
        reader.agent.introduce(owner.info.clone());
        reader.connect(OWNER);
        impostor.hears_nothing();
    }
}

#[test]
fn no_more_than_4_kib_are_read_before_a_proof() {
    let owner = end(&Hub::new(), OWNER, 1, 8, only_tcp);
    let hello = frame(HELLO, &recorded_hello());
    // Every frame is short enough, and the last one goes on.
    let proof = frame(PROOF, &[7; 4090]);
    let mut says = [hello, proof].concat();
    says.truncate(4097);
    let mut stream = TcpStream::connect(&owner.info.address.tcp).expect("it listens");
    stream.write_all(&says).expect("it is open");
    // It may be reset, since not all was read.
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!((refused(&owner, Refusal::Protocol), refused(&owner, Refusal::Silence)), (1, 0));
}

#[test]
fn what_a_tls_handshake_keeps_is_bounded() {
    let owner = end(&Hub::new(), OWNER, 1, 8, |config| (config.lanes, config.tls) = (vec![Lane::Tcp], Some(good())));
    let mut stream = TcpStream::connect(&owner.info.address.tcp).expect("it listens");
    // A first message of 60 KiB, which TLS allows, in records of 1 KiB: some of it is never said.
    let mut message = vec![1, 0, 0xF0, 0];
    message.resize(24 << 10, 0);
    for part in message.chunks(1 << 10) {
        let record = [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
        if stream.write_all(&record).is_err() {
            break;
        }
    }
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!((refused(&owner, Refusal::Encryption), refused(&owner, Refusal::Silence)), (1, 0));
}

/// Somebody with a certificate of the cluster, but not its secret, between a dialer and its listener.
fn relay_between_channels(to: String) -> String {
    let issued = authority().issue(|_| ());
    let chain = vec![CertificateDer::from_pem_slice(issued.certificate.as_bytes()).expect("it is one")];
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("it is one");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority().pem().as_bytes()).expect("it is one")).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let accepts = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let accepts = accepts.expect("they are sound").with_no_client_auth();
    let accepts = Arc::new(accepts.with_single_cert(chain.clone(), key.clone_key()).expect("they belong together"));
    let connects = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let connects = connects.expect("they are sound").with_root_certificates(roots);
    let connects = Arc::new(connects.with_client_auth_cert(chain, key).expect("they belong together"));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound").to_string();
    // It ends with the test's process.
    std::thread::spawn(move || {
        for dialer in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&to).expect("it listens");
            let name = ServerName::try_from(TLS_NAME).expect("it is a name");
            let mut dialer = StreamOwned::new(ServerConnection::new(accepts.clone()).expect("it is sound"), dialer);
            let mut server =
                StreamOwned::new(ClientConnection::new(connects.clone(), name).expect("it is sound"), server);
            // Both speak in turns until they know each other.
            while let Some((kind, body)) = read_frame(&mut dialer) {
                server.write_all(&frame(kind, &body)).expect("it listens");
                let Some((kind, body)) = read_frame(&mut server) else { break };
                if dialer.write_all(&frame(kind, &body)).is_err() {
                    break;
                }
            }
        }
    });
    address
}

#[test]
fn a_proof_that_is_relayed_over_another_tls_channel_is_refused() {
    let tls = |config: &mut AgentConfig| (config.lanes, config.tls) = (vec![Lane::Tcp], Some(good()));
    let (owner, reader) = (end(&Hub::new(), OWNER, 1, 8, tls), end(&Hub::new(), READER, 1, 8, tls));
    let mut relayed = owner.info.clone();
    relayed.address.tcp = relay_between_channels(owner.info.address.tcp.clone());
    reader.agent.introduce(relayed);
    reader.agent.connect(OWNER);
    let reason = reader.lost(OWNER);
    assert!(reason.contains("refuses this worker as a stranger"), "{reason}");
    assert_eq!(refused(&owner, Refusal::Identity), 1);
    reader.agent.introduce(owner.info.clone());
    assert_eq!(reader.connect(OWNER), Lane::Tcp);
}

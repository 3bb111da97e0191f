//! The lane `tcp`: what may go wrong on the wire.

use crate::ends::*;
use domain::{StepId, WorkerId};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::{AgentConfig, Copies, Copy, Hub, Lane, RailFault, ReadBatch, Refusal, TransferError};

/// A relay before an agent. It counts the bytes that go to and fro, and flips one where it is told to.
pub(crate) struct Relay {
    pub(crate) address: String,
    /// Bytes that the agent was sent, and which of them is flipped.
    asked: Arc<AtomicU64>,
    flip_asked: Arc<AtomicU64>,
    /// Bytes that it sent, and which of them is flipped.
    pub(crate) sent: Arc<AtomicU64>,
    pub(crate) flip_at: Arc<AtomicU64>,
    /// How often each byte came at most, one after the other, in what the agent sent and was sent.
    longest: Arc<[AtomicU64; 256]>,
}

/// Flips a byte if it is among these, which come next.
fn flip(bytes: &mut [u8], passed: &AtomicU64, flip_at: &AtomicU64) {
    let at = passed.fetch_add(bytes.len() as u64, Ordering::SeqCst);
    let flip = flip_at.load(Ordering::SeqCst);
    if (at..at + bytes.len() as u64).contains(&flip) {
        bytes[(flip - at) as usize] ^= 0x10;
    }
}

/// Notes how often each byte comes one after the other.
fn listen(bytes: &[u8], longest: &[AtomicU64; 256]) {
    for alike in bytes.chunk_by(|one, next| one == next) {
        longest[usize::from(alike[0])].fetch_max(alike.len() as u64, Ordering::SeqCst);
    }
}

impl Relay {
    pub(crate) fn new(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let longest: Arc<[AtomicU64; 256]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let heard = longest.clone();
        let (asked, sent) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let [flip_asked, flip_at] = [(); 2].map(|()| Arc::new(AtomicU64::new(u64::MAX)));
        let (to, counters) = (to.to_owned(), [&asked, &flip_asked, &sent, &flip_at].map(Arc::clone));
        // Its threads end with the connections, and the last with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { return };
                let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let [asked, flip_asked, sent, flip_at] = counters.clone();
                let [asks, answers] = [heard.clone(), heard.clone()];
                std::thread::spawn(move || {
                    pass(from_client, to_server, |bytes| {
                        listen(bytes, &asks);
                        flip(bytes, &asked, &flip_asked);
                    })
                });
                std::thread::spawn(move || {
                    pass(server, client, |bytes| {
                        listen(bytes, &answers);
                        flip(bytes, &sent, &flip_at);
                    })
                });
            }
        });
        Self { address, asked, flip_asked, sent, flip_at, longest }
    }

    /// How often a byte came at most, one after the other.
    pub(crate) fn longest_of(&self, byte: u8) -> u64 {
        self.longest[usize::from(byte)].load(Ordering::SeqCst)
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut look: impl FnMut(&mut [u8])) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
    {
        look(&mut buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(std::net::Shutdown::Both), from.shutdown(std::net::Shutdown::Both));
}

fn relayed(len: usize, change: impl Fn(&mut AgentConfig)) -> (Pair, Relay) {
    let only = |config: &mut AgentConfig| {
        config.lanes = vec![Lane::Tcp];
        config.tcp.connections = 1;
        change(config);
    };
    let (owner, reader) = (end(&Hub::new(), OWNER, 1, len, only), end(&Hub::new(), READER, 1, len, only));
    owner.fill();
    between(owner, reader)
}

/// Has a reader connect an owner, with a relay between them.
pub(crate) fn between(owner: End, reader: End) -> (Pair, Relay) {
    let relay = Relay::new(&owner.info.address.tcp);
    let mut info = owner.info.clone();
    info.address.tcp = relay.address.clone();
    reader.agent.introduce(info);
    reader.connect(OWNER);
    (Pair { owner, reader }, relay)
}

#[test]
fn a_flipped_byte_is_an_error_and_never_delivered() {
    const LEN: usize = 1 << 20;
    let (pair, relay) = relayed(LEN, |_| ());
    // Amid the bytes of the next answer, beyond its first header.
    relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + 40_000, Ordering::SeqCst);
    assert_eq!(pair.read(LEN, 0, &[(0, 0)]).result, Err(TransferError::Corrupted));
    assert_eq!(pair.reader.agent.counts().corrupted, 1);
    // The connection goes on; what was still on its way does not land in what comes next.
    relay.flip_at.store(u64::MAX, Ordering::SeqCst);
    assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
    assert!(pair.reader.bytes() == pair.owner.bytes());
    assert_eq!(pair.reader.agent.counts().corrupted, 1);
}

#[test]
fn a_strided_read_is_asked_for_by_its_stride() {
    const SLICES: u64 = 100_000;
    const SLICE: usize = 64;
    /// What a request costs, with the one series that it has: as many slices as it may ask for follow one rule.
    const REQUEST_BYTES: u64 = 40 + 24;
    const REQUEST_SLICES: u64 = 16 << 10;
    /// What a run of slices costs, of which one has up to so many.
    const RUN_BYTES: u64 = 32;
    const RUN_SLICES: u64 = 64;
    let (pair, relay) = relayed(SLICES as usize * 2 * SLICE, |_| ());
    let strided = Copies::Strided {
        first: Copy { from: 0, to: SLICE as u64 },
        // Every second slice, to where the others are.
        step: Copy { from: 2 * SLICE as u64, to: 2 * SLICE as u64 },
        count: SLICES,
    };
    let read = ReadBatch { copies: strided, ..batch(SLICE, 0, &[]) };
    let counts = || (relay.asked.load(Ordering::SeqCst), relay.sent.load(Ordering::SeqCst));
    let before = counts();
    pair.reader.post(OWNER, vec![read]);
    assert_eq!(pair.reader.ended().result.map(|report| report.bytes), Ok(SLICES * SLICE as u64));
    let after = counts();
    assert_eq!(after.0 - before.0, SLICES.div_ceil(REQUEST_SLICES) * REQUEST_BYTES, "bytes that ask");
    let requests = SLICES.div_ceil(REQUEST_SLICES);
    let runs = SLICES / REQUEST_SLICES * (REQUEST_SLICES / RUN_SLICES) + (SLICES % REQUEST_SLICES).div_ceil(RUN_SLICES);
    assert_eq!(after.1 - before.1, SLICES * SLICE as u64 + runs * RUN_BYTES, "bytes that answer {requests} requests");
    let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
    for at in (0..source.len()).step_by(2 * SLICE) {
        assert!(destination[at..at + SLICE].iter().all(|&byte| byte == 0));
        assert!(destination[at + SLICE..at + 2 * SLICE] == source[at..at + SLICE], "at {at}");
    }
}

#[test]
fn without_checksums_it_is_the_networks_word() {
    const LEN: usize = 1 << 20;
    let (pair, relay) = relayed(LEN, |config| config.tcp.checksums = false);
    relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + 40_000, Ordering::SeqCst);
    assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
    let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
    assert_eq!(source.iter().zip(&destination).filter(|(a, b)| a != b).count(), 1);
}

#[test]
fn a_flipped_byte_in_a_header_ends_the_connection_and_what_it_carried_comes_anew() {
    const LEN: usize = 1 << 20;
    for byte in 0..8 {
        let (pair, relay) = relayed(LEN, |_| ());
        relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + byte, Ordering::SeqCst);
        let end = pair.read(LEN, 0, &[(0, 0)]);
        assert!(end.result.is_ok(), "byte {byte}: {end:?}");
        assert!(pair.reader.bytes() == pair.owner.bytes(), "byte {byte}");
        let counts = pair.reader.agent.counts();
        assert!(counts.rails_put_aside.contains(&(RailFault::Failed, 1)), "byte {byte}: {counts:?}");
        assert_eq!(counts.rails_returned, 1, "byte {byte}");
        assert!(counts.refused.contains(&(Refusal::Answer, 1)), "byte {byte}: {counts:?}");
    }
}

/// A peer that belongs to the cluster and asks for what it may not have, byte by byte of its request.
#[test]
fn a_request_that_lies_is_refused_counted_and_harms_nobody() {
    const LEN: usize = 1 << 20;
    // Its kind; its region; how many series; where the first begins, how far apart they are, their bytes, and how
    // many they are.
    for byte in
        [0, 1, 2, 3, 24, 25, 26, 27, 33, 34, 35, 40 + 3, 40 + 5, 40 + 7, 40 + 11, 40 + 18, 40 + 19, 40 + 22, 40 + 23]
    {
        let (pair, relay) = relayed(LEN, |_| ());
        relay.flip_asked.store(relay.asked.load(Ordering::SeqCst) + byte, Ordering::SeqCst);
        pair.post(LEN, 0, &[(0, 0)]);
        let requests = || {
            let refused = pair.owner.agent.counts().refused;
            refused.iter().find(|(why, _)| *why == Refusal::Request).map_or(0, |(_, count)| *count)
        };
        println!("byte {byte}");
        while requests() == 0 {
            std::thread::yield_now();
        }
        // Its own connection is over; the owner serves whoever asks for what there is.
        let honest = end(&Hub::new(), WorkerId(2), 1, LEN, |config| config.lanes = vec![Lane::Tcp]);
        honest.agent.introduce(pair.owner.info.clone());
        assert_eq!(honest.connect(OWNER), Lane::Tcp);
    }
}

#[test]
fn a_reader_that_does_not_read_stops_nobody() {
    const LEN: usize = 24 << 20;
    let only = |config: &mut AgentConfig| config.lanes = vec![Lane::Tcp];
    let owner = end(&Hub::new(), OWNER, 1, LEN, only);
    owner.fill();
    let mut quick = end(&Hub::new(), READER, 1, LEN, only);
    quick.agent.introduce(owner.info.clone());
    quick.connect(OWNER);
    // It is stopped by a relay that stops reading: the socket to it is full after a while.
    let relay = StuckRelay::new(&owner.agent.address().tcp);
    let stuck = end(&Hub::new(), WorkerId(2), 1, LEN, only);
    let mut info = owner.info.clone();
    info.address.tcp = relay.address.clone();
    stuck.agent.introduce(info);
    stuck.connect(OWNER);
    relay.stuck.store(1, Ordering::SeqCst);
    const PART: usize = LEN / POSTED_MAX;
    for part in 0..POSTED_MAX {
        stuck.post(OWNER, vec![batch(PART, 0, &[(0, (part * PART) as u64)])]);
    }
    let pair = |quick| Pair { owner: end(&Hub::new(), WorkerId(9), 1, 1, only), reader: quick };
    for _ in 0..3 {
        let both = pair(quick);
        assert!(both.read(LEN, 0, &[(0, 0)]).result.is_ok());
        quick = both.reader;
        assert!(quick.bytes() == owner.bytes());
    }
    stuck.hears_nothing();
    // The owner's loop raises its word as before.
    owner.word.raise(StepId(1), 0);
}

/// A relay that stops reading what the agent sends when it is told to.
struct StuckRelay {
    address: String,
    stuck: Arc<AtomicU64>,
}

impl StuckRelay {
    fn new(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let stuck = Arc::<AtomicU64>::default();
        let (to, stop) = (to.to_owned(), stuck.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { return };
                let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || pass(from_client, to_server, |_| ()));
                let stop = stop.clone();
                std::thread::spawn(move || {
                    pass(server, client, |_| {
                        while stop.load(Ordering::SeqCst) == 1 {
                            std::thread::sleep(MOMENT);
                        }
                    })
                });
            }
        });
        Self { address, stuck }
    }
}

#[test]
fn many_small_pieces_over_several_connections() {
    const PIECES: usize = 5000;
    const PIECE: usize = 700;
    let only = |config: &mut AgentConfig| {
        config.lanes = vec![Lane::Tcp];
        config.tcp.connections = 3;
    };
    let owner = end(&Hub::new(), OWNER, 1, PIECES * PIECE, only);
    owner.fill();
    let reader = end(&Hub::new(), READER, 1, PIECES * PIECE, only);
    reader.agent.introduce(owner.info.clone());
    reader.connect(OWNER);
    // Every piece to the place of another, so that no two are neighbours.
    let copies: Vec<_> = (0..PIECES).map(|i| ((i * PIECE) as u64, ((i * 7 + 3) % PIECES * PIECE) as u64)).collect();
    reader.post(OWNER, vec![batch(PIECE, 0, &copies)]);
    assert!(reader.ended().result.is_ok());
    let (source, destination) = (owner.bytes(), reader.bytes());
    for (from, to) in copies {
        let (from, to) = (from as usize, to as usize);
        assert!(destination[to..to + PIECE] == source[from..from + PIECE]);
    }
}

//! The machines at both ends of a connection for bytes, as a fuzzer feeds them: what the other end says, in pieces.

use super::engine::Engine;
use super::owner::{OwnerConnection, Turn, Waker};
use super::series::Series;
use super::wire::{Answer, Asked, REQUEST_HEAD, RUN_HEAD, RunHead};
use super::{JoinedRail, Order, Streams, TcpWay};
use crate::agent::config::{AgentConfig, TcpConfig};
use crate::agent::event::{AgentEvent, TransferError};
use crate::agent::link::{Link, Way};
use crate::agent::shared::AgentShared;
use crate::fuzzing::input::{How, known, pair, said};
use crate::net::socket::Socket;
use crate::regions::RegionId;
use crate::transfer::prepared::Prepared;
use crate::transfer::{Copies, Copy, ReadBatch};
use domain::{Dtype, Encoding, Incarnation, KvGroup, KvKind, KvLayout, KvPart, ModelLayout, WorkerId};
use kv_memory::Memory;
use kv_memory::SealedMemory;
use rustix::event::epoll::EventFlags;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Bytes of a region.
const LEN: usize = 4096;
/// What an owner's region is full of.
const FILLED: u8 = 0xB7;
/// What a reader's is full of where nothing was read to.
const UNTOUCHED: u8 = 0xAA;
/// An owner is not listened to beyond so many bytes.
const HEARD_MAX: usize = 1 << 20;
/// Pieces of the transfer that a reader has under way: where from, and where to, each of [`PIECE`] bytes.
const COPIES: [Copy; 3] = [Copy { from: 0, to: 64 }, Copy { from: 128, to: 512 }, Copy { from: 512, to: 1024 }];
const PIECE: usize = 64;

/// Returns what memory is made of: 32 bytes, or 20 encoded.
fn part() -> KvPart {
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 4), window: None }];
    KvLayout::whole(ModelLayout { block_tokens: 4, dtype: Dtype::Bf16, encoding: Encoding::Fp8, groups }).part(0)
}

fn memory(byte: u8, how: How) -> Arc<SealedMemory> {
    let memory = SealedMemory::new("fuzz", LEN).expect("memory");
    let memory = if how.encoded { memory.of_parts(part()) } else { memory };
    fill(&memory, byte);
    Arc::new(memory)
}

fn fill(memory: &SealedMemory, byte: u8) {
    // SAFETY: it is as long, and this thread alone has it.
    unsafe { memory.as_ptr().write_bytes(byte, LEN) };
}

fn bytes(memory: &SealedMemory) -> &[u8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(memory.as_ptr(), LEN) }
}

/// A reader speaks to the machine that serves it. It gets nothing but bytes of the region, however it asks: so
/// many answers.
pub(crate) fn owner(input: &[u8]) -> usize {
    let Some((how, asked)) = How::of(input) else { return 0 };
    let config = AgentConfig::in_process(WorkerId(0), Incarnation(1), "owner".to_owned(), 1);
    let agent = AgentShared::without_threads(config, None, Box::new(|_| true));
    agent.register(memory(FILLED, how));
    let withdrawn = agent.register(memory(FILLED, how));
    assert!(agent.deregister(withdrawn).is_ok());
    let (ours, theirs) = pair();
    let waker: Waker = Arc::new(|| ());
    let mut owner = OwnerConnection::new(Socket::plain(ours), WorkerId(1), Incarnation(1));
    let mut heard = Vec::new();
    for part in asked.chunks(how.piece) {
        said(&theirs, part);
        if owner.receive(&agent).is_err() {
            break;
        }
        owner.open(0);
        loop {
            let turn = owner.turn(&waker).expect("the other end is there");
            let more = hear(&theirs, &mut heard);
            if turn == Turn::Idle || !more || heard.len() > HEARD_MAX {
                break;
            }
        }
        if heard.len() > HEARD_MAX {
            break;
        }
    }
    let (mut rest, mut answers) = (heard.as_slice(), 0);
    while let Some((head, after)) = rest.split_first_chunk::<RUN_HEAD>() {
        let run = match Answer::decode(head).expect("it answers as it should") {
            Answer::Run(run) => run.len as usize,
            Answer::Refused { .. } => 0,
        };
        let (run, after) = after.split_at(run.min(after.len()));
        assert!(how.encoded || run.iter().all(|byte| *byte == FILLED), "bytes of the region alone");
        (rest, answers) = (after, answers + 1);
    }
    answers
}

/// Takes what the owner said. Whether it said something.
fn hear(socket: &OwnedFd, heard: &mut Vec<u8>) -> bool {
    let before = heard.len();
    let mut buffer = [0; 16 << 10];
    while let Ok((count, _)) = rustix::net::recv(socket, &mut buffer, rustix::net::RecvFlags::empty()) {
        heard.extend_from_slice(&buffer[..count]);
        if count == 0 {
            break;
        }
    }
    heard.len() > before
}

/// An owner answers the machine that reads over the lane, which has one transfer under way: nothing lands beside
/// its pieces or after its end, of which there is one. That, unless it had to be cancelled.
pub(crate) fn reader(input: &[u8]) -> Option<Result<(), TransferError>> {
    let (how, answers) = How::of(input)?;
    let memory = memory(UNTOUCHED, how);
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (quiet, noted) = (memory.clone(), ends.clone());
    let sink = move |event| {
        if let AgentEvent::Ended(end) = event {
            // From now on it is its owner's.
            fill(&quiet, UNTOUCHED);
            noted.lock().expect("nobody panics").push(end.result.map(drop));
        }
        true
    };
    let ended = || ends.lock().expect("nobody panics").first().copied();
    let config = AgentConfig::in_process(WorkerId(1), Incarnation(1), "reader".to_owned(), 1);
    let streams = Streams::new(1).expect("there are descriptors");
    let agent = Arc::new(AgentShared::without_threads(config, Some(streams), Box::new(sink)));
    let streams = agent.streams.as_ref()?;
    let (ours, theirs) = pair();
    let rails = vec![("a rail".to_owned(), Some(JoinedRail { socket: Socket::plain(ours), bytes_per_s: None }))];
    let way = Way::Tcp(TcpWay::new(BTreeMap::from([(RegionId(0), LEN as u64)]), rails));
    let link = Arc::new(Link::new(&known(), way, &agent.fair_shares));
    streams.lane_queue().ask(Order::Adopt(link.clone()));
    let region = RegionId(0);
    let copies = Copies::List(COPIES.to_vec());
    let batch = ReadBatch { source: region, destination: region, len: PIECE, gate: 0, copies };
    let tcp = TcpConfig { checksums: how.checksums, encoded: how.encoded, ..TcpConfig::default() };
    let own = |_| Some(memory.clone() as Arc<dyn Memory>);
    let prepared = Prepared::check(Arc::downgrade(&agent), link.clone(), vec![batch], &tcp, &Arc::default(), own);
    let prepared = prepared.expect("it fits");
    let id = agent.post(&prepared).expect("there is room");
    Engine::enter(&agent, streams).round();

    let mut asked = [0; REQUEST_HEAD];
    let count = rustix::net::recv(&theirs, &mut asked, rustix::net::RecvFlags::empty()).map(|(count, _)| count);
    assert_eq!(count, Ok(REQUEST_HEAD), "it asks at once");
    let Some(Asked::Read { transfer, .. }) = Asked::decode(&asked) else { panic!("it asks as it should") };
    for part in renumbered(answers, transfer).chunks(how.piece) {
        let mut engine = Engine::enter(&agent, streams);
        let open = engine.state.links.get(&(Arc::as_ptr(&link) as usize));
        // It closes the connection to who lies.
        let Some(connection) = open.and_then(|open| open.connections[0]) else { break };
        said(&theirs, part);
        engine.ready(connection, EventFlags::IN);
        engine.round();
    }
    let end = ended();
    let is_piece = |at: usize| COPIES.iter().any(|copy| (copy.to as usize..copy.to as usize + PIECE).contains(&at));
    let is_sound = |(at, byte): (usize, &u8)| *byte == UNTOUCHED || is_piece(at) && end.is_none();
    assert!(bytes(&memory).iter().enumerate().all(is_sound), "bytes beside the pieces, or after the end");
    agent.cancel(id);
    Engine::enter(&agent, streams).round();
    assert_eq!(ends.lock().expect("nobody panics").len(), 1);
    end
}

/// Answers to the transfer 1 as those to another.
fn renumbered(answers: &[u8], transfer: u64) -> Vec<u8> {
    let (mut answers, mut at) = (answers.to_vec(), 0);
    while let Some(head) = answers.get(at..).and_then(|rest| rest.first_chunk::<RUN_HEAD>()) {
        let answer = Answer::decode(head);
        if answer.is_some_and(|answer| answer.transfer() == 1) {
            answers[at + 16..at + 24].copy_from_slice(&transfer.to_le_bytes());
        }
        let run = match answer {
            Some(Answer::Run(head)) => head.len as usize,
            Some(Answer::Refused { .. }) | None => 0,
        };
        at += RUN_HEAD + run;
    }
    answers
}

/// Returns what a reader says on good days, and on some others.
pub(crate) fn owner_seeds() -> Vec<Vec<u8>> {
    let read = |region, gate, series: &[Series], part: Option<KvPart>| {
        let part = part.map(|part| part.fingerprint());
        let count = series.len() as u32;
        let asked = Asked::Read { transfer: 1, gate, region, first: 0, series: count, checksums: true, part };
        let series = series.iter().flat_map(|series| series.encode());
        asked.encode().into_iter().chain(series).collect::<Vec<u8>>()
    };
    let strided = Series { from: 64, stride: 128, len: 64, count: 30 };
    let plain = [strided, Series { from: 0, stride: 0, len: 4096, count: 1 }];
    let cancel = Asked::Cancel { transfer: 1 }.encode();
    vec![
        How::PLAIN.before(&read(0, 0, &plain, None)),
        How::PLAIN.before(&[read(0, 9, &plain, None).as_slice(), &cancel, &read(1, 0, &plain, None)].concat()),
        How::ENCODED.before(&read(0, 0, &[strided], Some(part()))),
    ]
}

/// Returns what an owner says on good days, and on some others.
pub(crate) fn reader_seeds() -> Vec<Vec<u8>> {
    let run = |first, count: u32, len: usize, body: usize| {
        let head = RunHead { transfer: 1, first, count, len: (count as usize * len) as u32, sum: 5 };
        [Answer::Run(head).encode().as_slice(), &vec![1; count as usize * body]].concat()
    };
    let encoded = part().stored_bytes_of(PIECE);
    let (late, refused) = (run(0, 3, PIECE, PIECE), Answer::Refused { transfer: 1 }.encode());
    vec![
        How::PLAIN.before(&run(0, 3, PIECE, PIECE)),
        How::PLAIN.before(&[run(2, 1, PIECE, PIECE), run(0, 2, PIECE, PIECE), late.clone()].concat()),
        How::PLAIN.before(&[run(0, 1, PIECE, PIECE).as_slice(), &refused, &late].concat()),
        How::CHECKED.before(&run(0, 3, PIECE, PIECE)),
        How::ENCODED.before(&run(0, 3, encoded, encoded)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_on_good_days_is_understood() {
        let answers: Vec<_> = owner_seeds().iter().map(|seed| owner(seed)).collect();
        // The second is a refusal: what was asked before was taken back.
        assert!(answers[0] > 0 && answers[1] == 1 && answers[2] > 0, "{answers:?}");
        let ends: Vec<_> = reader_seeds().iter().map(|seed| reader(seed)).collect();
        let (withdrawn, corrupted) = (TransferError::Withdrawn, TransferError::Corrupted);
        assert_eq!(ends, [Some(Ok(())), Some(Ok(())), Some(Err(withdrawn)), Some(Err(corrupted)), Some(Ok(()))]);
    }
}

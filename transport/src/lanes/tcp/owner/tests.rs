//! What an owner answers, and what it refuses.

use super::*;
use crate::agent::config::AgentConfig;
use crate::agent::rdma::RdmaError;
use crate::agent::shared::AgentParts;
use crate::lanes::local::Hub;
use crate::net::control::Control;
use crate::wake::watch::Watched;
use domain::session::PeerAddress;
use domain::{Dtype, Encoding, KvGroup, KvKind, KvLayout, ModelLayout, ProgressWord, StepId};
use kv_memory::SealedMemory;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const LEN: usize = 4096;

/// Returns what its second region is made of: 32 bytes, or 20 encoded.
fn part() -> KvPart {
    let groups = vec![KvGroup { layers: vec![0], kind: KvKind::of_heads(1, 4), window: None }];
    KvLayout::whole(ModelLayout { block_tokens: 4, dtype: Dtype::Bf16, encoding: Encoding::Fp8, groups }).part(0)
}

fn agent(word: &ProgressWord) -> AgentShared {
    let agent = AgentShared::new(AgentParts {
        config: AgentConfig::in_process(WorkerId(0), Incarnation(1), "owner".to_owned(), 1),
        address: PeerAddress::default(),
        hub: Hub::new(),
        progress: Watched::new(word.clone(), None).expect("nobody else watches it"),
        control: Control::new().expect("there are descriptors"),
        streams: None,
        verbs: Err(RdmaError::NotListening),
        sink: Box::new(|_| true),
    });
    agent.register(Arc::new(SealedMemory::new("test", LEN).expect("memory")));
    agent.register(Arc::new(SealedMemory::new("test", LEN).expect("memory").of_parts(part())));
    agent
}

fn waker() -> Waker {
    Arc::new(|| ())
}

fn connection() -> (OwnerConnection, UnixStream) {
    let (own, peer) = UnixStream::pair().expect("there are descriptors");
    own.set_nonblocking(true).expect("it is a socket");
    (OwnerConnection::new(Socket::plain(own.into()), WorkerId(1), Incarnation(1)), peer)
}

fn read(region: u32, gate: u64, pieces: &[(u64, u32)]) -> Vec<u8> {
    let series: Vec<_> = pieces.iter().map(|&(from, len)| Series { from, stride: 0, len, count: 1 }).collect();
    read_series(region, gate, &series)
}

fn read_series(region: u32, gate: u64, series: &[Series]) -> Vec<u8> {
    request(region, gate, series, None)
}

fn read_encoded(region: u32, part: u32, series: &[Series]) -> Vec<u8> {
    request(region, 0, series, Some(part))
}

fn request(region: u32, gate: u64, series: &[Series], part: Option<u32>) -> Vec<u8> {
    let count = series.len() as u32;
    let checksums = part.is_some();
    let asked = Asked::Read { transfer: 5, gate, region, first: 0, series: count, checksums, part };
    let mut bytes = asked.encode().to_vec();
    series.iter().for_each(|series| bytes.extend_from_slice(&series.encode()));
    bytes
}

#[test]
fn what_may_not_be_asked_is_refused() {
    let agent = agent(&ProgressWord::new());
    let (whole, parts) = (part().fingerprint(), Series { from: 64, stride: 128, len: 64, count: 3 });
    let refused = [
        (vec![0; REQUEST_HEAD], "a request that is none"),
        (vec![0xFF; REQUEST_HEAD], "a request that is none"),
        (read(2, 0, &[(0, 1)]), "there is no region 2"),
        (read(3, 0, &[(0, 1)]), "there is no region 3"),
        (read(0, 0, &[(0, 0)]), "0 bytes from 0"),
        (read(0, 0, &[(0, 1), (LEN as u64, 1)]), "1 bytes from 4096"),
        (read(0, 0, &[(u64::MAX, 2)]), "2 bytes from 18446744073709551615"),
        (read(0, 0, &[(0, u32::MAX)]), "4294967295 bytes from 0"),
        (read_series(0, 0, &[Series { from: 6, stride: 4096, len: 1, count: 2 }]), "4096 apart"),
        (read_series(0, 0, &[Series { from: 6, stride: u64::MAX, len: 1, count: 9 }]), "9 times 1 bytes"),
        (read_series(0, 0, &[Series { from: 0, stride: 0, len: 1, count: 0 }]), "0 times 1 bytes"),
        (read_series(0, 0, &[Series { from: 0, stride: 0, len: 1, count: 16_385 }]), "16385 pieces"),
        (read_encoded(0, whole, &[parts]), "not made of the parts"),
        (read_encoded(1, whole ^ 1, &[parts]), "not made of the parts"),
        (read_encoded(1, whole, &[parts, Series { from: 31, ..parts }]), "64 bytes from 31"),
        (read_encoded(1, whole, &[Series { stride: 48, ..parts }]), "48 apart"),
        (read_encoded(1, whole, &[Series { len: 63, ..parts }]), "63 bytes"),
        (read_encoded(1, whole, &[Series { from: LEN as u64, ..parts }]), "64 bytes from 4096"),
    ];
    for (bytes, expect) in refused {
        let (mut owner, mut peer) = connection();
        peer.write_all(&bytes).expect("it is open");
        let error = owner.receive(&agent).expect_err(expect);
        assert!(
            matches!(&error, ChannelError::Refused(Refusal::Request, reason) if reason.contains(expect)),
            "{error}"
        );
    }
    // More than is remembered at once.
    let (mut owner, mut peer) = connection();
    let many = read(0, u64::MAX, &[(0, 1); 1024]);
    let mut asked = 0;
    let end = loop {
        peer.write_all(&many).expect("it is open");
        match owner.receive(&agent) {
            Ok(_) => asked += 1,
            Err(end) => break end,
        }
        assert!(asked <= PIECES_OPEN_MAX / 1024 + 1);
    };
    assert!(matches!(&end, ChannelError::Refused(Refusal::Request, reason) if reason.contains("at once")), "{end}");
}

#[test]
fn a_withdrawn_region_is_refused_read_by_read() {
    let agent = agent(&ProgressWord::new());
    let (mut owner, mut peer) = connection();
    assert!(agent.deregister(RegionId(0)).is_ok());
    // One of the two is taken back before it is answered.
    for _ in 0..2 {
        peer.write_all(&read(0, 0, &[(0, 1)])).expect("it is open");
    }
    assert_eq!((owner.receive(&agent).ok(), owner.open_pieces), (Some(true), 2));
    assert_eq!(owner.turn(&waker()).ok(), Some(Turn::Idle));
    let mut answers = [0; 2 * RUN_HEAD];
    peer.read_exact(&mut answers).expect("it is answered");
    for answer in answers.as_chunks::<RUN_HEAD>().0 {
        assert_eq!(Answer::decode(answer), Some(Answer::Refused { transfer: 5 }));
    }
    peer.write_all(&read(0, 0, &[(0, 1)])).expect("it is open");
    peer.write_all(&Asked::Cancel { transfer: 5 }.encode()).expect("it is open");
    assert_eq!((owner.receive(&agent).ok(), owner.open_pieces), (Some(false), 0));
    let refused = agent.counts.now().refused.into_iter().find(|(why, _)| *why == Refusal::Region);
    assert_eq!(refused.map(|(_, count)| count), Some(3));
}

#[test]
fn requests_come_in_parts_wait_for_their_gates_and_are_taken_back() {
    let word = ProgressWord::new();
    let agent = agent(&word);
    let (mut owner, mut peer) = connection();
    let bytes = read(0, ProgressWord::mark(StepId(1), 0), &[(0, 10), (100, 20)]);
    for byte in &bytes {
        peer.write_all(&[*byte]).expect("it is open");
        assert_eq!(owner.receive(&agent).ok(), Some(false));
    }
    assert!(owner.waits() && !owner.open(word.get()));
    word.raise(StepId(1), 0);
    assert!(owner.open(word.get()) && !owner.waits());
    assert_eq!(owner.turn(&waker()).ok(), Some(Turn::Idle));
    let mut answer = [0; RUN_HEAD + 30];
    peer.read_exact(&mut answer).expect("it is answered");
    let head = Answer::decode(answer[..RUN_HEAD].try_into().expect("so long"));
    assert_eq!(head, Some(Answer::Run(RunHead { transfer: 5, first: 0, count: 2, len: 30, sum: 0 })));

    peer.write_all(&read(0, u64::MAX, &[(0, 10)])).expect("it is open");
    peer.write_all(&Asked::Cancel { transfer: 5 }.encode()).expect("it is open");
    assert_eq!(owner.receive(&agent).ok(), Some(false));
    assert_eq!((owner.waits(), owner.open_pieces), (false, 0));
    drop(peer);
    assert!(matches!(owner.receive(&agent), Err(ChannelError::Closed)));
}

#[test]
fn what_opens_is_answered_in_the_order_in_which_it_was_asked_for() {
    let word = ProgressWord::new();
    let agent = agent(&word);
    let (mut owner, mut peer) = connection();
    let asked = [(1, 10), (2, 20), (1, 30), (2, 40), (1, 50)];
    for (step, len) in asked {
        peer.write_all(&read(0, ProgressWord::mark(StepId(step), 0), &[(0, len)])).expect("it is open");
    }
    assert_eq!(owner.receive(&agent).ok(), Some(false));
    for step in [1, 2] {
        word.raise(StepId(step), 0);
        assert!(owner.open(word.get()));
        assert_eq!(owner.turn(&waker()).ok(), Some(Turn::Idle));
        for (_, len) in asked.into_iter().filter(|&(behind, _)| behind == step) {
            let mut answer = vec![0; RUN_HEAD + len as usize];
            peer.read_exact(&mut answer).expect("it is answered");
            let head = Answer::decode(answer[..RUN_HEAD].try_into().expect("so long"));
            assert_eq!(head, Some(Answer::Run(RunHead { transfer: 5, first: 0, count: 1, len, sum: 0 })));
        }
    }
    assert!(!owner.waits());
}

#[test]
fn parts_are_sent_encoded_with_the_checksum_of_that() {
    let agent = agent(&ProgressWord::new());
    let memory = agent.region(RegionId(1)).expect("it is registered");
    let bytes: Vec<u8> = (0..LEN).map(|at| (at * 37 % 251) as u8).collect();
    // SAFETY: the memory is as long, and nobody else uses it.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.place().host().expect("it is host memory"), LEN) };
    let series =
        [Series { from: 64, stride: 128, len: 64, count: 3 }, Series { from: 0, stride: 0, len: 32, count: 1 }];
    let wanted = [&bytes[64..128], &bytes[192..256], &bytes[320..384], &bytes[..32]].concat();
    let mut encoded = vec![0; part().stored_bytes_of(wanted.len())];
    part().encode(&wanted, &mut encoded);

    let (mut owner, mut peer) = connection();
    peer.write_all(&read_encoded(1, part().fingerprint(), &series)).expect("it is open");
    assert_eq!(owner.receive(&agent).ok(), Some(true));
    assert_eq!(owner.turn(&waker()).ok(), Some(Turn::Idle));
    let mut answer = vec![0; RUN_HEAD + encoded.len()];
    peer.read_exact(&mut answer).expect("it is answered");
    let head = Answer::decode(answer[..RUN_HEAD].try_into().expect("so long"));
    let run = RunHead { transfer: 5, first: 0, count: 4, len: encoded.len() as u32, sum: checksum(&encoded) };
    assert_eq!(head, Some(Answer::Run(run)));
    assert!(answer[RUN_HEAD..] == encoded);
}

//! KV that travels encoded: it arrives as its encoding has it, bit for bit, in fewer bytes; what cannot travel so
//! arrives as it is. What every way of reading does alike is tested with the others.

use crate::ends::*;
use crate::tcp::{Relay, between};
use domain::{Dtype, Encoding, KvPart};
use proptest::prelude::*;
use std::sync::atomic::Ordering;
use transport::{AgentConfig, Hub, Lane, RailFault, Refusal, TransferError};

/// Parts of all number formats and both encodings: of one group, of several, and with one that is not full; the
/// last is larger than what is copied at once to be encoded.
fn parts() -> Vec<KvPart> {
    let shapes = [(4, 4), (16, 64), (18, 67), (64, 160)];
    let formats = [Dtype::F32, Dtype::F16, Dtype::Bf16].map(|dtype| [(dtype, Encoding::Int8), (dtype, Encoding::Fp8)]);
    let part = |(tokens, dim)| formats.concat().into_iter().map(move |(dtype, to)| part_of(tokens, dtype, to, dim));
    shapes.into_iter().flat_map(part).collect()
}

/// Any bytes: numbers of all sizes, and what is none.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 11_u64;
    let draw = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(draw).collect()
}

fn encoded(config: &mut AgentConfig) {
    (config.lanes, config.tcp.encoded) = (vec![Lane::Tcp], true);
}

/// An owner that is full of noise, and a reader that asks for it encoded.
fn ends(part: KvPart, len: usize, change: impl Fn(&mut AgentConfig)) -> (End, End) {
    let end = |id| {
        end_of_parts(part, &Hub::new(), id, 1, len, |config| {
            encoded(config);
            change(config);
        })
    };
    let (owner, reader) = (end(OWNER), end(READER));
    owner.write(&noise(len));
    (owner, reader)
}

fn pair_of(part: KvPart, len: usize, change: impl Fn(&mut AgentConfig)) -> Pair {
    let (owner, reader) = ends(part, len, change);
    let pair = Pair { owner, reader };
    pair.introduce();
    pair.reader.connect(OWNER);
    pair
}

fn relayed(len: usize, change: impl Fn(&mut AgentConfig)) -> (Pair, Relay) {
    let (owner, reader) = ends(part(), len, change);
    between(owner, reader)
}

/// What the reader has when `copies` of `len` bytes have come of `source`, encoded.
fn expected(part: KvPart, source: &[u8], len: usize, copies: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; source.len()];
    for &(from, to) in copies {
        let mut copy = source[from as usize..from as usize + len].to_vec();
        through(part, &mut copy);
        bytes[to as usize..to as usize + len].copy_from_slice(&copy);
    }
    bytes
}

#[test]
fn parts_arrive_as_their_encoding_has_them_and_in_fewer_bytes() {
    for (n, part) in parts().into_iter().enumerate() {
        // Each several ways by turns: encrypted or not, with checksums or not, over one connection or some.
        let pair = pair_of(part, 40 * part.bytes(), |config| {
            (config.tls, config.tcp.checksums) = ((n % 2 == 0).then(crate::certificates::good), n % 3 > 0);
            config.tcp.connections = 1 + (n % 4 == 3) as u16 * 2;
        });
        let at = |part_number: usize| (part_number * part.bytes()) as u64;
        // One part, some of different places, neighbours that are merged, and all: more than fits a run.
        let reads = [
            (1, vec![(at(3), at(3))]),
            (2, vec![(at(0), at(6)), (at(4), at(0)), (at(38), at(10))]),
            (5, (0..8).map(|n| (at(n * 5), at(n * 5))).collect()),
            (40, vec![(0, 0)]),
        ];
        for (count, copies) in reads {
            pair.reader.wipe();
            let len = count * part.bytes();
            let report = pair.read(len, 0, &copies).result.expect("it comes");
            let wire_bytes = (copies.len() * part.stored_bytes_of(len)) as u64;
            assert_eq!((report.bytes, report.wire_bytes), ((copies.len() * len) as u64, wire_bytes), "{part:?}");
            assert!(
                pair.reader.bytes() == expected(part, &pair.owner.bytes(), len, &copies),
                "{part:?}, {count} parts"
            );
        }
        let (_, status) = pair.reader.agent.lanes().remove(0);
        assert_eq!((status.lane, status.encoding), (Lane::Tcp, part.encoding()));
    }
}

#[test]
fn large_reads_are_cut_between_parts() {
    // Of these 262,144 bytes are no whole number.
    let part = part_of(18, Dtype::Bf16, Encoding::Int8, 67);
    let len = 2000 * part.bytes();
    let pair = pair_of(part, len, |config| config.tcp.connections = 2);
    let report = pair.read(len, 0, &[(0, 0)]).result.expect("it comes");
    assert_eq!(report.wire_bytes, part.stored_bytes_of(len) as u64);
    assert!(pair.reader.bytes() == expected(part, &pair.owner.bytes(), len, &[(0, 0)]));
    let (_, reads) = pair.reader.agent.counts().reads.into_iter().find(|(lane, _)| *lane == Lane::Tcp).expect("one");
    assert_eq!((reads.transfers, reads.bytes, reads.wire_bytes), (1, len as u64, report.wire_bytes));
}

#[test]
fn what_is_not_whole_parts_arrives_as_it_is() {
    let (part, len) = (part(), 4096);
    let pair = pair_of(part, len, |_| ());
    let bytes = part.bytes() as u64;
    let reads: [(usize, &[(u64, u64)]); 4] =
        [(64, &[(1, 0)]), (64, &[(0, 1)]), (63, &[(0, 0)]), (64, &[(0, 0), (8 * bytes, 8 * bytes + 2)])];
    for (len, copies) in reads {
        pair.reader.wipe();
        let report = pair.read(len, 0, copies).result.expect("it comes");
        assert_eq!(report.wire_bytes, report.bytes);
        let (source, destination) = (pair.owner.bytes(), pair.reader.bytes());
        for &(from, to) in copies {
            assert_eq!(destination[to as usize..][..len], source[from as usize..][..len]);
        }
    }
    // Where encoded parts are no smaller, nothing is gained.
    let part = part_of(1, Dtype::Bf16, Encoding::Int8, 1);
    assert!(part.stored_bytes() > part.bytes());
    let pair = pair_of(part, len, |_| ());
    let report = pair.read(len, 0, &[(0, 0)]).result.expect("it comes");
    assert_eq!((report.wire_bytes, pair.reader.bytes()), (len as u64, pair.owner.bytes()));
}

#[test]
fn who_does_not_ask_for_it_and_other_lanes_get_what_there_is() {
    const LEN: usize = 4096;
    let only = |over: Over, encoded: bool| {
        move |config: &mut AgentConfig| {
            over.only()(config);
            config.tcp.encoded = encoded;
        }
    };
    for (over, owner_reads, reader_reads) in lanes().into_iter().map(|lane| (Over::from(lane), true, lane != Lane::Tcp))
    {
        let hubs = hubs(over);
        let owner = end(&hubs.0, OWNER, 1, LEN, only(over, owner_reads));
        owner.write(&noise(LEN));
        let reader = end(&hubs.1, READER, 1, LEN, only(over, reader_reads));
        let pair = Pair { owner, reader };
        pair.introduce();
        pair.reader.connect(OWNER);
        let report = pair.read(LEN, 0, &[(0, 0)]).result.expect("it comes");
        assert_eq!((report.bytes, report.wire_bytes), (LEN as u64, LEN as u64), "over {over}");
        assert_eq!(pair.reader.bytes(), pair.owner.bytes(), "over {over}");
        assert_eq!(pair.reader.agent.lanes()[0].1.encoding, Encoding::Exact);
    }
}

#[test]
fn a_flipped_byte_is_an_error_and_no_byte_of_its_run_is_delivered() {
    const LEN: usize = 128 << 10;
    let (pair, relay) = relayed(LEN, |_| ());
    relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + 40_000, Ordering::SeqCst);
    assert_eq!(pair.read(LEN, 0, &[(0, 0)]).result, Err(TransferError::Corrupted));
    assert_eq!(pair.reader.bytes(), vec![0; LEN], "it is one run");
    assert_eq!(pair.reader.agent.counts().corrupted, 1);
    relay.flip_at.store(u64::MAX, Ordering::SeqCst);
    assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
    assert!(pair.reader.bytes() == expected(part(), &pair.owner.bytes(), LEN, &[(0, 0)]));
}

#[test]
fn without_checksums_it_is_the_networks_word() {
    const LEN: usize = 128 << 10;
    let (pair, relay) = relayed(LEN, |config| config.tcp.checksums = false);
    // A code, not a scale: each part has four bytes of scale and sixteen of codes.
    let place = 2000 * part().stored_bytes() as u64 + 10;
    relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + 32 + place, Ordering::SeqCst);
    assert!(pair.read(LEN, 0, &[(0, 0)]).result.is_ok());
    let expected = expected(part(), &pair.owner.bytes(), LEN, &[(0, 0)]);
    let got = pair.reader.bytes();
    let differ = |(a, b): (&[u8], &[u8])| a != b;
    assert_eq!(got.chunks(32).zip(expected.chunks(32)).filter(|&parts| differ(parts)).count(), 1);
}

#[test]
fn a_flipped_byte_in_a_header_ends_the_connection_and_what_it_carried_comes_anew() {
    const LEN: usize = 1 << 20;
    for byte in [0, 4, 8, 12, 13] {
        let (pair, relay) = relayed(LEN, |_| ());
        relay.flip_at.store(relay.sent.load(Ordering::SeqCst) + byte, Ordering::SeqCst);
        let end = pair.read(LEN, 0, &[(0, 0)]);
        assert!(end.result.is_ok(), "byte {byte}: {end:?}");
        assert!(pair.reader.bytes() == expected(part(), &pair.owner.bytes(), LEN, &[(0, 0)]), "byte {byte}");
        let counts = pair.reader.agent.counts();
        assert!(counts.rails_put_aside.contains(&(RailFault::Failed, 1)), "byte {byte}: {counts:?}");
        assert!(counts.refused.contains(&(Refusal::Answer, 1)), "byte {byte}: {counts:?}");
    }
}

/// Agents of one layout register alike, so nobody asks for what the owner has not, but one that is wrong.
#[test]
fn who_takes_a_region_for_other_parts_is_refused_and_counted() {
    const LEN: usize = 1 << 20;
    for other in [part_of(4, Dtype::Bf16, Encoding::Fp8, 4), part_of(4, Dtype::F16, Encoding::Int8, 4)] {
        let owner = end_of_parts(other, &Hub::new(), OWNER, 1, LEN, encoded);
        let reader = end(&Hub::new(), READER, 1, LEN, encoded);
        let pair = Pair { owner, reader };
        pair.introduce();
        pair.reader.connect(OWNER);
        pair.post(LEN, 0, &[(0, 0)]);
        let refused = || {
            let refused = pair.owner.agent.counts().refused;
            refused.iter().find(|(why, _)| *why == Refusal::Request).map_or(0, |(_, count)| *count)
        };
        while refused() == 0 {
            std::thread::yield_now();
        }
        assert_eq!(pair.reader.bytes(), vec![0; LEN]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.min(48)))]

    /// Whole parts of any places arrive, encoded, and nothing else changes.
    #[test]
    fn any_parts_arrive(
        part in prop::sample::select(parts()), tls: bool, checksums: bool,
        count in 1_usize..6, places in proptest::collection::vec(0_usize..40, 1..12),
    ) {
        let (len, bytes) = (count * part.bytes(), part.bytes());
        let pair = pair_of(part, 80 * bytes, |config| {
            (config.tls, config.tcp.checksums) = (tls.then(crate::certificates::good), checksums);
        });
        let copies: Vec<_> =
            places.iter().enumerate().map(|(n, &from)| ((from * bytes) as u64, (n * len) as u64)).collect();
        let report = pair.read(len, 0, &copies).result.expect("it comes");
        prop_assert_eq!(report.wire_bytes, (copies.len() * part.stored_bytes_of(len)) as u64);
        prop_assert!(pair.reader.bytes() == expected(part, &pair.owner.bytes(), len, &copies));
    }
}

//! What a fuzzer feeds here: bytes as a peer may send them, to everything that reads them. What can be read must
//! be read alike once it is written again.

pub(crate) mod input;

use crate::agent::metadata;
use crate::fields::read_region;
use crate::lanes::rdma::fuzzing::{exchange, seeds as exchange_seeds};
use crate::lanes::rdma::fuzzing_ends as rdma_ends;
use crate::lanes::tcp::fuzzing::{seeds as wire_seeds, wire};
use crate::lanes::tcp::fuzzing_ends::{owner, owner_seeds, reader, reader_seeds};
use crate::net::HELLO_BYTES_MAX;
use crate::net::control::channel::Channel;
use crate::net::control::fuzzing::{connected, seeds as control_seeds, serving};
use crate::net::control::hello::{
    Identity, Introduction, Purpose, Region, RegionPlace, VERSIONS, check_opening, opening,
};
use crate::net::socket::Socket;
use crate::regions::RegionId;
use crate::wire_error::WireError;
use domain::{Incarnation, WorkerId};
use input::{frame, known, pair, said};

/// The layout that metadata is imported for.
const LAYOUT: u64 = 9;

/// What comes over a control connection: frames, and what agents say in them before anything else.
pub fn control(bytes: &[u8]) {
    let (ours, theirs) = pair();
    let mut channel = Channel::new(Socket::plain(ours), true);
    for part in bytes.chunks(HELLO_BYTES_MAX) {
        said(&theirs, part);
        while channel.fill().is_ok_and(|more| more) {}
        loop {
            match channel.next(HELLO_BYTES_MAX) {
                Ok(Some(frame)) => {
                    assert!(frame.body.len() <= HELLO_BYTES_MAX);
                    body(&frame.body);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// The body of a frame, whatever kind it is said to be.
fn body(bytes: &[u8]) {
    let _ = check_opening(bytes, VERSIONS);
    if let Ok(introduction) = Introduction::decode(bytes) {
        let again = Introduction::decode(&introduction.encode());
        assert_eq!(format!("{again:?}"), format!("{:?}", Ok::<_, WireError>(introduction)));
    }
    if let Ok(identity) = Identity::decode(bytes) {
        assert_eq!(Identity::decode(&identity.encode()), Ok(identity));
    }
    if let Ok(region) = Region::decode(bytes) {
        assert_eq!(Region::decode(&region.encode()), Ok(region));
    }
    let _ = read_region(bytes);
}

/// What either end of a control connection hears, by the machine that hears it.
pub fn control_ends(bytes: &[u8]) {
    serving(bytes);
    connected(bytes);
}

/// What an owner is asked for over a connection for bytes, by the machine that answers.
pub fn tcp_owner(bytes: &[u8]) {
    owner(bytes);
}

/// What a reader is answered over a connection for bytes, by the machine that has asked.
pub fn tcp_reader(bytes: &[u8]) {
    reader(bytes);
}

/// What comes over a connection for bytes.
pub fn tcp_wire(bytes: &[u8]) {
    wire(bytes);
}

/// What comes over a connection by which the lane `rdma` is agreed on.
pub fn rdma_exchange(bytes: &[u8]) {
    exchange(bytes);
}

/// What an owner is told over such a connection, by the machine that serves queue pairs.
pub fn rdma_owner(bytes: &[u8]) {
    rdma_ends::owner(bytes);
}

/// What a reader is told over such a connection, by the machine that keeps keys and the progress word.
pub fn rdma_reader(bytes: &[u8]) {
    rdma_ends::reader(bytes);
}

/// Metadata of another agent.
pub fn metadata(bytes: &[u8]) {
    if let Ok(known) = metadata::import(bytes, LAYOUT) {
        assert_eq!(metadata::export(&known, LAYOUT), bytes);
    }
}

/// Returns what peers say on good days, to begin from.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let to = (WorkerId(3), Incarnation(4));
    let introductions = [Purpose::Control, Purpose::Bytes, Purpose::Queues, Purpose::Devices]
        .map(|purpose| frame(3, &Introduction { purpose, from: known(), to, fingerprint: LAYOUT }.encode()));
    let (challenge, identity) = (opening([6; 32]), Identity { who: to, fingerprint: LAYOUT }.encode());
    let region = Region { id: RegionId(7), len: 1 << 40, place: RegionPlace::File(4096) }.encode();
    let [asked, asked_encoded, answered] = wire_seeds();
    let mut seeds = vec![
        ("control", introductions.concat()),
        (
            "control",
            [frame(2, &challenge), frame(10, &identity), frame(5, &region), frame(9, &7_u32.to_le_bytes())].concat(),
        ),
        ("tcp_wire", asked),
        ("tcp_wire", asked_encoded),
        ("tcp_wire", answered),
        ("metadata", metadata::export(&known(), LAYOUT)),
    ];
    seeds.extend(control_seeds().into_iter().map(|bytes| ("control_ends", bytes)));
    seeds.extend(owner_seeds().into_iter().map(|bytes| ("tcp_owner", bytes)));
    seeds.extend(reader_seeds().into_iter().map(|bytes| ("tcp_reader", bytes)));
    seeds.extend(exchange_seeds().into_iter().map(|bytes| ("rdma_exchange", bytes)));
    seeds.extend(rdma_ends::owner_seeds().into_iter().map(|bytes| ("rdma_owner", bytes)));
    seeds.extend(rdma_ends::reader_seeds().into_iter().map(|bytes| ("rdma_reader", bytes)));
    seeds
}

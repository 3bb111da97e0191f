//! What is shown.

use crate::owner::Owner;
use crate::reader::{LAYOUT, LEN, OWNER, Reader, UNTOUCHED, byte};
use domain::{ProgressWord, StepId};
use std::sync::Arc;
use transport::{AgentEvent, Copy, RailCounts, ReadBatch, RegionId, SealedMemory, TransferError};

const SCENARIOS: [(&str, fn()); 11] = [
    ("reads_of_every_size", reads_of_every_size),
    ("reads_of_every_stride", reads_of_every_stride),
    ("reads_over_two_devices", reads_over_two_devices),
    ("a_device_fails_and_comes_back", a_device_fails_and_comes_back),
    ("a_device_is_down_at_first", a_device_is_down_at_first),
    ("a_device_dies_while_the_other_is_idle", a_device_dies_while_the_other_is_idle),
    ("layers_are_read_as_they_are_written", layers_are_read_as_they_are_written),
    ("cancelled_under_load", cancelled_under_load),
    ("the_owner_is_killed_and_returns", the_owner_is_killed_and_returns),
    ("a_region_is_withdrawn_while_it_is_read", a_region_is_withdrawn_while_it_is_read),
    ("another_layout_is_refused", another_layout_is_refused),
];

/// Runs those whose names contain `only`. Ends the process with an error at the first that fails.
pub(crate) fn run(only: Option<&str>) {
    for (name, scenario) in SCENARIOS.iter().filter(|(name, _)| only.is_none_or(|only| name.contains(only))) {
        println!("rdma: {name}");
        scenario();
    }
    println!("rdma: all is well");
}

fn reads_of_every_size() {
    let owner = Owner::start(1, LAYOUT);
    let reader = Reader::connected(&owner);
    // Around what packets, pages and parts of a read hold.
    for len in [1, 7, 64, 1023, 4095, 4096, 4097, 65_537, 256 << 10, (256 << 10) + 1, (1 << 20) + 13] {
        reader.check(len, &[(3, 5)]);
        reader.check(len, &[(LEN - len, 0)]);
    }
    reader.check(LEN, &[(0, 0)]);
}

fn reads_of_every_stride() {
    let owner = Owner::start(1, LAYOUT);
    let reader = Reader::connected(&owner);
    for (len, stride, count) in [(1, 3, 500), (100, 128, 300), (4096, 8192, 100), (10_000, 10_007, 200)] {
        let strided = |at: usize| at * stride;
        let spread: Vec<_> = (0..count).map(|at| (strided(at), at * len)).collect();
        reader.check(len, &spread);
        let reversed: Vec<_> = (0..count).map(|at| (at * len, strided(count - 1 - at))).collect();
        reader.check(len, &reversed);
    }
}

fn reads_over_two_devices() {
    let Some(devices) = two_devices() else { return };
    let devices = devices.each_ref().map(String::as_str);
    let packets = |device: &str| {
        let counter = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/rcvd_pkts");
        // Of Soft-RoCE; other drivers have other counters.
        let count = std::fs::read_to_string(counter).ok()?;
        count.trim().parse::<u64>().ok()
    };
    let before = devices.map(packets);
    let owner = Owner::start_with(1, LAYOUT, &devices);
    let reader = Reader::connected_with(&owner, &devices);
    for (len, count) in [(LEN, 1), (30_000, 200), (1, 1)] {
        let copies: Vec<_> = (0..count).map(|at| (at * len, at * len)).collect();
        reader.check(len, &copies);
    }
    let after = devices.map(packets);
    let grew =
        |(before, after): (Option<u64>, Option<u64>)| before.is_none() || after > before.map(|count| count + 500);
    assert!(before.into_iter().zip(after).all(grew), "packets of {devices:?}: {before:?}, then {after:?}");
}

/// The names of all devices.
fn devices() -> Vec<String> {
    let entries = std::fs::read_dir(crate::DEVICES).expect("there are devices");
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The names of two devices, where there are two.
fn two_devices() -> Option<[String; 2]> {
    let devices = devices().into_iter().take(2).collect::<Vec<_>>().try_into().ok();
    if devices.is_none() {
        println!("rdma: skipped, since there is one device alone");
    }
    devices
}

/// The network that the second of two devices is on, to be set "up" or "down". `None`: no device is on one of its own.
fn network_of(devices: &[String; 2]) -> Option<impl Fn(&str)> {
    // Soft-RoCE says on which network it is.
    let Ok(network) = std::fs::read_to_string(format!("/sys/class/infiniband/{}/parent", devices[1])) else {
        println!("rdma: skipped, since no device is on a network of its own");
        return None;
    };
    Some(move |state: &str| {
        let done = std::process::Command::new("ip").args(["link", "set", network.trim(), state]).status();
        assert!(done.is_ok_and(|status| status.success()), "{network} is set {state}");
    })
}

/// The network of one of two devices goes down amid a transfer, and comes up again later.
fn a_device_fails_and_comes_back() {
    let Some(devices) = two_devices() else { return };
    let Some(set) = network_of(&devices) else { return };
    let devices = devices.each_ref().map(String::as_str);
    let owner = Owner::start_with(1, LAYOUT, &devices);
    let reader = Reader::connected_with(&owner, &devices);
    assert_eq!(reader.rails(), RailCounts { up: 2, aside: 0 });
    reader.wipe();
    let id = reader.post(LEN, 0, &[(0, 0)]);
    set("down");
    let end = reader.ended();
    assert_eq!((end.id, end.result.is_ok()), (id, true), "{end:?}");
    assert!(reader.bytes().iter().zip(0..).all(|(is, at)| *is == byte(at)), "every byte is right");
    while reader.rails() != (RailCounts { up: 1, aside: 1 }) {
        reader.check(LEN, &[(0, 0)]);
    }
    let faults = reader.agent.counts().rails_put_aside;
    assert!(faults.iter().map(|(_, count)| count).sum::<u64>() >= 1, "{faults:?}");
    reader.check(LEN, &[(0, 0)]);
    comes_back(&reader, set);
}

/// The network that was down comes up: both devices are read over again.
fn comes_back(reader: &Reader, set: impl Fn(&str)) {
    set("up");
    while reader.rails() != (RailCounts { up: 2, aside: 0 }) {
        reader.check(LEN / 8, &[(0, 0)]);
    }
    assert!(reader.agent.counts().rails_returned >= 1);
    reader.check(LEN, &[(0, 0)]);
}

/// Who begins while a device is down is reached over the other, and over both when it is up.
fn a_device_is_down_at_first() {
    let Some(devices) = two_devices() else { return };
    let Some(set) = network_of(&devices) else { return };
    let devices = devices.each_ref().map(String::as_str);
    set("down");
    let owner = Owner::start_with(1, LAYOUT, &devices);
    let reader = Reader::connected_with(&owner, &devices);
    assert_eq!(reader.rails(), RailCounts { up: 1, aside: 1 });
    reader.check(LEN, &[(0, 0)]);
    comes_back(&reader, set);
}

/// A device dies amid what it reads, and soon nothing else is read that would show it: the lane's patience ends.
fn a_device_dies_while_the_other_is_idle() {
    let Some(devices) = two_devices() else { return };
    let Some(set) = network_of(&devices) else { return };
    let devices = devices.each_ref().map(String::as_str);
    let owner = Owner::start_with(1, LAYOUT, &devices);
    let reader = Reader::connected_with(&owner, &devices);
    // One transfer for each device, of the same length.
    const PART: usize = LEN / 8;
    reader.wipe();
    while reader.rails() != (RailCounts { up: 1, aside: 1 }) {
        let ids = [0, PART].map(|at| reader.post(PART, 0, &[(at, at)]));
        set("down");
        for _ in ids {
            let end = reader.ended();
            assert_eq!((ids.contains(&end.id), end.result.is_ok()), (true, true), "{end:?}");
        }
    }
    assert!(reader.bytes()[..2 * PART].iter().zip(0..).all(|(is, at)| *is == byte(at)), "every byte is right");
    set("up");
}

fn layers_are_read_as_they_are_written() {
    const LAYERS: u16 = 8;
    const SLICE: usize = 20_000;
    let mut owner = Owner::start(1, LAYOUT);
    let reader = Reader::connected(&owner);
    let batches = (0..LAYERS).map(|layer| {
        let at = u64::from(layer) * SLICE as u64;
        let (region, gate) = (RegionId(0), ProgressWord::mark(StepId(1), layer));
        ReadBatch {
            source: region,
            destination: region,
            len: SLICE,
            gate,
            copies: vec![Copy { from: at, to: at }].into(),
        }
    });
    let id = reader.post_all(batches.collect());
    for layer in 0..LAYERS {
        reader.hears_nothing();
        owner.raise(1, layer);
    }
    let end = reader.ended();
    assert_eq!((end.id, end.result.is_ok()), (id, true), "{end:?}");
    assert!(reader.bytes()[..usize::from(LAYERS) * SLICE].iter().zip(0..).all(|(is, at)| *is == byte(at)));
}

/// Transfers into parts of the memory, some of which are cancelled while their bytes arrive.
fn cancelled_under_load() {
    const PARTS: usize = 8;
    const PART: usize = LEN / PARTS;
    let owner = Owner::start(1, LAYOUT);
    // Over one device alone, which is asked for half of what there is at once.
    let reader = Reader::connected_with(&owner, &[devices()[0].as_str()]);
    let mut cancelled = 0;
    for round in 0..4 {
        reader.wipe();
        let ids: Vec<_> = (0..PARTS).map(|part| reader.post(PART, 0, &[(part * PART, part * PART)])).collect();
        ids.iter().skip(round % 2).step_by(2).for_each(|&id| reader.agent.cancel(id));
        let mut arrived = Vec::new();
        for _ in 0..PARTS {
            let end = reader.ended();
            let part = ids.iter().position(|&id| id == end.id).expect("one of them");
            match end.result {
                Ok(_) => arrived.push(part),
                // From now on its part is another's.
                Err(TransferError::Cancelled) => reader.wipe_range(part * PART, PART),
                Err(other) => panic!("{other}"),
            }
        }
        reader.hears_nothing();
        cancelled += PARTS - arrived.len();
        for (place, bytes) in reader.bytes().chunks(PART).enumerate() {
            let whole = |part: usize| bytes.iter().zip(part * PART..).all(|(is, at)| *is == byte(at));
            let untouched = bytes.iter().all(|&is| is == UNTOUCHED);
            assert!(if arrived.contains(&place) { whole(place) } else { untouched }, "part {place} of round {round}");
        }
    }
    assert!(cancelled > 0, "some are cancelled before their bytes are there");
    reader.check(PART, &[(0, 0)]);
}

fn the_owner_is_killed_and_returns() {
    const PART: usize = LEN / 8;
    let mut owner = Owner::start(1, LAYOUT);
    let reader = Reader::connected(&owner);
    let ids: Vec<_> = (0..7).map(|part| reader.post(PART, 0, &[(part * PART, part * PART)])).collect();
    let waiting = reader.post(1, u64::MAX, &[(0, 7 * PART)]);
    owner.kill();
    let (mut gone, mut lost) = (Vec::new(), 0);
    for _ in 0..ids.len() + 2 {
        match reader.event() {
            AgentEvent::Lost { peer: OWNER, .. } => lost += 1,
            AgentEvent::Ended(end) => match end.result {
                Ok(_) => {}
                Err(TransferError::PeerGone) => gone.push(end.id),
                Err(other) => panic!("{other}"),
            },
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(lost == 1 && gone.contains(&waiting), "{gone:?}");
    // Who has got its memory back may use it.
    reader.wipe();
    reader.hears_nothing();
    assert!(reader.bytes().iter().all(|&is| is == UNTOUCHED), "nothing is written after the end");

    let again = Owner::start(2, LAYOUT);
    reader.meet(&again, 2);
    assert!(matches!(reader.event(), AgentEvent::Connected { .. }));
    reader.check(PART, &[(PART, 0)]);
}

/// Its device refuses what is registered no more, which ends the queue pair for every read over it. The owner
/// counts that; the peer is reached anew at once, and what else it has is read.
fn a_region_is_withdrawn_while_it_is_read() {
    const POSTED: usize = 8;
    let mut owner = Owner::start(1, LAYOUT);
    let reader = Reader::connected(&owner);
    let region = |source, destination| {
        let copies = vec![Copy { from: 0, to: 0 }].into();
        ReadBatch { source, destination, len: LEN, gate: 0, copies }
    };
    for _ in 0..POSTED {
        let destination = reader.agent.register(Arc::new(SealedMemory::new("reader", LEN).expect("memory")));
        reader.post_all(vec![region(RegionId(1), destination)]);
    }
    owner.withdraw();
    let (mut gone, mut ended, mut lost) = (0, 0, 0);
    while ended < POSTED || lost == 0 {
        match reader.event() {
            AgentEvent::Lost { peer: OWNER, .. } => lost += 1,
            AgentEvent::Ended(end) => {
                ended += 1;
                match end.result {
                    Ok(_) => {}
                    Err(TransferError::PeerGone) => gone += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert!(gone > 0, "the last one cannot have been read");
    reader.agent.connect(OWNER);
    assert!(matches!(reader.event(), AgentEvent::Connected { .. }));
    reader.check(LEN, &[(0, 0)]);
    // It sees that when the connection by which the queue pairs were agreed on has ended.
    while owner.refused() == 0 {}
}

fn another_layout_is_refused() {
    let mut owner = Owner::start(1, LAYOUT + 1);
    let reader = Reader::new(&[]);
    reader.meet(&owner, 1);
    match reader.event() {
        AgentEvent::Lost { reason, .. } => {
            assert!(reason.contains("000000000000ba70") && reason.contains("000000000000ba71"), "{reason}");
        }
        other => panic!("unexpected {other:?}"),
    }
    assert_eq!(owner.refused(), 1);
}

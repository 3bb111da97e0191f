//! Regions that come and go, and agents that must mean the same by them.

use crate::ends::*;
use domain::{ProgressWord, StepId};
use std::sync::Arc;
use transport::{
    DeregisterError, Hub, ImportError, Lane, Memory, PostError, PrepareError, Refusal, RegionId, SealedMemory,
    TransferError, TransferState,
};

const LEN: usize = 64 << 10;

fn refused(end: &End, why: Refusal) -> u64 {
    end.agent.counts().refused.iter().filter(|(reason, _)| *reason == why).map(|(_, count)| count).sum()
}

/// Takes a region back that nobody reads but a probe, which may be on its way out.
fn withdrawn(end: &End, region: RegionId) -> Arc<dyn Memory> {
    loop {
        match end.agent.deregister(region) {
            Ok(memory) => return memory,
            Err(DeregisterError::InUse { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_region_in_use_stays_and_one_that_is_not_goes() {
    for lane in lanes() {
        let pair = pair(lane, LEN);
        let agent = &pair.reader.agent;
        let gate = ProgressWord::mark(StepId(1), 0);
        let prepared = agent.prepare(OWNER, vec![batch(LEN, gate, &[(0, 0)])]).expect("it is sound");
        let in_use = Err(DeregisterError::InUse { region: REGION, uses: 1 });
        let outcome = || agent.deregister(REGION).map(|memory| memory.len());
        assert_eq!(outcome(), in_use, "prepared over {lane}");
        agent.post(&prepared).expect("there is room");
        drop(prepared);
        assert_eq!(outcome(), in_use, "under way over {lane}");
        pair.owner.word.raise(StepId(1), 0);
        assert!(pair.reader.ended().result.is_ok());
        // Whoever hears of the end may have it back.
        assert_eq!(outcome(), Ok(LEN));
        assert_eq!(outcome(), Err(DeregisterError::Unknown(REGION)));
        let gone = agent.prepare(OWNER, vec![batch(1, 0, &[(0, 0)])]).err();
        assert_eq!(gone, Some(PrepareError::NoRegion { peer: None, region: REGION }));
        // Its number is nobody's from now on.
        let memory = Arc::new(SealedMemory::new("test", LEN).expect("memory can be had"));
        assert_eq!(agent.register(memory), RegionId(1));
    }
}

#[test]
fn peers_hear_of_regions_that_come_and_go() {
    for lane in lanes() {
        let pair = pair(lane, LEN);
        let memory = Arc::new(SealedMemory::new("test", LEN).expect("memory can be had"));
        // SAFETY: nobody else uses it yet.
        unsafe { memory.as_ptr().write_bytes(9, LEN) };
        let second = pair.owner.agent.register(memory);
        let read = |source| transport::ReadBatch { source, ..batch(LEN, 0, &[(0, 0)]) };
        let prepare = |source| pair.reader.agent.prepare(OWNER, vec![read(source)]);
        until(|| prepare(second).is_ok());
        withdrawn(&pair.owner, REGION);
        until(|| prepare(REGION).is_err());
        assert_eq!(prepare(REGION).err(), Some(PrepareError::NoRegion { peer: Some(OWNER), region: REGION }));
        // The other is read as before, by who knew the first and by who comes now.
        pair.reader.agent.post(&prepare(second).expect("it is there")).expect("there is room");
        assert!(pair.reader.ended().result.is_ok() && pair.reader.bytes().iter().all(|&byte| byte == 9));
        if lane != Lane::Local {
            let late = end(&Hub::new(), domain::WorkerId(2), 1, LEN, |config| config.lanes = vec![lane]);
            late.agent.introduce(pair.owner.info.clone());
            assert_eq!(late.connect(OWNER), lane);
            assert!(late.agent.lanes()[0].1.probe.bytes_per_s > 0.0, "what is left is measured");
            late.post(OWNER, vec![read(second)]);
            assert!(late.ended().result.is_ok() && late.bytes().iter().all(|&byte| byte == 9));
        }
    }
}

#[test]
fn a_region_that_comes_while_a_peer_connects_is_heard_of() {
    for lane in lanes().into_iter().filter(|&lane| lane != Lane::Local) {
        let only = |config: &mut transport::AgentConfig| config.lanes = vec![lane];
        let owner = end(&Hub::new(), OWNER, 1, LEN, only);
        for round in 1..=20 {
            let reader = end(&Hub::new(), domain::WorkerId(round), 1, 64, only);
            reader.agent.introduce(owner.info.clone());
            reader.agent.connect(OWNER);
            let memory = Arc::new(SealedMemory::new("test", 64).expect("memory can be had"));
            let region = owner.agent.register(memory);
            assert!(matches!(reader.event(), transport::AgentEvent::Connected { .. }));
            let read = || transport::ReadBatch { source: region, ..batch(64, 0, &[(0, 0)]) };
            until(|| reader.agent.prepare(OWNER, vec![read()]).is_ok());
        }
    }
}

#[test]
fn whoever_reads_what_was_withdrawn_is_refused_and_counted() {
    let pair = pair(Lane::Tcp, LEN);
    // Prepared while it was there.
    let old = pair.reader.agent.prepare(OWNER, vec![batch(LEN, 0, &[(0, 0)])]).expect("it is sound");
    let memory = withdrawn(&pair.owner, REGION);
    pair.reader.agent.post(&old).expect("there is room");
    assert_eq!(old.wait(PATIENCE), TransferState::Ended(Err(TransferError::Withdrawn)));
    assert_eq!(pair.reader.ended().result, Err(TransferError::Withdrawn));
    assert!(refused(&pair.owner, Refusal::Region) >= 1);
    assert!(pair.reader.bytes().iter().all(|&byte| byte == 0));
    // The connection is as good as before.
    let again = pair.owner.agent.register(memory);
    let read = transport::ReadBatch { source: again, ..batch(LEN, 0, &[(0, 0)]) };
    until(|| pair.reader.agent.prepare(OWNER, vec![read.clone()]).is_ok());
    pair.reader.post(OWNER, vec![read]);
    assert!(pair.reader.ended().result.is_ok());
    assert!(pair.reader.bytes() == pair.owner.bytes());
    // The old one is not what came after it.
    pair.reader.agent.post(&old).expect("it has ended");
    assert_eq!(pair.reader.ended().result, Err(TransferError::Withdrawn));
}

#[test]
fn another_layout_is_refused_with_both_on_every_lane() {
    for lane in lanes() {
        let (owner, reader) = hubs(lane);
        let of = |fingerprint| {
            move |config: &mut transport::AgentConfig| {
                (config.lanes, config.fingerprint) = (vec![lane], fingerprint);
            }
        };
        let pair =
            Pair { owner: end(&owner, OWNER, 1, 64, of(0xBA70)), reader: end(&reader, READER, 1, 64, of(0xBA71)) };
        pair.introduce();
        pair.reader.agent.connect(OWNER);
        let reason = pair.reader.lost(OWNER);
        assert!(reason.contains("000000000000ba70") && reason.contains("000000000000ba71"), "{lane}: {reason}");
        assert_eq!(refused(&pair.owner, Refusal::Layout), u64::from(lane != Lane::Local), "{lane}");
        let theirs = pair.owner.agent.export();
        let layout = Err(ImportError::Layout { theirs: 0xBA70, ours: 0xBA71 });
        assert_eq!(pair.reader.agent.import(&theirs), layout);
    }
}

#[test]
fn who_is_imported_is_reached_and_who_is_forgotten_is_not() {
    for lane in lanes().into_iter().filter(|&lane| lane != Lane::Local) {
        let only = |config: &mut transport::AgentConfig| config.lanes = vec![lane];
        let owner = end(&Hub::new(), OWNER, 1, LEN, only);
        let reader = end(&Hub::new(), READER, 1, LEN, only);
        assert_eq!(reader.agent.import(&owner.agent.export()), Ok(OWNER));
        assert_eq!(reader.connect(OWNER), lane);
        let id = reader.post(OWNER, vec![batch(LEN, u64::MAX, &[(0, 0)])]);
        reader.agent.forget(OWNER);
        let events = [reader.event(), reader.event()];
        let gone = transport::Completion { id, result: Err(TransferError::PeerGone), runs: Vec::new() };
        assert!(events.contains(&transport::AgentEvent::Ended(gone)), "{events:?}");
        reader.agent.connect(OWNER);
        assert!(reader.lost(OWNER).contains("nobody said where"));
        assert_eq!(reader.agent.import(&owner.agent.export()), Ok(OWNER));
        assert_eq!(reader.connect(OWNER), lane);
    }
}

#[test]
fn no_two_copies_and_no_two_transfers_write_the_same_bytes() {
    for over in ways() {
        let pair = pair(over, 1 << 16);
        let reader = &pair.reader.agent;
        let prepare = |batches| reader.prepare(OWNER, batches);
        let twice = PrepareError::Overlap { region: REGION, at: 4000 };
        assert_eq!(prepare(vec![batch(4096, 0, &[(0, 0), (8192, 4000)])]).err(), Some(twice.clone()), "over {over}");
        // Nor those of different batches, whatever their gates.
        let apart = vec![batch(4096, 0, &[(0, 0)]), batch(8, 1 << 20, &[(0, 4000)])];
        assert_eq!(prepare(apart).err(), Some(twice), "over {over}");
        let gated = |to| prepare(vec![batch(4096, 1 << 20, &[(0, to)])]).expect("it is sound");
        let [first, beside, within] = [0, 4096, 2048].map(gated);
        let ids = [&first, &beside].map(|one| reader.post(one).expect("no byte is both's"));
        assert_eq!(reader.post(&within), Err(PostError::Overlap), "over {over}");
        assert_eq!(within.state(), TransferState::Unposted, "who is refused is not under way");
        ids.into_iter().for_each(|id| reader.cancel(id));
        for one in [&first, &beside] {
            assert_eq!(one.wait(PATIENCE), TransferState::Ended(Err(TransferError::Cancelled)), "over {over}");
        }
        let id = reader.post(&within).expect("nobody else writes there any more");
        reader.cancel(id);
        assert_eq!(within.wait(PATIENCE), TransferState::Ended(Err(TransferError::Cancelled)), "over {over}");
    }
}

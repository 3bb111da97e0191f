//! Random interleavings of whatever may happen to transfers, over every lane: nothing is written into a
//! destination once its transfer has ended, and what is read under a lease that lived all the while is right, so
//! that nothing wrong is ever sealed.
//!
//! The owner keeps to the rules of leases, as `kv-manager` does: it writes a block anew only when no lease on it lives.

use crate::ends::*;
use crate::rails::Cable;
use domain::{ProgressWord, StepId, WorkerId};
use proptest::prelude::*;
use std::collections::HashMap;
use std::process::{Child, Command};
use transport::{AgentEvent, Hub, Lane, PrepareError, TransferId};

/// Blocks of the owner's memory, and of the reader's: each is read to the same place.
const BLOCKS: usize = POSTED_MAX;
const BLOCK: usize = 96 << 10;
/// How often in a row the owner may be lost while it is connected.
const LOSSES_MAX: u32 = 20;
/// What is in a block of the reader's that nothing is read to.
const UNTOUCHED: u8 = 0xAA;

/// What may happen.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// The reader leases a block and posts a transfer of it, behind a gate or not.
    Read { block: usize, gated: bool },
    /// It cancels the transfer of a block.
    Cancel(usize),
    /// The owner's engine goes a step further, which opens all gates.
    Step,
    /// The lease on a block lapses.
    Lapse(usize),
    /// The owner gives a block to another use, if no lease on it lives.
    Reuse(usize),
    /// The connections that bytes come over break.
    Break,
    /// The network of one of two RDMA devices goes down.
    Fail(usize),
    /// What is down comes up again.
    Heal,
    /// The owner dies and comes back.
    Die,
    /// The reader takes what has ended.
    Look,
}

fn action() -> impl Strategy<Value = Action> {
    let block = || 0..BLOCKS;
    prop_oneof![
        6 => (block(), any::<bool>()).prop_map(|(block, gated)| Action::Read { block, gated }),
        2 => block().prop_map(Action::Cancel),
        3 => Just(Action::Step),
        2 => block().prop_map(Action::Lapse),
        3 => block().prop_map(Action::Reuse),
        1 => Just(Action::Break),
        1 => (0..2_usize).prop_map(Action::Fail),
        1 => Just(Action::Heal),
        1 => Just(Action::Die),
        4 => Just(Action::Look),
    ]
}

/// A transfer that has not ended.
struct Reading {
    block: usize,
    /// Of the block when it was leased.
    generation: u64,
    /// Whether the lease lives.
    leased: bool,
}

struct World {
    over: Over,
    hubs: (Hub, Hub),
    owner: Option<End>,
    cable: Option<Cable>,
    networks: Networks,
    reader: End,
    life: u64,
    step: u64,
    generations: [u64; BLOCKS],
    readings: HashMap<TransferId, Reading>,
    sealed: u64,
}

/// The networks of RDMA devices.
struct Networks {
    /// Each with whether it is up, or on its way there.
    all: Vec<(String, bool)>,
    /// What sets one of them up or down: transfers go on meanwhile.
    setting: Option<Child>,
}

impl Networks {
    /// None over lanes that need none, nor where devices are on others than dummies of a machine for tests.
    fn of(over: Over) -> Self {
        let of_device = |device: &String| {
            let name = std::fs::read_to_string(format!("/sys/class/infiniband/{device}/parent")).ok()?;
            Some((name.trim().to_owned(), true)).filter(|(name, _)| name.starts_with("dummy"))
        };
        let all = if is_rdma(&over) { devices().iter().filter_map(of_device).collect() } else { Vec::new() };
        Self { all, setting: None }
    }

    /// Sets one up or down, as it is not yet.
    fn set(&mut self, place: usize, up: bool) {
        if self.all.get(place).is_none_or(|(_, is_up)| *is_up == up) {
            return;
        }
        self.settle();
        let (name, is_up) = &mut self.all[place];
        let ip = Command::new("ip").args(["link", "set", name, if up { "up" } else { "down" }]).spawn();
        self.setting = Some(ip.expect("ip is installed"));
        *is_up = up;
    }

    fn settle(&mut self) {
        if let Some(mut setting) = self.setting.take() {
            assert!(setting.wait().is_ok_and(|status| status.success()), "a network is set up or down");
        }
    }

    fn heal(&mut self) {
        (0..self.all.len()).for_each(|place| self.set(place, true));
    }

    /// Without any that is up, nobody is reached over the lane.
    fn heal_if_all_are_down(&mut self) {
        if self.all.iter().all(|(_, is_up)| !is_up) {
            self.heal();
        }
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        self.heal();
        self.settle();
    }
}

/// What a block holds in a generation.
fn content(block: usize, generation: u64) -> Vec<u8> {
    let seed = (generation * BLOCKS as u64 + block as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let byte = |at: u64| ((seed ^ at.wrapping_mul(0xD134_2543_DE82_EF95)) >> 29) as u8;
    let mut bytes: Vec<u8> = (0..BLOCK as u64).map(byte).collect();
    settle(&mut bytes);
    bytes
}

/// An end that takes this way alone, by all devices there are.
fn start(hub: &Hub, id: WorkerId, life: u64, over: Over) -> End {
    end_over(over, hub, id, life, BLOCKS * BLOCK, |config| config.rdma.devices = devices())
}

fn write(end: &End, block: usize, bytes: &[u8]) {
    assert_eq!(bytes.len(), BLOCK);
    // SAFETY: inside the memory, of which this end is the only writer.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), end.memory.as_ptr().add(block * BLOCK), BLOCK) };
}

/// What is in a block, into which no transfer reads.
fn holds(end: &End, block: usize) -> &[u8] {
    // SAFETY: inside the memory, of which nobody writes that part now.
    unsafe { std::slice::from_raw_parts(end.memory.as_ptr().add(block * BLOCK), BLOCK) }
}

impl World {
    fn new(over: Over) -> Self {
        let hubs = hubs(over);
        let reader = start(&hubs.1, READER, 1, over);
        (0..BLOCKS).for_each(|block| write(&reader, block, &[UNTOUCHED; BLOCK]));
        let (readings, generations) = (HashMap::new(), [0; BLOCKS]);
        let mut world = Self {
            over,
            hubs,
            owner: None,
            cable: None,
            networks: Networks::of(over),
            reader,
            life: 0,
            step: 0,
            generations,
            readings,
            sealed: 0,
        };
        world.be_born();
        world
    }

    /// The owner begins a life, and is connected.
    fn be_born(&mut self) {
        self.life += 1;
        self.networks.heal_if_all_are_down();
        self.networks.settle();
        let owner = start(&self.hubs.0, OWNER, self.life, self.over);
        for block in 0..BLOCKS {
            self.generations[block] += 1;
            write(&owner, block, &content(block, self.generations[block]));
        }
        owner.word.raise(StepId(self.step), 0);
        let mut info = owner.info.clone();
        if self.over.lane == Lane::Tcp {
            let (cable, address) = Cable::new(&info.address.tcp);
            cable.set_speed(u64::MAX);
            (self.cable, info.address.tcp) = (Some(cable), address);
        }
        self.owner = Some(owner);
        self.reader.agent.introduce(info);
        self.connect();
    }

    /// Connects the owner, once more where that fails: a device may be about to.
    fn connect(&mut self) {
        self.networks.heal_if_all_are_down();
        self.reader.agent.connect(OWNER);
        let mut losses = 0;
        while !self.reader.agent.is_connected(OWNER) {
            let event = self.reader.event();
            if let AgentEvent::Lost { reason, .. } = &event {
                losses += 1;
                assert!(losses <= LOSSES_MAX, "it cannot be connected over {}: {reason}", self.over);
                self.reader.agent.connect(OWNER);
            }
            self.take(event);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Read { block, gated } => {
                if self.readings.values().any(|reading| reading.block == block) {
                    return;
                }
                let gate = if gated { ProgressWord::mark(StepId(self.step + 1), 0) } else { 0 };
                let at = (block * BLOCK) as u64;
                if !self.reader.agent.is_connected(OWNER) {
                    self.connect();
                }
                let prepared = match self.reader.agent.prepare(OWNER, vec![batch(BLOCK, gate, &[(at, at)])]) {
                    // It was lost a moment ago.
                    Err(PrepareError::NotConnected(_)) => return,
                    prepared => prepared.expect("the reads are sound"),
                };
                let id = self.reader.agent.post(&prepared).expect("there is room");
                self.readings.insert(id, Reading { block, generation: self.generations[block], leased: true });
            }
            Action::Cancel(block) => {
                if let Some((&id, _)) = self.readings.iter().find(|(_, reading)| reading.block == block) {
                    self.reader.agent.cancel(id);
                }
            }
            Action::Step => {
                self.step += 1;
                self.owner.as_ref().expect("it lives").word.raise(StepId(self.step), 0);
            }
            Action::Lapse(block) => {
                self.readings.values_mut().filter(|reading| reading.block == block).for_each(|it| it.leased = false);
            }
            Action::Reuse(block) => {
                if self.readings.values().all(|reading| reading.block != block || !reading.leased) {
                    self.generations[block] += 1;
                    let owner = self.owner.as_ref().expect("it lives");
                    write(owner, block, &content(block, self.generations[block]));
                }
            }
            Action::Break => self.cable.iter().for_each(|cable| cable.cut(1)),
            Action::Fail(place) => self.networks.set(place, false),
            Action::Heal => self.networks.heal(),
            Action::Die => {
                drop(self.owner.take());
                // Its leases die with it.
                self.readings.values_mut().for_each(|reading| reading.leased = false);
                // It is heard of before anything is asked of the next life.
                while self.reader.agent.is_connected(OWNER) {
                    let event = self.reader.event();
                    self.take(event);
                }
                self.be_born();
            }
            Action::Look => {
                while let Ok(event) = self.reader.events.try_recv() {
                    self.take(event);
                }
            }
        }
        self.check_untouched();
    }

    fn take(&mut self, event: AgentEvent) {
        let AgentEvent::Ended(end) = event else { return };
        let Reading { block, generation, leased } = self.readings.remove(&end.id).expect("each ends once");
        // What the owner answers to a release.
        let valid = leased && self.generations[block] == generation;
        if end.result.is_ok() && valid {
            let right = holds(&self.reader, block) == content(block, generation);
            assert!(right, "block {block} is sealed with wrong bytes over {}", self.over);
            self.sealed += 1;
        }
        assert!(end.result != Err(transport::TransferError::Corrupted) || !valid, "nobody wrote what was read");
        // Its memory is another's now.
        write(&self.reader, block, &[UNTOUCHED; BLOCK]);
    }

    /// Nothing is where nothing is read to.
    fn check_untouched(&self) {
        let idle = (0..BLOCKS).filter(|block| self.readings.values().all(|reading| reading.block != *block));
        for block in idle {
            let touched = holds(&self.reader, block).iter().any(|&byte| byte != UNTOUCHED);
            assert!(!touched, "block {block} is written after its transfer ended, over {}", self.over);
        }
    }

    /// Everything ends, and nothing comes after.
    fn finish(mut self) -> u64 {
        self.act(Action::Step);
        while !self.readings.is_empty() {
            let event = self.reader.event();
            self.take(event);
        }
        std::thread::sleep(MOMENT / 10);
        self.check_untouched();
        self.sealed
    }
}

fn check(ways: impl IntoIterator<Item = Over>, actions: &[Action]) {
    for over in ways {
        let mut world = World::new(over);
        actions.iter().for_each(|&action| world.act(action));
        world.finish();
    }
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    proptest::collection::vec(action(), 1..60)
}

/// Few, since each takes long.
fn cases() -> u32 {
    (ProptestConfig::default().cases / 20).max(1)
}

fn is_rdma(over: &Over) -> bool {
    over.lane == Lane::Rdma
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn nothing_is_written_after_the_end_and_nothing_wrong_is_sealed(actions in actions()) {
        check(ways().into_iter().filter(|over| !is_rdma(over)), &actions);
    }

    /// By itself, since devices are slow to make and end queue pairs, and those of an emulated machine slower.
    #[test]
    fn nothing_is_written_after_the_end_and_nothing_wrong_is_sealed_over_rdma(actions in actions()) {
        check(ways().into_iter().filter(is_rdma), &actions);
    }
}

#[test]
fn what_is_read_under_a_lease_is_sealed() {
    for over in ways() {
        let mut world = World::new(over);
        for block in 0..BLOCKS {
            world.act(Action::Read { block, gated: block % 2 == 0 });
            world.act(Action::Reuse(block));
        }
        world.act(Action::Break);
        assert_eq!(world.finish(), BLOCKS as u64, "over {over}");
    }
}

//! Random orders of everything that can happen: the peer may say anything at any time, the worker only what is true of
//! its reads and its room. A ledger beside the machine holds what it may command.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Op {
    Queued,
    Offer { layout: bool },
    Written { tokens: u32 },
    Complete { empty: bool },
    Withdraw,
    Room,
    ReadsEnded { pieces: u32, ok: bool },
    Quiesced,
    Released { valid: bool },
    Cancel,
    OwnerLost,
    Tick { ms: u32 },
}

/// Mostly what a good owner and a quick transport do, with everything else in between.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Queued),
        8 => prop::bool::weighted(0.95).prop_map(|layout| Op::Offer { layout }),
        8 => (0..24u32).prop_map(|tokens| Op::Written { tokens }),
        5 => prop::bool::weighted(0.1).prop_map(|empty| Op::Complete { empty }),
        1 => Just(Op::Withdraw),
        8 => Just(Op::Room),
        12 => (1..4u32, prop::bool::weighted(0.97)).prop_map(|(pieces, ok)| Op::ReadsEnded { pieces, ok }),
        6 => Just(Op::Quiesced),
        5 => prop::bool::weighted(0.8).prop_map(|valid| Op::Released { valid }),
        1 => Just(Op::Cancel),
        1 => Just(Op::OwnerLost),
        6 => (0..200u32).prop_map(|ms| Op::Tick { ms }),
    ]
}

/// What is offered, and what of it is held here.
#[derive(Clone, Debug)]
struct Case {
    tokens: u32,
    ready: u32,
    held: u32,
    /// First block of a second, windowed group.
    window: u32,
    /// It was asked for, so that it is complete with the offer.
    asked: bool,
}

fn case() -> impl Strategy<Value = Case> {
    (1..20u32).prop_flat_map(|tokens| {
        let (full, blocks) = (tokens / SIZE, tokens.div_ceil(SIZE));
        (0..=full, 0..=full, 0..=blocks, any::<bool>(), any::<bool>()).prop_map(
            move |(ready, held, window, all, asked)| Case {
                tokens,
                ready: if all { tokens } else { ready * SIZE },
                held: held * SIZE,
                window,
                asked,
            },
        )
    })
}

/// What was told to the machine and what it commanded.
struct Ledger {
    case: Case,
    fetch: Fetch,
    now: Time,
    /// Step that wrote each block first, by what was said after the offer; `None`: it was written by then.
    writers: Vec<Option<Option<StepId>>>,
    offered: bool,
    refused: bool,
    completed: Option<bool>,
    cancelled: bool,
    owner_lost: bool,
    /// The owner said that the lease is over.
    lease_over: bool,
    wants_room: bool,
    room: bool,
    /// Pieces by destination, with the gate they had.
    reads: BTreeMap<(GroupId, BlockId), Option<StepId>>,
    running: u32,
    reads_failed: bool,
    quiesce_due: bool,
    cancelled_reads: bool,
    releases: u32,
    failed: u32,
    started: u32,
    freed: u32,
    done: u32,
}

impl Ledger {
    fn new(case: Case) -> Self {
        let blocks = case.tokens.div_ceil(SIZE) as usize;
        let begin = if case.asked { Fetch::ask } else { Fetch::expect };
        Self {
            fetch: begin(Time::ZERO, config(), Time::ZERO + MS * 2000),
            completed: case.asked.then_some(false),
            now: Time::ZERO,
            writers: vec![None; blocks],
            case,
            offered: false,
            refused: false,
            cancelled: false,
            owner_lost: false,
            lease_over: false,
            wants_room: false,
            room: false,
            reads: BTreeMap::new(),
            running: 0,
            reads_failed: false,
            quiesce_due: false,
            cancelled_reads: false,
            releases: 0,
            failed: 0,
            started: 0,
            freed: 0,
            done: 0,
        }
    }

    fn blocks(&self) -> u32 {
        self.writers.len() as u32
    }

    /// The event of an operation, where it can be true now.
    fn event(&mut self, op: &Op) -> Option<FetchEvent> {
        let live = self.done == 0 && self.offered && !self.refused;
        Some(match *op {
            Op::Queued => FetchEvent::Queued,
            Op::Offer { layout } => {
                let mut offer = offer(self.case.tokens, self.case.ready);
                offer.layout += u64::from(!layout);
                let window = self.case.window;
                let blocks = (window..self.blocks()).map(|n| (BlockId(200 + n), Generation(1))).collect();
                offer.groups.push(OfferedGroup { first: window, blocks });
                if !self.offered && self.done == 0 {
                    self.offered = true;
                    self.refused = !layout || self.case.asked && self.case.ready < self.case.tokens;
                    self.write(self.case.ready, None);
                }
                FetchEvent::Offer(offer)
            }
            Op::Written { tokens } => {
                let step = StepId(u64::from(tokens) + 1);
                if live {
                    self.write(tokens.min(self.case.tokens), Some(step));
                }
                FetchEvent::Written { step, tokens: tokens.min(self.case.tokens) }
            }
            Op::Complete { empty } => {
                if live && self.completed.is_none() && self.releases == 0 && !self.cancelled_reads {
                    self.completed = Some(empty);
                    self.write(self.case.tokens, None);
                }
                FetchEvent::Complete { first: if empty { Vec::new() } else { first() } }
            }
            Op::Withdraw => FetchEvent::Withdraw,
            Op::Room if self.wants_room => {
                self.wants_room = false;
                self.room = true;
                let table = |first: u32, base: u32| BlockTable {
                    first,
                    blocks: (first..self.blocks()).map(|n| BlockId(base + n)).collect(),
                };
                let tables = vec![table(0, 0), table(self.case.window, 50)];
                FetchEvent::Room { tables, held_tokens: self.case.held }
            }
            Op::ReadsEnded { pieces, ok } if self.running > 0 => {
                let pieces = pieces.min(self.running);
                self.running -= pieces;
                self.reads_failed |= !ok;
                FetchEvent::ReadsEnded { pieces, ok }
            }
            Op::Quiesced if self.quiesce_due => {
                self.quiesce_due = false;
                self.running = 0;
                FetchEvent::Quiesced
            }
            Op::Released { valid } => {
                self.lease_over |= live && !valid;
                FetchEvent::Released { valid }
            }
            Op::Cancel => {
                self.cancelled |= self.done == 0 && self.failed == 0;
                FetchEvent::Cancel
            }
            Op::OwnerLost => {
                self.owner_lost = true;
                FetchEvent::OwnerLost
            }
            Op::Tick { ms } => {
                self.now = self.now + MS * ms;
                FetchEvent::Tick { ticks: self.now.0 }
            }
            Op::Room | Op::ReadsEnded { .. } | Op::Quiesced => return None,
        })
    }

    /// Blocks that these positions complete, if nothing did before, are written by that step.
    fn write(&mut self, tokens: u32, step: Option<StepId>) {
        let blocks = if tokens == self.case.tokens { self.blocks() } else { tokens / SIZE };
        self.writers[..blocks as usize].iter_mut().for_each(|writer| *writer = writer.or(Some(step)));
    }

    fn apply(&mut self, op: &Op) {
        let Some(event) = self.event(op) else { return };
        let mut out = Vec::new();
        self.fetch.handle(self.now, event.clone(), &mut out);
        for command in &out {
            self.obey(command, &event);
        }
        if matches!(event, FetchEvent::Tick { .. }) {
            assert!(self.fetch.next_deadline().is_none_or(|due| due > self.now), "a tick leaves nothing due");
        }
        let waits = !matches!(self.fetch.state(), FetchState::Quiescing | FetchState::Done);
        assert_eq!(self.fetch.next_deadline().is_some(), waits, "what waits has a deadline");
        assert_eq!(self.fetch.state() == FetchState::Done, self.done == 1);
        if self.done == 1 {
            assert_eq!(self.running, 0, "reads run on");
            assert_eq!(self.freed + self.started, u32::from(self.room), "the room's end");
            let told = self.releases > 0 || self.owner_lost || self.lease_over;
            assert!(!self.offered || told, "the owner was not told");
        }
    }

    fn obey(&mut self, command: &FetchCommand, event: &FetchEvent) {
        assert!(self.done == 0 || *command == FetchCommand::Free, "{command:?} after the end");
        match command {
            FetchCommand::WantRoom { tokens } => {
                assert!(!self.wants_room && !self.room && *tokens == self.case.tokens);
                self.wants_room = true;
            }
            FetchCommand::Inquire => {
                assert!(!self.offered && !self.case.asked, "it asks for what it has, or what it asked for");
            }
            FetchCommand::Read(pieces) => {
                assert!(self.room && !self.cancelled_reads && !pieces.is_empty());
                pieces.iter().for_each(|piece| self.read(piece));
            }
            FetchCommand::CancelReads => {
                assert!(self.running > 0 && !self.cancelled_reads, "nothing to cancel");
                self.cancelled_reads = true;
                self.quiesce_due = true;
            }
            FetchCommand::Send(PeerBody::Release { .. }) => {
                assert!(self.offered && self.running == 0, "a release while reads run");
                self.releases += 1;
            }
            FetchCommand::Send(PeerBody::Renew { .. }) => assert!(self.releases == 0 && self.failed == 0),
            FetchCommand::Send(body) => assert_eq!(*body, PeerBody::ReleaseAck { lease: LEASE }),
            FetchCommand::Start { .. } => {
                assert_eq!(*event, FetchEvent::Released { valid: true }, "only a valid answer starts");
                assert!(self.completed == Some(false) && self.releases > 0 && !self.reads_failed);
                assert!(self.failed == 0 && !self.cancelled);
                self.expect_all_read();
                self.started += 1;
            }
            FetchCommand::Fail(_) => {
                assert!(self.failed == 0 && self.started == 0 && !self.cancelled && self.completed != Some(true));
                self.failed += 1;
            }
            FetchCommand::Free => {
                assert!(self.room && self.running == 0 && self.freed == 0 && self.started == 0);
                self.freed += 1;
            }
            FetchCommand::Done => self.done += 1,
        }
    }

    fn read(&mut self, piece: &Piece) {
        let (from, to) = if piece.group == GroupId(0) { (100, 0) } else { (200, 50) };
        let number = piece.to.0 - to;
        assert_eq!(piece.from, BlockId(from + number), "one block into another's place");
        assert!(number * SIZE >= self.case.held, "a block is read that is held");
        assert_eq!(Some(piece.step), self.writers[number as usize], "the gate of block {number}");
        let before = self.reads.insert((piece.group, piece.to), piece.step);
        assert_eq!(before, None, "a block is read twice");
        self.running += 1;
    }

    fn expect_all_read(&self) {
        let held = self.case.held / SIZE;
        let full = (held..self.blocks()).map(|n| (GroupId(0), BlockId(n)));
        let windowed = (held.max(self.case.window)..self.blocks()).map(|n| (GroupId(1), BlockId(50 + n)));
        assert_eq!(self.reads.keys().copied().collect::<Vec<_>>(), full.chain(windowed).collect::<Vec<_>>());
    }

    /// Time alone, and reads that end as promised, bring every fetch to its end.
    fn end(mut self) {
        for _ in 0..3 {
            self.apply(&Op::Tick { ms: 5000 });
            self.apply(&Op::Quiesced);
        }
        self.apply(&Op::Room);
        assert_eq!(self.done, 1);
        let untold = self.cancelled || self.completed == Some(true);
        assert_eq!(self.started + self.failed, u32::from(!untold || self.started == 1), "one end");
    }
}

proptest! {
    #[test]
    fn one_end_and_nothing_out_of_order(case in case(), ops in prop::collection::vec(op(), 0..60)) {
        let mut ledger = Ledger::new(case);
        ops.iter().for_each(|op| ledger.apply(op));
        ledger.end();
    }
}

//! Who came earlier is not overtaken: what waits for room of a device gets it in the order in which it came, what
//! lost its room before what never had any.
//!
//! A prompt gets its room when a step begins, a handoff at any time. So a handoff may have its room before a
//! prompt that came earlier, as long as it leaves room and places for all who came earlier.
//!
//! A sequence that lost its room and is held waits for nothing: its router takes no output, so it keeps none waiting.
//!
//! A worker is looked at after each of its turns, so that of two which get room in one turn nothing is known.

use crate::event::WorkerIndex;
use crate::process::WorkerLife;
use crate::world::World;
use domain::{Choice, KvGroup, KvLayout, SeqKey, Time};
use kv_manager::{FetchState, GroupStats};
use scheduler::SchedulerConfig;
use std::collections::BTreeMap;
use worker::{FetchKind, PROMPT};

pub(crate) const NAME: &str = "who came earlier is not overtaken";

/// The choice under which a prefix is loaded.
const LOAD: Choice = Choice(u16::MAX - 1);

/// What a worker's sequences have or want, by key.
pub(crate) type Line = BTreeMap<SeqKey, Stand>;

/// Where a sequence stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stand {
    /// When its attempt came.
    arrived: Time,
    /// It is taken over from another worker.
    pub(crate) handoff: bool,
    /// Since when it waits for room; `None`: it has some.
    pub(crate) waits: Option<Time>,
    /// It has room of its own, which is not a load's.
    is_open: bool,
    /// It had room before, or another sequence of its attempt had.
    had_room: bool,
    /// It lost its room itself.
    lost: bool,
    /// It was preempted, and its router takes no output.
    pub(crate) rests: bool,
    /// Something was loaded or lifted while it waited, maybe for it.
    loads: bool,
    /// What it knows, which is what it needs room for.
    tokens: u32,
    /// Sequences that it is or becomes.
    places: u32,
}

impl Stand {
    /// It is a prompt that has its room and is computed here.
    pub(crate) fn computes(&self, key: SeqKey) -> bool {
        key.choice == PROMPT && self.waits.is_none() && !self.handoff
    }
}

/// Looks at a worker that had its turn.
pub(crate) fn check(world: &mut World, w: WorkerIndex) -> Result<(), String> {
    let (now, scheduler, layout) = (world.now, world.scenario.scheduler, &world.scenario.layout);
    let Some(alive) = &mut world.workers[w].alive else { return Ok(()) };
    let before = std::mem::take(&mut alive.line);
    alive.line = stands(alive, now, &before);
    for (key, new) in alive.line.iter().filter(|(_, stand)| stand.waits.is_none() && !stand.had_room) {
        // What forks, or goes on after it was taken over, has its room from before.
        if had_room(&before, *key) {
            continue;
        }
        let came = before.get(key).and_then(|stand| stand.waits).unwrap_or(now);
        let waited = alive.line.iter().filter_map(|(key, stand)| Some((key, stand, stand.waits?)));
        let earlier = waited.filter(|&(other, stand, since)| {
            let earlier = stand.lost && since < now || stand.arrived < new.arrived && since < came;
            // It waited when the worker had its turn before, and did not rest at the beginning of this one or at
            // its end.
            let waited = before.get(other).is_some_and(|last| !last.rests) && !stand.rests;
            !stand.loads && earlier && waited
        });
        let earlier: Vec<_> = earlier.collect();
        let left =
            new.handoff && leaves_room(alive, now, &scheduler, layout, earlier.iter().map(|(_, stand, _)| *stand));
        // Of handoffs none passes another one.
        if let Some((other, stand, since)) = earlier.iter().find(|(_, stand, _)| !left || stand.handoff) {
            return Err(format!("{key} gets room, and {other} waits since {since}: {stand:?}, {new:?}"));
        }
    }
    Ok(())
}

/// Whether all of these may have their room and places beside what has some.
fn leaves_room<'a>(
    alive: &WorkerLife,
    now: Time,
    scheduler: &SchedulerConfig,
    layout: &KvLayout,
    waiting: impl Iterator<Item = &'a Stand> + Clone,
) -> bool {
    let places: u32 = waiting.clone().map(|stand| stand.places).sum();
    let blocks = |group: &KvGroup| -> u32 {
        let most = most_blocks(group, scheduler);
        waiting.clone().map(|stand| stand.tokens.div_ceil(scheduler.block_tokens).min(most)).sum()
    };
    // A step that began in the same turn, or waits to begin, may have taken a block for each of its sequences.
    let began = alive.running.as_ref().filter(|step| step.begin == now).map_or(0, |step| step.plan.spans.len());
    let waits: usize = alive.shell.notes().submitted.iter().map(|plan| plan.spans.len()).sum();
    let grown = (began + waits) as u32;
    let stats = alive.machine.core().kv.stats();
    let has_room = |(group, stats): (&KvGroup, &GroupStats)| blocks(group) <= stats.available() + grown;
    let taken: u32 = alive.line.values().filter(|stand| stand.waits.is_none()).map(|stand| stand.places).sum();
    layout.groups.iter().zip(&stats).all(has_room) && taken + places <= scheduler.running_max
}

/// The most blocks that a prompt has of a group at once: of one with a window, that of its last tokens and that of the
/// chunk in progress.
fn most_blocks(group: &KvGroup, scheduler: &SchedulerConfig) -> u32 {
    let size = scheduler.block_tokens;
    group
        .reach()
        .map_or(u32::MAX, |window| 2 * ((window - 1).div_ceil(size) + 1) + scheduler.chunk_tokens.div_ceil(size))
}

fn stands(alive: &WorkerLife, now: Time, before: &Line) -> Line {
    let core = alive.machine.core();
    let tiers_move = alive.tiers_move();
    let fetches: BTreeMap<_, _> = alive
        .machine
        .fetches()
        .progress()
        .map(|fetch| ((fetch.request, fetch.epoch), (fetch.kind, fetch.state)))
        .collect();
    let mut line = Line::new();
    for (request, epoch, attempt) in core.attempts() {
        let fetch = fetches.get(&(request, epoch));
        for choice in attempt.live.iter().copied().chain([PROMPT]) {
            let key = SeqKey { request, epoch, choice };
            let Some(sequence) = core.sequence(key).filter(|sequence| !sequence.closing) else { continue };
            let handoff = fetch.is_some_and(|(kind, _)| *kind != FetchKind::Prefix);
            let wants = match fetch {
                // It is not in the line yet.
                Some((FetchKind::Prefix, _) | (_, FetchState::Expecting)) => continue,
                Some((_, state)) => *state == FetchState::WaitingRoom,
                // Its fetch came to nothing, and its router is about to say so.
                None if sequence.fetching => continue,
                None => !core.kv.is_open(key) && !core.kv.is_open(SeqKey { choice: LOAD, ..key }),
            };
            let last = before.get(&key);
            let since = last.map_or(now, |last| last.waits.unwrap_or(now));
            let lost = choice != PROMPT && wants && last.is_some_and(|last| last.lost || last.is_open);
            let rests = lost && core.is_held(key);
            let loads = wants && (tiers_move || last.is_some_and(|last| last.loads));
            let stand = Stand {
                arrived: sequence.arrived,
                handoff,
                is_open: core.kv.is_open(key),
                waits: wants.then_some(since),
                had_room: had_room(before, key),
                lost,
                rests,
                loads,
                tokens: sequence.tokens.len() as u32,
                places: if choice == PROMPT { attempt.live.len() as u32 } else { 1 },
            };
            line.insert(key, stand);
        }
    }
    line
}

/// Whether any sequence of the attempt had room before.
fn had_room(before: &Line, key: SeqKey) -> bool {
    let attempt = SeqKey { choice: Choice(0), ..key }..=SeqKey { choice: PROMPT, ..key };
    before.range(attempt).any(|(_, stand)| stand.had_room || stand.waits.is_none())
}

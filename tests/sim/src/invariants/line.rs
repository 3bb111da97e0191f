//! Who came earlier is not overtaken: what waits for room of a device gets it in the order in which it came, what lost its room
//! before what never had any.
//!
//! A worker is looked at after each of its turns, so that of two which get room in one turn nothing is known.

use crate::event::WorkerIndex;
use crate::process::WorkerLife;
use crate::world::World;
use domain::{Choice, SeqKey, Time};
use kv_manager::FetchState;
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
    /// It had room before, or another sequence of its attempt had.
    had_room: bool,
    /// It lost its room itself.
    lost: bool,
    /// Something was loaded or lifted while it waited, maybe for it.
    loads: bool,
}

impl Stand {
    /// It is a prompt that has its room and is computed here.
    pub(crate) fn computes(&self, key: SeqKey) -> bool {
        key.choice == PROMPT && self.waits.is_none() && !self.handoff
    }
}

/// Looks at a worker that had its turn.
pub(crate) fn check(world: &mut World, w: WorkerIndex) -> Result<(), String> {
    let now = world.now;
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
        for (other, stand, since) in waited {
            let earlier = stand.lost && since < now || stand.arrived < new.arrived && since < came;
            // It waited when the worker had its turn before.
            if !stand.loads && earlier && before.contains_key(other) {
                return Err(format!("{key} gets room, and {other} waits since {since}: {stand:?}, {new:?}"));
            }
        }
    }
    Ok(())
}

fn stands(alive: &WorkerLife, now: Time, before: &Line) -> Line {
    let core = alive.machine.core();
    let tiers_move = alive.machine.tiers_move();
    let fetches: BTreeMap<_, _> =
        alive.machine.all_fetches().map(|fetch| ((fetch.request, fetch.epoch), (fetch.kind, fetch.state))).collect();
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
            // A prompt keeps its room: what it had before was a load's.
            let lost = choice != PROMPT && wants && last.is_some_and(|last| last.lost || last.waits.is_none());
            let loads = wants && (tiers_move || last.is_some_and(|last| last.loads));
            let stand = Stand {
                arrived: sequence.arrived,
                handoff,
                waits: wants.then_some(since),
                had_room: had_room(before, key),
                lost,
                loads,
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

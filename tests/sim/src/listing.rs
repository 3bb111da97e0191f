//! Discovery: how workers come to be listed, what routers are shown of that, and whom they dial.
//!
//! A router follows the directory through discovery's own [`Table`]. It dials what is listed, and keeps a session for
//! as long as that lasts, as the router's dialer does.

use crate::directory::{Directory, Listings, index_of, key_of, life_of, nowhere, worker_at};
use crate::event::{Event, Life, RouterIndex, WorkerIndex};
use crate::fault::FaultKind;
use crate::invariants::listing;
use crate::process::{Router, RouterMail};
use crate::random::Random;
use crate::reach::Reached;
use crate::world::World;
use discovery::{Change, Key, Member, Sight, Table};
use domain::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long a call of the directory takes, and what it shows is on its way, in microseconds.
const WAY: (u64, u64) = (50, 3000);
/// How much longer while it lags, in milliseconds.
const LAG: (u64, u64) = (0, 400);
/// How much later something is shown again, in milliseconds.
const AGAIN: (u64, u64) = (0, 200);
/// Of so many sights out of 1,000 another one is shown again, while the directory repeats itself.
const REPEATS: u32 = 500;
/// Earlier sights that may be shown again.
const SHOWN_MAX: usize = 16;
/// So many workers out of 1,000 that are forgotten are shown to leave by no sight: they are missing in a listing.
const SILENTLY: u32 = 500;

/// The directory of a world, and what is wrong with it.
pub(crate) struct Discovery {
    pub(crate) directory: Directory,
    listings: Listings,
    random: Random,
    /// How many faults make it lag, and repeat itself.
    lags: u32,
    repeats: u32,
    /// Workers that it does not list whatever they do.
    forgotten: BTreeSet<WorkerIndex>,
    /// What it showed last.
    shown: VecDeque<Sight>,
    /// Sights that it sent to routers.
    pub(crate) sent: u64,
}

/// What a fault of the directory is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mistake {
    /// It shows things late, and in another order.
    Lags,
    /// It shows things again, after later ones.
    Repeats,
    /// It does not list a worker that lives.
    Forgets(WorkerIndex),
    /// It lists one that never was.
    Invents(WorkerIndex),
    /// It lists a worker where that is not.
    Misplaces(WorkerIndex),
    /// It shows an earlier life of a worker as if it were new.
    Earlier(WorkerIndex),
}

/// What a router sees of the directory.
#[derive(Default)]
pub(crate) struct Follower {
    pub(crate) table: Table,
    /// The workers as the changes say. What is here is what the router follows.
    pub(crate) known: BTreeMap<Key, Member>,
    /// The newest revision that it was shown.
    pub(crate) newest: u64,
    /// It may have missed something, until it is shown all again.
    pub(crate) missed: bool,
    /// Nothing that is shown in order arrives before this.
    last: Time,
}

impl Follower {
    pub(crate) fn lists(&self, w: WorkerIndex) -> bool {
        self.known.contains_key(&key_of(w))
    }
}

impl Discovery {
    pub(crate) fn new(listings: Listings, seed: u64) -> Self {
        Self {
            directory: Directory::default(),
            listings,
            random: Random::new(seed, 14),
            lags: 0,
            repeats: 0,
            forgotten: BTreeSet::new(),
            shown: VecDeque::new(),
            sent: 0,
        }
    }

    /// When a call of now is answered, whatever else is on its way.
    fn answers(&mut self, now: Time) -> Time {
        let at = now + self.random.micros(WAY.0, WAY.1);
        if self.lags > 0 { at + self.random.millis(LAG.0, LAG.1) } else { at }
    }
}

impl World {
    // -- workers

    /// A worker has itself listed.
    pub(crate) fn register_later(&mut self, w: WorkerIndex) {
        let (now, life) = (self.now, self.workers[w].life);
        let Some(discovery) = &mut self.discovery else { return };
        let at = discovery.answers(now);
        self.agenda.enter(at, Event::Register { worker: w, life });
    }

    /// A worker died. It is listed until its lease lapses.
    pub(crate) fn lapse_later(&mut self, w: WorkerIndex) {
        let life = self.workers[w].life;
        let Some(discovery) = &self.discovery else { return };
        self.agenda.enter(self.now + discovery.listings.lease, Event::Lapse { worker: w, life });
    }

    /// The directory takes a worker's entry, unless it has a later life of it.
    pub(crate) fn register(&mut self, w: WorkerIndex, life: Life) {
        let worker = &self.workers[w];
        let (lives, role) = (worker.life == life && worker.alive.is_some(), worker.role);
        let Some(discovery) = &mut self.discovery else { return };
        let member = discovery.listings.member(w, life, role);
        let listed = discovery.directory.get(w);
        let is_superseded = listed.is_some_and(|listed| life_of(listed) > life || *listed == member);
        if !lives || is_superseded || discovery.forgotten.contains(&w) {
            return;
        }
        let sight = discovery.directory.put(member);
        self.trace.note(self.now, || format!("the directory lists w{w} in life {life}"));
        self.show(&sight);
    }

    /// The directory forgets a life of a worker.
    pub(crate) fn unlist(&mut self, w: WorkerIndex, life: Life) {
        let Some(discovery) = &mut self.discovery else { return };
        if discovery.directory.get(w).is_none_or(|listed| life_of(listed) != life) {
            return;
        }
        if let Some(sight) = discovery.directory.remove(w) {
            self.trace.note(self.now, || format!("the directory lists w{w} no more"));
            self.show(&sight);
        }
    }

    // -- routers

    /// A router that begins asks for all that is listed, or for all workers where there is no directory.
    pub(crate) fn find_workers(&mut self, r: RouterIndex) {
        if self.discovery.is_some() {
            return self.list_later(r);
        }
        for worker in 0..self.workers.len() {
            let at = self.now + self.random.micros(0, 5000);
            self.dial_at(r, worker, at);
        }
    }

    /// A router asks for all that is listed.
    fn list_later(&mut self, r: RouterIndex) {
        let (now, life) = (self.now, self.routers[r].life);
        let Some(discovery) = &mut self.discovery else { return };
        let at = discovery.answers(now);
        self.agenda.enter(at, Event::List { router: r, life });
    }

    /// Something that the directory shows is on its way to all routers.
    fn show(&mut self, sight: &Sight) {
        let now = self.now;
        let Some(discovery) = &mut self.discovery else { return };
        for (router, of) in self.routers.iter_mut().enumerate() {
            let (life, Some(alive)) = (of.life, &mut of.alive) else { continue };
            let mut at = discovery.answers(now);
            // A watch has an order; a follower that does not see that reads all again.
            if discovery.lags > 0 {
                alive.follower.missed = true;
            } else {
                at = at.max(alive.follower.last);
                alive.follower.last = at;
            }
            discovery.sent += 1;
            self.agenda.enter(at, Event::Sight { router, life, sight: Box::new(sight.clone()) });
            if discovery.repeats > 0 && discovery.random.chance(REPEATS) {
                let earlier =
                    discovery.shown.iter().chain([sight]).nth(discovery.random.index(discovery.shown.len() + 1));
                let sight = Box::new(earlier.unwrap_or(sight).clone());
                let at = at + discovery.random.millis(AGAIN.0, AGAIN.1);
                self.agenda.enter(at, Event::Sight { router, life, sight });
            }
        }
        discovery.shown.push_back(sight.clone());
        if discovery.shown.len() > SHOWN_MAX {
            discovery.shown.pop_front();
        }
    }

    /// A router is shown something; `None`: all that is listed now.
    pub(crate) fn shown(&mut self, r: RouterIndex, life: Life, sight: Option<Sight>) {
        if self.routers[r].life == life {
            self.router_mail(r, RouterMail::Sight(sight));
        }
    }

    /// A router looks at what it is shown, and follows what that changes.
    pub(crate) fn follow(&mut self, r: RouterIndex, sight: Option<Sight>) {
        let (Some(discovery), Some(alive)) = (&self.discovery, &mut self.routers[r].alive) else { return };
        let follower = &mut alive.follower;
        if sight.is_none() {
            follower.missed = false;
        }
        let sight = sight.unwrap_or_else(|| discovery.directory.all());
        let seen = listing::Seen::of(follower, &sight);
        let changes = follower.table.handle(sight);
        if let Some(reached) = seen.reached(&changes) {
            self.coverage.reach(reached);
        }
        if let Err(what) = seen.check(follower, &changes) {
            self.violated(listing::NAME, format!("router {r}: {what}"));
        }
        changes.into_iter().for_each(|change| self.change(r, change));
    }

    fn change(&mut self, r: RouterIndex, change: Change) {
        self.trace.note(self.now, || match &change {
            Change::Joined(member) => format!("router {r} is shown w{} at {}", member.key, member.address),
            Change::Changed(member) => format!("router {r} is shown that w{} is at {}", member.key, member.address),
            Change::Left(key) => format!("router {r} is shown that w{key} left"),
        });
        let Some(alive) = &mut self.routers[r].alive else { return };
        let key = match change {
            Change::Joined(member) | Change::Changed(member) => {
                let key = member.key.clone();
                alive.follower.known.insert(key.clone(), member);
                key
            }
            Change::Left(key) => {
                alive.follower.known.remove(&key);
                key
            }
        };
        let w = index_of(&key);
        if alive.links.contains_key(&w) || alive.dialling.contains_key(&w) {
            return;
        }
        if alive.follower.known.contains_key(&key) { self.dial_at(r, w, self.now) } else { self.forget(r, w) }
    }

    /// A worker that is not listed and has no session is nothing to a router any more.
    pub(crate) fn forget(&mut self, r: RouterIndex, w: WorkerIndex) {
        let Some(alive) = &mut self.routers[r].alive else { return };
        let dialed = alive.back_off.remove(&w).is_some();
        alive.dials.remove(&w);
        if dialed && w >= self.workers.len() {
            self.coverage.reach(Reached::InventedForgotten);
        }
    }

    /// Whether a router knows of a worker that it may dial.
    pub(crate) fn is_listed(&self, r: RouterIndex, w: WorkerIndex) -> bool {
        let follower = self.routers[r].alive.as_ref().map(|alive| &alive.follower);
        self.discovery.is_none() || follower.is_some_and(|follower| follower.lists(w))
    }

    /// Which worker is there if a router dials one; none: no worker is.
    pub(crate) fn found_at(&self, r: RouterIndex, w: WorkerIndex) -> Option<WorkerIndex> {
        let Some(discovery) = &self.discovery else { return Some(w) };
        let follower = &self.routers[r].alive.as_ref()?.follower;
        let address = &follower.known.get(&key_of(w))?.address;
        let there = worker_at(address);
        let life = self.workers.get(there)?.life;
        (discovery.listings.address(there, life) == *address).then_some(there)
    }

    // -- faults

    /// What a fault of a kind is about.
    pub(crate) fn mistake(&mut self, kind: FaultKind, number: usize, w: WorkerIndex) -> Option<Mistake> {
        let workers = self.workers.len();
        let random = &mut self.discovery.as_mut()?.random;
        Some(match kind {
            FaultKind::DirectoryLags => Mistake::Lags,
            FaultKind::DirectoryRepeats => Mistake::Repeats,
            FaultKind::DirectoryForgets => Mistake::Forgets(w),
            _ => random.pick(&[Mistake::Invents(workers + number), Mistake::Misplaces(w), Mistake::Earlier(w)]),
        })
    }

    /// The directory is wrong about something, or not any more.
    pub(crate) fn mistaken(&mut self, mistake: Mistake, begins: bool) {
        let Some(discovery) = &mut self.discovery else { return };
        match mistake {
            Mistake::Lags => discovery.lags = if begins { discovery.lags + 1 } else { discovery.lags - 1 },
            Mistake::Repeats => discovery.repeats = if begins { discovery.repeats + 1 } else { discovery.repeats - 1 },
            Mistake::Forgets(w) if begins => {
                discovery.forgotten.insert(w);
                let sight = discovery.directory.remove(w);
                if discovery.random.chance(SILENTLY) {
                    self.missed_something();
                    (0..self.routers.len()).for_each(|r| self.list_later(r));
                } else {
                    sight.iter().for_each(|sight| self.show(sight));
                }
            }
            Mistake::Forgets(w) => {
                discovery.forgotten.remove(&w);
            }
            Mistake::Invents(w) if begins => {
                let there = discovery.random.index(self.workers.len());
                let of = &self.workers[there];
                let of_another = discovery.listings.address(there, of.life);
                let address = if discovery.random.chance(500) { of_another } else { nowhere(w) };
                let sight = discovery.directory.put(discovery.listings.misplaced(w, 1, of.role, address));
                self.show(&sight);
            }
            Mistake::Invents(w) => {
                let gone = discovery.directory.remove(w);
                gone.iter().for_each(|sight| self.show(sight));
            }
            Mistake::Misplaces(w) if begins => {
                let there = discovery.random.index(self.workers.len());
                let of_another = discovery.listings.address(there, self.workers[there].life);
                let address = if there == w { nowhere(w) } else { of_another };
                let (life, role) = (self.workers[w].life, self.workers[w].role);
                if discovery.directory.get(w).is_some_and(|listed| life_of(listed) == life) {
                    let sight = discovery.directory.put(discovery.listings.misplaced(w, life, role, address));
                    self.show(&sight);
                }
            }
            Mistake::Earlier(w) if begins => {
                let (life, role) = (self.workers[w].life, self.workers[w].role);
                let earlier = discovery.listings.misplaced(w, life - 1, role, nowhere(w));
                let sight = discovery.directory.lie(earlier);
                self.missed_something();
                self.show(&sight);
            }
            Mistake::Misplaces(_) | Mistake::Earlier(_) => {}
        }
        if !begins {
            self.directory_recovers();
        }
    }

    /// The directory is right about everything that faults made it wrong about.
    pub(crate) fn directory_heals(&mut self) {
        let Some(discovery) = &mut self.discovery else { return };
        (discovery.lags, discovery.repeats) = (0, 0);
        discovery.forgotten.clear();
        let workers = self.workers.len();
        let listed = discovery.directory.members().map(|member| index_of(&member.key));
        let invented: Vec<_> = listed.filter(|&w| w >= workers).collect();
        invented.into_iter().for_each(|w| self.mistaken(Mistake::Invents(w), false));
        self.directory_recovers();
    }

    /// Workers see at their next sign of life whether they are listed as they are. Routers that missed something read
    /// all again.
    fn directory_recovers(&mut self) {
        (0..self.workers.len()).for_each(|w| self.register_later(w));
        let missed = |router: &Router| router.alive.as_ref().is_some_and(|alive| alive.follower.missed);
        let missed: Vec<_> = (0..self.routers.len()).filter(|&r| missed(&self.routers[r])).collect();
        missed.into_iter().for_each(|r| self.list_later(r));
    }

    /// All routers may see something else than what is listed.
    fn missed_something(&mut self) {
        let alive = self.routers.iter_mut().filter_map(|router| router.alive.as_mut());
        alive.for_each(|alive| alive.follower.missed = true);
    }
}

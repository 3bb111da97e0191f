//! Who asks: the tenants of a world, what share of each place is theirs, and what may happen between them.

use crate::event::WorkerIndex;
use crate::random::Random;
use crate::scenario::Ask;
use crate::world::World;
use domain::session::Submit;
use domain::{BlockHash, Request};
use kv_manager::Quotas;
use std::sync::Arc;

/// The tenants of a world.
#[derive(Clone, Debug)]
pub(crate) struct Tenants {
    /// The empty name is one of those that share.
    pub(crate) names: Vec<String>,
    pub(crate) quotas: Quotas,
}

impl Tenants {
    /// One in every other world.
    pub(crate) fn draw(random: &mut Random) -> Self {
        let count = if random.chance(500) { 1 } else { random.range(2, 4) };
        let names = (0..count).map(|number| if number == 0 { String::new() } else { format!("t{number}") }).collect();
        let percents = [100, 0, 15, 25, 34, 50, 75];
        let (device_percent, disk_percent) = (random.pick(&percents), random.pick(&percents));
        Self { names, quotas: Quotas { device_percent, disk_percent, ..Quotas::default() } }
    }

    /// Gives so many requests of 1,000 to a tenant that is drawn: what they say others may have said.
    pub(crate) fn assign(&self, random: &mut Random, asks: &mut [Ask], per_mille: u32) {
        for ask in asks {
            let tenant = self.names[random.index(self.names.len())].clone();
            if random.chance(per_mille) {
                ask.request = Arc::new(Request { tenant, ..(*ask.request).clone() });
            }
        }
    }

    /// Slots that are a tenant's quota of so many; `None`: nobody is there to take them from, or nothing bounds it.
    pub(crate) fn quota(&self, slots: u32, percent: u32) -> Option<u32> {
        (self.names.len() > 1 && percent < 100).then(|| slots * percent / 100)
    }
}

/// What may happen between tenants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Meeting {
    /// A prompt comes to a worker whose device has its text for another tenant.
    TextOnDevice,
    /// Its disk has.
    TextOnDisk,
    /// The device of another worker has.
    TextElsewhere,
    /// Who has its quota of the device gives up its own, though others had something to give up too.
    OwnGoesOnDevice,
    /// Who has more than its quota of the device gives some up for another one.
    OverGoesOnDevice,
    /// Who has its quota of the disk gives up its own, though others had something to give up too.
    OwnGoesOnDisk,
    /// Who has more than its quota of the disk gives some up for another one.
    OverGoesOnDisk,
}

/// All of them.
pub(crate) const MEETINGS: [Meeting; 7] = [
    Meeting::TextOnDevice,
    Meeting::TextOnDisk,
    Meeting::TextElsewhere,
    Meeting::OwnGoesOnDevice,
    Meeting::OverGoesOnDevice,
    Meeting::OwnGoesOnDisk,
    Meeting::OverGoesOnDisk,
];

impl World {
    /// A prompt comes to a worker: what there is of its text that is other tenants'.
    pub(crate) fn meet(&mut self, w: WorkerIndex, submit: &Submit) {
        let has = |worker: WorkerIndex, hash: BlockHash| {
            let alive = self.workers[worker].alive.as_ref();
            alive.is_some_and(|alive| alive.machine.core().kv.sealed().any(|(.., sealed)| sealed == hash))
        };
        let mut met = Vec::new();
        for other in self.scenario.tenants.names.iter().filter(|&name| *name != submit.tenant) {
            let Some(&first) = self.truth.chain(other, submit.adapter.as_ref(), &submit.prompt).first() else {
                continue;
            };
            let elsewhere = || (0..self.workers.len()).any(|worker| worker != w && has(worker, first));
            met.extend(has(w, first).then_some(Meeting::TextOnDevice));
            met.extend(self.disk_has(w, first).then_some(Meeting::TextOnDisk));
            met.extend(elsewhere().then_some(Meeting::TextElsewhere));
        }
        met.into_iter().for_each(|meeting| self.coverage.hit_meeting(meeting));
    }
}

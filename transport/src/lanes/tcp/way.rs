//! A link over `tcp`, as the threads that prepare and post transfers see it: the owner's regions, and the rails, each
//! of which is a connection that is made anew when it breaks.

use super::asker::Asker;
use super::plan::{Request, StreamPlan};
use crate::clock::now;
use crate::lanes::rails::{Rails, Trial};
use crate::net::control::hello::Region;
use crate::net::socket::Socket;
use crate::regions::{RegionId, take_note};
use crate::speed::link_speed::LinkSpeed;
use crate::wire_error::WireError;
use kv_memory::DeviceId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way to an owner's bytes.
pub(crate) struct TcpWay {
    /// Bytes of each region.
    regions: Mutex<BTreeMap<RegionId, u64>>,
    rails: Mutex<Rails>,
    /// The speaking half of each rail.
    askers: Vec<Arc<Asker>>,
    /// Where each rail connects to.
    addresses: Vec<String>,
    /// The device whose memory some of the regions are.
    device: Option<DeviceId>,
    /// Whether the caller that waited for the last read received it, so that it will receive the next one, too.
    driven: AtomicBool,
}

/// The connection of a rail that was just made.
pub(crate) struct JoinedRail {
    /// It does not block.
    pub(crate) socket: Socket,
    /// Bytes a second that it delivered alone. `None`: that was not measured.
    pub(crate) bytes_per_s: Option<f64>,
}

impl JoinedRail {
    /// Says how connecting went; `None`: it failed.
    pub(super) fn trial(joined: Option<&Self>) -> Trial {
        match joined {
            None => Trial::Failed,
            Some(Self { bytes_per_s: None, .. }) => Trial::Works,
            Some(&Self { bytes_per_s: Some(bytes_per_s), .. }) => Trial::Measured(bytes_per_s),
        }
    }
}

impl TcpWay {
    /// `rails`: the address of each, and its connection if it could be made.
    pub(crate) fn new(regions: BTreeMap<RegionId, u64>, rails: Vec<(String, Option<JoinedRail>)>) -> Self {
        let trials: Vec<_> = rails.iter().map(|(_, joined)| JoinedRail::trial(joined.as_ref())).collect();
        let (mut askers, mut addresses) = (Vec::new(), Vec::new());
        for (index, (address, joined)) in rails.into_iter().enumerate() {
            let asker = Asker::new(index);
            if let Some(joined) = joined {
                asker.connect(joined.socket);
            }
            askers.push(Arc::new(asker));
            addresses.push(address);
        }
        let rails = Mutex::new(Rails::new(&trials, now()));
        let (regions, driven) = (Mutex::new(regions), AtomicBool::new(false));
        Self { regions, rails, askers, addresses, device: None, driven }
    }

    /// The same, of regions of which some are memory of this device.
    pub(crate) fn of_device(self, device: Option<DeviceId>) -> Self {
        Self { device, ..self }
    }

    /// Returns the device whose memory some of the regions are.
    pub(crate) fn device(&self) -> Option<DeviceId> {
        self.device
    }

    fn regions(&self) -> MutexGuard<'_, BTreeMap<RegionId, u64>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of a region.
    pub(crate) fn region_len(&self, id: RegionId) -> Option<u64> {
        self.regions().get(&id).copied()
    }

    /// A region that can be read to see how fast that is.
    pub(crate) fn any_region(&self) -> Option<RegionId> {
        self.regions().iter().find(|&(_, &len)| len > 0).map(|(&id, _)| id)
    }

    /// A region that came later than the others. Errors: it is known already, or there are too many.
    pub(crate) fn add_region(&self, region: Region) -> Result<(), WireError> {
        take_note(&mut self.regions(), region.id, region.len)
    }

    /// A region that is registered no more.
    pub(crate) fn withdraw_region(&self, id: RegionId) {
        self.regions().remove(&id);
    }

    /// Has its rails say to `speed` what they bring.
    pub(crate) fn tell(&self, speed: Arc<Mutex<LinkSpeed>>) {
        self.rails().report_to(speed);
    }

    /// Returns where a rail connects to.
    pub(crate) fn address(&self, rail: usize) -> &str {
        &self.addresses[rail]
    }

    pub(super) fn rails(&self) -> MutexGuard<'_, Rails> {
        self.rails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the thread need not look out for what is asked for now. If no caller does, what comes wakes it.
    pub(super) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Relaxed)
    }

    pub(super) fn set_driven(&self, driven: bool) {
        self.driven.store(driven, Ordering::Relaxed);
    }

    pub(super) fn askers(&self) -> &[Arc<Asker>] {
        &self.askers
    }

    /// Gives each request of a transfer that has none the rail by which it is answered first, and asks. `false`:
    /// some wait for a rail, or for room in a socket.
    pub(super) fn ask(&self, plan: &mut StreamPlan) -> bool {
        self.spread(plan);
        // Each rail has a share of its own, whatever becomes of the others'.
        let unfinished = self.askers.iter().filter(|asker| !matches!(asker.ask(plan), Ok(true))).count();
        unfinished == 0 && plan.requests.iter().all(|request| request.rail.is_some())
    }

    fn spread(&self, plan: &mut StreamPlan) {
        let now = now();
        let mut rails = self.rails();
        // The thread that posts may have picked a rail that was just being put aside, and found no connection there.
        let waits =
            |rails: &Rails, request: &Request| request.rail.is_none_or(|rail| request.life == 0 && !rails.is_up(rail));
        for request in &mut plan.requests {
            if !waits(&rails, request) {
                continue;
            }
            let Some(rail) = rails.pick(request.bytes, |_| true) else { return };
            rails.ask(rail, request.bytes, request.is_pending, now);
            request.rail = Some(rail);
        }
    }

    /// Returns whether something of a transfer has still to be asked for. What was asked for over connections that are
    /// not there any more, and has not come as a whole, has.
    pub(super) fn is_unasked(&self, plan: &mut StreamPlan) -> bool {
        plan.forget(|rail, life| self.askers[rail].life() != life);
        plan.requests.iter().any(|request| request.life == 0)
    }

    /// A rail is used from now on.
    pub(super) fn connect(&self, rail: usize, socket: Socket) {
        self.askers[rail].connect(socket);
    }

    /// What is left of a transfer is not wanted any more: it is not asked for, and taken back where it was.
    pub(super) fn give_up(&self, plan: &StreamPlan) {
        let now = now();
        let mut rails = self.rails();
        for request in &plan.requests {
            if let Some(rail) = request.rail.filter(|&rail| self.askers[rail].life() == request.life) {
                rails.take_back(rail, plan.missing_of(request), request.is_pending, now);
            }
        }
        drop(rails);
        self.askers.iter().for_each(|asker| asker.give_up(plan));
    }
}

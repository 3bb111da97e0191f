//! The lane `rdma` of a build without it: the same names, and none of their values can be had.

use crate::config::RdmaConfig;
use crate::control::{Channel, Frame, Unreached};
use crate::desk::Desk;
use crate::link::Link;
use crate::memory::{Memory, RegionId};
use crate::prepared::{Again, Plan};
use crate::station::Station;
use crate::transfer::{PrepareError, Run};
use domain::WorkerId;
use std::io;
use std::sync::Arc;

#[cfg(feature = "fuzzing")]
#[path = "lane_rdma/fuzzing.rs"]
pub(crate) mod fuzzing;
#[cfg(feature = "fuzzing")]
#[path = "lane_rdma/fuzzing_ends.rs"]
pub(crate) mod fuzzing_ends;
// What peers say is read here for tests alone.
#[cfg(any(test, feature = "fuzzing"))]
#[expect(dead_code, reason = "nobody here speaks so")]
#[path = "lane_rdma/owner.rs"]
mod owner;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "lane_rdma/pretended.rs"]
mod pretended;
#[cfg(any(test, feature = "fuzzing"))]
#[expect(dead_code, reason = "nobody here speaks so")]
#[path = "lane_rdma/told.rs"]
mod told;
#[cfg(any(test, feature = "fuzzing"))]
#[path = "lane_rdma/wire.rs"]
mod wire;

/// What there is none of.
pub(crate) enum Verbs {}

/// As [`Verbs`].
pub(crate) enum RdmaWay {}

/// As [`Verbs`].
pub(crate) enum ReadPlan {}

/// As [`Verbs`].
pub(crate) enum Order {}

/// An owner that was agreed with.
pub(crate) struct Met {
    pub(crate) way: Arc<RdmaWay>,
}

impl Verbs {
    pub(crate) fn new(_: &RdmaConfig, _: usize) -> Result<Self, String> {
        Err("not built in".to_owned())
    }

    pub(crate) fn failed(&self) -> Option<String> {
        match *self {}
    }

    pub(crate) fn register(&self, _: RegionId, _: &Arc<dyn Memory>) {
        match *self {}
    }

    pub(crate) fn deregister(&self, _: RegionId, _: &Arc<dyn Memory>) {
        match *self {}
    }

    pub(crate) fn desk(&self) -> &Desk<Order, Channel> {
        match *self {}
    }

    pub(crate) fn scratch(&self) -> Arc<dyn Memory> {
        match *self {}
    }

    pub(crate) fn meet(
        &self,
        _: Channel,
        _: u64,
        _: impl Fn(&mut Channel) -> Result<Frame, Unreached>,
    ) -> Result<Met, Unreached> {
        match *self {}
    }

    pub(crate) fn adopt(&self, _: Arc<Link>, _: Met) {
        match *self {}
    }
}

impl RdmaWay {
    pub(crate) fn progress(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn region_len(&self, _: RegionId) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn any_region(&self) -> Option<RegionId> {
        match *self {}
    }
}

impl ReadPlan {
    pub(crate) fn new(
        way: &RdmaWay,
        _: WorkerId,
        _: Vec<Run>,
        _: impl Fn(RegionId) -> Result<Arc<dyn Memory>, PrepareError>,
    ) -> Result<Self, PrepareError> {
        match *way {}
    }
}

impl Again for ReadPlan {
    fn again(self) -> Plan {
        match self {}
    }
}

pub(crate) fn run(_: &Station) -> io::Result<()> {
    Ok(())
}

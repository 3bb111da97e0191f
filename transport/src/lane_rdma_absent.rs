//! The lane `rdma` of a build without it: the same names, and none of their values can be had.

use crate::config::RdmaConfig;
use crate::control::{Channel, Frame};
use crate::event::{TransferId, TransferReport};
use crate::link::Link;
use crate::memory::{Memory, RegionId};
use crate::prepared::{Again, Plan};
use crate::station::Station;
use crate::transfer::{PrepareError, Run, Transfer};
use domain::{Incarnation, WorkerId};
use std::sync::Arc;
use std::time::Duration;

/// What there is none of.
pub(crate) enum Verbs {}

/// As [`Verbs`].
pub(crate) enum RdmaWay {}

/// As [`Verbs`].
pub(crate) enum ReadPlan {}

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

    pub(crate) fn register(&self, _: &Arc<dyn Memory>) {
        match *self {}
    }

    pub(crate) fn post(&self, _: TransferId, _: Transfer) {
        match *self {}
    }

    pub(crate) fn read(&self, _: Transfer, _: Duration) -> Result<TransferReport, String> {
        match *self {}
    }

    pub(crate) fn scratch(&self) -> Arc<dyn Memory> {
        match *self {}
    }

    pub(crate) fn meet(
        &self,
        _: Channel,
        _: u64,
        _: impl Fn(&mut Channel) -> Result<Frame, String>,
    ) -> Result<Met, String> {
        match *self {}
    }

    pub(crate) fn adopt(&self, _: Arc<Link>, _: Met) {
        match *self {}
    }

    pub(crate) fn cancel(&self, _: TransferId) {
        match *self {}
    }

    pub(crate) fn serve(&self, _: WorkerId, _: Incarnation, _: Channel) {
        match *self {}
    }

    pub(crate) fn introduced(&self, _: WorkerId, _: Incarnation) {
        match *self {}
    }

    pub(crate) fn links_changed(&self) {
        match *self {}
    }

    pub(crate) fn close(&self) {
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

pub(crate) fn run(_: &Station) {}

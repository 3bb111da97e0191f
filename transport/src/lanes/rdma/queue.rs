//! Queue pairs.
//!
//! A queue pair of a reader lets no peer in, one of an owner lets its one peer read. None is made for writing.

use super::error::DeviceError;
use super::port::{Port, PortState};
use super::verbs::layout::*;
use super::verbs::{CompletionQueue, Pair, VerbsError};
use super::wire::{GidKind, PortAddress};
use crate::agent::config::RdmaService;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;
use std::sync::Arc;

/// How often a device asks again where the other end is not ready: only receivers of messages say so, and there
/// are none.
const NOT_READY_RETRIES: u8 = 0;
/// Routers that a packet may pass.
const HOPS_MAX: u8 = 64;
/// Reads posted with one doorbell.
pub(super) const CHAIN_MAX: usize = 16;

/// One contiguous read, as the device does it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Read {
    /// What its completion is known by.
    pub(super) id: u64,
    pub(super) remote_key: u32,
    pub(super) remote_address: u64,
    pub(super) local_key: u32,
    pub(super) local_address: u64,
    pub(super) len: u32,
}

/// A reliably connected queue pair.
pub(super) struct QueuePair {
    pair: Pair,
    /// The first packet that it sends.
    packet: u32,
    service: RdmaService,
}

/// How many reads go over a queue pair at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    /// This end's.
    pub(super) reads: u8,
    /// The other end's.
    pub(super) reads_of_peer: u8,
}

impl QueuePair {
    /// Makes a queue pair that is not connected yet, for `reads` posted at once.
    pub(super) fn new(
        port: &Port,
        completions: &Arc<CompletionQueue>,
        reads: u32,
        lets_read: bool,
    ) -> Result<Self, DeviceError> {
        Self::letting(port, completions, reads, if lets_read { REMOTE_READ } else { 0 })
    }

    /// One that lets its peer do what `access` says.
    fn letting(
        port: &Port,
        completions: &Arc<CompletionQueue>,
        reads: u32,
        access: c_uint,
    ) -> Result<Self, DeviceError> {
        let pair = Pair::new(&port.domain, completions, reads)?;
        let bytes: [u8; 4] = crate::random::bytes().map_err(|error| DeviceError::Random(error.into()))?;
        let [a, b, c, _] = bytes;
        let new = Self { pair, packet: u32::from_le_bytes([a, b, c, 0]), service: port.service };
        new.modify(initial(port.number, &port.service, access))?;
        Ok(new)
    }

    /// Its number, and the first packet that it sends.
    pub(super) fn number(&self) -> (u32, u32) {
        (self.pair.number(), self.packet)
    }

    /// Connects it to the queue pair `number` of the port at `peer`, whose first packet is `packet`.
    pub(super) fn connect(
        &mut self,
        state: &PortState,
        peer: &PortAddress,
        (number, packet): (u32, u32),
        depth: Depth,
    ) -> Result<(), VerbsError> {
        self.modify(receiving(state, peer, &self.service, (number, packet), depth))?;
        self.modify(sending(self.packet, &self.service, depth))
    }

    /// Ends it: what is under way, and what is posted from now on, completes with an error.
    pub(super) fn fail(&mut self) -> Result<(), VerbsError> {
        self.modify((PairAttributes { state: STATE_ERROR, ..PairAttributes::default() }, OF_STATE))
    }

    /// Returns whether it ended by itself. An owner's sends nothing that could fail: its device refused what the peer
    /// asked for. The state is looked at when it is of no use any more, so that no thread has to listen for a device's
    /// events, which not every driver reports.
    pub(super) fn has_failed(&self) -> bool {
        self.pair.state().is_ok_and(|state| state == STATE_ERROR)
    }

    fn modify(&self, (attributes, which): (PairAttributes, c_int)) -> Result<(), VerbsError> {
        self.pair.modify(attributes, which)
    }

    /// Posts reads, of which the last one's completion is told; if they fail, each one's. Errors: none, or
    /// some, of them were posted.
    ///
    /// # Safety
    /// The local ranges are registered memory that nobody else uses until the reads completed or the queue pair is
    /// gone.
    pub(super) unsafe fn read(&mut self, reads: &[Read]) -> Result<(), VerbsError> {
        let chains = reads.chunks(CHAIN_MAX);
        let last_chain = chains.len().saturating_sub(1);
        for (place, chain) in chains.enumerate() {
            let mut pieces = [LocalPiece::default(); CHAIN_MAX];
            let mut requests = [REQUEST; CHAIN_MAX];
            // From the last one on, so that each knows the next.
            let mut next: *mut Request = null_mut();
            for ((read, piece), request) in chain.iter().zip(&mut pieces).zip(&mut requests).rev() {
                *piece = LocalPiece { address: read.local_address, len: read.len, key: read.local_key };
                let is_last = next.is_null() && place == last_chain;
                *request = Request {
                    id: read.id,
                    next,
                    pieces: piece,
                    piece_count: 1,
                    operation: READ,
                    flags: if is_last { IS_TOLD } else { 0 },
                    remote_address: read.remote_address,
                    remote_key: read.remote_key,
                    ..REQUEST
                };
                next = request;
            }
            // SAFETY: the chain goes from the first of the requests to the last that was filled, and the caller
            // says so of the memory.
            unsafe { self.pair.post(&mut *next) }?;
        }
        Ok(())
    }
}

/// A request that says nothing.
const REQUEST: Request = Request {
    id: 0,
    next: null_mut(),
    pieces: null_mut(),
    piece_count: 0,
    operation: READ,
    flags: 0,
    immediate: 0,
    remote_address: 0,
    remote_key: 0,
    unused: [0; 9],
};

/// Returns what a new queue pair is told.
fn initial(port: u8, service: &RdmaService, access: c_uint) -> (PairAttributes, c_int) {
    let attributes = PairAttributes {
        state: STATE_INITIAL,
        partition_index: service.pkey_index,
        port,
        access,
        ..PairAttributes::default()
    };
    (attributes, OF_STATE | OF_PARTITION | OF_PORT | OF_ACCESS)
}

/// Returns what one is told of its peer.
fn receiving(
    state: &PortState,
    peer: &PortAddress,
    service: &RdmaService,
    (number, packet): (u32, u32),
    depth: Depth,
) -> (PairAttributes, c_int) {
    // Within an InfiniBand subnet the local id is enough.
    let has_route = peer.kind != GidKind::InfiniBand;
    let route = GlobalRoute {
        gid: Gid(peer.gid),
        flow_label: service.flow_label,
        gid_index: state.gid_index,
        hops: HOPS_MAX,
        traffic_class: service.traffic_class,
    };
    let address = Address {
        route: if has_route { route } else { GlobalRoute::default() },
        lid: peer.lid,
        service_level: service.service_level,
        has_route: has_route.into(),
        port: state.number,
        ..Address::default()
    };
    let attributes = PairAttributes {
        state: STATE_RECEIVING,
        address,
        mtu: c_uint::from(peer.mtu.min(state.address.mtu)),
        number_of_peer: number,
        first_packet_of_peer: packet,
        reads_of_peer: depth.reads_of_peer,
        ..PairAttributes::default()
    };
    let which = OF_STATE
        | OF_ADDRESS
        | OF_MTU
        | OF_NUMBER_OF_PEER
        | OF_FIRST_PACKET_OF_PEER
        | OF_READS_OF_PEER
        | OF_NOT_READY_WAIT;
    (attributes, which)
}

/// Returns what one is told of its own requests.
fn sending(packet: u32, service: &RdmaService, depth: Depth) -> (PairAttributes, c_int) {
    let attributes = PairAttributes {
        state: STATE_SENDING,
        first_packet: packet,
        answer_wait: service.timeout,
        answer_retries: service.retries,
        not_ready_retries: NOT_READY_RETRIES,
        reads: depth.reads,
        ..PairAttributes::default()
    };
    let which = OF_STATE | OF_FIRST_PACKET | OF_ANSWER_WAIT | OF_ANSWER_RETRIES | OF_NOT_READY_RETRIES | OF_READS;
    (attributes, which)
}

#[cfg(test)]
mod tests;

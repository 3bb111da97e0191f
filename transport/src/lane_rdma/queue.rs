//! Queue pairs and completion queues: what `sideway` wraps, with the few calls that it lacks.
//!
//! A queue pair of a reader lets nobody in, one of an owner lets its one peer read. None is made for writing.

use super::rail::{Port, Rail, explain};
use super::wire::{GidKind, RailAddress};
use rdma_mummy_sys as sys;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, Gid};
use sideway::ibverbs::completion::{CompletionQueue, GenericCompletionQueue};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair as _, QueuePairAttribute, QueuePairAttributeMask, QueuePairState,
    SendOperationFlags, SetScatterGatherEntry, WorkRequestFlags,
};
use std::ffi::c_void;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How long a device waits for an answer before it asks again: 4.096 us shifted by so much, half a second.
const ANSWER_WAIT: u8 = 17;
/// How often it asks again, until the read ends with an error: together about as long as a silent connection lives.
const ANSWER_RETRIES: u8 = 7;
/// How often it asks again where the other end is not ready: only receivers of messages say so, and there are none.
const NOT_READY_RETRIES: u8 = 0;
/// Routers that a packet may pass.
const HOPS_MAX: u8 = 64;

/// Completions that are taken by one call.
const TAKEN_AT_ONCE: usize = 32;

/// What a completion says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completed {
    /// What the read was posted with.
    pub(super) id: u64,
    /// 0: it and every earlier read of its queue pair succeeded. Else what libibverbs calls the status.
    pub(super) status: u32,
}

/// Where a device puts the completions of some queue pairs.
pub(super) struct Completions(ManuallyDrop<GenericCompletionQueue>);

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        destroy(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// Drops what `sideway` holds of a device, and survives that the device is gone: where libibverbs does not destroy it, `sideway` panics.
/// Of a queue pair libibverbs says EBUSY while it is in a multicast group, which a connected one cannot be, of a completion queue
/// while queue pairs use it, which hold it; and of both EIO once the device was unplugged, reset or its driver unloaded. Then the
/// kernel has taken all of them back, so nothing is read any more.
fn destroy<T>(held: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(held))).is_err() {
        tracing::error!(
            "an RDMA device is gone: what was made on it cannot be destroyed; restart this process once it is back"
        );
    }
}

impl Completions {
    /// Room for `entries`; when armed, the rail's channel tells `number` at the next one. Errors, in words.
    pub(super) fn new(rail: &Rail, entries: u32, number: u64) -> Result<Self, String> {
        let mut builder = rail.context.create_cq_builder();
        builder.setup_cqe(entries).setup_cq_context(number as *mut c_void).setup_comp_channel(&rail.channel, 0);
        // Not the extended interface: at the end of what there is, Soft-RoCE's driver takes one completion too many by it.
        let queue = builder.build().map_err(|error| explain(&error))?;
        Ok(Self(ManuallyDrop::new(GenericCompletionQueue::from(queue))))
    }

    /// What queue pairs hold of it.
    fn queue(&self) -> GenericCompletionQueue {
        GenericCompletionQueue::clone(&self.0)
    }

    /// The next completion is told. Who then sleeps must look first: what came before is not told. Errors, in words.
    pub(super) fn arm(&self) -> Result<(), String> {
        // SAFETY: the queue is alive, and only used by the thread that has this value.
        match unsafe { sys::ibv_req_notify_cq(self.0.cq().as_ptr(), 0) } {
            0 => Ok(()),
            error => Err(std::io::Error::from_raw_os_error(error).to_string()),
        }
    }

    /// Takes all that there are. Errors, in words.
    pub(super) fn take(&self, completed: &mut Vec<Completed>) -> Result<(), String> {
        loop {
            let mut taken = [const { MaybeUninit::<sys::ibv_wc>::uninit() }; TAKEN_AT_ONCE];
            // SAFETY: the queue is alive, only used by the thread that has this value, and there is room for so many. What the
            // device wrote before it completed is seen by this thread then.
            let count =
                unsafe { sys::ibv_poll_cq(self.0.cq().as_ptr(), TAKEN_AT_ONCE as i32, taken.as_mut_ptr().cast()) };
            let Ok(count) = usize::try_from(count) else {
                return Err("its completions cannot be taken".to_owned());
            };
            for one in &taken[..count] {
                // SAFETY: so many were written.
                let one = unsafe { one.assume_init_ref() };
                completed.push(Completed { id: one.wr_id, status: one.status });
            }
            if count < TAKEN_AT_ONCE {
                return Ok(());
            }
        }
    }
}

/// What an error that ended a read is called.
pub(super) fn describe(status: u32) -> String {
    // SAFETY: any number may be asked for; the answer is a constant string or null.
    let text = unsafe { sys::ibv_wc_status_str(status) };
    if text.is_null() {
        return format!("status {status}");
    }
    // SAFETY: not null, so a constant string.
    unsafe { std::ffi::CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The numbers of the completion queues of `rail` that have something since they were armed.
pub(super) fn take_events(rail: &Rail, numbers: &mut Vec<u64>) {
    loop {
        let (mut queue, mut number) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is alive and does not block.
        let none = unsafe { sys::ibv_get_cq_event(rail.channel.comp_channel().as_ptr(), &mut queue, &mut number) };
        if none != 0 {
            return;
        }
        // SAFETY: the event is of this queue, which is only destroyed by this thread.
        unsafe { sys::ibv_ack_cq_events(queue, 1) };
        numbers.push(number as u64);
    }
}

/// One contiguous read, as the device does it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// What its completion is known by.
    pub(super) id: u64,
    pub(super) remote_key: u32,
    pub(super) remote_address: u64,
    pub(super) local_key: u32,
    pub(super) local_address: u64,
    pub(super) len: u32,
}

/// A reliably connected queue pair. It is to be dropped before its completions: see [`destroy`].
pub(super) struct QueuePair {
    pair: ManuallyDrop<GenericQueuePair>,
    /// The first packet that it sends.
    packet: u32,
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        destroy(unsafe { ManuallyDrop::take(&mut self.pair) });
    }
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
    /// A queue pair that is not connected yet, for `reads` posted at once. Errors, in words.
    pub(super) fn new(rail: &Rail, completions: &Completions, reads: u32, lets_read: bool) -> Result<Self, String> {
        let mut builder = rail.domain.create_qp_builder();
        builder.setup_send_cq(completions.queue()).setup_recv_cq(completions.queue());
        builder.setup_max_send_wr(reads).setup_max_send_sge(1).setup_max_recv_wr(1).setup_max_recv_sge(1);
        builder.setup_send_ops_flags(SendOperationFlags::Read);
        let pair = builder.build_ex().map(GenericQueuePair::from);
        let pair = pair.or_else(|_| builder.build().map(GenericQueuePair::from));
        let pair = pair.map_err(|error| explain(&error))?;
        let bytes: [u8; 4] = crate::random::bytes().map_err(|error| format!("no random numbers: {error}"))?;
        let [a, b, c, _] = bytes;
        let mut new = Self { pair: ManuallyDrop::new(pair), packet: u32::from_le_bytes([a, b, c, 0]) };
        let mut attributes = QueuePairAttribute::new();
        attributes.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(rail.number);
        attributes.setup_access_flags(if lets_read { AccessFlags::RemoteRead } else { AccessFlags::none() });
        new.modify(&attributes)?;
        Ok(new)
    }

    /// Its number, and the first packet that it sends.
    pub(super) fn number(&self) -> (u32, u32) {
        (self.pair.qp_number(), self.packet)
    }

    /// Connects it to the queue pair `number` of the port at `peer`, whose first packet is `packet`. Errors, in words.
    pub(super) fn connect(
        &mut self,
        port: &Port,
        peer: &RailAddress,
        (number, packet): (u32, u32),
        depth: Depth,
    ) -> Result<(), String> {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(port.number).setup_dest_lid(peer.lid);
        // Within an InfiniBand subnet the local id is enough.
        if peer.kind != GidKind::InfiniBand {
            way.setup_grh(&Gid { raw: peer.gid }, 0, port.gid_index, HOPS_MAX, 0);
        }
        let mut receive = QueuePairAttribute::new();
        receive
            .setup_state(QueuePairState::ReadyToReceive)
            .setup_address_vector(&way)
            .setup_path_mtu(Mtu::from(u32::from(peer.mtu.min(port.address.mtu))))
            .setup_dest_qp_num(number)
            .setup_rq_psn(packet)
            .setup_max_dest_read_atomic(depth.reads_of_peer)
            .setup_min_rnr_timer(0);
        self.modify(&receive)?;
        let mut send = QueuePairAttribute::new();
        send.setup_state(QueuePairState::ReadyToSend)
            .setup_sq_psn(self.packet)
            .setup_timeout(ANSWER_WAIT)
            .setup_retry_cnt(ANSWER_RETRIES)
            .setup_rnr_retry(NOT_READY_RETRIES)
            .setup_max_read_atomic(depth.reads);
        self.modify(&send)
    }

    /// Ends it: what is under way, and what is posted from now on, completes with an error. Errors, in words.
    pub(super) fn fail(&mut self) -> Result<(), String> {
        let mut attributes = QueuePairAttribute::new();
        attributes.setup_state(QueuePairState::Error);
        self.modify(&attributes)
    }

    /// Whether it ended by itself. An owner's sends nothing that could fail: its device refused what the peer asked for. The state is
    /// looked at when it is of no use any more, so that nobody has to listen for a device's events, which not every driver tells.
    pub(super) fn has_failed(&self) -> bool {
        let asked = self.pair.query(QueuePairAttributeMask::State);
        asked.is_ok() && self.pair.state() == QueuePairState::Error
    }

    fn modify(&mut self, attributes: &QueuePairAttribute) -> Result<(), String> {
        self.pair.modify(attributes).map_err(|error| explain(&error))
    }

    /// Posts reads, of which the last one's completion is told; if they fail, each one's. Errors, in words: none, or some, of
    /// them were posted.
    ///
    /// # Safety
    /// The local ranges are registered memory that nobody else uses until the reads completed or the queue pair is gone.
    pub(super) unsafe fn read<'a>(&mut self, reads: impl IntoIterator<Item = &'a Read>) -> Result<(), String> {
        let mut reads = reads.into_iter().peekable();
        if reads.peek().is_none() {
            return Ok(());
        }
        let mut posting = self.pair.start_post_send();
        while let Some(read) = reads.next() {
            let last = reads.peek().is_none();
            let flags = if last { WorkRequestFlags::Signaled } else { WorkRequestFlags::none() };
            let request = posting.construct_wr(read.id, flags).setup_read(read.remote_key, read.remote_address);
            // SAFETY: the caller says so.
            unsafe { request.setup_sge(read.local_key, read.local_address, read.len) };
        }
        posting.post().map_err(|error| explain(&error))
    }
}

#[cfg(test)]
mod tests;

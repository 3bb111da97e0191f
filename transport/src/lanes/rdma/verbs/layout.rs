//! What libibverbs and this crate hand each other, as `infiniband/verbs.h` lays it out: what is read or written of
//! it, and what is before that. A test compares every offset, size and number with the header, where there is one.
//!
//! Structures that the library makes are only pointed at, so their ends are left out. Those that are made here are
//! whole.

use std::ffi::{c_int, c_uint, c_void};

/// `ibv_device`: only pointed at.
#[repr(C)]
pub(crate) struct Device {
    opaque: [u8; 0],
}

/// `ibv_context`: a device that is open.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) calls: ContextCalls,
}

/// `ibv_context_ops`: the driver's calls that the header's inline functions go through.
#[repr(C)]
pub(crate) struct ContextCalls {
    pub(crate) before_poll: [*const c_void; 11],
    pub(crate) poll: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int, *mut Completion) -> c_int>,
    pub(crate) notify: Option<unsafe extern "C" fn(*mut CompletionQueue, c_int) -> c_int>,
    pub(crate) before_post: [*const c_void; 12],
    pub(crate) post: Option<unsafe extern "C" fn(*mut Pair, *mut Request, *mut *mut Request) -> c_int>,
}

/// `ibv_pd`: only pointed at.
#[repr(C)]
pub(crate) struct Domain {
    opaque: [u8; 0],
}

/// `ibv_comp_channel`.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
}

/// `ibv_cq`.
#[repr(C)]
pub(crate) struct CompletionQueue {
    pub(crate) context: *mut Context,
}

/// `ibv_qp`.
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) context: *mut Context,
    pub(crate) before_handle: [*const c_void; 5],
    pub(crate) handle: u32,
    pub(crate) number: u32,
}

/// `ibv_mr`.
#[repr(C)]
pub(crate) struct Region {
    pub(crate) before_handle: [*const c_void; 4],
    pub(crate) handle: u32,
    pub(crate) local_key: u32,
    pub(crate) remote_key: u32,
}

/// `ibv_device_attr`.
#[repr(C)]
pub(crate) struct DeviceAttributes {
    pub(crate) version: [u8; 64],
    pub(crate) guids_and_sizes: [u64; 4],
    pub(crate) before_entries: [u32; 9],
    pub(crate) queue_entries_max: c_int,
    pub(crate) before_reads: [u32; 2],
    pub(crate) reads_of_peers_max: c_int,
    pub(crate) between: [u32; 2],
    pub(crate) reads_max: c_int,
    pub(crate) before_ports: [u32; 16],
    pub(crate) partition_keys: u16,
    pub(crate) answer_delay: u8,
    pub(crate) ports: u8,
}

/// `ibv_port_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PortAttributes {
    pub(crate) state: c_uint,
    pub(crate) mtu_max: c_uint,
    pub(crate) mtu: c_uint,
    pub(crate) gids: c_int,
    pub(crate) before_partitions: [u32; 4],
    pub(crate) partition_keys: u16,
    pub(crate) lid: u16,
    pub(crate) before_layer: [u8; 10],
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) more_capabilities: u16,
    /// Of newer libraries.
    pub(crate) more_speed: u32,
}

/// `ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GlobalRoute {
    /// As wide as numbers of 64 bits are, which the union has beside the bytes.
    pub(crate) gid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) gid_index: u8,
    pub(crate) hops: u8,
    pub(crate) traffic_class: u8,
}

/// `ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gid(pub(in crate::lanes::rdma) [u8; 16]);

/// `ibv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) route: GlobalRoute,
    pub(crate) lid: u16,
    pub(crate) service_level: u8,
    pub(crate) path_bits: u8,
    pub(crate) rate: u8,
    pub(crate) has_route: u8,
    pub(crate) port: u8,
}

/// `ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairCapacity {
    pub(crate) requests: u32,
    pub(crate) receives: u32,
    pub(crate) request_pieces: u32,
    pub(crate) receive_pieces: u32,
    pub(crate) inline_bytes: u32,
}

/// `ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct PairInit {
    pub(crate) context: *mut c_void,
    pub(crate) send_completions: *mut CompletionQueue,
    pub(crate) receive_completions: *mut CompletionQueue,
    pub(crate) shared_receives: *mut c_void,
    pub(crate) capacity: PairCapacity,
    pub(crate) kind: c_uint,
    pub(crate) all_are_told: c_int,
}

/// `ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PairAttributes {
    pub(crate) state: c_uint,
    pub(crate) state_before: c_uint,
    pub(crate) mtu: c_uint,
    pub(crate) migration: c_uint,
    pub(crate) datagram_key: u32,
    pub(crate) first_packet_of_peer: u32,
    pub(crate) first_packet: u32,
    pub(crate) number_of_peer: u32,
    pub(crate) access: c_uint,
    pub(crate) capacity: PairCapacity,
    pub(crate) address: Address,
    pub(crate) other_address: Address,
    pub(crate) partition_index: u16,
    pub(crate) other_partition_index: u16,
    pub(crate) tells_drained: u8,
    pub(crate) draining: u8,
    pub(crate) reads: u8,
    pub(crate) reads_of_peer: u8,
    pub(crate) not_ready_wait: u8,
    pub(crate) port: u8,
    pub(crate) answer_wait: u8,
    pub(crate) answer_retries: u8,
    pub(crate) not_ready_retries: u8,
    pub(crate) other_port: u8,
    pub(crate) other_answer_wait: u8,
    pub(crate) rate_limit: u32,
}

/// `ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct LocalPiece {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) key: u32,
}

/// `ibv_send_wr`, as reads and writes use it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) id: u64,
    pub(crate) next: *mut Request,
    pub(crate) pieces: *mut LocalPiece,
    pub(crate) piece_count: c_int,
    pub(crate) operation: c_uint,
    pub(crate) flags: c_uint,
    pub(crate) immediate: u32,
    pub(crate) remote_address: u64,
    pub(crate) remote_key: u32,
    /// What other operations have in the same place.
    pub(crate) unused: [u64; 9],
}

/// `ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: c_uint,
    pub(crate) unused: [u32; 9],
}

/// States of a port.
pub(crate) const PORT_ACTIVE: c_uint = 4;
/// What a port is a port of.
pub(crate) const LINK_ETHERNET: u8 = 2;
/// Packets of the smallest size, 256 bytes.
pub(crate) const MTU_SMALLEST: u8 = 1;

/// Kind of a queue pair: reliably connected.
pub(crate) const PAIR_CONNECTED: c_uint = 2;
/// States of a queue pair.
pub(crate) const STATE_INITIAL: c_uint = 1;
pub(crate) const STATE_RECEIVING: c_uint = 2;
pub(crate) const STATE_SENDING: c_uint = 3;
pub(crate) const STATE_ERROR: c_uint = 6;

/// Which attributes of a queue pair are meant.
pub(crate) const OF_STATE: c_int = 1 << 0;
pub(crate) const OF_ACCESS: c_int = 1 << 3;
pub(crate) const OF_PARTITION: c_int = 1 << 4;
pub(crate) const OF_PORT: c_int = 1 << 5;
pub(crate) const OF_ADDRESS: c_int = 1 << 7;
pub(crate) const OF_MTU: c_int = 1 << 8;
pub(crate) const OF_ANSWER_WAIT: c_int = 1 << 9;
pub(crate) const OF_ANSWER_RETRIES: c_int = 1 << 10;
pub(crate) const OF_NOT_READY_RETRIES: c_int = 1 << 11;
pub(crate) const OF_FIRST_PACKET_OF_PEER: c_int = 1 << 12;
pub(crate) const OF_READS: c_int = 1 << 13;
pub(crate) const OF_NOT_READY_WAIT: c_int = 1 << 15;
pub(crate) const OF_FIRST_PACKET: c_int = 1 << 16;
pub(crate) const OF_READS_OF_PEER: c_int = 1 << 17;
pub(crate) const OF_NUMBER_OF_PEER: c_int = 1 << 20;

/// What may be done with registered memory, or by way of a queue pair.
pub(crate) const LOCAL_WRITE: c_uint = 1 << 0;
pub(crate) const REMOTE_READ: c_uint = 1 << 2;
/// Writes of one read may arrive in any order. A library that knows it leaves it out where the kernel does not.
pub(crate) const RELAXED_ORDERING: c_uint = 1 << 20;

/// A request that reads.
pub(crate) const READ: c_uint = 4;
/// Its completion is told.
pub(crate) const IS_TOLD: c_uint = 1 << 1;

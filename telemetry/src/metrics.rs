//! Every metric of Baton: its name, unit, help, labels and buckets. Other modules call the functions here and never
//! spell a name. `cargo xtask pages` writes the table of docs/reference/metrics.md from the declarations.
//!
//! A function returns a handle. A lookup costs a hash, so a loop looks its handles up once and keeps them. A metric is
//! shown from its first use until the process ends; a `series` is shown while its handle lives. Labels have few
//! values: those of an enum, the parts of this process (workers, KV groups, tiers) and, for a `series` only, what is
//! present now (peers and their names). No label contains composed text, addresses or errors.

use crate::series::Series;
use ::metrics::{SharedString, Unit};
use domain::session::Role;
use domain::{End, Ender, Finish, GroupId, WorkerId};

pub use crate::declared::{Declared, Kind};
pub use ::metrics::{Counter, Gauge, Histogram};

/// Seconds, from a fast step to a slow request.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Seconds, for durations of microseconds.
const MICRO_SECONDS: &[f64] =
    &[1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 0.1, 1.0];
/// Tokens of a prompt.
const TOKENS: &[f64] = &[16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0];
/// Rows of a step.
const ROWS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

macro_rules! declare {
    ($(
        $(#[doc = $help:literal])+
        $kind:ident $unit:ident $name:literal $function:ident($($label:ident: $type:ty),*) $(in $buckets:expr)?;
    )+) => {
        /// Every metric there is.
        pub const DECLARED: &[Declared] = &[$(Declared {
            name: $name,
            kind: declare!(@kind $kind $($buckets)?),
            unit: Unit::$unit,
            help: concat!($($help),+),
            labels: &[$(stringify!($label)),*],
        }),+];
        $(declare! { @function $kind [$(#[doc = $help])+] $name $function($($label: $type),*) })+

        /// The names of the metrics, for readers of the rendered text. A constant has the name of its recording
        /// function.
        pub mod name {
            $(
                #[expect(non_upper_case_globals, reason = "they are called like the functions")]
                #[doc = concat!("`", $name, "`.")]
                pub const $function: &str = $name;
            )+
        }
    };
    (@kind counter) => { Kind::Counter };
    (@kind gauge) => { Kind::Gauge };
    (@kind series) => { Kind::Gauge };
    (@kind histogram $buckets:expr) => { Kind::Histogram($buckets) };
    (@function counter [$($doc:tt)+] $name:literal $function:ident($($label:ident: $type:ty),*)) => {
        $($doc)+
        pub fn $function($($label: $type),*) -> Counter {
            ::metrics::counter!($name $(, stringify!($label) => Label::text($label))*)
        }
    };
    (@function gauge [$($doc:tt)+] $name:literal $function:ident($($label:ident: $type:ty),*)) => {
        $($doc)+
        pub fn $function($($label: $type),*) -> Gauge {
            ::metrics::gauge!($name $(, stringify!($label) => Label::text($label))*)
        }
    };
    (@function series [$($doc:tt)+] $name:literal $function:ident($($label:ident: $type:ty),*)) => {
        $($doc)+
        pub fn $function($($label: $type),*) -> Series {
            Series::new($name, [$((stringify!($label), Label::text($label))),*])
        }
    };
    (@function histogram [$($doc:tt)+] $name:literal $function:ident($($label:ident: $type:ty),*)) => {
        $($doc)+
        pub fn $function($($label: $type),*) -> Histogram {
            ::metrics::histogram!($name $(, stringify!($label) => Label::text($label))*)
        }
    };
}

declare! {
    /// Always 1. The label `version` is the version that runs.
    gauge Count "baton_build_info" build_info(version: &'static str);

    /// Requests that ended, by outcome.
    counter Count "baton_requests_total" requests(outcome: Outcome);
    /// Requests that are open now.
    gauge Count "baton_requests_open" requests_open();
    /// HTTP connections without an open request that were closed to make room for new ones.
    counter Count "baton_connections_evicted_total" connections_evicted();
    /// Connections to a port with TLS that were refused: `plain` (no TLS was spoken), `version`, `certificate` (the
    /// other end's), `alert` (the other end refuses), or `broken`.
    counter Count "baton_tls_refused_total" tls_refused(reason: &'static str);
    /// When the certificate of this process (`tls.cert`) expires, in seconds since the Unix epoch.
    gauge Seconds "baton_tls_certificate_expiry_seconds" tls_certificate_expiry();
    /// Changes of the files in `tls`, by result: `taken`, or `refused` (what was there before goes on).
    counter Count "baton_tls_reloads_total" tls_reloads(result: &'static str);
    /// Time from a request's arrival to its first token.
    histogram Seconds "baton_time_to_first_token_seconds" time_to_first_token() in SECONDS;
    /// Time between two tokens of one sequence, as the router receives them.
    histogram Seconds "baton_inter_token_seconds" inter_token() in SECONDS;
    /// Time from a request's arrival to its end.
    histogram Seconds "baton_request_seconds" request_time() in SECONDS;
    /// Prompt tokens of accepted requests.
    counter Count "baton_prompt_tokens_total" prompt_tokens();
    /// Prompt tokens that came from a cache, so that no worker computed them.
    counter Count "baton_cached_tokens_total" cached_tokens();
    /// Tokens sent to clients.
    counter Count "baton_output_tokens_total" output_tokens();
    /// Attempts at a request beyond the first.
    counter Count "baton_replays_total" replays();
    /// Running sequences that another worker took over without computing anything again.
    counter Count "baton_moves_total" moves();
    /// Spans of traces: `sent` to the collector, or `dropped` because it did not take them or too many waited.
    counter Count "baton_trace_spans_total" trace_spans(result: &'static str);
    /// Outdated messages that were refused, by what was outdated.
    counter Count "baton_stale_messages_total" stale_messages(kind: Stale);
    /// 1 for each worker that has a session with the router.
    series Count "baton_worker_up" worker_up(worker: WorkerId, role: Role);

    /// Sequences that wait on the router's workers, as last reported, and requests that wait in the router for a decode
    /// worker.
    gauge Count "baton_fleet_waiting" fleet_waiting();
    /// Sequences that run on the router's workers, as last reported.
    gauge Count "baton_fleet_running" fleet_running();
    /// Share of the KV blocks of the router's decode workers that sequences use, from 0 to 1, as last reported. Blocks
    /// that can be evicted count as free.
    gauge Count "baton_fleet_kv_used_ratio" fleet_kv_used();
    /// Always 1. The labels are the tokens of a KV block, and the number of blocks of the router's decode workers.
    series Count "baton_fleet_kv_info" fleet_kv_info(block_tokens: u64, blocks: u64);

    /// Sequences that wait for workers of this role: on them, as last reported, and for `decode` also the requests that
    /// wait in the router. The roles sum to `baton_fleet_waiting`.
    gauge Count "baton_fleet_pool_waiting" fleet_pool_waiting(role: Role);
    /// Prompt tokens that the router's workers of this role still have to compute, as last reported.
    gauge Count "baton_fleet_pool_waiting_tokens" fleet_pool_waiting_tokens(role: Role);
    /// Sequences that run on the router's workers of this role, as last reported.
    gauge Count "baton_fleet_pool_running" fleet_pool_running(role: Role);
    /// Share of the KV blocks of the router's workers of this role that sequences use, from 0 to 1, as last reported.
    gauge Count "baton_fleet_pool_kv_used_ratio" fleet_pool_kv_used(role: Role);

    /// Entries of the router's prefix index: `used`, and the `budget` (`placement.index_blocks_max`).
    gauge Count "baton_router_index_blocks" router_index_blocks(kind: &'static str);
    /// Approximate memory of the router's prefix index: `used`, and the `budget`.
    gauge Bytes "baton_router_index_bytes" router_index_bytes(kind: &'static str);

    /// Sequences that wait on the worker, those that wait for a load included.
    gauge Count "baton_waiting_sequences" waiting_sequences(worker: WorkerId);
    /// Sequences that run on the worker.
    gauge Count "baton_running_sequences" running_sequences(worker: WorkerId);
    /// Prompt tokens that the worker still has to compute.
    gauge Count "baton_waiting_tokens" waiting_tokens(worker: WorkerId);
    /// Running sequences that returned to the queue because the pool had no free block.
    counter Count "baton_preemptions_total" preemptions(worker: WorkerId);
    /// Prompt tokens that the worker found in its own cache.
    counter Count "baton_prefix_hit_tokens_total" prefix_hit_tokens(worker: WorkerId);
    /// Prompt tokens that the worker computed.
    counter Count "baton_prefill_tokens_total" prefill_tokens(worker: WorkerId);
    /// Tokens per prompt, by source: `device` (cached there), `peer` (fetched from another worker's device), a tier
    /// (`host`, `neighbours`, `disk`, `object`) or `computed`. One sample per prompt and source.
    histogram Count "baton_prompt_source_tokens" prompt_source_tokens(worker: WorkerId, source: &'static str) in TOKENS;
    /// Time until a prompt's tokens were there, by source. For `peer` and tiers from the prompt's arrival; for
    /// `computed` from its first step to its first token. `device` has no samples.
    histogram Seconds "baton_prompt_source_seconds" prompt_source_time(worker: WorkerId, source: &'static str) in SECONDS;

    /// KV blocks of the worker's pool, by KV group and state. The states sum to the pool.
    gauge Count "baton_kv_blocks" kv_blocks(worker: WorkerId, group: GroupId, state: BlockState);
    /// Bytes of the KV blocks of the worker's pool, by KV group and state.
    gauge Bytes "baton_kv_bytes" kv_bytes(worker: WorkerId, group: GroupId, state: BlockState);
    /// Full KV blocks that sequences looked for on the device: `hit` or `miss`.
    counter Count "baton_kv_lookups_total" kv_lookups(worker: WorkerId, group: GroupId, result: &'static str);
    /// Cached KV blocks that were evicted from the device.
    counter Count "baton_kv_evictions_total" kv_evictions(worker: WorkerId, group: GroupId);
    /// Cached KV blocks that were evicted because of a tenant's quota. `baton_kv_evictions_total` includes them.
    counter Count "baton_kv_quota_evictions_total" kv_quota_evictions(worker: WorkerId, group: GroupId);
    /// KV blocks that pins keep on the device.
    gauge Count "baton_kv_pinned_blocks" kv_pinned(worker: WorkerId, group: GroupId);
    /// Cached KV blocks that moved from the device to a lower tier, because they were idle or by command.
    counter Count "baton_kv_parked_total" kv_parked(worker: WorkerId, group: GroupId);
    /// 1 if the worker uses the tier (`host`, `neighbours`, `disk`, `object`). 0 if the tier failed; the service then
    /// runs without it.
    gauge Count "baton_tier_open" tier_open(worker: WorkerId, tier: &'static str);
    /// How the files of a tier are read and written: 1 for each state that holds, 0 for the others. All states but
    /// `io_uring` cost time. The log says the reason.
    gauge Count "baton_tier_mover" tier_mover(worker: WorkerId, tier: &'static str, state: &'static str);
    /// Records of the worker's tier, by state. The states sum to the tier. For `neighbours` and `object`: known
    /// records.
    gauge Count "baton_tier_records" tier_records(worker: WorkerId, tier: &'static str, state: RecordState);
    /// Host tiers (slabs) of other workers in `host.folder`, by kind.
    gauge Count "baton_host_slabs" host_slabs(worker: WorkerId, kind: SlabKind);
    /// Bytes of the records that the tier holds.
    gauge Bytes "baton_tier_bytes" tier_bytes(worker: WorkerId, tier: &'static str);
    /// Prompt blocks that were neither on the device nor in a faster tier: `hit` if this tier has them, else `miss`.
    counter Count "baton_tier_lookups_total" tier_lookups(worker: WorkerId, tier: &'static str, result: &'static str);
    /// Records of a tier, by what happened to them.
    counter Count "baton_tier_moves_total" tier_moves(worker: WorkerId, tier: &'static str, result: &'static str);
    /// Bytes of records that moved: `read`, `write` or `lift` (read ahead into `host` for a prompt that waits for
    /// memory).
    counter Bytes "baton_tier_moved_bytes_total" tier_moved_bytes(worker: WorkerId, tier: &'static str, direction: &'static str);
    /// Bytes written to the tier per byte read from it, since start. Before the first read, the divisor is one record.
    gauge Count "baton_tier_wear_ratio" tier_wear(worker: WorkerId, tier: &'static str);
    /// Approximate memory of an index of the worker: `used`, and the `budget` that it never exceeds.
    gauge Bytes "baton_index_bytes" index_bytes(worker: WorkerId, index: &'static str, kind: &'static str);
    /// Entries of a disk tier's log when the tier was opened, by what they were.
    counter Count "baton_tier_recovered_total" tier_recovered(worker: WorkerId, tier: &'static str, result: &'static str);
    /// Bytes that a tier's folders or store have of other models, encodings or versions of records. They are not read,
    /// and stay until they are removed by hand. The log names the command.
    gauge Bytes "baton_tier_leftover_bytes" tier_leftover_bytes(worker: WorkerId, tier: &'static str);
    /// Duration of moves of records, including the time that they wait for other moves.
    histogram Seconds "baton_tier_move_seconds" tier_move_time(worker: WorkerId, tier: &'static str, direction: &'static str) in SECONDS;
    /// Prompt tokens that the worker requested from another worker's cache, by result. Tokens that are refused or fail
    /// are computed.
    counter Count "baton_prefix_fetch_tokens_total" prefix_fetch_tokens(worker: WorkerId, result: PrefixResult);
    /// Live leases on the worker's blocks.
    gauge Count "baton_leases_live" leases_live(worker: WorkerId);
    /// Leases on the worker's blocks that expired.
    counter Count "baton_leases_lapsed_total" leases_lapsed(worker: WorkerId);

    /// Handoffs that ended, by lane and result. The reader counts them.
    counter Count "baton_handoffs_total" handoffs(lane: &'static str, result: HandoffResult);
    /// Bytes of KV read from other workers, by lane.
    counter Bytes "baton_transfer_bytes_total" transfer_bytes(lane: &'static str);
    /// Bytes that the lane carried for these reads. Fewer than `baton_transfer_bytes_total` if KV is encoded.
    counter Bytes "baton_transfer_wire_bytes_total" transfer_wire_bytes(lane: &'static str);
    /// 1 if the worker reads the peer over the lane.
    series Count "baton_lane_taken" lane_taken(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// 1 if the lane to the peer is in use and encrypted, else 0.
    series Count "baton_lane_encrypted" lane_encrypted(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Peers for which this faster lane was not chosen, by kind of reason. The log and `baton topo` give the full
    /// reason.
    series Count "baton_lane_passed_over" lane_passed_over(worker: WorkerId, lane: &'static str, reason: &'static str);
    /// Rate of the worker's reads from the peer over the lane: recent reads, or the probe before the first read.
    series Bytes "baton_lane_bytes_per_second" lane_speed(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Expected rate of the lane to the peer, from `transport.expect_gbytes_per_s` or from what its ports promise. 0:
    /// no expectation.
    series Bytes "baton_lane_expected_bytes_per_second" lane_expected(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Time of the smallest read from the peer over the lane, measured when it connected.
    series Seconds "baton_lane_latency_seconds" lane_latency(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Always 1. The label `name` is the name of the worker, or of a connected peer.
    series Count "baton_worker_name" worker_name(worker: WorkerId, name: String);
    /// Transfers that completed, by lane.
    counter Count "baton_transfers_total" transfers(worker: WorkerId, lane: &'static str);
    /// Transfers whose bytes did not match their checksum.
    counter Count "baton_transfers_corrupted_total" transfers_corrupted(worker: WorkerId);
    /// Times that a lane to a peer fell below a quarter of the rate of its first reads.
    counter Count "baton_lane_slow_total" lane_slow(worker: WorkerId);
    /// Times that a lane to a peer fell below a quarter of its expected rate.
    counter Count "baton_lane_short_total" lane_short(worker: WorkerId);
    /// Rails of the worker's links to peers (ports of `rdma`, connections of `tcp`), by lane and state.
    gauge Count "baton_rails" rails(worker: WorkerId, lane: &'static str, state: &'static str);
    /// Times that a rail was taken out of use, by reason.
    counter Count "baton_rails_put_aside_total" rails_put_aside(worker: WorkerId, reason: &'static str);
    /// Times that a rail was taken back into use.
    counter Count "baton_rails_returned_total" rails_returned(worker: WorkerId);
    /// Connections and reads of other agents that were refused, by reason.
    counter Count "baton_agent_refused_total" agent_refused(worker: WorkerId, reason: &'static str);
    /// Connections to other agents that broke or could not be made.
    counter Count "baton_agent_lost_total" agent_lost(worker: WorkerId);
    /// Peers that connected again after they were lost.
    counter Count "baton_agent_reconnected_total" agent_reconnected(worker: WorkerId);
    /// Time from the first read of a fetch to its last.
    histogram Seconds "baton_fetch_seconds" fetch_time(lane: &'static str) in SECONDS;
    /// Time that a handed-off sequence waited for KV after its prompt was computed: the part of the transfer that
    /// computing did not hide.
    histogram Seconds "baton_exposed_transfer_seconds" exposed_transfer(lane: &'static str) in SECONDS;

    /// Bytes that wait on the worker for routers that do not read them. At 8 MiB for one router, the worker pauses that
    /// router's sequences.
    gauge Bytes "baton_session_backlog_bytes" session_backlog(worker: WorkerId);
    /// Messages that were lost because the receiver's inbox was full or gone, by channel.
    counter Count "baton_messages_dropped_total" messages_dropped(worker: WorkerId, channel: &'static str);

    /// Engine steps that failed as a whole. The worker computes their sequences again in parts, to find the sequence at
    /// fault.
    counter Count "baton_steps_failed_total" steps_failed(worker: WorkerId);
    /// Sequences that failed in an engine step, for example because their logits were not finite. The rest of the step
    /// counts.
    counter Count "baton_sequences_failed_total" sequences_failed(worker: WorkerId);
    /// Duration of an engine step.
    histogram Seconds "baton_step_seconds" step_time(worker: WorkerId) in SECONDS;
    /// Time of a step on the device, from begin to end, that was spent outside kernels.
    histogram Seconds "baton_step_overhead_seconds" step_overhead(worker: WorkerId) in MICRO_SECONDS;
    /// Input rows of a step.
    histogram Count "baton_batch_rows" batch_rows(worker: WorkerId) in ROWS;
}

/// How a request ended, as a metric counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With a stop token or a stop string.
    Stop,
    /// At its token limit.
    Length,
    /// The client hung up.
    Client,
    /// At its deadline.
    Deadline,
    /// A worker failed it.
    Worker,
    /// The service ended it: shutdown, or a client that read too slowly.
    Us,
    /// It was valid, and refused because capacity or workers were missing.
    Rejected,
    /// It was valid, and refused because its key had reached a limit.
    Limited,
    /// It was not valid.
    Invalid,
}

impl Outcome {
    /// Returns its name, as the label has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Client => "client",
            Self::Deadline => "deadline",
            Self::Worker => "worker",
            Self::Us => "us",
            Self::Rejected => "rejected",
            Self::Limited => "limited",
            Self::Invalid => "invalid",
        }
    }

    /// Returns the outcome that `end` stands for.
    pub fn of(end: &End) -> Self {
        match (end.finish, end.by) {
            (Finish::Stop, _) => Self::Stop,
            (Finish::Length, _) => Self::Length,
            (Finish::Error, Ender::Client) => Self::Client,
            (Finish::Error, Ender::Limit) => Self::Deadline,
            (Finish::Error, Ender::Us) => Self::Us,
            (Finish::Error, Ender::Worker | Ender::Done) => Self::Worker,
        }
    }
}

/// The states of a KV block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// Not in use.
    Free,
    /// Being written or fetched.
    Filling,
    /// Full, and used by a sequence.
    InUse,
    /// Full, used by no sequence, kept for a later prompt.
    Cached,
}

/// The states of a slot of a tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordState {
    /// Holds nothing.
    Free,
    /// Being written.
    Writing,
    /// Holds a record.
    Held,
}

/// Slabs of other workers in the folder of a host tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlabKind {
    /// Another worker owns it.
    Live,
    /// Its worker is dead, and this worker keeps it.
    Adopted,
    /// It is of another model, version or user.
    Foreign,
}

/// How a handoff ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandoffResult {
    /// The decode worker took the sequence over.
    Taken,
    /// The lease lapsed, or the owner's answer was that the copy is not valid.
    Lapsed,
    /// No offer, or no end of it, came in time.
    TimedOut,
    /// The owner took the offer back.
    Withdrawn,
    /// The attempt ended before.
    Cancelled,
}

/// The result of a request for another worker's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefixResult {
    /// It was read and validated.
    Fetched,
    /// The other worker had nothing to offer.
    Refused,
    /// It did not come in time, had no room, or was not valid.
    Failed,
}

/// Why a message is outdated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// It belongs to an attempt that is over.
    Epoch,
    /// Its content is there already.
    Duplicate,
    /// It is from or for an earlier life of a worker.
    Incarnation,
    /// It names a lease that is over.
    Lease,
}

/// A value that a label can have.
trait Label {
    fn text(self) -> SharedString;
}

impl Label for &'static str {
    fn text(self) -> SharedString {
        SharedString::const_str(self)
    }
}

impl Label for String {
    fn text(self) -> SharedString {
        self.into()
    }
}

impl Label for u64 {
    fn text(self) -> SharedString {
        self.to_string().into()
    }
}

impl Label for WorkerId {
    fn text(self) -> SharedString {
        self.to_string().into()
    }
}

impl Label for GroupId {
    fn text(self) -> SharedString {
        self.to_string().into()
    }
}

impl Label for Outcome {
    fn text(self) -> SharedString {
        SharedString::const_str(self.name())
    }
}

macro_rules! labels {
    ($($type:ident { $($variant:ident = $text:literal),+ })+) => {$(
        impl Label for $type {
            fn text(self) -> SharedString {
                SharedString::const_str(match self { $(Self::$variant => $text),+ })
            }
        }
    )+};
}

labels! {
    Role { Prefill = "prefill", Decode = "decode" }
    RecordState { Free = "free", Writing = "writing", Held = "held" }
    SlabKind { Live = "live", Adopted = "adopted", Foreign = "foreign" }
    BlockState { Free = "free", Filling = "filling", InUse = "in_use", Cached = "cached" }
    HandoffResult {
        Taken = "taken", Lapsed = "lapsed", TimedOut = "timed_out", Withdrawn = "withdrawn", Cancelled = "cancelled"
    }
    PrefixResult { Fetched = "fetched", Refused = "refused", Failed = "failed" }
    Stale { Epoch = "epoch", Duplicate = "duplicate", Incarnation = "incarnation", Lease = "lease" }
}

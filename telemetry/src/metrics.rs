//! Every metric of Baton: its name, unit, help, labels and buckets. Others call the functions of this module and never
//! spell a name.
//!
//! A function gives a handle; looking one up costs a hash, so a loop takes its handles once and keeps them. What was touched once is shown
//! for ever, but for a `series`, which is shown for as long as its handle lives. Labels have few values: those of an enum, of what this process
//! is made of (its workers, KV groups, tiers), and, of a `series` alone, of what is there now (peers, and their names). None has words that
//! are put together, addresses or errors.

use crate::series::Series;
use ::metrics::{SharedString, Unit};
use domain::session::Role;
use domain::{End, Ender, Finish, GroupId, WorkerId};

pub use ::metrics::{Counter, Gauge, Histogram};

/// A metric, as declared.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// Its name in Prometheus.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// Its unit.
    pub unit: Unit,
    /// What it says, for people.
    pub help: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
}

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Samples, counted in buckets with these upper bounds.
    Histogram(&'static [f64]),
}

impl Declared {
    /// Tells the recorder of the process about the metric.
    pub(crate) fn describe(&self) {
        let help = self.help.trim();
        match self.kind {
            Kind::Counter => ::metrics::describe_counter!(self.name, self.unit, help),
            Kind::Gauge => ::metrics::describe_gauge!(self.name, self.unit, help),
            Kind::Histogram(_) => ::metrics::describe_histogram!(self.name, self.unit, help),
        }
    }
}

/// Seconds, from a fast step to a slow request.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Seconds, for what should take microseconds.
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

        /// The name of each metric, for whoever reads what is rendered: called like the function that records it.
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
    /// Always 1; the label names the version that runs.
    gauge Count "baton_build_info" build_info(version: &'static str);

    /// Requests that ended, by how they ended.
    counter Count "baton_requests_total" requests(outcome: Outcome);
    /// Requests that are open now.
    gauge Count "baton_requests_open" requests_open();
    /// HTTP connections without an open request that were closed to make room for a new one.
    counter Count "baton_connections_evicted_total" connections_evicted();
    /// Seconds from a request's arrival to its first token.
    histogram Seconds "baton_time_to_first_token_seconds" time_to_first_token() in SECONDS;
    /// Seconds between two tokens of one sequence, as the router gets them.
    histogram Seconds "baton_inter_token_seconds" inter_token() in SECONDS;
    /// Seconds from a request's arrival to its end.
    histogram Seconds "baton_request_seconds" request_time() in SECONDS;
    /// Prompt tokens of accepted requests.
    counter Count "baton_prompt_tokens_total" prompt_tokens();
    /// Prompt tokens that no worker had to compute since a cache had them.
    counter Count "baton_cached_tokens_total" cached_tokens();
    /// Tokens sent to clients.
    counter Count "baton_output_tokens_total" output_tokens();
    /// Attempts beyond the first at a request.
    counter Count "baton_replays_total" replays();
    /// Running sequences that another worker took over, without computing anything again.
    counter Count "baton_moves_total" moves();
    /// Messages that were refused since they belong to the past, by what was wrong with them.
    counter Count "baton_stale_messages_total" stale_messages(kind: Stale);
    /// 1 where the worker's session with the router is up.
    series Count "baton_worker_up" worker_up(worker: WorkerId, role: Role);

    /// Blocks in the router's index of who holds which prefix: those that are `used`, and its `budget` (`placement.index_blocks_max`).
    gauge Count "baton_router_index_blocks" router_index_blocks(kind: &'static str);
    /// Bytes that these take, about.
    gauge Bytes "baton_router_index_bytes" router_index_bytes(kind: &'static str);

    /// Sequences that wait on the worker.
    gauge Count "baton_waiting_sequences" waiting_sequences(worker: WorkerId);
    /// Sequences that run on the worker.
    gauge Count "baton_running_sequences" running_sequences(worker: WorkerId);
    /// Prompt tokens that the worker has still to compute.
    gauge Count "baton_waiting_tokens" waiting_tokens(worker: WorkerId);
    /// Running sequences that were put back in the queue since blocks ran out.
    counter Count "baton_preemptions_total" preemptions(worker: WorkerId);
    /// Prompt tokens that the worker found in its own cache.
    counter Count "baton_prefix_hit_tokens_total" prefix_hit_tokens(worker: WorkerId);
    /// Prompt tokens that the worker computed.
    counter Count "baton_prefill_tokens_total" prefill_tokens(worker: WorkerId);
    /// Tokens of a prompt by where they came from: `device` (they were cached there), `peer` (fetched from another worker's device), a tier (`host`, `neighbours`, `disk` or `object`: they were loaded,
    /// and not from a slower one), or `computed`. One sample for each prompt and source that it had tokens from.
    histogram Count "baton_prompt_source_tokens" prompt_source_tokens(worker: WorkerId, source: &'static str) in TOKENS;
    /// Seconds until those were there: of a peer or a tier from the prompt's arrival, of `computed` from its begin to its first token. What is
    /// on the device has no samples.
    histogram Seconds "baton_prompt_source_seconds" prompt_source_time(worker: WorkerId, source: &'static str) in SECONDS;

    /// KV blocks of the worker's pool, by KV group and state; the states sum to the pool.
    gauge Count "baton_kv_blocks" kv_blocks(worker: WorkerId, group: GroupId, state: BlockState);
    /// Bytes of the KV blocks of the worker's pool, by KV group and state.
    gauge Bytes "baton_kv_bytes" kv_bytes(worker: WorkerId, group: GroupId, state: BlockState);
    /// Full KV blocks that sequences looked for on the device, by whether it had them (`hit` or `miss`).
    counter Count "baton_kv_lookups_total" kv_lookups(worker: WorkerId, group: GroupId, result: &'static str);
    /// Cached KV blocks whose memory was given to another use.
    counter Count "baton_kv_evictions_total" kv_evictions(worker: WorkerId, group: GroupId);
    /// Those among them that a tenant's quota named, and not the order of uses: its own, or those of one that has more than its quota.
    counter Count "baton_kv_quota_evictions_total" kv_quota_evictions(worker: WorkerId, group: GroupId);
    /// KV blocks on the device that pins keep there.
    gauge Count "baton_kv_pinned_blocks" kv_pinned(worker: WorkerId, group: GroupId);
    /// Cached KV blocks that left the device for a lower tier since nobody used them for long, or an operator said so.
    counter Count "baton_kv_parked_total" kv_parked(worker: WorkerId, group: GroupId);
    /// 1 where the worker relies on the tier (`host`, `neighbours`, `disk` or `object`), 0 where it failed: then the service goes on without it.
    gauge Count "baton_tier_open" tier_open(worker: WorkerId, tier: &'static str);
    /// 1 for each of these that is so of a tier with files, 0 for the others: they are moved through `io_uring`, or by `threads`, which is
    /// slower; through the page cache (`buffered`), for a file system refuses O_DIRECT; in memory that is pinned for each operation
    /// (`unregistered`); or not at all any more (`broken`). The log says why.
    gauge Count "baton_tier_mover" tier_mover(worker: WorkerId, tier: &'static str, state: &'static str);
    /// Records in the worker's tier, by state; the states sum to the tier. Of `neighbours` and `object`: records that are known to be there.
    gauge Count "baton_tier_records" tier_records(worker: WorkerId, tier: &'static str, state: RecordState);
    /// Slabs of other workers in `host.folder`: `live` (read, and somebody else's), `adopted` (of dead workers, read and kept by this one),
    /// `foreign` (of another model, version or user: not read).
    gauge Count "baton_host_slabs" host_slabs(worker: WorkerId, kind: SlabKind);
    /// Bytes of the records that the tier holds.
    gauge Bytes "baton_tier_bytes" tier_bytes(worker: WorkerId, tier: &'static str);
    /// Blocks of prompts that were neither on the device nor in a faster tier, by whether this one has them (`hit` or `miss`).
    counter Count "baton_tier_lookups_total" tier_lookups(worker: WorkerId, tier: &'static str, result: &'static str);
    /// What became of records of a tier: `written`, `existed` (another worker had written it), `read`, `evicted`, `quota_evicted` (since a
    /// tenant's quota named it), `refused` (not written though it should have been: too many wait), `quota_refused` (not written since its
    /// tenant has its quota, and all of that is in use), `late` (the block was given to another use before it was written),
    /// `failed` (to be written, or to be read), `corrupt` (found wrong when it was read, and not used), `missing` (found gone), `found`
    /// (looked for since a prompt needed it and nobody here knew of it, and there), `lifted` (to `host`, for a prompt that waits for room),
    /// `lifted_in_vain` (and not read for that prompt).
    counter Count "baton_tier_moves_total" tier_moves(worker: WorkerId, tier: &'static str, result: &'static str);
    /// Bytes of records that were moved (`read`, `write`, or `lift`: written to `host` for a prompt that waits for room): what is written for
    /// each byte that is read later wears a disk.
    counter Bytes "baton_tier_moved_bytes_total" tier_moved_bytes(worker: WorkerId, tier: &'static str, direction: &'static str);
    /// Bytes written to the tier for each byte that was read from it, since the start; while nothing was, for those of one record.
    gauge Count "baton_tier_wear_ratio" tier_wear(worker: WorkerId, tier: &'static str);
    /// Bytes that the worker needs to know what is where, about: what an index has `used` of them, and its `budget`, which it never exceeds. Of the
    /// `device`; of a tier (`host`, `neighbours`, `disk`, `object`), with what it saw lately; the directories of neighbours' `slabs`; and what a
    /// disk's `log` says.
    gauge Bytes "baton_index_bytes" index_bytes(worker: WorkerId, index: &'static str, kind: &'static str);
    /// What a disk's log said when the tier was opened: `known` records, entries that were `corrupt`, a last entry that was `torn`, a log that was
    /// `foreign` (of another model, size or list of folders: nothing of it is used).
    counter Count "baton_tier_recovered_total" tier_recovered(worker: WorkerId, tier: &'static str, result: &'static str);
    /// How long moves of records took, those that waited for others included.
    histogram Seconds "baton_tier_move_seconds" tier_move_time(worker: WorkerId, tier: &'static str, direction: &'static str) in SECONDS;
    /// Prompt tokens that the worker wanted of another one which had them cached, by what came of it: `fetched`, `refused` (the other
    /// had nothing to offer) or `failed` (they did not come in time, or were not valid): then they were computed.
    counter Count "baton_prefix_fetch_tokens_total" prefix_fetch_tokens(worker: WorkerId, result: PrefixResult);
    /// Leases on the worker's blocks that are alive.
    gauge Count "baton_leases_live" leases_live(worker: WorkerId);
    /// Leases on the worker's blocks that ended by expiry.
    counter Count "baton_leases_lapsed_total" leases_lapsed(worker: WorkerId);

    /// Handoffs that ended, by the lane their bytes took and by result, counted by the reader.
    counter Count "baton_handoffs_total" handoffs(lane: &'static str, result: HandoffResult);
    /// Bytes read from other workers, by lane.
    counter Bytes "baton_transfer_bytes_total" transfer_bytes(lane: &'static str);
    /// Bytes that came over the lane for them: fewer where KV came encoded.
    counter Bytes "baton_transfer_wire_bytes_total" transfer_wire_bytes(lane: &'static str);
    /// 1 where the worker reads the peer over the lane.
    series Count "baton_lane_taken" lane_taken(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// 1 where the lane is taken and what it brings is encrypted, else 0.
    series Count "baton_lane_encrypted" lane_encrypted(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Peers that the worker reads over another lane than this one, which is faster by nature, by the kind of reason: `absent` (not built in),
    /// `forbidden` (by `transport.lanes`), `elsewhere` (for one process alone), `slower` (when both were probed), `refused` (an end has none of the
    /// other) or `unreached`. The log and `baton topo` say it in words.
    series Count "baton_lane_passed_over" lane_passed_over(worker: WorkerId, lane: &'static str, reason: &'static str);
    /// Bytes a second of the worker's reads from the peer over the lane: lately, or by the probe where there were none yet.
    series Bytes "baton_lane_bytes_per_second" lane_speed(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Bytes a second that the lane to the peer is expected to bring, by the setting or by what its ports promise; 0: nothing is.
    series Bytes "baton_lane_expected_bytes_per_second" lane_expected(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Seconds of the smallest read from the peer over the lane, measured when it was connected.
    series Seconds "baton_lane_latency_seconds" lane_latency(worker: WorkerId, peer: WorkerId, lane: &'static str);
    /// Always 1; the label `name` says what a worker is called: the worker itself, or a peer that it has connected.
    series Count "baton_worker_name" worker_name(worker: WorkerId, name: String);
    /// Transfers that brought all their bytes, by lane.
    counter Count "baton_transfers_total" transfers(worker: WorkerId, lane: &'static str);
    /// Transfers whose bytes did not match their checksum.
    counter Count "baton_transfers_corrupted_total" transfers_corrupted(worker: WorkerId);
    /// Times that a lane to a peer fell under a share of the speed that its reads began with.
    counter Count "baton_lane_slow_total" lane_slow(worker: WorkerId);
    /// Times that a lane to a peer brought less than a quarter of what is expected of it.
    counter Count "baton_lane_short_total" lane_short(worker: WorkerId);
    /// Rails of the worker's links to peers: devices of `rdma`, connections of `tcp`; by lane, and whether they are used or put
    /// aside.
    gauge Count "baton_rails" rails(worker: WorkerId, lane: &'static str, state: &'static str);
    /// Times that a rail of a link was put aside, by reason.
    counter Count "baton_rails_put_aside_total" rails_put_aside(worker: WorkerId, reason: &'static str);
    /// Times that a rail which had been put aside did well again and was taken back.
    counter Count "baton_rails_returned_total" rails_returned(worker: WorkerId);
    /// Connections with other agents that were refused or closed for what these sent or for their number, by reason.
    counter Count "baton_agent_refused_total" agent_refused(worker: WorkerId, reason: &'static str);
    /// Connections to other agents that broke or could not be made.
    counter Count "baton_agent_lost_total" agent_lost(worker: WorkerId);
    /// Peers that were connected again after they had been lost.
    counter Count "baton_agent_reconnected_total" agent_reconnected(worker: WorkerId);
    /// Seconds from the first read of a fetch to its last.
    histogram Seconds "baton_fetch_seconds" fetch_time(lane: &'static str) in SECONDS;
    /// Seconds that a handed-off sequence waited for bytes after its prompt was computed: what transfer did not hide.
    histogram Seconds "baton_exposed_transfer_seconds" exposed_transfer(lane: &'static str) in SECONDS;

    /// Bytes that wait on the worker for routers which do not take them. Of a router that lets too many wait, the sequences wait, too.
    gauge Bytes "baton_session_backlog_bytes" session_backlog(worker: WorkerId);
    /// Messages that were lost, by channel: to a router (`session`) or to another worker (`peer`), since their receiver's inbox was full or
    /// gone; or from another worker, since this one's was full (`inbox`).
    counter Count "baton_messages_dropped_total" messages_dropped(worker: WorkerId, channel: &'static str);

    /// Engine steps that failed as a whole; their sequences were computed again in parts, until who was at fault was alone.
    counter Count "baton_steps_failed_total" steps_failed(worker: WorkerId);
    /// Sequences that failed in an engine step: what the model made of them was not finite, say. The rest of the step counts.
    counter Count "baton_sequences_failed_total" sequences_failed(worker: WorkerId);
    /// Seconds of an engine step.
    histogram Seconds "baton_step_seconds" step_time(worker: WorkerId) in SECONDS;
    /// Seconds of a step on the device, from submit to end, that were spent outside kernels.
    histogram Seconds "baton_step_overhead_seconds" step_overhead(worker: WorkerId) in MICRO_SECONDS;
    /// Input rows of a step.
    histogram Count "baton_batch_rows" batch_rows(worker: WorkerId) in ROWS;
}

/// How a request ended, as a metric counts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// By the model: a stop token or a stop string.
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
    /// It was valid, and refused for want of room or of workers.
    Rejected,
    /// It was not valid.
    Invalid,
}

impl Outcome {
    /// The outcome that `end` stands for.
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
    /// Nobody's.
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
    /// Somebody else answers for it.
    Live,
    /// Its worker is dead, and this one answers for it.
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

/// What came of a prefix that another worker was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefixResult {
    /// It was read and validated.
    Fetched,
    /// The other worker had nothing to offer.
    Refused,
    /// It did not come in time, had no room, or was not valid.
    Failed,
}

/// What was wrong with a message from the past.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stale {
    /// It belongs to an attempt that is over.
    Epoch,
    /// What it brings is there already.
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
    Outcome {
        Stop = "stop", Length = "length", Client = "client", Deadline = "deadline", Worker = "worker", Us = "us",
        Rejected = "rejected", Invalid = "invalid"
    }
    RecordState { Free = "free", Writing = "writing", Held = "held" }
    SlabKind { Live = "live", Adopted = "adopted", Foreign = "foreign" }
    BlockState { Free = "free", Filling = "filling", InUse = "in_use", Cached = "cached" }
    HandoffResult {
        Taken = "taken", Lapsed = "lapsed", TimedOut = "timed_out", Withdrawn = "withdrawn", Cancelled = "cancelled"
    }
    PrefixResult { Fetched = "fetched", Refused = "refused", Failed = "failed" }
    Stale { Epoch = "epoch", Duplicate = "duplicate", Incarnation = "incarnation", Lease = "lease" }
}

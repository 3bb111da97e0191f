//! Settings of a worker.

use domain::session::{ModelShape, Served};
use domain::{Adapter, Incarnation, KvLayout, Scope, WorkerId};
use std::time::Duration;

/// Settings of a worker, resolved.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Who it is.
    pub id: WorkerId,
    /// Which life of it.
    pub incarnation: Incarnation,
    /// Name for people, metrics and thread names.
    pub name: String,
    /// Layout of its KV pools.
    pub layout: KvLayout,
    /// Blocks in each KV group's pool.
    pub blocks: Vec<u32>,
    /// Digest of the weights: with the layout and a tenant it gives the scope of block identities.
    pub weights: [u8; 32],
    /// Of those, the blocks that prompts leave to running sequences.
    pub reserve_blocks: Vec<u32>,
    /// Which cached blocks go first when room is needed.
    pub eviction: kv_manager::EvictionPolicy,
    /// When blocks go to tiers that are written back.
    pub watermarks: kv_manager::Watermarks,
    /// Most of a group's blocks that pins may name, in percent.
    pub pinned_percent: u32,
    /// What tenants take from each other.
    pub quotas: kv_manager::Quotas,
    /// A block that nobody used for so long leaves the device for the lowest tier of the host.
    pub park_after: Option<Duration>,
    /// Settings of the scheduler.
    pub scheduler: scheduler::SchedulerConfig,
    /// Steps that the device has at once, 1 or 2: with 2, the next one is planned while one runs.
    pub steps_in_flight: usize,
    /// How long a reader waits for an offer, or the next word that its prompt is queued still, and then for room
    /// of its own.
    pub handoff_wait: Duration,
    /// How long a reader waits for the answer to its release, or to its asking for a prefix.
    pub answer_wait: Duration,
    /// How often it repeats a release that is not answered.
    pub release_retry: Duration,
    /// The longest an offer lives, renewed or not.
    pub offer_max: Duration,
    /// A router that says nothing for so long is lost, and so is one that takes nothing of what waits for it.
    pub silence_max: Duration,
    /// Bytes that wait for a router; above, its sequences wait too, until most of that is taken.
    pub outbox_bytes: usize,
}

/// Bytes that wait for a router before its sequences do: a second of tokens with their logprobs, and more.
pub const OUTBOX_BYTES: usize = 8 << 20;

/// Offers that arrived before their submit and are kept; when full, the oldest is given back.
pub(crate) const EARLY_OFFERS_MAX: usize = 1024;
/// Attempts that take no offer and are remembered; an offer for one that was forgotten is an early one.
pub(crate) const CLOSED_ATTEMPTS_MAX: usize = 256;
/// Messages that follow an offer which is kept so; one more, and the offer is given back.
pub(crate) const EARLY_MESSAGES_MAX: usize = 4096;
/// Prefixes that are fetched from other workers at once; one more prompt is computed.
pub(crate) const PREFIXES_MAX: usize = 256;
/// Workers whose prefixes are loaded at once before they are offered; one more is offered what the device has.
pub(crate) const ASKED_MAX: usize = 256;
/// The longest that a prompt waits for its prefix from another worker; then it is computed.
pub(crate) const PREFIX_WAIT_MAX: Duration = Duration::from_secs(5);
/// Leases given and not ended; beyond it a prompt is not offered and its attempt fails, and whoever asks for
/// blocks is declined.
pub(crate) const LEASES_MAX: usize = 65_536;
/// Release answers kept until acknowledged; beyond it the oldest is forgotten and would be answered invalid.
pub(crate) const ANSWERS_MAX: usize = 65_536;
/// Submits that wait for their grammars to be compiled; one more is turned away, as if the queue were full.
pub(crate) const GRAMMARS_WAITING_MAX: usize = 256;
/// Sessions with routers that are open at once; one more is closed at once.
pub(crate) const SESSIONS_MAX: usize = 4096;
/// Tokens that a migrating sequence still gets where it was, so that most of its KV is read before it stops.
pub(crate) const MIGRATION_LEAD_TOKENS: u32 = 16;
/// Transfers posted and not ended; beyond it a fetch fails and the router replays.
pub(crate) const TRANSFERS_MAX: usize = 4096;
/// Bytes of routers' messages in a worker's inbox; beyond it the sessions they come from are not read. A message
/// that is larger goes alone.
pub(crate) const INBOX_BYTES_MAX: usize = 16 << 20;
/// Bytes of the agent's events there; beyond it messages of peers are dropped and counted, and the deadlines of
/// the protocol cover the loss. What else the agent tells, it offers again.
pub(crate) const INBOX_AGENT_BYTES_MAX: usize = 16 << 20;
/// Bytes that wait for a router whose sequences wait already: the largest message, twice. Beyond it the session is
/// closed.
pub(crate) const BACKLOG_BYTES_MAX: usize = 128 << 20;
/// How often they are tried again.
pub(crate) const BACKLOG_RETRY: Duration = Duration::from_millis(1);
/// The loop wakes at least this often, so that its ticks show that it is alive.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// Reports are sent this often while something changes.
pub(crate) const REPORT_EVERY: Duration = Duration::from_millis(20);
/// Metrics are published this often.
pub(crate) const PUBLISH_EVERY: Duration = Duration::from_millis(100);

impl WorkerConfig {
    /// Returns what it serves. `context_tokens`: the longest sequence that the model and the pools allow.
    /// `batch_invariant`: what its device declares. It says that it knows no grammars.
    pub fn served(&self, shape: ModelShape, context_tokens: u32, batch_invariant: bool) -> Served {
        Served {
            weights: self.weights,
            shape,
            layout: self.layout.fingerprint(),
            block_tokens: self.layout.block_tokens,
            token_bytes: self.layout.token_bytes() as u64,
            context_tokens,
            batch_invariant,
            grammars: false,
        }
    }

    /// Returns the scope of block identities of a tenant's sequences that are computed with this adapter.
    pub fn scope(&self, tenant: &str, adapter: Option<&Adapter>) -> Scope {
        Scope::derive(&domain::ScopeParts { weights: self.weights, layout: self.layout.fingerprint(), adapter, tenant })
    }
}

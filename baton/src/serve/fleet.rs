//! The workers of the process: each with a device, a transport agent and a session with the router.

use super::model::{Engine, Model};
use crate::config::Config;
use decode_worker::Decode;
use discovery::{Change, Discovery, Member, StaticList};
use domain::plan::StepPlan;
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, Scope};
use engine::cpu::{CpuConfig, CpuDevice, Isa};
use engine::device::{Device, DeviceLimits};
use engine::sim::{Course, SimConfig, SimDevice};
use prefill_worker::Prefill;
use router::{LinkFull, WorkerLink};
use scheduler::SchedulerConfig;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use transport::{Agent, Hub, LaneStatus};
use worker::{Inbox, Worker, WorkerConfig, WorkerParts, inbox, join};

/// Messages of one worker on their way to the router; what is beyond it waits in the worker.
const SESSION_MESSAGES_MAX: usize = 8192;
/// Fewest blocks that a pool is worth starting with.
const BLOCKS_MIN: u32 = 4;

/// The running workers.
pub(super) struct Fleet {
    pub(super) workers: Vec<Worker>,
    pub(super) links: mpsc::Receiver<WorkerLink>,
    pub(super) members: Vec<Member>,
    /// The lane from the first decode worker to the first prefill worker, where there are both.
    pub(super) lane: Option<LaneStatus>,
    /// The first worker's device, in words.
    pub(super) device: String,
    /// Longest sequence that the model and the pools allow.
    pub(super) context_tokens: u32,
    /// What block identities of the default tenant are derived under.
    pub(super) scope: Scope,
}

struct Seat {
    member: Member,
    config: WorkerConfig,
    device: Box<dyn Device>,
    inbox: Inbox,
    agent: Agent,
}

impl Fleet {
    /// Starts all workers, connected with each other. Errors name the setting to change.
    pub(super) fn start(config: &Config, model: &Model) -> Result<Self, Box<dyn Error>> {
        let members = members(StaticList::in_process(config.serve.prefill, config.serve.decode)?);
        let pool = Pool::of(config, model)?;
        let hub = Hub::new();
        let mut seats = Vec::with_capacity(members.len());
        for member in &members {
            let config_of = worker_config(config, model, &pool, member);
            let device = device(config, model, &pool)?;
            let inbox = inbox();
            let agent = join(&hub, &config_of, config.transport.require.0, &*device, &inbox)?;
            seats.push(Seat { member: member.clone(), config: config_of, device, inbox, agent });
        }
        let lane = connect(&mut seats);
        let scope = seats[0].config.scope("");
        let device = seats[0].device.describe();
        let mut workers = Vec::new();
        let (opened, links) = mpsc::channel(members.len());
        for seat in seats {
            let (sender, receive) = mpsc::channel(SESSION_MESSAGES_MAX);
            let session = Box::new(move |bytes| sender.try_send(bytes).map_err(mpsc::error::TrySendError::into_inner));
            let (member, incarnation) = (seat.member.clone(), seat.config.incarnation);
            let worker = match member.role {
                Role::Prefill => seat.start(Prefill::default())?,
                Role::Decode => seat.start(Decode::default())?,
            };
            let input = worker.input().open_session(session).ok_or("a worker ended at its start")?;
            let send = Box::new(move |bytes| if input.send(bytes) { Ok(()) } else { Err(LinkFull) });
            let name = member.name;
            let peer =
                PeerInfo { id: member.id, incarnation, name, role: member.role, address: PeerAddress::default() };
            opened.try_send(WorkerLink { peer, send, receive })?;
            workers.push(worker);
        }
        Ok(Self { workers, links, members, lane, device, context_tokens: pool.context_tokens, scope })
    }
}

impl Seat {
    fn start<R: worker::Role>(self, role: R) -> Result<Worker, worker::StartError> {
        let Seat { config, device, inbox, agent, .. } = self;
        Worker::start(WorkerParts { config, role, device, agent, inbox })
    }
}

/// Those who are there at the start.
fn members(mut source: impl Discovery) -> Vec<Member> {
    let mut members = Vec::new();
    while let Some(change) = source.poll() {
        match change {
            Change::Up(member) => members.push(member),
            Change::Down(id) => members.retain(|member| member.id != id),
        }
    }
    members
}

/// Connects every decode worker with every prefill worker, both ways, so that a lane that may not be taken is an error
/// now and not a slow request later.
fn connect(seats: &mut [Seat]) -> Option<LaneStatus> {
    let ids: Vec<_> = seats.iter().map(|seat| (seat.member.id, seat.member.role)).collect();
    let mut lane = None;
    for seat in seats {
        for &(peer, role) in ids.iter().filter(|&&(_, role)| role != seat.member.role) {
            seat.agent.connect(peer);
            if role == Role::Prefill && lane.is_none() {
                lane = seat.agent.lanes().into_iter().find(|&(id, _)| id == peer).map(|(_, status)| status);
            }
        }
    }
    lane
}

/// Sizes of a worker's pools and what follows from them.
struct Pool {
    blocks: u32,
    reserve_blocks: u32,
    context_tokens: u32,
}

impl Pool {
    fn of(config: &Config, model: &Model) -> Result<Self, Box<dyn Error>> {
        let layout = &model.layout;
        // Every group has as many blocks, so that none is full much before the others.
        let block_bytes: usize = (0..layout.groups.len()).map(|group| layout.record_bytes(group)).sum();
        let blocks = u32::try_from(config.kv.device_bytes.0 / block_bytes as u64).unwrap_or(u32::MAX);
        if blocks < BLOCKS_MIN {
            let needed = block_bytes * BLOCKS_MIN as usize;
            return Err(
                format!("kv.device_bytes holds {blocks} blocks of {block_bytes} bytes; give it {needed}").into()
            );
        }
        let reserve_blocks = (u64::from(blocks) * u64::from(config.kv.reserve_percent) / 100) as u32;
        let pool_tokens = (blocks - reserve_blocks).saturating_mul(layout.block_tokens);
        let context_tokens = pool_tokens.min(u32::try_from(model.spec.context).unwrap_or(u32::MAX));
        if (context_tokens as usize) < model.spec.context {
            tracing::warn!(
                "contexts are limited to {context_tokens} of the model's {} tokens by kv.device_bytes",
                model.spec.context
            );
        }
        Ok(Self { blocks, reserve_blocks, context_tokens })
    }
}

fn device(config: &Config, model: &Model, pool: &Pool) -> Result<Box<dyn Device>, Box<dyn Error>> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let layout = model.layout.clone();
    let limits = DeviceLimits {
        rows_max: config.engine.step_tokens_max as usize,
        samples_max: samples_max(config) as usize,
        context_max: pool.context_tokens as usize,
        blocks: vec![pool.blocks; layout.groups.len()],
    };
    Ok(match &model.engine {
        Engine::Cpu(weights) => {
            let threads = if config.engine.threads == 0 { cores() } else { config.engine.threads };
            Box::new(CpuDevice::new(weights.clone(), CpuConfig { layout, limits, threads, isa: Isa::best() })?)
        }
        Engine::Sim(cost, vocabulary) => {
            let (cost, percent) = (*cost, config.sim.speed_percent);
            let speed = f64::from(percent) / 100.0;
            let course = move |plan: &StepPlan| Course { time: cost.step(plan).at_speed(speed), fails_in: None };
            Box::new(SimDevice::new(SimConfig {
                layout,
                limits,
                vocabulary: vocabulary.clone(),
                course: Box::new(course),
                torn: Arc::default(),
                describe: match percent {
                    0 => format!("{} without waiting", config.sim.preset),
                    _ => format!("{} at {percent}% of its speed", config.sim.preset),
                },
            })?)
        }
    })
}

/// A step samples for each running sequence at most once, and a prompt that ends counts as its choices.
fn samples_max(config: &Config) -> u32 {
    config.engine.running_max + u32::from(config.router.choices_max)
}

fn worker_config(config: &Config, model: &Model, pool: &Pool, member: &Member) -> WorkerConfig {
    let (engine, handoff) = (&config.engine, &config.handoff);
    WorkerConfig {
        id: member.id,
        role: member.role,
        incarnation: incarnation(),
        name: member.name.clone(),
        layout: model.layout.clone(),
        blocks: vec![pool.blocks; model.layout.groups.len()],
        weights: model.digest,
        reserve_blocks: pool.reserve_blocks,
        scheduler: SchedulerConfig {
            step_tokens_max: engine.step_tokens_max,
            chunk_tokens: engine.chunk_tokens,
            running_max: engine.running_max,
            waiting_max: engine.waiting_max,
            block_tokens: model.layout.block_tokens,
            samples_max: samples_max(config),
        },
        handoff_wait: Duration::from_millis(handoff.wait_ms),
        answer_wait: Duration::from_millis(handoff.answer_ms),
        release_retry: Duration::from_millis(handoff.release_retry_ms),
        offer_max: Duration::from_millis(handoff.offer_max_ms),
        heartbeat: Duration::from_millis(config.session.heartbeat_ms),
        silence_max: Duration::from_millis(config.session.silence_ms),
    }
}

/// A number that grows with each life of a worker: the nanoseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "lives are told apart by when they began; nothing is timed by it")]
fn incarnation() -> Incarnation {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Incarnation(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

//! A worker of the process: its device, its transport agent, its pools, and how it starts.

use super::model::{Engine, Model};
use super::model_card::shape;
use super::running::StartLimits;
use super::tiers;
use crate::config::{BytesOrAuto, Config, EncodeKv, Pinning};
use crate::output::{grouped, human_bytes};
use crate::pools::{CardMemory, HOST_POOL_BYTES, demand};
use ::tiers::TierParts;
use decode_worker::Decode;
use domain::plan::StepPlan;
use domain::session::{ModelShape, PeerInfo, Role, Served};
use domain::{Incarnation, KvLayout, Secrets, WorkerId};
use engine::cpu::{CpuConfig, CpuDevice, Isa};
use engine::cuda::{CudaDevice, CudaModel};
use engine::device::{Device, DeviceLimits};
use engine::grammar::Grammars;
use engine::sim::{Course, SimConfig, SimDevice};
use kv_manager::sizing::{PoolSizes, TooFewBlocks};
use kv_manager::{Quotas, Watermarks};
use prefill_worker::Prefill;
use scheduler::SchedulerConfig;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use transport::{Agent, AgentConfig, Hub, Lane, ListenConfig, RdmaConfig, RdmaService, TcpConfig, Tls, TlsError};
use worker::{Inbox, StartError, Worker, WorkerConfig, WorkerParts, agent_config, inbox, join};

/// Which worker it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) id: WorkerId,
    pub(super) role: Role,
    pub(super) name: String,
}

/// The processes that may read a worker's KV.
#[derive(Clone, Copy, Debug)]
pub(super) enum Readers<'a> {
    /// Workers of the same process.
    Process,
    /// Processes that know one of the secrets.
    Cluster(&'a Secrets),
}

/// A worker that is ready to start.
pub(super) struct WorkerSetup {
    pub(super) who: Who,
    pub(super) agent: Agent,
    config: WorkerConfig,
    device: Box<dyn Device>,
    inbox: Inbox,
    tiers: Vec<TierParts>,
    context_tokens: u32,
    shape: ModelShape,
    grammars: Option<Arc<Grammars>>,
}

impl WorkerSetup {
    /// Makes its device and its agent. Errors name the setting to change.
    pub(super) fn new(
        config: &Config,
        model: &Model,
        pool: &Pool,
        who: Who,
        hub: &Hub,
        reach: Readers<'_>,
    ) -> Result<Self, Box<dyn Error>> {
        let worker = worker_config(config, model, pool, &who);
        let device = device(config, model, pool, reach)?;
        let inbox = inbox();
        let agent = agent(config, agent_config(&worker), reach)?;
        let agent = join(hub, &worker, agent, &*device, &inbox);
        let agent = agent.map_err(|error| {
            format!("the transport does not start (transport.listen = {:?}): {error}", config.transport.listen)
        })?;
        let tiers = tiers::open(config, &worker, &*device, &inbox)?;
        Ok(Self {
            who,
            agent,
            config: worker,
            device,
            inbox,
            tiers,
            context_tokens: pool.context_tokens(),
            shape: shape(&model.spec),
            grammars: model.grammars.clone(),
        })
    }

    /// Returns what it tells routers of itself.
    pub(super) fn peer(&self) -> PeerInfo {
        let Who { id, role, name } = self.who.clone();
        PeerInfo { id, incarnation: self.config.incarnation, name, role, address: self.agent.address() }
    }

    /// Returns what it serves.
    pub(super) fn served(&self) -> Served {
        let served = self.config.served(self.shape, self.context_tokens, self.device.batch_invariant());
        Served { grammars: self.grammars.is_some(), ..served }
    }

    /// Returns the limits that it starts with.
    pub(super) fn limits(&self) -> StartLimits {
        let scheduler = self.config.scheduler;
        let has_windows = self.config.layout.groups.iter().any(|group| group.reach().is_some());
        let chunk_tokens_max = if has_windows { scheduler.chunk_tokens } else { u32::MAX };
        StartLimits { scheduler, chunk_tokens_max }
    }

    /// Returns the lane over which processes of this host read its pools. `None`: the driver of its device exports them
    /// to no process.
    pub(super) fn host_lane(&self) -> Option<Lane> {
        match self.device.pool(0).place().device() {
            Some(place) => place.exports.file.map(|_| Lane::Nvlink),
            None => Some(Lane::Shm),
        }
    }

    /// Returns what computes, in words.
    pub(super) fn device(&self) -> String {
        self.device.describe()
    }

    /// Starts its thread. Errors: [`StartError`].
    pub(super) fn start(self) -> Result<Worker, StartError> {
        let WorkerSetup { who, config, device, inbox, agent, tiers, grammars, .. } = self;
        Worker::start(WorkerParts { config, role: who.role, make_role, grammars, device, agent, inbox, tiers })
    }
}

/// Makes what judges the submits of a worker of this role.
fn make_role(role: Role) -> Box<dyn worker::Role> {
    match role {
        Role::Prefill => Box::new(Prefill),
        Role::Decode => Box::new(Decode),
    }
}

/// Sizes of a worker's pools and what follows from them.
pub(super) struct Pool(PoolSizes);

impl Pool {
    /// As the configuration gives memory to each of so many workers of the process. Errors: it is too little, or chunks
    /// are no whole blocks.
    pub(super) fn of(config: &Config, model: &Model, workers: usize) -> Result<Self, Box<dyn Error>> {
        let layout = &model.layout;
        if !config.engine.chunk_tokens.is_multiple_of(layout.block_tokens) {
            let (chunk, block) = (config.engine.chunk_tokens, layout.block_tokens);
            return Err(format!("engine.chunk_tokens: {chunk} is not a multiple of a block's {block} tokens").into());
        }
        let sizes = |bytes| demand(config, layout, model.spec.context, bytes).sizes();
        let sizes = match (config.kv.device_bytes, &model.engine) {
            (BytesOrAuto::Auto, Engine::Cuda(weights)) => {
                let card = card_memory(config, model, weights, workers)?;
                let sizes = sizes(card.pools()).map_err(|few| no_room(card, few))?;
                tracing::info!("{}", taken(card, &sizes, layout));
                sizes
            }
            (BytesOrAuto::Auto, _) => sizes(HOST_POOL_BYTES).map_err(too_few)?,
            (BytesOrAuto::Bytes(bytes), _) => sizes(bytes.0).map_err(too_few)?,
        };
        if (sizes.context_tokens as usize) < model.spec.context {
            tracing::warn!(
                "contexts are limited to {} of the model's {} tokens by kv.device_bytes",
                sizes.context_tokens,
                model.spec.context
            );
        }
        Ok(Self(sizes))
    }

    /// Returns the longest sequence that the model and the pools allow, in tokens.
    pub(super) fn context_tokens(&self) -> u32 {
        self.0.context_tokens
    }
}

/// Says that the memory of the configuration is too little.
fn too_few(few: TooFewBlocks) -> String {
    let TooFewBlocks { blocks, block_bytes } = few;
    format!("kv.device_bytes holds {blocks} blocks of {block_bytes} bytes; give it {}", few.needed())
}

/// Says that a card has too little memory, and what of it is taken.
fn no_room(card: CardMemory, few: TooFewBlocks) -> String {
    format!(
        "kv.device_bytes = \"auto\": {card}; that leaves {} for the KV of each, which takes at least {}: stop what else \
         uses the card (nvidia-smi), take another one (engine.card), fewer workers (serve.prefill, serve.decode), or a \
         smaller engine.step_tokens_max or engine.running_max",
        human_bytes(card.pools()),
        human_bytes(few.needed())
    )
}

/// Says what the pools of a worker take of a card.
fn taken(card: CardMemory, sizes: &PoolSizes, layout: &KvLayout) -> String {
    let blocks: Vec<String> = sizes.blocks.iter().map(u32::to_string).collect();
    let most = sizes.blocks.iter().copied().max().unwrap_or(0);
    let tokens = u64::from(most) * u64::from(layout.block_tokens);
    format!(
        "kv.device_bytes = \"auto\": {card}; the KV of each takes {}: {} blocks, {} tokens",
        human_bytes(card.pools()),
        blocks.join(" + "),
        grouped(tokens)
    )
}

/// Returns how the memory of a model's card is taken before workers start.
fn card_memory(
    config: &Config,
    model: &Model,
    weights: &CudaModel,
    workers: usize,
) -> Result<CardMemory, Box<dyn Error>> {
    let (free, total) = weights.card().memory()?;
    // No pool allows longer contexts than the model.
    let limits = limits(config, Vec::new(), model.spec.context);
    Ok(CardMemory {
        total: total as u64,
        free: free as u64,
        weights: weights.weight_bytes(),
        step: CudaDevice::step_bytes(weights, &model.layout, &limits, config.engine.kernels.into())?,
        workers: workers as u64,
    })
}

/// Returns the limits of a device whose pools have so many blocks each.
fn limits(config: &Config, blocks: Vec<u32>, context_max: usize) -> DeviceLimits {
    let samples_max = samples_max(config) as usize;
    DeviceLimits {
        rows_max: config.engine.step_tokens_max as usize,
        outputs_max: samples_max,
        context_max,
        blocks,
        slots_max: samples_max,
    }
}

fn device(config: &Config, model: &Model, pool: &Pool, reach: Readers<'_>) -> Result<Box<dyn Device>, Box<dyn Error>> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let layout = model.layout.clone();
    let limits = limits(config, pool.0.blocks.clone(), pool.context_tokens() as usize);
    Ok(match &model.engine {
        Engine::Cpu(weights) => {
            let threads = if config.engine.threads == 0 { cores() } else { config.engine.threads };
            let (pinning, guarded, isa) = (pinning(config, reach), config.engine.guarded_pools, Isa::best());
            Box::new(CpuDevice::new(weights.clone(), CpuConfig { layout, limits, threads, pinning, guarded, isa })?)
        }
        Engine::Cuda(weights) => {
            let set = config.engine.kernels.into();
            Box::new(CudaDevice::with_kernels(weights.clone(), layout, limits, set)?)
        }
        Engine::Sim(cost, vocabulary) => {
            let (cost, percent) = (*cost, config.sim.speed_percent);
            let speed = f64::from(percent) / 100.0;
            let course = move |plan: &StepPlan| Course { time: cost.step(plan).at_speed(speed), ..Course::default() };
            Box::new(SimDevice::new(SimConfig {
                layout,
                limits,
                vocabulary: vocabulary.clone(),
                adapters: Vec::new(),
                course: Box::new(course),
                torn: Arc::default(),
                guarded: config.engine.guarded_pools,
                describe: match percent {
                    0 => format!("{} without waiting", config.sim.preset),
                    _ => format!("{} at {percent}% of its speed", config.sim.preset),
                },
            })?)
        }
    })
}

/// Returns whether the threads of a worker stay on processors of their own, as configured.
fn pinning(config: &Config, reach: Readers<'_>) -> engine::cpu::Pinning {
    let alone = match reach {
        Readers::Process => config.serve.prefill + config.serve.decode == 1,
        Readers::Cluster(_) => true,
    };
    match config.engine.pinning {
        Pinning::Auto => engine::cpu::Pinning::Auto { alone },
        Pinning::On => engine::cpu::Pinning::On,
        Pinning::Off => engine::cpu::Pinning::Off,
    }
}

/// A step samples for each running sequence at most once, and a prompt that ends counts as its choices.
fn samples_max(config: &Config) -> u32 {
    config.engine.running_max + u32::from(config.router.choices_max)
}

/// Returns the agent's settings, as configured. Errors: the files for TLS are of no use.
fn agent(config: &Config, agent: AgentConfig, reach: Readers<'_>) -> Result<AgentConfig, TlsError> {
    let transport = &config.transport;
    let (listen, secrets) = match reach {
        Readers::Process => (None, Secrets::default()),
        Readers::Cluster(secrets) => {
            let (bind, advertise) = (transport.listen.clone(), transport.advertise.clone());
            (Some(ListenConfig { bind, advertise }), secrets.clone())
        }
    };
    let files = [&transport.tls_certificate, &transport.tls_key, &transport.tls_authorities].map(Path::new);
    let [certificate, key, authorities] = files;
    let wanted = listen.is_some() && !transport.tls_certificate.is_empty();
    let tls = if wanted { Some(Tls::load(certificate, key, authorities)?) } else { None };
    let insecure = config.cluster.insecure;
    let lanes = if transport.lanes.0.is_empty() { agent.lanes.clone() } else { transport.lanes.0.clone() };
    let devices = transport.rdma_devices.split(',').map(str::trim).filter(|name| !name.is_empty());
    let rdma = RdmaConfig {
        devices: devices.map(str::to_owned).collect(),
        gid_index: u8::try_from(transport.rdma_gid).ok(),
        queues: transport.rdma_queues,
        poll: Duration::from_micros(transport.rdma_poll_us),
        service: RdmaService {
            traffic_class: transport.rdma_traffic_class,
            service_level: transport.rdma_service_level,
            flow_label: transport.rdma_flow_label,
            pkey_index: transport.rdma_pkey,
            timeout: transport.rdma_timeout,
            retries: transport.rdma_retries,
        },
    };
    let tcp = TcpConfig { encoded: transport.encode_kv == EncodeKv::Tcp, ..agent.tcp };
    let expected = transport.expect_gbytes_per_s.0 * 1e9;
    let expect_bytes_per_s = (expected > 0.0).then_some(expected);
    let require = transport.require.0;
    Ok(AgentConfig { require, lanes, secrets, insecure, listen, tls, tcp, rdma, expect_bytes_per_s, ..agent })
}

fn worker_config(config: &Config, model: &Model, pool: &Pool, who: &Who) -> WorkerConfig {
    let (engine, handoff) = (&config.engine, &config.handoff);
    WorkerConfig {
        id: who.id,
        incarnation: incarnation(),
        name: who.name.clone(),
        layout: model.layout.clone(),
        blocks: pool.0.blocks.clone(),
        weights: model.digest,
        reserve_blocks: pool.0.reserve_blocks.clone(),
        eviction: config.kv.eviction.into(),
        pinned_percent: config.kv.pinned_percent,
        quotas: Quotas {
            device_percent: config.kv.tenant_percent,
            host_percent: config.host.tenant_percent,
            disk_percent: config.disk.tenant_percent,
            object_percent: config.object.tenant_percent,
        },
        park_after: Some(Duration::from_millis(config.kv.park_idle_ms)).filter(|after| !after.is_zero()),
        watermarks: Watermarks { high_percent: config.kv.high_percent, low_percent: config.kv.low_percent },
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
        silence_max: Duration::from_millis(config.session.silence_ms),
        outbox_bytes: worker::OUTBOX_BYTES,
        steps_in_flight: engine.steps_in_flight as usize,
    }
}

/// Returns a number that grows with each life of a worker: the nanoseconds since the Unix epoch.
#[expect(clippy::disallowed_methods, reason = "lives are told apart by when they began; nothing is timed by it")]
fn incarnation() -> Incarnation {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Incarnation(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

//! The settings that a process runs with, and how those that can change do: by a configuration that is read again, or
//! by a call of an operator.
//!
//! A change is made as a whole or not at all. A value of a call lies over the configuration until that has another
//! value for the setting than before.

use super::discovery::asked_by_router;
use super::secret::{SecretError, secrets};
use crate::config::{
    CHANGEABLE, Config, ConfigError, Difference, DiscoveryKind, Flags, Loaded, Part, Wanted, changeable, load,
};
use crate::error::with_causes;
use admin::{Settings, Status};
use discovery::StaticList;
use placement::{FetchPolicy, HandoffPolicy, PlacementLimits};
use proto::admin::{Setting, SettingChange};
use router::RouterLimits;
use scheduler::SchedulerConfig;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use telemetry::logging::LogError;
use tokio::sync::watch;
use worker::WorkerInput;

/// What is said where a router has no worker to ask.
pub(super) const NO_WORKERS: &str =
    "cluster.workers is empty: name the session addresses of workers (--workers ADDR,ADDR), or set discovery.kind";

/// The settings that a process runs with.
pub(crate) struct Running {
    part: Part,
    flags: Flags,
    state: Mutex<State>,
    limits: watch::Sender<RouterLimits>,
    addresses: watch::Sender<StaticList>,
}

struct State {
    /// What file, environment and flags say.
    configured: Loaded,
    /// What operators gave instead, by key.
    called: BTreeMap<String, String>,
    /// What applies.
    now: Loaded,
    workers: Vec<LimitedWorker>,
}

/// A worker of this process, and the limits that it started with: those of its device and its memory.
struct LimitedWorker {
    input: WorkerInput,
    started: StartLimits,
}

/// The limits that a worker starts with.
#[derive(Clone, Copy)]
pub(super) struct StartLimits {
    /// What it schedules by.
    pub(super) scheduler: SchedulerConfig,
    /// Most tokens in a chunk, later too: the memory of layers with a window was divided for so many.
    pub(super) chunk_tokens_max: u32,
}

/// Why settings are not changed.
#[derive(Debug, thiserror::Error)]
enum ChangeError {
    /// The configuration is wrong, or a name or a value of a call.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Some of the configuration cannot change.
    #[error("these settings cannot change without a restart: {}", list(.0))]
    Fixed(Vec<Difference>),
    /// A setting of a call cannot change.
    #[error("{0} cannot change without a restart: set it in the configuration; `baton admin limits` lists what can")]
    NeedsRestart(String),
    /// A setting of a call changes nothing here.
    #[error("{key} is of {users}, and this process is none of them: ask one (--server)")]
    Elsewhere {
        /// The setting.
        key: String,
        /// The processes that use it.
        users: &'static str,
    },
    /// The router would have no worker.
    #[error("{NO_WORKERS}")]
    NoWorkers,
    /// A worker could not be trusted, or not reached.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The device of a worker cannot do it.
    #[error("{0}")]
    Worker(String),
    /// The filter is none, or there is no log.
    #[error(transparent)]
    Log(#[from] LogError),
}

fn list(differences: &[Difference]) -> String {
    differences.iter().map(Difference::to_string).collect::<Vec<_>>().join(", ")
}

impl ChangeError {
    /// Returns the status of a call that fails by this.
    fn of_call(&self) -> Status {
        let why = with_causes(self);
        match self {
            Self::Config(ConfigError::Unknown { .. }) => Status::not_found(why),
            Self::Config(_) | Self::NoWorkers | Self::Secret(_) | Self::Worker(_) => Status::invalid_argument(why),
            Self::Log(LogError::Filter { .. }) => Status::invalid_argument(why),
            Self::Fixed(_) | Self::NeedsRestart(_) | Self::Elsewhere { .. } | Self::Log(_) => {
                Status::failed_precondition(why)
            }
        }
    }
}

impl LimitedWorker {
    /// Returns the limits that the worker gets by a configuration. Errors: its device has no room for them.
    fn limits(&self, config: &Config) -> Result<SchedulerConfig, ChangeError> {
        let Config { engine, .. } = config;
        let (chunk_tokens, running_max, waiting_max) = (engine.chunk_tokens, engine.running_max, engine.waiting_max);
        let StartLimits { scheduler, chunk_tokens_max } = self.started;
        if chunk_tokens > chunk_tokens_max {
            return Err(ChangeError::Worker(format!(
                "engine.chunk_tokens: {chunk_tokens} is above {chunk_tokens_max}, for which the memory of the model's \
                 windows was divided when this process started"
            )));
        }
        let limits = SchedulerConfig { chunk_tokens, running_max, waiting_max, ..scheduler };
        let wrong = |error| match error {
            scheduler::ConfigError::Samples { samples_max, .. } => {
                format!("engine.running_max: {running_max} is above {samples_max}, for which this process was started")
            }
            scheduler::ConfigError::Chunk { block_tokens, .. } => {
                format!("engine.chunk_tokens: {chunk_tokens} is not a multiple of a block's {block_tokens} tokens")
            }
            other => format!("engine: {other}"),
        };
        limits.check().map_err(|error| ChangeError::Worker(wrong(error)))?;
        Ok(limits)
    }
}

impl Running {
    /// Takes what was loaded by these flags, and is good.
    pub(crate) fn new(part: Part, flags: Flags, loaded: Loaded) -> Arc<Self> {
        let limits = watch::Sender::new(router_limits(loaded.config()));
        let addresses = watch::Sender::new(addresses(loaded.config()));
        let (called, workers) = (BTreeMap::new(), Vec::new());
        let state = Mutex::new(State { configured: loaded.clone(), called, now: loaded, workers });
        Arc::new(Self { part, flags, state, limits, addresses })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings as they are now.
    pub(super) fn config(&self) -> Config {
        self.state().now.config().clone()
    }

    /// Returns what a router may change, as it changes.
    pub(super) fn limits(&self) -> watch::Receiver<RouterLimits> {
        self.limits.subscribe()
    }

    /// Returns the addresses of workers that the configuration names, as they change.
    pub(super) fn addresses(&self) -> watch::Receiver<StaticList> {
        self.addresses.subscribe()
    }

    /// Lets a worker that started with these limits follow the settings.
    pub(super) fn add_worker(&self, input: WorkerInput, started: StartLimits) {
        let mut state = self.state();
        let worker = LimitedWorker { input, started };
        // The settings may have changed while it started.
        match worker.limits(state.now.config()) {
            Ok(limits) => worker.input.change_limits(limits),
            Err(error) => tracing::warn!("{error}; the worker keeps the limits that it started with"),
        }
        state.workers.push(worker);
    }

    /// Reads the configuration again and takes it up, and returns what is new. Errors: nothing changes.
    fn read_again(&self) -> Result<Vec<Difference>, ChangeError> {
        self.take_configured(load(&self.flags)?)
    }

    fn take_configured(&self, configured: Loaded) -> Result<Vec<Difference>, ChangeError> {
        configured.check()?;
        let mut state = self.state();
        let differences = state.configured.differences(&configured);
        let fixed: Vec<_> = differences.iter().filter(|it| changeable(it.key).is_none()).cloned().collect();
        if !fixed.is_empty() {
            return Err(ChangeError::Fixed(fixed));
        }
        let mut called = state.called.clone();
        called.retain(|key, _| differences.iter().all(|difference| difference.key != key));
        self.take(&mut state, configured, called)
    }

    /// Takes up what an operator gives, and returns what is new. Errors: nothing changes.
    fn take_called(&self, values: &BTreeMap<String, String>) -> Result<Vec<Difference>, ChangeError> {
        let mut state = self.state();
        let configured = state.configured.clone();
        // A name or a value that is wrong by itself.
        configured.with(values)?;
        for key in values.keys() {
            match changeable(key) {
                Some(setting) if setting.is_used_by(self.part) => {}
                Some(setting) => return Err(ChangeError::Elsewhere { key: key.clone(), users: setting.users() }),
                None => return Err(ChangeError::NeedsRestart(key.clone())),
            }
        }
        let mut called = state.called.clone();
        called.extend(values.clone());
        // A value that is also the configuration's is no other one.
        let differences = configured.differences(&configured.with(&called)?);
        called.retain(|key, _| differences.iter().any(|difference| difference.key == key));
        self.take(&mut state, configured, called)
    }

    /// Judges settings as a whole, and takes them up. Errors: nothing changes.
    fn take(
        &self,
        state: &mut State,
        configured: Loaded,
        called: BTreeMap<String, String>,
    ) -> Result<Vec<Difference>, ChangeError> {
        let now = configured.with(&called)?;
        now.check()?;
        let (before, config) = (state.now.config(), now.config());
        if self.part == Part::Router && config.cluster.workers != before.cluster.workers {
            check_workers(config)?;
        }
        let limits = state.workers.iter().map(|worker| worker.limits(config)).collect::<Result<Vec<_>, _>>()?;
        if config.log.level != before.log.level {
            telemetry::logging::set_filter(&config.log.level)?;
        }
        // Nothing fails from here on.
        if config.engine != before.engine {
            state.workers.iter().zip(limits).for_each(|(worker, limits)| worker.input.change_limits(limits));
        }
        telemetry::traces::set_sample(config.traces.sample);
        self.limits.send_replace(router_limits(config));
        self.addresses.send_replace(addresses(config));
        let changed = state.now.differences(&now);
        (state.configured, state.called, state.now) = (configured, called, now);
        Ok(changed)
    }

    /// Reads the configuration again, takes it up and says in the log what came of it.
    pub(super) fn reload_and_log(&self) -> Result<Vec<SettingChange>, Status> {
        match self.read_again() {
            Ok(changed) if changed.is_empty() => {
                tracing::info!("the configuration was read again: nothing changed");
                Ok(Vec::new())
            }
            Ok(changed) => {
                for Difference { key, from, to } in &changed {
                    tracing::info!(key, from, to, "a setting changed");
                }
                Ok(changed.into_iter().map(to_wire).collect())
            }
            Err(error) => {
                let why = with_causes(&error);
                tracing::error!(why, "the configuration was read again and stays as it is");
                // The call was right, and the configuration is not.
                Err(Status::failed_precondition(why))
            }
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Settings for Running {
    fn list(&self) -> Vec<Setting> {
        let state = self.state();
        let mut entries: BTreeMap<_, _> = state.now.entries().map(|entry| (entry.key.clone(), entry)).collect();
        let used = CHANGEABLE.iter().filter(|setting| setting.is_used_by(self.part));
        used.filter_map(|setting| {
            let entry = entries.remove(setting.key)?;
            Some(Setting {
                name: entry.key,
                value: entry.value,
                default: entry.default,
                unit: setting.unit.to_owned(),
                from: entry.origin.to_string(),
                about: entry.about.to_owned(),
            })
        })
        .collect()
    }

    fn change(&self, values: &BTreeMap<String, String>) -> Result<Vec<SettingChange>, Status> {
        let changed = self.take_called(values).map_err(|error| error.of_call())?;
        for Difference { key, from, to } in &changed {
            tracing::info!(key, from, to, "an operator changed a setting");
        }
        Ok(changed.into_iter().map(to_wire).collect())
    }

    fn reload(&self) -> Result<Vec<SettingChange>, Status> {
        self.reload_and_log()
    }
}

fn to_wire(Difference { key, from, to }: Difference) -> SettingChange {
    SettingChange { name: key.to_owned(), before: from, after: to }
}

/// Checks the workers that a router is to have. Errors: there is none, or one that only a secret may reach.
fn check_workers(config: &Config) -> Result<(), ChangeError> {
    let asked = asked_by_router(config);
    if asked.is_empty() {
        return Err(ChangeError::NoWorkers);
    }
    secrets(&config.cluster, &asked)?;
    Ok(())
}

/// Returns the addresses of a static list. Those of a configuration that is good can be read.
fn addresses(config: &Config) -> StaticList {
    let list = match config.discovery.kind {
        DiscoveryKind::Static => config.cluster.workers.as_str(),
        DiscoveryKind::Etcd | DiscoveryKind::Kubernetes => "",
    };
    StaticList::parse(list).expect("the configuration was checked")
}

fn router_limits(config: &Config) -> RouterLimits {
    let Config { router, placement, .. } = config;
    RouterLimits {
        prompt_tokens_max: if router.prompt_tokens_max == 0 { u32::MAX } else { router.prompt_tokens_max },
        // A request with more would never be taken.
        prompts_max: router.prompts_max.min(router.requests_max),
        choices_max: router.choices_max,
        deadline: Duration::from_secs(router.deadline_s),
        explained_max: config.admin.explained_max,
        placement: PlacementLimits {
            attempts_max: placement.attempts_max,
            requests_max: router.requests_max,
            index_blocks_max: placement.index_blocks_max,
            handoff: match placement.handoff {
                Wanted::Auto => HandoffPolicy::Auto,
                Wanted::Always => HandoffPolicy::Always,
                Wanted::Never => HandoffPolicy::Never,
            },
            fetch: match placement.fetch {
                Wanted::Auto => FetchPolicy::Auto,
                Wanted::Always => FetchPolicy::Always,
                Wanted::Never => FetchPolicy::Never,
            },
        },
    }
}

#[cfg(test)]
mod tests;

//! The step loop: the thread that gives a [`Machine`] its events and its turns.

use crate::clock::Clock;
use crate::config::{TRANSFERS_MAX, WorkerConfig};
use crate::grammars::Compiler;
use crate::inbox::{Events, Inbound, Inbox, WorkerInput};
use crate::machine::Machine;
use crate::role::MakeRole;
use domain::session::Role;
use engine::device::Device;
use engine::grammar::Grammars;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;
use threads::Doing;
use tiers::TierParts;
use tokio::sync::watch;
use transport::{Agent, AgentConfig, AgentStartError, Failure, Fault, Hub};

/// The longest time for which events are handled between two turns. If a step ends, the turn follows at once, so that
/// the device does not idle.
const EVENTS_TIME_MAX: Duration = Duration::from_millis(1);

/// A running worker. Ends when [`Worker::shutdown`] is called or the value is dropped.
pub struct Worker {
    input: WorkerInput,
    drained: Arc<AtomicBool>,
    draining: watch::Receiver<bool>,
    role: watch::Receiver<Role>,
    thread: Option<JoinHandle<()>>,
}

/// What a worker is made of.
pub struct WorkerParts {
    /// Settings.
    pub config: WorkerConfig,
    /// What it is there for, until an operator changes that.
    pub role: Role,
    /// Makes what judges submits.
    pub make_role: MakeRole,
    /// Compiles grammars for the model's tokens. `None`: submits that have one are refused.
    pub grammars: Option<Arc<Grammars>>,
    /// What computes.
    pub device: Box<dyn Device>,
    /// Its transport agent, as [`join`] made it.
    pub agent: Agent,
    /// Its inbox.
    pub inbox: Inbox,
    /// Its tiers below the device.
    pub tiers: Vec<TierParts>,
}

/// Why a worker did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings of the scheduler contradict each other.
    #[error("the scheduler's settings: {0}")]
    Scheduler(#[from] scheduler::ConfigError),
    /// The operating system started no thread.
    #[error("a thread of worker {worker} could not be started: {source}")]
    Thread {
        /// Name of the worker.
        worker: String,
        /// What the operating system says.
        source: std::io::Error,
    },
}

/// The thread that is named in the fault of a worker whose device is lost.
pub const LOST_DEVICE: &str = "device";

struct StepLoop {
    inbox: Events,
    machine: Machine,
    clock: Clock,
    drained: Arc<AtomicBool>,
    draining: watch::Sender<bool>,
    role: watch::Sender<Role>,
    failure: Failure,
}

/// Returns the settings of an agent that only workers of the same process reach. The caller may open it to others.
pub fn agent_config(config: &WorkerConfig) -> AgentConfig {
    let agent = AgentConfig::in_process(config.id, config.incarnation, config.name.clone(), TRANSFERS_MAX);
    AgentConfig { fingerprint: config.layout.records_fingerprint(), ..agent }
}

/// Makes the transport agent of a worker. The agent lets peers read the pools of `device`. It enters the hub, where
/// the other workers of the process find it. Errors: a thread could not be started, or a socket not be bound.
pub fn join(
    hub: &Hub,
    config: &WorkerConfig,
    agent: AgentConfig,
    device: &dyn Device,
    inbox: &Inbox,
) -> Result<Agent, AgentStartError> {
    let sink = inbox.input();
    let agent = AgentConfig { failure: inbox.input.failure().clone(), ..agent };
    let agent = Agent::start(hub, agent, device.progress(), Box::new(move |event| sink.agent(event)))?;
    for group in 0..config.layout.groups.len() {
        agent.register(device.pool(group));
    }
    agent.check_required()?;
    Ok(agent)
}

impl Worker {
    /// Starts the worker's thread. Errors: [`StartError`].
    pub fn start(parts: WorkerParts) -> Result<Self, StartError> {
        let WorkerParts { config, role, make_role, grammars, mut device, agent, inbox, tiers } = parts;
        let worker = config.name.clone();
        let Inbox { receiver, input } = inbox;
        let waker = input.clone();
        device.set_waker(Box::new(move || waker.step_ended()));
        let machine = Machine::new(config, make_role(role), device, Box::new(agent))?.with_roles(role, make_role);
        let tells = input.clone();
        let start = |grammars| Compiler::start(&worker, grammars, move |compiled| tells.compiled(compiled));
        let compiler = grammars.map(start).transpose();
        let compiler = compiler.map_err(|source| StartError::Thread { worker: worker.clone(), source })?;
        let machine = machine.with_grammars(compiler);
        let machine = tiers.into_iter().fold(machine, Machine::with_tier);
        let drained = Arc::<AtomicBool>::default();
        let (failure, waker) = (input.failure().clone(), input.clone());
        failure.on_report(move |_| waker.wake());
        let (clock, drained_too) = (Clock::start(), drained.clone());
        let (draining_too, draining) = watch::channel(false);
        let (role_too, role) = watch::channel(role);
        let step_loop = StepLoop {
            inbox: receiver,
            machine,
            clock,
            drained: drained_too,
            draining: draining_too,
            role: role_too,
            failure,
        };
        let thread = threads::spawn(worker.clone(), move || step_loop.run());
        let thread = thread.map_err(|source| StartError::Thread { worker, source })?;
        Ok(Self { input, drained, draining, role, thread: Some(thread) })
    }

    /// Returns the sending end of its inbox.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }

    /// Returns whether the worker takes nothing new, as it changes.
    pub fn draining(&self) -> watch::Receiver<bool> {
        self.draining.clone()
    }

    /// Returns what the worker is there for, as it changes.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.clone()
    }

    /// Returns whether the worker may end: it was asked to drain, no attempt is open, no lease is live, and all routers
    /// have closed their sessions.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Returns whether the worker has ended, because it was asked to or because one of its threads failed.
    pub fn has_ended(&self) -> bool {
        self.input.failure().get().is_some() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Returns the fault that ended the worker, if one of its threads or its device failed.
    pub fn fault(&self) -> Option<Fault> {
        self.input.failure().get().cloned()
    }

    /// Ends the worker. Attempts that are open fail.
    pub fn shutdown(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.input.shutdown();
            if thread.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
    }
}

impl StepLoop {
    fn run(mut self) {
        loop {
            threads::does(Doing::TakesTurn);
            let now = self.clock.now();
            // A device that is lost does not wake the loop, but still says how its steps ended.
            self.machine.collect(now);
            self.machine.turn(now);
            if let Some(cause) = self.machine.lost_device() {
                self.failure.report(LOST_DEVICE, cause);
            }
            if let Some(fault) = self.failure.get() {
                // Without one of its threads, the worker would look healthy to routers and never finish their attempts.
                tracing::error!(worker = self.machine.core().config.name, %fault, "the worker ends");
                return;
            }
            self.drained.store(self.machine.core().is_drained(), Ordering::Release);
            let draining = self.machine.core().is_draining();
            self.draining.send_if_modified(|before| std::mem::replace(before, draining) != draining);
            if let Some(role) = self.machine.core().role {
                self.role.send_if_modified(|before| std::mem::replace(before, role) != role);
            }
            let patience = self.machine.next_deadline(now).since(now);
            threads::does(Doing::WaitsForEvents);
            let event = self.inbox.recv_timeout(patience);
            threads::does(Doing::HandlesEvents);
            match event {
                Ok(event) => {
                    if self.handle_events(event).is_break() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Handles `first` and the events behind it, and collects from the device after each. `Break`: the worker must
    /// end.
    fn handle_events(&mut self, first: Inbound) -> ControlFlow<()> {
        let mut now = self.clock.now();
        let until = now + EVENTS_TIME_MAX;
        let mut next = Some(first);
        while let Some(event) = next {
            self.machine.handle_event(now, event)?;
            now = self.clock.now();
            self.machine.collect(now);
            if now >= until || self.machine.awaits_turn() {
                break;
            }
            next = self.inbox.try_recv().ok();
        }
        ControlFlow::Continue(())
    }
}

impl Drop for StepLoop {
    fn drop(&mut self) {
        // After a panic the state cannot be trusted, and a second panic would abort the process with all its workers.
        // Routers notice the end of their sessions.
        if !std::thread::panicking() {
            threads::does(Doing::EndsWorker);
            self.machine.end();
        }
    }
}

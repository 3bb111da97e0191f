//! The step loop: the thread that gives a [`Machine`] its events and its turns.

use crate::clock::Clock;
use crate::config::{TRANSFERS_MAX, WorkerConfig};
use crate::inbox::{Events, Inbound, Inbox, WorkerInput};
use crate::machine::Machine;
use crate::memory::Pool;
use crate::role::Role;
use engine::device::Device;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread::JoinHandle;
use std::time::Duration;
use tiers::TierParts;
use transport::{Agent, AgentConfig, AgentStartError, Failure, Hub};

/// Events are handled for so long before the loop has its turn, unless a step ends: then it has it at once, so
/// that the device does not stand still.
const EVENTS_TIME_MAX: Duration = Duration::from_millis(1);

/// A running worker. Ends when [`Worker::shutdown`] is called or the value is dropped.
pub struct Worker {
    input: WorkerInput,
    drained: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What a worker is made of.
pub struct WorkerParts<R> {
    /// Settings.
    pub config: WorkerConfig,
    /// What kind of worker it is.
    pub role: R,
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
    Scheduler(String),
    /// No thread.
    #[error("a thread of worker {worker} could not be started: {source}")]
    Thread {
        /// Which worker.
        worker: String,
        /// Why.
        source: std::io::Error,
    },
}

struct StepLoop<R: Role> {
    inbox: Events,
    machine: Machine<R>,
    clock: Clock,
    drained: Arc<AtomicBool>,
    failure: Failure,
}

/// Settings of the agent of a worker that only workers of the same process reach; the caller opens it to others.
pub fn agent_config(config: &WorkerConfig) -> AgentConfig {
    let agent = AgentConfig::in_process(config.id, config.incarnation, config.name.clone(), TRANSFERS_MAX);
    AgentConfig { fingerprint: config.layout.fingerprint(), ..agent }
}

/// Makes the transport agent of a worker, which lends others the pools of `device` for reading. It enters the hub,
/// where the other workers of the process find it.
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
    for pool in Pool::all(device, &config.layout) {
        agent.register(pool);
    }
    agent.check_required()?;
    Ok(agent)
}

impl Worker {
    /// Starts the worker's thread. Errors: [`StartError`].
    pub fn start<R: Role>(parts: WorkerParts<R>) -> Result<Self, StartError> {
        let WorkerParts { config, role, mut device, agent, inbox, tiers } = parts;
        let worker = config.name.clone();
        let Inbox { receiver, input } = inbox;
        let waker = input.clone();
        device.set_waker(Box::new(move || waker.step_ended()));
        let machine = Machine::new(config, role, device, Box::new(agent)).map_err(StartError::Scheduler)?;
        let machine = tiers.into_iter().fold(machine, Machine::with_tier);
        let drained = Arc::<AtomicBool>::default();
        let (failure, waker) = (input.failure().clone(), input.clone());
        failure.on_report(move |_| waker.wake());
        let (clock, drained_too) = (Clock::start(), drained.clone());
        let step_loop = StepLoop { inbox: receiver, machine, clock, drained: drained_too, failure };
        let thread = std::thread::Builder::new().name(worker.clone()).spawn(move || step_loop.run());
        let thread = thread.map_err(|source| StartError::Thread { worker, source })?;
        Ok(Self { input, drained, thread: Some(thread) })
    }

    /// Where its events go.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
    }

    /// Whether it was asked to drain, nothing is open there any more, nobody reads from it, and no router needs it.
    pub fn is_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire)
    }

    /// Whether it has ended, which it does when asked to, or when one of its threads failed.
    pub fn has_ended(&self) -> bool {
        self.input.failure().get().is_some() || self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends it; what runs is cancelled.
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

impl<R: Role> StepLoop<R> {
    fn run(mut self) {
        loop {
            let now = self.clock.now();
            // A device that is lost wakes nobody, but says how its steps ended when it is asked.
            self.machine.collect(now);
            self.machine.turn(now);
            if let Some(cause) = self.machine.lost_device() {
                self.failure.report("device", cause);
            }
            if let Some(fault) = self.failure.get() {
                // A worker that went on without one of its threads would keep what it is given, and look well.
                tracing::error!(worker = self.machine.core().config.name, %fault, "the worker ends");
                return;
            }
            self.drained.store(self.machine.core().is_drained(), Ordering::Release);
            match self.inbox.recv_timeout(self.machine.patience(now)) {
                Ok(event) => {
                    if !self.handle(event) {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Handles this event and those behind it, and looks at the device after each; `false`: the worker ends.
    fn handle(&mut self, mut event: Inbound) -> bool {
        let mut now = self.clock.now();
        let until = now + EVENTS_TIME_MAX;
        while self.machine.handle(now, event) {
            now = self.clock.now();
            self.machine.collect(now);
            if now >= until || self.machine.awaits_turn() {
                return true;
            }
            let Ok(next) = self.inbox.try_recv() else { return true };
            event = next;
        }
        false
    }
}

impl<R: Role> Drop for StepLoop<R> {
    fn drop(&mut self) {
        // After a panic the state is not to be trusted, and a second panic would end the process with all its
        // workers; the end of the sessions tells the routers.
        if !std::thread::panicking() {
            self.machine.end();
        }
    }
}

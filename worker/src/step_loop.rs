//! The step loop: schedule, execute, apply, on a thread of its own, with messages handled in between.

use crate::clock::Clock;
use crate::config::{BACKLOG_RETRY, PUBLISH_EVERY, REPORT_EVERY, TICK, TRANSFERS_MAX, WorkerConfig};
use crate::core::Core;
use crate::inbox::{Inbound, Inbox, WorkerInput};
use crate::memory::Pool;
use crate::outbox::{Outbox, SessionSend};
use crate::plan::plan;
use crate::reports::Reports;
use crate::role::Role;
use crate::sequence::PROMPT;
use crate::space::Space;
use domain::handoff::PeerBody;
use domain::plan::{Sampled, StepOutput};
use domain::session::{Failure, ToWorker};
use domain::{SeqKey, StepId, Time};
use engine::device::Device;
use scheduler::Work;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use transport::{Agent, AgentConfig, AgentEvent, Hub, Lane};

/// Events handled before the loop looks at its step again.
const EVENTS_PER_ROUND_MAX: usize = 512;

/// A running worker. Ends when [`Worker::shutdown`] is called or the value is dropped.
pub struct Worker {
    input: WorkerInput,
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
    /// Sends bytes to the router without waiting, or gives them back: they are kept and tried again.
    pub session: SessionSend,
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

struct StepLoop<R> {
    // The inbox is dropped before the agent and the device, whose threads may wait for room in it.
    inbox: Receiver<Inbound>,
    input: WorkerInput,
    core: Core,
    role: R,
    clock: Clock,
    reports: Reports,
    published: Option<Time>,
    step: StepId,
    /// What the step in flight computes.
    work: Option<Vec<Work>>,
    device: Box<dyn Device>,
}

/// Makes the transport agent of a worker: it enters the hub, where the other workers of the process find it, and lends
/// them the pools of `device` for reading. `require`: see [`AgentConfig::require`]. Errors: no thread could be started.
pub fn join(
    hub: &Hub,
    config: &WorkerConfig,
    require: Option<Lane>,
    device: &dyn Device,
    inbox: &Inbox,
) -> std::io::Result<Agent> {
    let settings = AgentConfig { id: config.id, name: config.name.clone(), posted_max: TRANSFERS_MAX, require };
    let sink = inbox.input();
    let mut agent = Agent::start(hub, settings, device.progress(), Box::new(move |event| sink.agent(event)))?;
    for group in 0..config.layout.groups.len() {
        agent.register(Arc::new(Pool(device.pool(group))));
    }
    Ok(agent)
}

impl Worker {
    /// Starts the worker's thread. Errors: [`StartError`].
    pub fn start<R: Role>(parts: WorkerParts<R>) -> Result<Self, StartError> {
        let WorkerParts { config, role, mut device, agent, inbox, session } = parts;
        config.scheduler.check().map_err(StartError::Scheduler)?;
        let worker = config.name.clone();
        let Inbox { receiver, input } = inbox;
        let waker = input.clone();
        device.set_waker(Box::new(move || waker.step_ended()));
        let step_loop = StepLoop {
            core: Core::new(config, agent, Outbox::new(session)),
            role,
            clock: Clock::start(),
            reports: Reports::default(),
            published: None,
            step: StepId(0),
            work: None,
            inbox: receiver,
            input: input.clone(),
            device,
        };
        let thread = std::thread::Builder::new().name(worker.clone()).spawn(move || step_loop.run());
        let thread = thread.map_err(|source| StartError::Thread { worker, source })?;
        Ok(Self { input, thread: Some(thread) })
    }

    /// Where its events go.
    pub fn input(&self) -> WorkerInput {
        self.input.clone()
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
            self.core.ticks += 1;
            self.tick(now);
            if self.work.is_none() {
                self.begin_step(now);
            }
            self.publish(now);
            match self.inbox.recv_timeout(self.patience(now)) {
                Ok(event) => {
                    if !self.handle(event) {
                        return;
                    }
                    for _ in 1..EVENTS_PER_ROUND_MAX {
                        let Ok(event) = self.inbox.try_recv() else { break };
                        if !self.handle(event) {
                            return;
                        }
                    }
                }
                // A device that is lost wakes nobody, but says how its steps ended when it is asked.
                Err(RecvTimeoutError::Timeout) => self.collect(self.clock.now()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// How long the loop may sleep.
    fn patience(&self, now: Time) -> std::time::Duration {
        let deadlines = [self.core.attempts.next_deadline(), self.role.next_deadline(&self.core)];
        let longest = if self.core.outbox.has_backlog() {
            BACKLOG_RETRY
        } else if self.reports.is_wanted() {
            REPORT_EVERY
        } else {
            TICK
        };
        deadlines.into_iter().flatten().min().map_or(longest, |at| at.since(now)).min(longest)
    }

    /// Handles one event; `false`: the worker ends.
    fn handle(&mut self, event: Inbound) -> bool {
        let now = self.clock.now();
        match event {
            Inbound::Session(bytes) => match proto::session::decode_to_worker(&bytes) {
                Ok(message) => self.session(now, message),
                Err(error) => tracing::error!(worker = self.core.config.name, %error, "a session message is broken"),
            },
            Inbound::Agent(AgentEvent::Message { from, bytes }) => match proto::handoff::decode(&bytes) {
                Ok(message) if message.from == from => self.peer(now, message),
                Ok(message) => tracing::error!(%from, claimed = %message.from, "a peer claims to be another"),
                Err(error) => {
                    tracing::error!(worker = self.core.config.name, %from, %error, "a peer's message is broken")
                }
            },
            Inbound::Agent(AgentEvent::Ended(completion)) => self.role.transfer_ended(&mut self.core, now, completion),
            Inbound::StepEnded => self.collect(now),
            Inbound::Shutdown => return false,
        }
        true
    }

    /// Takes the steps that have ended.
    fn collect(&mut self, now: Time) {
        while let Some(output) = self.device.poll() {
            self.apply(now, output);
        }
    }

    fn session(&mut self, now: Time, message: ToWorker) {
        match message {
            ToWorker::Submit(submit) => {
                self.reports.want();
                // A duplicate of an open attempt is ignored.
                if self.core.attempt(submit.request, submit.epoch).is_none() {
                    self.role.submitted(&mut self.core, now, submit);
                }
            }
            ToWorker::Cancel { request, epoch, choice: None } => self.cancel(now, request, epoch),
            ToWorker::Cancel { request, epoch, choice: Some(choice) } => {
                let key = SeqKey { request, epoch, choice };
                if self.core.choice_ended(key) {
                    self.cancel(now, request, epoch);
                }
            }
            ToWorker::Snapshot => self.reports.want_snapshot(),
            ToWorker::Hello(_)
            | ToWorker::Proof(_)
            | ToWorker::Heartbeat
            | ToWorker::Peer(_)
            | ToWorker::Migrate(_) => {}
        }
    }

    fn cancel(&mut self, now: Time, request: domain::RequestId, epoch: domain::Epoch) {
        if self.core.forget(request, epoch).is_some() {
            self.role.cancelled(&mut self.core, now, request, epoch);
        }
    }

    fn peer(&mut self, now: Time, message: domain::handoff::PeerMessage) {
        match self.core.check_lives(&message) {
            None => {
                self.core.meters.stale_incarnation.increment(1);
                // Whoever waits for the word of an earlier life of this worker learns that there is none to come.
                if let PeerBody::Release { lease } = message.body {
                    self.core.send(message.from, PeerBody::Released { lease, valid: false });
                }
            }
            Some(restarted) => {
                if restarted {
                    self.role.peer_restarted(&mut self.core, now, message.from);
                }
                self.role.peer(&mut self.core, now, message.from, message.body);
            }
        }
    }

    /// What time alone brings about.
    fn tick(&mut self, now: Time) {
        self.core.outbox.flush();
        if self.input.session_has_ended() || !self.core.outbox.is_open() {
            // Nobody would hear of them. Sealed blocks stay cached, so that a replay is cheap.
            self.core.attempts.ids().into_iter().for_each(|(request, epoch)| self.cancel(now, request, epoch));
        }
        while let Some((request, epoch)) = self.core.attempts.overdue(now) {
            self.core.fail(request, epoch, Failure::Deadline, "the client's deadline passed");
            self.role.cancelled(&mut self.core, now, request, epoch);
        }
        self.role.tick(&mut self.core, now);
    }

    /// Schedule, plan, submit.
    fn begin_step(&mut self, now: Time) {
        let core = &mut self.core;
        let mut space = Space { kv: &mut core.kv, sequences: &core.sequences, copies: Vec::new() };
        let schedule = core.scheduler.schedule(&mut space);
        let mut copies = space.copies;
        core.meters.preemptions.increment(schedule.preempted.len() as u64);
        for key in schedule.impossible {
            let detail = "the sequence does not fit the worker's KV pool";
            core.fail(key.request, key.epoch, Failure::TooLarge, detail);
            self.role.cancelled(core, now, key.request, key.epoch);
        }
        for (key, cached_tokens) in schedule.admitted {
            core.meters.prefix_hit_tokens.increment(u64::from(cached_tokens));
            if let Some(sequence) = core.sequences.get_mut(&key) {
                sequence.cached_tokens = cached_tokens;
                self.role.admitted(core, now, key);
            }
        }
        // An attempt that failed just now (its offer could not be made, say) is not computed.
        let work: Vec<Work> = schedule.work.into_iter().filter(|work| core.sequences.contains_key(&work.key)).collect();
        if work.is_empty() {
            return;
        }
        // What such an attempt held is free, and may be another's while the step runs: nothing is copied into it either.
        copies.retain(|(key, _)| core.sequences.contains_key(key));
        let copies = copies.into_iter().map(|(_, copy)| copy).collect();
        self.step = StepId(self.step.0 + 1);
        self.role.planned(core, now, self.step, &work);
        let plan = Arc::new(plan(self.step, copies, &work, &core.sequences, &core.kv));
        core.in_step.extend(work.iter().map(|work| work.key));
        core.meters.batch_rows.record(plan.rows() as f64);
        match self.device.submit(plan) {
            Ok(()) => self.work = Some(work),
            Err(error) => {
                tracing::error!(worker = core.config.name, %error, "the engine refused a step");
                self.failed(now, &work, &error.to_string());
            }
        }
    }

    /// A step ended: tokens go out, blocks are sealed, sequences end.
    fn apply(&mut self, now: Time, output: StepOutput) {
        let Some(work) = self.work.take() else { return };
        let core = &mut self.core;
        core.meters.step_time.record(output.elapsed.as_secs_f64());
        core.meters.step_overhead.record(output.elapsed.saturating_sub(output.in_kernels).as_secs_f64());
        core.rates.step(&work, &output);
        let sampled = match output.sampled {
            Ok(sampled) => sampled,
            Err(reason) => return self.failed(now, &work, &reason),
        };
        core.in_step.clear();
        core.scheduler.computed(&work);
        let mut sampled = sampled.into_iter();
        for work in &work {
            let samples: Vec<Sampled> = sampled.by_ref().take(usize::from(work.samples)).collect();
            let Some(sequence) = core.sequences.get(&work.key) else { continue };
            if sequence.closing {
                core.close(work.key);
                continue;
            }
            core.kv.written(work.key, work.start + work.count, &sequence.chain);
            if work.key.choice == PROMPT {
                core.meters.prefill_tokens.increment(u64::from(work.count));
                if work.samples > 0 {
                    let first = core.first_tokens(work.key, samples);
                    // First tokens are on their way to the router before anything else happens with the prompt.
                    core.flush_rows();
                    self.role.prompt_ended(core, now, work.key, first);
                }
            } else {
                samples.into_iter().for_each(|sampled| core.append(work.key, sampled));
            }
        }
        core.flush_rows();
    }

    /// A step failed: what it was to write is void.
    fn failed(&mut self, now: Time, work: &[Work], reason: &str) {
        let core = &mut self.core;
        core.in_step.clear();
        tracing::error!(worker = core.config.name, reason, "a step failed");
        self.role.step_failed(core, now, work);
        for work in work {
            let key = work.key;
            if core.sequences.get(&key).is_some_and(|sequence| sequence.closing) {
                core.close(key);
            } else if core.attempt(key.request, key.epoch).is_some() {
                core.fail(key.request, key.epoch, Failure::Engine, reason);
                self.role.cancelled(core, now, key.request, key.epoch);
            }
        }
    }

    fn publish(&mut self, now: Time) {
        self.reports.send(&mut self.core, now);
        if self.published.is_none_or(|last| now.since(last) >= PUBLISH_EVERY) {
            self.published = Some(now);
            self.core.meters.publish(&self.core.kv, &self.core.scheduler);
        }
    }
}

impl<R> Drop for StepLoop<R> {
    fn drop(&mut self) {
        // After a panic the state is not to be trusted, and a second panic would end the process with all its workers; the
        // end of the session tells the router.
        if std::thread::panicking() {
            return;
        }
        for (request, epoch) in self.core.attempts.ids() {
            self.core.fail(request, epoch, Failure::Draining, "the worker ends");
        }
    }
}

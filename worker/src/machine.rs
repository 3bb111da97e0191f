//! A worker as a state machine. Events and the time go in; decisions go out through the device, the transport and the
//! sessions with routers. The machine has no thread and no clock, so the simulator runs it exactly as a process does.
//!
//! ```text
//!  handle_event ─> on_session_bytes, on_peer_bytes, on_connected, ...          events.rs
//!                    └─ on_submit: the role judges, then begin                 submit.rs, assignment.rs
//!
//!  turn ─> apply_deadlines ─> admit ─> start_steps ─> reports, metrics
//!                                        │
//!          schedule ─> apply_schedule ─> submit ──> device                     step.rs
//!                                                     │
//!  collect ─> apply_output <───────── step ended ─────┘
//! ```
//!
//! A machine has four kinds of methods:
//!
//! 1. *Getters*: [`Machine::core`], [`Machine::fetches`], [`Machine::offers`], [`Machine::lost_device`].
//! 2. *Handlers of events*: [`Machine::handle_event`], with one `on_*` method per event, and [`Machine::collect`].
//! 3. *The turn*: [`Machine::turn`] does what time and free capacity allow. It starts the next step.
//! 4. *The deadline*: [`Machine::next_deadline`] says when the next turn must take place.
//!
//! What happens to an attempt follows from the assignment that it was submitted with, in `assignment.rs`. The [`Role`]
//! only decides which submits are taken.

mod assignment;
mod dump;
mod events;
#[cfg(feature = "explore")]
mod explore;
mod masks;
mod operator;
mod prefixes;
mod step;
mod submit;

use crate::config::{BACKLOG_RETRY, PUBLISH_EVERY, REPORT_EVERY, TICK, WorkerConfig};
use crate::fetches::Fetches;
use crate::grammars::Compiler;
use crate::offers::Offers;
use crate::reports::Reports;
use crate::retry::Retry;
use crate::role::{MakeRole, Role};
use crate::state::WorkerState;
use crate::transport::Transport;
use domain::planted_bugs::{self, Bug};
use domain::session::{self, Failure, FromWorker, Submit};
use domain::{ProgressWord, SeqKey, StepId, Time};
use engine::device::{Device, STEPS_IN_FLIGHT_MAX};
use scheduler::{Admitted, ConfigError};
use std::collections::VecDeque;
use step::StepInFlight;
use tiers::TierParts;

/// A worker without its thread.
pub struct Machine {
    pub(crate) core: WorkerState,
    /// The reader's side of handoffs, migrations and prefixes.
    fetches: Fetches,
    /// The owner's side of the same.
    offers: Offers,
    role: Box<dyn Role>,
    /// Makes another role, where an operator may change it.
    make_role: Option<MakeRole>,
    device: Box<dyn Device>,
    /// The progress word of the device.
    word: ProgressWord,
    /// The steps that the device has, the oldest first.
    in_flight: VecDeque<StepInFlight>,
    /// The id of the last step that was submitted.
    last_step: StepId,
    /// A step has ended since the last turn.
    step_ended: bool,
    /// The parts of failed steps that are still to be computed. No other step starts before they are.
    retry: Option<Retry>,
    reports: Reports,
    last_publish: Option<Time>,
    /// The time of the last event or turn.
    last_awake: Option<Time>,
}

impl Machine {
    /// Makes a machine at rest. Errors: the limits of the scheduler do not fit together.
    ///
    /// # Panics
    /// If the device has fewer slots than sequences may sample in a step.
    pub fn new(
        config: WorkerConfig,
        role: Box<dyn Role>,
        device: Box<dyn Device>,
        transport: Box<dyn Transport>,
    ) -> Result<Self, ConfigError> {
        config.scheduler.check()?;
        let slots = device.limits().slots_max;
        assert!(slots >= config.scheduler.samples_max as usize, "{slots} slots for {:?}", config.scheduler);
        Ok(Self {
            core: WorkerState::new(config, &*device, transport),
            fetches: Fetches::default(),
            offers: Offers::default(),
            role,
            make_role: None,
            word: device.progress(),
            device,
            in_flight: VecDeque::with_capacity(STEPS_IN_FLIGHT_MAX),
            last_step: StepId(0),
            step_ended: false,
            retry: None,
            reports: Reports::default(),
            last_publish: None,
            last_awake: None,
        })
    }

    /// Adds a tier.
    pub fn with_tier(mut self, tier: TierParts) -> Self {
        self.core.loader().add_tier(tier);
        self
    }

    /// Takes submits with grammars, which `compiler` compiles.
    pub fn with_grammars(mut self, compiler: Option<Compiler>) -> Self {
        compiler.into_iter().for_each(|compiler| self.core.grammars.open(compiler));
        self
    }

    /// Says what the worker is there for, and how it gets another role when an operator asks for one.
    pub fn with_roles(mut self, now: session::Role, make: MakeRole) -> Self {
        (self.role, self.make_role) = (make(now), Some(make));
        self.core.role = Some(now);
        self
    }

    /// Replaces the role. The new role judges the submits that arrive from now on. Attempts that are open go on under
    /// the assignment that they were submitted with: a prompt is still handed off after its worker became a decode
    /// worker, and a sequence still decodes, or moves, after its worker became a prefill worker.
    ///
    /// Routers are told by [`Self::with_roles`] and by the answer to an operator alone, not by this. The new role
    /// refuses what no longer fits.
    pub fn replace_role(&mut self, role: Box<dyn Role>) {
        self.role = role;
    }

    /// Returns the state that all parts of the worker share.
    pub fn core(&self) -> &WorkerState {
        &self.core
    }

    /// Returns what this worker reads from other workers.
    pub fn fetches(&self) -> &Fetches {
        &self.fetches
    }

    /// Returns what other workers may read from this one.
    pub fn offers(&self) -> &Offers {
        &self.offers
    }

    /// Returns why the device takes no more steps, if it takes none. A worker without its device must end: it would
    /// fail every attempt, and look idle to routers.
    pub fn lost_device(&self) -> Option<&str> {
        self.device.lost()
    }

    /// Returns whether a step has ended since the last turn, so that the device waits for the next step.
    pub fn awaits_turn(&self) -> bool {
        self.step_ended
    }

    /// Takes one turn: deadlines, memory for jobs that wait, the next steps if the device takes more, reports. Call it
    /// after events, and at [`Self::next_deadline`] at the latest.
    pub fn turn(&mut self, now: Time) {
        self.wake(now);
        self.step_ended = false;
        self.core.ticks += 1;
        self.apply_deadlines(now);
        self.continue_retry(now);
        self.admit(now);
        let idles = planted_bugs::is(Bug::DeviceIdles) && self.core.ticks % 2 == 1;
        if !idles {
            self.start_steps(now);
        }
        self.core.loader().write_to_tiers();
        self.core.loader().begin_lifts();
        self.reports.send(&mut self.core, now);
        self.publish(now);
    }

    /// Returns when the next turn must take place if nothing happens before. It may lie in the past.
    pub fn next_deadline(&self, now: Time) -> Time {
        let core = &self.core;
        let longest_sleep = if core.sessions.backlog() > 0 {
            BACKLOG_RETRY
        } else if core.sessions.wants_report() {
            REPORT_EVERY
        } else {
            // A sleep must be too short to be taken for a pause of the process.
            TICK.min(core.config.silence_max / 4)
        };
        let deadlines = [
            core.attempts.next_deadline(),
            core.loads.next_deadline(),
            core.kv.next_pin_deadline(),
            self.offers.next_deadline(core),
            self.fetches.next_deadline(core),
        ];
        deadlines.into_iter().flatten().fold(now + longest_sleep, Time::min)
    }

    /// Takes the outputs of the steps that have ended.
    pub fn collect(&mut self, now: Time) {
        self.wake(now);
        while let Some(output) = self.device.poll() {
            self.step_ended = true;
            self.apply_output(now, output);
        }
    }

    /// Ends the worker: fails every open attempt, so that routers replay it elsewhere.
    pub fn end(&mut self) {
        for (request, epoch) in self.core.attempts.ids(|_| true) {
            self.core.fail(request, epoch, Failure::Draining, "the worker ends");
        }
        for (session, Submit { request, epoch, .. }) in self.core.grammars.drain() {
            let (why, detail) = (Failure::Draining, "the worker ends".to_owned());
            self.core.tell(session, &FromWorker::Failed { request, epoch, why, fault: None, detail });
        }
        self.core.sessions.flush(self.core.now);
    }

    /// Sets the time, before anything is judged by it. If the process was paused, the pause is charged to no router
    /// and no peer: what they sent meanwhile is still in the inbox, or in sockets.
    fn wake(&mut self, now: Time) {
        let pause = now.since(self.last_awake.replace(now).unwrap_or(now));
        self.core.now = now;
        // The loop may have slept for a tick. In the rest of the pause a reader could not renew its lease, and an owner
        // could not be heard.
        if let Some(stood_still) = pause.checked_sub(TICK) {
            self.core.kv.stood_still(stood_still);
            self.fetches.stood_still(stood_still);
        }
        if pause > self.core.config.silence_max / 2 {
            self.core.sessions.forgive(pause);
            self.in_flight.iter_mut().for_each(|step| step.disturbed = true);
        }
    }

    /// Ends what has run out of time: sessions, attempts, pins, loads, leases and fetches.
    fn apply_deadlines(&mut self, now: Time) {
        self.core.sessions.flush(now);
        for (session, why) in self.core.sessions.close_lost(now, self.core.config.silence_max) {
            if self.core.draining {
                tracing::info!(worker = self.core.config.name, %session, why, "a session is over");
            } else {
                tracing::warn!(worker = self.core.config.name, %session, why, "a session is over");
            }
            self.core.peers.closed(session);
            // No router would receive the tokens of its attempts. Sealed blocks stay cached, so that a replay is cheap.
            let orphans = self.core.attempts.ids(|attempt| attempt.session == session);
            self.core.grammars.retain(|of| of != session);
            orphans.into_iter().for_each(|(request, epoch)| self.on_cancel(now, request, epoch));
        }
        while let Some((request, epoch)) = self.core.attempts.overdue(now) {
            self.fail_attempt(now, request, epoch, Failure::Deadline, "the client's deadline passed");
        }
        self.core.kv.tick(now);
        self.core.loader().drop_overdue_loads(now);
        self.offers.tick(&mut self.core, now);
        self.fetches.tick(&mut self.core, now);
    }

    /// Gives memory, in the order of the queue, to jobs that need memory and no step.
    pub(crate) fn admit(&mut self, now: Time) {
        loop {
            let core = &mut self.core;
            let (scheduler, mut space) = core.scheduler_and_space(now, &[]);
            match scheduler.admit(&mut space) {
                None => return,
                Some(Admitted::TakeOver { key, cached_tokens }) => {
                    self.fetches.room_given(core, now, key, cached_tokens);
                }
                Some(Admitted::Impossible(key)) => self.fail_impossible(now, key),
                // Records are being lifted for the prompt. It is loaded when they are there, and all jobs behind it
                // wait until then.
                Some(Admitted::Load { job, before }) if core.loader().decide_load(now, job, before).is_break() => {
                    return;
                }
                Some(Admitted::Load { .. }) => {}
            }
        }
    }

    /// Fails the attempt of a sequence that can never run here.
    fn fail_impossible(&mut self, now: Time, key: SeqKey) {
        let detail = "the sequence does not fit the worker's KV pool";
        self.fail_attempt(now, key.request, key.epoch, Failure::TooLarge, detail);
    }

    /// Publishes metrics and closes connections that are not needed, every [`PUBLISH_EVERY`].
    fn publish(&mut self, now: Time) {
        if self.last_publish.is_some_and(|last| now.since(last) < PUBLISH_EVERY) {
            return;
        }
        self.last_publish = Some(now);
        let core = &mut self.core;
        let (waiting, running) = (core.waiting(), core.scheduler.running_len());
        core.meters.publish(&core.kv, waiting, running, &core.config.layout);
        core.meters.session_backlog.set(core.sessions.backlog() as f64);
        core.meters.lanes.publish(&core.transport.counts(), |peer| core.transport.speed(peer));
        let (offers, fetches) = (&self.offers, &self.fetches);
        core.part(now, |peer| offers.deals_with(peer) || fetches.deals_with(peer));
    }
}

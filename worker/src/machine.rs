//! A worker as a machine: what happened goes in with the time, and everything it decides goes out through its
//! device, its transport and its sessions. It has no thread and no clock, so a simulation runs it as a process
//! does.

#[cfg(feature = "explore")]
mod explore;

use crate::config::{BACKLOG_RETRY, PUBLISH_EVERY, REPORT_EVERY, SESSIONS_MAX, TICK, WorkerConfig};
use crate::core::Core;
use crate::inbox::Inbound;
use crate::outbox::Outbox;
use crate::plan::plan;
use crate::reports::Reports;
use crate::retry::Retry;
use crate::role::Role;
use crate::sequence::PROMPT;
use crate::sessions::SessionId;
use crate::transport::Transport;
use domain::handoff::{Ask, PeerBody};
use domain::plan::{BlockCopy, Sampled, StepOutput};
use domain::planted_bugs::{self, Bug};
use domain::session::{Assignment, Failure, FromWorker, Submit, ToWorker};
use domain::{ProgressWord, SeqKey, StepId, Time};
use engine::device::{Device, SubmitError};
use kv_manager::Heard;
use scheduler::{Admitted, ConfigError, Work};
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use telemetry::failpoint::{self, Place};
use tiers::TierParts;
use transport::AgentEvent;

/// A worker without its thread.
pub struct Machine<R> {
    core: Core,
    role: R,
    reports: Reports,
    published: Option<Time>,
    /// When it was last given something to do, or its turn.
    awake: Option<Time>,
    /// The process stood still while the step in flight ran.
    disturbed: bool,
    step: StepId,
    running: Option<Running>,
    /// A step has ended since its last turn.
    ended: bool,
    /// What is left of a step that failed. Nothing is scheduled before it is done.
    retry: Option<Retry>,
    device: Box<dyn Device>,
    /// The device's.
    word: ProgressWord,
}

/// The step in flight.
struct Running {
    /// What it computes.
    work: Vec<Work>,
    /// What it begins with.
    copies: Vec<(SeqKey, BlockCopy)>,
}

impl<R: Role> Machine<R> {
    /// A machine at rest. Errors: the settings of the scheduler contradict each other.
    pub fn new(
        config: WorkerConfig,
        role: R,
        device: Box<dyn Device>,
        transport: Box<dyn Transport>,
    ) -> Result<Self, ConfigError> {
        config.scheduler.check()?;
        Ok(Self {
            core: Core::new(config, transport),
            role,
            reports: Reports::default(),
            published: None,
            awake: None,
            disturbed: false,
            step: StepId(0),
            running: None,
            ended: false,
            retry: None,
            word: device.progress(),
            device,
        })
    }

    /// The same machine, with a tier more.
    pub fn with_tier(mut self, tier: TierParts) -> Self {
        self.core.add_tier(tier);
        self
    }

    /// Its state, for those who look.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// What makes it the worker that it is, for those who look.
    pub fn role(&self) -> &R {
        &self.role
    }

    /// One round: deadlines, the next step where none runs, reports. Due after events, and after
    /// [`Self::patience`] at the latest.
    pub fn turn(&mut self, now: Time) {
        self.wake(now);
        self.ended = false;
        self.core.ticks += 1;
        self.tick(now);
        self.go_on(now);
        self.admit(now);
        let idles = planted_bugs::is(Bug::DeviceIdles) && self.core.ticks % 2 == 1;
        if self.running.is_none() && !idles {
            self.begin_step(now);
            // It may have been refused.
            self.go_on(now);
        }
        self.core.write_to_tiers();
        self.core.lift();
        self.reports.send(&mut self.core, now);
        if self.published.is_none_or(|last| now.since(last) >= PUBLISH_EVERY) {
            self.published = Some(now);
            let (waiting, running) = (self.core.waiting(), self.core.scheduler.running_len());
            self.core.meters.publish(&self.core.kv, waiting, running, &self.core.config.layout);
            self.core.meters.session_backlog.set(self.core.sessions.backlog() as f64);
            let transport = &self.core.transport;
            self.core.meters.lanes.publish(&transport.counts(), |peer| transport.speed(peer));
            let role = &self.role;
            self.core.part(now, |peer| role.deals_with(peer));
        }
    }

    /// Why the device takes no more steps, if it takes none: whoever went on would fail all that comes, and look
    /// idle to routers.
    pub fn lost_device(&self) -> Option<&str> {
        self.device.lost()
    }

    /// How long it may be left alone.
    pub fn patience(&self, now: Time) -> Duration {
        let deadlines = [
            self.core.attempts.next_deadline(),
            self.core.loads.next_deadline(),
            self.core.kv.next_pin_deadline(),
            self.role.next_deadline(&self.core),
        ];
        let longest = if self.core.sessions.backlog() > 0 {
            BACKLOG_RETRY
        } else if self.core.sessions.wants_report() {
            REPORT_EVERY
        } else {
            // Its own pauses are not to look like standing still.
            TICK.min(self.core.config.silence_max / 4)
        };
        deadlines.into_iter().flatten().min().map_or(longest, |at| at.since(now)).min(longest)
    }

    /// Handles one event; `false`: the worker shall end.
    pub fn handle(&mut self, now: Time, event: Inbound) -> bool {
        self.wake(now);
        match event {
            // A router that has nothing here would only hear that nothing is taken.
            Inbound::Opened { .. } if self.core.draining => {}
            Inbound::Opened { session, send, ended } => {
                if self.core.sessions.len() == SESSIONS_MAX {
                    tracing::warn!(
                        worker = self.core.config.name,
                        "{SESSIONS_MAX} sessions are open; one more is refused"
                    );
                    return true;
                }
                let outbox = Outbox::new(now, send, self.core.config.outbox_bytes);
                self.core.sessions.open(now, session, outbox, ended);
            }
            Inbound::Session { session, bytes } => {
                // What was on its way when the session was closed is not begun: its router would never hear of it.
                if !self.core.sessions.heard(now, session) {
                    return true;
                }
                match proto::session::decode_to_worker(&bytes) {
                    Ok(message) => self.session(now, session, message),
                    Err(error) => {
                        tracing::error!(worker = self.core.config.name, %error, "a session message is broken");
                    }
                }
            }
            Inbound::Agent(AgentEvent::Message { from, bytes }) => match proto::handoff::decode(&bytes) {
                Ok(message) if message.from == from => self.peer(now, message),
                Ok(message) => tracing::error!(%from, claimed = %message.from, "a peer claims to be another"),
                Err(error) => {
                    tracing::error!(worker = self.core.config.name, %from, %error, "a peer's message is broken");
                }
            },
            Inbound::Agent(AgentEvent::Ended(completion)) => {
                failpoint::pass(Place::Read, "ended");
                self.role.transfer_ended(&mut self.core, now, completion);
            }
            Inbound::Agent(AgentEvent::Connected { peer, status }) => {
                let gigabytes = status.probe.bytes_per_s / 1e9;
                let passed_over = status.passed_over.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                self.core.peers.connected(now, peer);
                self.core.meters.lanes.taken(peer, &status);
                tracing::info!(
                    worker = self.core.config.name,
                    peer = status.peer,
                    lane = %status.lane,
                    encoding = %status.encoding,
                    passed_over,
                    "connected; the lane reads {gigabytes:.1} GB/s"
                );
                self.role.connected(&mut self.core, now, peer);
            }
            Inbound::Agent(AgentEvent::Lost { peer, reason }) => {
                self.core.peers.lost(peer);
                self.core.meters.lanes.forget(peer);
                if self.core.draining {
                    tracing::info!(worker = self.core.config.name, %peer, reason, "a peer is not reached");
                } else {
                    tracing::warn!(worker = self.core.config.name, %peer, reason, "a peer is not reached");
                }
                self.role.peer_lost(&mut self.core, now, peer);
            }
            Inbound::Tier(end) => self.core.tier_ended(now, end),
            Inbound::Command { command, reply } => reply(self.core.command(now, command)),
            Inbound::StepEnded => self.collect(now),
            Inbound::Drain => self.drain(),
            Inbound::Shutdown => return false,
        }
        true
    }

    /// Takes the steps that have ended.
    pub fn collect(&mut self, now: Time) {
        self.wake(now);
        while let Some(output) = self.device.poll() {
            self.ended = true;
            self.apply(now, output);
        }
    }

    /// Whether a step has ended since its last turn: the device waits for the next one.
    pub fn awaits_turn(&self) -> bool {
        self.ended
    }

    /// The worker ends: its routers learn it for every attempt that is open.
    pub fn end(&mut self) {
        for (request, epoch) in self.core.attempts.ids(|_| true) {
            self.core.fail(request, epoch, Failure::Draining, "the worker ends");
        }
        self.core.sessions.flush(self.core.now);
    }

    /// Why an attempt cannot be computed here, if so. A router may not know yet how long a context is here, or
    /// take its model for another.
    fn impossible(&self, submit: &Submit) -> Option<(Failure, String)> {
        let (choices, running) = (submit.choices.len(), self.core.config.scheduler.running_max);
        if choices > running as usize {
            let detail =
                format!("{choices} choices are more than the {running} sequences that this worker runs at once");
            return Some((Failure::TooLarge, detail));
        }
        let (prompt, context) = (submit.prompt.len(), self.device.limits().context_max);
        let made = match submit.part {
            Assignment::Prefill { .. } => {
                submit.choices.iter().map(|(_, committed)| committed.len()).max().unwrap_or(0)
            }
            Assignment::Decode { .. } | Assignment::TakeOver { .. } | Assignment::Whole => {
                submit.params.max_tokens as usize
            }
        };
        if prompt + made > context {
            let detail =
                format!("{prompt} tokens and {made} to be made are more than this worker's context of {context}");
            return Some((Failure::TooLarge, detail));
        }
        let vocab = self.device.vocab();
        let committed = submit.choices.iter().flat_map(|(_, committed)| committed.iter());
        let foreign = submit.prompt.iter().chain(committed).find(|&&token| token as usize >= vocab)?;
        Some((Failure::Invalid, format!("the token {foreign} is not one of the model, whose tokens are below {vocab}")))
    }

    /// Nothing new is taken from now on.
    fn drain(&mut self) {
        if !std::mem::replace(&mut self.core.draining, true) {
            tracing::info!(worker = self.core.config.name, "draining: nothing new is taken");
            for (_, session) in self.core.sessions.iter_mut() {
                session.tell(&FromWorker::Draining);
            }
        }
    }

    fn session(&mut self, now: Time, session: SessionId, message: ToWorker) {
        failpoint::pass(Place::SessionGot, message.name());
        match message {
            ToWorker::Submit(submit) => {
                if let Some(session) = self.core.sessions.get_mut(session) {
                    session.submitted();
                }
                let (request, epoch) = (submit.request, submit.epoch);
                if self.core.draining {
                    let detail = "the worker takes nothing new".to_owned();
                    self.core.tell(
                        session,
                        &FromWorker::Failed { request, epoch, why: Failure::Draining, fault: None, detail },
                    );
                } else if self.core.attempt(request, epoch).is_some() {
                    // A duplicate of an open attempt is ignored.
                } else if let Some((why, detail)) = self.impossible(&submit) {
                    self.core.tell(session, &FromWorker::Failed { request, epoch, why, fault: None, detail });
                } else {
                    self.role.submitted(&mut self.core, now, session, submit);
                }
            }
            ToWorker::Cancel { request, epoch, choice: None } => self.cancel(now, request, epoch),
            ToWorker::Cancel { request, epoch, choice: Some(choice) } => {
                let key = SeqKey { request, epoch, choice };
                if self.core.choice_ended(key) {
                    self.cancel(now, request, epoch);
                }
            }
            ToWorker::Snapshot => {
                if let Some(session) = self.core.sessions.get_mut(session) {
                    session.wants_snapshot = true;
                }
            }
            ToWorker::Peer(peer) if peer.id != self.core.config.id => {
                let id = peer.id;
                if self.core.introduced(session, peer) {
                    self.core.meters.lanes.forget(id);
                    self.role.peer_restarted(&mut self.core, now, id);
                }
            }
            ToWorker::PeerLeft { id, incarnation } => self.core.peers.left(session, id, incarnation),
            ToWorker::Migrate(migrate) if self.core.attempt(migrate.request, migrate.epoch).is_some() => {
                self.role.migrate(&mut self.core, now, migrate);
            }
            // Whatever it takes of what waits is a sign of life.
            ToWorker::Heartbeat if self.core.sessions.is_full(session) => {}
            // So the many workers of a router are heard together, when it looks after them, and wake it once.
            ToWorker::Heartbeat => self.core.tell(session, &FromWorker::Heartbeat),
            // Of an attempt that ended meanwhile its router learns by itself. How a session begins is its
            // carrier's matter.
            ToWorker::Peer(_)
            | ToWorker::Migrate(_)
            | ToWorker::Hello(_)
            | ToWorker::Proof(_)
            | ToWorker::Refused { .. } => {}
        }
    }

    fn cancel(&mut self, now: Time, request: domain::RequestId, epoch: domain::Epoch) {
        if self.core.forget(request, epoch).is_some() {
            self.role.cancelled(&mut self.core, now, request, epoch);
        }
    }

    fn peer(&mut self, now: Time, message: domain::handoff::PeerMessage) {
        failpoint::pass(Place::PeerGot, message.body.name());
        let heard = self.core.lives.hear(&message);
        if heard == Heard::Stale {
            self.core.meters.stale_incarnation.increment(1);
            // Whoever waits for the word of an earlier life of this worker learns that there is none to come.
            match message.body {
                PeerBody::Release { lease } | PeerBody::Renew { lease, .. } => {
                    self.core.send(message.from, PeerBody::Released { lease, valid: false });
                }
                PeerBody::Ask(Ask { request, epoch, .. }) => {
                    self.core.send(message.from, PeerBody::Decline { request, epoch });
                }
                _ => {}
            }
            return;
        }
        if heard == Heard::Restarted {
            self.core.meters.lanes.forget(message.from);
            self.role.peer_restarted(&mut self.core, now, message.from);
        }
        self.role.peer(&mut self.core, now, message.from, message.body);
    }

    /// The time is told, before anything is judged by it. If this process stood still, nobody else pays for that:
    /// what they said meanwhile lies in the inbox, or in sockets.
    fn wake(&mut self, now: Time) {
        let pause = now.since(self.awake.replace(now).unwrap_or(now));
        self.core.now = now;
        // Its loop wakes by itself after a tick: what is beyond that is no time in which a reader could have
        // renewed its lease, or an owner said what is waited for.
        if let Some(still) = pause.checked_sub(TICK) {
            self.core.kv.stood_still(still);
            self.role.stood_still(still);
        }
        if pause > self.core.config.silence_max / 2 {
            self.core.sessions.forgive(pause);
            self.disturbed = true;
        }
    }

    /// What time alone brings about.
    fn tick(&mut self, now: Time) {
        let core = &mut self.core;
        let silence_max = core.config.silence_max;
        core.sessions.flush(now);
        for (session, why) in core.sessions.close_lost(now, silence_max) {
            if self.core.draining {
                tracing::info!(worker = self.core.config.name, %session, why, "a session is over");
            } else {
                tracing::warn!(worker = self.core.config.name, %session, why, "a session is over");
            }
            self.core.peers.closed(session);
            // Nobody would hear of its attempts. Sealed blocks stay cached, so that a replay is cheap.
            let orphans = self.core.attempts.ids(|attempt| attempt.session == session);
            orphans.into_iter().for_each(|(request, epoch)| self.cancel(now, request, epoch));
        }
        while let Some((request, epoch)) = self.core.attempts.overdue(now) {
            self.core.fail(request, epoch, Failure::Deadline, "the client's deadline passed");
            self.role.cancelled(&mut self.core, now, request, epoch);
        }
        self.core.kv.tick(now);
        self.core.tick_loads(now);
        self.role.tick(&mut self.core, now);
    }

    /// Gives room to those that wait for some and need no step, in their turn.
    pub(crate) fn admit(&mut self, now: Time) {
        loop {
            let core = &mut self.core;
            let (scheduler, mut space) = core.schedules(now);
            match scheduler.admit(&mut space) {
                None => return,
                Some(Admitted::TakeOver { key, cached_tokens }) => self.role.room_given(core, now, key, cached_tokens),
                Some(Admitted::Impossible(key)) => self.impossible_here(now, key),
                // What is lifted for it ends before; all behind it wait so long.
                Some(Admitted::Load { job, before }) if !core.decide_load(now, job, before) => return,
                Some(Admitted::Load { .. }) => {}
            }
        }
    }

    /// A sequence that can never run here fails its attempt.
    fn impossible_here(&mut self, now: Time, key: SeqKey) {
        let detail = "the sequence does not fit the worker's KV pool";
        self.core.fail(key.request, key.epoch, Failure::TooLarge, detail);
        self.role.cancelled(&mut self.core, now, key.request, key.epoch);
    }

    /// Schedule, plan, submit.
    fn begin_step(&mut self, now: Time) {
        let (scheduler, mut space) = self.core.schedules(now);
        let schedule = scheduler.schedule(&mut space);
        let caught_up = space.caught_up;
        schedule.impossible.into_iter().for_each(|key| self.impossible_here(now, key));
        let core = &mut self.core;
        core.meters.preemptions.increment(schedule.preempted.len() as u64);
        for key in schedule.preempted {
            self.role.preempted(core, now, key);
        }
        for (key, cached_tokens) in schedule.admitted {
            core.meters.prefix_hit_tokens.increment(u64::from(cached_tokens));
            if let Some(sequence) = core.sequences.get_mut(&key) {
                sequence.cached_tokens = cached_tokens;
                sequence.sources.begin(now, cached_tokens, core.config.layout.block_tokens);
                self.role.admitted(core, now, key);
            }
            if key.choice != PROMPT {
                core.load_towards(now, key);
            }
        }
        for (key, from, to) in caught_up {
            core.meters.prefix_hit_tokens.increment(u64::from(to - from));
            if let Some(sequence) = core.sequences.get_mut(&key) {
                // What another prompt computed meanwhile was not cached when this one came.
                sequence.cached_tokens += to.min(sequence.loadable_tokens).saturating_sub(from);
                sequence.sources.take(from, to, core.config.layout.block_tokens);
            }
        }
        let copies = std::mem::take(&mut core.copies);
        self.submit(now, schedule.work, copies);
    }

    /// Goes on with what is left of a step that failed. When it is done, readers see how far the device is.
    fn go_on(&mut self, now: Time) {
        while self.running.is_none()
            && let Some(retry) = &mut self.retry
        {
            match retry.next() {
                Some(part) => {
                    let copies = std::mem::take(&mut self.core.copies);
                    self.submit(now, part, copies);
                }
                None => {
                    self.retry = None;
                    self.word.let_go();
                }
            }
        }
    }

    /// Submits what was scheduled, and the copies that it needs, as the next step. A sequence that the device
    /// refuses alone fails alone, and the others go without it.
    fn submit(&mut self, now: Time, mut work: Vec<Work>, mut copies: Vec<(SeqKey, BlockCopy)>) {
        // Each try is the same step: readers of what it writes are told its number before it runs.
        let step = StepId(self.step.0 + 1);
        loop {
            let core = &mut self.core;
            // An attempt that failed just now (its offer could not be made, say) is not computed, nor one that was
            // closed since the step failed of which this is a part.
            work.retain(|work| match core.sequences.get(&work.key).map(|sequence| sequence.closing) {
                Some(true) => {
                    core.in_step.remove(&work.key);
                    core.close(work.key);
                    false
                }
                is_there => is_there.is_some(),
            });
            // What such an attempt held is free, and may be another's while the step runs: nothing is copied into
            // it either.
            copies.retain(|(key, _)| core.sequences.contains_key(key));
            // Only a step that contains a sequence keeps its blocks until it has ended; so its copies go with it.
            let in_step = |key: &SeqKey| work.iter().any(|work| work.key == *key);
            let (due, later): (Vec<_>, Vec<_>) = copies.iter().copied().partition(|(key, _)| in_step(key));
            if work.is_empty() {
                core.copies = later;
                return;
            }
            self.step = step;
            self.role.planned(core, now, step, &work);
            let plan = plan(step, due.iter().map(|&(_, copy)| copy).collect(), &work, &core.sequences, &core.kv);
            for Work { key, start, count, samples, .. } in &work {
                let (worker, request, step) = (&core.config.name, key.request, step.0);
                tracing::trace!(target: "timeline", worker, %request, step, start, count, samples, "planned");
            }
            for work in &work {
                core.computes(work.key, work.start + work.count);
            }
            core.in_step.extend(work.iter().map(|work| work.key));
            let rows = plan.rows();
            match self.device.submit(Arc::new(plan)) {
                Ok(()) => {
                    core.meters.batch_rows.record(rows as f64);
                    core.copies = later;
                    self.running = Some(Running { work, copies: due });
                    self.disturbed = false;
                    failpoint::pass(Place::Step, "submitted");
                    return;
                }
                Err(SubmitError::Invalid { span: Some(span), reason, .. }) => {
                    core.meters.sequences_failed.increment(1);
                    let refused = work.remove(span);
                    self.fail(now, slice::from_ref(&refused), &reason);
                }
                Err(error) => {
                    core.copies = later;
                    return self.step_failed(now, Running { work, copies: due }, &error.to_string());
                }
            }
        }
    }

    /// A step ended: tokens go out, blocks are sealed, sequences end.
    fn apply(&mut self, now: Time, output: StepOutput) {
        let Some(running) = self.running.take() else { return };
        failpoint::pass(Place::Step, "ended");
        // A step that the process stood still in says nothing of its speed; placement would give it no work for
        // it, and it would never measure again.
        let core = &mut self.core;
        core.meters.step_time.record(output.elapsed.as_secs_f64());
        core.meters.step_overhead.record(output.elapsed.saturating_sub(output.in_kernels).as_secs_f64());
        // Nor does one that failed, or a part of one.
        if !self.disturbed && self.retry.is_none() && output.sampled.is_ok() {
            core.rates.step(&running.work, &output);
        }
        let sampled = match output.sampled {
            Ok(sampled) => sampled,
            Err(reason) => return self.step_failed(now, running, &reason),
        };
        let work = running.work;
        for work in &work {
            core.in_step.remove(&work.key);
        }
        let failed = |number: usize| output.failed.iter().find(|failed| failed.span == number);
        let computed = work.iter().enumerate().filter(|(number, _)| failed(*number).is_none());
        core.scheduler.computed(computed.map(|(_, work)| work));
        let mut sampled = sampled.into_iter();
        for (number, work) in work.iter().enumerate() {
            if let Some(failed) = failed(number) {
                // What it said before comes before its end.
                self.core.flush_rows();
                self.core.meters.sequences_failed.increment(1);
                self.fail(now, slice::from_ref(work), &failed.reason);
                continue;
            }
            let core = &mut self.core;
            let samples: Vec<Sampled> = sampled.by_ref().take(usize::from(work.samples)).collect();
            let Some(sequence) = core.sequences.get(&work.key) else { continue };
            if sequence.closing {
                core.close(work.key);
                continue;
            }
            core.kv.written(work.key, work.start + work.count, &sequence.chain);
            if work.samples > 0 {
                core.tell_sources(now, work.key);
            }
            if work.key.choice == PROMPT {
                core.meters.prefill_tokens.increment(u64::from(work.count));
                if work.samples > 0 {
                    let first = core.first_tokens(work.key, samples);
                    // First tokens are on their way to the router before anything else happens with the prompt.
                    core.flush_rows();
                    self.role.prompt_ended(core, now, work.key, first);
                }
            } else {
                for sampled in samples {
                    core.append(work.key, sampled);
                    self.role.appended(core, now, work.key);
                }
            }
        }
        self.core.flush_rows();
    }

    /// A step failed as a whole: nothing of it counts, and its sequences are computed again in parts. Readers that
    /// wait for its word see no later one before all that it was to write is written, or withdrawn.
    fn step_failed(&mut self, now: Time, Running { work, copies }: Running, reason: &str) {
        let core = &mut self.core;
        tracing::error!(worker = core.config.name, sequences = work.len(), reason, "a step failed");
        core.meters.steps_failed.increment(1);
        // Copies come before the first layer. One that was made is not made again: readers may be at its block already.
        if self.word.raised() < ProgressWord::mark(self.step, 0) {
            core.copies.extend(copies);
        }
        let word = &self.word;
        let retry = self.retry.get_or_insert_with(|| {
            if !planted_bugs::is(Bug::FailedStepPassesWord) {
                word.hold();
            }
            Retry::new(work.len())
        });
        let failed = retry.failed(work, self.device.lost().is_some());
        core.meters.sequences_failed.increment(failed.len() as u64);
        self.fail(now, &failed, reason);
    }

    /// Sequences failed in a step: what that was to write of them is void.
    fn fail(&mut self, now: Time, work: &[Work], reason: &str) {
        let core = &mut self.core;
        for work in work {
            core.in_step.remove(&work.key);
        }
        self.role.step_failed(core, now, work);
        for work in work {
            let key = work.key;
            if core.sequences.get(&key).is_some_and(|sequence| sequence.closing) {
                core.close(key);
            } else if core.attempt(key.request, key.epoch).is_some() {
                tracing::error!(worker = core.config.name, request = %key.request, reason, "a sequence failed");
                core.fail(key.request, key.epoch, Failure::Engine, reason);
                self.role.cancelled(core, now, key.request, key.epoch);
            }
        }
    }
}

//! Events: what sessions, peers, tiers and operators tell the machine. One handler per event.

use super::Machine;
use crate::config::SESSIONS_MAX;
use crate::inbox::Inbound;
use crate::outbox::{Outbox, SessionSend};
use crate::sessions::SessionId;
use domain::handoff::{Ask, PeerBody, PeerMessage};
use domain::session::{FromWorker, PeerInfo, ToWorker};
use domain::{SeqKey, Time, WorkerId};
use kv_manager::Heard;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use telemetry::failpoint::{self, FailPoint};
use transport::{AgentEvent, Completion, LaneStatus};

impl Machine {
    /// Handles one event. `Break`: the worker must end.
    pub fn handle_event(&mut self, now: Time, event: Inbound) -> ControlFlow<()> {
        self.wake(now);
        match event {
            Inbound::Opened { session, send, ended } => self.on_session_opened(now, session, send, ended),
            Inbound::Session { session, bytes } => self.on_session_bytes(now, session, &bytes),
            Inbound::Agent(AgentEvent::Message { from, bytes }) => self.on_peer_bytes(now, from, &bytes),
            Inbound::Agent(AgentEvent::Ended(completion)) => self.on_transfer_ended(now, &completion),
            Inbound::Agent(AgentEvent::Connected { peer, status }) => self.on_connected(now, peer, &status),
            Inbound::Agent(AgentEvent::Lost { peer, reason }) => self.on_lost(now, peer, &reason),
            Inbound::Tier(end) => self.core.loader().on_tier_event(now, end),
            Inbound::Operator { ask, reply } => reply(self.answer(now, ask)),
            Inbound::Compiled(compiled) => self.on_compiled(now, compiled),
            Inbound::Limits(limits) => self.core.change_limits(limits),
            Inbound::StepEnded => self.collect(now),
            Inbound::Drain => self.on_drain(),
            Inbound::Shutdown => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// Opens a session, unless the worker drains: its router would only learn that nothing new is taken.
    fn on_session_opened(&mut self, now: Time, session: SessionId, send: SessionSend, ended: Arc<AtomicBool>) {
        let core = &mut self.core;
        if core.draining {
            return;
        }
        if core.sessions.len() == SESSIONS_MAX {
            tracing::warn!(worker = core.config.name, "{SESSIONS_MAX} sessions are open; one more is refused");
            return;
        }
        let outbox = Outbox::new(now, send, core.config.outbox_bytes);
        core.sessions.open(now, session, outbox, ended);
    }

    fn on_session_bytes(&mut self, now: Time, session: SessionId, bytes: &[u8]) {
        // A message of a session that is closed is dropped: its router would never receive what follows from it.
        if !self.core.sessions.heard(now, session) {
            return;
        }
        match proto::session::decode_to_worker(bytes) {
            Ok(message) => self.on_session_message(now, session, message),
            Err(error) => tracing::error!(worker = self.core.config.name, %error, "a session message is broken"),
        }
    }

    fn on_session_message(&mut self, now: Time, session: SessionId, message: ToWorker) {
        failpoint::pass(FailPoint::SessionGot, message.name());
        match message {
            ToWorker::Submit(submit) => self.on_submit(now, session, submit),
            ToWorker::Cancel { request, epoch, choice: None } => self.on_cancel(now, request, epoch),
            ToWorker::Cancel { request, epoch, choice: Some(choice) } => {
                self.core.grammars.remove_choice(request, epoch, choice);
                if self.core.choice_ended(SeqKey { request, epoch, choice }) {
                    self.on_cancel(now, request, epoch);
                }
            }
            ToWorker::Snapshot => self.on_snapshot_wanted(session),
            ToWorker::Peer(peer) => self.on_peer_introduced(now, session, peer),
            ToWorker::PeerLeft { id, incarnation } => self.core.peers.left(session, id, incarnation),
            ToWorker::Migrate(migrate) => self.on_migrate(now, migrate),
            ToWorker::Heartbeat => self.on_heartbeat(session),
            ToWorker::OperatorAsk { number, ask } => self.on_operator_ask(now, session, number, &ask),
            // `serve` begins a session before the machine receives anything of it.
            ToWorker::Hello(_) | ToWorker::Proof(_) | ToWorker::Refused { .. } => {}
        }
    }

    fn on_snapshot_wanted(&mut self, session: SessionId) {
        if let Some(session) = self.core.sessions.get_mut(session) {
            session.wants_snapshot = true;
        }
    }

    /// Answers a heartbeat. The worker sends none by itself, so a router receives the heartbeats of its many workers
    /// together, when it checks them, and wakes once. A router whose outbox is full gets no answer: it shows that it
    /// is alive by taking what waits.
    fn on_heartbeat(&mut self, session: SessionId) {
        if !self.core.sessions.is_full(session) {
            self.core.tell(session, &FromWorker::Heartbeat);
        }
    }

    fn on_peer_introduced(&mut self, now: Time, session: SessionId, peer: PeerInfo) {
        let id = peer.id;
        if id != self.core.config.id && self.core.introduced(session, peer) {
            self.on_peer_restarted(now, id);
        }
    }

    /// A peer came back as a new incarnation: the offers and fetches of the old one are void.
    fn on_peer_restarted(&mut self, now: Time, peer: WorkerId) {
        self.core.meters.lanes.forget(peer);
        self.offers.reader_restarted(&mut self.core, peer);
        self.fetches.owner_restarted(&mut self.core, now, peer);
    }

    fn on_peer_bytes(&mut self, now: Time, from: WorkerId, bytes: &[u8]) {
        match proto::handoff::decode(bytes) {
            Ok(message) if message.from == from => self.on_peer_message(now, message),
            Ok(message) => tracing::error!(%from, claimed = %message.from, "a peer claims to be another"),
            Err(error) => {
                tracing::error!(worker = self.core.config.name, %from, %error, "a peer's message is broken");
            }
        }
    }

    fn on_peer_message(&mut self, now: Time, message: PeerMessage) {
        failpoint::pass(FailPoint::PeerGot, message.body.name());
        let from = message.from;
        match self.core.lives.hear(&message) {
            Heard::Stale => return self.refuse_stale(from, &message.body),
            Heard::Restarted => self.on_peer_restarted(now, from),
            _ => {}
        }
        if !self.offers.handle(&mut self.core, now, from, &message.body) {
            self.fetches.handle(&mut self.core, now, from, message.body);
        }
    }

    /// Answers a message from or to an earlier incarnation. A peer that waits for an answer of an earlier life of this
    /// worker learns that there is none.
    fn refuse_stale(&mut self, from: WorkerId, body: &PeerBody) {
        self.core.meters.stale_incarnation.increment(1);
        match *body {
            PeerBody::Release { lease } | PeerBody::Renew { lease, .. } => {
                self.core.send(from, PeerBody::Released { lease, valid: false });
            }
            PeerBody::Ask(Ask { request, epoch, .. }) => {
                self.core.send(from, PeerBody::Decline { request, epoch });
            }
            _ => {}
        }
    }

    fn on_transfer_ended(&mut self, now: Time, completion: &Completion) {
        failpoint::pass(FailPoint::Read, "ended");
        self.fetches.transfer_ended(&mut self.core, now, completion);
    }

    fn on_connected(&mut self, now: Time, peer: WorkerId, status: &LaneStatus) {
        let core = &mut self.core;
        core.peers.connected(now, peer);
        core.meters.lanes.taken(peer, status);
        let gigabytes = status.probe.bytes_per_s / 1e9;
        let passed_over = status.passed_over.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        tracing::info!(
            worker = core.config.name,
            peer = status.peer,
            lane = %status.lane,
            encoding = %status.encoding,
            staging = %status.staging,
            passed_over,
            "connected; the lane reads {gigabytes:.1} GB/s"
        );
        self.fetches.connected(core, now, peer);
    }

    /// A peer could not be connected, or its connection broke.
    fn on_lost(&mut self, now: Time, peer: WorkerId, reason: &str) {
        let core = &mut self.core;
        core.peers.lost(peer);
        core.meters.lanes.forget(peer);
        if core.draining {
            tracing::info!(worker = core.config.name, %peer, reason, "a peer is not reached");
        } else {
            tracing::warn!(worker = core.config.name, %peer, reason, "a peer is not reached");
        }
        self.offers.reader_lost(core, peer);
        self.fetches.owner_lost(core, now, peer);
    }

    /// Takes nothing new from now on, and tells routers so.
    fn on_drain(&mut self) {
        if !std::mem::replace(&mut self.core.draining, true) {
            tracing::info!(worker = self.core.config.name, "draining: nothing new is taken");
            for (_, session) in self.core.sessions.iter_mut() {
                session.tell(&FromWorker::Draining);
            }
        }
    }
}

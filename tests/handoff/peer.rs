//! A peer that says what the test wants, true or not: an agent without a worker behind it.

use domain::handoff::{Offer, OfferedGroup, PeerBody, PeerMessage};
use domain::{BlockId, Generation, Incarnation, KvLayout, LeaseId, ProgressWord, WorkerId};
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tests::cluster::Asked;
use transport::{Agent, AgentConfig, AgentEvent, Hub, Memory, Place};

const PATIENCE: Duration = Duration::from_secs(20);
/// Blocks that it lends for reading; every key and value in them is the same.
const BLOCKS: usize = 64;

struct Lent(UnsafeCell<Vec<u64>>);

// SAFETY: nobody writes it.
unsafe impl Sync for Lent {}

// SAFETY: the vector is never resized, nobody writes it, and no reference to its bytes outlives a call.
unsafe impl Memory for Lent {
    fn place(&self) -> Place<'_> {
        // SAFETY: the vector is never resized.
        Place::Host(unsafe { (*self.0.get()).as_mut_ptr().cast() })
    }
    fn len(&self) -> usize {
        // SAFETY: as above.
        unsafe { (*self.0.get()).len() * 8 }
    }
}

pub(crate) struct Peer {
    agent: Agent,
    id: WorkerId,
    /// The life that it claims to be.
    pub(crate) life: Incarnation,
    heard: Receiver<(WorkerId, Vec<u8>)>,
}

impl Peer {
    /// A life of a peer.
    pub(crate) fn enter(hub: &Hub, layout: &KvLayout, id: WorkerId, life: u64) -> Self {
        let (sender, heard) = channel();
        let sink = move |event| match event {
            AgentEvent::Message { from, bytes } => sender.send((from, bytes)).is_ok(),
            AgentEvent::Ended(_) | AgentEvent::Connected { .. } | AgentEvent::Lost { .. } => true,
        };
        let mut config = AgentConfig::in_process(id, Incarnation(life), format!("peer {id}"), 1);
        config.fingerprint = layout.records_fingerprint();
        let agent = Agent::start(hub, config, ProgressWord::new(), Box::new(sink)).expect("the agent starts");
        for group in 0..layout.groups.len() {
            // A value is the complement of its key, or the device takes the two for torn.
            let is_key = |n: usize| (n / layout.block_tokens as usize).is_multiple_of(2);
            let word = |n: usize| if is_key(n) { 0 } else { u64::MAX };
            let words = (0..layout.record_bytes(group) / 8 * BLOCKS).map(word).collect();
            agent.register(Arc::new(Lent(UnsafeCell::new(words))));
        }
        Self { agent, id, life: Incarnation(life), heard }
    }

    /// Says something to life `to_life` of `to`.
    pub(crate) fn say(&mut self, to: WorkerId, to_life: Option<u64>, body: PeerBody) {
        let to_incarnation = to_life.map(Incarnation);
        let message = PeerMessage { from: self.id, from_incarnation: self.life, to_incarnation, body };
        self.agent.connect(to);
        self.agent.send(to, proto::handoff::encode(&message)).expect("the worker takes messages");
    }

    /// The next thing it is told that is no renewal and no inquiry; panics if there is none for long.
    pub(crate) fn hear(&self) -> PeerBody {
        loop {
            let (_, bytes) = self.heard.recv_timeout(PATIENCE).expect("the worker says something");
            match proto::handoff::decode(&bytes).expect("a worker speaks the protocol").body {
                PeerBody::Renew { .. } | PeerBody::Expect { .. } => {}
                body => return body,
            }
        }
    }

    /// Whether it is told nothing but renewals for so long.
    pub(crate) fn hears_nothing(&self, time: Duration) -> bool {
        std::thread::sleep(time);
        let is_renewal = |bytes: &[u8]| {
            proto::handoff::decode(bytes).is_ok_and(|message| matches!(message.body, PeerBody::Renew { .. }))
        };
        self.heard.try_iter().all(|(_, bytes)| is_renewal(&bytes))
    }

    /// An offer of a request's prompt, all of it ready.
    pub(crate) fn offer(layout: &KvLayout, request: &Asked, lease: u64) -> Offer {
        let tokens = request.prompt.len() as u32;
        let blocks: Vec<_> = (0..tokens.div_ceil(layout.block_tokens)).map(|n| (BlockId(n), Generation(1))).collect();
        Offer {
            request: request.key(0).request,
            epoch: request.epoch,
            lease: LeaseId(lease),
            duration: Duration::from_secs(5),
            layout: layout.fingerprint(),
            tokens,
            ready: tokens,
            groups: vec![OfferedGroup { first: 0, blocks }; layout.groups.len()],
        }
    }
}

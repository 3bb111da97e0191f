//! A lane that has become slow, or for which a faster one may have come: its peer's lanes are compared anew, and
//! the best one is taken from then on.

use super::connect_error::DialError;
use super::dial::{self, Dialled};
use super::{ControlLoop, Direction};
use crate::agent::counts::Counts;
use crate::agent::event::AgentEvent;
use crate::agent::link::Link;
use crate::agent::shared::AgentShared;
use crate::clock::now;
use crate::lanes::Lane;
use crate::speed::link_speed::Slow;
use crate::speed::ranking;
use std::sync::Arc;
use threads::Doing;

impl ControlLoop<'_> {
    /// A lane has become slow: people are told, and it is compared with the others anew.
    pub(super) fn survey(&mut self, link: Arc<Link>, slow: Slow) {
        Counts::add(&self.agent.counts.slow);
        tracing::warn!(
            worker = self.agent.config.name,
            peer = link.name,
            lane = %link.lane(),
            "a lane has become slow: it reads {:.2} GB/s, where it read {:.2} before",
            slow.bytes_per_s / 1e9,
            slow.expected / 1e9
        );
        self.compare(&link, None);
    }

    /// Compares the lanes to a peer, or only those that are faster than the one that is `taken`.
    fn compare(&mut self, link: &Arc<Link>, taken: Option<Lane>) {
        // In one process there is no other.
        let Some(peer) = self.agent.peers.behind(link).filter(|_| link.lane() != Lane::Local) else { return };
        if self.dials.is_full() {
            // Others come first.
            return self.look_later(link);
        }
        self.dials.begin(false);
        let (agent, own) = (self.agent.clone(), link.clone());
        let survey = move || {
            threads::does(Doing::Dials);
            let result = dial::dial(&agent, &peer, taken).and_then(|dialled| {
                // One that is faster by nature may have been passed over since it was slower, and be so still.
                if taken.is_none() || ranking::best(&[dialled.status.probe, own.speed().lately()]) == 0 {
                    return Ok(dialled);
                }
                agent.discard(&dialled.link);
                Err(DialError::Slower(dialled.status.lane))
            });
            agent.control.surveyed(own, result);
            Ok(())
        };
        if let Err(error) = self.agent.spawn("dial", survey) {
            self.agent.control.surveyed(link.clone(), Err(DialError::Thread(error)));
        }
    }

    /// Has the lanes to a peer compared again in a while, where that may change something: if the one that is
    /// taken is slow, or a faster one may come.
    pub(super) fn look_later(&mut self, link: &Arc<Link>) {
        let faster = Lane::all().filter(|&lane| lane < link.lane()).any(|lane| may_come(self.agent, lane));
        let is_noted = self.looks.iter().any(|(_, noted)| noted.as_ptr() == Arc::as_ptr(link));
        if (faster || link.speed().is_slow()) && !is_noted {
            self.looks.push_back((now() + self.agent.config.survey_every, Arc::downgrade(link)));
        }
    }

    /// Compares the lanes whose time has come.
    pub(super) fn look_again(&mut self) {
        while let Some((_, link)) = self.looks.pop_front_if(|(at, _)| *at <= now()) {
            if let Some(link) = link.upgrade() {
                let taken = (!link.speed().is_slow()).then_some(link.lane());
                self.compare(&link, taken);
            }
        }
    }

    /// The lanes were compared. Transfers under way go on over the link that they began with; messages on their
    /// way over it may arrive after later ones.
    pub(super) fn surveyed(&mut self, link: &Arc<Link>, result: Result<Dialled, DialError>) {
        let Dialled { link: new, status, channel } = match result {
            Ok(dialled) if dialled.link.lane() != link.lane() => dialled,
            // It is still the best.
            result => {
                if let Ok(same) = result {
                    self.agent.discard(&same.link);
                }
                return self.look_later(link);
            }
        };
        let Ok(before) = self.agent.peers.switch(link, &new, status.clone()) else {
            self.agent.discard(&new);
            return self.look_later(link);
        };
        if let Some(before) = before {
            self.agent.lose(&before, "a better lane was taken twice since");
        }
        if let Err(error) = self.watch(channel, Direction::Outgoing(new.clone())) {
            return self.agent.lose(&new, &format!("its connection cannot be watched: {error}"));
        }
        let number = self.next - 1;
        self.links.insert(new.peer, number);
        tracing::info!(worker = self.agent.config.name, peer = new.name, from = %link.lane(), to = %new.lane(), "another lane is taken");
        self.agent.tell(AgentEvent::Connected { peer: new.peer, status });
        self.look_later(&new);
        self.heed(number);
    }
}

/// Returns whether a peer that was not reached over a lane may be, later: nothing of this agent forbids it.
fn may_come(agent: &AgentShared, lane: Lane) -> bool {
    agent.config.lanes.contains(&lane)
        && match lane {
            // Whether a peer is in this process does not change.
            Lane::Local => false,
            Lane::Nvlink => agent.reader_device().is_ok(),
            Lane::Rdma => agent.verbs.as_ref().is_ok_and(|verbs| verbs.failed().is_none()),
            Lane::Shm | Lane::Tcp => true,
        }
}

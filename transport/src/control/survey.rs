//! A lane that has become slow: its peer's lanes are compared anew, and the best one is taken from then on.

use super::dial::{self, Dialled};
use super::{DIALS_MAX, Loop, Role};
use crate::counts::Counts;
use crate::event::AgentEvent;
use crate::lane::Lane;
use crate::link::Link;
use crate::ranking::Slow;
use std::sync::Arc;

impl Loop<'_> {
    /// A lane has become slow: people are told, and it is compared with the others anew.
    pub(super) fn survey(&mut self, link: Arc<Link>, slow: Slow) {
        Counts::add(&self.station.counts.slow);
        tracing::warn!(
            worker = self.station.config.name,
            peer = link.name,
            lane = %link.lane(),
            "a lane has become slow: it reads {:.2} GB/s, where it read {:.2} before",
            slow.bytes_per_s / 1e9,
            slow.expected / 1e9
        );
        // In one process there is no other.
        let Some(peer) = self.station.peers.behind(&link).filter(|_| link.lane() != Lane::Local) else { return };
        if self.dials == DIALS_MAX {
            // Others come first; it is still slow after as many reads again.
            return link.pace().judge_anew();
        }
        self.dials += 1;
        let (station, own) = (self.station.clone(), link.clone());
        let name = format!("{}-dial", station.config.name);
        let survey = move || {
            let result = dial::dial(&station, &peer);
            station.control.surveyed(own, result);
        };
        if let Err(error) = std::thread::Builder::new().name(name).spawn(survey) {
            self.station.control.surveyed(link, Err(format!("no thread to compare lanes: {error}")));
        }
    }

    /// The lanes were compared. Transfers under way go on over the link that they began with; messages on their way over it may
    /// arrive after later ones.
    pub(super) fn surveyed(&mut self, link: &Arc<Link>, result: Result<Dialled, String>) {
        link.pace().judge_anew();
        let Ok(Dialled { link: new, status, channel }) = result else { return };
        if new.lane() == link.lane() {
            return dial::let_go(self.station, &new);
        }
        let Ok(before) = self.station.peers.switch(link, &new, status.clone()) else {
            return dial::let_go(self.station, &new);
        };
        if let Some(before) = before {
            self.station.lose(&before, "a better lane was taken twice since");
        }
        if let Err(error) = self.watch(channel, Role::Dialled(new.clone())) {
            return self.station.lose(&new, &format!("its connection cannot be watched: {error}"));
        }
        let number = self.next - 1;
        self.links.insert(new.peer, number);
        tracing::info!(worker = self.station.config.name, peer = new.name, from = %link.lane(), to = %new.lane(), "another lane is taken");
        self.station.tell(AgentEvent::Connected { peer: new.peer, status });
        self.heed(number);
    }
}

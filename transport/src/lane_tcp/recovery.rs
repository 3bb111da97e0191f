//! Rails of `tcp` that fail or slow: their connections are closed, what they were asked for is asked of others, and they are
//! made anew. When is decided by [`crate::rails`].

use super::engine::Engine;
use super::plan::Begun;
use super::way::Joined;
use crate::control;
use crate::desk::now;
use crate::lane::Lane;
use crate::link::{Link, Way};
use crate::rails::RailFault;
use std::sync::Arc;
use std::time::Instant;

impl Engine<'_> {
    /// Judges rails, has those tried whose time it is, and gives up links that have none.
    pub(super) fn attend_rails(&mut self) {
        let now = now();
        if self.rails_deadline().is_none_or(|at| at > now) {
            return;
        }
        for link in self.state.links.values().map(|reach| reach.link.clone()).collect::<Vec<_>>() {
            let (Way::Tcp(way), key) = (&link.way, Arc::as_ptr(&link) as usize) else { continue };
            loop {
                let Some((rail, fault)) = way.rails().judge(now) else { break };
                let speed = way.rails().bytes_per_s(rail) / 1e9;
                self.put_aside(key, rail, fault, &format!("it reads {speed:.3} GB/s"));
            }
            loop {
                let Some(rail) = way.rails().next_trial(now, |_| true) else { break };
                control::join(self.station, &link, rail);
            }
            if way.rails().is_lost(now) {
                self.station.lose(&link, "none of its connections can be made anew");
            }
        }
    }

    /// When to look after rails next.
    pub(super) fn rails_deadline(&self) -> Option<Instant> {
        if !self.state.attends {
            return None;
        }
        let deadline = |link: &Link| match &link.way {
            Way::Tcp(way) => way.rails().deadline(),
            Way::Local(_) | Way::Shm { .. } | Way::Rdma(_) => None,
        };
        self.state.links.values().filter_map(|reach| deadline(&reach.link)).min()
    }

    /// A rail is not used any more: nothing of it lands from now on, and what it had not brought is asked of others.
    pub(super) fn put_aside(&mut self, key: usize, rail: usize, fault: RailFault, reason: &str) {
        let Some(reach) = self.state.links.get_mut(&key) else { return };
        let (link, connection) = (reach.link.clone(), reach.connections[rail].take());
        let Way::Tcp(way) = &link.way else { return };
        connection.into_iter().for_each(|connection| self.end_reader(connection));
        way.rails().put_aside(rail, now());
        self.station.rail_put_aside(&link, way.address(rail), fault, reason);
        self.count_rails();
        self.ask_all(&link);
    }

    /// How trying a rail went.
    pub(super) fn rejoin(&mut self, link: &Arc<Link>, rail: usize, joined: Joined) {
        let (Way::Tcp(way), key) = (&link.way, Arc::as_ptr(link) as usize) else { return };
        if link.is_gone() || !self.state.links.contains_key(&key) {
            return;
        }
        let outcome = joined.as_ref().ok().map(|&(_, speed)| speed);
        let mut rails = way.rails();
        let returns = rails.tried(rail, outcome, now());
        if let (true, Ok((socket, _))) = (returns, joined) {
            // Whoever posts picks from the rails first.
            way.connect(rail, socket);
        }
        drop(rails);
        if !returns {
            return;
        }
        let connection = self.listen(link, rail);
        if let Some(reach) = self.state.links.get_mut(&key) {
            reach.connections[rail] = connection;
        }
        self.station.rail_returned(link, way.address(rail));
        self.count_rails();
        self.ask_all(link);
    }

    /// Asks for whatever waits for a rail, or was asked of one that is not there any more.
    fn ask_all(&mut self, link: &Arc<Link>) {
        let own = self.state.actives.iter().filter(|(_, active)| Arc::ptr_eq(&active.open.link, link));
        let own: Vec<u64> = own.map(|(&number, _)| number).collect();
        own.into_iter().for_each(|number| self.ask(number, Begun::All));
    }

    /// Notes how many rails there are.
    pub(super) fn count_rails(&mut self) {
        let rails = self.state.links.values().filter_map(|reach| match &reach.link.way {
            Way::Tcp(way) => Some((way.rails().up(), way.askers().len())),
            Way::Local(_) | Way::Shm { .. } | Way::Rdma(_) => None,
        });
        let (up, all) = rails.fold((0, 0), |(up, all), (more_up, more)| (up + more_up, all + more));
        self.state.attends = up < all || all > self.state.links.len();
        self.station.counts.rails(Lane::Tcp, up, all - up);
    }
}

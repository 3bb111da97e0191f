//! What is done where rails of `tcp` fail or slow down: their connections are closed, what they were asked for is asked
//! of others, and they are made anew. [`crate::lanes::rails`] decides when, for `rdma` as well. What is done is not
//! shared: a connection is closed at once and made on a thread of its own, a queue pair ends and is made in stages.

use super::engine::Engine;
use super::plan::Begun;
use super::way::JoinedRail;
use crate::agent::link::{Link, Way};
use crate::clock::now;
use crate::lanes::Lane;
use crate::lanes::rails::{RailFault, RailStep};
use crate::net::control;
use std::sync::Arc;
use std::time::Instant;

impl Engine<'_> {
    /// Puts rails aside, has those tried whose pause is over, and gives up links that have none.
    pub(super) fn attend_rails(&mut self) {
        let now = now();
        if self.rails_deadline().is_none_or(|at| at > now) {
            return;
        }
        for link in self.state.links.values().map(|open| open.link.clone()).collect::<Vec<_>>() {
            let (Way::Tcp(way), key) = (&link.way, Arc::as_ptr(&link) as usize) else { continue };
            loop {
                // The lock is not held while a step is done.
                let step = way.rails().next_step(now, |_| true);
                match step {
                    Some(RailStep::PutAside { rail, fault, reason }) => self.put_aside(key, rail, fault, &reason),
                    Some(RailStep::Try(rail)) => control::join(self.agent, &link, rail),
                    Some(RailStep::GiveUp) => {
                        self.agent.lose(&link, "none of its connections can be made anew");
                        break;
                    }
                    None => break,
                }
            }
        }
    }

    /// Returns when to look after rails next.
    pub(super) fn rails_deadline(&self) -> Option<Instant> {
        if !self.state.attends {
            return None;
        }
        let deadline = |link: &Link| match &link.way {
            Way::Tcp(way) => way.rails().deadline(|_| true),
            Way::Local(_) | Way::Nvlink(_) | Way::Shm { .. } | Way::Rdma(_) => None,
        };
        self.state.links.values().filter_map(|open| deadline(&open.link)).min()
    }

    /// Stops using a rail: nothing of it lands from now on, and what it had not delivered is asked of others.
    pub(super) fn put_aside(&mut self, key: usize, rail: usize, fault: RailFault, reason: &str) {
        let Some(open) = self.state.links.get_mut(&key) else { return };
        let (link, connection) = (open.link.clone(), open.connections[rail].take());
        let Way::Tcp(way) = &link.way else { return };
        match connection {
            Some(connection) => self.end_reader(connection),
            // It is not listened to; a thread that posts must not ask there.
            None => way.askers()[rail].disconnect(),
        }
        way.rails().put_aside(rail, now());
        self.agent.rail_put_aside(&link, way.address(rail), fault, reason);
        self.count_rails();
        self.ask_all(&link);
    }

    /// Uses a rail again that was tried, if it did well. `joined`: its new connection, if it could be made.
    pub(super) fn rejoin(&mut self, link: &Arc<Link>, rail: usize, joined: Option<JoinedRail>) {
        let (Way::Tcp(way), key) = (&link.way, Arc::as_ptr(link) as usize) else { return };
        if link.is_gone() || !self.state.links.contains_key(&key) {
            return;
        }
        let mut rails = way.rails();
        let returns = rails.tried(rail, JoinedRail::trial(joined.as_ref()), now());
        if let (true, Some(joined)) = (returns, joined) {
            // A thread that posts picks from the rails first.
            way.connect(rail, joined.socket);
        }
        drop(rails);
        if !returns {
            return;
        }
        if !self.listen(link, rail) {
            return;
        }
        self.agent.rail_returned(link, way.address(rail));
        self.count_rails();
        self.ask_all(link);
    }

    /// Asks for all that waits for a rail, or was asked of one that is not there any more.
    fn ask_all(&mut self, link: &Arc<Link>) {
        let own = self.state.actives.iter().filter(|(_, active)| Arc::ptr_eq(&active.open.link, link));
        let own: Vec<u64> = own.map(|(&number, _)| number).collect();
        own.into_iter().for_each(|number| self.ask(number, Begun::All));
    }

    /// Notes how many rails there are.
    pub(super) fn count_rails(&mut self) {
        let rails = self.state.links.values().filter_map(|open| match &open.link.way {
            Way::Tcp(way) => Some((way.rails().up(), way.askers().len())),
            Way::Local(_) | Way::Nvlink(_) | Way::Shm { .. } | Way::Rdma(_) => None,
        });
        let (up, all) = rails.fold((0, 0), |(up, all), (more_up, more)| (up + more_up, all + more));
        self.state.attends = up < all || all > self.state.links.len();
        self.agent.counts.rails(Lane::Tcp, up, all - up);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Order, Streams, TcpWay};
    use super::*;
    use crate::agent::config::{AgentConfig, TcpConfig};
    use crate::agent::known_peer::KnownPeer;
    use crate::agent::shared::AgentShared;
    use crate::net::socket::Socket;
    use crate::regions::RegionId;
    use crate::speed::probe::Scratch;
    use crate::transfer::prepared::Prepared;
    use crate::transfer::{Copies, Copy, ReadBatch, Work};
    use domain::session::PeerAddress;
    use domain::{Incarnation, WorkerId};
    use kv_memory::Memory;
    use rustix::fs::MemfdFlags;
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Weak;

    fn agent() -> Arc<AgentShared> {
        let config = AgentConfig::in_process(WorkerId(1), Incarnation(1), "reader".to_owned(), 1);
        let streams = Streams::new(1).expect("there are descriptors");
        Arc::new(AgentShared::without_threads(config, Some(streams), Box::new(|_| true)))
    }

    fn joined(socket: OwnedFd) -> JoinedRail {
        JoinedRail { socket: Socket::plain(socket), bytes_per_s: None }
    }

    /// A thread that posts may pick a rail whose connection has just ended, before it is put aside.
    #[test]
    fn what_was_to_be_asked_of_a_rail_that_went_is_asked_of_another() {
        let agent = agent();
        let ((own, _peer), (other, mut hears)) =
            (UnixStream::pair().expect("there are descriptors"), UnixStream::pair().expect("there are descriptors"));
        let rails = [own, other].map(|socket| ("rail".to_owned(), Some(joined(socket.into()))));
        let (id, name, incarnation) = (WorkerId(0), "owner".to_owned(), Incarnation(1));
        let known = KnownPeer { id, incarnation, name, address: PeerAddress::default() };
        let regions = BTreeMap::from([(RegionId(0), 64)]);
        let way = Way::Tcp(TcpWay::new(regions, rails.into_iter().collect()));
        let link = Arc::new(Link::new(&known, way, &agent.fair_shares));
        let Way::Tcp(way) = &link.way else { panic!("it is of tcp") };
        let memory: Arc<dyn Memory> = Arc::new(Scratch::new(64));
        let copies = Copies::List(vec![Copy { from: 0, to: 0 }]);
        let batch = ReadBatch { source: RegionId(0), destination: RegionId(0), len: 64, gate: 0, copies };
        let tcp = TcpConfig::default();
        let prepared =
            Prepared::check(Weak::new(), link.clone(), vec![batch], &tcp, &Arc::default(), |_| Some(memory.clone()));
        let transfer = prepared.expect("the read is sound").take().expect("it is not under way");
        let Work::Stream(mut plan) = transfer.work else { panic!("it is of tcp") };

        way.askers()[0].disconnect();
        way.ask(&mut plan);
        assert_eq!(plan.requests[0].rail, Some(0), "the first of two that are alike is picked");
        way.rails().put_aside(0, now());
        assert!(way.is_unasked(&mut plan));
        way.ask(&mut plan);
        assert_eq!(plan.requests[0].rail, Some(1));
        let mut head = [0; 4];
        hears.read_exact(&mut head).expect("the other rail is asked");
    }

    #[test]
    fn a_rail_that_cannot_be_listened_to_is_put_aside() {
        let agent = agent();
        let streams = agent.streams.as_ref().expect("it has the lane");
        let (well, _peer) = UnixStream::pair().expect("there are descriptors");
        // The system watches no file.
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        let rails = [("well", well.into()), ("ill", file)];
        let rails = rails.map(|(name, socket)| (name.to_owned(), Some(joined(socket))));
        let (id, name, incarnation) = (WorkerId(0), "owner".to_owned(), Incarnation(1));
        let known = KnownPeer { id, incarnation, name, address: PeerAddress::default() };
        let way = Way::Tcp(TcpWay::new(BTreeMap::new(), rails.into_iter().collect()));
        let link = Arc::new(Link::new(&known, way, &agent.fair_shares));
        let Way::Tcp(way) = &link.way else { panic!("it is of tcp") };
        assert_eq!(way.rails().up(), 2);
        streams.lane_queue().ask(Order::Adopt(link.clone()));
        Engine::enter(&agent, streams).round();
        let counts = agent.counts.now();
        let rails = counts.rails.iter().find(|(lane, _)| *lane == Lane::Tcp).map(|(_, rails)| (rails.up, rails.aside));
        assert_eq!((way.rails().up(), rails), (1, Some((1, 1))));
        assert!(way.askers()[0].socket().is_some() && way.askers()[1].socket().is_none());

        // The same when it was made anew and tried.
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        let tried = Order::Rejoin(link.clone(), 1, Some(joined(file)));
        streams.lane_queue().ask(tried);
        Engine::enter(&agent, streams).round();
        assert_eq!((way.rails().up(), agent.counts.now().rails_returned), (1, 0));
        assert!(way.askers()[1].socket().is_none());
    }
}

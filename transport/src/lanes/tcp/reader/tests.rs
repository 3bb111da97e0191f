//! What an owner may not answer.

use super::super::engine::Engine;
use super::super::{JoinedRail, Order, Streams, TcpWay};
use super::*;
use crate::agent::config::{AgentConfig, TcpConfig};
use crate::agent::known_peer::KnownPeer;
use crate::agent::shared::AgentShared;
use crate::regions::RegionId;
use crate::transfer::prepared::Prepared;
use crate::transfer::{Copies, Copy, ReadBatch};
use domain::session::PeerAddress;
use domain::{Incarnation, WorkerId};
use kv_memory::Memory;
use kv_memory::SealedMemory;
use rustix::event::epoll::EventFlags;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::net::UnixStream;

const LEN: usize = 4096;

#[test]
fn what_was_not_sent_yet_cannot_be_answered() {
    let config = AgentConfig::in_process(WorkerId(1), Incarnation(1), "reader".to_owned(), 1);
    let streams = Streams::new(1).expect("there are descriptors");
    let agent = Arc::new(AgentShared::without_threads(config, Some(streams), Box::new(|_| true)));
    let streams = agent.streams.as_ref().expect("they were made");
    let (mut own, mut peer) = UnixStream::pair().expect("there are descriptors");
    own.set_nonblocking(true).expect("it is a socket");
    // It has no room for a request.
    while own.write(&[0; LEN]).is_ok() {}
    let rails = vec![("a rail".to_owned(), Some(JoinedRail { socket: Socket::plain(own.into()), bytes_per_s: None }))];
    let way = Way::Tcp(TcpWay::new(BTreeMap::from([(RegionId(0), LEN as u64)]), rails));
    let (name, address) = ("owner".to_owned(), PeerAddress::default());
    let owner = KnownPeer { id: WorkerId(0), incarnation: Incarnation(1), name, address };
    let link = Arc::new(Link::new(&owner, way, &agent.fair_shares));
    streams.lane_queue().ask(Order::Adopt(link.clone()));
    let (region, copies) = (RegionId(0), Copies::List(vec![Copy { from: 0, to: 0 }]));
    let batch = ReadBatch { source: region, destination: region, len: LEN, gate: 0, copies };
    let memory: Arc<dyn Memory> = Arc::new(SealedMemory::new("test", LEN).expect("memory"));
    let tcp = TcpConfig { checksums: false, ..TcpConfig::default() };
    let own = |_| Some(memory.clone());
    let prepared = Prepared::check(Arc::downgrade(&agent), link.clone(), vec![batch], &tcp, &Arc::default(), own)
        .expect("it fits");
    agent.post(&prepared).expect("there is room");

    let mut engine = Engine::enter(&agent, streams);
    engine.round();
    let transfer = *engine.state.actives.keys().next().expect("it is under way");
    let reach = &engine.state.links[&(Arc::as_ptr(&link) as usize)];
    let connection = reach.connections[0].expect("it is connected");
    let head = RunHead { transfer, first: 0, count: 1, len: LEN as u32, sum: 0 };
    peer.write_all(&[Answer::Run(head).encode().as_slice(), &[1; LEN]].concat()).expect("it is open");
    engine.ready(connection, EventFlags::IN);
    assert!(engine.state.actives.contains_key(&transfer), "it ended by a lie");
    drop(engine);
    let refused = agent.counts.now().refused;
    assert!(refused.contains(&(Refusal::Answer, 1)), "{refused:?}");
}

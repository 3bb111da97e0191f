//! How peers are connected: which lane is taken and why, who is let in, and what is lost and found again.

use crate::certificates;
use crate::ends::*;
use crate::rails::Cable;
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, ProgressWord, Secret, Secrets};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;
use transport::{
    Agent, AgentConfig, AgentEvent, Hub, Lane, LaneStatus, ListenConfig, Refusal, TransferError, TransferState,
};

fn status(reader: &End) -> LaneStatus {
    reader.agent.lanes().remove(0).1
}

fn two(reader: impl FnOnce(&mut AgentConfig), owner: impl FnOnce(&mut AgentConfig)) -> Pair {
    let pair = Pair { owner: end(&Hub::new(), OWNER, 1, 64, owner), reader: end(&Hub::new(), READER, 1, 64, reader) };
    pair.introduce();
    pair
}

/// Who sleeps until a gate opens hears that it never will, though the link was given up for the sake of another
/// connection.
#[test]
fn who_waits_at_a_gate_of_one_that_leaves_hears_of_it() {
    for _ in 0..20 {
        let Pair { owner, reader } = pair(Lane::Local, 64);
        let id = reader.post(OWNER, vec![batch(64, u64::MAX, &[(0, 0)])]);
        std::thread::sleep(MOMENT);
        let (go, agent) = (std::sync::Barrier::new(2), &reader.agent);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                go.wait();
                for _ in 0..1000 {
                    let _ = agent.send(OWNER, vec![1]);
                }
            });
            go.wait();
            drop(owner);
        });
        let end = loop {
            match reader.event() {
                AgentEvent::Ended(end) => break end,
                // It may be found once more while it leaves.
                AgentEvent::Connected { .. } | AgentEvent::Lost { .. } => {}
                other => panic!("unexpected {other:?}"),
            }
        };
        assert_eq!((end.id, end.result), (id, Err(TransferError::PeerGone)));
    }
}

#[test]
fn the_fastest_lane_is_taken_and_the_others_have_reasons() {
    let reason = |status: &LaneStatus, lane| {
        status.passed_over.iter().find(|passed| passed.lane == lane).map(|passed| passed.reason.clone())
    };
    let pair = two(|_| (), |_| ());
    assert_eq!(pair.reader.connect(OWNER), Lane::Shm);
    let shm = status(&pair.reader);
    assert_eq!(shm.peer, "worker w0");
    assert!(shm.probe.bytes_per_s > 0.0 && shm.probe.latency_s > 0.0);
    assert_eq!(reason(&shm, Lane::Local).as_deref(), Some("other process"));
    assert_eq!(reason(&shm, Lane::Nvlink).as_deref(), Some("this worker's pool is in host memory"));
    assert_eq!(shm.passed_over.len(), 2, "slower lanes need no reason");

    let pair = two(|config| config.lanes.retain(|&lane| lane != Lane::Shm), |_| ());
    assert_eq!(pair.reader.connect(OWNER), Lane::Tcp);
    let tcp = status(&pair.reader);
    assert!(tcp.probe.bytes_per_s > 0.0 && tcp.probe.latency_s > 0.0);
    assert_eq!(reason(&tcp, Lane::Shm).as_deref(), Some("forbidden by transport.lanes"));
    // On a machine with a device it works; the tests run on those that have none.
    let rdma = reason(&tcp, Lane::Rdma).unwrap();
    assert!(rdma.starts_with("no device") || rdma.starts_with("libibverbs cannot be loaded"), "{rdma}");

    let pair = two(|_| (), |config| config.lanes.retain(|&lane| lane != Lane::Shm));
    assert_eq!(pair.reader.connect(OWNER), Lane::Tcp);
    let forbidden = Some("the peer: transport.lanes forbids shm there");
    assert_eq!(reason(&status(&pair.reader), Lane::Shm).as_deref(), forbidden);
    assert!(pair.owner.agent.counts().refused.iter().all(|&(_, count)| count == 0), "that is no fault of the reader's");

    let pair = two(|_| (), |config| config.lanes = vec![Lane::Tcp]);
    assert_eq!(pair.reader.connect(OWNER), Lane::Tcp);
    assert_eq!(reason(&status(&pair.reader), Lane::Shm).as_deref(), Some("the peer offers no Unix socket"));

    // Of another host, whose abstract sockets are not this one's.
    let pair = two(|_| (), |_| ());
    let mut info = pair.owner.info.clone();
    info.address.unix = "baton-of-another-host".to_owned();
    let reader = end(&Hub::new(), READER, 1, 64, |_| ());
    reader.agent.introduce(info);
    assert_eq!(reader.connect(OWNER), Lane::Tcp);
    let reason = reason(&status(&reader), Lane::Shm).unwrap();
    assert!(reason.starts_with("no common Unix socket"), "{reason}");
}

#[test]
fn who_is_not_needed_is_left_without_a_word_and_found_again() {
    for lanes in [vec![Lane::Local, Lane::Shm], vec![Lane::Tcp]] {
        let pair = two(|config| config.lanes = lanes.clone(), |_| ());
        let lane = pair.reader.connect(OWNER);
        pair.reader.agent.disconnect(OWNER);
        assert!(!pair.reader.agent.is_connected(OWNER));
        // The next event is of the next connection.
        pair.reader.agent.send(OWNER, b"again".to_vec()).expect("it waits for the connection");
        assert_eq!(pair.reader.connect(OWNER), lane);
        assert_eq!(pair.owner.message(), (READER, b"again".to_vec()));
        let counts = pair.reader.agent.counts();
        assert_eq!((counts.lost, counts.reconnected), (0, 0), "nothing was lost");
    }
}

#[test]
fn a_required_lane_is_taken_or_nothing() {
    let pair = two(|config| config.require = Some(Lane::Shm), |config| config.lanes = vec![Lane::Tcp]);
    pair.reader.agent.connect(OWNER);
    let reason = pair.reader.lost(OWNER);
    for part in ["transport.require = \"shm\"", "worker w0", "the peer offers no Unix socket", "local: other process"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(!pair.reader.agent.is_connected(OWNER));
    // What is faster than required will do.
    let pair = two(|config| config.require = Some(Lane::Tcp), |_| ());
    assert_eq!(pair.reader.connect(OWNER), Lane::Shm);
}

/// What is told of an owner whose Unix socket cannot be found, and who is at the address `tcp`.
fn afar(owner: &End, tcp: &str) -> PeerInfo {
    let mut info = owner.info.clone();
    (info.address.unix, info.address.tcp) = (String::new(), tcp.to_owned());
    info
}

#[test]
fn a_faster_lane_is_taken_once_it_can_be() {
    let owner = end(&Hub::new(), OWNER, 1, 64, |_| ());
    let often = |config: &mut AgentConfig| config.survey_every = Duration::from_millis(10);
    let reader = end(&Hub::new(), READER, 1, 64, often);
    reader.agent.introduce(afar(&owner, &owner.info.address.tcp));
    assert_eq!(reader.connect(OWNER), Lane::Tcp);
    // It is looked for, in vain.
    reader.hears_nothing();
    reader.agent.introduce(owner.info.clone());
    match reader.event() {
        AgentEvent::Connected { peer: OWNER, status } => assert_eq!(status.lane, Lane::Shm),
        other => panic!("{other:?}"),
    }
    // Nothing is faster, so it stays.
    reader.hears_nothing();
    let counts = reader.agent.counts();
    assert_eq!((counts.slow, counts.lost), (0, 0));
    reader.post(OWNER, vec![batch(8, 0, &[(0, 0)])]);
    assert_eq!(reader.ended().result.map(|report| report.lane), Ok(Lane::Shm));
}

#[test]
fn a_lane_that_becomes_slow_gives_way_to_another() {
    const LEN: usize = 16 << 20;
    let owner = end(&Hub::new(), OWNER, 1, LEN, |_| ());
    let (cable, address) = Cable::new(&owner.info.address.tcp);
    let reader = end(&Hub::new(), READER, 1, LEN, |_| ());
    reader.agent.introduce(afar(&owner, &address));
    assert_eq!(reader.connect(OWNER), Lane::Tcp);
    let prepared = reader.agent.prepare(OWNER, vec![batch(LEN, 0, &[(0, 0)])]).expect("it is sound");
    // Enough for the agent to know what the lane does.
    for _ in 0..12 {
        reader.agent.post(&prepared).expect("there is room");
        assert!(reader.ended().result.is_ok());
    }

    reader.agent.introduce(owner.info.clone());
    cable.set_speed(5 << 20);
    let status = loop {
        // What is under way when the lane is left ends all the same.
        match prepared.state() {
            TransferState::UnderWay => {}
            _ => drop(reader.agent.post(&prepared).expect("there is room")),
        }
        match reader.event() {
            AgentEvent::Ended(end) => assert!(end.result.is_ok(), "{end:?}"),
            AgentEvent::Connected { peer: OWNER, status } => break status,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(status.lane, Lane::Shm);
    assert!(reader.agent.counts().slow >= 1);
}

#[test]
fn another_secret_gets_nothing() {
    for lane in [Lane::Shm, Lane::Tcp] {
        let only = |secret: Secrets| {
            move |config: &mut AgentConfig| (config.lanes, config.secrets, config.insecure) = (vec![lane], secret, true)
        };
        for secret in ["", "another"] {
            let pair = two(only(Secret::new(secret).into()), |config| config.lanes = vec![lane]);
            pair.reader.agent.connect(OWNER);
            let reason = pair.reader.lost(OWNER);
            assert!(reason.contains("both want the same cluster.secret"), "{reason}");
            assert_eq!(pair.reader.agent.counts().lost, 1);
            let refused = pair.owner.agent.counts().refused;
            assert!(refused.contains(&(Refusal::Identity, 1)), "{refused:?}");
        }
        // While it is replaced, either does.
        let both = Secrets::new(Secret::new("new"), Some(Secret::new("old")));
        for secret in ["old", "new"] {
            assert_eq!(two(only(Secret::new(secret).into()), only(both.clone())).reader.connect(OWNER), lane);
        }
        // Without any, all is open to this user.
        assert_eq!(two(only(Secrets::default()), only(Secrets::default())).reader.connect(OWNER), lane);
    }
}

#[test]
fn without_a_secret_or_tls_an_agent_does_not_listen_on_tcp_unless_it_is_told_to() {
    let start = |change: &dyn Fn(&mut AgentConfig)| {
        let mut config = AgentConfig::in_process(OWNER, Incarnation(1), "w0".to_owned(), 1);
        config.listen = Some(ListenConfig { bind: "127.0.0.1:0".to_owned(), advertise: String::new() });
        change(&mut config);
        Agent::start(&Hub::new(), config, ProgressWord::new(), Box::new(|_| true)).map(|agent| agent.address())
    };
    let refused = start(&|_| ()).expect_err("whoever reaches it could read");
    for part in ["127.0.0.1:0", "cluster.secret", "transport.tls_certificate", "cluster.insecure = true"] {
        assert!(refused.to_string().contains(part), "{refused}");
    }
    assert!(start(&|config| config.insecure = true).is_ok());
    assert!(start(&|config| config.secrets = Secret::new("one").into()).is_ok());
    assert!(start(&|config| config.tls = Some(certificates::good())).is_ok());
    // Its Unix socket asks the system who connects.
    let address = start(&|config| config.lanes = vec![Lane::Shm]).expect("there is no TCP");
    assert!(address.tcp.is_empty() && !address.unix.is_empty());
}

#[test]
fn garbage_is_refused_counted_and_harms_nobody() {
    let pair = two(|config| config.lanes = vec![Lane::Tcp], |_| ());
    let address = pair.owner.agent.address();
    let frame = |kind: u8, body: &[u8]| {
        let len = (body.len() as u32 + 1).to_le_bytes();
        [&len[..], &[kind], body].concat()
    };
    let garbage = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        vec![0xFF; 64],
        vec![0; 64],
        // A length beyond what a stranger may say, other frames than a hello, a hello that is none, another version.
        frame(1, &[7; 5000]),
        frame(8, b"a message"),
        frame(3, &[0; 32]),
        frame(1, b"hello"),
        frame(1, b"baton\0\x63\0 and so on"),
    ];
    for (number, bytes) in garbage.iter().enumerate() {
        let unix = SocketAddr::from_abstract_name(&address.unix).expect("it is a name");
        let mut unix = UnixStream::connect_addr(&unix).expect("it listens");
        let mut tcp = TcpStream::connect(&address.tcp).expect("it listens");
        unix.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        tcp.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        // It may be refused before it is said to its end.
        let _ = (unix.write_all(bytes), tcp.write_all(bytes));
        let closed = |stream: &mut dyn Read| match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        };
        assert!(closed(&mut unix) && closed(&mut tcp), "garbage {number}");
        let refused: u64 = pair.owner.agent.counts().refused.iter().map(|(_, count)| count).sum();
        assert_eq!(refused, 2 * (number as u64 + 1), "garbage {number}");
    }
    assert_eq!(pair.reader.connect(OWNER), Lane::Tcp);
    pair.owner.hears_nothing();
}

#[test]
fn garbage_of_who_is_connected_is_refused_and_counted() {
    let reader = two(|config| config.lanes = vec![Lane::Tcp], |_| ()).reader;
    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let tcp = listener.local_addr().expect("it listens").to_string();
    let liar = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("somebody connects");
        socket.write_all(&[0xFF; 64]).expect("it is open");
        // Until the other end has had enough.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let address = PeerAddress { tcp, ..PeerAddress::default() };
    let (id, name, role) = (domain::WorkerId(9), "liar".to_owned(), Role::Prefill);
    reader.agent.introduce(PeerInfo { id, incarnation: Incarnation(1), name, role, address });
    reader.agent.connect(id);
    let reason = reader.lost(id);
    assert!(reason.contains("a frame of 4294967295 bytes"), "{reason}");
    let refused = reader.agent.counts().refused;
    assert!(refused.contains(&(Refusal::Protocol, 1)), "{refused:?}");
    liar.join().expect("it does not panic");
}

/// Closing what a descriptor is of may take long, so none is taken: by the system, where it knows how, or by the agent.
#[test]
fn nobody_brings_descriptors() {
    let pair = two(|config| config.lanes = vec![Lane::Shm], |_| ());
    let name = SocketAddr::from_abstract_name(&pair.owner.agent.address().unix).expect("it is a name");
    let mut unix = UnixStream::connect_addr(&name).expect("it listens");
    let (brought, mut kept) = UnixStream::pair().expect("there are descriptors");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut ancillary, descriptors) = (SendAncillaryBuffer::new(&mut space), [brought.as_fd()]);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    // Nothing is wrong with this byte, but for what comes with it.
    let byte = [std::io::IoSlice::new(&[1])];
    match rustix::net::sendmsg(&unix, &byte, &mut ancillary, SendFlags::NOSIGNAL) {
        Err(error) => assert_eq!(error, rustix::io::Errno::PERM),
        Ok(_) => {
            // It may be reset, since not all was read.
            let _ = unix.read_to_end(&mut Vec::new());
            assert!(pair.owner.agent.counts().refused.contains(&(Refusal::Protocol, 1)));
        }
    }
    drop(brought);
    kept.read_to_end(&mut Vec::new()).expect("nobody has it any more");
    // The other way round they are still sent.
    assert_eq!(pair.reader.connect(OWNER), Lane::Shm);
}

#[test]
fn who_is_not_there_yet_is_found_when_it_is() {
    for lane in [Lane::Shm, Lane::Tcp] {
        let only = |config: &mut AgentConfig| config.lanes = vec![lane];
        let pair = two(only, only);
        let Pair { owner, reader } = pair;
        let info = owner.info.clone();
        drop(owner);
        reader.agent.send(OWNER, b"lost".to_vec()).expect("it waits");
        assert!(reader.lost(OWNER).contains("no lane reaches worker worker w0"));
        // It comes back as a new life, elsewhere; what is sent meanwhile waits.
        let owner = end(&Hub::new(), OWNER, 2, 64, only);
        reader.agent.introduce(PeerInfo {
            address: owner.agent.address(),
            incarnation: owner.info.incarnation,
            ..info
        });
        reader.agent.send(OWNER, b"first".to_vec()).expect("it waits");
        reader.agent.send(OWNER, b"second".to_vec()).expect("it waits");
        assert_eq!(owner.message(), (READER, b"first".to_vec()));
        assert_eq!(owner.message(), (READER, b"second".to_vec()));
        assert!(matches!(reader.event(), AgentEvent::Connected { peer: OWNER, .. }));
        // Who connected is known from then on.
        owner.agent.send(READER, b"back".to_vec()).expect("it waits");
        assert_eq!(reader.message(), (OWNER, b"back".to_vec()));
    }
}

#[test]
fn a_peer_that_was_forgotten_while_it_was_connected_can_be_connected_again() {
    let Pair { owner, reader } = two(|_| (), |_| ());
    drop(owner);
    // It waits for its time to be tried again, each time for longer.
    const FAILED: u64 = 5;
    for _ in 0..FAILED {
        reader.agent.connect(OWNER);
        reader.lost(OWNER);
    }
    reader.agent.send(OWNER, b"before".to_vec()).expect("it waits");
    reader.agent.forget(OWNER);
    assert_eq!(reader.lost(OWNER), "this agent forgot it");
    // That time comes, and nobody is tried.
    reader.hears_nothing_for(Duration::from_secs(2));
    let owner = end(&Hub::new(), OWNER, 1, 64, |_| ());
    reader.agent.introduce(owner.info.clone());
    reader.agent.send(OWNER, b"after".to_vec()).expect("it waits");
    assert!(matches!(reader.event(), AgentEvent::Connected { peer: OWNER, .. }));
    assert_eq!(owner.message(), (READER, b"after".to_vec()));
    owner.hears_nothing();
    assert_eq!(reader.agent.counts().lost, FAILED, "to forget is no failure");
}

#[test]
fn a_peer_that_fails_is_not_tried_all_the_time() {
    let reader = two(|_| (), |_| ()).reader;
    reader.agent.connect(OWNER);
    reader.lost(OWNER);
    // Twenty losses, and be it as fast as refused connections can be, take many back-offs.
    let losses = |reader: &End| {
        reader.agent.connect(OWNER);
        let waits = !reader.agent.is_connected(OWNER);
        reader.lost(OWNER);
        waits
    };
    assert!((0..3).all(|_| losses(&reader)));
    assert_eq!(reader.agent.counts().lost, 4);
}

#[test]
fn an_earlier_life_is_not_let_in() {
    for lane in [Lane::Shm, Lane::Tcp] {
        let only = |config: &mut AgentConfig| config.lanes = vec![lane];
        let owner = end(&Hub::new(), OWNER, 1, 64, only);
        let late = end(&Hub::new(), READER, 2, 64, only);
        owner.agent.introduce(late.info.clone());
        let early = end(&Hub::new(), READER, 1, 64, only);
        early.agent.introduce(owner.info.clone());
        early.agent.connect(OWNER);
        assert!(early.lost(OWNER).contains("a later life of that worker is known"));
        // One that was let in is put out.
        late.agent.introduce(owner.info.clone());
        late.connect(OWNER);
        let latest = end(&Hub::new(), READER, 3, 64, only);
        owner.agent.introduce(latest.info.clone());
        late.lost(OWNER);
    }
}

#[test]
fn idle_connections_are_no_threads() {
    const PEERS: u32 = 200;
    let owner = end(&Hub::new(), OWNER, 1, 64, |_| ());
    let hub = Hub::new();
    let threads = || std::fs::read_dir("/proc/self/task").expect("there is one").count();
    let alone = threads();
    let unconnected = end(&hub, READER, 1, 64, |config| config.lanes = vec![Lane::Shm]);
    let before = threads();
    let each = before - alone;
    let readers: Vec<Agent> = (0..PEERS)
        .map(|id| {
            let reader = end(&hub, domain::WorkerId(100 + id), 1, 64, |config| config.lanes = vec![Lane::Shm]);
            reader.agent.introduce(owner.info.clone());
            assert_eq!(reader.connect(OWNER), Lane::Shm);
            reader.agent
        })
        .collect();
    // Each reader brings its own; the owner, to which all of them are connected, none. What connected them ends.
    while threads() - before > each * readers.len() {
        std::thread::yield_now();
    }
    assert_eq!(threads() - before, each * readers.len());
    drop(unconnected);
}

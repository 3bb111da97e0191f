//! Rails of the lane `tcp`: cables between two agents that break, slow and heal.

use crate::ends::*;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use transport::{AgentConfig, Hub, Lane, RailCounts, RailFault, ReadBatch, SealedMemory};

const LEN: usize = 16 << 20;
/// Bytes a second of a cable that is well, and of one that is not.
const WELL: u64 = 200 << 20;
const ILL: u64 = WELL / 10;

/// A cable to an agent.
#[derive(Clone, Default)]
pub(crate) struct Cable(Arc<CableState>);

#[derive(Default)]
pub(crate) struct CableState {
    bytes_per_s: AtomicU64,
    /// Bytes that the agent sent over it.
    sent: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
}

impl Cable {
    /// A cable, and the address at its other end. Its threads end with the connections, and the last with the
    /// test's process.
    pub(crate) fn new(to: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (cable, to) = (Self::default(), to.to_owned());
        cable.0.bytes_per_s.store(WELL, Ordering::SeqCst);
        let own = cable.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&to) else { return };
                let copy = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
                own.0.connections.lock().expect("nobody panics").push(copy(&client));
                let (asks, asked) = (copy(&client), copy(&server));
                std::thread::spawn(move || pass(asks, asked, |_| ()));
                let cable = own.clone();
                std::thread::spawn(move || pass(server, client, |count| cable.carry(count)));
            }
        });
        (cable, address)
    }

    #[expect(clippy::disallowed_methods, reason = "it is a slow cable")]
    fn carry(&self, count: usize) {
        self.0.sent.fetch_add(count as u64, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_secs_f64(count as f64 / self.speed() as f64);
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }

    fn speed(&self) -> u64 {
        self.0.bytes_per_s.load(Ordering::SeqCst)
    }

    pub(crate) fn set_speed(&self, bytes_per_s: u64) {
        self.0.bytes_per_s.store(bytes_per_s, Ordering::SeqCst);
    }

    fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::SeqCst)
    }

    /// Breaks what goes over it, but the first `spared` connections. Others can be made.
    pub(crate) fn cut(&self, spared: usize) {
        for connection in self.0.connections.lock().expect("nobody panics").drain(spared..) {
            // It may have ended.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, carry: impl Fn(usize)) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
    {
        carry(count);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

/// Two ends, the reader connected over so many cables.
fn cabled<const N: usize>() -> (Pair, [Cable; N]) {
    let only = |config: &mut AgentConfig| config.lanes = vec![Lane::Tcp];
    let (owner, reader) = (end(&Hub::new(), OWNER, 1, LEN, only), end(&Hub::new(), READER, 1, LEN, only));
    owner.fill();
    let cables = [(); N].map(|()| Cable::new(&owner.agent.address().tcp));
    let mut info = owner.info.clone();
    info.address.tcp = cables.each_ref().map(|(_, address)| address.as_str()).join(",");
    reader.agent.introduce(info);
    reader.connect(OWNER);
    (Pair { owner, reader }, cables.map(|(cable, _)| cable))
}

impl Pair {
    /// Reads all, again and again, until `done`.
    fn read_until(&self, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            assert!(self.read(LEN, 0, &[(0, 0)]).result.is_ok());
            assert!(self.reader.bytes() == self.owner.bytes());
            self.reader.wipe();
        }
    }

    fn put_aside(&self, fault: RailFault) -> u64 {
        let counts = self.reader.agent.counts().rails_put_aside;
        counts.iter().find(|(other, _)| *other == fault).map_or(0, |(_, count)| *count)
    }

    fn returned(&self) -> u64 {
        self.reader.agent.counts().rails_returned
    }

    fn rails(&self) -> RailCounts {
        let rails = self.reader.agent.counts().rails;
        rails.iter().find(|(lane, _)| *lane == Lane::Tcp).map_or(RailCounts::default(), |(_, rails)| *rails)
    }
}

#[test]
fn a_broken_connection_is_made_anew_and_no_read_is_lost_or_comes_twice() {
    const CUTS: u64 = 4;
    let (pair, [cable]) = cabled();
    assert_eq!(pair.rails(), RailCounts { up: 1, aside: 0 });
    let elsewhere = pair.reader.agent.register(Arc::new(SealedMemory::new("test", 8).expect("memory")));
    let waiting = ReadBatch { destination: elsewhere, ..batch(8, u64::MAX, &[(0, 0)]) };
    let gated = pair.reader.post(OWNER, vec![waiting]);
    for cuts in 1..=CUTS {
        let id = pair.post(LEN, 0, &[(0, 0)]);
        let sent = cable.sent();
        while cable.sent() < sent + LEN as u64 / 3 {
            std::thread::yield_now();
        }
        // The first one carries messages, and is the link's life.
        cable.cut(1);
        let end = pair.reader.ended();
        assert_eq!((end.id, end.result.map(|report| report.bytes)), (id, Ok(LEN as u64)));
        assert!(pair.reader.bytes() == pair.owner.bytes(), "after cut {cuts}");
        pair.reader.wipe();
        // The read may have ended before the cut, and the rail is made anew after it.
        while pair.put_aside(RailFault::Failed) < cuts || pair.returned() < cuts {
            std::thread::yield_now();
        }
        assert_eq!((pair.put_aside(RailFault::Failed), pair.returned()), (cuts, cuts));
    }
    // What waited all the while still does, and ends once.
    pair.reader.hears_nothing();
    pair.reader.agent.cancel(gated);
    assert_eq!(pair.reader.ended().id, gated);
    cable.cut(0);
    assert!(!pair.reader.lost(OWNER).is_empty());
    pair.reader.hears_nothing();
}

#[test]
fn a_rail_that_breaks_leaves_its_reads_to_the_others() {
    let (pair, [_, second]) = cabled();
    let (mut sent, mut id) = (second.sent(), pair.post(LEN, 0, &[(0, 0)]));
    // How much of a read a rail has depends on how fast it was so far. It may be less than that, and nothing left
    // to cut.
    while second.sent() < sent + LEN as u64 / 8 {
        if let Some(end) = pair.reader.ended_by_now() {
            assert!(end.result.is_ok());
            (sent, id) = (second.sent(), pair.post(LEN, 0, &[(0, 0)]));
        }
        std::thread::yield_now();
    }
    second.cut(0);
    let end = pair.reader.ended();
    assert_eq!((end.id, end.result.map(|report| report.bytes)), (id, Ok(LEN as u64)));
    assert!(pair.reader.bytes() == pair.owner.bytes());
    pair.reader.wipe();
    pair.read_until(|pair| pair.rails().up == 2);
    assert_eq!((pair.put_aside(RailFault::Failed), pair.returned()), (1, 1));
}

#[test]
fn a_rail_that_slows_is_put_aside_and_taken_back_when_it_heals() {
    let (pair, [_, second]) = cabled();
    assert_eq!(pair.rails(), RailCounts { up: 2, aside: 0 });
    second.set_speed(ILL);
    // A machine that stands still for a moment may have it put aside, and taken back, once more.
    let are = |pair: &Pair, up, aside| pair.rails() == RailCounts { up, aside };
    pair.read_until(|pair| pair.put_aside(RailFault::Slow) >= 1 && are(pair, 1, 1));
    second.set_speed(WELL);
    pair.read_until(|pair| pair.returned() >= 1 && are(pair, 2, 0));
}

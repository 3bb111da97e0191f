//! What a device is told, by one that is not there; and what a device refuses, whoever asks: shown with requests
//! that this crate has no call for, between two processes. They need a device, such as that of `tests/rdma/vm`.
//! This program starts itself once more as the owner.

use super::super::completions::Room;
use super::super::port;
use super::super::verbs::pretended::{self, END_ERROR, PAIRS, POSTED, PretendedDevice, TOLD};
use super::*;
use crate::agent::config::RdmaConfig;
use kv_memory::{
    Copier, CopyOrder, DeviceFile, DeviceId, DeviceKind, DevicePlace, Exports, FetchOrder, Fetched, Frame, Memory,
    PeerMemory, Place, SealedMemory, Ticket,
};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 4096;
/// What a device says where a key, or a queue pair, does not allow what was asked: `IBV_WC_REM_ACCESS_ERR` and
/// `IBV_WC_REM_INV_REQ_ERR`.
const REFUSED: [u32; 2] = [10, 9];
/// Bytes of the owner's memory, and of the peer's.
const OWNERS: u8 = 1;
const PEERS: u8 = 2;
const DEPTH: Depth = Depth { reads: 1, reads_of_peer: 1 };

/// Returns a port. `None`, and a line that says so: there is no device.
fn own_port() -> Option<Port> {
    match port::open(&RdmaConfig::default()) {
        Ok(ports) => ports.into_iter().next(),
        Err(reason) => {
            println!("skipped: it takes an RDMA device ({reason}); see tests/rdma");
            None
        }
    }
}

fn memory(byte: u8) -> Arc<dyn Memory> {
    let memory = SealedMemory::new("test", LEN).expect("memory");
    // SAFETY: it is as long, and nobody else's.
    unsafe { memory.as_ptr().write_bytes(byte, LEN) };
    Arc::new(memory)
}

fn bytes(memory: &Arc<dyn Memory>) -> &[u8] {
    // SAFETY: it is as long, and what was posted has completed.
    unsafe { std::slice::from_raw_parts(memory.place().host().expect("it is host memory"), LEN) }
}

/// What no queue pair of this crate lets its peer do, and no registration.
const REMOTE_WRITE: c_uint = 1 << 1;
/// A request that writes.
const WRITE: c_uint = 0;

/// Set for the owner's process: of what kind its queue pair is.
const OWNER_PROCESS: &str = "TRANSPORT_TEST_RDMA_OWNER";
/// Made as always.
const CAREFUL: &str = "careful";
/// One that lets its peer write.
const CARELESS: &str = "careless";

/// Not a test of its own: what the owner's process of those below does. Each line of its input is an order, and it
/// says a line for each.
#[test]
fn an_owner() {
    #[expect(clippy::disallowed_methods, reason = "the test says by it which process this is")]
    let Ok(kind) = std::env::var(OWNER_PROCESS) else { return };
    let port = own_port().expect("the other process found one");
    let memory = memory(OWNERS);
    port.register(&memory).expect("it can be registered");
    let room = port.completions.take_room(16).expect("a completion queue");
    let mut pair = match kind.as_str() {
        CARELESS => {
            let all = LOCAL_WRITE | REMOTE_READ | REMOTE_WRITE;
            QueuePair::letting(&port, &room.queue, 16, all).expect("a queue pair")
        }
        _ => QueuePair::new(&port, &room.queue, 1, true).expect("a queue pair"),
    };
    let (number, packet) = pair.number();
    let key = port.keys(&memory).expect("keys").remote;
    println!("\nowner {number} {packet} {key} {}", memory.place().address());
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["connect", number, packet] => {
                let peer = (number.parse().expect("a number"), packet.parse().expect("a number"));
                let state = port.state().expect("it is active");
                pair.connect(&state, &state.address, peer, DEPTH).expect("it connects");
                println!("owner connected");
            }
            ["state"] => println!("owner {} {}", pair.has_failed(), bytes(&memory) == [OWNERS; LEN]),
            _ => panic!("what is {line:?}"),
        }
    }
}

/// The owner's process; killed when dropped.
struct Owner {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    number: (u32, u32),
    key: u32,
    address: u64,
}

impl Owner {
    fn start(kind: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
        command.args(["--exact", "lanes::rdma::queue::tests::an_owner", "--nocapture"]).env(OWNER_PROCESS, kind);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let orders = child.stdin.take().expect("it is piped");
        let mut answers = BufReader::new(child.stdout.take().expect("it is piped"));
        let said = said(&mut answers);
        let numbers: Vec<u64> = said.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [number, packet, key, address] = numbers[..] else { panic!("it says {said:?}") };
        Self { child, orders, answers, number: (number as u32, packet as u32), key: key as u32, address }
    }

    fn asked(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").expect("it listens");
        said(&mut self.answers)
    }

    /// Returns whether its queue pair has failed. Its memory is as it was.
    fn has_failed(&mut self) -> bool {
        match self.asked("state").as_str() {
            "true true" => true,
            "false true" => false,
            other => panic!("somebody wrote into it: {other}"),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the next line of the owner's, among those of its test runner.
fn said(answers: &mut BufReader<ChildStdout>) -> String {
    let mut lines = answers.lines().map_while(Result::ok);
    lines.find_map(|line| line.strip_prefix("owner ").map(str::to_owned)).expect("it says something")
}

/// A careless peer, connected to an owner of another process; a registered memory of its own.
struct Ends {
    own: Arc<dyn Memory>,
    peer: QueuePair,
    _room: Room,
    port: Port,
    owner: Owner,
}

/// The two ends. `None`, and a line that says so: there is no device.
fn ends(kind: &str) -> Option<Ends> {
    let port = own_port()?;
    let mut owner = Owner::start(kind);
    let own = memory(PEERS);
    port.register(&own).expect("it can be registered");
    let room = port.completions.take_room(16).expect("a completion queue");
    let mut peer = QueuePair::letting(&port, &room.queue, 16, 0).expect("a queue pair");
    let (number, packet) = peer.number();
    assert_eq!(owner.asked(&format!("connect {number} {packet}")), "connected");
    let state = port.state().expect("it is active");
    peer.connect(&state, &state.address, owner.number, DEPTH).expect("it connects");
    Some(Ends { own, peer, _room: room, port, owner })
}

impl Ends {
    fn describe(&self, status: u32) -> String {
        self.port.domain.context.library.describe(status)
    }

    /// Returns the status of what `post` posts to the peer's queue pair.
    fn status(&mut self, post: impl FnOnce(&mut QueuePair)) -> u32 {
        post(&mut self.peer);
        let mut completed = Vec::new();
        for _ in 0..10_000 {
            self.port.completions.take(&mut completed).expect("completions can be taken");
            if let Some(one) = completed.first() {
                return one.status;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it did not complete");
    }

    /// The peer reads `len` bytes from `offset` on; the status.
    fn read(&mut self, offset: usize, len: usize) -> u32 {
        let read = Read {
            id: 1,
            remote_key: self.owner.key,
            remote_address: self.owner.address + offset as u64,
            local_key: self.port.keys(&self.own).expect("keys").local,
            local_address: self.own.place().address(),
            len: len as u32,
        };
        // SAFETY: the destination is registered, as long, and nobody else's.
        self.status(|peer| unsafe { peer.read(&[read]).expect("it can be posted") })
    }

    /// Has the peer write over the owner's first bytes; the status.
    fn write(&mut self) -> u32 {
        let own = self.port.keys(&self.own).expect("keys").local;
        let (key, to, from) = (self.owner.key, self.owner.address, self.own.place().address());
        self.status(|peer| {
            let mut piece = LocalPiece { address: from, len: 64, key: own };
            let mut request = Request {
                id: 1,
                pieces: &mut piece,
                piece_count: 1,
                operation: WRITE,
                flags: IS_TOLD,
                remote_address: to,
                remote_key: key,
                ..REQUEST
            };
            // SAFETY: the source is registered and as long.
            unsafe { peer.pair.post(&mut request).expect("it can be posted") };
        })
    }
}

#[test]
fn a_write_is_refused_by_the_queue_pair() {
    let Some(mut ends) = ends(CAREFUL) else { return };
    assert_eq!(ends.read(8, 16), 0, "reading works");
    assert!(!ends.owner.has_failed());
    assert_eq!(bytes(&ends.own)[..17], [[OWNERS; 16].as_slice(), &[PEERS]].concat());
    let status = ends.write();
    assert!(REFUSED.contains(&status), "{}", ends.describe(status));
    assert!(ends.owner.has_failed(), "the owner sees that something was refused");
}

#[test]
fn a_write_is_refused_by_the_key() {
    let Some(mut ends) = ends(CARELESS) else { return };
    assert_eq!(ends.read(0, 1), 0, "reading works");
    let status = ends.write();
    assert!(REFUSED.contains(&status), "{}", ends.describe(status));
    assert!(ends.owner.has_failed(), "the owner sees that something was refused");
}

/// A file that is said to be a dma-buf, as a device's driver would export it; `None`: it exports nothing.
struct Exported(Option<std::fs::File>, Arc<dyn Copier>);

/// Copies nothing.
struct NoCopier;

impl Copier for NoCopier {
    fn frame(&self, bytes: usize) -> std::io::Result<Frame> {
        Frame::new(bytes)
    }

    fn gather(&self, _: CopyOrder) -> Ticket {
        Ticket::new(None).0
    }

    fn scatter(&self, _: CopyOrder, _: u64) -> Ticket {
        Ticket::new(None).0
    }

    fn import(&self, _: DeviceFile<'_>, _: usize) -> std::io::Result<Arc<PeerMemory>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }

    fn fetch(&self, _: FetchOrder) -> Ticket<Fetched> {
        Ticket::new(None).0
    }

    fn try_out(&self, _: &Arc<PeerMemory>, _: usize) -> Ticket<Fetched> {
        Ticket::new(None).0
    }
}

// SAFETY: it is said to be a device's, so nobody touches what is at its address.
unsafe impl Memory for Exported {
    fn place(&self) -> Place<'_> {
        let dma_buf = self.0.as_ref().map(|file| (file.as_fd(), 0));
        let exports = Exports { dma_buf, ..Exports::default() };
        Place::Device(DevicePlace {
            id: DeviceId(3),
            kind: DeviceKind::Cuda,
            address: 1 << 20,
            exports,
            copier: &self.1,
        })
    }

    fn len(&self) -> usize {
        LEN
    }
}

#[test]
fn memory_of_a_device_that_the_network_card_does_not_take_is_refused_with_what_mends_it() {
    let Some(port) = own_port() else { return };
    let memory: Arc<dyn Memory> = Arc::new(Exported(Some(tempfile::tempfile().expect("a file")), Arc::new(NoCopier)));
    let refused = port.register(&memory).expect_err("it is no dma-buf").to_string();
    assert!(refused.contains("bytes of a device cannot be registered") && refused.contains("dma-buf"), "{refused}");
    assert_eq!(port.keys(&memory), None);
}

#[test]
fn memory_that_its_driver_exports_to_no_network_card_is_not_registered() {
    let port = pretended_port(RdmaService::default());
    let memory: Arc<dyn Memory> = Arc::new(Exported(None, Arc::new(NoCopier)));
    let refused = port.register(&memory).expect_err("nobody could read it").to_string();
    assert!(refused.contains("memory of device 3") && refused.contains("no network card"), "{refused}");
}

#[test]
fn a_read_that_leaves_the_region_is_refused() {
    let Some(mut ends) = ends(CAREFUL) else { return };
    assert_eq!(ends.read(LEN - 8, 8), 0, "reading works");
    let status = ends.read(LEN - 8, 9);
    assert!(REFUSED.contains(&status), "{}", ends.describe(status));
    assert!(ends.owner.has_failed(), "the owner sees that something was refused");
    assert_eq!(bytes(&ends.own)[8..], [PEERS; LEN - 8]);
}

/// A port of a device that is not there.
fn pretended_port(service: RdmaService) -> Port {
    let device = PretendedDevice { name: c"none0", ports_up: &[true] };
    let config = RdmaConfig { service, ..RdmaConfig::default() };
    let ports = port::open_by(&pretended::library(&[device]), Path::new("/nowhere"), &config);
    ports.expect("there is one").remove(0)
}

#[test]
fn what_the_settings_say_is_what_queue_pairs_are_told() {
    let (traffic_class, service_level, flow_label, pkey_index) = (104, 3, 0xABCDE, 7);
    let service = RdmaService { traffic_class, service_level, flow_label, pkey_index, timeout: 14, retries: 2 };
    let port = pretended_port(service);
    let room = port.completions.take_room(1).expect("there is room");
    let mut pair = QueuePair::new(&port, &room.queue, 1, true).expect("a queue pair");
    let state = port.state().expect("it is up");
    let peer = PortAddress { lid: 9, ..state.address.clone() };
    pair.connect(&state, &peer, (17, 4), Depth { reads: 3, reads_of_peer: 2 }).expect("it connects");
    let told = TOLD.take();
    let [(initial, _), (receiving, of_receiving), (sending, of_sending)] = told[..] else { panic!("{told:?}") };
    assert_eq!((initial.state, initial.partition_index, initial.access), (STATE_INITIAL, 7, REMOTE_READ));
    let route = receiving.address.route;
    assert_eq!((route.traffic_class, route.flow_label, route.gid), (104, 0xABCDE, Gid(peer.gid)));
    assert_eq!((receiving.address.service_level, receiving.address.has_route, receiving.address.lid), (3, 1, 9));
    assert_eq!((receiving.number_of_peer, receiving.first_packet_of_peer, receiving.reads_of_peer), (17, 4, 2));
    assert!(of_receiving & OF_ADDRESS != 0 && of_sending & OF_ANSWER_WAIT != 0 && of_sending & OF_ANSWER_RETRIES != 0);
    assert_eq!((sending.answer_wait, sending.answer_retries, sending.reads), (14, 2, 3));
    // Within an InfiniBand subnet no route is told.
    let near = PortAddress { kind: GidKind::InfiniBand, ..peer };
    pair.connect(&state, &near, (17, 4), Depth { reads: 3, reads_of_peer: 2 }).expect("it connects");
    let address = TOLD.take()[0].0.address;
    assert_eq!((address.has_route, address.service_level, address.route), (0, 3, GlobalRoute::default()));
}

#[test]
fn chains_of_reads_are_posted_in_their_order_and_their_last_one_is_told() {
    let port = pretended_port(RdmaService::default());
    let room = port.completions.take_room(1).expect("there is room");
    let mut pair = QueuePair::new(&port, &room.queue, 1, false).expect("a queue pair");
    for count in [0, 1, CHAIN_MAX, CHAIN_MAX + 1, 3 * CHAIN_MAX] {
        let read = |at: usize| Read { id: at as u64, len: 100 + at as u32, ..Read::default() };
        let reads: Vec<Read> = (0..count).map(read).collect();
        // SAFETY: nothing is read.
        unsafe { pair.read(&reads) }.expect("it can be posted");
        let flags = |at| if at + 1 == count { IS_TOLD } else { 0 };
        let expect: Vec<_> = (0..count).map(|at| (at as u64, flags(at), 100 + at as u32)).collect();
        assert_eq!(POSTED.take(), expect);
    }
}

#[test]
fn links_share_the_completion_queue_of_a_port_until_it_is_full() {
    let port = pretended_port(RdmaService::default());
    let too_much = port.completions.take_room(257).err().expect("the device has less").to_string();
    assert!(too_much.contains("room for 256 completions"), "{too_much}");
    let rooms: Vec<Room> = (0..2).map(|_| port.completions.take_room(128).expect("there is room")).collect();
    assert_eq!(port.completions.count(), 1);
    let more = port.completions.take_room(128).expect("another queue is made");
    assert_eq!(port.completions.count(), 2);
    drop((rooms, more));
    let again: Vec<Room> = (0..4).map(|_| port.completions.take_room(128).expect("there is room")).collect();
    assert_eq!((port.completions.count(), again.len()), (2, 4), "what was given back is taken again");
}

/// The lane's thread goes on, to end what was read over the device.
#[test]
fn a_device_that_is_gone_ends_nothing_but_what_was_made_on_it() {
    let port = pretended_port(RdmaService::default());
    let room = port.completions.take_room(1).expect("there is room");
    let pair = QueuePair::new(&port, &room.queue, 1, true).expect("a queue pair");
    END_ERROR.set(libc::EIO);
    drop(pair);
    END_ERROR.set(0);
    assert_eq!(PAIRS.get(), 0);
}

//! What a device refuses, whoever asks: shown with requests that this crate has no call for, between two processes. They need a
//! device, such as that of `tests/rdma/vm`. This program starts itself once more as the owner.

use super::super::rail;
use super::*;
use crate::config::RdmaConfig;
use crate::memory::{DeviceMemory, Memory};
use crate::sealed::SealedMemory;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 4096;
/// What a device says where a key, or a queue pair, does not allow what was asked.
const REFUSED: [u32; 2] = [sys::ibv_wc_status::IBV_WC_REM_ACCESS_ERR, sys::ibv_wc_status::IBV_WC_REM_INV_REQ_ERR];
/// Bytes of the owner's memory, and of the peer's.
const OWNERS: u8 = 1;
const PEERS: u8 = 2;
const DEPTH: Depth = Depth { reads: 1, reads_of_peer: 1 };

/// A rail. `None`, and a line that says so: there is no device.
fn rail() -> Option<Rail> {
    match rail::open(&RdmaConfig::default()) {
        Ok(mut rails) => Some(rails.remove(0)),
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
    unsafe { std::slice::from_raw_parts(memory.as_ptr(), LEN) }
}

/// A queue pair of a careless program: it may post anything, and lets its peer do what `lets` says.
fn careless(rail: &Rail, completions: &Completions, lets: AccessFlags) -> QueuePair {
    let mut builder = rail.domain.create_qp_builder();
    builder.setup_send_cq(completions.queue()).setup_recv_cq(completions.queue());
    let pair = ManuallyDrop::new(GenericQueuePair::from(builder.build().expect("a queue pair")));
    let mut new = QueuePair { pair, packet: 7 };
    let mut attributes = QueuePairAttribute::new();
    attributes.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(rail.number).setup_access_flags(lets);
    new.modify(&attributes).expect("it can be initialised");
    new
}

/// Set for the owner's process: of what kind its queue pair is.
const OWNER_PROCESS: &str = "TRANSPORT_TEST_RDMA_OWNER";
/// Made as always.
const CAREFUL: &str = "careful";
/// One that lets its peer write.
const CARELESS: &str = "careless";

/// Not a test of its own: what the owner's process of those below does. Each line of its input is an order, and it says a line for
/// each.
#[test]
fn an_owner() {
    #[expect(clippy::disallowed_methods, reason = "the test says by it which process this is")]
    let Ok(kind) = std::env::var(OWNER_PROCESS) else { return };
    let rail = rail().expect("the other process found one");
    let memory = memory(OWNERS);
    rail.register(&memory).expect("it can be registered");
    let completions = Completions::new(&rail, 16, 0).expect("a completion queue");
    let mut pair = match kind.as_str() {
        CARELESS => {
            let all = AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite;
            careless(&rail, &completions, all)
        }
        _ => QueuePair::new(&rail, &completions, 1, true).expect("a queue pair"),
    };
    let (number, packet) = pair.number();
    let key = rail.keys(&memory).expect("keys").remote;
    println!("\nowner {number} {packet} {key} {}", memory.as_ptr() as u64);
    for line in std::io::stdin().lines().map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["connect", number, packet] => {
                let peer = (number.parse().expect("a number"), packet.parse().expect("a number"));
                let port = rail.port().expect("it is active");
                pair.connect(&port, &port.address, peer, DEPTH).expect("it connects");
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
        command.args(["--exact", "lane_rdma::queue::tests::an_owner", "--nocapture"]).env(OWNER_PROCESS, kind);
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

    /// Whether its queue pair has failed. Its memory is as it was.
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

/// The next line of the owner's, among those of its test runner.
fn said(answers: &mut BufReader<ChildStdout>) -> String {
    let mut lines = answers.lines().map_while(Result::ok);
    lines.find_map(|line| line.strip_prefix("owner ").map(str::to_owned)).expect("it says something")
}

/// A careless peer, connected to an owner of another process; a registered memory of its own.
struct Ends {
    own: Arc<dyn Memory>,
    peer: QueuePair,
    completions: Completions,
    rail: Rail,
    owner: Owner,
}

/// The two ends. `None`, and a line that says so: there is no device.
fn ends(kind: &str) -> Option<Ends> {
    let rail = rail()?;
    let mut owner = Owner::start(kind);
    let own = memory(PEERS);
    rail.register(&own).expect("it can be registered");
    let completions = Completions::new(&rail, 16, 0).expect("a completion queue");
    let mut peer = careless(&rail, &completions, AccessFlags::none());
    let (number, packet) = peer.number();
    assert_eq!(owner.asked(&format!("connect {number} {packet}")), "connected");
    let port = rail.port().expect("it is active");
    peer.connect(&port, &port.address, owner.number, DEPTH).expect("it connects");
    Some(Ends { own, peer, completions, rail, owner })
}

impl Ends {
    /// The status of what `post` posts to the peer's queue pair.
    fn status(&mut self, post: impl FnOnce(&mut QueuePair)) -> u32 {
        post(&mut self.peer);
        let mut completed = Vec::new();
        for _ in 0..10_000 {
            self.completions.take(&mut completed).expect("completions can be taken");
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
            local_key: self.rail.keys(&self.own).expect("keys").local,
            local_address: self.own.as_ptr() as u64,
            len: len as u32,
        };
        // SAFETY: the destination is registered, as long, and nobody else's.
        self.status(|peer| unsafe { peer.read([&read]).expect("it can be posted") })
    }

    /// The peer writes over the owner's first bytes; the status.
    fn write(&mut self) -> u32 {
        let own = self.rail.keys(&self.own).expect("keys").local;
        let (key, to, from) = (self.owner.key, self.owner.address, self.own.as_ptr() as u64);
        self.status(|peer| {
            let mut posting = peer.pair.start_post_send();
            let request = posting.construct_wr(1, WorkRequestFlags::Signaled).setup_write(key, to);
            // SAFETY: the source is registered and as long.
            unsafe { request.setup_sge(own, from, 64) };
            posting.post().expect("it can be posted");
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
    assert!(REFUSED.contains(&status), "{}", describe(status));
    assert!(ends.owner.has_failed(), "the owner sees that something was refused");
}

#[test]
fn a_write_is_refused_by_the_key() {
    let Some(mut ends) = ends(CARELESS) else { return };
    assert_eq!(ends.read(0, 1), 0, "reading works");
    let status = ends.write();
    assert!(REFUSED.contains(&status), "{}", describe(status));
    assert!(ends.owner.has_failed(), "the owner sees that something was refused");
}

/// What libibverbs does not destroy.
struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        panic!("sideway asserts so");
    }
}

/// The lane's thread goes on, to end what was read over the device.
#[test]
fn a_device_that_is_gone_ends_nothing_but_what_was_made_on_it() {
    destroy(Gone);
}

/// A file that is said to be a dma-buf, as a device's driver would export it.
struct Exported(std::fs::File);

// SAFETY: it is said to be a device's, so nobody touches what is at its address.
unsafe impl Memory for Exported {
    fn as_ptr(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(1 << 20)
    }

    fn len(&self) -> usize {
        LEN
    }

    fn device(&self) -> Option<DeviceMemory<'_>> {
        Some(DeviceMemory::DmaBuf { file: self.0.as_fd(), offset: 0 })
    }
}

#[test]
fn memory_of_a_device_that_the_network_card_does_not_take_is_refused_with_what_mends_it() {
    let Some(rail) = rail() else { return };
    let memory: Arc<dyn Memory> = Arc::new(Exported(tempfile::tempfile().expect("a file")));
    let refused = rail.register(&memory).expect_err("it is no dma-buf");
    assert!(refused.contains("bytes of a device cannot be registered") && refused.contains("dma-buf"), "{refused}");
    assert_eq!(rail.keys(&memory), None);
}

#[test]
fn a_read_that_leaves_the_region_is_refused() {
    let Some(mut ends) = ends(CAREFUL) else { return };
    assert_eq!(ends.read(LEN - 8, 8), 0, "reading works");
    let status = ends.read(LEN - 8, 9);
    assert!(REFUSED.contains(&status), "{}", describe(status));
    assert!(ends.owner.has_failed(), "the owner sees that something was refused");
    assert_eq!(bytes(&ends.own)[8..], [PEERS; LEN - 8]);
}

//! The lane `shm`: what the kernel refuses, and what outlives the owner.

use crate::ends::*;
use domain::session::{PeerAddress, PeerInfo, Role};
use domain::{Incarnation, StepId};
use rustix::fs::{FallocateFlags, SealFlags};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use transport::{AgentConfig, AgentEvent, Completion, Hub, Lane, Memory, Place, TransferError};

const LEN: usize = 8192;

/// What a peer is given: the same file, through a descriptor of its own.
fn given(memory: &impl Memory) -> std::os::fd::OwnedFd {
    memory.file().expect("sealed memory has a file").0.try_clone_to_owned().expect("descriptors are left")
}

fn map(file: BorrowedFd<'_>, protection: ProtFlags) -> rustix::io::Result<*mut std::ffi::c_void> {
    // SAFETY: a new mapping overlaps nothing.
    unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, file, 0) }
}

#[test]
fn the_kernel_lets_nobody_but_the_owner_write() {
    let owner = end(&Hub::new(), OWNER, 1, LEN, |_| ());
    let file = given(&*owner.memory);
    let file = file.as_fd();
    assert!(map(file, ProtFlags::READ | ProtFlags::WRITE).is_err(), "mapped for writing");
    assert!(map(file, ProtFlags::WRITE).is_err(), "mapped for writing alone");
    let mapped = map(file, ProtFlags::READ).expect("it may be read");
    // SAFETY: the mapping is this test's own; if it became writable, nobody would write it.
    unsafe {
        assert!(mprotect(mapped, LEN, MprotectFlags::READ | MprotectFlags::WRITE).is_err(), "made writable later");
        munmap(mapped, LEN).expect("it is mapped");
    }
    assert!(rustix::io::pwrite(file, &[1], 0).is_err(), "written through the descriptor");
    assert!(rustix::fs::ftruncate(file, 0).is_err(), "truncated");
    assert!(rustix::fs::ftruncate(file, 2 * LEN as u64).is_err(), "grown");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert!(rustix::fs::fallocate(file, hole, 0, 4096).is_err(), "a hole punched");
    assert!(rustix::fs::fcntl_add_seals(file, SealFlags::WRITE).is_err(), "sealed further, against the owner");
    // The owner still writes.
    owner.fill();
    assert!(owner.bytes().iter().any(|&byte| byte != 0));
}

/// Set for the process that plays the owner in the test below: where it may be killed at any time.
const OWNER_PROCESS: &str = "TRANSPORT_TEST_OWNER";
/// Set so: its memory is as a device's.
const GUARDED: &str = "guarded";

/// Not a test of its own: what the other process of the test below does.
#[test]
fn the_other_process() {
    #[expect(clippy::disallowed_methods, reason = "the test says by it which process this is")]
    let Some(is_guarded) = std::env::var_os(OWNER_PROCESS).map(|kind| kind == GUARDED) else { return };
    let lane = if is_guarded { Lane::Nvlink } else { Lane::Shm };
    let owner = end_over(Over { guarded: is_guarded, ..lane.into() }, &Hub::new(), OWNER, 7, LEN, |config| {
        config.lanes = Lane::all().collect()
    });
    owner.fill();
    let address = owner.agent.address();
    println!("\naddress {} {} {}", address.process, address.unix, address.tcp);
    // A line opens the gate of the next step; the end of the input, or a kill, ends the process.
    for (step, _) in std::io::stdin().lines().enumerate() {
        owner.word.raise(StepId(step as u64 + 1), 0);
    }
}

#[test]
fn two_processes_and_a_kill() {
    for over in [Lane::Shm.into(), Lane::Tcp.into(), Over::guarded(Lane::Nvlink), Over::guarded(Lane::Tcp)] {
        let lane = over.lane;
        let program = std::env::current_exe().expect("a test has a program");
        let mut owner = Command::new(program)
            .args(["--exact", "shm::the_other_process", "--nocapture"])
            .env(OWNER_PROCESS, if over.guarded { GUARDED } else { "1" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(owner.stdout.take().expect("it is piped")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.starts_with("address ")).expect("it says where it is");
        let mut words = line.split(' ').skip(1).map(str::to_owned);
        let mut word = || words.next().expect("three parts");
        let address = PeerAddress { process: word().parse().expect("a number"), unix: word(), tcp: word() };
        let reader = end_over(over, &Hub::new(), READER, 1, LEN, |_| ());
        let incarnation = Incarnation(7);
        reader.agent.introduce(PeerInfo { id: OWNER, incarnation, name: "other".into(), role: Role::Prefill, address });
        assert_eq!(reader.connect(OWNER), lane);

        let gate = domain::ProgressWord::mark(StepId(1), 0);
        let id = reader.post(OWNER, vec![batch(LEN, gate, &[(0, 0)])]);
        reader.hears_nothing();
        owner.stdin.as_mut().expect("it is piped").write_all(b"\n").expect("it listens");
        let end = reader.ended();
        assert_eq!((end.id, end.result.map(|report| report.lane)), (id, Ok(lane)));
        let twin = crate::ends::end(&Hub::new(), OWNER, 1, LEN, |_| ());
        twin.fill();
        assert!(reader.bytes() == twin.bytes());

        let id = reader.post(OWNER, vec![batch(LEN, u64::MAX, &[(0, 0)])]);
        owner.kill().expect("it runs");
        owner.wait().expect("it ends");
        let events = [reader.event(), reader.event()];
        let end = AgentEvent::Ended(Completion { id, result: Err(TransferError::PeerGone), runs: Vec::new() });
        assert!(events.contains(&end), "{events:?}");
        assert!(events.iter().any(|event| matches!(event, AgentEvent::Lost { peer: OWNER, .. })), "{events:?}");
        assert!(reader.bytes() == twin.bytes());
    }
}

/// Memory without a file behind it.
struct Plain(Box<[std::sync::atomic::AtomicU8]>);

// SAFETY: the box is never exchanged or resized, and atomics may be written through a shared reference.
unsafe impl Memory for Plain {
    fn place(&self) -> Place<'_> {
        Place::Host(self.0.as_ptr().cast_mut().cast())
    }
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn memory_without_a_file_takes_the_next_lane() {
    let (sender, _events) = std::sync::mpsc::channel();
    let mut config = AgentConfig::in_process(OWNER, Incarnation(1), "plain".into(), 1);
    config.listen = Some(transport::ListenConfig { bind: "127.0.0.1:0".into(), advertise: String::new() });
    config.secrets = domain::Secret::new("of the tests").into();
    let sink = Box::new(move |event| sender.send(event).is_ok());
    let owner = transport::Agent::start(&Hub::new(), config, domain::ProgressWord::new(), sink).expect("it starts");
    owner.register(Arc::new(Plain((0..LEN).map(|i| (i as u8).into()).collect())));
    let reader = end(&Hub::new(), READER, 1, LEN, |_| ());
    let (id, incarnation, address) = (OWNER, Incarnation(1), owner.address());
    reader.agent.introduce(PeerInfo { id, incarnation, name: "plain".into(), role: Role::Prefill, address });
    assert_eq!(reader.connect(OWNER), Lane::Tcp);
    let (_, status) = reader.agent.lanes().remove(0);
    let shm = status.passed_over.iter().find(|passed| passed.lane == Lane::Shm);
    assert!(shm.is_some_and(|shm| shm.reason.contains("not in files")), "{status:?}");
    reader.post(OWNER, vec![batch(LEN, 0, &[(0, 0)])]);
    assert!(reader.ended().result.is_ok());
    assert!(reader.bytes().iter().enumerate().all(|(i, &byte)| byte == i as u8));
}

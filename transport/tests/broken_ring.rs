//! When the system takes nothing more of a mover of files, what is open ends and what comes is refused. In a
//! process of its own, for the descriptor of its ring is taken away from it.

use std::fs;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::Duration;
use transport::{
    Direction, Failure, FileBatch, FileConfig, FileCopy, FileError, FileMover, FileSpec, FileWay, PostError,
    SealedMemory, TransferId, TransferState,
};

/// Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 20;

/// The descriptor of the one ring of this process.
fn ring() -> RawFd {
    let open = fs::read_dir("/proc/self/fd").expect("there is /proc").flatten();
    let is_ring =
        |path: &std::path::PathBuf| fs::read_link(path).is_ok_and(|link| link.ends_with("anon_inode:[io_uring]"));
    let path = open.map(|entry| entry.path()).find(is_ring).expect("there is a ring");
    let name = path.file_name().expect("it has a name").to_str().expect("it is a number");
    name.parse().expect("it is a number")
}

#[test]
fn a_mover_of_which_the_system_takes_nothing_more_says_so() {
    let (sender, ends) = sync_channel(8);
    let config = FileConfig { name: "test".to_owned(), depth: 4, posted_max: 4, io_uring: true };
    let mover = FileMover::start(config, &Failure::new(), Box::new(move |end| sender.try_send(end).expect("few end")))
        .expect("it starts");
    if mover.status().way != FileWay::IoUring {
        println!("SKIPPED: this host allows no io_uring: {}", mover.status());
        return;
    }
    let memory = mover.register(Arc::new(SealedMemory::new("test", LEN).expect("memory")));
    let folder = tempfile::tempdir().expect("a folder");
    let spec = FileSpec { paths: vec![folder.path().join("a")], bytes: LEN as u64, stripe_bytes: LEN as u64 };
    let file = mover.open(&spec).expect("it opens");
    let copies = vec![FileCopy { file: 0, memory: 0 }];
    let batch = FileBatch { direction: Direction::Write, file, memory, len: LEN, copies };
    let transfer = mover.prepare(vec![batch]).expect("it is sound");
    mover.post(&transfer).expect("there is room");
    assert!(matches!(transfer.wait(PATIENCE), TransferState::Ended(Ok(_))));
    ends.recv_timeout(PATIENCE).expect("it ends").result.expect("it succeeds");

    let nothing = fs::File::open("/dev/null").expect("it is there");
    // SAFETY: both are descriptors of this process; the mover's ring is somewhere else from now on, which is what
    // is tested.
    assert!(unsafe { libc::dup2(nothing.as_raw_fd(), ring()) } >= 0);
    let id = mover.post(&transfer).expect("nobody knows yet");
    let end = ends.recv_timeout(PATIENCE).expect("it ends");
    assert_eq!(end.id, id);
    let Err(FileError::Broken { errno }) = end.result else { panic!("{end:?}") };
    assert_eq!(transfer.wait(PATIENCE), TransferState::Ended(end.result));
    assert_eq!(mover.post(&transfer), Err(PostError::Broken { errno }));
    assert!(mover.status().broken.is_some(), "{:?}", mover.status());
    mover.cancel(id);
    mover.cancel(TransferId(u64::MAX));
    drop(mover);
    assert_eq!(ends.try_recv(), Err(TryRecvError::Empty), "nothing ends twice");
}

//! A mover whose operations go as no file system lets them go when it is asked to.

use super::operation::Operation;
use super::threads::{Threads, carry_out};
use super::*;
use crate::transfer::plan_slot::TransferState;
use kv_memory::PrivateMemory;
use std::sync::atomic::AtomicU32;

/// Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 16;

/// The ends of writes one after the other by threads that carry them out so, and what was reported.
fn ends<const N: usize>(
    carry_out: fn(&Operation) -> io::Result<usize>,
) -> ([Result<FileReport, FileError>; N], Failure) {
    let failure = Failure::new();
    let config = FileConfig { name: "test".to_owned(), depth: 2, posted_max: 2, io_uring: false };
    let bell = Arc::new(Doorbell::new().expect("a bell"));
    let threads = Threads::new("test", config.depth, &failure, bell.clone(), carry_out).expect("threads");
    let mover = FileMover::with(Engine::Threads(threads), Vec::new(), config, &failure, bell, Box::new(|_| {}));
    let mover = mover.expect("it starts");
    let memory = mover.register(Arc::new(PrivateMemory::new(LEN).expect("memory")));
    let folder = tempfile::tempdir().expect("a folder");
    let spec = FileSpec { paths: vec![folder.path().join("a")], bytes: LEN as u64, stripe_bytes: LEN as u64 };
    let file = mover.open(&spec).expect("it opens");
    let copies = vec![FileCopy { file: 0, memory: 0 }];
    let write = FileBatch { direction: Direction::Write, file, memory, len: LEN, copies };
    let transfer = mover.prepare(vec![write]).expect("it is sound");
    let ends = std::array::from_fn(|_| {
        mover.post(&transfer).expect("there is room");
        match transfer.wait(PATIENCE) {
            TransferState::Ended(result) => result,
            other => panic!("it does not end: {other:?}"),
        }
    });
    (ends, failure)
}

#[test]
fn what_the_system_puts_off_is_asked_for_again_but_not_for_ever() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let ([end], failure) = ends(|operation| match ASKED.fetch_add(1, Ordering::Relaxed) {
        0..10 => Err(io::Error::from_raw_os_error(libc::EINTR)),
        10..20 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        _ => carry_out(operation),
    });
    assert_eq!(end.expect("it succeeds in the end").bytes, LEN as u64);
    assert_eq!(failure.get(), None);
    let ([end], failure) = ends(|_| Err(io::Error::from_raw_os_error(libc::EAGAIN)));
    assert_eq!(end, Err(FileError::System { errno: libc::EAGAIN }));
    assert_eq!(failure.get(), None, "what a device does wrong is no fault of a thread");
}

#[test]
fn an_operation_ends_that_its_thread_panics_with_and_it_is_reported() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    // More often than there are threads.
    let ([ends @ .., last], failure) = ends::<5>(|operation| {
        assert!(ASKED.fetch_add(1, Ordering::Relaxed) >= 4, "as it should");
        carry_out(operation)
    });
    assert_eq!(ends, [Err(FileError::System { errno: libc::EIO }); 4]);
    assert!(last.is_ok(), "{last:?}");
    let fault = failure.get().expect("it is reported");
    assert!(fault.thread.starts_with("test-") && fault.cause.contains("as it should"), "{fault}");
}

//! A mover whose operations go as no file system lets them go when it is asked to.

use super::operation::Operation;
use super::threads::{Threads, carry_out};
use super::*;
use crate::private::PrivateMemory;
use crate::slot::TransferState;
use std::sync::atomic::AtomicU32;

/// Nothing takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 1 << 16;

/// The ends of writes one after the other by threads that carry them out so.
fn ends<const N: usize>(carry_out: fn(&Operation) -> io::Result<usize>) -> [Result<FileReport, FileError>; N] {
    let config = FileConfig { name: "test".to_owned(), depth: 2, posted_max: 2, io_uring: false };
    let bell = Arc::new(Doorbell::new().expect("a bell"));
    let threads = Threads::new("test", config.depth, bell.clone(), carry_out).expect("threads");
    let mover = FileMover::with(Engine::Threads(threads), Vec::new(), config, bell, Box::new(|_| {}));
    let mover = mover.expect("it starts");
    let memory = mover.register(Arc::new(PrivateMemory::new(LEN).expect("memory")));
    let folder = tempfile::tempdir().expect("a folder");
    let spec = FileSpec { paths: vec![folder.path().join("a")], bytes: LEN as u64, stripe_bytes: LEN as u64 };
    let file = mover.open(&spec).expect("it opens");
    let copies = vec![FileCopy { file: 0, memory: 0 }];
    let write = FileBatch { direction: Direction::Write, file, memory, len: LEN, copies };
    let transfer = mover.prepare(vec![write]).expect("it is sound");
    std::array::from_fn(|_| {
        mover.post(&transfer).expect("there is room");
        match transfer.wait(PATIENCE) {
            TransferState::Ended(result) => result,
            other => panic!("it does not end: {other:?}"),
        }
    })
}

#[test]
fn what_the_system_puts_off_is_asked_for_again_but_not_for_ever() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let [end] = ends(|operation| match ASKED.fetch_add(1, Ordering::Relaxed) {
        0..10 => Err(io::Error::from_raw_os_error(libc::EINTR)),
        10..20 => Err(io::Error::from_raw_os_error(libc::EAGAIN)),
        _ => carry_out(operation),
    });
    assert_eq!(end.expect("it succeeds in the end").bytes, LEN as u64);
    let [end] = ends(|_| Err(io::Error::from_raw_os_error(libc::EAGAIN)));
    assert_eq!(end, Err(FileError::System { errno: libc::EAGAIN }));
}

#[test]
fn an_operation_ends_that_its_thread_panics_with() {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    // More often than there are threads.
    let [ends @ .., last] = ends::<5>(|operation| {
        assert!(ASKED.fetch_add(1, Ordering::Relaxed) >= 4, "as it should");
        carry_out(operation)
    });
    assert_eq!(ends, [Err(FileError::System { errno: libc::EIO }); 4]);
    assert!(last.is_ok(), "{last:?}");
}

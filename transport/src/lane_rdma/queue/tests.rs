//! What a device refuses, whoever asks: shown with requests that this crate has no call for. They need a device, such as
//! that of `tests/rdma/vm`.

use super::super::rail;
use super::*;
use crate::config::RdmaConfig;
use crate::memory::{DeviceMemory, Memory};
use crate::sealed::SealedMemory;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

const LEN: usize = 4096;
/// What a device says where a key, or a queue pair, does not allow what was asked.
const REFUSED: [u32; 2] = [sys::ibv_wc_status::IBV_WC_REM_ACCESS_ERR, sys::ibv_wc_status::IBV_WC_REM_INV_REQ_ERR];

/// An owner and a peer on one rail, connected to each other, with a registered memory each.
struct Ends {
    owner: Arc<dyn Memory>,
    own: Arc<dyn Memory>,
    peer: QueuePair,
    owner_pair: QueuePair,
    completions: Completions,
    rail: Rail,
}

/// A queue pair of a careless program: it may post anything, and lets its peer do what `lets` says.
fn careless(rail: &Rail, completions: &Completions, lets: AccessFlags) -> QueuePair {
    let mut builder = rail.domain.create_qp_builder();
    builder.setup_send_cq(completions.0.clone()).setup_recv_cq(completions.0.clone());
    let mut new = QueuePair { pair: GenericQueuePair::from(builder.build().expect("a queue pair")), packet: 7 };
    let mut attributes = QueuePairAttribute::new();
    attributes.setup_state(QueuePairState::Init).setup_pkey_index(0).setup_port(rail.number).setup_access_flags(lets);
    new.modify(&attributes).expect("it can be initialised");
    new
}

/// The two ends, the owner's queue pair made as always or, if `careless_owner`, letting its peer write. `None`, and a line
/// that says so: there is no device.
fn ends(careless_owner: bool) -> Option<Ends> {
    let mut rails = match rail::open(&RdmaConfig::default()) {
        Ok(rails) => rails,
        Err(reason) => {
            println!("skipped: it takes an RDMA device ({reason}); see tests/rdma");
            return None;
        }
    };
    let rail = rails.remove(0);
    let memory = |byte| -> Arc<dyn Memory> {
        let memory = SealedMemory::new("test", LEN).expect("memory");
        // SAFETY: it is as long, and nobody else's.
        unsafe { memory.as_ptr().write_bytes(byte, LEN) };
        Arc::new(memory)
    };
    let (owner, own) = (memory(1), memory(2));
    rail.register(&owner).expect("it can be registered");
    rail.register(&own).expect("it can be registered");
    let completions = Completions::new(&rail, 16, 0).expect("a completion queue");
    let mut owner_pair = if careless_owner {
        careless(&rail, &completions, AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RemoteWrite)
    } else {
        QueuePair::new(&rail, &completions, 1, true).expect("a queue pair")
    };
    let mut peer = careless(&rail, &completions, AccessFlags::none());
    let port = rail.port().expect("it is active");
    let depth = Depth { reads: 1, reads_of_peer: 1 };
    owner_pair.connect(&port, &port.address, peer.number(), depth).expect("it connects");
    peer.connect(&port, &port.address, owner_pair.number(), depth).expect("it connects");
    Some(Ends { owner, own, peer, owner_pair, completions, rail })
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
        let (owner, own) = (self.rail.keys(&self.owner).expect("keys"), self.rail.keys(&self.own).expect("keys"));
        let read = Read {
            id: 1,
            remote_key: owner.remote,
            remote_address: self.owner.as_ptr() as u64 + offset as u64,
            local_key: own.local,
            local_address: self.own.as_ptr() as u64,
            len: len as u32,
        };
        // SAFETY: the destination is registered, as long, and nobody else's.
        self.status(|peer| unsafe { peer.read([&read]).expect("it can be posted") })
    }

    /// The peer writes over the owner's first bytes; the status.
    fn write(&mut self) -> u32 {
        let (owner, own) = (self.rail.keys(&self.owner).expect("keys"), self.rail.keys(&self.own).expect("keys"));
        let (to, from) = (self.owner.as_ptr() as u64, self.own.as_ptr() as u64);
        self.status(|peer| {
            let mut posting = peer.pair.start_post_send();
            let request = posting.construct_wr(1, WorkRequestFlags::Signaled).setup_write(owner.remote, to);
            // SAFETY: the source is registered and as long.
            unsafe { request.setup_sge(own.local, from, 64) };
            posting.post().expect("it can be posted");
        })
    }

    fn bytes(memory: &Arc<dyn Memory>) -> &[u8] {
        // SAFETY: it is as long, and what was posted has completed.
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), LEN) }
    }
}

#[test]
fn a_write_is_refused_by_the_queue_pair() {
    let Some(mut ends) = ends(false) else { return };
    assert_eq!(ends.read(8, 16), 0, "reading works");
    assert!(!ends.owner_pair.has_failed());
    assert_eq!(Ends::bytes(&ends.own)[..17], [[1; 16].as_slice(), &[2]].concat());
    let status = ends.write();
    assert!(REFUSED.contains(&status), "{}", describe(status));
    assert!(ends.owner_pair.has_failed(), "the owner sees that something was refused");
    assert_eq!(Ends::bytes(&ends.owner), [1; LEN]);
}

#[test]
fn a_write_is_refused_by_the_key() {
    let Some(mut ends) = ends(true) else { return };
    assert_eq!(ends.read(0, 1), 0, "reading works");
    let status = ends.write();
    assert!(REFUSED.contains(&status), "{}", describe(status));
    assert_eq!(Ends::bytes(&ends.owner), [1; LEN]);
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
    let Some(ends) = ends(false) else { return };
    let memory: Arc<dyn Memory> = Arc::new(Exported(tempfile::tempfile().expect("a file")));
    let refused = ends.rail.register(&memory).expect_err("it is no dma-buf");
    assert!(refused.contains("bytes of a device cannot be registered") && refused.contains("dma-buf"), "{refused}");
    assert_eq!(ends.rail.keys(&memory), None);
}

#[test]
fn a_read_that_leaves_the_region_is_refused() {
    let Some(mut ends) = ends(false) else { return };
    assert_eq!(ends.read(LEN - 8, 8), 0, "reading works");
    let status = ends.read(LEN - 8, 9);
    assert!(REFUSED.contains(&status), "{}", describe(status));
    assert!(ends.owner_pair.has_failed(), "the owner sees that something was refused");
    assert_eq!(Ends::bytes(&ends.own)[8..], [2; LEN - 8]);
}

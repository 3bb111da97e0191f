//! What is asked of the system about processors and memory nodes: who this process is, where a thread stays, where
//! pages go.
//!
//! Nothing depends on an answer but speed: what the system refuses, as containers may, is told once and left.

use super::cpu_topology::{Affinity, Host, PROCESSORS_MAX};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs;
use std::io;
use std::sync::Once;

/// Nodes that the kernel takes a mask of.
const NODES_MAX: usize = 1024;
const NODE_WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// The host that this process runs on, as far as the calling thread may use it.
pub(super) fn host() -> Host {
    let allowed =
        sched_getaffinity(None).map_or(Vec::new(), |set| (0..PROCESSORS_MAX).filter(|&it| set.is_set(it)).collect());
    Host::read(&allowed, |path| fs::read_to_string(format!("/sys/devices/system/{path}")).ok())
}

/// Returns the memory node of all processors that the calling thread may use; none where they are of several.
pub fn own_node() -> Option<usize> {
    host().own_node()
}

/// Keeps the calling thread on the processors of its place.
pub(super) fn settle(place: &Affinity) {
    static TOLD: Once = Once::new();
    if place.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    place.iter().for_each(|&processor| set.set(processor));
    if let Err(error) = sched_setaffinity(None, &set) {
        TOLD.call_once(|| tracing::warn!(%error, "threads do not stay on their processors: the system refuses"));
    }
}

/// The processor that the calling thread runs on now.
pub(super) fn processor() -> usize {
    sched_getcpu()
}

/// Moves the calling thread elsewhere, if it runs on that processor and may run on others, and lets it run on all
/// of them again: some systems wake threads that shall work side by side on one processor while another one
/// sleeps, and part them only after milliseconds.
pub(super) fn leave(processor: usize) {
    if sched_getcpu() != processor {
        return;
    }
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(processor);
    if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
        return;
    }
    // All that the host could have: the system takes those of the process's cpuset, and goes on to when that
    // changes. Where somebody asked for fewer than those, as `taskset` and `settle` do, it is told so.
    let mut every = CpuSet::new();
    (0..PROCESSORS_MAX).for_each(|processor| every.set(processor));
    let is_back = sched_setaffinity(None, &every).is_ok() && sched_getaffinity(None) == Ok(allowed);
    if !is_back {
        // They were allowed a moment ago; where they are not any more, the system has put the thread elsewhere by
        // itself.
        let _ = sched_setaffinity(None, &allowed);
    }
}

/// Deals the pages of `bytes` at `start`, none of which was touched yet, over `nodes` in turn. `start` is where a
/// page begins; nothing is done for fewer than two nodes.
pub(super) fn interleave(start: *mut u8, bytes: usize, nodes: &[usize]) {
    static TOLD: Once = Once::new();
    if nodes.len() < 2 {
        return;
    }
    if let Err(error) = set_interleaved(start, bytes, nodes) {
        TOLD.call_once(|| tracing::warn!(%error, "memory is not dealt over the nodes of the host: the system refuses"));
    }
}

fn set_interleaved(start: *mut u8, bytes: usize, nodes: &[usize]) -> io::Result<()> {
    let mut mask = [0 as libc::c_ulong; NODES_MAX / NODE_WORD_BITS];
    for &node in nodes.iter().filter(|&&node| node < NODES_MAX) {
        mask[node / NODE_WORD_BITS] |= 1 << (node % NODE_WORD_BITS);
    }
    // The kernel counts one bit less than it is told.
    let bits = NODES_MAX + 1;
    // SAFETY: the call changes where pages come from that are not there yet, and no byte of memory; the mask has
    // these bits.
    let done = unsafe { libc::syscall(libc::SYS_mbind, start, bytes, libc::MPOL_INTERLEAVE, mask.as_ptr(), bits, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::super::cpu_topology::Pinning;
    use super::*;
    use kv_memory::{Memory, SealedMemory};

    #[test]
    fn a_thread_stays_where_it_is_told_to() {
        let last = host().thread_places(1, Pinning::On).threads[0].pop().expect("there is a processor");
        std::thread::spawn(move || {
            settle(&vec![last]);
            let set = sched_getaffinity(None).expect("a thread may know its own");
            assert!(set.is_set(last) && set.count() == 1);
        })
        .join()
        .expect("it stays there");
    }

    #[test]
    fn a_thread_leaves_a_processor_and_may_come_back() {
        std::thread::spawn(|| {
            let may = || sched_getaffinity(None).expect("a thread may know its own");
            let before = may();
            for _ in 0..20 {
                leave(processor());
                assert_eq!(may(), before);
            }
            // As after a `taskset`: it does not get more back than it had.
            let given: Vec<_> = (0..PROCESSORS_MAX).filter(|&it| before.is_set(it)).take(2).collect();
            settle(&given);
            let before = may();
            leave(processor());
            assert_eq!(may(), before);
            let one = processor();
            settle(&vec![one]);
            leave(one);
            assert_eq!((processor(), may().count()), (one, 1), "it has no other one");
        })
        .join()
        .expect("it runs on");
    }

    #[test]
    fn pages_are_dealt_over_nodes_or_it_is_known_why_not() {
        let pool = SealedMemory::new("test", 1 << 20).expect("memory");
        match set_interleaved(pool.as_ptr(), pool.len(), &[0]) {
            Ok(()) => {
                let maps = fs::read_to_string("/proc/self/numa_maps").expect("the kernel knows of nodes");
                let start = format!("{:x} ", pool.as_ptr() as usize);
                let ours = maps.lines().find(|line| line.starts_with(&start)).expect("it is mapped");
                assert!(ours.contains("interleave"), "{ours}");
            }
            Err(error) => {
                let refused = [libc::EPERM, libc::ENOSYS].map(Some);
                assert!(refused.contains(&error.raw_os_error()), "{error}");
            }
        }
        // SAFETY: the pool has a first byte, and nobody else knows of it.
        unsafe { pool.as_ptr().write(1) };
    }
}

//! Where the kernel takes the pages of memory from, on hosts with several memory nodes.

use crate::memory::Memory;
use std::io;

/// Nodes that a host may have: the kernel's own bound.
const NODES_MAX: usize = 1024;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

/// Has the kernel take pages of host memory that have none yet from `node`, and from others when that is full. Does
/// nothing for memory of a device. Errors: of the system; containers often forbid it.
///
/// ```
/// use kv_memory::{PrivateMemory, prefer_node};
///
/// let memory = PrivateMemory::new(64 << 10)?;
/// // Every host has a node 0. Where the call is forbidden the memory is as it was.
/// let _ = prefer_node(&memory, 0);
/// assert!(prefer_node(&memory, 5000).is_err(), "no host has so many");
/// # Ok::<_, std::io::Error>(())
/// ```
pub fn prefer_node(memory: &dyn Memory, node: u32) -> io::Result<()> {
    let Some(first) = memory.place().host() else { return Ok(()) };
    let node = node as usize;
    if node >= NODES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no node {node}")));
    }
    let mut mask = [0 as libc::c_ulong; NODES_MAX / WORD_BITS];
    mask[node / WORD_BITS] |= 1 << (node % WORD_BITS);
    // The kernel counts one bit less than it is told.
    let bits = NODES_MAX + 1;
    // SAFETY: the call changes where pages come from that are not there yet, and no byte of memory; the mask has
    // these bits.
    let done =
        unsafe { libc::syscall(libc::SYS_mbind, first, memory.len(), libc::MPOL_PREFERRED, mask.as_ptr(), bits, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

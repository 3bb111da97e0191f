//! A range of bytes, and where it is.

use crate::copier::Copier;
use crate::device::{DeviceFile, DeviceId, DeviceKind};
use crate::host_range::HostRange;
use domain::KvPart;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

/// How a driver exports memory of its device. A driver may know several ways, or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exports<'a> {
    /// To network cards: the dma-buf, and where in it the memory begins, in bytes.
    pub dma_buf: Option<(BorrowedFd<'a>, u64)>,
    /// To network cards: by its address, which a module of the kernel knows (`nvidia_peermem`).
    pub by_address: bool,
    /// To processes of the host, whose devices of the same kind map it.
    pub file: Option<DeviceFile<'a>>,
    /// To processes of the NVLink domain: the fabric handle.
    pub fabric: Option<&'a [u8; 64]>,
}

/// Where memory of a device is, and how it is reached.
#[derive(Clone, Copy)]
pub struct DevicePlace<'a> {
    /// The device.
    pub id: DeviceId,
    /// What drives it.
    pub kind: DeviceKind,
    /// Its address, for network cards that the memory is registered with. The host must not touch it.
    pub address: u64,
    /// How it is exported.
    pub exports: Exports<'a>,
    /// What copies between it and host memory, and to it from memory of devices.
    pub copier: &'a Arc<dyn Copier>,
}

/// Where memory is.
#[derive(Clone, Copy)]
pub enum Place<'a> {
    /// The host's, from this byte on.
    Host(*mut u8),
    /// A device's, which the host reaches by a copier alone.
    Device(DevicePlace<'a>),
}

impl<'a> Place<'a> {
    /// Returns the first byte. `None`: it is a device's.
    pub fn host(self) -> Option<*mut u8> {
        match self {
            Place::Host(first) => Some(first),
            Place::Device(_) => None,
        }
    }

    /// Returns how the device's memory is reached. `None`: it is the host's.
    pub fn device(self) -> Option<DevicePlace<'a>> {
        match self {
            Place::Host(_) => None,
            Place::Device(place) => Some(place),
        }
    }

    /// Returns the address by which network cards know it, and by which memories are told apart. It is no pointer:
    /// [`Place::host`] has that.
    pub fn address(self) -> u64 {
        match self {
            Place::Host(first) => first.addr() as u64,
            Place::Device(place) => place.address,
        }
    }
}

/// Memory that lanes and tiers may read from (as a peer's) or read into (as their own): the host's, or a device's.
///
/// # Safety
/// Others copy by address, and check offsets against [`Memory::len`] alone. For as long as the value lives:
///
/// - [`Memory::place`] and [`Memory::len`] always answer the same, from any thread;
/// - so many bytes of host memory from there on are mapped and readable, and writable if anything reads into them;
/// - a device's are as many from its address on, for network cards that it is exported to;
/// - no reference to any of them is alive while a transfer reads into it. Bytes that are read while their owner
///   writes them arrive torn, as readers expect;
/// - what [`Memory::file`] tells of has as many bytes from there on, and cannot shrink.
///
/// # What cannot be done wrong
/// No code gets a reference to bytes that a transfer may be reading into. There is their address alone, and its users
/// promise, by `unsafe`, that no such transfer is under way:
///
/// ```compile_fail,E0133
/// # use kv_memory::*;
/// # fn main() -> std::io::Result<()> {
/// let memory = SealedMemory::new("pool", 4096)?;
/// memory.as_ptr().write(7);
/// # Ok(())
/// # }
/// ```
///
/// And memory whose kind is not known has no pointer. There is one in its place, if that is in host memory:
///
/// ```compile_fail,E0599
/// # use kv_memory::*;
/// fn first(memory: &dyn Memory) -> *mut u8 {
///     memory.as_ptr()
/// }
/// ```
pub unsafe trait Memory: Send + Sync {
    /// Returns where it is.
    fn place(&self) -> Place<'_>;
    /// Returns bytes.
    fn len(&self) -> usize;
    /// Returns whether it has none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the sealed memfd behind it and where in that it begins, a multiple of the page size: what other
    /// processes of the host map. `None`: they cannot, as with all memory of devices.
    fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
    /// Returns what it is made of, where that is KV which may travel encoded; alike at both ends of a read. `None`: it
    /// travels as it is.
    fn part(&self) -> Option<KvPart> {
        None
    }
}

/// Returns the bytes of `memory`, which they hold. `None`: it is a device's.
pub fn host_range(memory: &Arc<dyn Memory>) -> Option<HostRange> {
    let first = NonNull::new(memory.place().host()?)?;
    // SAFETY: memory of the host is mapped for as long as it lives, at one place.
    Some(unsafe { HostRange::new(first, memory.len(), Arc::new(memory.clone())) })
}

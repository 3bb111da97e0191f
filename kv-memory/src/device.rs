//! A device that has memory of its own, and how other processes are given that.

use std::fmt;
use std::os::fd::BorrowedFd;

/// A device of this host that has memory of its own, by its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// What drives a device. Memory that one device exports to processes of the host is mapped by devices of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// The processor, for host memory as if it were a device's: [`crate::GuardedMemory`].
    Guarded,
    /// NVIDIA's driver.
    Cuda,
}

impl DeviceKind {
    /// All of them, each at its number.
    const ALL: [Self; 2] = [Self::Guarded, Self::Cuda];

    /// Returns the number that other processes know it by.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind of this number. `None`: this release knows none.
    ///
    /// ```
    /// use kv_memory::DeviceKind;
    ///
    /// assert_eq!(DeviceKind::of_number(DeviceKind::Cuda.number()), Some(DeviceKind::Cuda));
    /// assert_eq!(DeviceKind::of_number(200), None);
    /// ```
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Returns the name, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guarded => "guarded",
            Self::Cuda => "cuda",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Memory of a device, as processes of the host are given it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceFile<'a> {
    /// A descriptor of what the driver exports, which is a whole allocation.
    pub file: BorrowedFd<'a>,
    /// Bytes of the allocation.
    pub bytes: u64,
    /// Where in it the memory begins.
    pub offset: u64,
}

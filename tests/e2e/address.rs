//! Addresses that are a test's alone. A port that is asked for, given back and bound later is somebody else's by
//! then, now and then.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

/// Addresses that the tests of one process may take.
const ADDRESSES: u32 = 1024;
/// The first of so many ports, all of which are below those that the system gives out.
const PORTS: u16 = 20_000;

/// An address of this host that nobody else has: those of the loopback network are many.
pub(crate) fn own_address() -> Ipv4Addr {
    static TAKEN: AtomicU32 = AtomicU32::new(1);
    let number = TAKEN.fetch_add(1, Ordering::Relaxed);
    assert!(number < ADDRESSES, "a process has at most so many");
    let host = (std::process::id().wrapping_mul(ADDRESSES) + number) & 0x00ff_ffff;
    Ipv4Addr::from_bits(Ipv4Addr::new(127, 0, 0, 0).to_bits() | host)
}

/// Where nobody else listens. No two have the same port either, which workers may be named after.
pub(crate) fn own_place() -> SocketAddr {
    let address = own_address();
    SocketAddr::from((address, PORTS + (address.to_bits() % ADDRESSES) as u16))
}

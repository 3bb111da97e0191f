//! Random bytes of the system: what tells processes apart, and nonces.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// `N` random bytes. Errors: of the system, which waits for its first entropy if it has to.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

//! The priorities on which an interface pauses its senders (PFC): asked of the kernel over netlink, as `dcb pfc show`
//! does. The numbers are those of Linux's `dcbnl.h` and `rtnetlink.h`.

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::time::Duration;

const RTM_GETDCB: u16 = 78;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const DCB_CMD_IEEE_GET: u8 = 21;
const DCB_ATTR_IFNAME: u16 = 1;
const DCB_ATTR_IEEE: u16 = 13;
const DCB_ATTR_IEEE_PFC: u16 = 2;
/// The kind of an attribute without what else is said beside it.
const KIND: u16 = 0x3fff;
/// Bytes of a message's header, and of what DCB has behind it.
const HEADERS: usize = 16 + 4;
/// An attribute's length and kind.
const ATTRIBUTE: usize = 4;
/// A kernel answers at once.
const ANSWER_MAX: Duration = Duration::from_secs(1);
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// Returns the priorities, a bit each. Errors: the driver does not say, as most of virtual interfaces do not.
pub(super) fn priorities(interface: &str) -> io::Result<u8> {
    // No protocol is that of routes, which DCB is a part of.
    let socket = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
    rustix::net::send(&socket, &question(interface), SendFlags::empty())?;
    let mut bytes = vec![0; ANSWER_BYTES_MAX];
    let (received, _) = rustix::net::recv(&socket, &mut bytes[..], RecvFlags::empty())?;
    answer(&bytes[..received])
}

/// The message that asks for what an interface is set to.
fn question(interface: &str) -> Vec<u8> {
    let name_len = ATTRIBUTE + interface.len() + 1;
    let mut message = Vec::new();
    let len = (HEADERS + name_len.next_multiple_of(4)) as u32;
    message.extend_from_slice(&len.to_ne_bytes());
    message.extend_from_slice(&RTM_GETDCB.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Number and sender, which nobody needs; then the family, which is any, and the command.
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[0, DCB_CMD_IEEE_GET, 0, 0]);
    message.extend_from_slice(&(name_len as u16).to_ne_bytes());
    message.extend_from_slice(&DCB_ATTR_IFNAME.to_ne_bytes());
    message.extend_from_slice(interface.as_bytes());
    message.resize(len as usize, 0);
    message
}

fn answer(message: &[u8]) -> io::Result<u8> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "an answer that is none");
    let kind = message.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]])).ok_or_else(odd)?;
    if kind == NLMSG_ERROR {
        let code = message.get(16..20).and_then(|bytes| bytes.try_into().ok()).map(i32::from_ne_bytes);
        return Err(io::Error::from_raw_os_error(code.ok_or_else(odd)?.wrapping_neg()));
    }
    let all = message.get(HEADERS..).ok_or_else(odd)?;
    let pauses = attribute(all, DCB_ATTR_IEEE).and_then(|nested| attribute(nested, DCB_ATTR_IEEE_PFC));
    match pauses {
        // How many priorities may be paused, and which are.
        Some([_, enabled, ..]) => Ok(*enabled),
        _ => Err(io::Error::other("it does not say")),
    }
}

/// Returns the value of the first attribute of this kind.
fn attribute(mut all: &[u8], wanted: u16) -> Option<&[u8]> {
    while let Some([len_low, len_high, kind_low, kind_high]) = all.first_chunk() {
        let len = usize::from(u16::from_ne_bytes([*len_low, *len_high]));
        let value = all.get(ATTRIBUTE..len)?;
        if u16::from_ne_bytes([*kind_low, *kind_high]) & KIND == wanted {
            return Some(value);
        }
        all = all.get(len.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute_of(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn the_priorities_are_found_among_what_else_is_said() {
        let pauses = attribute_of(DCB_ATTR_IEEE_PFC, &[8, 0b1000, 0, 0, 0, 0]);
        let nested = [attribute_of(1, &[7; 5]), pauses].concat();
        let body =
            [vec![0; 4], attribute_of(DCB_ATTR_IFNAME, b"eth1\0"), attribute_of(DCB_ATTR_IEEE | 0x8000, &nested)];
        let whole = message(RTM_GETDCB, &body.concat());
        assert_eq!(answer(&whole).expect("it says"), 0b1000);
        for len in 0..whole.len() - 6 {
            assert!(answer(&whole[..len]).is_err(), "cut at {len}");
        }
    }

    #[test]
    fn a_refusal_is_an_error() {
        let refused = message(NLMSG_ERROR, &(-95_i32).to_ne_bytes());
        assert_eq!(answer(&refused).map_err(|error| error.raw_os_error()), Err(Some(95)));
        let silent = message(RTM_GETDCB, &[0; 4]);
        assert!(answer(&silent).is_err());
    }

    /// The kernel understands the question: what it refuses is the interface.
    #[test]
    fn this_kernel_answers() {
        let of = |interface| priorities(interface).map_err(|error| error.raw_os_error());
        let (nobody, own) = (of("no-such-nic"), of("lo"));
        assert!(matches!(nobody, Err(Some(libc::ENODEV | libc::EOPNOTSUPP))), "{nobody:?}");
        assert_ne!(own, Err(Some(libc::EINVAL)));
    }
}

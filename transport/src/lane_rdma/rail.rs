//! A rail: one port of one RDMA device, opened, with the memory that is registered there.
//!
//! This file and `queue` are all that touches libibverbs. What is deliberately absent: any permission for peers to write.
//! Regions are registered for local writes (of this agent's own reads) and remote reads, and nothing else.

use super::wire::{GidKind, RAILS_MAX, RailAddress};
use crate::config::RdmaConfig;
use crate::memory::{DeviceMemory, Memory};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::GidType;
use sideway::ibverbs::completion::CompletionChannel;
use sideway::ibverbs::device::{Device, DeviceInfo, DeviceList, GetDeviceListErrorKind};
use sideway::ibverbs::device_context::{DeviceContext, LinkLayer, Mtu, PortState};
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::error::Error;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Devices number their ports from it on.
const FIRST_PORT: u8 = 1;
/// Why nothing can be read over a port.
const NOT_ACTIVE: &str = "its port is not active";
const NO_GID: &str = "its port has no GID that could be used";

/// Reads that one queue pair has under way at most, whatever the devices could: more brings nothing once the wire is full.
const READS_UNDER_WAY_MAX: i32 = 16;

/// A port that queue pairs are made on. Dropped after them.
pub(super) struct Rail {
    /// Device and port, for people.
    pub(super) name: String,
    pub(super) domain: Arc<ProtectionDomain>,
    pub(super) context: Arc<DeviceContext>,
    /// Where the completions of every queue pair of the rail are told.
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) number: u8,
    ethernet: bool,
    /// The entry of the table of GIDs that the configuration names.
    gid_index: Option<u8>,
    /// As it was when it was opened.
    address: RailAddress,
    registered: Mutex<Vec<Registered>>,
}

/// A rail's port as it is at some time: one that went down may come back otherwise.
pub(super) struct Port {
    pub(super) number: u8,
    /// Which entry of the port's table of GIDs it speaks by.
    pub(super) gid_index: u8,
    /// How peers address it.
    pub(super) address: RailAddress,
}

/// Memory that the device may read and write. The registration ends before the memory does: fields drop in this order.
struct Registered {
    region: Arc<MemoryRegion>,
    memory: Arc<dyn Memory>,
    /// How often it was registered and not taken back since.
    times: usize,
}

/// The keys of a memory on one rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// For this agent's own reads into it.
    pub(super) local: u32,
    /// For peers that read it.
    pub(super) remote: u32,
}

/// An error with its causes, for people.
pub(super) fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// Opens a port of each device that `config` wants: the first active one. A device that is named and has none may have one
/// later, but one is needed to begin with. Errors: why there is none, in words.
pub(super) fn open(config: &RdmaConfig) -> Result<Vec<Rail>, String> {
    let devices = DeviceList::new().map_err(|error| match &error.0 {
        // The wrapper of libibverbs says so where it did not find it, and the kernel where it has no verbs.
        GetDeviceListErrorKind::Ibverbs(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            "libibverbs.so.1 not found".to_owned()
        }
        GetDeviceListErrorKind::Ibverbs(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
            "no device: the kernel has no RDMA (modprobe ib_uverbs)".to_owned()
        }
        _ => explain(&error),
    })?;
    let (mut rails, mut any_active) = (Vec::new(), false);
    let mut passed_over = Vec::new();
    let is_named = !config.devices.is_empty();
    for device in &devices {
        // Several are used where they are named alone.
        let (wanted, most) = match is_named {
            false => (true, 1),
            true => (config.devices.contains(&device.name()), RAILS_MAX),
        };
        if !wanted || rails.len() == most {
            continue;
        }
        match Rail::open(&device, config.gid_index) {
            Ok((rail, is_active)) => {
                any_active |= is_active;
                if is_active || is_named {
                    rails.push(rail);
                }
                if !is_active {
                    passed_over.push(format!("{}: {NOT_ACTIVE}", device.name()));
                }
            }
            Err(reason) => passed_over.push(format!("{}: {reason}", device.name())),
        }
    }
    if any_active && is_named && !passed_over.is_empty() {
        tracing::warn!(reason = passed_over.join("; "), "not every RDMA device that is named can be used now");
    }
    match (!any_active, passed_over.is_empty()) {
        (false, _) => Ok(rails),
        (true, false) => Err(passed_over.join("; ")),
        (true, true) if !is_named => Err("no device".to_owned()),
        (true, true) => Err(format!("no device of the name {}", config.devices.join(" or "))),
    }
}

impl Rail {
    /// Opens the first active port of a device, or its first one. Whether it is active.
    fn open(device: &Device<'_>, gid_index: Option<u8>) -> Result<(Self, bool), String> {
        let context = device.open().map_err(|error| explain(&error))?;
        let limits = context.query_device().map_err(|error| explain(&error))?;
        let active = (1..=limits.phys_port_cnt()).find_map(|number| {
            let port = context.query_port(number).ok()?;
            (port.port_state() == PortState::Active).then_some((number, port))
        });
        let is_active = active.is_some();
        let first = || Ok((FIRST_PORT, context.query_port(FIRST_PORT).map_err(|error| explain(&error))?));
        let (number, attributes) = active.map_or_else(first, Ok::<_, String>)?;
        let ethernet = attributes.link_layer() == LinkLayer::Ethernet;
        let gids = gids(&context, number, ethernet)?;
        let (_, kind, gid) = choose_gid(&gids, gid_index).ok_or(NO_GID)?;
        let channel = context.create_comp_channel().map_err(|error| explain(&error))?;
        channel.set_nonblocking(true).map_err(|error| error.to_string())?;
        let domain = context.alloc_pd().map_err(|error| explain(&error))?;
        let most = |device_max: i32| device_max.clamp(0, READS_UNDER_WAY_MAX) as u8;
        let address = RailAddress {
            kind,
            gid,
            lid: attributes.lid(),
            // Of one that is not active there is none to ask for.
            mtu: if is_active { attributes.active_mtu() } else { Mtu::Mtu256 } as u8,
            reads: most(limits.max_qp_init_rd_atom()),
            reads_of_peers: most(limits.max_qp_rd_atom()),
        };
        let new = Self {
            name: format!("{} port {number}", device.name()),
            domain,
            context,
            channel,
            number,
            ethernet,
            gid_index,
            address,
            registered: Mutex::default(),
        };
        Ok((new, is_active))
    }

    /// How peers addressed it when it was opened: which rail of theirs it belongs to does not change.
    pub(super) fn address(&self) -> RailAddress {
        self.address.clone()
    }

    /// Its port as it is now. Errors: nothing can be read over it now, in words.
    pub(super) fn port(&self) -> Result<Port, String> {
        let attributes = self.context.query_port(self.number).map_err(|error| explain(&error))?;
        if attributes.port_state() != PortState::Active {
            return Err(NOT_ACTIVE.to_owned());
        }
        let gids = gids(&self.context, self.number, self.ethernet)?;
        let is_first =
            |(_, kind, gid): &&(u8, GidKind, [u8; 16])| (*kind, *gid) == (self.address.kind, self.address.gid);
        let same = gids.iter().find(is_first).copied().filter(|_| self.gid_index.is_none());
        let (gid_index, kind, gid) = same.or_else(|| choose_gid(&gids, self.gid_index)).ok_or(NO_GID)?;
        let (lid, mtu) = (attributes.lid(), attributes.active_mtu() as u8);
        let address = RailAddress { kind, gid, lid, mtu, ..self.address };
        Ok(Port { number: self.number, gid_index, address })
    }

    /// Becomes readable when there are completions.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel's descriptor is open as long as the channel, which this value holds.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) }
    }

    /// Lends the device a memory, which is pinned until it was taken back as often as it was lent, or the rail ends. Errors, in words.
    pub(super) fn register(&self, memory: &Arc<dyn Memory>) -> Result<(), String> {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = registered.iter_mut().find(|registered| is_same(&registered.memory, memory)) {
            again.times += 1;
            return Ok(());
        }
        let access = AccessFlags::LocalWrite | AccessFlags::RemoteRead;
        let (address, bytes, device) = (memory.as_ptr() as usize, memory.len(), memory.device());
        // SAFETY: the memory is mapped as long as the value, which is held beside the registration and dropped after it.
        let region = unsafe {
            match device {
                Some(DeviceMemory::DmaBuf { file, offset }) => {
                    self.domain.reg_dmabuf_mr(offset, bytes, address as u64, file.as_raw_fd(), access)
                }
                Some(DeviceMemory::Peer) | None => self.domain.reg_mr(address, bytes, access),
            }
        };
        let region = region.map_err(|error| {
            let reason = explain(&error);
            match device {
                None => format!("{bytes} bytes cannot be registered: {reason} (ulimit -l: locked memory)"),
                Some(DeviceMemory::Peer) => {
                    format!("{bytes} bytes of a device cannot be registered: {reason} (modprobe nvidia_peermem)")
                }
                Some(DeviceMemory::DmaBuf { .. }) => format!(
                    "{bytes} bytes of a device cannot be registered: {reason} \
                     (kernel, rdma-core and the card's driver must take a dma-buf)"
                ),
            }
        })?;
        registered.push(Registered { region, memory: memory.clone(), times: 1 });
        Ok(())
    }

    /// Takes a memory back from the device: who still reads it is refused by the device, unless it is lent once more.
    pub(super) fn deregister(&self, memory: &Arc<dyn Memory>) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain_mut(|registered| {
            registered.times -= usize::from(is_same(&registered.memory, memory));
            registered.times > 0
        });
    }

    /// The keys of a memory that was registered.
    pub(super) fn keys(&self, memory: &Arc<dyn Memory>) -> Option<Keys> {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        let found = registered.iter().find(|registered| is_same(&registered.memory, memory))?;
        Some(Keys { local: found.region.lkey(), remote: found.region.rkey() })
    }
}

/// Whether both are the same bytes, by whatever value they are held.
fn is_same(one: &Arc<dyn Memory>, other: &Arc<dyn Memory>) -> bool {
    (one.as_ptr(), one.len()) == (other.as_ptr(), other.len())
}

/// The entries of a port's table: place, kind, and GID.
fn gids(context: &Arc<DeviceContext>, port: u8, ethernet: bool) -> Result<Vec<(u8, GidKind, [u8; 16])>, String> {
    let table = context.query_gid_table().map_err(|error| explain(&error))?;
    let of_port = table.iter().filter(|entry| entry.port_num() == u32::from(port));
    let entry = |entry: &sideway::ibverbs::address::GidEntry| {
        let kind = match entry.gid_type() {
            GidType::RoceV2 => GidKind::RoceV2,
            GidType::RoceV1 => GidKind::RoceV1,
            // Before the kernel told kinds apart, those of Ethernet were of the first version.
            GidType::InfiniBand if ethernet => GidKind::RoceV1,
            GidType::InfiniBand => GidKind::InfiniBand,
        };
        Some((u8::try_from(entry.gid_index()).ok()?, kind, entry.gid().raw))
    };
    Ok(of_port.filter_map(entry).collect())
}

/// The best entry to speak by, or the one that is `wanted`. Of RoCE the second version, which routers forward; of that an
/// IPv4 address before a global one of IPv6, and one of the link alone last.
fn choose_gid(gids: &[(u8, GidKind, [u8; 16])], wanted: Option<u8>) -> Option<(u8, GidKind, [u8; 16])> {
    if let Some(wanted) = wanted {
        return gids.iter().find(|(index, ..)| *index == wanted).copied();
    }
    let rank = |&(index, kind, gid): &(u8, GidKind, [u8; 16])| {
        let kind = match kind {
            GidKind::InfiniBand | GidKind::RoceV2 => 0,
            GidKind::RoceV1 => 1,
        };
        let address = match gid {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, ..] => 0,
            [0xFE, 0x80, ..] => 2,
            _ => 1,
        };
        (kind, address, index)
    };
    gids.iter().filter(|(_, _, gid)| gid.iter().any(|&byte| byte != 0)).min_by_key(|entry| rank(entry)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IPV4: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 77, 0, 1];
    const LINK: [u8; 16] = [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    const GLOBAL: [u8; 16] = [0x20, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[track_caller]
    fn check(gids: &[(u8, GidKind, [u8; 16])], wanted: Option<u8>, expect: Option<u8>) {
        assert_eq!(choose_gid(gids, wanted).map(|(index, ..)| index), expect);
    }

    #[test]
    fn the_gid_is_one_that_routers_forward() {
        use GidKind::{InfiniBand, RoceV1, RoceV2};
        let both = [(0, RoceV1, LINK), (1, RoceV2, LINK), (2, RoceV1, IPV4), (3, RoceV2, IPV4), (4, RoceV2, GLOBAL)];
        check(&both, None, Some(3));
        check(&both[..3], None, Some(1));
        check(&[both[0], both[2]], None, Some(2));
        check(&[both[1], both[4]], None, Some(4));
        check(&both, Some(2), Some(2));
        check(&both, Some(9), None);
        check(&[(0, InfiniBand, LINK)], None, Some(0));
        check(&[(0, RoceV2, [0; 16])], None, None);
        check(&[], None, None);
    }

    #[test]
    fn without_the_library_or_a_device_there_is_a_reason() {
        // Where there is one, it is opened; nothing here needs it.
        if let Err(reason) = open(&RdmaConfig::default()) {
            assert!(reason.contains("no device") || reason.contains("not found") || reason.contains(": "), "{reason}");
        }
        let nowhere = RdmaConfig { devices: vec!["no-such-device".to_owned()], ..RdmaConfig::default() };
        assert!(open(&nowhere).is_err());
    }
}

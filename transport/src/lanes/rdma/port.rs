//! One port of one RDMA device, opened, with the memory that is registered there.
//!
//! This file and `queue` are all that uses `verbs`. What is deliberately absent: any permission for peers to write.
//! Regions are registered for local writes (of this agent's own reads) and remote reads, and nothing else.

use super::completions::Completions;
use super::error::{DeviceError, MemoryKind, NamedError, joined};
use super::nearness::Nearness;
use super::promise;
use super::verbs::layout::{LINK_ETHERNET, LOCAL_WRITE, MTU_SMALLEST, PORT_ACTIVE, PortAttributes, REMOTE_READ};
use super::verbs::{CompletionChannel, Context, DeviceList, Library, MemoryRegion, ProtectionDomain};
use super::wire::{GidKind, PORTS_MAX, PortAddress};
use crate::agent::config::{RdmaConfig, RdmaService};
use kv_memory::{DevicePlace, Exports, Memory, Place};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Where the system tells of devices.
const SYSTEM: &str = "/sys";
/// Devices number their ports from it on.
const FIRST_PORT: u8 = 1;
/// Reads that one queue pair has under way at most, whatever the devices could: more brings nothing once the wire
/// is full.
const READS_UNDER_WAY_MAX: i32 = 16;

/// A port that queue pairs are made on. Dropped after them.
pub(super) struct Port {
    /// Device and port, for people.
    pub(super) name: String,
    pub(super) domain: Arc<ProtectionDomain>,
    /// Where the completions of every queue pair of the port are told.
    pub(super) channel: Arc<CompletionChannel>,
    /// Those of readers' queue pairs go there.
    pub(super) completions: Arc<Completions>,
    pub(super) number: u8,
    /// How its packets are marked and waited for.
    pub(super) service: RdmaService,
    ethernet: bool,
    /// The entry of the table of GIDs that the configuration names.
    gid_index: Option<u8>,
    /// Where the system tells of the port, and of the card.
    folder: PathBuf,
    card: PathBuf,
    /// As it was when it was opened.
    address: PortAddress,
    registered: Mutex<Vec<Registered>>,
}

/// A port as it is at some time: one that went down may come back otherwise.
pub(super) struct PortState {
    pub(super) number: u8,
    /// Which entry of the port's table of GIDs it speaks by.
    pub(super) gid_index: u8,
    /// How peers address it.
    pub(super) address: PortAddress,
}

/// Memory that the device may read and write. The registration ends before the memory does: fields drop in this order.
struct Registered {
    region: MemoryRegion,
    memory: Arc<dyn Memory>,
    /// How often it was registered and not taken back since.
    times: usize,
}

/// The keys of a memory on one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// For this agent's own reads into it.
    pub(super) local: u32,
    /// For peers that read it.
    pub(super) remote: u32,
}

/// Opens the ports that `config` wants: all that are active, or those of the devices that it names, of which some
/// may be down and come up later, but one is needed to begin with. Those nearest to this process' memory come
/// first. Errors: there is none.
pub(super) fn open(config: &RdmaConfig) -> Result<Vec<Port>, DeviceError> {
    open_by(&Library::of_system()?, Path::new(SYSTEM), config)
}

/// Returns the same by this library, with what the system tells under `system`.
pub(super) fn open_by(library: &Arc<Library>, system: &Path, config: &RdmaConfig) -> Result<Vec<Port>, DeviceError> {
    let devices = DeviceList::new(library).map_err(|error| match error.errno {
        Errno::NOSYS => DeviceError::NoKernel,
        _ => error.into(),
    })?;
    let mut all: Vec<_> = devices.all().collect();
    let near = Nearness::of_process(system);
    all.sort_by_cached_key(|(name, _)| near.distance(&class(system, name).join("device")));
    let mut opened = Opened::default();
    for (name, open) in all.into_iter().filter(|(name, _)| wants(config, name, None)) {
        let context = open().map(Arc::new).map_err(DeviceError::NotOpened);
        let found = context.and_then(|context| {
            let ports = wanted_ports(&context, |port| wants(config, &name, Some(port)))?;
            Ok((context, ports))
        });
        match found {
            Ok((context, ports)) => opened.open_ports(&context, &name, ports, &class(system, &name), config),
            Err(error) => opened.passed_over.push(error.of(name)),
        }
    }
    opened.ports(config)
}

/// Returns whether the configuration wants a device, or one port of it.
fn wants(config: &RdmaConfig, name: &str, port: Option<u8>) -> bool {
    let is_it = |wanted: &String| match wanted.split_once(':') {
        Some((device, number)) => device == name && port.is_none_or(|port| number.parse() == Ok(port)),
        None => *wanted == name,
    };
    config.devices.is_empty() || config.devices.iter().any(is_it)
}

/// What came of opening the ports of all devices.
#[derive(Default)]
struct Opened {
    ports: Vec<Port>,
    any_active: bool,
    /// Those that cannot be used now, or are not opened.
    passed_over: Vec<NamedError>,
}

impl Opened {
    /// Opens ports of one device.
    fn open_ports(
        &mut self,
        context: &Arc<Context>,
        device: &str,
        ports: Vec<(u8, PortAttributes)>,
        class: &Path,
        config: &RdmaConfig,
    ) {
        for (number, attributes) in ports {
            let name = || format!("{device} port {number}");
            let is_active = attributes.state == PORT_ACTIVE;
            if !is_active {
                self.passed_over.push(DeviceError::NotActive.of(name()));
            }
            // One that is down is waited for where it is named.
            if self.ports.len() == PORTS_MAX || (!is_active && config.devices.is_empty()) {
                continue;
            }
            match Port::open(context, (device, number), &attributes, class, config) {
                Ok(port) => {
                    self.any_active |= is_active;
                    self.ports.push(port);
                }
                Err(error) => self.passed_over.push(error.of(name())),
            }
        }
    }

    /// Returns the ports, if one of them is active.
    fn ports(self, config: &RdmaConfig) -> Result<Vec<Port>, DeviceError> {
        let Self { ports, any_active, passed_over } = self;
        match (any_active, passed_over.is_empty(), config.devices.is_empty()) {
            (true, all_are_used, nothing_named) => {
                if !all_are_used && !nothing_named {
                    let reason = joined(&passed_over);
                    tracing::warn!(reason, "not every RDMA device that is named can be used now");
                }
                Ok(ports)
            }
            (false, false, _) => Err(DeviceError::NoneOf(passed_over)),
            (false, true, true) => Err(DeviceError::NoDevice),
            (false, true, false) => Err(DeviceError::NoneNamed(config.devices.clone())),
        }
    }
}

/// Returns where the system tells of a device.
fn class(system: &Path, device: &str) -> PathBuf {
    system.join("class/infiniband").join(device)
}

/// Returns the active ones of a device's ports that are wanted; the first of them where none is active.
fn wanted_ports(context: &Context, wants: impl Fn(u8) -> bool) -> Result<Vec<(u8, PortAttributes)>, DeviceError> {
    let count = context.attributes()?.ports;
    let mut wanted = (FIRST_PORT..=count).filter(|&number| wants(number)).peekable();
    let first = *wanted.peek().ok_or(DeviceError::NoPort)?;
    let asked = wanted.filter_map(|number| Some((number, context.port(number).ok()?)));
    let active: Vec<_> = asked.filter(|(_, port)| port.state == PORT_ACTIVE).collect();
    if active.is_empty() {
        return Ok(vec![(first, context.port(first)?)]);
    }
    Ok(active)
}

impl Port {
    /// Port `number` of a device that is open, of which the system tells in `class`.
    fn open(
        context: &Arc<Context>,
        (device, number): (&str, u8),
        attributes: &PortAttributes,
        class: &Path,
        config: &RdmaConfig,
    ) -> Result<Self, DeviceError> {
        let limits = context.attributes()?;
        let ethernet = attributes.link_layer == LINK_ETHERNET;
        let folder = class.join("ports").join(number.to_string());
        let gids = gids(context, (number, attributes), &folder, ethernet);
        let (_, kind, gid) = choose_gid(&gids, config.gid_index).ok_or(DeviceError::NoGid)?;
        let channel = Arc::new(CompletionChannel::new(context)?);
        let domain = Arc::new(ProtectionDomain::new(context)?);
        let most = |device_max: i32| device_max.clamp(0, READS_UNDER_WAY_MAX) as u8;
        let address = PortAddress {
            kind,
            gid,
            lid: attributes.lid,
            // Of one that is not active there is none to ask for.
            mtu: if attributes.state == PORT_ACTIVE { attributes.mtu as u8 } else { MTU_SMALLEST },
            reads: most(limits.reads_max),
            reads_of_peers: most(limits.reads_of_peers_max),
        };
        Ok(Self {
            name: format!("{device} port {number}"),
            domain,
            completions: Completions::new(&channel, limits.queue_entries_max),
            channel,
            number,
            service: config.service,
            ethernet,
            gid_index: config.gid_index,
            folder,
            card: class.join("device"),
            address,
            registered: Mutex::default(),
        })
    }

    /// Returns how peers addressed it when it was opened: which port of theirs it belongs to does not change.
    pub(super) fn address(&self) -> PortAddress {
        self.address.clone()
    }

    /// Returns what it is like now. Errors: nothing can be read over it now.
    pub(super) fn state(&self) -> Result<PortState, DeviceError> {
        let context = &self.domain.context;
        let attributes = context.port(self.number)?;
        if attributes.state != PORT_ACTIVE {
            return Err(DeviceError::NotActive);
        }
        let gids = gids(context, (self.number, &attributes), &self.folder, self.ethernet);
        let is_first =
            |(_, kind, gid): &&(u8, GidKind, [u8; 16])| (*kind, *gid) == (self.address.kind, self.address.gid);
        let same = gids.iter().find(is_first).copied().filter(|_| self.gid_index.is_none());
        let (gid_index, kind, gid) = same.or_else(|| choose_gid(&gids, self.gid_index)).ok_or(DeviceError::NoGid)?;
        let (lid, mtu) = (attributes.lid, attributes.mtu as u8);
        let address = PortAddress { kind, gid, lid, mtu, ..self.address };
        Ok(PortState { number: self.number, gid_index, address })
    }

    /// Returns the bytes a second that it promises to bring, if the system tells.
    pub(super) fn promised(&self) -> Option<f64> {
        promise::of_port(&self.folder, &self.card)
    }

    /// Becomes readable when there are completions.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Lends the device a memory, which is pinned until it was taken back as often as it was lent, or the port is
    /// dropped.
    pub(super) fn register(&self, memory: &Arc<dyn Memory>) -> Result<(), DeviceError> {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = registered.iter_mut().find(|registered| is_same(&registered.memory, memory)) {
            again.times += 1;
            return Ok(());
        }
        let access = LOCAL_WRITE | REMOTE_READ;
        let (address, bytes) = (memory.place().address() as usize, memory.len());
        let (kind, dma_buf) = match memory.place() {
            Place::Host(_) => (MemoryKind::Host, None),
            Place::Device(DevicePlace { exports: Exports { dma_buf: Some(dma_buf), .. }, .. }) => {
                (MemoryKind::DmaBuf, Some(dma_buf))
            }
            Place::Device(DevicePlace { exports: Exports { by_address: true, .. }, .. }) => (MemoryKind::Peer, None),
            Place::Device(device) => return Err(DeviceError::NotExported(device.id)),
        };
        let region = match dma_buf {
            Some((file, offset)) => {
                let lent = self.domain.register_dma_buf((file.as_raw_fd(), offset), address, bytes, access);
                lent.ok_or(DeviceError::NoDmaBuf)?
            }
            // SAFETY: the memory is mapped as long as the value, which is held beside the registration and dropped
            // after it.
            None => unsafe { self.domain.register(address, bytes, access) },
        };
        let region = region.map_err(|source| DeviceError::NotRegistered { bytes, kind, source })?;
        registered.push(Registered { region, memory: memory.clone(), times: 1 });
        Ok(())
    }

    /// Takes a memory back from the device, which refuses peers that still read it, unless it is lent once more.
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
        Some(Keys { local: found.region.local_key(), remote: found.region.remote_key() })
    }
}

/// Returns whether both are the same bytes, by whatever value they are held.
fn is_same(one: &Arc<dyn Memory>, other: &Arc<dyn Memory>) -> bool {
    (one.place().address(), one.len()) == (other.place().address(), other.len())
}

/// The entries of a port's table that are set: place, kind, and GID.
fn gids(
    context: &Context,
    (port, attributes): (u8, &PortAttributes),
    folder: &Path,
    ethernet: bool,
) -> Vec<(u8, GidKind, [u8; 16])> {
    let count = attributes.gids.clamp(0, i32::from(u8::MAX)) as u8;
    let entry = |index: u8| {
        let gid = context.gid(port, index).ok().filter(|gid| gid.iter().any(|&byte| byte != 0))?;
        let said = std::fs::read_to_string(folder.join("gid_attrs/types").join(index.to_string()));
        let kind = match said.as_deref().map(str::trim) {
            Ok("RoCE v2") => GidKind::RoceV2,
            // Of one name with those of InfiniBand; and before the kernel told kinds apart, all were of the first
            // version.
            _ if ethernet => GidKind::RoceV1,
            _ => GidKind::InfiniBand,
        };
        Some((index, kind, gid))
    };
    (0..count).filter_map(entry).collect()
}

/// The best entry to speak by, or the one that is `wanted`. Of RoCE the second version, which routers forward; of
/// that an IPv4 address before a global one of IPv6, and one of the link alone last.
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
    gids.iter().min_by_key(|entry| rank(entry)).copied()
}

#[cfg(test)]
mod tests {
    use super::super::verbs::layout::RELAXED_ORDERING;
    use super::super::verbs::pretended::{self, ACCESS, OPEN_ERROR, PretendedDevice, REGISTERED};
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
        check(&[], None, None);
    }

    const FIRST: PretendedDevice = PretendedDevice { name: c"a", ports_up: &[true, true] };
    const SECOND: PretendedDevice = PretendedDevice { name: c"b", ports_up: &[false, true] };
    const DOWN: PretendedDevice = PretendedDevice { name: c"c", ports_up: &[false] };

    /// The names of the ports of these devices, as the system tells of them, where `named` are wanted. Errors: why
    /// there is none.
    fn opened(devices: &[PretendedDevice], system: &Path, named: &[&str]) -> Result<Vec<String>, DeviceError> {
        let devices_named = named.iter().map(ToString::to_string).collect();
        let config = RdmaConfig { devices: devices_named, ..RdmaConfig::default() };
        let ports = open_by(&pretended::library(devices), system, &config)?;
        Ok(ports.into_iter().map(|port| port.name).collect())
    }

    #[test]
    fn all_active_ports_are_used_unless_some_are_named() {
        let nowhere = Path::new("/nowhere");
        let all = [FIRST, SECOND, DOWN];
        let opened = |named: &[&str]| opened(&all, nowhere, named).expect("some are active");
        assert_eq!(opened(&[]), ["a port 1", "a port 2", "b port 2"]);
        assert_eq!(opened(&["a:2", "b"]), ["a port 2", "b port 2"]);
        assert_eq!(opened(&["a:1", "c"]), ["a port 1", "c port 1"], "one that is named is waited for");
        assert_eq!(opened(&["a:1", "b:1"]), ["a port 1", "b port 1"]);
        let many = [FIRST; 5];
        let count =
            super::open_by(&pretended::library(&many), nowhere, &RdmaConfig::default()).map(|ports| ports.len());
        assert_eq!(count.expect("they are active"), PORTS_MAX);
    }

    #[test]
    fn the_nearest_cards_come_first() {
        let system = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = system.path().join(path);
            std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it can be made");
            std::fs::write(path, text).expect("it can be written");
        };
        // Whatever processors this process may run on, they are of the first node.
        write("devices/system/node/node0/cpulist", "0-4095\n");
        write("devices/system/node/node0/distance", "10 21\n");
        write("devices/system/node/node1/cpulist", "\n");
        write("class/infiniband/a/device/numa_node", "1\n");
        write("class/infiniband/b/device/numa_node", "0\n");
        assert_eq!(opened(&[FIRST, SECOND], system.path(), &[]).expect("they are active")[0], "b port 2");
        write("class/infiniband/a/device/numa_node", "0\n");
        assert_eq!(opened(&[FIRST, SECOND], system.path(), &[]).expect("they are active")[0], "a port 1");
    }

    #[test]
    fn the_kind_of_a_gid_is_what_the_system_says() {
        let system = tempfile::tempdir().expect("a folder");
        let kinds = system.path().join("class/infiniband/a/ports/1/gid_attrs/types");
        std::fs::create_dir_all(&kinds).expect("it can be made");
        std::fs::write(kinds.join("0"), "IB/RoCE v1\n").expect("it can be written");
        std::fs::write(kinds.join("2"), "RoCE v2\n").expect("it can be written");
        let config = RdmaConfig { devices: vec!["a:1".to_owned()], ..RdmaConfig::default() };
        let ports = open_by(&pretended::library(&[FIRST]), system.path(), &config).expect("it is active");
        let state = ports[0].state().expect("it is active");
        assert_eq!((state.gid_index, state.address.kind, state.address.gid[15]), (2, GidKind::RoceV2, 3));
        assert_eq!((state.address.reads, state.address.reads_of_peers), (16, 4));
    }

    #[test]
    fn without_a_device_there_is_a_reason() {
        let nowhere = Path::new("/nowhere");
        let reason = |devices: &[PretendedDevice], named: &[&str]| {
            opened(devices, nowhere, named).expect_err("there is no port").to_string()
        };
        assert_eq!(reason(&[], &[]), "no device");
        assert_eq!(reason(&[FIRST], &["x", "y"]), "no device of the name x or y");
        assert_eq!(reason(&[DOWN], &[]), "c port 1: its port is not active");
        assert_eq!(reason(&[FIRST], &["a:3"]), "a: it has no such port");
        OPEN_ERROR.set(libc::EACCES);
        let refused = reason(&[FIRST], &[]);
        OPEN_ERROR.set(0);
        assert!(refused.contains("a: Permission denied") && refused.contains("/dev/infiniband"), "{refused}");
    }

    #[test]
    fn memory_is_lent_with_what_the_library_knows() {
        let system = Path::new("/nowhere");
        let library = pretended::library(&[FIRST]);
        let ports = open_by(&library, system, &RdmaConfig::default()).expect("it is active");
        let memory: Arc<dyn Memory> = Arc::new(kv_memory::SealedMemory::new("test", 4096).expect("memory"));
        ports[0].register(&memory).expect("it is lent");
        assert_eq!(ACCESS.get(), LOCAL_WRITE | REMOTE_READ | RELAXED_ORDERING);
        ports[0].register(&memory).expect("it is lent once more");
        assert_eq!(REGISTERED.get(), 1);
        ports[0].deregister(&memory);
        assert!(ports[0].keys(&memory).is_some());
        ports[0].deregister(&memory);
        assert_eq!((REGISTERED.get(), ports[0].keys(&memory)), (0, None));
    }
}

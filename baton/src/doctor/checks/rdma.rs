//! RDMA devices: whether they are there, up, addressed, and without errors.

use crate::doctor::Patient;
use crate::doctor::finding::Finding;
use crate::doctor::host::{Fact, Host};

const CLASS: &str = "/sys/class/infiniband";
/// Counters that stay at nought on a port without trouble.
const COUNTERS: [&str; 8] = [
    "counters/symbol_error",
    "counters/link_error_recovery",
    "counters/link_downed",
    "counters/port_rcv_errors",
    "counters/local_link_integrity_errors",
    "hw_counters/out_of_sequence",
    "hw_counters/packet_seq_err",
    "hw_counters/local_ack_timeout_err",
];
/// Priorities that a RoCE device may mark.
const PRIORITIES: u32 = 8;

/// A port of a device.
struct Port {
    device: String,
    number: String,
    path: String,
}

impl Port {
    fn all(host: &Host) -> Vec<Self> {
        let ports = |device: String| {
            let folder = format!("{CLASS}/{device}/ports");
            let port = move |number: String| Self {
                path: format!("{CLASS}/{device}/ports/{number}"),
                device: device.clone(),
                number,
            };
            host.folder(&folder).into_iter().map(port).collect::<Vec<_>>()
        };
        host.folder(CLASS).into_iter().flat_map(ports).collect()
    }

    fn name(&self) -> String {
        format!("{} port {}", self.device, self.number)
    }

    fn is_ethernet(&self, host: &Host) -> bool {
        host.file(&format!("{}/link_layer", self.path)).is_some_and(|layer| layer == "Ethernet")
    }
}

/// The network interfaces of a device.
fn interfaces(host: &Host, device: &str) -> Vec<String> {
    host.folder(&format!("{CLASS}/{device}/device/net"))
}

/// The devices, and the files that programs use them by.
pub(super) fn devices(patient: &Patient<'_>) -> Vec<Finding> {
    let host = patient.host;
    let devices = host.folder(CLASS);
    if devices.is_empty() {
        return vec![Finding::absent("no RDMA device: KV goes over shm within the host and over tcp beyond it")];
    }
    let files = host.folder("/dev/infiniband").iter().filter(|name| name.starts_with("uverbs")).count();
    let mut findings = vec![Finding::of(
        files >= devices.len(),
        format!("{} ({files} of {} in /dev/infiniband)", devices.join(", "), devices.len()),
        "modprobe ib_uverbs; for a container: --device /dev/infiniband --cap-add IPC_LOCK, or the RDMA device plugin",
    )];
    let library = host.look(Fact::Library("libibverbs.so.1"));
    findings.push(match library {
        Some(path) => Finding::good(format!("libibverbs: {path}")),
        None => Finding::bad("libibverbs.so.1 is not installed", "apt install libibverbs1 ibverbs-providers"),
    });
    findings
}

/// Whether ports are up, and how fast.
pub(super) fn ports(patient: &Patient<'_>) -> Vec<Finding> {
    let host = patient.host;
    let port = |port: Port| {
        let state = host.file(&format!("{}/state", port.path)).unwrap_or_else(|| "unknown".to_owned());
        let physical = host.file(&format!("{}/phys_state", port.path)).unwrap_or_else(|| "unknown".to_owned());
        let rate = host.file(&format!("{}/rate", port.path)).unwrap_or_else(|| "unknown rate".to_owned());
        let what = format!("{}: {state}, {physical}, {rate}", port.name());
        let mend = match interfaces(host, &port.device).first() {
            Some(interface) => format!("ip link set {interface} up; then look at cable and switch port"),
            None => "look at cable and switch port; InfiniBand needs a subnet manager (opensm)".to_owned(),
        };
        Finding::of(state.ends_with("ACTIVE"), what, mend)
    };
    Port::all(host).into_iter().map(port).collect()
}

/// Whether RoCE ports have an address of the second version, which routers forward and switches can mark.
pub(super) fn gids(patient: &Patient<'_>) -> Vec<Finding> {
    let host = patient.host;
    let port = |port: Port| {
        let is_set = |gid: &str| gid.bytes().any(|digit| !matches!(digit, b'0' | b':'));
        let gids: Vec<(String, String)> = host
            .folder(&format!("{}/gids", port.path))
            .into_iter()
            .filter(|number| host.file(&format!("{}/gids/{number}", port.path)).is_some_and(|gid| is_set(&gid)))
            .map(|number| {
                let kind = host.file(&format!("{}/gid_attrs/types/{number}", port.path));
                (number, kind.unwrap_or_else(|| "IB".to_owned()))
            })
            .collect();
        let usable =
            if port.is_ethernet(host) { gids.iter().find(|(_, kind)| kind == "RoCE v2") } else { gids.first() };
        match usable {
            Some((number, kind)) => Finding::good(format!("{}: GID {number} is {kind}", port.name())),
            None => {
                let interface = interfaces(host, &port.device).into_iter().next().unwrap_or_else(|| "IFACE".to_owned());
                let what = format!("{}: none of {} GIDs is of RoCE v2", port.name(), gids.len());
                Finding::bad(what, format!("give the interface an address: ip addr add ADDRESS/24 dev {interface}"))
            }
        }
    };
    Port::all(host).into_iter().map(port).collect()
}

/// Errors that ports counted.
pub(super) fn counters(patient: &Patient<'_>) -> Vec<Finding> {
    let host = patient.host;
    let port = |port: Port| {
        let count = |name: &&str| {
            let count = host.number(&format!("{}/{name}", port.path)).filter(|&count| count > 0)?;
            Some(format!("{} {count}", name.rsplit('/').next().unwrap_or(name)))
        };
        let counted: Vec<String> = COUNTERS.iter().filter_map(count).collect();
        let what = if counted.is_empty() { "no errors".to_owned() } else { counted.join(", ") };
        let mend =
            "replace the cable or the transceiver, then clear: perfquery -R; a link that went down often is flapping";
        Finding::of(counted.is_empty(), format!("{}: {what}", port.name()), mend)
    };
    Port::all(host).into_iter().map(port).collect()
}

/// Whether RoCE devices answer congestion: without marks (ECN) or pauses (PFC) a full queue drops, and a drop costs RDMA a
/// timeout.
pub(super) fn congestion(patient: &Patient<'_>) -> Vec<Finding> {
    let host = patient.host;
    let ethernet = Port::all(host).into_iter().filter(|port| port.is_ethernet(host));
    let interfaces = ethernet.filter_map(|port| interfaces(host, &port.device).into_iter().next());
    interfaces.flat_map(|interface| [marks(host, &interface), pauses(host, &interface)]).collect()
}

fn marks(host: &Host, interface: &str) -> Finding {
    let marks = |side: &str| {
        let enabled = |priority| host.number(&format!("/sys/class/net/{interface}/ecn/{side}/enable/{priority}"));
        let all: Vec<i64> = (0..PRIORITIES).filter_map(enabled).collect();
        (!all.is_empty()).then(|| all.contains(&1))
    };
    match (marks("roce_np"), marks("roce_rp")) {
        (Some(true), Some(true)) => Finding::good(format!("{interface}: ECN is on for RoCE")),
        (None, None) => Finding::advice(
            format!("{interface}: its driver does not say whether ECN is on"),
            format!("ask the vendor's tool (mlnx_qos -i {interface}, niccli)"),
        ),
        _ => Finding::bad(
            format!("{interface}: ECN is off for RoCE on every priority"),
            format!(
                "mlnx_qos -i {interface} --trust dscp; echo 1 > /sys/class/net/{interface}/ecn/roce_np/enable/3; \
                 the same for roce_rp, and on the switch"
            ),
        ),
    }
}

/// Pauses are advice: a network whose switches mark well, or whose devices repeat cheaply, does without.
fn pauses(host: &Host, interface: &str) -> Finding {
    let said = host.look(Fact::Pauses(interface)).unwrap_or_else(|| "it was not asked".to_owned());
    let mend = format!(
        "dcb pfc set dev {interface} prio-pfc 3:on (or mlnx_qos -i {interface} --pfc 0,0,0,1,0,0,0,0), and on the switch"
    );
    match said.parse::<u8>() {
        Ok(0) => Finding::advice(format!("{interface}: PFC is off on every priority: a burst is dropped"), mend),
        Ok(mask) => {
            let on: Vec<String> =
                (0..PRIORITIES).filter(|priority| mask >> priority & 1 == 1).map(|it| it.to_string()).collect();
            Finding::good(format!("{interface}: PFC is on for priority {}", on.join(", ")))
        }
        Err(_) => Finding::advice(
            format!("{interface}: whether PFC is on is not known: {said}"),
            format!("ask the vendor's tool (mlnx_qos -i {interface}, niccli); {mend}"),
        ),
    }
}

/// Whether a NIC can read GPU memory.
pub(super) fn peer_memory(patient: &Patient<'_>) -> Vec<Finding> {
    let host = patient.host;
    let Some(driver) = host.file("/proc/driver/nvidia/version") else { return Vec::new() };
    if host.folder(CLASS).is_empty() {
        return Vec::new();
    }
    if host.file("/sys/module/nvidia_peermem/version").is_some()
        || !host.folder("/sys/module/nvidia_peermem").is_empty()
    {
        return vec![Finding::good("nvidia_peermem is loaded")];
    }
    // dma-buf needs the open kernel modules, and Linux 5.12.
    let open = driver.contains("Open Kernel Module");
    let finding = Finding::of(
        open && kernel(host) >= (5, 12),
        if open {
            "GPU memory is exported as dma-buf"
        } else {
            "neither nvidia_peermem nor the open kernel modules are loaded"
        },
        "modprobe nvidia_peermem, or install the open kernel modules (nvidia-open) for dma-buf",
    );
    vec![finding]
}

/// The kernel's version.
fn kernel(host: &Host) -> (u32, u32) {
    let release = host.file("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether the host has RDMA devices.
pub(super) fn is_present(host: &Host) -> bool {
    !host.folder(CLASS).is_empty()
}

/// The interfaces of all RDMA devices.
pub(super) fn all_interfaces(host: &Host) -> Vec<String> {
    host.folder(CLASS).iter().flat_map(|device| interfaces(host, device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernels_version_is_read_out_of_its_release() {
        let of = |release: &str| {
            let fact = serde_json::json!({ "file /proc/sys/kernel/osrelease": release }).to_string();
            kernel(&Host::recorded(&fact).unwrap())
        };
        assert_eq!([of("5.12.0-rc1"), of("6.8.0-41-generic"), of("")], [(5, 12), (6, 8), (0, 0)]);
    }
}

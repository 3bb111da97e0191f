//! RDMA devices: whether they are there, up, addressed, and without errors.

use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::{Fact, Host};

pub(super) const CLASS: &str = "/sys/class/infiniband";
/// By which programs use devices.
const FILES: &str = "/dev/infiniband";
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

/// Returns the network interfaces of a device.
fn interfaces(host: &Host, device: &str) -> Vec<String> {
    host.folder(&format!("{CLASS}/{device}/device/net"))
}

/// Returns the devices, and the files that programs use them by.
pub(super) fn devices(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let devices = host.folder(CLASS);
    if devices.is_empty() {
        return vec![Finding::absent("no RDMA device: KV goes over shm within the host and over tcp beyond it")];
    }
    let files = host.folder(FILES);
    let files: Vec<&String> = files.iter().filter(|name| name.starts_with("uverbs")).collect();
    let mut findings = vec![Finding::of(
        files.len() >= devices.len(),
        format!("{} ({} of {} in {FILES})", devices.join(", "), files.len(), devices.len()),
        "modprobe ib_uverbs; for a container: --device /dev/infiniband --cap-add IPC_LOCK, or the RDMA device plugin",
    )];
    for name in files {
        let path = format!("{FILES}/{name}");
        if let Some(refused) = host.look(Fact::Open(&path)).filter(|said| said != "yes") {
            let fix =
                format!("chmod 666 {path}, or a udev rule for it; a container wants it in its cgroup: --device {path}");
            findings.push(Finding::bad(format!("{path} cannot be opened: {refused}"), fix));
        }
    }
    findings.push(match host.look(Fact::Verbs).as_deref() {
        Some("yes") => Finding::good("libibverbs is there"),
        said => Finding::bad(
            said.unwrap_or("whether libibverbs is there was not asked"),
            "apt install libibverbs1 ibverbs-providers",
        ),
    });
    if let Some(reason) = subject.settings.rdma_is_off() {
        findings.push(Finding::advice(
            format!("the lane rdma is not taken: {reason}"),
            "change that where KV is to go over rdma",
        ));
    }
    findings
}

/// Returns whether ports are up, and how fast.
pub(super) fn ports(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let port = |port: Port| {
        let state = host.file(&format!("{}/state", port.path)).unwrap_or_else(|| "unknown".to_owned());
        let physical = host.file(&format!("{}/phys_state", port.path)).unwrap_or_else(|| "unknown".to_owned());
        let rate = host.file(&format!("{}/rate", port.path)).unwrap_or_else(|| "unknown rate".to_owned());
        let what = format!("{}: {state}, {physical}, {rate}", port.name());
        let fix = match interfaces(host, &port.device).first() {
            Some(interface) => format!("ip link set {interface} up; then look at cable and switch port"),
            None => "look at cable and switch port; InfiniBand needs a subnet manager (opensm)".to_owned(),
        };
        Finding::of(state.ends_with("ACTIVE"), what, fix)
    };
    Port::all(host).into_iter().map(port).collect()
}

/// Returns whether RoCE ports have an address of the second version, which routers forward and switches can mark.
pub(super) fn gids(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
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
pub(super) fn counters(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let port = |port: Port| {
        let count = |name: &&str| {
            let count = host.number(&format!("{}/{name}", port.path)).filter(|&count| count > 0)?;
            Some(format!("{} {count}", name.rsplit('/').next().unwrap_or(name)))
        };
        let counted: Vec<String> = COUNTERS.iter().filter_map(count).collect();
        let what = if counted.is_empty() { "no errors".to_owned() } else { counted.join(", ") };
        let fix =
            "replace the cable or the transceiver, then clear: perfquery -R; a link that went down often is flapping";
        Finding::of(counted.is_empty(), format!("{}: {what}", port.name()), fix)
    };
    Port::all(host).into_iter().map(port).collect()
}

/// Returns whether RoCE devices answer congestion on the priority of the lane's packets: without marks (ECN) or pauses
/// (PFC) a full queue drops, and a drop costs RDMA a timeout.
pub(super) fn congestion(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let ethernet = Port::all(host).into_iter().filter(|port| port.is_ethernet(host));
    let interfaces = ethernet.filter_map(|port| interfaces(host, &port.device).into_iter().next());
    let class = subject.settings.traffic_class;
    interfaces.flat_map(|interface| [marks(host, &interface, class), pauses(host, &interface, class)]).collect()
}

/// The priority of packets of a traffic class, as cards and switches that trust the DSCP map it unless they were
/// told otherwise: the DSCP over eight.
fn priority(traffic_class: u8) -> u32 {
    u32::from(traffic_class >> 2 >> 3)
}

/// Returns a traffic class of a priority: one that is usual for it.
fn class_of(priority: u32) -> u32 {
    (priority * 8 + 2) << 2
}

/// Returns how the settings and a priority go together, for people.
fn in_words(traffic_class: u8) -> String {
    format!("priority {}, that of transport.rdma_traffic_class = {traffic_class}", priority(traffic_class))
}

fn marks(host: &Host, interface: &str, class: u8) -> Finding {
    let own = priority(class);
    let marks = |side: &str| {
        let enabled = |priority: u32| host.number(&format!("/sys/class/net/{interface}/ecn/{side}/enable/{priority}"));
        let all: Vec<Option<i64>> = (0..PRIORITIES).map(enabled).collect();
        all.iter().any(Option::is_some).then_some(all)
    };
    let (Some(told), Some(heeded)) = (marks("roce_np"), marks("roce_rp")) else {
        return Finding::advice(
            format!("{interface}: its driver does not say whether ECN is on for {}", in_words(class)),
            format!("ask the vendor's tool (mlnx_qos -i {interface}, niccli)"),
        );
    };
    let is_on = |priority: u32| [&told, &heeded].iter().all(|side| side[priority as usize] == Some(1));
    if is_on(own) {
        return Finding::good(format!("{interface}: ECN is on for RoCE on {}", in_words(class)));
    }
    let turn_on = format!(
        "mlnx_qos -i {interface} --trust dscp; echo 1 > /sys/class/net/{interface}/ecn/roce_np/enable/{own}; \
         the same for roce_rp, and on the switch"
    );
    let what = format!("{interface}: ECN is off for RoCE on {}", in_words(class));
    match (0..PRIORITIES).find(|&priority| is_on(priority)) {
        Some(on) => {
            let class = class_of(on);
            let fix = format!("transport.rdma_traffic_class = {class}, for priority {on} has it; or {turn_on}");
            Finding::bad(what, fix)
        }
        None => Finding::bad(what, turn_on),
    }
}

/// Pauses are advice: a network whose switches mark well, or whose devices repeat cheaply, does without.
fn pauses(host: &Host, interface: &str, class: u8) -> Finding {
    let own = priority(class);
    let said = host.look(Fact::Pauses(interface)).unwrap_or_else(|| "it was not asked".to_owned());
    let each: Vec<&str> = (0..PRIORITIES).map(|priority| if priority == own { "1" } else { "0" }).collect();
    let fix = format!(
        "dcb pfc set dev {interface} prio-pfc {own}:on (or mlnx_qos -i {interface} --pfc {}), and on the switch",
        each.join(",")
    );
    match said.parse::<u8>() {
        Ok(mask) if mask >> own & 1 == 1 => Finding::good(format!("{interface}: PFC is on for {}", in_words(class))),
        Ok(_) => Finding::advice(format!("{interface}: PFC is off on {}: a burst is dropped", in_words(class)), fix),
        Err(_) => Finding::advice(
            format!("{interface}: whether PFC is on is not known: {said}"),
            format!("ask the vendor's tool (mlnx_qos -i {interface}, niccli); {fix}"),
        ),
    }
}

/// Returns whether a NIC can read GPU memory.
pub(super) fn peer_memory(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
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

/// Returns the kernel's version.
fn kernel(host: &Host) -> (u32, u32) {
    let release = host.file("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit()).filter_map(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Returns whether the host has RDMA devices.
pub(super) fn is_present(host: &Host) -> bool {
    !host.folder(CLASS).is_empty()
}

/// Returns the interfaces of all RDMA devices.
pub(super) fn all_interfaces(host: &Host) -> Vec<String> {
    host.folder(CLASS).iter().flat_map(|device| interfaces(host, device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_that_of_the_traffic_class() {
        assert_eq!([0, 31, 32, 104, 255].map(priority), [0, 0, 1, 3, 7]);
        assert!((0..PRIORITIES).all(|number| priority(class_of(number) as u8) == number));
        assert_eq!(class_of(3), 104);
    }

    #[test]
    fn a_kernels_version_is_read_out_of_its_release() {
        let of = |release: &str| {
            let fact = serde_json::json!({ "file /proc/sys/kernel/osrelease": release }).to_string();
            kernel(&Host::recorded(&fact).unwrap())
        };
        assert_eq!([of("5.12.0-rc1"), of("6.8.0-41-generic"), of("")], [(5, 12), (6, 8), (0, 0)]);
    }
}

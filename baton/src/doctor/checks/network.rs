//! TCP and the interfaces below it.

use super::rdma;
use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::Host;
use std::collections::BTreeSet;

/// From this speed on, in Mbit/s, packets of 1,500 bytes cost too many interrupts.
const FAST: i64 = 10_000;
/// The smallest MTU that carries RDMA's packets of 4,096 bytes.
const RDMA_MTU_MIN: i64 = 4_200;
const JUMBO: i64 = 9_000;
/// Room for twice the bandwidth-delay product of 100 Gbit/s over a millisecond.
const BUFFER_BYTES_MIN: i64 = 16 << 20;
/// Ports for connections that this host begins.
const PORTS_MIN: i64 = 16_384;
/// The ports that the defaults and the README listen on.
const OWN_PORTS: [i64; 6] = [8000, 8001, 9001, 9002, 9011, 9012];
/// A link that changed its state so often since the start is flapping.
const CHANGES_MAX: i64 = 20;

/// The interfaces that are up, with their speed in Mbit/s where they have one.
fn interfaces(host: &Host) -> Vec<(String, Option<i64>)> {
    let up = |name: &String| {
        name != "lo" && host.file(&format!("/sys/class/net/{name}/operstate")).is_some_and(|state| state == "up")
    };
    let speed = |name: &str| host.number(&format!("/sys/class/net/{name}/speed")).filter(|&speed| speed > 0);
    host.folder("/sys/class/net").into_iter().filter(up).map(|name| (name.clone(), speed(&name))).collect()
}

/// Returns whether fast interfaces carry large packets.
pub(super) fn mtu(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let over = rdma::all_interfaces(host);
    let finding = |(name, speed): (String, Option<i64>)| {
        let mtu = host.number(&format!("/sys/class/net/{name}/mtu"))?;
        let what = match speed {
            Some(speed) => format!("{name}: {mtu} bytes at {speed} Mbit/s"),
            None => format!("{name}: {mtu} bytes"),
        };
        let fix = format!("ip link set {name} mtu {JUMBO}, on every host and switch of the network");
        Some(if over.contains(&name) {
            Finding::of(mtu >= RDMA_MTU_MIN, what, fix)
        } else if speed.is_some_and(|speed| speed >= FAST) && mtu < JUMBO {
            Finding::advice(what, fix)
        } else {
            Finding::good(what)
        })
    };
    interfaces(host).into_iter().filter_map(finding).collect()
}

/// Returns how large the buffers of a socket may become.
pub(super) fn buffers(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let single = |name: &'static str| {
        let bytes = host.number(&format!("/proc/sys/net/core/{name}"))?;
        Some((format!("net.core.{name}"), bytes, BUFFER_BYTES_MIN.to_string()))
    };
    let triple = |name: &'static str| {
        let all = host.file(&format!("/proc/sys/net/ipv4/{name}"))?;
        let numbers: Vec<&str> = all.split_whitespace().collect();
        let [min, default, max] = numbers[..] else { return None };
        Some((format!("net.ipv4.{name}"), max.parse().ok()?, format!("'{min} {default} {BUFFER_BYTES_MIN}'")))
    };
    let all = [single("rmem_max"), single("wmem_max"), triple("tcp_rmem"), triple("tcp_wmem")];
    let finding = |(name, bytes, wanted): (String, i64, String)| {
        let what = format!("{name}: up to {bytes} bytes");
        let fix = format!("sysctl -w {name}={wanted}");
        if bytes >= BUFFER_BYTES_MIN { Finding::good(what) } else { Finding::advice(what, fix) }
    };
    all.into_iter().flatten().map(finding).collect()
}

/// Returns how TCP slows down.
pub(super) fn congestion_control(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(name) = subject.host.file("/proc/sys/net/ipv4/tcp_congestion_control") else { return Vec::new() };
    let good = ["cubic", "bbr", "dctcp"].contains(&name.as_str());
    let fix = "sysctl -w net.ipv4.tcp_congestion_control=cubic (dctcp where switches mark)";
    vec![if good { Finding::good(name) } else { Finding::advice(format!("{name}: slow on fast networks"), fix) }]
}

/// Returns whether there are ports enough for connections that begin here, and none of ours among them.
pub(super) fn port_range(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let range = host.file("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let numbers: Vec<i64> = range.split_whitespace().filter_map(|number| number.parse().ok()).collect();
    let [first, last] = numbers[..] else { return Vec::new() };
    let reserved = host.file("/proc/sys/net/ipv4/ip_local_reserved_ports").unwrap_or_default();
    let is_kept = |port: i64| {
        reserved.split(',').any(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            matches!((from.trim().parse::<i64>(), to.trim().parse::<i64>()), (Ok(from), Ok(to)) if (from..=to).contains(&port))
        })
    };
    let is_free = |port: &i64| (first..=last).contains(port) && !is_kept(*port);
    let ours: Vec<i64> = OWN_PORTS.into_iter().filter(is_free).collect();
    let what = format!("{first} to {last} for connections that begin here");
    let fix = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
    vec![if ours.is_empty() {
        Finding::of(last - first + 1 >= PORTS_MIN, what, fix)
    } else {
        let names = ours.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let fix = format!("{fix}, or sysctl -w net.ipv4.ip_local_reserved_ports={names}");
        Finding::bad(format!("{what}: any of them may take {names}, which baton listens on"), fix)
    }]
}

/// Links that went down and up, and packets that were damaged or dropped.
pub(super) fn links(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let finding = |(name, _): (String, Option<i64>)| {
        let path = format!("/sys/class/net/{name}");
        let changes = host.number(&format!("{path}/carrier_changes")).unwrap_or(0);
        let count = |what: &str| host.number(&format!("{path}/statistics/{what}")).unwrap_or(0);
        // All errors are to include those of checksums; not every driver counts so.
        let (damaged, dropped) = (count("rx_errors").max(count("rx_crc_errors")), count("rx_missed_errors"));
        let what = format!(
            "{name}: {changes} changes of the link, {damaged} packets damaged, {dropped} dropped by the device"
        );
        if changes > CHANGES_MAX || damaged > 0 {
            Finding::bad(what, format!("replace the cable or the transceiver; ethtool -S {name} has all counters"))
        } else if dropped > 0 {
            Finding::advice(what, format!("ethtool -G {name} rx 8192"))
        } else {
            Finding::good(what)
        }
    };
    interfaces(host).into_iter().map(finding).collect()
}

/// Returns whether the interrupts of fast interfaces are spread over processors, and taken by some near them.
pub(super) fn interrupts(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let finding = |(name, _): (String, Option<i64>)| {
        let numbers = host.folder(&format!("/sys/class/net/{name}/device/msi_irqs"));
        let place = |number: &String| {
            let folder = format!("/proc/irq/{number}");
            host.file(&format!("{folder}/effective_affinity_list"))
                .filter(|list| !list.is_empty())
                .or_else(|| host.file(&format!("{folder}/smp_affinity_list")))
        };
        let places: BTreeSet<String> = numbers.iter().filter_map(place).collect();
        let near = host.file(&format!("/sys/class/net/{name}/device/local_cpulist"));
        let near = near.map(|list| processors(&list)).filter(|all| !all.is_empty());
        let far =
            |place: &&String| near.as_ref().is_some_and(|near| processors(place).iter().all(|one| !covers(near, one)));
        let far = places.iter().filter(far).count();
        (numbers.len() > 1 && !places.is_empty()).then(|| {
            let what = format!("{name}: {} interrupts on {} places", numbers.len(), places.len());
            if far > 0 {
                Finding::bad(
                    format!("{what}, {far} of them on another NUMA node than the interface"),
                    format!("set_irq_affinity_bynode.sh of the vendor, with {name}'s node; stop irqbalance first"),
                )
            } else {
                Finding::of(
                    places.len() > 1,
                    what,
                    "systemctl enable --now irqbalance, or set_irq_affinity_bynode.sh of the vendor",
                )
            }
        })
    };
    let fast = |(_, speed): &(String, Option<i64>)| speed.is_some_and(|speed| speed >= FAST);
    interfaces(host).into_iter().filter(fast).filter_map(finding).collect()
}

/// Returns the ranges of a list of processors, as `0-3,8`, first and last of each.
fn processors(list: &str) -> Vec<(u32, u32)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    list.split(',').filter_map(range).collect()
}

/// Returns whether one of these ranges has a part of that one.
fn covers(ranges: &[(u32, u32)], &(first, last): &(u32, u32)) -> bool {
    ranges.iter().any(|&(from, to)| first <= to && from <= last)
}

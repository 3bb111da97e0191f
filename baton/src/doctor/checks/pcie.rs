//! The way between GPUs and NICs, and between GPUs.

use super::rdma;
use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::Fact;

/// PCI class of bridges between PCI buses.
const BRIDGE: &str = "0x0604";

/// Returns whether what a NIC reads from a GPU is translated on the way.
pub(super) fn iommu(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    if host.folder("/sys/class/iommu").is_empty() {
        return vec![Finding::good("none, or off")];
    }
    let groups = host.folder("/sys/kernel/iommu_groups");
    let kind = |group: &String| host.file(&format!("/sys/kernel/iommu_groups/{group}/type"));
    let translated = groups.iter().filter(|group| kind(group).is_some_and(|kind| kind != "identity")).count();
    let what = format!("on, {translated} of {} groups translated", groups.len());
    let fix = "boot with iommu=pt (and intel_iommu=on or amd_iommu=on)";
    vec![match (translated, rdma::is_present(host)) {
        (0, _) => Finding::good(what),
        (_, true) => Finding::bad(what, fix),
        (_, false) => Finding::good(format!("{what}; without RDMA that costs nothing")),
    }]
}

/// Returns whether the PCIe links of NICs are as wide and as fast as both ends can: one that lost lanes, or sits in a
/// slot that has fewer, brings less than its port.
pub(super) fn links(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let link = |device: String| {
        let fact = |name: &str| host.file(&format!("{}/{device}/device/{name}", rdma::CLASS));
        // Such as `16.0 GT/s PCIe`.
        let number = |text: &String| text.split_whitespace().next().and_then(|number| number.parse::<f64>().ok());
        let both = |what: &str| fact(&format!("current_link_{what}")).zip(fact(&format!("max_link_{what}")));
        let ((speed, speed_max), (width, width_max)) = both("speed").zip(both("width"))?;
        let is_less = |now: &String, most: &String| number(now).zip(number(most)).is_some_and(|(now, most)| now < most);
        let is_full = !is_less(&speed, &speed_max) && !is_less(&width, &width_max);
        let what = format!("{device}: {width} lanes of {width_max}, {speed} of {speed_max}");
        Some(Finding::of(
            is_full,
            what,
            "seat the card anew, in a slot as wide as it is; look at the slot's settings in the firmware",
        ))
    };
    host.folder(rdma::CLASS).into_iter().filter_map(link).collect()
}

/// Returns whether bridges send what a NIC reads from a GPU up to the root and down again.
pub(super) fn access_control(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    if !rdma::is_present(host) || host.file("/proc/driver/nvidia/version").is_none() {
        return Vec::new();
    }
    let class = |device: &str| host.file(&format!("/sys/bus/pci/devices/{device}/class")).unwrap_or_default();
    let bridges = host.folder("/sys/bus/pci/devices").into_iter().filter(|device| class(device).starts_with(BRIDGE));
    let states: Vec<(String, String)> =
        bridges.filter_map(|bridge| host.look(Fact::AccessControl(&bridge)).map(|state| (bridge, state))).collect();
    let on: Vec<&str> = states.iter().filter(|(_, state)| state == "on").map(|(bridge, _)| bridge.as_str()).collect();
    let unknown = states.iter().find(|(_, state)| state != "on" && state != "off");
    vec![if let [first, ..] = on[..] {
        Finding::bad(
            format!("{} bridges redirect ({first} first)", on.len()),
            format!("setpci -s {first} ECAP_ACS+0x6.w=0000, for each of them; or switch ACS off in the firmware"),
        )
    } else if let Some((bridge, why)) = unknown {
        Finding::advice(format!("{bridge}: {why}"), "sudo baton doctor")
    } else {
        Finding::good(format!("{} bridges, none redirects", states.len()))
    }]
}

/// NCCL, which tensor parallelism needs.
pub(super) fn nccl(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    if host.file("/proc/driver/nvidia/version").is_none() {
        return Vec::new();
    }
    // The engine asks for the first name; the second is what most packages have.
    let (found, bare) = (host.look(Fact::Library("libnccl.so")), host.look(Fact::Library("libnccl.so.2")));
    vec![match (found, bare) {
        (Some(path), _) => match path.split_once(".so.") {
            Some((_, version)) => Finding::good(format!("version {version}: {path}")),
            None => Finding::advice(
                format!("{path}: its name does not say its version"),
                format!("strings {path} | grep 'NCCL version'"),
            ),
        },
        (None, Some(path)) => Finding::advice(
            format!("{path} has no link named libnccl.so: one GPU works, several in one worker do not"),
            format!("ln -s {path} {}", path.split_inclusive(".so").next().unwrap_or(&path)),
        ),
        (None, None) => Finding::advice(
            "libnccl.so is not found: one GPU works, several in one worker do not",
            "apt install libnccl2, or pip install nvidia-nccl-cu13 and link its libnccl.so.2 as libnccl.so",
        ),
    }]
}

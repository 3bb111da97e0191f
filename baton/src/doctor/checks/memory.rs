//! Memory: what may be locked, how large its pages are, and where it is.

use super::rdma;
use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::Fact;
use crate::output::human_bytes;

/// NCCL and others share buffers through `/dev/shm`; with the 64 MiB of a container's default they fail.
const SHARED_BYTES_MIN: u64 = 1 << 30;
/// Below it the buffers of a disk tier's frames cannot be registered with io_uring, which pins them.
const LOCKED_BYTES_MIN: u64 = 64 << 20;
/// PCI classes of display and 3D controllers.
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// Returns what may be locked: RDMA pins what it reads from, io_uring its registered buffers.
pub(super) fn locked(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(limit) = subject.host.look(Fact::Memlock) else { return Vec::new() };
    let bytes: Option<u64> = limit.parse().ok();
    let what = match bytes {
        Some(bytes) => format!("a process may lock {}", human_bytes(bytes)),
        None => "a process may lock all memory".to_owned(),
    };
    let fix = "ulimit -l unlimited; LimitMEMLOCK=infinity in a systemd unit; --ulimit memlock=-1 for a container";
    vec![match bytes {
        None => Finding::good(what),
        Some(_) if rdma::is_present(subject.host) => Finding::bad(what, fix),
        Some(bytes) if bytes < LOCKED_BYTES_MIN => {
            Finding::advice(format!("{what}: a disk tier's buffers are not registered with io_uring"), fix)
        }
        // Nothing but RDMA, and pinned memory of GPUs, needs more.
        Some(_) => Finding::good(format!("{what}; without RDMA that is enough")),
    }]
}

/// Returns whether large regions get huge pages: weights as anonymous memory, KV pools as shared memory.
pub(super) fn huge_pages(subject: &Subject<'_>) -> Vec<Finding> {
    let folder = "/sys/kernel/mm/transparent_hugepage";
    let chosen = |file: &str| {
        let all = subject.host.file(&format!("{folder}/{file}"))?;
        Some(all.split('[').nth(1)?.split(']').next()?.to_owned())
    };
    let finding = |file: &str, what: &str, good: &[&str], fix: &str| {
        let chosen = chosen(file)?;
        let fix = format!("echo {fix} > {folder}/{file}");
        let said = format!("{what}: {chosen}");
        Some(if good.contains(&chosen.as_str()) { Finding::good(said) } else { Finding::advice(said, fix) })
    };
    [
        finding("enabled", "weights", &["always", "madvise"], "madvise"),
        finding("shmem_enabled", "KV pools (shared memory)", &["always", "within_size", "advise", "force"], "advise"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the size of `/dev/shm`.
pub(super) fn shared(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(bytes) = subject.host.look(Fact::Space("/dev/shm")).and_then(|bytes| bytes.parse().ok()) else {
        return vec![Finding::advice("/dev/shm is not mounted", "mount -t tmpfs tmpfs /dev/shm")];
    };
    let what = format!("{}; KV pools do not need it, NCCL between GPUs does", human_bytes(bytes));
    let fix = "mount -o remount,size=8G /dev/shm; --shm-size=8g for a container; an emptyDir of medium Memory in a pod";
    vec![if bytes >= SHARED_BYTES_MIN { Finding::good(what) } else { Finding::advice(what, fix) }]
}

/// Returns whether every GPU has a NIC on its own NUMA node.
pub(super) fn numa(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let is_node = |name: &String| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let nodes = host.folder("/sys/devices/system/node").into_iter().filter(is_node).count();
    if nodes <= 1 {
        return vec![Finding::good("one node")];
    }
    let node = |path: String| host.number(&format!("{path}/numa_node")).filter(|&node| node >= 0);
    let nics: Vec<i64> = rdma::all_interfaces(host)
        .into_iter()
        .filter_map(|interface| node(format!("/sys/class/net/{interface}/device")))
        .collect();
    let gpu = |device: String| {
        let path = format!("/sys/bus/pci/devices/{device}");
        let class = host.file(&format!("{path}/class"))?;
        let nvidia = host.file(&format!("{path}/vendor"))? == "0x10de";
        (nvidia && GPU_CLASSES.iter().any(|gpu| class.starts_with(gpu))).then(|| (device, node(path)))
    };
    let gpus: Vec<(String, Option<i64>)> = host.folder("/sys/bus/pci/devices").into_iter().filter_map(gpu).collect();
    let mut findings = vec![Finding::good(format!("{nodes} nodes"))];
    for (device, node) in gpus.into_iter().filter(|_| !nics.is_empty()) {
        findings.push(match node {
            Some(node) => Finding::of(
                nics.contains(&node),
                format!("GPU {device} is on node {node}, RDMA NICs on {nics:?}"),
                "move the NIC or the GPU to a slot of the same node; what crosses nodes is slower",
            ),
            None => Finding::advice(
                format!("GPU {device}: the firmware does not say on which node it is"),
                "enable NUMA in the firmware, or pass the topology through to the virtual machine",
            ),
        });
    }
    findings
}

//! Disks, and the ways to read them.

use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::Fact;

/// Returns whether a process may make an io_uring.
pub(super) fn io_uring(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let disabled = host.number("/proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    let Some(answer) = host.look(Fact::IoUring) else { return Vec::new() };
    vec![if answer == "yes" {
        Finding::good("allowed")
    } else if disabled > 0 {
        let what =
            format!("switched off for {}: {answer}", if disabled == 2 { "everybody" } else { "ordinary processes" });
        Finding::bad(what, "sysctl -w kernel.io_uring_disabled=0")
    } else {
        Finding::bad(
            answer,
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile",
        )
    }]
}

/// Returns whether a disk tier's folder can be read past the page cache.
pub(super) fn direct_io(subject: &Subject<'_>) -> Vec<Finding> {
    let Some(answer) = subject.host.look(Fact::DirectIo(subject.disk)) else { return Vec::new() };
    let folder = subject.disk;
    if answer.contains("os error 2)") {
        return vec![Finding::bad(
            format!("{folder}: there is no such folder"),
            format!("mkdir -p {folder}, or mount its disk"),
        )];
    }
    vec![Finding::of(
        answer == "yes",
        if answer == "yes" {
            format!("{folder} can be read past the page cache")
        } else {
            format!("{folder}: {answer}")
        },
        "put the folder on ext4 or xfs of a local device, not on overlayfs or tmpfs (--disk DIR looks at another)",
    )]
}

/// Returns whether NVMe devices are spared a scheduler: they have queues of their own.
pub(super) fn scheduler(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let finding = |device: String| {
        let all = host.file(&format!("/sys/block/{device}/queue/scheduler"))?;
        let chosen = all.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or(&all).to_owned();
        // Virtual disks say that they rotate, whatever is behind them.
        let tells = !["vd", "xvd"].iter().any(|prefix| device.starts_with(prefix));
        let rotates = tells && host.number(&format!("/sys/block/{device}/queue/rotational")) == Some(1);
        let what = format!("{device}: {chosen}{}", if rotates { ", it rotates" } else { "" });
        let fix = format!("echo none > /sys/block/{device}/queue/scheduler");
        Some(if rotates {
            Finding::advice(what, "a disk tier wants a solid-state device")
        } else if device.starts_with("nvme") && chosen != "none" {
            Finding::advice(what, fix)
        } else {
            Finding::good(what)
        })
    };
    let real = |name: &String| !["loop", "zram", "ram", "dm-", "sr"].iter().any(|prefix| name.starts_with(prefix));
    host.folder("/sys/block").into_iter().filter(real).filter_map(finding).collect()
}

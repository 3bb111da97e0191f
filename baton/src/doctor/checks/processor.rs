//! Processors and clocks.

use crate::doctor::Subject;
use crate::doctor::finding::Finding;
use crate::doctor::host::Fact;
use std::collections::BTreeSet;

const CPUS: &str = "/sys/devices/system/cpu";
/// What the CPU engine's kernels use, best first, as the kernel names it.
const INSTRUCTIONS: [(&str, &str); 4] =
    [("amx_bf16", "AMX"), ("avx512_bf16", "AVX-512 with bf16 dot products"), ("avx512f", "AVX-512"), ("avx2", "AVX2")];

/// Returns whether processors run as fast as they can.
pub(super) fn governor(subject: &Subject<'_>) -> Vec<Finding> {
    let host = subject.host;
    let is_cpu = |name: &String| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let governors: BTreeSet<String> = host
        .folder(CPUS)
        .into_iter()
        .filter(is_cpu)
        .filter_map(|cpu| host.file(&format!("{CPUS}/{cpu}/cpufreq/scaling_governor")))
        .collect();
    if governors.is_empty() {
        return vec![Finding::absent("the host of this virtual machine decides")];
    }
    let what = governors.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let fix = "cpupower frequency-set -g performance";
    vec![if what == "performance" { Finding::good(what) } else { Finding::advice(what, fix) }]
}

/// Returns what the CPU engine can use.
pub(super) fn instructions(subject: &Subject<'_>) -> Vec<Finding> {
    let text = subject.host.file("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).and_then(|line| line.split(": ").nth(1));
    let Some(flags) = line("flags") else { return Vec::new() };
    let model = line("model name").unwrap_or("unknown processor");
    let best = INSTRUCTIONS.iter().find(|(flag, _)| flags.split(' ').any(|one| one == *flag));
    vec![match best {
        Some((_, name)) => Finding::good(format!("{model}: {name}")),
        None => Finding::advice(
            format!("{model}: not even AVX2"),
            "the CPU engine runs, slowly; let the virtual machine see its host's processor (-cpu host)",
        ),
    }]
}

/// Returns whether reading the clock is cheap, and whether it says what those of other hosts say: nothing waits for
/// that, but what several hosts log is read by their clocks.
pub(super) fn clock(subject: &Subject<'_>) -> Vec<Finding> {
    let folder = "/sys/devices/system/clocksource/clocksource0";
    let source = subject.host.file(&format!("{folder}/current_clocksource")).map(|source| {
        let cheap = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"].contains(&source.as_str());
        Finding::of(cheap, format!("clock source {source}"), format!("echo tsc > {folder}/current_clocksource"))
    });
    let kept = subject.host.look(Fact::ClockSync).map(|kept| match kept.as_str() {
        "yes" => Finding::good("kept in step with other hosts"),
        "no" => Finding::advice(
            "nothing keeps it in step with other hosts, whose logs cannot be compared with this one's then",
            "apt install chrony, or timedatectl set-ntp true for systemd-timesyncd; for a container: on its host",
        ),
        why => Finding::absent(format!("whether it is kept in step with other hosts is not known: {why}")),
    });
    source.into_iter().chain(kept).collect()
}

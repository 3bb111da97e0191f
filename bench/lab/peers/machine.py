"""What the machine is and whether it is quiet: for the scripts beside it that compare Baton with others."""

import datetime
import os
import sys
import time

# The machine is watched this long before the first round, and may be busy for this share of it.
WATCH_S = 5
BUSY_MAX = 0.05


def ticks():
    """Ticks of all cores: spent on something, or taken by the host; and in all."""
    with open("/proc/stat") as stat:
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return user + nice + system + irq + softirq + steal, user + nice + system + idle + iowait + irq + softirq + steal


def busy_share():
    busy, total = ticks()
    time.sleep(WATCH_S)
    busy_after, total_after = ticks()
    return (busy_after - busy) / max(total_after - total, 1)


def load():
    return "load average {:.2f}, {:.2f}, {:.2f}".format(*os.getloadavg())


def processor():
    with open("/proc/cpuinfo") as lines:
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else f"{os.cpu_count()} cores"


def huge_pages(kind):
    """Whether memory of a kind ("enabled": of a process alone, "shmem_enabled": shared) may lie in huge pages, as the kernel says."""
    try:
        with open(f"/sys/kernel/mm/transparent_hugepage/{kind}") as setting:
            return setting.read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        return "unknown"


def watch(anyway):
    """What is said above the figures. Ends the program on a machine that is not quiet, unless it shall measure anyway."""
    before, busy = load(), busy_share()
    print(f"{before}; cores busy {busy:.0%} of {WATCH_S} s", file=sys.stderr)
    if busy > BUSY_MAX:
        print(f"THE MACHINE IS NOT QUIET (at most {BUSY_MAX:.0%}): the figures would mean nothing.", file=sys.stderr)
        if not anyway:
            sys.exit("Stop what runs beside, or say --anyway.")
    alone, shared = huge_pages("enabled"), huge_pages("shmem_enabled")
    if alone in ("always", "madvise") and shared in ("never", "deny"):
        print("Baton's pools are shared memory and take small pages, the peers' take huge ones: see `baton doctor`.", file=sys.stderr)
    return {
        "huge_pages": f"huge pages: {alone} for a process alone, {shared} where shared",
        "date": datetime.date.today().isoformat(),
        "machine": processor(),
        "before": before,
        "busy_before": busy,
        "quiet": busy <= BUSY_MAX,
    }

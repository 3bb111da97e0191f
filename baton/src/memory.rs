//! How much memory this process may still take: what the system has to give, within the limits of its control groups.
//!
//! Sources: proc_meminfo(5), and the kernel's guides of control groups (`admin-guide/cgroup-v2.rst`,
//! `cgroup-v1/memory.rst`).

use std::path::{Path, PathBuf};

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns the bytes of memory that are available; `None`: the system does not say.
pub(crate) fn available() -> Option<u64> {
    available_by(&|path| std::fs::read_to_string(path).ok())
}

/// As [`available`], of what files say.
fn available_by(read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let meminfo = read(Path::new("/proc/meminfo"))?;
    let of_system = number_of(&meminfo, "MemAvailable:")?.checked_mul(1024)?;
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().filter_map(Group::of).flat_map(|group| group.left(read));
    Some(of_groups.fold(of_system, u64::min))
}

/// A control group of this process that counts memory.
struct Group {
    /// Where the groups of its kind are.
    root: PathBuf,
    /// Below it.
    path: String,
    /// Names of the files with the limit and with what is used, and what memory of files that can be freed is called.
    names: [&'static str; 3],
}

impl Group {
    /// Reads a line of `/proc/self/cgroup`: `0::/path`, or `4:memory:/path` of version 1.
    fn of(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.to_owned());
        let root = PathBuf::from(CGROUPS);
        if controllers.is_empty() {
            return Some(Self { root, path, names: ["memory.max", "memory.current", "inactive_file"] });
        }
        let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
        controllers.split(',').any(|name| name == "memory").then(|| Self { root: root.join("memory"), path, names })
    }

    /// Returns the bytes that the group and each one above may still take, where they have a limit. In a container the
    /// path may be the host's, and only the root is there.
    fn left(&self, read: &dyn Fn(&Path) -> Option<String>) -> Vec<u64> {
        let below = Path::new(self.path.trim_start_matches('/'));
        let number = |path: PathBuf| read(&path)?.trim().parse::<u64>().ok();
        let left = |folder: &Path| {
            let folder = self.root.join(folder);
            let [limit, used, freed] = self.names;
            let (limit, used) = (number(folder.join(limit))?, number(folder.join(used))?);
            let statistics = read(&folder.join("memory.stat")).unwrap_or_default();
            let freed = number_of(&statistics, freed).unwrap_or(0);
            Some(limit.saturating_sub(used.saturating_sub(freed)))
        };
        below.ancestors().filter_map(left).collect()
    }
}

/// Returns the number behind `name` in lines of names and numbers.
fn number_of(text: &str, name: &str) -> Option<u64> {
    let words = text.lines().map(str::split_whitespace);
    words.filter_map(|mut words| (words.next()? == name).then(|| words.next()?.parse().ok()).flatten()).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], expected: Option<u64>) {
        let read = |path: &Path| {
            let file = files.iter().find(|(name, _)| Path::new(name) == path);
            file.map(|(_, text)| (*text).to_owned())
        };
        assert_eq!(available_by(&read), expected, "{files:?}");
    }

    const MEMINFO: (&str, &str) = ("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n");

    #[test]
    fn the_narrowest_limit_counts() {
        check(&[], None);
        check(&[MEMINFO], Some(8000 * 1024));
        let group = ("/proc/self/cgroup", "0::/pod/box\n");
        let limit = ("/sys/fs/cgroup/pod/box/memory.max", "max\n");
        let used = ("/sys/fs/cgroup/pod/box/memory.current", "1000000\n");
        check(&[MEMINFO, group, limit, used], Some(8000 * 1024));
        let above = ("/sys/fs/cgroup/pod/memory.max", "5000000\n");
        let used_above = ("/sys/fs/cgroup/pod/memory.current", "2000000\n");
        check(&[MEMINFO, group, limit, used, above, used_above], Some(3_000_000));
        let freed = ("/sys/fs/cgroup/pod/memory.stat", "anon 1500000\ninactive_file 500000\n");
        check(&[MEMINFO, group, limit, used, above, used_above, freed], Some(3_500_000));
        let full = ("/sys/fs/cgroup/pod/memory.current", "6000000\n");
        check(&[MEMINFO, group, above, full], Some(0));
    }

    #[test]
    fn groups_of_version_1_count_too_and_so_does_the_root_of_a_container() {
        let group = ("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n0::/\n");
        let limit = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4000000\n");
        let used = ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
        check(&[MEMINFO, group, limit, used], Some(3_000_000));
        let limit = ("/sys/fs/cgroup/memory.max", "2000000\n");
        let used = ("/sys/fs/cgroup/memory.current", "1000000\n");
        check(&[MEMINFO, group, limit, used], Some(1_000_000));
    }
}

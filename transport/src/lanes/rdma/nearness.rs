//! How near network cards are to the memory of this process, by what the system tells of both: a decision over
//! recorded facts.
//!
//! What is deliberately absent: how near they are to the memory of another device, which does not say where it is.

use std::path::Path;

/// How far the nodes of memory are from that of this process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nearness {
    /// By number. None: its memory is of no one node.
    distances: Vec<u32>,
}

impl Nearness {
    /// For a process that may run on the processors `allowed`, of which each of `nodes` has some; both are lists
    /// such as `0-3,8`. `distances` is what a node tells of all.
    fn new<'a>(allowed: &str, nodes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let allowed = ranges(allowed);
        let has_some = |processors: &str| {
            let own = ranges(processors);
            own.iter().any(|own| allowed.iter().any(|other| own.0 <= other.1 && other.0 <= own.1))
        };
        let mut own = nodes.filter(|(processors, _)| has_some(processors));
        match (own.next(), own.next()) {
            (Some((_, distances)), None) => {
                Self { distances: distances.split_whitespace().map_while(|number| number.parse().ok()).collect() }
            }
            _ => Self::default(),
        }
    }

    /// Returns what the system tells under `system`.
    pub(super) fn of_process(system: &Path) -> Self {
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let status = read(Path::new("/proc/self/status"));
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
        let folder = system.join("devices/system/node");
        let node = |number: usize| {
            let own = folder.join(format!("node{number}"));
            own.is_dir().then(|| (read(&own.join("cpulist")), read(&own.join("distance"))))
        };
        let nodes: Vec<_> = (0..).map_while(node).collect();
        Self::new(allowed, nodes.iter().map(|(processors, distances)| (processors.as_str(), distances.as_str())))
    }

    /// Returns how far a card is, of which the system tells in `folder`. The greatest where that is not known.
    pub(super) fn distance(&self, folder: &Path) -> u32 {
        let node = std::fs::read_to_string(folder.join("numa_node"));
        // -1: the card is of no node.
        let node = node.ok().and_then(|text| text.trim().parse::<usize>().ok());
        node.and_then(|node| self.distances.get(node).copied()).unwrap_or(u32::MAX)
    }
}

/// Returns the ranges of a list such as `0-3,8`.
fn ranges(list: &str) -> Vec<(u32, u32)> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    list.trim().split(',').filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two sockets with two nodes each.
    const NODES: [(&str, &str); 4] = [
        ("0-15,64-79", "10 12 32 32"),
        ("16-31,80-95", "12 10 32 32"),
        ("32-47,96-111", "32 32 10 12"),
        ("48-63,112-127\n", "32 32 12 10\n"),
    ];

    #[track_caller]
    fn check(allowed: &str, expect: &[u32]) {
        assert_eq!(Nearness::new(allowed, NODES.into_iter()).distances, expect);
    }

    #[test]
    fn a_process_of_one_node_knows_how_far_the_others_are() {
        check("\t0-15,64-79\n", &[10, 12, 32, 32]);
        check("50", &[32, 32, 12, 10]);
        check("96-100", &[32, 32, 10, 12]);
        // Its memory may be anywhere.
        check("0-127", &[]);
        check("15-16", &[]);
        check("", &[]);
    }

    #[test]
    fn cards_are_as_far_as_their_nodes() {
        let folder = tempfile::tempdir().expect("a folder");
        let near = Nearness::new("50", NODES.into_iter());
        for (node, distance) in [("3\n", 10), ("2", 12), ("0", 32), ("-1\n", u32::MAX), ("9", u32::MAX)] {
            std::fs::write(folder.path().join("numa_node"), node).expect("it can be written");
            assert_eq!(near.distance(folder.path()), distance, "{node}");
        }
        assert_eq!(Nearness::default().distance(folder.path()), u32::MAX);
    }
}

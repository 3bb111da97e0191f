//! Where the threads of a pool run and where memory lies, on hosts with several memory nodes (NUMA) as on others.
//!
//! A thread reads the memory of its own node faster than that of another. A pool's threads are spread over the
//! nodes in order, and each has the same share of a layer's panels in every step but for the last ones, which
//! others may take (`thread_pool`). So panels are packed, that is touched first, by threads on the node where they
//! will be read: the system gives pages of the node that touches them (`packed`). Which sequences a thread attends
//! to changes from step to step, so the pages of KV pools are dealt over the nodes in turn.
//!
//! Where the processors are this process's own, threads stay on parts of them that do not overlap. Everything here is
//! computed from what the system says of a host; asking it is `numa`'s.

use std::collections::BTreeMap;

/// Processors of a host, at most; what is beyond is as if it were not there.
pub(super) const PROCESSORS_MAX: usize = rustix::thread::CpuSet::MAX_CPU;

/// Whether each thread of a device stays on processors that no other one of its threads has. On hosts with several
/// memory nodes, threads stay in their node in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Where the processors are the device's own: this process was given some of the host's, enough for all
    /// threads, and no other device of the process computes (`alone`). Where a process may run on all processors,
    /// so may others.
    Auto {
        /// No other device of the process computes.
        alone: bool,
    },
    /// Where there are enough processors for all threads.
    On,
    /// No.
    Off,
}

/// Where the threads of a pool stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ThreadAffinities {
    /// A place for each thread.
    pub(super) threads: Vec<Affinity>,
    /// Their processors are their own.
    pub(super) pinned: bool,
    /// Why they are, or are not.
    pub(super) why: String,
}

/// Processors that a thread stays on; none: it goes where the system puts it.
pub(super) type Affinity = Vec<usize>;

/// The processors that this process may use, those of a node next to each other, and in a node those of a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// At least one.
    processors: Vec<Processor>,
    /// Whether the system said which they are.
    known: bool,
    /// Nodes that have memory.
    with_memory: Vec<usize>,
    /// Processors that run, this process's or not.
    running: usize,
}

/// In the order of a [`Host`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Processor {
    node: usize,
    /// The lowest number among the processors of its core.
    core: usize,
    number: usize,
}

impl Host {
    /// Returns the host that `file` tells of: the text of a file under `/sys/devices/system`, if there is one.
    /// `allowed`: processors that this process may use.
    pub(super) fn read(allowed: &[usize], file: impl Fn(&str) -> Option<String>) -> Self {
        let list = |path: &str| file(path).and_then(|text| parse_list(&text));
        let nodes = list("node/online").unwrap_or_default();
        let mut node_of = BTreeMap::new();
        for &node in &nodes {
            let processors = list(&format!("node/node{node}/cpulist")).unwrap_or_default();
            node_of.extend(processors.into_iter().map(|processor| (processor, node)));
        }
        let processor = |&number: &usize| {
            let siblings = list(&format!("cpu/cpu{number}/topology/thread_siblings_list"));
            let core = siblings.and_then(|siblings| siblings.first().copied()).unwrap_or(number);
            Processor { node: node_of.get(&number).copied().unwrap_or(0), core, number }
        };
        let mut processors: Vec<Processor> = allowed.iter().map(processor).collect();
        let known = !processors.is_empty();
        if !known {
            processors.push(Processor { node: 0, core: 0, number: 0 });
        }
        processors.sort_unstable();
        let running = list("cpu/online").map_or(processors.len(), |running| running.len());
        Self { processors, known, with_memory: list("node/has_memory").unwrap_or(nodes), running }
    }

    /// Returns the nodes of the processors.
    fn nodes(&self) -> impl Iterator<Item = usize> + '_ {
        self.processors.chunk_by(|one, next| one.node == next.node).map(|of_node| of_node[0].node)
    }

    /// Returns the node of all processors; none where they are of several, or the system does not say.
    pub(super) fn own_node(&self) -> Option<usize> {
        let mut nodes = self.nodes();
        nodes.next().filter(|_| self.known && nodes.next().is_none())
    }

    /// Returns which of the processors is the first one for part `index` of `of` equal ones.
    fn first(&self, index: usize, of: usize) -> usize {
        index * self.processors.len() / of
    }

    /// Where panel `index` of `of` is touched first, and where the thread stays that reads it. Empty on hosts with
    /// one node.
    pub(super) fn in_node(&self, index: usize, of: usize) -> Affinity {
        if self.nodes().nth(1).is_none() {
            return Affinity::new();
        }
        let node = self.processors[self.first(index, of)].node;
        self.processors.iter().filter(|processor| processor.node == node).map(|processor| processor.number).collect()
    }

    /// Processors that no other one of `of` threads has, all in one node. There are no more threads than processors.
    fn own(&self, index: usize, of: usize) -> Affinity {
        let part = &self.processors[self.first(index, of)..self.first(index + 1, of)];
        part.iter().filter(|processor| processor.node == part[0].node).map(|processor| processor.number).collect()
    }

    /// Returns where the threads of a pool stay.
    pub(super) fn thread_places(&self, threads: usize, pinning: Pinning) -> ThreadAffinities {
        let (ours, running) = (self.processors.len(), self.running);
        let (pinned, why) = match pinning {
            Pinning::Off => (false, "pinning is off".to_owned()),
            _ if !self.known => (false, "the system does not say which processors are this process's".to_owned()),
            _ if threads > ours => (false, format!("{threads} threads are more than {ours} processors")),
            Pinning::On => (true, "pinning is on".to_owned()),
            Pinning::Auto { alone: false } => (false, "workers of this process share its processors".to_owned()),
            Pinning::Auto { alone: true } if ours == running => {
                (false, "others may use all processors, too".to_owned())
            }
            Pinning::Auto { alone: true } => (true, format!("this process was given {ours} of {running} processors")),
        };
        let place = |thread| if pinned { self.own(thread, threads) } else { self.in_node(thread, threads) };
        ThreadAffinities { threads: (0..threads).map(place).collect(), pinned, why }
    }

    /// Nodes over which memory is dealt that any of the threads may use. Fewer than two: there is nothing to deal.
    pub(super) fn memory_nodes(&self) -> Vec<usize> {
        self.nodes().filter(|node| self.with_memory.contains(node)).collect()
    }
}

/// Numbers as the kernel lists them, `0-3,8`. `None`: it is no such list.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        numbers.extend(first..=last.min(PROCESSORS_MAX - 1));
    }
    Some(numbers)
}

#[cfg(test)]
mod tests;

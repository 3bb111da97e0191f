use super::*;

const AUTO: Pinning = Pinning::Auto { alone: true };

/// Recorded trees: the files under `/sys/devices/system`, a line each, as `path: text`.
const ONE_NODE: &str = "
    cpu/online: 0-3
    node/online: 0
    node/has_memory: 0
    node/node0/cpulist: 0-3
";
/// Two sockets of four cores with two threads each; the second threads are numbered behind all first ones.
const TWO_SOCKETS: &str = "
    cpu/online: 0-15
    node/online: 0-1
    node/has_memory: 0-1
    node/node0/cpulist: 0-3,8-11
    node/node1/cpulist: 4-7,12-15
    cpu/cpu0/topology/thread_siblings_list: 0,8
    cpu/cpu1/topology/thread_siblings_list: 1,9
    cpu/cpu2/topology/thread_siblings_list: 2,10
    cpu/cpu3/topology/thread_siblings_list: 3,11
    cpu/cpu4/topology/thread_siblings_list: 4,12
    cpu/cpu5/topology/thread_siblings_list: 5,13
    cpu/cpu6/topology/thread_siblings_list: 6,14
    cpu/cpu7/topology/thread_siblings_list: 7,15
    cpu/cpu8/topology/thread_siblings_list: 0,8
    cpu/cpu9/topology/thread_siblings_list: 1,9
    cpu/cpu10/topology/thread_siblings_list: 2,10
    cpu/cpu11/topology/thread_siblings_list: 3,11
    cpu/cpu12/topology/thread_siblings_list: 4,12
    cpu/cpu13/topology/thread_siblings_list: 5,13
    cpu/cpu14/topology/thread_siblings_list: 6,14
    cpu/cpu15/topology/thread_siblings_list: 7,15
";
/// Four nodes with holes in their numbers: node 2 lost a processor, node 5 has processors and no memory, node 9
/// memory alone.
const FOUR_NODES: &str = "
    cpu/online: 0-4,6-11
    node/online: 0,2,5,7,9
    node/has_memory: 0,2,7,9
    node/node0/cpulist: 0-2
    node/node2/cpulist: 3-4
    node/node5/cpulist: 6-8
    node/node7/cpulist: 9-11
    node/node9/cpulist:
";

fn host(tree: &str, allowed: &[usize]) -> Host {
    Host::read(allowed, |path| {
        let files = tree.lines().filter_map(|line| line.trim().split_once(':'));
        files.filter(|(file, _)| *file == path).map(|(_, text)| format!("{}\n", text.trim())).next()
    })
}

fn all(processors: std::ops::Range<usize>) -> Vec<usize> {
    processors.collect()
}

#[track_caller]
fn check(host: &Host, threads: usize, pinning: Pinning, expected: &[&[usize]], why: &str) {
    let places = host.thread_places(threads, pinning);
    assert_eq!(places.threads, expected);
    assert!(places.why.contains(why), "{}", places.why);
}

#[test]
fn threads_of_a_host_with_one_node_are_pinned_where_the_process_was_given_processors() {
    let whole = host(ONE_NODE, &all(0..4));
    check(&whole, 4, AUTO, &[&[], &[], &[], &[]], "others may use all");
    check(&whole, 4, Pinning::On, &[&[0], &[1], &[2], &[3]], "on");
    check(&whole, 2, Pinning::On, &[&[0, 1], &[2, 3]], "on");
    check(&whole, 5, Pinning::On, &[&[], &[], &[], &[], &[]], "5 threads are more than 4 processors");
    let given = host(ONE_NODE, &[1, 3]);
    check(&given, 2, AUTO, &[&[1], &[3]], "2 of 4 processors");
    check(&given, 1, AUTO, &[&[1, 3]], "2 of 4 processors");
    check(&given, 3, AUTO, &[&[], &[], &[]], "3 threads are more than 2");
    check(&given, 2, Pinning::Off, &[&[], &[]], "off");
    check(&given, 2, Pinning::Auto { alone: false }, &[&[], &[]], "share");
    assert!(whole.memory_nodes().len() < 2);
    assert_eq!(whole.in_node(3, 4), Affinity::new());
}

#[test]
fn threads_are_spread_over_nodes_in_order_and_cores_are_not_shared() {
    let whole = host(TWO_SOCKETS, &all(0..16));
    let (first, second): (&[usize], &[usize]) = (&[0, 8, 1, 9, 2, 10, 3, 11], &[4, 12, 5, 13, 6, 14, 7, 15]);
    check(&whole, 4, AUTO, &[first, first, second, second], "others may use all");
    check(&whole, 3, AUTO, &[first, first, second], "others may use all");
    check(&whole, 2, Pinning::Off, &[first, second], "off");
    check(&whole, 4, Pinning::On, &[&[0, 8, 1, 9], &[2, 10, 3, 11], &[4, 12, 5, 13], &[6, 14, 7, 15]], "on");
    let cores: Vec<Vec<usize>> = (0..8).map(|core| vec![core, core + 8]).collect();
    assert_eq!(whole.thread_places(8, Pinning::On).threads, cores);
    assert_eq!(whole.memory_nodes(), [0, 1]);
    // Panels lie where the threads are that read them.
    for threads in [2, 4, 16] {
        let places = whole.thread_places(threads, AUTO).threads;
        let read = (0..64).map(|panel| places[panel * threads / 64].clone());
        assert!(read.eq((0..64).map(|panel| whole.in_node(panel, 64))));
    }

    // As a container that got the second socket and one core of the first.
    let some = host(TWO_SOCKETS, &[0, 8, 4, 5, 6, 7, 12, 13, 14, 15]);
    check(&some, 2, AUTO, &[&[0, 8], &[13, 6, 14, 7, 15]], "10 of 16 processors");
    let one_socket = host(TWO_SOCKETS, second);
    check(&one_socket, 2, AUTO, &[&[4, 12, 5, 13], &[6, 14, 7, 15]], "8 of 16 processors");
    assert_eq!(one_socket.memory_nodes(), [1]);
    assert_eq!(one_socket.in_node(0, 2), Affinity::new());
}

#[test]
fn holes_absent_processors_and_nodes_without_memory_do_no_harm() {
    let allowed = [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11];
    let whole = host(FOUR_NODES, &allowed);
    assert_eq!(whole.memory_nodes(), [0, 2, 7]);
    check(&whole, 4, AUTO, &[&[0, 1, 2], &[0, 1, 2], &[6, 7, 8], &[9, 10, 11]], "others may use all");
    assert_eq!(whole.thread_places(11, Pinning::On).threads, allowed.map(|processor| vec![processor]));
    // A part that reaches into the next node ends with its own.
    check(&whole, 4, Pinning::On, &[&[0, 1], &[2], &[6, 7, 8], &[9, 10, 11]], "on");
    let places = host(FOUR_NODES, &[3, 9]).thread_places(2, AUTO);
    assert_eq!(places.threads, [[3], [9]]);
}

#[test]
fn a_process_has_a_node_where_all_its_processors_are() {
    assert_eq!(host(TWO_SOCKETS, &all(0..16)).own_node(), None);
    assert_eq!(host(TWO_SOCKETS, &[4, 13]).own_node(), Some(1));
    assert_eq!(host(ONE_NODE, &all(0..4)).own_node(), Some(0));
    assert_eq!(host(ONE_NODE, &[]).own_node(), None, "the system does not say");
}

#[test]
fn a_host_that_says_nothing_or_nonsense_has_one_node() {
    for tree in
        ["", "node/online: many\nnode/has_memory: -\ncpu/online: 3-x", "node/online: 0-1\nnode/node1/cpulist: x"]
    {
        let host = host(tree, &[0, 1, 5]);
        check(&host, 3, AUTO, &[&[], &[], &[]], "others may use all");
        check(&host, 3, Pinning::On, &[&[0], &[1], &[5]], "on");
        assert!(host.memory_nodes().len() < 2);
    }
    check(&host("", &[]), 1, Pinning::On, &[&[]], "does not say");
    assert_eq!(parse_list("0-2,7\n"), Some(vec![0, 1, 2, 7]));
    assert_eq!(parse_list("5-1"), Some(vec![]));
    assert_eq!(parse_list("0-99999999").map(|numbers| numbers.len()), Some(PROCESSORS_MAX));
}

//! The map as text for a terminal of 80 columns.

use super::host::HostLane;
use super::map::{Reads, Topology};
use std::fmt::Write;

/// Columns of a terminal.
const WIDTH: usize = 80;
/// Columns of a cell of the matrix: a lane, and GB/s.
const CELL: usize = 15;
/// Columns of a row's name at most; longer ones are cut.
const NAME: usize = 30;

/// Returns a matrix of which worker reads from which, and below it each pair with its reasons.
pub(super) fn cluster(topology: &Topology) -> String {
    let mut text = String::new();
    if topology.reads.is_empty() && topology.failed.is_empty() {
        let none = "None of these processes reads from a worker. A worker reports its lanes at its own worker.ops_listen, once it has \
                    connected to another; a router has none.";
        wrapped(&mut text, "", none);
    } else if !topology.reads.is_empty() {
        text += &matrix(topology);
        topology.reads.iter().for_each(|reads| pair(&mut text, reads));
    }
    for failure in &topology.failed {
        wrapped(&mut text, "", &format!("{} was asked in vain: {}", failure.url, failure.reason));
    }
    text
}

/// Rows read from columns, which go by the numbers of the rows; as many columns at a time as fit.
fn matrix(topology: &Topology) -> String {
    let workers = &topology.workers;
    let digits = workers.len().to_string().len();
    let name = workers.iter().map(|name| name.chars().count()).max().unwrap_or(0).min(NAME);
    let fits = ((WIDTH - digits - 1 - name) / CELL).max(1);
    let numbers: Vec<usize> = (0..workers.len()).collect();
    let mut text = "Lane and GB/s by which a worker (row) reads from another (column)\n".to_owned();
    for columns in numbers.chunks(fits) {
        let mut line = " ".repeat(digits + 1 + name);
        columns.iter().for_each(|column| line += &format!("{:>CELL$}", column + 1));
        writeln!(text, "\n{line}").expect("a text takes all");
        for (row, reader) in workers.iter().enumerate() {
            let short: String = reader.chars().take(NAME).collect();
            let mut line = format!("{:>digits$} {short:<name$}", row + 1);
            for &column in columns {
                let found = topology.reads.iter().find(|it| it.reader == *reader && it.owner == workers[column]);
                let cell = found.map_or("-".to_owned(), |it| format!("{} {:.1}", way(it), it.gb_per_s));
                line += &format!("{cell:>CELL$}");
            }
            writeln!(text, "{}", line.trim_end()).expect("a text takes all");
        }
    }
    text.push('\n');
    text
}

fn pair(text: &mut String, reads: &Reads) {
    let Reads { reader, owner, gb_per_s, expected_gb_per_s, latency_us, passed_over, .. } = reads;
    let (way, latency) = (way(reads), latency(*latency_us));
    let expected = expected_gb_per_s.map(|expected| format!(" of {expected:.1} expected")).unwrap_or_default();
    wrapped(text, "", &format!("{reader} reads from {owner}: {way}, {gb_per_s:.1} GB/s{expected}, {latency}"));
    let width = passed_over.iter().map(|it| it.lane.len()).max().unwrap_or(0);
    for passed in passed_over {
        wrapped(text, &format!("    not {:<width$}  ", passed.lane), &passed.reason);
    }
}

/// Returns the lane, and what encrypts it.
fn way(reads: &Reads) -> String {
    format!("{}{}", reads.lane, if reads.tls { "+tls" } else { "" })
}

fn latency(us: f64) -> String {
    if us < 10.0 { format!("{us:.2} us") } else { format!("{us:.1} us") }
}

/// Returns the lanes of this host.
pub(super) fn host(lanes: &[HostLane]) -> String {
    let mut text = "Lanes of this host, measured now, between two processes but for local\n\n".to_owned();
    text += "  lane          GB/s  latency\n";
    for HostLane { lane, taken, gb_per_s, latency_us, reason } in lanes {
        let speed = gb_per_s.map_or("-".to_owned(), |speed| format!("{speed:.1}"));
        let latency = latency_us.map_or("-".to_owned(), latency);
        let note = match (reason, taken, *lane) {
            (Some(reason), ..) => reason.as_str(),
            (None, true, _) => "taken between processes of this host",
            (None, false, "local") => "taken within one process",
            (None, false, _) => "",
        };
        wrapped(&mut text, &format!("  {lane:<9}{speed:>9}{latency:>9}  "), note);
    }
    text
}

/// Appends words behind `begin`, in lines that fit, of which further ones stand below the first word.
pub(super) fn wrapped(text: &mut String, begin: &str, words: &str) {
    let indent = if begin.is_empty() { 4 } else { begin.chars().count() };
    let mut line = begin.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(text, "{}", line.trim_end()).expect("a text takes all");
            line = " ".repeat(indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    writeln!(text, "{}", line.trim_end()).expect("a text takes all");
}

#[cfg(test)]
mod tests {
    use super::super::map::{Failure, PassedOver};
    use super::*;

    fn reads(reader: &str, owner: &str, lane: &str, gb_per_s: f64) -> Reads {
        let (reader, owner, lane) = (reader.to_owned(), owner.to_owned(), lane.to_owned());
        let (expected_gb_per_s, latency_us, passed_over) = (None, 20.04, Vec::new());
        Reads { reader, owner, lane, tls: false, gb_per_s, expected_gb_per_s, latency_us, passed_over }
    }

    #[test]
    fn a_small_cluster_is_a_matrix_and_reasons() {
        let mut far = reads("decode-a", "prefill-b", "tcp", 1.14);
        far.expected_gb_per_s = Some(12.5);
        let reason = |lane: &str, reason: &str| PassedOver { lane: lane.to_owned(), reason: reason.to_owned() };
        far.passed_over = vec![
            reason("local", "other process"),
            reason("shm", "no common Unix socket: the peer is on another host, or gone"),
            reason("rdma", "no device: the kernel has no RDMA (modprobe ib_uverbs)"),
        ];
        let reads = vec![reads("decode-a", "prefill-a", "shm", 21.26), far];
        let workers = ["decode-a", "prefill-a", "prefill-b"].map(str::to_owned).to_vec();
        let failed = vec![Failure { url: "http://h:1".to_owned(), reason: "refused".to_owned() }];
        let expect = "\
Lane and GB/s by which a worker (row) reads from another (column)

                         1              2              3
1 decode-a               -       shm 21.3        tcp 1.1
2 prefill-a              -              -              -
3 prefill-b              -              -              -

decode-a reads from prefill-a: shm, 21.3 GB/s, 20.0 us
decode-a reads from prefill-b: tcp, 1.1 GB/s of 12.5 expected, 20.0 us
    not local  other process
    not shm    no common Unix socket: the peer is on another host, or gone
    not rdma   no device: the kernel has no RDMA (modprobe ib_uverbs)
http://h:1 was asked in vain: refused
";
        assert_eq!(cluster(&Topology { workers, reads, failed }), expect);
        assert!(cluster(&Topology::default()).starts_with("None of these processes reads from a worker"));
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let workers: Vec<String> = (0..23).map(|n| format!("decode-worker-of-rack-{n}-host-{}", n * 7919)).collect();
        let mut all = Vec::new();
        for reader in &workers {
            for owner in workers.iter().filter(|owner| *owner != reader) {
                let mut reads = reads(reader, owner, "nvlink", 999.9);
                let reason = "a reason of many words that goes on and on, ".repeat(5);
                reads.passed_over = vec![PassedOver { lane: "local".to_owned(), reason }];
                all.push(reads);
            }
        }
        let text = cluster(&Topology { workers, reads: all, failed: Vec::new() });
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(WIDTH), "{widest:?}");
        assert_eq!(text.matches("nvlink 999.9").count(), 23 * 22, "every cell is there");
    }

    #[test]
    fn the_lanes_of_a_host_are_a_table() {
        let lane = |lane, taken, cost: Option<(f64, f64)>, reason: Option<&str>| HostLane {
            lane,
            taken,
            gb_per_s: cost.map(|(speed, _)| speed),
            latency_us: cost.map(|(_, latency)| latency),
            reason: reason.map(str::to_owned),
        };
        let lanes = [
            lane("local", false, Some((23.14, 0.032)), None),
            lane("nvlink", false, None, Some("this worker has no memory of a device")),
            lane("shm", true, Some((20.2, 0.4)), None),
            lane("tcp", false, Some((4.1, 18.0)), None),
        ];
        let expect = "\
Lanes of this host, measured now, between two processes but for local

  lane          GB/s  latency
  local         23.1  0.03 us  taken within one process
  nvlink           -        -  this worker has no memory of a device
  shm           20.2  0.40 us  taken between processes of this host
  tcp            4.1  18.0 us
";
        assert_eq!(host(&lanes), expect);
    }
}

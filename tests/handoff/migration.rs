//! Running sequences move from one decode worker to another, and nobody can tell from their text.

use super::{Cluster, options};
use domain::session::{Assignment, ToWorker};
use domain::{RequestId, WorkerId};
use std::sync::atomic::Ordering;
use tests::cluster::{Asked, DECODE, Options, prompt};

/// The decode worker of the second pair.
const OTHER: WorkerId = WorkerId(3);

/// Two decode workers, slow enough to be caught in the middle.
fn cluster(options: Options) -> Cluster {
    let cluster = Cluster::new(&Options { pairs: 2, ..options });
    cluster.decode_knobs.layer_us.store(1_000, Ordering::Relaxed);
    cluster
}

fn decoding(cluster: &mut Cluster, request: &Asked, tokens: usize) {
    cluster.submit(DECODE, request, Assignment::Whole);
    let key = request.key(0);
    cluster.until("some tokens", |cluster| cluster.rows.get(&key).is_some_and(|rows| rows.len() >= tokens));
}

#[test]
fn a_sequence_goes_on_elsewhere() {
    for window in [None, Some(9)] {
        let mut cluster = cluster(options(window));
        let request = Asked::new(1, prompt(45, 1), 80);
        decoding(&mut cluster, &request, 5);
        let moved = cluster.migrate(&request, DECODE, OTHER);
        let (text, there) = cluster.moved_text(&request, &moved);
        assert_eq!(text, cluster.expected(&request, 0));
        assert!(there > 0 && there < 80, "{there} tokens were made by the one that took over");
        cluster.wait_idle();
    }
}

#[test]
fn many_move_at_once_and_back() {
    let mut cluster = cluster(options(None));
    let requests: Vec<_> = (0..8).map(|i| Asked::new(i, prompt(11 + 7 * i as u32, i as u32), 120)).collect();
    requests.iter().for_each(|request| decoding(&mut cluster, request, 1));
    let there: Vec<_> = requests.iter().map(|request| cluster.migrate(request, DECODE, OTHER)).collect();
    for moved in &there {
        let key = moved.key(0);
        cluster.until("tokens from the one that took over", |cluster| {
            cluster.rows.get(&key).is_some_and(|rows| !rows.is_empty())
        });
    }
    // What was heard of the second life of each is all that its third is told.
    let wholes: Vec<_> = requests
        .iter()
        .zip(&there)
        .map(|(request, moved)| {
            let heard = cluster.rows[&request.key(0)].iter().map(|(_, row)| row.token).collect();
            Asked { committed: heard, ..moved.clone() }
        })
        .collect();
    let back: Vec<_> = wholes.iter().map(|moved| cluster.migrate(moved, OTHER, DECODE)).collect();
    for ((request, whole), moved) in requests.iter().zip(&wholes).zip(&back) {
        let (tail, _) = cluster.moved_text(whole, moved);
        assert_eq!([whole.committed.clone(), tail].concat(), cluster.expected(request, 0), "request {}", request.id);
    }
    cluster.wait_idle();
}

#[test]
fn one_that_ends_before_it_has_moved_leaves_nothing_behind() {
    let mut cluster = cluster(options(None));
    let request = Asked::new(1, prompt(30, 1), 12);
    decoding(&mut cluster, &request, 4);
    let moved = cluster.migrate(&request, DECODE, OTHER);
    let (text, there) = cluster.moved_text(&request, &moved);
    assert_eq!((text, there), (cluster.expected(&request, 0), 0));
    // The router's part: the request is over.
    cluster.tell(OTHER, &ToWorker::Cancel { request: RequestId(1), epoch: moved.epoch, choice: None });
    cluster.wait_idle();
}

#[test]
fn a_cancel_while_it_moves_frees_both_sides() {
    let mut cluster = cluster(options(None));
    for id in 0..10 {
        let request = Asked::new(id, prompt(60, id as u32), 200);
        decoding(&mut cluster, &request, 3);
        let moved = cluster.migrate(&request, DECODE, OTHER);
        let epochs = [(DECODE, request.epoch), (OTHER, moved.epoch)];
        let order = if id.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for (worker, epoch) in order.map(|at| epochs[at]) {
            cluster.tell(worker, &ToWorker::Cancel { request: RequestId(id), epoch, choice: None });
        }
        cluster.wait_idle();
    }
}

#[test]
fn without_room_to_go_on_it_stops_at_once() {
    // Two sequences fill the giver's pool, so that there is no block to spare for going on while it is read.
    let mut cluster = cluster(Options { blocks: [64, 24], reserve: 0, ..options(None) });
    let requests: Vec<_> = (0..2).map(|i| Asked::new(i, prompt(40, i as u32), 44)).collect();
    requests.iter().for_each(|request| decoding(&mut cluster, request, 2));
    let moved = cluster.migrate(&requests[0], DECODE, OTHER);
    let (text, there) = cluster.moved_text(&requests[0], &moved);
    assert_eq!(text, cluster.expected(&requests[0], 0));
    assert!(there > 0);
    cluster.wait_end(&requests[1]);
    assert_eq!(cluster.text(&requests[1], 0), cluster.expected(&requests[1], 0));
    cluster.wait_idle();
}

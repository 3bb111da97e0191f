//! A router that does not read for a while: its worker computes no further for it than there is room for what
//! waits, goes on for others, and says everything once it reads again.

use super::*;
use proto::queue::weight;

/// Bytes that wait for a router before its sequences do.
const OUTBOX_BYTES: usize = 8 << 10;
/// Sequences of the router that stops reading.
const SEQUENCES: u64 = 4;
/// Tokens of each of them.
const TOKENS: u32 = 300;
/// Rows of a request of the other router: its prompt, and all its tokens but the last.
const OTHERS_ROWS: u64 = 12 + 49;

#[test]
fn a_router_that_stops_reading_slows_its_own_work_alone_and_gets_all_of_it_later() {
    let mut cluster = Cluster::new(&Options { blocks: [1024; 2], outbox_bytes: OUTBOX_BYTES, ..options(None) });
    let slow: Vec<Asked> = (1..=SEQUENCES).map(|id| Asked::new(id, prompt(20, id as u32), TOKENS)).collect();
    slow.iter().for_each(|request| cluster.hand_off(request));
    cluster.until("all decode", |cluster| {
        slow.iter().all(|request| cluster.rows.get(&request.key(0)).is_some_and(|rows| rows.len() > 3))
    });
    let is_reading = cluster.stop_reading();
    let _sessions = [PREFILL, DECODE].map(|id| cluster.another_session(id));

    // For another router the worker goes on, and soon for that one alone.
    let rows = |cluster: &Cluster| cluster.decode_knobs.rows.load(Ordering::Relaxed);
    let mut others = 0;
    loop {
        others += 1;
        let before = rows(&cluster);
        let request = Asked::new(SEQUENCES + others, prompt(12, 50 + others as u32), 50);
        cluster.submit(DECODE, &request, Assignment::Whole);
        cluster.wait_end(&request);
        assert_eq!(cluster.text(&request, 0), cluster.expected(&request, 0));
        if rows(&cluster) - before == OTHERS_ROWS {
            break;
        }
    }
    // The first token of each is its prefill worker's.
    let all = SEQUENCES * u64::from(TOKENS - 1);
    let computed = rows(&cluster) - others * OTHERS_ROWS;
    assert!(computed < all, "everything was computed while nobody read");
    let heard: usize = slow.iter().map(|request| cluster.rows[&request.key(0)].len() - 1).sum();
    let frames = (computed - heard as u64) / SEQUENCES;
    assert!(frames <= (OUTBOX_BYTES / weight(0)) as u64 + 1, "{frames} frames wait");

    is_reading.store(true, Ordering::Release);
    for request in &slow {
        cluster.wait_end(request);
        assert_eq!(cluster.text(request, 0), cluster.expected(request, 0));
    }
    assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
    assert_eq!(rows(&cluster), all + others * OTHERS_ROWS, "nothing was computed twice");
}

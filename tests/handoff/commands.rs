//! What an operator asks of a worker, and whose blocks it is asked of.

use super::*;
use domain::session::Report;
use kv_manager::Quotas;
use proto::admin::prefix_ask::Body as Do;
use proto::admin::{Nothing, PrefixOutcome, WorkerPrefix};

/// A decode worker that computes prompts itself, with 24 blocks of four tokens.
pub(crate) fn small() -> Cluster {
    Cluster::new(&Options { blocks: [24; 2], pinned_percent: 50, host_bytes: 1 << 20, ..options(None) })
}

/// Runs a request and checks its text. How much of its prompt was cached.
pub(crate) fn ask(cluster: &mut Cluster, request: &Asked) -> u32 {
    cluster.submit(DECODE, request, Assignment::Whole);
    cluster.wait_end(request);
    assert!(cluster.failures.is_empty(), "{:?}", cluster.failures);
    assert_eq!(cluster.text(request, 0), cluster.expected(request, 0), "request {}", request.id);
    cluster.rows[&request.key(0)][0].1.cached_tokens
}

/// Prompts that nobody sends again, more than the worker has blocks for.
fn scan(cluster: &mut Cluster, id: u64) {
    (id..id + 6).for_each(|id| assert_eq!(ask(cluster, &Asked::new(id, prompt(40, id as u32), 2)), 0));
}

/// What the worker does with a prefix of no tenant.
fn prefix(cluster: &tests::cluster::Cluster, tokens: &[Token], what: Do) -> WorkerPrefix {
    cluster.prefix(DECODE, "", tokens, what)
}

const HOUR_MS: u64 = 3_600_000;

#[test]
fn a_pinned_prefix_stays_until_it_is_let_go() {
    let mut cluster = small();
    let asked = |id| Asked::new(id, prompt(30, 1), 4);
    let tokens = prompt(30, 1)[..22].to_vec();
    let pinned = prefix(&cluster, &tokens, Do::Pin(HOUR_MS));
    assert_eq!((pinned.outcome(), pinned.pinned, pinned.why.as_str()), (PrefixOutcome::Done, true, ""));
    assert_eq!((pinned.tokens, pinned.device_tokens), (20, 0), "it is not computed for this");
    let refused = prefix(&cluster, &prompt(40, 2), Do::Pin(HOUR_MS));
    assert_eq!((refused.outcome(), refused.pinned), (PrefixOutcome::Refused, false));
    assert!(refused.why.contains("50% of its blocks (kv.pinned_percent)"), "{refused:?}");
    assert_eq!(ask(&mut cluster, &asked(1)), 0);
    scan(&mut cluster, 100);
    assert_eq!(super::operator::device(&cluster).pinned, 5);
    assert_eq!(ask(&mut cluster, &asked(2)), 20);
    let held = prefix(&cluster, &tokens, Do::Park(Nothing {}));
    assert_eq!((held.outcome(), held.blocks, held.device_tokens), (PrefixOutcome::Unchanged, 0, 20), "{held:?}");
    let unpin = |cluster: &Cluster| prefix(cluster, &tokens, Do::Unpin(Nothing {}));
    let unpinned = unpin(&cluster);
    assert_eq!((unpinned.outcome(), unpinned.pinned, unpinned.device_tokens), (PrefixOutcome::Done, false, 20));
    assert_eq!(unpin(&cluster).outcome(), PrefixOutcome::Unchanged);
    assert_eq!(super::operator::device(&cluster).pinned, 0);
    // No block is kept from anybody any more.
    cluster.wait_idle();
}

#[test]
fn a_pin_lapses_by_itself() {
    let mut cluster = small();
    assert_eq!(prefix(&cluster, &prompt(20, 1), Do::Pin(1)).outcome(), PrefixOutcome::Done);
    ask(&mut cluster, &Asked::new(1, prompt(30, 1), 4));
    cluster.wait_idle();
}

#[test]
fn a_parked_conversation_goes_on_as_if_it_had_not_been() {
    let folder = tempfile::tempdir().expect("a folder");
    for disk in [None, Some(folder.path())] {
        parks_and_goes_on(disk);
    }
}

/// To memory, or to disk in this folder.
fn parks_and_goes_on(folder: Option<&std::path::Path>) {
    let host_bytes = if folder.is_none() { 1 << 20 } else { 0 };
    let disk = folder.map(std::path::Path::to_owned);
    let mut cluster = Cluster::new(&Options { blocks: [24; 2], host_bytes, disk, ..options(None) });
    let below = |report: &Report| {
        let [there, elsewhere] =
            if folder.is_none() { [&report.host, &report.disk] } else { [&report.disk, &report.host] };
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
        there.len()
    };
    let first = Asked::new(1, prompt(40, 1), 8);
    ask(&mut cluster, &first);
    // What is being written to disk does not leave before it was.
    cluster.wait_idle();
    let said = [first.prompt.clone(), cluster.expected(&first, 0)].concat();
    // The last token's KV was never needed: eleven blocks of four tokens are full.
    assert_eq!(cluster.park(DECODE, "", &said), 11);
    cluster.until("all of it to be parked", |cluster| cluster.park(DECODE, "", &said) == 0);
    // Routers hear where it is, also those that know nothing yet.
    cluster.reports.clear();
    cluster.tell(DECODE, &ToWorker::Snapshot);
    cluster.until("routers to hear of it", |cluster| {
        cluster.reports.get(&DECODE).is_some_and(|report| below(report) == 11)
    });
    let next = Asked::new(2, [said.clone(), prompt(5, 2)].concat(), 8);
    assert_eq!(ask(&mut cluster, &next), 44, "all of it was loaded");
    cluster.wait_idle();
    // Now it is on the device again.
    let on_device = |report: &Report| report.snapshot && report.added.len() >= 11 && below(report) == 0;
    cluster.reports.clear();
    cluster.tell(DECODE, &ToWorker::Snapshot);
    cluster.until("routers to hear of it", |cluster| cluster.reports.get(&DECODE).is_some_and(on_device));
}

#[test]
fn what_is_unparked_is_on_the_device_before_its_next_turn() {
    for window in [None, Some(6)] {
        let folder = tempfile::tempdir().expect("a folder");
        for disk in [None, Some(folder.path().to_owned())] {
            let host_bytes = if disk.is_none() { 1 << 20 } else { 0 };
            let mut cluster = Cluster::new(&Options { blocks: [24; 2], host_bytes, disk, ..options(window) });
            let first = Asked::new(1, prompt(40, 1), 8);
            ask(&mut cluster, &first);
            cluster.wait_idle();
            let said = [first.prompt.clone(), cluster.expected(&first, 0)].concat();
            let unpark = |cluster: &tests::cluster::Cluster| prefix(cluster, &said, Do::Unpark(Nothing {}));
            let there = unpark(&cluster);
            assert_eq!((there.outcome(), there.device_tokens), (PrefixOutcome::Unchanged, 44), "{there:?}");
            cluster.until("all of it to be parked", |cluster| cluster.park(DECODE, "", &said) == 0);
            let begun = unpark(&cluster);
            assert_eq!((begun.outcome(), begun.device_tokens, begun.tokens), (PrefixOutcome::Done, 0, 48), "{begun:?}");
            assert!(begun.blocks > 0, "{begun:?}");
            cluster.until("it is on the device", |cluster| unpark(cluster).device_tokens == 44);
            // No tier is read for the next turn.
            let before = super::operator::below(&cluster);
            let next = Asked::new(2, [said.clone(), prompt(5, 2)].concat(), 8);
            assert_eq!(ask(&mut cluster, &next), 44);
            assert_eq!(super::operator::below(&cluster), before, "tiers were looked at for what the device has");
            cluster.wait_idle();
        }
    }
}

#[test]
fn what_is_unparked_takes_no_room_that_is_in_use() {
    let mut cluster = small();
    let parked = Asked::new(1, prompt(40, 1), 4);
    ask(&mut cluster, &parked);
    cluster.until("it to be parked", |cluster| cluster.park(DECODE, "", &parked.prompt) == 0);
    // A pin holds twelve blocks, and what runs ten or more of the other twelve.
    let pinned = prompt(48, 2);
    ask(&mut cluster, &Asked::new(2, pinned.clone(), 2));
    assert_eq!(prefix(&cluster, &pinned, Do::Pin(HOUR_MS)).outcome(), PrefixOutcome::Done);
    cluster.decode_knobs.layer_us.store(20_000, Ordering::Relaxed);
    let runs = Asked::new(3, prompt(36, 3), 6);
    cluster.submit(DECODE, &runs, Assignment::Whole);
    cluster.until("it runs", |cluster| cluster.rows.contains_key(&runs.key(0)));
    let unparked = prefix(&cluster, &parked.prompt, Do::Unpark(Nothing {}));
    assert!(unparked.blocks <= 2 && unparked.device_tokens == 0, "{unparked:?}");
    cluster.wait_end(&runs);
    assert_eq!(cluster.text(&runs, 0), cluster.expected(&runs, 0));
    prefix(&cluster, &pinned, Do::Unpin(Nothing {}));
    cluster.until("it is on the device", |cluster| {
        prefix(cluster, &parked.prompt, Do::Unpark(Nothing {})).device_tokens == 40
    });
    cluster.wait_idle();
}

#[test]
fn what_cannot_be_done_with_a_prefix_is_refused_with_the_reason() {
    let cluster = Cluster::new(&Options { blocks: [24; 2], ..options(None) });
    let all = [Do::Pin(HOUR_MS), Do::Unpin(Nothing {}), Do::Park(Nothing {}), Do::Unpark(Nothing {})];
    let why = |tokens: &[Token], what: Do| {
        let answer = prefix(&cluster, tokens, what);
        assert_eq!(answer.outcome(), PrefixOutcome::Refused, "{answer:?}");
        answer.why
    };
    for what in all {
        assert_eq!(why(&prompt(3, 1), what), "the prefix has fewer tokens (3) than a block (4)");
        assert!(why(&vec![0; 1 << 20], what).contains("the worker's context"));
    }
    assert!(why(&prompt(8, 1), Do::Pin(HOUR_MS)).contains("kv.pinned_percent is 0"));
    assert!(why(&prompt(8, 1), Do::Pin(31 * 24 * HOUR_MS)).contains("30 days at most"));
    assert!(why(&prompt(8, 1), Do::Park(Nothing {})).contains("host.bytes"));
}

#[test]
fn tenants_share_no_block() {
    let mut cluster = small();
    let of = |id, tenant: &str| Asked { tenant: tenant.to_owned(), ..Asked::new(id, prompt(30, 1), 4) };
    assert_eq!(ask(&mut cluster, &of(1, "one")), 0);
    assert_eq!(ask(&mut cluster, &of(2, "other")), 0);
    assert_eq!(ask(&mut cluster, &of(3, "")), 0);
    assert_eq!(ask(&mut cluster, &of(4, "one")), 28);
    // What one has is nobody else's to park.
    assert_eq!(cluster.park(DECODE, "nobody", &prompt(30, 1)), 0);
    cluster.wait_idle();
}

#[test]
fn a_tenant_that_asks_a_lot_costs_the_others_nothing_that_is_within_their_quota() {
    for (device_percent, kept) in [(100, 0), (50, 28)] {
        let quotas = Quotas { device_percent, ..Quotas::default() };
        let mut cluster = Cluster::new(&Options { blocks: [24; 2], quotas, ..options(None) });
        let of = |id, tenant: &str, tokens| Asked { tenant: tenant.to_owned(), ..Asked::new(id, tokens, 4) };
        assert_eq!(ask(&mut cluster, &of(1, "one", prompt(30, 1))), 0);
        for id in 10..16 {
            assert_eq!(ask(&mut cluster, &of(id, "other", prompt(40, id as u32))), 0);
        }
        assert_eq!(ask(&mut cluster, &of(2, "one", prompt(30, 1))), kept, "with a quota of {device_percent}%");
        cluster.wait_idle();
    }
}

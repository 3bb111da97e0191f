//! What an operator asks of a worker, and whose blocks it is asked of.

use super::*;
use domain::session::Report;
use kv_manager::Quotas;
use worker::{Answer, Command, Prefix};

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

pub(crate) fn prefix(tenant: &str, tokens: &[Token]) -> Prefix {
    Prefix { tenant: tenant.to_owned(), tokens: tokens.to_vec() }
}

#[test]
fn a_pinned_prefix_stays_until_it_is_let_go() {
    let mut cluster = small();
    let asked = |id| Asked::new(id, prompt(30, 1), 4);
    let pinned = prefix("", &prompt(30, 1)[..22]);
    let pin = |tokens: &[Token]| Command::Pin { prefix: prefix("", tokens), duration: Duration::from_secs(3600) };
    assert_eq!(cluster.command(DECODE, pin(&pinned.tokens)), Answer::Pinned { tokens: 20 });
    assert_eq!(cluster.command(DECODE, pin(&prompt(40, 2))), Answer::TooManyPinned);
    assert_eq!(ask(&mut cluster, &asked(1)), 0);
    scan(&mut cluster, 100);
    assert_eq!(ask(&mut cluster, &asked(2)), 20);
    let unpin = || Command::Unpin { prefix: pinned.clone() };
    assert_eq!(cluster.command(DECODE, unpin()), Answer::Unpinned { was_pinned: true });
    assert_eq!(cluster.command(DECODE, unpin()), Answer::Unpinned { was_pinned: false });
    // No block is kept from anybody any more.
    cluster.wait_idle();
}

#[test]
fn a_pin_lapses_by_itself() {
    let mut cluster = small();
    let pin = Command::Pin { prefix: prefix("", &prompt(20, 1)), duration: Duration::from_millis(1) };
    assert_eq!(cluster.command(DECODE, pin), Answer::Pinned { tokens: 20 });
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
    let park = || Command::Park { prefix: prefix("", &said) };
    // The last token's KV was never needed: eleven blocks of four tokens are full.
    assert_eq!(cluster.command(DECODE, park()), Answer::Parked { blocks: 11 });
    cluster.until("all of it to be parked", |cluster| cluster.command(DECODE, park()) == Answer::Parked { blocks: 0 });
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
fn tenants_share_no_block() {
    let mut cluster = small();
    let of = |id, tenant: &str| Asked { tenant: tenant.to_owned(), ..Asked::new(id, prompt(30, 1), 4) };
    assert_eq!(ask(&mut cluster, &of(1, "one")), 0);
    assert_eq!(ask(&mut cluster, &of(2, "other")), 0);
    assert_eq!(ask(&mut cluster, &of(3, "")), 0);
    assert_eq!(ask(&mut cluster, &of(4, "one")), 28);
    // What one has is nobody else's to park.
    let park = |tenant| Command::Park { prefix: prefix(tenant, &prompt(30, 1)) };
    assert_eq!(cluster.command(DECODE, park("nobody")), Answer::Parked { blocks: 0 });
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

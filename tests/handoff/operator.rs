//! What an operator asks of a worker at its own port: drain, another role, flush, and what there is to see.

use super::commands::{ask, small};
use super::*;
use proto::admin::worker_answer::Body as Answer;
use proto::admin::worker_ask::Body as Ask;
use proto::admin::{Nothing, Role, Tier, Worker, WorkerState};

fn state(cluster: &Cluster, ask: Ask) -> Worker {
    match cluster.ask(DECODE, ask).body {
        Some(Answer::State(worker)) => worker,
        other => panic!("{other:?}"),
    }
}

fn tiers(cluster: &Cluster) -> Vec<Tier> {
    match cluster.ask(DECODE, Ask::Tiers(Nothing {})).body {
        Some(Answer::Tiers(tiers)) => tiers.tiers,
        other => panic!("{other:?}"),
    }
}

/// The worker's device.
pub(crate) fn device(cluster: &Cluster) -> Tier {
    tiers(cluster).into_iter().find(|tier| tier.tier == "device").expect("it is there")
}

/// What was looked for in the worker's tiers, and found there.
pub(crate) fn below(cluster: &Cluster) -> Vec<(String, u64)> {
    let below = tiers(cluster).into_iter().filter(|tier| tier.tier != "device");
    below.map(|tier| (tier.tier, tier.hits)).collect()
}

/// Submits a request that is refused, and returns why.
fn refused(cluster: &mut Cluster, id: u64, assignment: Assignment) -> String {
    let request = Asked::new(id, prompt(10, id as u32), 4);
    cluster.failures.clear();
    cluster.submit(DECODE, &request, assignment);
    cluster.until("it is refused", |cluster| !cluster.failures.is_empty());
    format!("{:?}", std::mem::take(&mut cluster.failures))
}

#[test]
fn a_worker_that_is_drained_refuses_what_costs_no_attempt_and_takes_work_again() {
    let mut cluster = small();
    assert_eq!(ask(&mut cluster, &Asked::new(1, prompt(30, 1), 4)), 0);
    let drained = state(&cluster, Ask::Drain(true));
    assert_eq!((drained.state(), drained.role()), (WorkerState::Drained, Role::Decode));
    let why = refused(&mut cluster, 2, Assignment::Whole);
    assert!(why.contains("QueueFull"), "{why}");
    // Routers hear of it.
    cluster.until("a report says so", |cluster| cluster.reports.get(&DECODE).is_some_and(|report| report.draining));
    assert_eq!(state(&cluster, Ask::Drain(false)).state(), WorkerState::Serving);
    assert!(ask(&mut cluster, &Asked::new(3, prompt(30, 1), 4)) > 0, "its cache is as it was");
    cluster.wait_idle();
}

#[test]
fn a_role_is_changed_and_back() {
    let mut cluster = small();
    assert_eq!(state(&cluster, Ask::Role(Role::Prefill.into())).role(), Role::Prefill);
    let why = refused(&mut cluster, 1, Assignment::Whole);
    assert!(why.contains("QueueFull"), "{why}");
    let prefill = Some(domain::session::Role::Prefill);
    cluster.until("a report says so", |cluster| cluster.reports.get(&DECODE).is_some_and(|it| it.role == prefill));
    assert_eq!(state(&cluster, Ask::Role(Role::Decode.into())).role(), Role::Decode);
    assert_eq!(ask(&mut cluster, &Asked::new(2, prompt(30, 1), 4)), 0);
    assert!(matches!(cluster.ask(DECODE, Ask::Role(7)).body, Some(Answer::Refused(_))));
    cluster.wait_idle();
}

#[test]
fn what_nothing_holds_is_flushed_and_counted() {
    let mut cluster = small();
    let request = |id| Asked::new(id, prompt(30, 1), 4);
    ask(&mut cluster, &request(1));
    let before = device(&cluster);
    assert!(before.blocks > 0 && before.bytes > 0 && before.blocks_max == 24, "{before:?}");
    let Some(Answer::Flushed(flushed)) = cluster.ask(DECODE, Ask::Flush(Nothing {})).body else { panic!("no flush") };
    assert_eq!((flushed.blocks, device(&cluster).blocks), (before.blocks, 0));
    let Some(Answer::Dump(dump)) = cluster.ask(DECODE, Ask::Dump(Nothing {})).body else { panic!("no dump") };
    assert!(dump.attempts.is_empty() && dump.in_step == 0, "{dump:?}");
    cluster.wait_idle();
}

//! Steps that are planned while another one is in flight.

use super::toy::{ToyKv, job, key, show};
use crate::{Scheduler, SchedulerConfig, Work};
use domain::Time;

const CONFIG: SchedulerConfig = SchedulerConfig {
    step_tokens_max: 16,
    chunk_tokens: 8,
    running_max: 4,
    waiting_max: 4,
    block_tokens: 4,
    samples_max: 4,
};

/// Plans a step, which prints as `line`.
fn plan(scheduler: &mut Scheduler, kv: &mut ToyKv, line: &str) -> Vec<Work> {
    let schedule = scheduler.schedule(kv);
    assert_eq!(show(&schedule), line);
    schedule.work
}

/// A scheduler with sequences that decode: their tokens.
fn decoding(kv: &mut ToyKv, tokens: &[u32]) -> Scheduler {
    let mut scheduler = Scheduler::new(CONFIG);
    for (&tokens, request) in tokens.iter().zip(1..) {
        scheduler.add_running(key(request), tokens, Time(request));
        kv.open.insert(key(request), tokens.div_ceil(kv.block_tokens));
    }
    scheduler
}

#[test]
fn a_step_is_planned_as_if_the_one_in_flight_had_ended() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = decoding(&mut kv, &[9]);
    scheduler.add(job(2, 18));
    let first = plan(&mut scheduler, &mut kv, "r1[8..9]+1 r2[0..8] | admit r2(0)");
    let second = plan(&mut scheduler, &mut kv, "r1[9..10]+1 r2[8..16]");
    scheduler.computed(&first);
    let third = plan(&mut scheduler, &mut kv, "r1[10..11]+1 r2[16..18]+1");
    scheduler.computed(&second);
    // The end of the prompt is in flight: which of its choices go on is not known before.
    let fourth = plan(&mut scheduler, &mut kv, "r1[11..12]+1");
    scheduler.computed(&third);
    assert!(scheduler.decodes(key(2)));
    let fifth = plan(&mut scheduler, &mut kv, "r1[12..13]+1 r2[18..19]+1");
    scheduler.computed(fourth.iter().chain(&fifth));
    plan(&mut scheduler, &mut kv, "r1[13..14]+1 r2[19..20]+1");
}

#[test]
fn a_sequence_in_flight_is_not_preempted() {
    // Both have two blocks, which are full, and there is one more.
    let mut kv = ToyKv::new(5, 4);
    let mut scheduler = decoding(&mut kv, &[8, 8]);
    let first = plan(&mut scheduler, &mut kv, "r1[7..8]+1 r2[7..8]+1");
    plan(&mut scheduler, &mut kv, "");
    plan(&mut scheduler, &mut kv, "");
    scheduler.computed(&first);
    plan(&mut scheduler, &mut kv, "r1[8..9]+1 | preempt r2");
}

#[test]
fn what_ended_meanwhile_is_forgotten() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = decoding(&mut kv, &[9, 5]);
    let first = plan(&mut scheduler, &mut kv, "r1[8..9]+1 r2[4..5]+1");
    let second = plan(&mut scheduler, &mut kv, "r1[9..10]+1 r2[5..6]+1");
    scheduler.computed(&first);
    assert!(scheduler.remove(key(1)));
    let third = plan(&mut scheduler, &mut kv, "r2[6..7]+1");
    scheduler.computed(second.iter().chain(&third));
    assert_eq!(scheduler.running_len(), 1);
    // Nothing counts as in flight any more.
    kv.open.remove(&key(1));
    kv.blocks = 2;
    let fourth = plan(&mut scheduler, &mut kv, "r2[7..8]+1");
    scheduler.computed(&fourth);
    plan(&mut scheduler, &mut kv, " | preempt r2");
}

//! Schedules of small stories, as they print.

use super::toy::{ToyKv, admit, job, key, show};
use crate::{Added, Job, Kind, KvSpace, Scheduler, SchedulerConfig};
use domain::Time;

const CONFIG: SchedulerConfig = SchedulerConfig {
    step_tokens_max: 16,
    chunk_tokens: 8,
    running_max: 4,
    waiting_max: 4,
    block_tokens: 4,
    samples_max: 4,
};

/// Runs as many steps as there are lines and compares.
fn check(scheduler: &mut Scheduler, kv: &mut ToyKv, expect: &[&str]) {
    for (step, line) in expect.iter().enumerate() {
        let schedule = scheduler.schedule(kv);
        assert_eq!(&show(&schedule), line, "step {step}");
        scheduler.computed(&schedule.work);
    }
}

fn scheduler(jobs: &[Job]) -> Scheduler {
    let mut scheduler = Scheduler::new(CONFIG);
    for &job in jobs {
        assert_eq!(scheduler.add(job), Added::Queued);
    }
    scheduler
}

#[test]
fn a_prompt_is_computed_in_chunks_and_then_decodes() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[job(1, 18)]);
    assert_eq!(scheduler.waiting_tokens(), 18);
    check(&mut scheduler, &mut kv, &["r1[0..8] | admit r1(0)"]);
    assert_eq!(scheduler.waiting_tokens(), 10);
    check(&mut scheduler, &mut kv, &["r1[8..16]", "r1[16..18]+1", "r1[18..19]+1", "r1[19..20]+1"]);
    assert_eq!(scheduler.waiting_tokens(), 0);
}

#[test]
fn a_prompt_whose_chunk_has_no_blocks_yet_lets_others_go_on() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[job(1, 30), job(2, 10)]);
    check(&mut scheduler, &mut kv, &["r1[0..8] r2[0..8] | admit r1(0) r2(0)"]);
    kv.stuck.insert(key(1));
    scheduler.add(job(3, 6));
    check(&mut scheduler, &mut kv, &["r2[8..10]+1 r3[0..6]+1 | admit r3(0)", "r2[10..11]+1 r3[6..7]+1"]);
    kv.stuck.clear();
    check(&mut scheduler, &mut kv, &["r2[11..12]+1 r3[7..8]+1 r1[8..16]"]);
}

#[test]
fn decode_tokens_come_before_chunks_and_chunks_end_on_blocks() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[job(2, 30), job(3, 30)]);
    scheduler.add_running(key(1), 9, Time(1));
    kv.open.insert(key(1), 3);
    // 15 tokens are left after the decode token: a chunk of 8, and of the other 7 one block.
    check(
        &mut scheduler,
        &mut kv,
        &[
            "r1[8..9]+1 r2[0..8] r3[0..4] | admit r2(0) r3(0)",
            "r1[9..10]+1 r2[8..16] r3[4..8]",
            "r1[10..11]+1 r2[16..24] r3[8..12]",
            "r1[11..12]+1 r2[24..30]+1 r3[12..20]",
            "r1[12..13]+1 r2[30..31]+1 r3[20..28]",
            "r1[13..14]+1 r2[31..32]+1 r3[28..30]+1",
        ],
    );
}

#[test]
fn cached_tokens_are_not_computed() {
    let mut kv = ToyKv::new(100, 4);
    kv.cached_tokens = 12;
    check(&mut scheduler(&[job(1, 14), job(2, 12)]), &mut kv, &["r1[12..14]+1 r2[8..12]+1 | admit r1(12) r2(8)"]);
}

#[test]
fn what_comes_from_elsewhere_is_not_computed_and_what_is_on_its_way_is_waited_for() {
    let mut kv = ToyKv::new(100, 4);
    // In turns: nothing comes and nothing is waited for; two blocks came; the next is on its way; one may be computed.
    kv.comes = vec![(0, u32::MAX), (2, u32::MAX), (0, 0), (0, 1)];
    let mut scheduler = scheduler(&[job(1, 30), job(2, 6)]);
    check(&mut scheduler, &mut kv, &["r1[0..8] r2[4..6]+1 | admit r1(0) r2(0)", "r2[6..7]+1"]);
    assert_eq!(scheduler.waiting_tokens(), 22);
    check(&mut scheduler, &mut kv, &["r2[7..8]+1 r1[8..12]", "r2[8..9]+1 r1[12..20]", "r2[9..10]+1 r1[28..30]+1"]);
}

#[test]
fn a_head_without_memory_blocks_those_behind_it() {
    let mut kv = ToyKv::new(5, 4);
    let mut scheduler = scheduler(&[job(1, 12), job(2, 12), job(3, 4)]);
    check(&mut scheduler, &mut kv, &["r1[0..8] | admit r1(0)"]);
    check(&mut scheduler, &mut kv, &["r1[8..12]+1", "r1[12..13]+1"]);
    assert!(scheduler.remove(key(1)));
    kv.open.remove(&key(1));
    check(&mut scheduler, &mut kv, &["r2[0..8] r3[0..4]+1 | admit r2(0) r3(0)"]);
}

#[test]
fn the_youngest_yields_and_comes_back_before_new_jobs() {
    let mut kv = ToyKv::new(4, 4);
    let mut scheduler = scheduler(&[job(1, 7), job(2, 7)]);
    check(&mut scheduler, &mut kv, &["r1[0..7]+1 r2[0..7]+1 | admit r1(0) r2(0)", "r1[7..8]+1 r2[7..8]+1"]);
    scheduler.add(job(3, 1));
    check(&mut scheduler, &mut kv, &["r1[8..9]+1 | preempt r2"]);
    assert_eq!(scheduler.waiting_len(), 2);
    // r2 knows nine tokens now and needs three blocks: it waits, and r3 behind it.
    check(&mut scheduler, &mut kv, &["r1[9..10]+1"]);
    assert!(scheduler.remove(key(1)));
    kv.open.remove(&key(1));
    check(&mut scheduler, &mut kv, &["r2[0..8] r3[0..1]+1 | admit r2(0) r3(0)", "r3[1..2]+1 r2[8..9]+1"]);
}

/// Three that decode, with two blocks each of which one slot is left, and no block beside them.
fn full() -> (ToyKv, Scheduler) {
    let (mut kv, mut scheduler) = (ToyKv::new(6, 4), scheduler(&[]));
    kv.open.extend((1..=3).map(|request| (key(request), 2)));
    (1..=3).for_each(|request| scheduler.add_running(key(request), 8, Time(request)));
    check(&mut scheduler, &mut kv, &["r1[7..8]+1 r2[7..8]+1 r3[7..8]+1"]);
    (kv, scheduler)
}

#[test]
fn who_is_held_yields_before_who_goes_on() {
    for (held, lines) in [
        ([].as_slice(), ["r1[8..9]+1 r2[8..9]+1 | preempt r3", "r1[9..10]+1 r2[9..10]+1"]),
        (&[1], ["r2[8..9]+1 r3[8..9]+1 | preempt r1", "r2[9..10]+1 r3[9..10]+1"]),
        (&[2], ["r1[8..9]+1 r3[8..9]+1 | preempt r2", "r1[9..10]+1 r3[9..10]+1"]),
        // The younger of them, for that is enough.
        (&[1, 2], ["r3[8..9]+1 | preempt r2", "r3[9..10]+1"]),
        (&[1, 2, 3], ["", ""]),
    ] {
        let (mut kv, mut scheduler) = full();
        kv.held = held.iter().copied().map(key).collect();
        check(&mut scheduler, &mut kv, &lines);
    }
}

#[test]
fn who_is_held_is_not_computed_again_and_keeps_nobody_waiting() {
    let (mut kv, mut scheduler) = full();
    kv.held.insert(key(1));
    check(&mut scheduler, &mut kv, &["r2[8..9]+1 r3[8..9]+1 | preempt r1"]);
    assert!(scheduler.queued(|key| kv.held.contains(&key)).is_none());
    assert!(scheduler.queued(|_| false).tokens > 0);
    // Three blocks for the one that was preempted, and as many for those that came later.
    kv.blocks = 9;
    scheduler.add(taken(4, 8, 1));
    scheduler.add(job(5, 4));
    assert_eq!(admit(&mut scheduler, &mut kv), "r4(0)");
    check(&mut scheduler, &mut kv, &["r2[9..10]+1 r3[9..10]+1 r5[0..4]+1 | admit r5(0)"]);
    // It is before all others once it is held no more.
    (4..=5).for_each(|ended| {
        scheduler.remove(key(ended));
        kv.open.remove(&key(ended));
    });
    scheduler.add(taken(6, 8, 1));
    kv.held.clear();
    assert_eq!(admit(&mut scheduler, &mut kv), "");
    check(&mut scheduler, &mut kv, &["r2[10..11]+1 r3[10..11]+1 r1[0..8] | admit r1(0)"]);
}

#[test]
fn who_begins_to_be_held_while_it_waits_lets_others_by_at_once() {
    let (mut kv, mut scheduler) = full();
    check(&mut scheduler, &mut kv, &["r1[8..9]+1 r2[8..9]+1 | preempt r3"]);
    kv.blocks = 8;
    scheduler.add(taken(4, 8, 1));
    assert_eq!(admit(&mut scheduler, &mut kv), "", "it would take what the one before it waits for");
    check(&mut scheduler, &mut kv, &["r1[9..10]+1 r2[9..10]+1"]);
    assert_eq!(admit(&mut scheduler, &mut kv), "");
    kv.held.insert(key(3));
    assert_eq!(admit(&mut scheduler, &mut kv), "r4(0)");
}

#[test]
fn a_sequence_that_is_alone_and_cannot_grow_gives_everything_back() {
    let mut kv = ToyKv::new(4, 4);
    let mut scheduler = scheduler(&[job(1, 8)]);
    check(&mut scheduler, &mut kv, &["r1[0..8]+1 | admit r1(0)"]);
    kv.leased = 2;
    check(&mut scheduler, &mut kv, &[" | preempt r1", ""]);
    assert!(kv.open.is_empty());
    kv.leased = 0;
    check(&mut scheduler, &mut kv, &["r1[0..8] | admit r1(0)", "r1[8..9]+1"]);
}

#[test]
fn what_can_never_run_is_said() {
    let mut kv = ToyKv::new(4, 4);
    let mut scheduler = scheduler(&[job(1, 17), Job { samples: 5, ..job(2, 1) }, job(3, 16)]);
    check(
        &mut scheduler,
        &mut kv,
        &["r3[0..8] | admit r3(0) | never r1 r2", "r3[8..16]+1", " | preempt r3", " | never r3", ""],
    );
    assert_eq!((scheduler.waiting_len(), scheduler.running_len()), (0, 0));
    assert!(!scheduler.contains(key(1)) && !scheduler.contains(key(3)));
}

#[test]
fn choices_take_running_room_from_the_start() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[Job { samples: 3, ..job(1, 9) }, Job { samples: 2, ..job(2, 2) }, job(3, 2)]);
    check(&mut scheduler, &mut kv, &["r1[0..8] | admit r1(0)"]);
    // The second needs two, and the third, which needs one, arrived after it.
    check(&mut scheduler, &mut kv, &["r1[8..9]+3"]);
    // The other two choices were forked away to elsewhere: their room is free again.
    check(&mut scheduler, &mut kv, &["r1[9..10]+1 r2[0..2]+2 r3[0..2]+1 | admit r2(0) r3(0)"]);
}

/// One that is fetched, to go on with so many choices.
fn taken(request: u64, tokens: u32, samples: u16) -> Job {
    Job { kind: Kind::TakeOver, samples, ..job(request, tokens) }
}

fn loaded(request: u64, tokens: u32) -> Job {
    Job { kind: Kind::Load, ..job(request, tokens) }
}

#[test]
fn what_is_taken_over_has_its_running_room_from_when_it_has_memory() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[taken(1, 6, 3), job(2, 2), job(3, 2)]);
    assert_eq!(admit(&mut scheduler, &mut kv), "r1(0)");
    assert_eq!((scheduler.taking_over_len(), scheduler.running_len()), (1, 0));
    check(&mut scheduler, &mut kv, &["r2[0..2]+1 | admit r2(0)", "r2[2..3]+1"]);
    // One of its choices ended already.
    scheduler.remove(key(1));
    (10..12).for_each(|choice| scheduler.add_running(key(choice), 7, Time(1)));
    kv.open.extend([(key(10), 2), (key(11), 2)]);
    check(&mut scheduler, &mut kv, &["r10[6..7]+1 r11[6..7]+1 r2[3..4]+1 r3[0..2]+1 | admit r3(0)"]);
}

#[test]
fn who_came_first_goes_first_whatever_it_waits_for() {
    // Each takes all the memory.
    let all = [job(1, 16), taken(2, 16, 1), loaded(3, 16)];
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut kv = ToyKv::new(4, 4);
        let mut scheduler = scheduler(&[]);
        // They are added in another order than they came in: a fetch, say, when its offer is there.
        let mut jobs: Vec<Job> =
            order.iter().zip(1..).map(|(&which, at)| Job { arrived: Time(at), ..all[which] }).collect();
        jobs.reverse();
        jobs.iter().for_each(|&job| assert_eq!(scheduler.add(job), Added::Queued));
        jobs.reverse();
        for first in jobs {
            let request = first.key.request.0;
            let between = admit(&mut scheduler, &mut kv);
            let schedule = show(&scheduler.schedule(&mut kv));
            match first.kind {
                Kind::TakeOver => assert_eq!((between, schedule), (format!("r{request}(0)"), String::new())),
                Kind::Load => {
                    assert_eq!((between, schedule), (format!("loads r{request}"), String::new()));
                    // What came is in the cache, and given up only for what it is part of.
                    kv.open.remove(&first.key);
                    scheduler.wait_for(first.key, Kind::Compute);
                    let schedule = show(&scheduler.schedule(&mut kv));
                    assert_eq!(schedule, format!("r{request}[0..8] | admit r{request}(0)"));
                }
                Kind::Compute | Kind::Loading { .. } => {
                    assert_eq!(between, "");
                    assert_eq!(schedule, format!("r{request}[0..8] | admit r{request}(0)"));
                }
            }
            scheduler.remove(first.key);
            kv.open.remove(&first.key);
        }
    }
}

#[test]
fn choices_that_are_fetched_get_their_room_among_jobs_that_come_all_the_time() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[job(1, 2), job(2, 2), job(3, 2), job(5, 2)]);
    check(&mut scheduler, &mut kv, &["r1[0..2]+1 r2[0..2]+1 r3[0..2]+1 r5[0..2]+1 | admit r1(0) r2(0) r3(0) r5(0)"]);
    scheduler.add(taken(6, 6, 4));
    for (ended, comes) in [(1, 7), (2, 8), (3, 9)] {
        scheduler.remove(key(ended));
        scheduler.add(job(comes, 2));
        assert_eq!(admit(&mut scheduler, &mut kv), "", "four at once are too many still");
        assert!(!show(&scheduler.schedule(&mut kv)).contains("admit"), "it came later");
    }
    scheduler.remove(key(5));
    assert_eq!(admit(&mut scheduler, &mut kv), "r6(0)");
}

#[test]
fn who_waits_for_a_step_or_a_load_keeps_others_waiting_only_where_there_is_no_room_for_both() {
    for (blocks, fits) in [(10, "r3(0)"), (9, "")] {
        let mut kv = ToyKv::new(blocks, 4);
        let mut scheduler = scheduler(&[job(1, 16), loaded(2, 16), taken(3, 8, 1)]);
        // Four blocks for the first, four for the second, of which three are loaded now.
        assert_eq!(admit(&mut scheduler, &mut kv), ["loads r2", fits].join(" ").trim());
        assert_eq!(kv.free(), if fits.is_empty() { 6 } else { 5 });
    }
}

#[test]
fn nobody_looks_again_for_room_that_was_not_there_before_some_is_given_back() {
    for head in [job(2, 16), taken(2, 16, 1), loaded(2, 16)] {
        let mut kv = ToyKv::new(5, 4);
        let mut scheduler = scheduler(&[taken(1, 5, 1)]);
        assert_eq!(admit(&mut scheduler, &mut kv), "r1(0)");
        scheduler.add(head);
        let mut turn = |kv: &mut ToyKv, comes: Option<u64>| {
            comes.into_iter().for_each(|request| assert_eq!(scheduler.add(taken(request, 1, 1)), Added::Queued));
            let before = kv.looked;
            let admitted = admit(&mut scheduler, kv);
            let schedule = scheduler.schedule(kv);
            scheduler.computed(&schedule.work);
            (kv.looked - before, admitted.len() + schedule.admitted.len())
        };
        assert_eq!(turn(&mut kv, None), (1, 0), "{head:?}");
        // Others come.
        assert!((0..3).all(|_| turn(&mut kv, None) == (0, 0)), "{head:?}");
        assert!((3..5).all(|comes| turn(&mut kv, Some(comes)) == (0, 0)), "{head:?}");
        // A step looks for a prompt that is to be computed, and between steps somebody may for the first one behind it.
        for leased in [1, 0] {
            kv.leased = leased;
            let (looked, admitted) = turn(&mut kv, None);
            assert!(admitted == 0 && (1..=2).contains(&looked), "{looked} times: {head:?}");
        }
        assert_eq!(turn(&mut kv, None), (0, 0), "{head:?}");
        kv.open.clear();
        assert!(turn(&mut kv, None).1 > 0, "{head:?}");
    }
}

#[test]
fn a_full_queue_refuses() {
    let mut scheduler = scheduler(&[job(1, 1), job(2, 1), job(3, 1), job(4, 1)]);
    for refused in [job(5, 1), taken(5, 1, 1), loaded(5, 1)] {
        assert_eq!(scheduler.add(refused), Added::QueueFull);
        assert!(!scheduler.contains(key(5)));
    }
    assert!(scheduler.remove(key(2)) && !scheduler.remove(key(2)));
    assert_eq!(scheduler.add(job(5, 1)), Added::Queued);
}

#[test]
fn limits_that_do_not_fit_together_are_refused_by_name() {
    let check = |config: SchedulerConfig, word: &str| {
        let broken = config.check().expect_err(word).to_string();
        assert!(broken.contains(word), "{broken}");
    };
    CONFIG.check().unwrap();
    check(SchedulerConfig { block_tokens: 0, ..CONFIG }, "block_tokens");
    check(SchedulerConfig { chunk_tokens: 6, ..CONFIG }, "chunk_tokens (6)");
    check(SchedulerConfig { samples_max: 3, ..CONFIG }, "samples_max (3)");
    check(SchedulerConfig { step_tokens_max: 6, ..CONFIG }, "step_tokens_max (6)");
}

#[test]
fn limits_change_between_steps_and_what_runs_goes_on() {
    let mut kv = ToyKv::new(100, 4);
    let mut scheduler = scheduler(&[job(1, 4), job(2, 4), job(3, 16)]);
    check(&mut scheduler, &mut kv, &["r1[0..4]+1 r2[0..4]+1 r3[0..8] | admit r1(0) r2(0) r3(0)"]);
    scheduler.change_limits(SchedulerConfig { running_max: 2, chunk_tokens: 4, waiting_max: 1, ..CONFIG });
    assert_eq!([scheduler.add(job(4, 4)), scheduler.add(job(5, 4))], [Added::Queued, Added::QueueFull]);
    // Three run where two may: no more begins before two have ended.
    check(&mut scheduler, &mut kv, &["r1[4..5]+1 r2[4..5]+1 r3[8..12]", "r1[5..6]+1 r2[5..6]+1 r3[12..16]+1"]);
    for ended in [1, 2] {
        assert!(scheduler.remove(key(ended)));
        kv.close(key(ended));
    }
    check(&mut scheduler, &mut kv, &["r3[16..17]+1 r4[0..4]+1 | admit r4(0)"]);
    // What found no room finds some by the change alone.
    assert_eq!(scheduler.add(job(6, 4)), Added::Queued);
    check(&mut scheduler, &mut kv, &["r3[17..18]+1 r4[4..5]+1"]);
    scheduler.change_limits(CONFIG);
    check(&mut scheduler, &mut kv, &["r3[18..19]+1 r4[5..6]+1 r6[0..4]+1 | admit r6(0)"]);
}

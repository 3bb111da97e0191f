//! Workers with every tier are killed again and again while conversations go on: whatever a kill left in memory,
//! on disk and in a store, each answer is that of the undisturbed run.

use super::fleet::{Fleet, PATIENT, Process, Role, Seat};
use super::load::{ask_all, check_all, check_answers, conversations};
use crate::models::Folder;
use crate::server::until;
use crate::store::{BUCKET, Store};
use std::thread::sleep;
use std::time::Duration;

/// Conversations that run at once, and their turns, in each of which a worker is killed.
const CONVERSATIONS: usize = 6;
const TURNS: usize = 6;
/// What a kill waits for from the beginning of a turn, at most: some fall into loads, others into decoding.
const DELAY_MAX: u64 = 150;

/// What the worker read from each tier in this life. What it says of its tiers is checked.
fn reads<const N: usize>(worker: &Process, tiers: [&str; N]) -> [f64; N] {
    let metrics = worker.metrics().expect("it serves its metrics");
    tiers.map(|tier| {
        let moved = |result| metrics.sum("baton_tier_moves_total", &[("tier", tier), ("result", result)]);
        assert_eq!(moved("corrupt"), 0.0, "a kill left something wrong in {tier} of {}", worker.seat.name);
        assert_eq!(metrics.sum("baton_tier_open", &[("tier", tier)]), 1.0, "{tier} of {} is off", worker.seat.name);
        moved("read")
    })
}

/// Records that the worker's tier holds, and all that it has room for.
fn records(worker: &Process, tier: &str) -> (f64, f64) {
    let metrics = worker.metrics().expect("it serves its metrics");
    let of = |state| metrics.sum("baton_tier_records", &[("tier", tier), ("state", state)]);
    (of("held"), of("held") + of("free") + of("writing"))
}

/// Two decode workers with these settings, one of which is killed in each turn of the conversations. What all
/// lives read from each of the tiers; a restart finds what is in the `lasting` one, and has as much room as ever
/// in those of its `own`.
fn killed<const N: usize>(settings: &[String], tiers: [&str; N], own: &[&str], lasting: &str) -> (Fleet, [f64; N]) {
    let turns = conversations(CONVERSATIONS, TURNS);
    let worker = |name: &str| Seat::new(Role::Decode, name, settings);
    let router = Seat::new(Role::Router, "router-1", &[PATIENT.to_owned()]);
    let mut fleet = Fleet::of(vec![router], vec![worker("decode-1"), worker("decode-2")], None);
    let address = fleet.routers[0].seat.http;
    let sizes = |worker: &Process| -> Vec<f64> { own.iter().map(|tier| records(worker, tier).1).collect() };
    let at_first = sizes(&fleet.workers[0]);
    let mut all = [0.0; N];
    for (number, turn) in turns.iter().enumerate() {
        let victim = number % fleet.workers.len();
        let delay = Duration::from_millis(number as u64 * 37 % DELAY_MAX);
        let before = reads(&fleet.workers[victim], tiers);
        std::thread::scope(|scope| {
            let victim = &mut fleet.workers[victim];
            scope.spawn(move || {
                sleep(delay);
                victim.kill();
            });
            check_answers(turn, &ask_all(address, turn, || ()));
        });
        fleet.workers[victim].restart();
        fleet.complete();
        let held = || records(&fleet.workers[victim], lasting).0;
        if number >= 2 {
            until("what a restart finds", || (held() > 0.0).then_some(()));
        }
        println!("turn {number}: {delay:?}, read {before:?}, {} records in {lasting} after the kill", held());
        assert_eq!(sizes(&fleet.workers[victim]), at_first);
        // Whoever is asked now loads what both lives left.
        check_all(address, turn);
        all.iter_mut().zip(before).for_each(|(all, read)| *all += read);
    }
    fleet.at_rest("");
    for worker in &fleet.workers {
        all.iter_mut().zip(reads(worker, tiers)).for_each(|(all, read)| *all += read);
    }
    println!("read from {tiers:?}: {all:?}");
    (fleet, all)
}

#[test]
fn workers_are_killed_over_and_over_and_what_they_held_stays_right() {
    let (memory, disk) = (Folder::in_memory("kill-tiers"), Folder::new("kill-tiers"));
    let (slabs, folders) = (memory.path("slabs"), disk.path("tier"));
    std::fs::create_dir(&folders).expect("a folder for the tier");
    // The device holds two of the conversations, memory a few more, and the disk all of them.
    let settings = [
        PATIENT.to_owned(),
        "kv.device_bytes=3MiB".to_owned(),
        "host.bytes=3MiB".to_owned(),
        format!("host.folder={slabs}"),
        format!("disk.folders={folders}"),
        "disk.bytes=64MiB".to_owned(),
        "disk.write=through".to_owned(),
    ];
    let (mut fleet, all) = killed(&settings, ["host", "neighbours", "disk"], &["host", "disk"], "disk");
    assert!(all[0] + all[1] > 0.0 && all[2] > 0.0, "nothing came back from a tier: {all:?}");
    // Each has its own memory and has room for as much of the dead; the rest is given back, and all of it in the end.
    let slabs = || std::fs::read_dir(&slabs).expect("the folder is there").count();
    until("what nobody has room for to be given back", || (slabs() <= 4).then_some(()));
    fleet.routers[0].signal("TERM");
    for worker in &mut fleet.workers {
        worker.signal("TERM");
        assert_eq!(worker.ended().code(), Some(0));
    }
    assert_eq!(slabs(), 0, "who ends takes along what it had");
}

#[test]
fn workers_that_share_a_store_are_killed_over_and_over_and_what_is_there_stays_right() {
    let store = Store::start();
    let settings = [
        PATIENT.to_owned(),
        "kv.device_bytes=3MiB".to_owned(),
        format!("object.endpoint=http://{}", store.address),
        format!("object.bucket={BUCKET}"),
        "object.write=through".to_owned(),
        "object.list_s=1".to_owned(),
    ];
    let (_fleet, [read]) = killed(&settings, ["object"], &[], "object");
    assert!(read > 0.0, "nothing came back from the store");
}

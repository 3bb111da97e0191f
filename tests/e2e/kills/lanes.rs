//! The same text over every lane, handed off or moved while it runs.

use super::fleet::{Fleet, PATIENT};
use super::load::{Question, ask_all, check_all, check_answers, long_questions, questions};
use crate::server::Server;

const LANES: [&str; 3] = ["local", "shm", "tcp"];

#[test]
fn the_text_is_the_same_over_every_lane() {
    for device in ["sim", "cpu"] {
        let (questions, long) = (questions(device), long_questions(device));
        let device = format!("engine.device={device}");
        for lane in LANES {
            println!("{device}, {lane}");
            if lane == "local" {
                local(&device, &questions);
            } else {
                handed_off(&device, lane, &questions);
                moved(&device, lane, &long);
            }
        }
    }
}

/// Within one process.
fn local(device: &str, questions: &[Question]) {
    let settings = [device, "kv.device_bytes=64MiB", "engine.block_tokens=16", "placement.handoff=always"];
    let flags: Vec<&str> = settings.into_iter().flat_map(|setting| ["--set", setting]).collect();
    let server = Server::start(&flags);
    check_all(server.address, questions);
    let metrics = server.settled();
    for lane in LANES {
        let taken = metrics.sum("baton_handoffs_total", &[("lane", lane), ("result", "taken")]);
        assert_eq!(taken > 0.0, lane == "local", "{taken} handoffs over {lane}");
    }
}

/// From a prefill worker to a decode worker, as two processes.
fn handed_off(device: &str, lane: &str, questions: &[Question]) {
    let mut fleet = Fleet::start([1, 1, 1], &[device, &format!("transport.lanes={lane}"), PATIENT], None);
    check_all(fleet.routers[0].seat.http, questions);
    fleet.at_rest("");
    went_over(&mut fleet, "decode-1", lane);
}

/// From one decode worker to another while it is made.
fn moved(device: &str, lane: &str, questions: &[Question]) {
    let mut fleet = Fleet::start([1, 0, 2], &[device, &format!("transport.lanes={lane}"), PATIENT], None);
    let router = fleet.routers[0].seat.http;
    check_answers(questions, &ask_all(router, questions, || fleet.process("decode-1").signal("TERM")));
    assert_eq!(fleet.process("decode-1").ended().code(), Some(0), "a worker that drained ends");
    fleet.at_rest("decode-1");
    // Nothing else is handed over: there is no prefill worker.
    went_over(&mut fleet, "decode-2", lane);
    assert_eq!(fleet.routers[0].metric("baton_replays_total", &[]), 0.0, "what moves is not computed again");
}

/// Checks that all that `reader` took over went over `lane`, and that its log says so.
fn went_over(fleet: &mut Fleet, reader: &str, lane: &str) {
    let reader = fleet.process(reader);
    for other in LANES {
        let taken = reader.metric("baton_handoffs_total", &[("lane", other), ("result", "taken")]);
        assert_eq!(taken > 0.0, other == lane, "{taken} handoffs over {other}");
        let bytes = reader.metric("baton_transfer_bytes_total", &[("lane", other)]);
        assert_eq!(bytes > 0.0, other == lane, "{bytes} bytes over {other}");
    }
    let log = reader.log();
    assert!(log.lines().any(|line| line.contains("connected") && line.contains(&format!("lane={lane}"))), "{log}");
}

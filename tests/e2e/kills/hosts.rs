//! Two hosts, and what a network does to them: it is cut, one way or both, it is slow, it loses and delays.

use super::fleet::{Fleet, LANE_PORT, Role, SESSION_PORT, Seat};
use super::load::{Question, ask_all, check_all, check_answers, long_questions, questions};
use super::network::Network;
use super::relay::Relay;
use crate::address::own_address;
use crate::server::until;

/// Rounds of all questions until a worker has got some of the work.
const ROUNDS_MAX: usize = 8;

/// A router, a prefill worker and a decode worker on the one host, a prefill worker and a decode worker on the other.
fn fleet(network: &Network) -> Fleet {
    let settings = ["engine.device=sim"].map(str::to_owned);
    let seat = |host, number, role, name| network.seat(host, number, role, name, &settings);
    let workers = vec![
        seat(0, 1, Role::Prefill, "prefill-1"),
        seat(1, 1, Role::Prefill, "prefill-2"),
        seat(0, 2, Role::Decode, "decode-1"),
        seat(1, 2, Role::Decode, "decode-2"),
    ];
    Fleet::of(vec![seat(0, 0, Role::Router, "router-1")], workers, None)
}

/// Asks until `reader` says that it reads from `owner`, and gives the line in which it does.
fn connected(fleet: &mut Fleet, questions: &[Question], reader: &str, owner: &str) -> String {
    let router = fleet.routers[0].seat.http;
    let line = (0..ROUNDS_MAX).find_map(|_| {
        check_all(router, questions);
        let log = fleet.process(reader).log();
        let said = |line: &&str| line.contains("connected;") && line.contains(&format!("peer=\"{owner}\""));
        log.lines().find(said).map(str::to_owned)
    });
    line.unwrap_or_else(|| panic!("{reader} never read from {owner}"))
}

/// The network does something while all questions are being answered, and stops doing it later.
fn disturbed(network: &Network, questions: &[Question], disturb: impl FnOnce()) {
    let mut fleet = fleet(network);
    let router = fleet.routers[0].seat.http;
    check_all(router, questions);
    check_answers(questions, &ask_all(router, questions, disturb));
    check_all(router, questions);
    until("the loss of the other host", || (fleet.routers[0].metrics().ok()?.workers() == 2).then_some(()));
    // Who is cut off has given up what it did for the router, too.
    fleet.at_rest("");
    network.mend();
    fleet.complete();
    let steps = |fleet: &mut Fleet| fleet.process("decode-2").metric("baton_step_seconds_count", &[]);
    let before = steps(&mut fleet);
    let used = (0..ROUNDS_MAX).any(|_| {
        check_all(router, questions);
        steps(&mut fleet) > before
    });
    assert!(used, "who was cut off is back and got no work");
    fleet.at_rest("");
}

#[test]
fn two_hosts_and_the_cable_between_them() {
    let network = match Network::new() {
        Ok(network) => network,
        Err(why) => return eprintln!("SKIPPED, two hosts are not tested: {why}"),
    };
    let (short, long) = (questions("sim"), long_questions("sim"));

    println!("lanes");
    let mut all = fleet(&network);
    let line = connected(&mut all, &short, "decode-1", "prefill-1");
    assert!(line.contains("lane=shm"), "on one host: {line}");
    let line = connected(&mut all, &short, "decode-2", "prefill-1");
    let reason = "shm: no common Unix socket: the peer is on another host";
    assert!(line.contains("lane=tcp") && line.contains(reason), "between hosts: {line}");
    all.at_rest("");

    println!("a slow cable");
    network.slow("2mbit");
    check_all(all.routers[0].seat.http, &short);
    all.at_rest("");
    drop(all);
    network.slow("10gbit");

    println!("a cut");
    disturbed(&network, &long, || network.cut());
    println!("a cut of the way there");
    disturbed(&network, &long, || network.cut_from(0));
    println!("a cut of the way back");
    disturbed(&network, &long, || network.cut_from(1));
}

#[test]
fn delay_loss_and_broken_connections() {
    let settings = ["engine.device=sim", "transport.lanes=tcp"].map(str::to_owned);
    let behind = |role, name| {
        let seat = Seat { via: Some(own_address()), ..Seat::new(role, name, &settings) };
        let relays = [SESSION_PORT, LANE_PORT].map(|port| {
            let (via, to) = (seat.via.expect("it was given"), seat.address);
            Relay::start((via, port).into(), (to, port).into())
        });
        (seat, relays)
    };
    let (prefill, _relays) = behind(Role::Prefill, "prefill-1");
    let (decode, relays) = behind(Role::Decode, "decode-1");
    let router = Seat::new(Role::Router, "router-1", &settings);
    let fleet = Fleet::of(vec![router], vec![prefill, decode, Seat::new(Role::Decode, "decode-2", &settings)], None);
    let router = fleet.routers[0].seat.http;
    let (short, long) = (questions("sim"), long_questions("sim"));
    check_all(router, &short);
    for _ in 0..3 {
        check_answers(&long, &ask_all(router, &long, || relays.iter().for_each(Relay::cut)));
        fleet.complete();
    }
    check_all(router, &short);
    fleet.at_rest("");
    assert!(relays.iter().all(|relay| relay.lost() > 0), "something was lost on the way");
}

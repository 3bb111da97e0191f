//! Clients that keep a cluster busy while something is done to it, and notice nothing of that.

use crate::asks::{Ask, Said};
use crate::http::{Connection, Head, request};
use crate::process::Process;
use crate::server::{Server, until};
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clients that are there at once.
const CLIENTS: usize = 6;

/// A request of one of the clients, with another prompt than those of the others.
pub(crate) fn ask(number: usize, tokens: u32) -> Ask {
    let prompt = format!("{number} {}", "ownership ".repeat(40));
    let more = json!({ "max_tokens": tokens, "ignore_eos": true, "seed": number, "temperature": number % 2 });
    Ask::completion("tiny-rust", prompt.as_str(), more)
}

/// Keeps the routers busy with requests of so many tokens until `operate` has returned, and compares every text with
/// that of an undisturbed run. No request may fail. A router that is about to end, or to begin, sends clients to the
/// others.
pub(crate) fn under_load(routers: &[SocketAddr], tokens: u32, operate: impl FnOnce()) {
    let undisturbed = Server::start(&["--prefill", "0", "--device", "sim", "--set", "sim.speed_percent=0"]);
    let asks: Vec<(Ask, Said)> = (0..CLIENTS)
        .map(|number| {
            let ask = ask(number, tokens);
            let said = ask.whole(&undisturbed).0;
            (ask, said)
        })
        .collect();
    drop(undisturbed);
    let (over, begun) = (AtomicBool::new(false), Barrier::new(CLIENTS + 1));
    std::thread::scope(|scope| {
        for (number, (ask, said)) in asks.iter().enumerate() {
            let (over, begun) = (&over, &begun);
            scope.spawn(move || {
                begun.wait();
                for turn in number.. {
                    let answer = match routers {
                        [only] => answer(*only, ask).unwrap_or_else(|why| panic!("client {number}: {why}")),
                        _ => until("an answer", || {
                            let from = |next: usize| routers[(turn + next) % routers.len()];
                            let ready = (0..routers.len()).map(from).filter(|&router| is_ready(router));
                            ready.into_iter().find_map(|router| answer(router, ask).ok())
                        }),
                    };
                    assert_eq!(answer, *said, "client {number}");
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                }
            });
        }
        begun.wait();
        // A panic must end the others, too.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(operate));
        over.store(true, Ordering::Release);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Whether a router says that it takes requests, as a balancer asks it.
pub(crate) fn is_ready(router: SocketAddr) -> bool {
    let ask = || -> io::Result<u16> {
        let mut connection = Connection::open(router)?;
        connection.send(&request("GET", "/ready", "application/json", b""))?;
        Ok(connection.head()?.status)
    };
    ask().is_ok_and(|status| status == 200)
}

/// What a router answers. Errors: it has not taken the request, because it is about to end.
fn answer(router: SocketAddr, ask: &Ask) -> Result<Said, String> {
    let begun = || -> io::Result<(Connection, Head)> {
        let mut connection = Connection::open(router)?;
        connection.send(&ask.for_stream())?;
        let head = connection.head()?;
        Ok((connection, head))
    };
    let (mut connection, head) = begun().map_err(|error| error.to_string())?;
    if head.status == 200 {
        return Ok(ask.rest_of(connection).0);
    }
    let answer = connection.body(head).expect("an answer is whole");
    let why = answer.text().to_owned();
    assert_eq!((answer.head.status, answer.json()["error"]["code"].as_str()), (503, Some("shutting_down")), "{why}");
    Err(why)
}

/// Requests that ended in another way than they should.
pub(crate) fn failed(router: &Process) -> f64 {
    let metrics = router.metrics();
    let of = |outcome| metrics.sum("baton_requests_total", &[("outcome", outcome)]);
    ["worker", "us", "deadline", "rejected", "limited", "invalid"].map(of).iter().sum()
}

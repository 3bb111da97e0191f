//! Two releases in one cluster. Between a router and a worker, a gateway of the test takes the range of versions out of
//! both hellos, and leaves what release 0.2.0 says: its only version. So each of the two real processes has a peer of
//! the release before, byte for byte, until the session is over.

use crate::address::own_place;
use crate::admin::{done, refused};
use crate::asks::Ask;
use crate::cluster::Cluster;
use crate::process::Process;
use crate::server::{Server, until};
use domain::Versions;
use domain::session::{FromWorker, PROTOCOL, ToWorker};
use proto::queue::{Sender, queue};
use proto::rpc::{Incoming, Outgoing, PortLimits, Status, Stranger};
use proto::session::{decode_from_worker, decode_to_worker, encode_from_worker, encode_to_worker};
use serde_json::json;
use std::net::SocketAddr;
use std::thread;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// Bytes of a session that wait in the gateway, each way.
const QUEUE_BYTES: usize = 4 << 20;

/// Reduces a range to the version that the release before speaks.
fn only_oldest(Versions { oldest, .. }: Versions) -> Versions {
    Versions { oldest, newest: oldest }
}

/// Changes what a router says to what a router of the release before would say. Such a router asks nothing for
/// operators.
fn older_router(bytes: Vec<u8>) -> Vec<u8> {
    match decode_to_worker(&bytes) {
        Ok(ToWorker::Hello(mut hello)) => {
            assert_eq!(hello.versions, PROTOCOL);
            hello.versions = only_oldest(hello.versions);
            encode_to_worker(&ToWorker::Hello(hello))
        }
        Ok(ToWorker::OperatorAsk { .. }) => panic!("a worker of the release before cannot read an ask"),
        _ => bytes,
    }
}

fn older_worker(bytes: Vec<u8>) -> Vec<u8> {
    match decode_from_worker(&bytes) {
        Ok(FromWorker::Challenge(mut challenge)) => {
            assert_eq!(challenge.versions, PROTOCOL);
            challenge.versions = only_oldest(challenge.versions);
            encode_from_worker(&FromWorker::Challenge(challenge))
        }
        _ => bytes,
    }
}

/// Passes one session on to the worker at `to`.
async fn pass_on(to: SocketAddr, stranger: Stranger, mut from_router: Incoming) -> Result<Outgoing, Status> {
    assert!(stranger.has_proven_itself(), "the gateway has room");
    let (to_worker, outgoing) = queue(QUEUE_BYTES);
    let first = from_router.message().await?.ok_or_else(|| Status::cancelled("no hello"))?;
    to_worker.try_send(older_router(first), 0).map_err(|_| Status::internal("an empty queue is full"))?;
    let (mut from_worker, gate) = proto::rpc::open(&to.to_string(), None, outgoing).await?;
    gate.open();
    let (to_router, answers): (Sender<Result<Vec<u8>, Status>>, _) = queue(QUEUE_BYTES);
    tokio::spawn(async move {
        let up = async {
            while let Ok(Some(bytes)) = from_router.message().await {
                if to_worker.send(older_router(bytes)).await.is_err() {
                    break;
                }
            }
        };
        let down = async {
            while let Some(message) = from_worker.message().await.transpose() {
                let is_over = message.is_err();
                if to_router.send(message.map(older_worker)).await.is_err() || is_over {
                    break;
                }
            }
        };
        // The session ends with either end, at both.
        tokio::select! {
            () = up => {}
            () = down => {}
        }
    });
    Ok(answers)
}

/// Begins a gateway to a worker, for as long as the test runs, and returns its address.
fn gateway(to: SocketAddr) -> SocketAddr {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let session = move |stranger, incoming| pass_on(to, stranger, incoming);
    thread::spawn(move || {
        runtime.block_on(proto::rpc::serve(listener, PortLimits::default(), session, std::future::pending()));
    });
    address
}

#[test]
fn a_cluster_of_two_releases_serves_without_a_replay() {
    let mut cluster = Cluster::new("hush, says this test");
    for name in ["p1", "p2"] {
        cluster.prefill(&["--name", name]);
    }
    for name in ["d1", "d2"] {
        cluster.decode(&["--name", name]);
    }
    // One worker of each role is reached as one of the release before; by these same sessions, its router is of the
    // release before.
    let mut addresses = cluster.addresses();
    for older in [0, 2] {
        addresses[older] = gateway(addresses[older]);
    }
    let workers = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let ops = own_place();
    let secret = [("BATON_CLUSTER__SECRET", "hush, says this test")];
    let flags =
        ["--workers", &workers, "--set", "placement.handoff=always", "--set", &format!("router.ops_listen={ops}")];
    let router = Process::start(&[&["router", "--listen", "127.0.0.1:0"], &flags[..]].concat(), &secret);
    let wanted = json!({ "prefill": 2, "decode": 2 });
    until("all workers are counted", || (router.get("/ready").json()["workers"] == wanted).then_some(()));
    let listed = done(ops, &["workers"]);
    let protocol = |name: &str| {
        let all = listed["workers"].as_array().expect("a list");
        all.iter().find(|worker| worker["name"] == name).expect("it is there")["protocol"].clone()
    };
    let Versions { oldest, newest } = PROTOCOL;
    assert_eq!(["p1", "d1"].map(protocol), [json!(oldest), json!(oldest)]);
    assert_eq!(["p2", "d2"].map(protocol), [json!(newest), json!(newest)]);

    // All pairs of the two releases compute together.
    let plain = Server::start(&["--prefill", "0"]);
    for number in 0..16 {
        let more = json!({ "max_tokens": 24, "ignore_eos": true, "temperature": 0 });
        let ask = Ask::completion("tiny-rust", format!("{number} asks: what is ownership?").as_str(), more);
        let [text, wanted] = [&router, &*plain].map(|by| ask.whole(by).0.choices[&0].text.clone());
        assert_eq!(text, wanted, "request {number}");
    }
    assert_eq!(router.metrics().sum("baton_replays_total", &[]), 0.0);

    // What the release before does not know is not said to it, and the operator is told which one is to be upgraded.
    let error = refused(ops, &["drain", "d1"], 4);
    assert!(error.contains(&format!("speaks protocol {oldest}")) && error.contains("upgrade it first"), "{error}");
    done(ops, &["drain", "d2"]);
    done(ops, &["undrain", "d2"]);
}

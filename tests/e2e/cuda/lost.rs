//! Workers whose card is lost, and workers that are killed, while they answer: the others go on, the texts are the
//! same, no block stays held, and what comes back is used.

use super::card::{TestCard, model};
use super::paths::{FAMILY, FLAGS, settled};
use crate::asks::{Ask, Said, check_all};
use crate::cluster::{Cluster, WorkerAt};
use crate::metrics::Metrics;
use crate::models::Folder;
use crate::server::{Server, until};
use serde_json::{Value, json};

/// Rounds until the worker that has to fall has got enough work, and until the one that came back has got some.
const ROUNDS_MAX: usize = 12;
/// The launch of a kernel at which a card is lost: some steps after the start.
const LAUNCHES: u32 = 400;
/// Settings of workers and router: what stands still for a moment on a busy machine is not given up.
const PATIENT: [&str; 4] = ["--set", "session.silence_ms=15000", "--set", "handoff.lease_ms=15000"];

/// Answers that take several tens of steps, to prompts of several chunks.
fn asks() -> Vec<Ask> {
    let ask = |at: u32| {
        let prompt: Value = (0..60 + at * 30).map(|i| (i * i + at * 71 + i) % 250).collect();
        let more = json!({ "max_tokens": 40 + at, "ignore_eos": true, "temperature": at % 2, "seed": at });
        Ask::completion(FAMILY, prompt, more)
    };
    (0..4).map(ask).collect()
}

/// A prefill worker and two decode workers that share a card, and what an undisturbed worker says.
struct Rig {
    cluster: Cluster,
    workers: [WorkerAt; 3],
    told: Vec<(Ask, Said)>,
    _folder: Folder,
}

impl Rig {
    /// Starts it. `fault`: the worker that is started with a card that will be lost so.
    fn start(card: &'static TestCard, name: &str, fault: Option<(usize, &str)>) -> Self {
        let folder = Folder::new(name);
        let dir = model(&folder, FAMILY);
        let plain = [&FLAGS[..], &["--model", &dir, "--prefill", "0", "--set", "kv.device_bytes=16MiB"]].concat();
        let server = Server::start_with(&plain, &card.with(&[]));
        let told = asks().into_iter().map(|ask| (ask.clone(), ask.whole(&server).0)).collect();
        drop(server);
        let settings = ["kv.device_bytes=16MiB", "engine.chunk_tokens=64", "transport.require=nvlink"];
        let settings = settings.iter().flat_map(|&setting| ["--set", setting]);
        let flags: Vec<&str> = FLAGS.into_iter().chain(PATIENT).chain(["--model", &dir]).chain(settings).collect();
        let mut cluster = Cluster::new("hush, says this test");
        let workers = [0, 1, 2].map(|number| {
            let fault = fault.filter(|(worker, _)| *worker == number).map(|(_, fault)| ("SIMT_FAIL", fault));
            cluster.set_environment(&card.with(fault.as_slice()));
            if number == 0 { cluster.prefill(&flags) } else { cluster.decode(&flags) }
        });
        cluster.set_environment(&card.with(&[]));
        cluster.route(&[&["--model", &dir, "--set", "placement.handoff=always"], &PATIENT[..]].concat());
        cluster.until_ready(1, 2);
        Self { cluster, workers, told, _folder: folder }
    }

    /// Asks everything at once, and compares.
    fn check(&self) {
        check_all(self.cluster.router(), &self.told, self.told.len(), true);
    }

    /// Steps that a worker has run in this life.
    fn steps(&self, at: WorkerAt) -> f64 {
        Metrics::at(self.cluster.worker(at).operations()).sum("baton_step_seconds_count", &[])
    }

    /// Checks that the others hold nothing of a worker that fell, that it is used again once it is back, and that KV
    /// went from card to card all the time.
    fn comes_back(mut self, fallen: WorkerAt) {
        for at in self.workers.into_iter().filter(|&at| at != fallen) {
            settled(self.cluster.worker(at));
        }
        self.cluster.restart(fallen);
        self.cluster.until_ready(1, 2);
        let before = self.steps(fallen);
        let is_used = (0..ROUNDS_MAX).any(|_| {
            self.check();
            self.steps(fallen) > before
        });
        assert!(is_used, "a worker came back and got no work");
        let all = self.workers.map(|at| settled(self.cluster.worker(at)));
        let bytes =
            |lane: &str| all.iter().map(|it| it.sum("baton_transfer_bytes_total", &[("lane", lane)])).sum::<f64>();
        assert!(bytes("nvlink") > 0.0 && bytes("shm") + bytes("tcp") == 0.0);
        let ends = self.cluster.end();
        assert!(ends.iter().all(|code| *code == Some(0)), "{ends:?}");
    }
}

/// Checks that a worker whose card is lost ends and says why, and that the answers are those of the others.
fn check_lost(name: &str, number: usize, fault: &str, error: &str) {
    let Some(card) = TestCard::find() else { return };
    if !card.is_emulated() {
        println!("skipped: no card is broken for a test");
        return;
    }
    let mut rig = Rig::start(card, name, Some((number, &format!("{fault}@{LAUNCHES}"))));
    let worker = rig.workers[number];
    let fell = (0..ROUNDS_MAX).any(|_| {
        rig.check();
        rig.cluster.worker(worker).log().contains(error)
    });
    assert!(fell, "the worker ran fewer kernels");
    until("the worker to end", || rig.cluster.worker(worker).log().contains("baton: ").then_some(()));
    let log = rig.cluster.worker(worker).log();
    let last = log.lines().last().expect("it says something");
    for words in ["baton: ", "lost its device", error, "restart"] {
        assert!(last.contains(words), "{words}: {last}");
    }
    assert_eq!(rig.cluster.ended(worker), Some(1));
    assert!(rig.cluster.router().metrics().sum("baton_replays_total", &[]) > 0.0, "the worker had something to do");
    rig.comes_back(worker);
}

#[test]
fn a_decode_worker_whose_card_is_lost_ends_by_name_and_others_go_on() {
    check_lost("cuda-lost-decode", 1, "ecc", "CUDA_ERROR_ECC_UNCORRECTABLE");
}

#[test]
fn a_prefill_worker_whose_card_is_lost_ends_by_name_and_others_go_on() {
    check_lost("cuda-lost-prefill", 0, "lost", "CUDA_ERROR_DEVICE_UNAVAILABLE");
}

#[test]
fn workers_on_a_card_are_killed_while_they_answer_and_come_back() {
    let Some(card) = TestCard::find() else { return };
    for number in [0, 1] {
        let mut rig = Rig::start(card, &format!("cuda-killed-{number}"), None);
        let worker = rig.workers[number];
        // Each stream has begun, and ends long after.
        let streams: Vec<_> = rig.told.iter().map(|(ask, _)| ask.begin_stream(rig.cluster.router())).collect();
        until("the worker to have work", || (rig.steps(worker) > 0.0).then_some(()));
        rig.cluster.worker(worker).signal("KILL");
        for (stream, (ask, said)) in streams.into_iter().zip(&rig.told) {
            assert_eq!(ask.rest_of(stream).0, *said, "{}", ask.body);
        }
        assert_eq!(rig.cluster.ended(worker), None);
        rig.comes_back(worker);
    }
}

//! One model on a card says the same on every path, log probabilities included: in one process and in several, whose
//! workers read each other over `nvlink` or through pinned memory, in chunks, out of caches and tiers, and where
//! memory is so short that sequences give way.

use super::card::{TestCard, model};
use crate::asks::{Ask, Said, check_all};
use crate::cluster::{Cluster, WorkerAt};
use crate::metrics::Metrics;
use crate::models::Folder;
use crate::process::Process;
use crate::server::{Server, until};
use serde_json::{Value, json};

/// The model.
pub(super) const FAMILY: &str = "llama";
/// Flags that all ways to serve have.
pub(super) const FLAGS: [&str; 4] = ["--device", "cuda", "--set", "engine.block_tokens=16"];
/// Rounds after which memory that is short must have made a sequence give way, and tiers must have given something
/// back.
const ROUNDS_MAX: usize = 10;
/// Room for all that is asked, and for the longest sequence and little more.
const MUCH: &str = "kv.device_bytes=16MiB";
const LITTLE: &str = "kv.device_bytes=384KiB";

/// A way to serve.
struct Way {
    name: &'static str,
    workers: Workers,
    settings: &'static [&'static str],
    /// Memory for KV is short, and what leaves it goes to a small host tier, and to a disk.
    is_short: bool,
    /// The one lane that KV goes over. Empty: none.
    lane: &'static str,
}

/// Who computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Workers {
    /// One decode worker.
    One,
    /// A worker of each role in one process.
    Process,
    /// So many of each role, each of which is a process.
    Processes(usize),
}

const CHUNKS: &str = "engine.chunk_tokens=64";
const ONE_STEP: &str = "engine.steps_in_flight=1";
const NVLINK: &str = "transport.require=nvlink";

const WAYS: [Way; 7] = [
    Way { name: "one step in flight", workers: Workers::One, settings: &[CHUNKS, ONE_STEP], is_short: false, lane: "" },
    Way {
        name: "handed over in a process",
        workers: Workers::Process,
        settings: &[CHUNKS],
        is_short: false,
        lane: "local",
    },
    Way {
        name: "handed over from card to card",
        workers: Workers::Processes(1),
        settings: &[CHUNKS, NVLINK],
        is_short: false,
        lane: "nvlink",
    },
    Way {
        name: "handed over from card to card among four, one step in flight",
        workers: Workers::Processes(2),
        settings: &[CHUNKS, NVLINK, ONE_STEP],
        is_short: false,
        lane: "nvlink",
    },
    Way {
        name: "handed over through pinned memory",
        workers: Workers::Processes(1),
        settings: &[CHUNKS, "transport.lanes=shm,tcp"],
        is_short: false,
        lane: "tcp",
    },
    Way { name: "little memory", workers: Workers::One, settings: &[CHUNKS], is_short: true, lane: "" },
    Way {
        name: "handed over from card to card, little memory",
        workers: Workers::Processes(1),
        settings: &[CHUNKS, NVLINK],
        is_short: true,
        lane: "nvlink",
    },
];

/// What serves.
enum Rig {
    Process(Server),
    Cluster(Cluster, Vec<WorkerAt>),
}

impl Rig {
    fn start(card: &'static TestCard, way: &Way, model: &str, folder: &Folder) -> Self {
        let flags = [&FLAGS[..], &["--model", model]].concat();
        let (slabs, disk) = (64 * 1024 * 8, folder.path("disk"));
        let tiers = [
            format!("host.bytes={slabs}"),
            format!("disk.folders={disk}"),
            "disk.bytes=32MiB".to_owned(),
            "disk.write=through".to_owned(),
        ];
        let mut settings = way.settings.to_vec();
        settings.push(if way.is_short { LITTLE } else { MUCH });
        if way.is_short {
            std::fs::create_dir_all(&disk).expect("a folder for the tier");
            settings.extend(tiers.iter().map(String::as_str));
        }
        let settings = settings.iter().flat_map(|&setting| ["--set", setting]);
        let flags: Vec<&str> = flags.into_iter().chain(settings).collect();
        let each = match way.workers {
            Workers::Processes(each) => each,
            Workers::One => return Self::Process(server(card, &[&flags[..], &["--prefill", "0"]].concat())),
            Workers::Process => return Self::Process(server(card, &flags)),
        };
        let mut cluster = Cluster::new("hush, says this test");
        cluster.set_environment(&card.with(&[]));
        let mut workers: Vec<WorkerAt> = (0..each).map(|_| cluster.prefill(&flags)).collect();
        workers.extend((0..each).map(|_| cluster.decode(&flags)));
        cluster.route(&["--model", model, "--set", "placement.handoff=always"]);
        cluster.until_ready(each, each);
        Self::Cluster(cluster, workers)
    }

    /// What is asked.
    fn service(&self) -> &Process {
        match self {
            Self::Process(server) => server,
            Self::Cluster(cluster, _) => cluster.router(),
        }
    }

    /// Waits until nothing is under way any more and no block is held, and returns what each process with workers says
    /// then.
    fn settled(&self) -> Vec<Metrics> {
        match self {
            Self::Process(server) => vec![server.settled()],
            Self::Cluster(cluster, workers) => workers.iter().map(|&at| settled(cluster.worker(at))).collect(),
        }
    }
}

/// Starts one process, which hands over whatever it can.
fn server(card: &'static TestCard, flags: &[&str]) -> Server {
    Server::start_with(flags, &card.with(&[("BATON_PLACEMENT__HANDOFF", "always")]))
}

/// Waits until nothing is under way in a worker and nobody holds its blocks.
pub(super) fn settled(worker: &Process) -> Metrics {
    let at = worker.operations();
    until("a worker at rest", || {
        let metrics = Metrics::at(at);
        let pools = metrics.pools();
        (pools.values().sum::<f64>() > 0.0 && metrics.unrest(&pools).is_empty()).then_some(metrics)
    })
}

/// Adds up a metric of all processes.
fn sum(all: &[Metrics], name: &str, labels: &[(&str, &str)]) -> f64 {
    all.iter().map(|metrics| metrics.sum(name, labels)).sum()
}

/// Prompts shorter and longer than blocks and chunks, and multiples of none; greedy, drawn, with penalties.
fn asks() -> Vec<Ask> {
    let prompt = |tokens: u32, salt: u32| -> Value { (0..tokens).map(|i| (i * i + salt * 71 + i) % 250).collect() };
    let ask = |(at, tokens): (u32, u32)| {
        let mut more = json!({ "max_tokens": 16 + at * 4, "ignore_eos": true, "logprobs": 2 });
        let fields = more.as_object_mut().expect("an object");
        match at % 3 {
            0 => fields.extend([("temperature".to_owned(), json!(0))]),
            1 => fields.extend([("seed".to_owned(), json!(at)), ("top_p".to_owned(), json!(0.9))]),
            _ => fields.extend([("seed".to_owned(), json!(-7)), ("repetition_penalty".to_owned(), json!(1.1))]),
        }
        if at == 4 {
            fields.insert("n".to_owned(), json!(2));
        }
        Ask::completion(FAMILY, prompt(tokens, at), more)
    };
    (0..).zip([1, 16, 33, 65, 100, 150, 230]).map(ask).collect()
}

#[test]
fn a_model_on_a_card_says_the_same_on_every_path() {
    let Some(card) = TestCard::find() else { return };
    let folder = Folder::new("cuda-paths");
    let dir = model(&folder, FAMILY);
    let plain = Way { name: "plain", workers: Workers::One, settings: &[], is_short: false, lane: "" };
    let rig = Rig::start(card, &plain, &dir, &folder);
    let told: Vec<(Ask, Said)> = asks().into_iter().map(|ask| (ask.clone(), ask.whole(rig.service()).0)).collect();
    told.iter().for_each(|(ask, said)| said.check_form(ask));
    check_all(rig.service(), &told, told.len(), true);
    drop(rig);
    for way in &WAYS {
        println!("{}", way.name);
        check(&Rig::start(card, way, &dir, &folder), way, &told);
    }
}

/// Checks what is said on one way, that the way was gone, and that it leaves nothing behind.
fn check(rig: &Rig, way: &Way, told: &[(Ask, Said)]) {
    check_all(rig.service(), told, told.len(), false);
    check_all(rig.service(), told, 3, true);
    let all = rig.settled();
    for lane in ["local", "nvlink", "shm", "tcp"] {
        let taken = sum(&all, "baton_handoffs_total", &[("lane", lane), ("result", "taken")]);
        assert_eq!(taken > 0.0, lane == way.lane, "{}: {taken} handoffs over {lane}", way.name);
        let bytes = sum(&all, "baton_transfer_bytes_total", &[("lane", lane)]);
        assert_eq!(bytes > 0.0, lane == way.lane, "{}: {bytes} bytes over {lane}", way.name);
    }
    if !way.is_short {
        assert_eq!(sum(&all, "baton_preemptions_total", &[]), 0.0, "{}: memory was short", way.name);
        return;
    }
    // How many run at once, and what is loaded and not computed again, is up to the machine.
    let has_happened = |all: &[Metrics]| {
        let came = |tier| sum(all, "baton_prompt_source_tokens_sum", &[("source", tier)]) > 0.0;
        let gave_way = sum(all, "baton_preemptions_total", &[]) > 0.0;
        let evicted = sum(all, "baton_tier_moves_total", &[("tier", "host"), ("result", "evicted")]) > 0.0;
        println!("preempted {gave_way}, evicted {evicted}, from host {}, from disk {}", came("host"), came("disk"));
        gave_way && evicted && came("host") && came("disk")
    };
    let happened = (0..ROUNDS_MAX).any(|_| {
        check_all(rig.service(), told, told.len(), true);
        has_happened(&rig.settled())
    });
    assert!(happened, "{}: memory was never short, or nothing came back of a tier", way.name);
    let corrupt = sum(&rig.settled(), "baton_tier_moves_total", &[("result", "corrupt")]);
    assert_eq!(corrupt, 0.0, "{}", way.name);
}

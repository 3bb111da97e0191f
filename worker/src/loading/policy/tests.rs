//! The decision about a load, as a table. Each row is one outlook, and what is decided.
//!
//! - `stage`: `waits` for device memory, or is `queued` for steps.
//! - `missing`: tokens that tiers have and the device lacks. A step computes 512 tokens.
//! - `compute_s`, `load_s`: predicted seconds of each alone. `inf`: never measured.
//! - `room`: there is room for prompt and load at once.
//! - `shared`: a load in progress delivers some of it, and prompts `wait` for it or are `computed` towards it.
//! - `begin`: one more load may begin.
//! - `probe`: it is time to try tiers that were slower than computing.

use super::super::loads::Loads;
use super::*;
use domain::{Choice, Epoch, RequestId, SeqKey};

const CHUNK: u32 = 512;

const TABLE: &str = "
stage  missing compute_s load_s room shared   begin probe | plan
waits     1024       1.0    0.1  yes       no   yes    no | load all; wait
waits     1024       1.0    0.1   no       no   yes    no | load all; wait
waits     1024       inf    0.0  yes       no   yes    no | load all; wait
waits     1024       1.0    1.0  yes       no   yes    no | load all; compute meanwhile
waits     1024       1.0    0.9   no       no   yes    no | load all; wait
waits     1024       1.0    1.0   no       no   yes    no | compute: no room
waits     1024       1.0    6.0  yes       no   yes    no | load all; compute meanwhile
waits     1024       1.0    6.0   no       no   yes    no | compute: no room
waits     1024       0.1    1.0  yes       no   yes    no | compute: faster
waits     1024       0.1    1.0  yes       no   yes   yes | load what fits; compute meanwhile
waits     1024       0.1    1.0   no       no   yes   yes | load what fits; compute meanwhile
waits     1024       0.1    1.0  yes       no    no   yes | compute: faster
waits     1024       1.0    0.1  yes       no    no    no | compute: no load
waits     1024       1.0    0.1  yes       no   yes   yes | load all; wait
waits     1024       1.0    0.1  yes     wait   yes    no | join; wait
waits     1024       1.0    0.1  yes computed   yes    no | join; compute meanwhile
waits     1024       0.1    1.0   no     wait    no   yes | join; wait
queued    1024       1.0    0.1  yes       no   yes    no | load all; compute meanwhile
queued    1024       1.0    0.1   no       no   yes    no | compute: no room
queued    1024       1.0    1.0  yes       no   yes    no | load all; compute meanwhile
queued    1024       1.0    1.0   no       no   yes    no | compute: no room
queued    1024       0.1    1.0  yes       no   yes    no | compute: faster
queued    1024       0.1    1.0  yes       no   yes   yes | load what fits; compute meanwhile
queued    1024       1.0    0.1  yes       no    no    no | compute: no load
queued    1024       1.0    0.1  yes     wait   yes    no | join; compute meanwhile
queued    1024       1.0    0.1  yes computed   yes    no | join; compute meanwhile
";

fn shared(is_waited_for: bool) -> SharedLoad {
    let prompt = SeqKey { request: RequestId(1), epoch: Epoch(1), choice: Choice(0) };
    SharedLoad { key: Loads::key(prompt), blocks: 4, is_waited_for }
}

fn outlook(row: &str) -> LoadOutlook {
    let cells: Vec<&str> = row.split_whitespace().collect();
    let is_yes = |cell: &str| match cell {
        "yes" => true,
        "no" => false,
        _ => panic!("{cell} in {row}"),
    };
    LoadOutlook {
        stage: if cells[0] == "waits" { Stage::Waiting } else { Stage::Queued },
        missing_tokens: cells[1].parse().expect("tokens"),
        chunk_tokens: CHUNK,
        compute_s: cells[2].parse().expect("seconds"),
        load_s: cells[3].parse().expect("seconds"),
        has_room: is_yes(cells[4]),
        shared: (cells[5] != "no").then(|| shared(cells[5] == "wait")),
        may_begin: is_yes(cells[6]),
        probe_is_pending: is_yes(cells[7]),
    }
}

fn in_words(plan: LoadPlan) -> String {
    let meanwhile = |loading| match loading {
        Loading::QueueNow => "compute meanwhile",
        Loading::Wait => "wait",
    };
    match plan {
        LoadPlan::Compute(ComputeReason::Faster) => "compute: faster".to_owned(),
        LoadPlan::Compute(ComputeReason::NoRoom) => "compute: no room".to_owned(),
        LoadPlan::Compute(ComputeReason::NoLoad) => "compute: no load".to_owned(),
        LoadPlan::Join(_, loading) => format!("join; {}", meanwhile(loading)),
        LoadPlan::Begin(loading) => format!("load all; {}", meanwhile(loading)),
        LoadPlan::Probe => "load what fits; compute meanwhile".to_owned(),
    }
}

#[test]
fn each_outlook_has_its_plan() {
    let decided: Vec<String> = TABLE
        .lines()
        .skip(2)
        .map(|row| {
            let (given, _) = row.split_once(" | ").expect("a plan behind the outlook");
            format!("{given} | {}", in_words(plan_load(&outlook(given))))
        })
        .collect();
    let expected: Vec<&str> = TABLE.lines().skip(2).collect();
    assert_eq!(decided, expected);
}

#[test]
fn both_at_once_are_tried_where_each_does_a_part_that_is_worth_it() {
    use FastestWay as Way;
    let check = |tokens, compute_s, load_s, way| assert_eq!(Way::of(tokens, CHUNK, compute_s, load_s), way, "{tokens}");
    check(1024, 1.0, 1.0, Way::Both);
    check(1024, 1.0, 0.2, Way::Both);
    check(1024, 1.0, 6.0, Way::Both);
    // A head of 93 tokens, a tail of 93, a tail that saves little.
    check(1024, 1.0, 0.1, Way::Load);
    check(1024, 0.1, 1.0, Way::Compute);
    check(8192, 1.0, 10.0, Way::Compute);
    check(200, 1.0, 1.1, Way::Compute);
    check(200, 1.1, 1.0, Way::Load);
}

//! Handoffs between real processes: how much of the transfer a user waits for, and what being read costs the worker
//! that computes.
//!
//! For each lane there are a router, a prefill worker and a decode worker. Next to them are a router and a decode
//! worker alone (monolithic). Each worker has one thread, so that two have a core each on two cores. Every round asks
//! each of them once, one after the other, so that other load on the machine disturbs all alike. Clients' times are
//! the load generator's; what happened inside is in the workers' timelines.
//!
//! What is deliberately absent: load. That is `baton bench serve`'s business.

mod cluster;
mod figures;
mod passage;
mod picture;
mod timeline;

use crate::processes::binary;
use clap::Args;
use cluster::{Cluster, Kind};
use figures::{Row, Sample};
use passage::Passage;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lengths of prompts, with the rounds of each, and those of a quick run.
const PROMPTS: [(u32, usize, usize); 3] = [(128, 100, 8), (512, 100, 8), (2048, 30, 2)];
/// Rounds before, which are not counted: they connect workers and touch memory.
const WARM_UP_ROUNDS: usize = 1;
/// The prompt that is drawn.
const DRAWN_TOKENS: u32 = 512;
/// Tokens of an answer: the first, the second, and some until the decode worker is at rest again.
const ANSWER_TOKENS: u32 = 4;
/// The model, under the folder of build outputs.
const MODEL: &str = "models/llama-125m-seed1";

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// Few rounds: to see that it works.
    #[arg(long)]
    quick: bool,
    /// File for the rows.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Folder for the pictures.
    #[arg(long, default_value = "docs/pictures")]
    pictures: PathBuf,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let baton = binary()?;
    let model = model(&baton)?;
    let scratch = tempfile::tempdir()?;
    let start = |kind| Cluster::start(&baton, &model, scratch.path(), kind);
    eprintln!("starting workers, one process each");
    let lanes = [start(Kind::Handoff("shm"))?, start(Kind::Handoff("tcp"))?];
    let monolithic = start(Kind::Monolithic)?;
    let mut rows = Vec::new();
    for (tokens, rounds, quick_rounds) in PROMPTS {
        let rounds = if options.quick { quick_rounds } else { rounds };
        eprintln!("prompts of {tokens} tokens: {rounds} rounds");
        rows.extend(row(&lanes, &monolithic, tokens, rounds, &options.pictures)?);
    }
    println!("{}", figures::tables(&rows));
    if let Some(path) = &options.json {
        fs::write(path, figures::json(&rows).to_string())?;
    }
    Ok(())
}

/// Runs the rounds of one length, for each lane.
fn row(
    lanes: &[Cluster; 2],
    monolithic: &Cluster,
    tokens: u32,
    rounds: usize,
    pictures: &Path,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut asked = [Vec::new(), Vec::new()];
    for round in 0..WARM_UP_ROUNDS + rounds {
        // Another seed for each question, so that nobody has the prompt in its cache.
        let mut seeds = (u64::from(tokens) << 32 | (round as u64) << 8)..;
        let mut ask = |cluster: &Cluster, answer| cluster.ask(tokens, answer, seeds.next().unwrap_or_default());
        let base = ask(monolithic, ANSWER_TOKENS)?;
        for (cluster, asked) in lanes.iter().zip(&mut asked) {
            // One token is no handoff: nobody reads while its prompt is computed.
            asked.push((ask(cluster, ANSWER_TOKENS)?, ask(cluster, 1)?, base));
        }
    }
    let alone_at = monolithic.timeline()?;
    let mut rows = Vec::new();
    for (cluster, asked) in lanes.iter().zip(asked) {
        let timeline = cluster.timeline()?;
        let mut samples = Vec::new();
        for (handoff, alone, base) in asked.into_iter().skip(WARM_UP_ROUNDS) {
            let passage = Passage::find(&timeline, handoff.window, cluster.lane())?;
            let computed = [timeline.prefill.prompt(alone.window)?, alone_at.prefill.prompt(base.window)?];
            samples.push(Sample::new(passage, handoff, base, computed)?);
        }
        if tokens == DRAWN_TOKENS {
            draw(&samples, cluster.lane(), tokens, pictures)?;
        }
        rows.push(Row::new(cluster.lane(), tokens, &samples).ok_or("no rounds")?);
    }
    Ok(rows)
}

/// Draws the handoff that took as long as most: the median of the times to the second token.
fn draw(samples: &[Sample], lane: &str, tokens: u32, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut passages: Vec<&Passage> = samples.iter().map(|sample| &sample.passage).collect();
    passages.sort_unstable_by_key(|passage| passage.second_token - passage.begin);
    let passage = passages.get(passages.len() / 2).ok_or("no rounds")?;
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("handoff-{lane}.svg"));
    fs::write(&path, picture::svg(passage, lane, tokens))?;
    eprintln!("drew {}", path.display());
    Ok(())
}

/// Returns the model, and makes it unless an earlier run did.
fn model(baton: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let folder = baton.parent().and_then(Path::parent).ok_or("the binary is in no folder")?.join(MODEL);
    if !folder.join("config.json").exists() {
        eprintln!("making the 125m shape");
        let arguments = ["model", "random", "--shape", "125m", "--family", "llama", "--seed", "1"];
        if !Command::new(baton).args(arguments).arg(&folder).status()?.success() {
            return Err("the model was not made".into());
        }
    }
    Ok(folder)
}

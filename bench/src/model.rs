//! Prompts and decode steps of one model, as `bench/peers/llama` compares them with another engine: samples, not a verdict.

use crate::engine_runs::Bench;
use serde::Serialize;
use std::error::Error;
use std::path::PathBuf;

/// Tokens that a decode sample generates for each sequence.
const DECODED: u32 = 32;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The model: a Hugging Face directory or a GGUF file.
    model: PathBuf,
    /// Threads that compute.
    #[arg(long, default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    threads: usize,
    /// Samples of each work, after one that does not count.
    #[arg(long, default_value_t = 3)]
    samples: usize,
    /// Where the samples go.
    #[arg(long)]
    json: PathBuf,
}

/// One work and how fast it was done, each time.
#[derive(Serialize)]
struct Row {
    work: String,
    /// Tokens a second of all sequences.
    samples: Vec<f64>,
}

enum Work {
    /// A prompt of so many tokens.
    Prompt(u32),
    /// So many sequences after so many tokens.
    Decode(u32, u32),
}

const WORKS: [Work; 6] = [
    Work::Prompt(512),
    Work::Prompt(2048),
    Work::Decode(1, 0),
    Work::Decode(1, 128),
    Work::Decode(4, 128),
    Work::Decode(16, 128),
];

/// Measures and writes.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let mut bench = Bench::open(&options.model, options.threads)?;
    let mut rows = Vec::new();
    for work in WORKS {
        let mut samples = Vec::new();
        for _ in 0..=options.samples {
            samples.push(work.tokens_per_s(&mut bench)?);
        }
        samples.remove(0);
        eprintln!("{}: {samples:.1?} tokens/s", work.name());
        rows.push(Row { work: work.name(), samples });
    }
    Ok(std::fs::write(&options.json, serde_json::to_vec_pretty(&rows)?)?)
}

impl Work {
    fn name(&self) -> String {
        match self {
            Self::Prompt(tokens) => format!("prompt of {tokens}"),
            Self::Decode(sequences, 0) => format!("decode, batch {sequences}, empty context"),
            Self::Decode(sequences, context) => format!("decode, batch {sequences} after {context}"),
        }
    }

    fn tokens_per_s(&self, bench: &mut Bench) -> Result<f64, Box<dyn Error>> {
        let (tokens, spent) = match *self {
            Self::Prompt(tokens) => (tokens, bench.prompt(1, tokens)?),
            Self::Decode(sequences, context) => {
                bench.prompt(sequences, context)?;
                (sequences * DECODED, bench.decode(sequences, context, DECODED)?)
            }
        };
        Ok(f64::from(tokens) / spent.as_secs_f64())
    }
}

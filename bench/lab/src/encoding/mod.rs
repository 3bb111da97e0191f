//! What encodings of KV cost: how far the next token's distribution is from the one with KV as it was computed,
//! and how long encoding and decoding take.
//!
//! A context is computed once. Its blocks are copied to a sequence for each encoding, there and back as a tier
//! would have them, and then all sequences go on side by side: over the text that follows, and freely, each by its
//! own most probable tokens.

mod distance;
mod sequences;
mod speed;
mod texts;

use clap::Args;
use distance::Distance;
use domain::{Encoding, KvLayout};
use engine::cpu::CpuModel;
use engine::models::ModelFiles;
use sequences::Sequences;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// The first is beside which the others are measured. It goes the same way as they do: it shows that nothing else
/// differs.
const ENCODINGS: [Encoding; 3] = [Encoding::Exact, Encoding::Int8, Encoding::Fp8];

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// A Hugging Face directory or a GGUF file.
    #[arg(long)]
    model: PathBuf,
    /// A file of text to go by. Without it tokens are drawn at random, which suits random weights alone.
    #[arg(long)]
    text: Option<PathBuf>,
    /// Tokens of a context, rounded down to whole blocks.
    #[arg(long, default_value_t = 384)]
    context: u32,
    /// Tokens that follow a context, and tokens that are generated after it.
    #[arg(long, default_value_t = 96)]
    tokens: u32,
    /// Contexts.
    #[arg(long, default_value_t = 16)]
    contexts: usize,
    /// Threads that compute.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Measures and prints.
pub(crate) fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let files = ModelFiles::load(&options.model)?;
    let model = Arc::new(CpuModel::load(files.spec.clone(), &files.checkpoint, &mut |_| {})?);
    let layout = model.spec().kv_layout(model.spec().dtype, None);
    let context = options.context / layout.block_tokens * layout.block_tokens;
    if context == 0 || options.tokens == 0 {
        return Err(format!("--context {} is no whole block, or --tokens is 0", options.context).into());
    }
    let texts =
        texts::texts(options.text.as_deref(), &files, (context + options.tokens + 1) as usize, options.contexts)?;
    println!("{}: {} contexts of {context} tokens, {} after each", files.name, texts.len(), options.tokens);
    let mut sequences =
        Sequences::new(model, layout.clone(), ENCODINGS.len() as u32, context + options.tokens, options.threads)?;
    let mut distances: Vec<Distance> = ENCODINGS.iter().map(|_| Distance::default()).collect();
    for text in &texts {
        let (context, rest) = text.split_at(context as usize);
        sequences.compute(context)?;
        for (sequence, encoding) in (0..).zip(ENCODINGS) {
            sequences.recode(sequence, encoding, context.len() as u32);
        }
        follow(&mut sequences, context.len() as u32, rest, &mut distances)?;
        generate(&mut sequences, context.len() as u32, rest[0], options.tokens, &mut distances)?;
    }
    println!("| KV | of the bytes | {} |", Distance::COLUMNS.join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(Distance::COLUMNS.len()));
    for (encoding, distance) in ENCODINGS.into_iter().zip(&distances) {
        println!("| {encoding} | {:.3} | {} |", share(&layout, encoding), distance.cells().join(" | "));
    }
    speed::run(&layout)
}

/// Feeds the tokens of the text to all sequences, one by one.
fn follow(
    sequences: &mut Sequences,
    start: u32,
    text: &[u32],
    distances: &mut [Distance],
) -> Result<(), Box<dyn Error>> {
    for ((position, &token), &next) in (start..).zip(text).zip(&text[1..]) {
        let all = sequences.step(position, &vec![token; distances.len()])?;
        for (distance, logits) in distances.iter_mut().zip(&all) {
            distance.add(&all[0], logits, next);
        }
    }
    Ok(())
}

/// Lets each sequence take the tokens that it finds most probable itself.
fn generate(
    sequences: &mut Sequences,
    start: u32,
    first: u32,
    tokens: u32,
    distances: &mut [Distance],
) -> Result<(), Box<dyn Error>> {
    let mut next = vec![first; distances.len()];
    let mut same = vec![0; distances.len()];
    for number in 0..tokens {
        let all = sequences.step(start + number, &next)?;
        next = all.iter().map(|logits| distance::most_probable(logits)).collect();
        for (same, &token) in same.iter_mut().zip(&next) {
            // From the first difference on they are of different texts.
            *same += u32::from(*same == number && token == next[0]);
        }
    }
    distances.iter_mut().zip(same).for_each(|(distance, same)| distance.generated(same, tokens));
    Ok(())
}

fn share(layout: &KvLayout, encoding: Encoding) -> f64 {
    let stored = layout.clone().with_encoding(encoding);
    let bytes = |of: &dyn Fn(usize) -> usize| (0..layout.groups.len()).map(of).sum::<usize>() as f64;
    bytes(&|group| stored.stored_bytes(group)) / bytes(&|group| layout.record_bytes(group))
}

//! The answer in one piece.

use super::delta::{Delta, Finish, Taken, Whole};
use super::run::{Run, Sink};
use super::writer::Writer;
use crate::api::Best;
use crate::error::ApiError;

impl Sink for Vec<Whole> {
    fn begin(&mut self, _taken: Taken) {}

    fn delta(&mut self, sequence: usize, delta: &Delta) {
        self[sequence].extend(delta);
    }

    fn finish(&mut self, sequence: usize, finish: Finish) {
        self[sequence].finish = finish;
    }
}

/// Waits for the end of every sequence and returns the answer as JSON. `best`: so many sequences of each prompt are
/// told, the most probable ones. Errors: a prompt was refused, or failed.
pub(crate) async fn whole(mut run: Run, writer: &dyn Writer, best: Option<Best>) -> Result<Vec<u8>, ApiError> {
    let mut sequences = vec![Whole::new(); run.sequences()];
    while !run.over() {
        run.advance(&mut sequences).await?;
    }
    if let Some(best) = best {
        sequences = most_probable(sequences, &run, best.choices);
    }
    Ok(writer.whole(&sequences, run.taken()))
}

/// Returns the `best` sequences of each prompt: those with the highest mean log probability of a token, the highest
/// first.
fn most_probable(sequences: Vec<Whole>, run: &Run, best: u16) -> Vec<Whole> {
    let mut ranked: Vec<(usize, Whole)> = sequences.into_iter().enumerate().collect();
    let prompts = ranked.chunk_by_mut(|(a, _), (b, _)| a / run.choices() == b / run.choices());
    let told = prompts.flat_map(|choices| {
        choices.sort_by(|(a, _), (b, _)| run.mean_logprob(*b).total_cmp(&run.mean_logprob(*a)));
        choices[..usize::from(best)].iter().map(|(_, whole)| whole.clone())
    });
    told.collect()
}

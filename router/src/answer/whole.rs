//! The answer in one piece.

use super::delta::{Delta, Finish, Taken, Whole};
use super::run::{Run, Sink};
use super::writer::Writer;
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

/// Waits for the end of every sequence and returns the answer as JSON. Errors: a prompt was refused, or failed.
pub(crate) async fn whole(mut run: Run, writer: &dyn Writer) -> Result<Vec<u8>, ApiError> {
    let empty = Whole { parts: Vec::new(), logprobs: Vec::new(), finish: Finish::Stop };
    let mut sequences = vec![empty; run.sequences()];
    while !run.over() {
        run.advance(&mut sequences).await?;
    }
    Ok(writer.whole(&sequences, run.taken()))
}

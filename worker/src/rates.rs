//! How fast this worker was lately: what placement predicts with.

use domain::plan::StepOutput;
use scheduler::Work;
use std::time::Duration;

/// Weight of the newest measurement in the moving averages.
const NEWEST: f32 = 0.2;
/// A step of at least this many prompt rows says how fast prompts are.
const PROMPT_ROWS_MIN: u32 = 16;

/// Moving averages; 0 where nothing was measured yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    pub(crate) prefill_tokens_per_s: f32,
    pub(crate) decode_step_s: f32,
    pub(crate) fetch_bytes_per_s: f32,
    disk_bytes_per_s: f32,
}

impl Rates {
    pub(crate) fn step(&mut self, work: &[Work], output: &StepOutput) {
        let rows: u32 = work.iter().map(|work| work.count).sum();
        let decodes = work.iter().filter(|work| work.count == 1).count() as u32;
        let seconds = output.elapsed.as_secs_f32();
        if rows == decodes {
            average(&mut self.decode_step_s, seconds);
        } else if rows - decodes >= PROMPT_ROWS_MIN && seconds > 0.0 {
            average(&mut self.prefill_tokens_per_s, rows as f32 / seconds);
        }
    }

    pub(crate) fn fetch(&mut self, bytes: u64, wire: Duration) {
        if !wire.is_zero() && bytes > 0 {
            average(&mut self.fetch_bytes_per_s, bytes as f32 / wire.as_secs_f32());
        }
    }

    /// A load from disk that took so long, waiting included.
    pub(crate) fn load(&mut self, bytes: u64, elapsed: Duration) {
        if !elapsed.is_zero() && bytes > 0 {
            average(&mut self.disk_bytes_per_s, bytes as f32 / elapsed.as_secs_f32());
        }
    }

    /// Whether loading so many tokens, of so many bytes, takes less time than computing them. What was never measured is tried.
    pub(crate) fn loads_faster(&self, tokens: u32, bytes: u64) -> bool {
        if self.disk_bytes_per_s == 0.0 || self.prefill_tokens_per_s == 0.0 {
            return true;
        }
        bytes as f32 / self.disk_bytes_per_s < tokens as f32 / self.prefill_tokens_per_s
    }
}

fn average(value: &mut f32, newest: f32) {
    *value = if *value == 0.0 { newest } else { *value + NEWEST * (newest - *value) };
}

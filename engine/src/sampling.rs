//! Sampling: from logits to a token.

use domain::plan::{Sample, Sampled};

/// Samples tokens; owns scratch for one vocabulary.
#[derive(Debug)]
pub struct Sampler {
    vocab: usize,
}

impl Sampler {
    /// A sampler for logits of `vocab` entries.
    pub fn new(vocab: usize) -> Self {
        Self { vocab }
    }

    /// Samples one token from `logits` (`[vocab]`), which stay as they are: several samples may share a row.
    /// Errors (in words): no logit is a number, or the row has the wrong length.
    pub fn sample(&mut self, logits: &[f32], sample: &Sample) -> Result<Sampled, String> {
        if logits.len() != self.vocab {
            return Err(format!("{} logits for a vocabulary of {}", logits.len(), self.vocab));
        }
        let token = (0..self.vocab).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
        let token = token.ok_or("no logits")?;
        Ok(Sampled { key: sample.key, token: token as u32, logprobs: None })
    }
}

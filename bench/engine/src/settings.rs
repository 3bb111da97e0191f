//! What a run measures.

use crate::error::BenchError;
use crate::work::Work;
use crate::{BATCH_MAX, SAMPLES_MAX, WORKS_MAX};
use engine::cpu::Pinning;
use serde::Serialize;

/// What to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Threads that compute.
    pub threads: usize,
    /// Whether they stay on processors of their own.
    #[serde(skip)]
    pub pinning: Pinning,
    /// Lengths of prompts, in tokens.
    pub prompts: Vec<u32>,
    /// Sequences that are decoded at once.
    pub batches: Vec<u32>,
    /// Tokens before the decoded ones; every batch is measured after each.
    pub contexts: Vec<u32>,
    /// Samples of each work, after one that does not count.
    pub samples: usize,
}

impl Settings {
    /// Returns all works, in the order in which they are measured. Errors: a number is out of its bounds, `context`
    /// (the model's) included, or there is nothing to do.
    pub(crate) fn works(&self, context: u32) -> Result<Vec<Work>, BenchError> {
        let refuse = |reason: String| Err(BenchError::Settings(reason));
        let contexts = || self.contexts.iter().copied();
        let decodes =
            contexts().flat_map(|context| self.batches.iter().map(move |&batch| Work::Decode { batch, context }));
        let works: Vec<Work> = self.prompts.iter().map(|&tokens| Work::Prompt(tokens)).chain(decodes).collect();
        if works.is_empty() {
            return refuse("there is nothing to measure: name --prompts, or --batches and --contexts".to_owned());
        }
        if works.len() > WORKS_MAX {
            return refuse(format!("{} works to measure, {WORKS_MAX} at most", works.len()));
        }
        if !(1..=SAMPLES_MAX).contains(&self.samples) {
            return refuse(format!("--samples {}: 1 to {SAMPLES_MAX}", self.samples));
        }
        if self.prompts.contains(&0) {
            return refuse("--prompts 0: a prompt has at least one token".to_owned());
        }
        if let Some(batch) = self.batches.iter().find(|batch| !(1..=BATCH_MAX).contains(*batch)) {
            return refuse(format!("--batches {batch}: 1 to {BATCH_MAX} sequences"));
        }
        if let Some(work) = works.iter().find(|work| work.length() > context) {
            let tokens = work.length();
            return refuse(format!("{work}: that is {tokens} tokens, and the model's context has {context}"));
        }
        Ok(works)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        let pinning = Pinning::Off;
        Settings { threads: 1, pinning, prompts: vec![16], batches: vec![1, 2], contexts: vec![0, 8], samples: 1 }
    }

    #[test]
    fn every_batch_is_measured_after_every_context() {
        let works = settings().works(64).expect("it fits");
        let decode = |batch, context| Work::Decode { batch, context };
        assert_eq!(works, [Work::Prompt(16), decode(1, 0), decode(2, 0), decode(1, 8), decode(2, 8)]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let check = |change: &dyn Fn(&mut Settings), part: &str| {
            let mut settings = settings();
            change(&mut settings);
            let error = settings.works(64).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        check(&|it| it.samples = 0, "--samples 0");
        check(&|it| it.prompts = vec![0], "--prompts 0");
        check(&|it| it.batches = vec![BATCH_MAX + 1], "1 to 512 sequences");
        check(&|it| it.contexts = vec![40], "the model's context has 64");
        check(&|it| it.contexts = vec![u32::MAX], "the model's context has 64");
        check(&|it| it.prompts = vec![100], "prompt of 100: that is 100 tokens");
        check(&|it| it.contexts = vec![0; WORKS_MAX], "64 at most");
        check(&|it| (it.prompts, it.batches) = (vec![], vec![]), "nothing to measure");
    }
}

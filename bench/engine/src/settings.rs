//! What a run measures.

use crate::error::BenchError;
use crate::work::{Cut, Work};
use crate::{BATCH_MAX, CHUNK_MAX, DECODED_MAX, SAMPLES_MAX, WORKS_MAX};
use engine::cpu::Pinning;
use engine::cuda::KernelSet;
use serde::Serialize;
use std::path::PathBuf;

/// A card that computes.
#[derive(Clone, Debug, Serialize)]
pub struct CardChoice {
    /// Its number, as the driver shows it.
    pub number: u32,
    /// Kernels that steps run. The device in words names them.
    #[serde(skip)]
    pub set: KernelSet,
    /// Folder of compiled kernels. `None`: they are compiled each time.
    #[serde(skip)]
    pub kernels: Option<PathBuf>,
}

/// What to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// The card. `None`: processors compute.
    pub card: Option<CardChoice>,
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
    /// Lengths of prompts that are computed while batches decode; each with every batch after every context.
    pub mixed: Vec<u32>,
    /// How works are cut into steps.
    #[serde(flatten)]
    pub cut: Cut,
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
        let mixed = |prompt| {
            contexts()
                .flat_map(move |context| self.batches.iter().map(move |&batch| Work::Mixed { batch, context, prompt }))
        };
        let prompts = self.prompts.iter().map(|&tokens| Work::Prompt(tokens));
        let works: Vec<Work> = prompts.chain(decodes).chain(self.mixed.iter().copied().flat_map(mixed)).collect();
        if works.is_empty() {
            return refuse("there is nothing to measure: name --prompts, or --batches and --contexts".to_owned());
        }
        if works.len() > WORKS_MAX {
            return refuse(format!("{} works to measure, {WORKS_MAX} at most", works.len()));
        }
        if !(1..=SAMPLES_MAX).contains(&self.samples) {
            return refuse(format!("--samples {}: 1 to {SAMPLES_MAX}", self.samples));
        }
        if let Some(flag) = [("--prompts", &self.prompts), ("--mixed", &self.mixed)].iter().find(|it| it.1.contains(&0))
        {
            return refuse(format!("{} 0: a prompt has at least one token", flag.0));
        }
        let Cut { chunk, decoded } = self.cut;
        if !(1..=CHUNK_MAX).contains(&chunk) {
            return refuse(format!("--chunk {chunk}: 1 to {CHUNK_MAX} tokens"));
        }
        if !(1..=DECODED_MAX).contains(&decoded) {
            return refuse(format!("--decoded {decoded}: 1 to {DECODED_MAX} tokens"));
        }
        if let Some(batch) = self.batches.iter().find(|batch| !(1..=BATCH_MAX).contains(*batch)) {
            return refuse(format!("--batches {batch}: 1 to {BATCH_MAX} sequences"));
        }
        if let Some(work) = works.iter().find(|work| work.length(self.cut) > context) {
            let tokens = work.length(self.cut);
            return refuse(format!("{work}: that is {tokens} tokens, and the model's context has {context}"));
        }
        Ok(works)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            card: None,
            threads: 1,
            pinning: Pinning::Off,
            prompts: vec![16],
            batches: vec![1, 2],
            contexts: vec![0, 8],
            mixed: vec![],
            cut: Cut { chunk: 512, decoded: 32 },
            samples: 1,
        }
    }

    #[test]
    fn every_batch_is_measured_after_every_context() {
        let works = settings().works(64).expect("it fits");
        let decode = |batch, context| Work::Decode { batch, context };
        assert_eq!(works, [Work::Prompt(16), decode(1, 0), decode(2, 0), decode(1, 8), decode(2, 8)]);
    }

    #[test]
    fn every_mixed_prompt_is_measured_beside_every_batch() {
        let settings =
            Settings { prompts: vec![], batches: vec![2], contexts: vec![8], mixed: vec![20, 30], ..settings() };
        let works = settings.works(64).expect("it fits");
        let mixed = |prompt| Work::Mixed { batch: 2, context: 8, prompt };
        assert_eq!(works, [Work::Decode { batch: 2, context: 8 }, mixed(20), mixed(30)]);
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
        check(&|it| it.mixed = vec![0], "--mixed 0");
        check(&|it| it.cut.chunk = 0, "--chunk 0: 1 to 32768");
        check(&|it| it.cut.decoded = 0, "--decoded 0: 1 to 4096");
    }
}

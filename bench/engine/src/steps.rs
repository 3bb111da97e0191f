//! A device that runs steps one after the other, as a worker's step loop would.

use crate::CHUNK;
use crate::error::BenchError;
use crate::settings::Settings;
use crate::stopwatch::{Stopwatch, Times};
use crate::work::{Run, Work, prompt};
use domain::plan::{BlockCopy, BlockTable, Input, Sample, Span, StepOutput, StepPlan};
use domain::{BlockId, Choice, Epoch, GroupId, KvLayout, RequestId, SamplingParams, SeqKey, SlotId, StepId};
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa};
use engine::device::{Device, DeviceLimits};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a thread sleeps at most that waits for a step, should it miss being woken.
const WAIT: Duration = Duration::from_millis(100);

/// What a sample took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampled {
    /// All steps, each from its submission to its end.
    pub(crate) elapsed: Duration,
    /// The part in kernels.
    pub(crate) in_kernels: Duration,
    pub(crate) steps: u32,
    pub(crate) kernels: Times,
}

/// A device with memory for some works.
pub(crate) struct Steps {
    device: CpuDevice,
    stopwatch: Stopwatch,
    vocab: u32,
    /// Blocks that every sequence has.
    blocks: u32,
    step: StepId,
}

impl Steps {
    pub(crate) fn new(model: Arc<CpuModel>, works: &[Work], settings: &Settings, isa: Isa) -> Result<Self, BenchError> {
        let &Settings { threads, pinning, .. } = settings;
        let spec = model.spec();
        let vocab = spec.vocab as u32;
        let layout = spec.kv_layout(spec.dtype, None);
        let length = works.iter().map(|work| work.length()).max().unwrap_or(1);
        let sequences = works.iter().map(|work| work.sequences()).max().unwrap_or(1);
        let blocks = length.div_ceil(layout.block_tokens);
        let limits = DeviceLimits {
            rows_max: CHUNK as usize,
            outputs_max: sequences as usize,
            context_max: length as usize,
            blocks: vec![blocks * sequences; layout.groups.len()],
            slots_max: sequences as usize,
        };
        let mut device = CpuDevice::new(model, CpuConfig { layout, limits, threads, pinning, guarded: false, isa })?;
        let (stopwatch, waiting) = (Stopwatch::default(), thread::current());
        device.set_operation_tap(Box::new(stopwatch.clone()));
        device.set_waker(Box::new(move || waiting.unpark()));
        Ok(Self { device, stopwatch, vocab, blocks, step: StepId(0) })
    }

    /// Returns the device in words.
    pub(crate) fn describe(&self) -> String {
        self.device.describe()
    }

    /// Returns the layout of its cache.
    pub(crate) fn layout(&self) -> &KvLayout {
        self.device.layout()
    }

    /// Computes the context that the works from here on decode after: of one sequence, and copies for the others.
    pub(crate) fn contexts(&mut self, sequences: u32, context: u32) -> Result<(), BenchError> {
        for run in prompt(context) {
            self.run(run)?;
        }
        let blocks = context.div_ceil(self.layout().block_tokens);
        let groups = self.layout().groups.len();
        let mut copies = Vec::new();
        for sequence in 1..sequences {
            for (group, block) in (0..groups).flat_map(|group| (0..blocks).map(move |block| (group, block))) {
                let to = BlockId(sequence * self.blocks + block);
                copies.push(BlockCopy { group: GroupId(group as u16), from: BlockId(block), to });
            }
        }
        if !copies.is_empty() {
            self.submit(copies, Vec::new())?;
        }
        Ok(())
    }

    /// Does the work once.
    pub(crate) fn sample(&mut self, work: Work) -> Result<Sampled, BenchError> {
        self.stopwatch.take();
        let mut sampled = Sampled::default();
        for run in work.steps() {
            let output = self.run(run)?;
            sampled.elapsed += output.elapsed;
            sampled.in_kernels += output.in_kernels;
            sampled.steps += 1;
        }
        sampled.kernels = self.stopwatch.take();
        Ok(sampled)
    }

    fn run(&mut self, run: Run) -> Result<StepOutput, BenchError> {
        let spans = (0..run.sequences).map(|sequence| (self.span(run, sequence), self.tables(run, sequence))).collect();
        self.submit(Vec::new(), spans)
    }

    fn submit(
        &mut self,
        copies: Vec<BlockCopy>,
        spans: Vec<(Span, Vec<BlockTable>)>,
    ) -> Result<StepOutput, BenchError> {
        self.step = StepId(self.step.0 + 1);
        self.device.submit(Arc::new(StepPlan::opening(self.step, copies, spans)))?;
        loop {
            if let Some(output) = self.device.poll() {
                return match (&output.sampled, output.failed.first()) {
                    (Ok(_), None) => Ok(output),
                    (Ok(_), Some(failed)) => Err(BenchError::Step(failed.reason.clone())),
                    (Err(reason), _) => Err(BenchError::Step(reason.clone())),
                };
            }
            thread::park_timeout(WAIT);
        }
    }

    fn tables(&self, run: Run, sequence: u32) -> Vec<BlockTable> {
        let (layout, first) = (self.layout(), sequence * self.blocks);
        let end = (run.start + run.rows).div_ceil(layout.block_tokens);
        let blocks = (first..first + end).map(BlockId).collect();
        vec![BlockTable { first: 0, blocks }; layout.groups.len()]
    }

    fn span(&self, run: Run, sequence: u32) -> Span {
        let key = SeqKey { request: RequestId(sequence.into()), epoch: Epoch(1), choice: Choice(0) };
        let token = |position: u32| Input::Token((position.wrapping_mul(7919) + sequence) % self.vocab);
        let end = run.start + run.rows;
        let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let (row, params) = (run.rows - 1, Arc::new(params));
        let sample = || Sample { key, row, params, seed: 0, index: 0, masked: false };
        Span {
            key,
            slot: SlotId(sequence),
            start: run.start,
            inputs: (run.start..end).map(token).collect(),
            samples: run.samples.then(sample).into_iter().collect(),
            scores: Vec::new(),
            adapter: None,
            hidden: None,
        }
    }
}

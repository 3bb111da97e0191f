//! A device that runs steps one after the other, as a worker's step loop would.

use crate::clock::now;
use crate::error::BenchError;
use crate::model::Model;
use crate::settings::Settings;
use crate::stopwatch::{Stopwatch, Times};
use crate::work::{Cut, Run, Work, prompt};
use domain::plan::{BlockCopy, BlockTable, Input, Sample, SlotChange, Span, StepOutput, StepPlan};
use domain::{BlockId, Choice, Dtype, Epoch, GroupId, KvLayout, RequestId, SamplingParams, SeqKey, SlotId, StepId};
use engine::cpu::{CpuConfig, CpuDevice, Isa};
use engine::cuda::CudaDevice;
use engine::device::{Device, DeviceLimits, STEPS_IN_FLIGHT_MAX};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long a thread sleeps at most that waits for a step, should it miss being woken.
const WAIT: Duration = Duration::from_millis(100);

/// What a sample took.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampled {
    /// All steps: of one at a time, each from its submission to its end; of two, from the first to the last.
    pub(crate) elapsed: Duration,
    /// The part in kernels.
    pub(crate) in_kernels: Duration,
    pub(crate) steps: u32,
    pub(crate) kernels: Times,
}

/// A device with memory for some works.
pub(crate) struct Steps {
    device: Box<dyn Device>,
    stopwatch: Stopwatch,
    cut: Cut,
    /// Steps that the device has at once.
    depth: usize,
    vocab: u32,
    /// Blocks that every sequence has.
    blocks: u32,
    step: StepId,
}

impl Steps {
    pub(crate) fn new(model: &Model, works: &[Work], settings: &Settings, isa: Isa) -> Result<Self, BenchError> {
        let &Settings { threads, pinning, cut, .. } = settings;
        let spec = model.spec();
        let vocab = spec.vocab as u32;
        let dtype = match model {
            Model::Processor(_) => spec.dtype,
            Model::Card(..) => Dtype::Bf16,
        };
        let layout = spec.kv_layout(dtype, None);
        let most = |count: &dyn Fn(Work) -> u32| works.iter().map(|&work| count(work)).max().unwrap_or(1);
        let (length, sequences) = (most(&|work| work.length(cut)), most(&Work::sequences));
        let blocks = length.div_ceil(layout.block_tokens);
        let limits = DeviceLimits {
            rows_max: most(&|work| work.rows_max(cut)) as usize,
            outputs_max: sequences as usize,
            context_max: length as usize,
            blocks: vec![blocks * sequences; layout.groups.len()],
            slots_max: sequences as usize,
        };
        let (stopwatch, waiting) = (Stopwatch::default(), thread::current());
        // A card has its next step before one ends; processors have what each operation took, step by step.
        let (mut device, depth): (Box<dyn Device>, usize) = match model {
            Model::Processor(model) => {
                let config = CpuConfig { layout, limits, threads, pinning, guarded: false, isa };
                let mut device = CpuDevice::new(model.clone(), config)?;
                device.set_operation_tap(Box::new(stopwatch.clone()));
                (Box::new(device), 1)
            }
            Model::Card(model, set) => {
                let device = CudaDevice::with_kernels(model.clone(), layout, limits, *set)?;
                (Box::new(device), STEPS_IN_FLIGHT_MAX)
            }
        };
        device.set_waker(Box::new(move || waiting.unpark()));
        Ok(Self { device, stopwatch, cut, depth, vocab, blocks, step: StepId(0) })
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
        for (number, run) in prompt(0, context, self.cut).enumerate() {
            self.submit(&[run], number == 0)?;
            self.end()?;
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
            self.step = StepId(self.step.0 + 1);
            self.device.submit(Arc::new(StepPlan { step: self.step, copies, ..StepPlan::default() }))?;
            self.end()?;
        }
        Ok(())
    }

    /// Does the work once.
    pub(crate) fn sample(&mut self, work: Work) -> Result<Sampled, BenchError> {
        self.stopwatch.take();
        let mut sampled = Sampled::default();
        let began = now();
        let mut in_flight = 0;
        for (number, runs) in work.steps(self.cut).iter().enumerate() {
            if in_flight == self.depth {
                self.count(&mut sampled)?;
                in_flight -= 1;
            }
            self.submit(runs, number == 0)?;
            in_flight += 1;
        }
        for _ in 0..in_flight {
            self.count(&mut sampled)?;
        }
        if self.depth > 1 {
            sampled.elapsed = now().duration_since(began);
        }
        sampled.kernels = self.stopwatch.take();
        Ok(sampled)
    }

    /// Waits for a step, and adds it to a sample.
    fn count(&mut self, sampled: &mut Sampled) -> Result<(), BenchError> {
        let output = self.end()?;
        sampled.elapsed += output.elapsed;
        sampled.in_kernels += output.in_kernels;
        sampled.steps += 1;
        Ok(())
    }

    /// Submits a step. The first one of a work opens the slots of its sequences, with all blocks that they will need.
    fn submit(&mut self, runs: &[Run], opens: bool) -> Result<(), BenchError> {
        self.step = StepId(self.step.0 + 1);
        let mut plan = StepPlan { step: self.step, ..StepPlan::default() };
        for run in runs {
            for sequence in run.first..run.first + run.sequences {
                let span = self.span(*run, sequence);
                if opens {
                    plan.changes.extend(SlotChange::open(span.slot, span.key, self.tables(sequence)));
                }
                plan.spans.push(span);
            }
        }
        Ok(self.device.submit(Arc::new(plan))?)
    }

    /// Waits for the end of the oldest step.
    fn end(&mut self) -> Result<StepOutput, BenchError> {
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

    fn tables(&self, sequence: u32) -> Vec<BlockTable> {
        let first = sequence * self.blocks;
        let blocks = (first..first + self.blocks).map(BlockId).collect();
        vec![BlockTable { first: 0, blocks }; self.layout().groups.len()]
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

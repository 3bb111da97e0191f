//! Runs one sequence on a CPU device, with plans made by hand.

use domain::plan::{BlockTable, Input, Sample, Span, StepPlan};
use domain::{BlockId, KvLayout, SamplingParams, SeqKey, SlotId, StepId, Token};
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa, LogitsTap, Pinning};
use engine::device::{Device, DeviceLimits, STEPS_IN_FLIGHT_MAX};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// How a sequence is cut and kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Input tokens of a step, while there are so many.
    pub(crate) chunk: usize,
    /// Tokens per block; divides `chunk`.
    pub(crate) block_tokens: u32,
    /// Threads of the device.
    pub(crate) threads: usize,
    /// Steps that are submitted before the first of them has ended, at most.
    pub(crate) steps_in_flight: usize,
    /// Whether pools are as a device's, which the host may not touch.
    pub(crate) guarded: bool,
}

impl Cut {
    /// Returns a cut as workers have it by default: two steps in flight, and plain pools.
    pub(crate) const fn new(chunk: usize, block_tokens: u32, threads: usize) -> Self {
        Self { chunk, block_tokens, threads, steps_in_flight: STEPS_IN_FLIGHT_MAX, guarded: false }
    }
}

/// What came out, by position: the logits, and the greedy token that follows.
pub(crate) type Outcome = BTreeMap<u32, (Vec<f32>, Token)>;

/// A device with room for one sequence.
pub(crate) struct Run {
    device: CpuDevice,
    ended: Receiver<()>,
    logits: Arc<Mutex<Logits>>,
    step: StepId,
    steps_in_flight: usize,
}

/// Of so many positions, the logits of the last one are wanted, wherever chunks end. Those of goldens are among them.
const STRIDE: u32 = 16;

/// Logits by position.
type Logits = BTreeMap<u32, Vec<f32>>;

/// Keeps the logits of a step.
struct Tap(Arc<Mutex<Logits>>);

impl LogitsTap for Tap {
    fn logits(&mut self, _key: SeqKey, position: u32, logits: &[f32]) {
        self.0.lock().expect("nobody panicked with it").insert(position, logits.to_vec());
    }
}

impl Run {
    /// A device for sequences of at most `tokens`; the cache has the number format of the weights.
    pub(crate) fn new(model: Arc<CpuModel>, tokens: usize, cut: Cut) -> Run {
        let layout = model.spec().kv_layout(model.spec().dtype, Some(cut.block_tokens));
        let limits = DeviceLimits {
            rows_max: cut.chunk,
            outputs_max: cut.chunk / STRIDE as usize + 1,
            context_max: tokens,
            blocks: (0..layout.groups.len()).map(|group| blocks(&layout, group, tokens, cut.chunk)).collect(),
            slots_max: 1,
        };
        let config = CpuConfig {
            layout,
            limits,
            threads: cut.threads,
            pinning: Pinning::Off,
            guarded: cut.guarded,
            isa: Isa::best(),
        };
        let mut device = CpuDevice::new(model, config).expect("the device starts");
        let logits = Arc::default();
        device.set_logits_tap(Box::new(Tap(Arc::clone(&logits))));
        let (ends, ended): (Sender<()>, _) = channel();
        device.set_waker(Box::new(move || ends.send(()).expect("the run outlives the device's steps")));
        Run { device, ended, logits, step: StepId(0), steps_in_flight: cut.steps_in_flight }
    }

    /// Computes `prompt` in chunks, then `decoded` token by token, whatever the device itself would have said.
    pub(crate) fn sequence(&mut self, prompt: &[Token], decoded: &[Token], chunk: usize) -> Outcome {
        let (mut sampled, mut in_flight) = (Vec::new(), 0);
        let mut start = 0;
        for inputs in prompt.chunks(chunk).chain(decoded.chunks(1)) {
            if in_flight == self.steps_in_flight {
                sampled.extend(self.output());
                in_flight -= 1;
            }
            self.submit(start, inputs);
            in_flight += 1;
            start += inputs.len() as u32;
        }
        (0..in_flight).for_each(|_| sampled.extend(self.output()));
        let logits = std::mem::take(&mut *self.logits.lock().expect("nobody panicked with it"));
        assert_eq!(logits.len(), sampled.len());
        logits.into_iter().zip(sampled).map(|((at, logits), token)| (at, (logits, token))).collect()
    }

    /// Submits a step that samples after its last row, and after each position whose logits are wanted.
    fn submit(&mut self, start: u32, inputs: &[Token]) {
        self.step.0 += 1;
        let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let params = Arc::new(params);
        let sample =
            |row| Sample { key: SeqKey::default(), row, params: params.clone(), seed: 0, index: 0, masked: false };
        let last = inputs.len() as u32 - 1;
        let span = Span {
            key: SeqKey::default(),
            slot: SlotId(0),
            start,
            inputs: inputs.iter().copied().map(Input::Token).collect(),
            samples: (0..last)
                .filter(|row| (start + row + 1).is_multiple_of(STRIDE))
                .chain([last])
                .map(sample)
                .collect(),
            scores: Vec::new(),
            adapter: None,
            hidden: None,
        };
        let tables = self.tables(start, inputs.len() as u32);
        let plan = StepPlan::opening(self.step, Vec::new(), [(span, tables)]);
        self.device.submit(Arc::new(plan)).expect("the plan is sound");
    }

    /// Returns what the oldest step in flight sampled.
    fn output(&mut self) -> Vec<Token> {
        self.ended.recv().expect("the device lives");
        let output = self.device.poll().expect("a step has ended");
        output.sampled.expect("the step succeeds").iter().map(|sampled| sampled.token).collect()
    }

    /// The blocks that a span needs and no others. Each pool is used from its end, and over again: a group with a
    /// window finds what an earlier position left in its blocks.
    fn tables(&self, start: u32, tokens: u32) -> Vec<BlockTable> {
        let layout = self.device.layout();
        let table = |group: usize| {
            let count = self.device.limits().blocks[group];
            let first = layout.window_start(group, start) / layout.block_tokens;
            let last = (start + tokens - 1) / layout.block_tokens;
            BlockTable { first, blocks: (first..=last).map(|block| BlockId(count - 1 - block % count)).collect() }
        };
        (0..layout.groups.len()).map(table).collect()
    }
}

/// Blocks that one sequence needs at a time in a group.
fn blocks(layout: &KvLayout, group: usize, tokens: usize, chunk: usize) -> u32 {
    let at_once = layout.groups[group].reach().map_or(tokens, |window| tokens.min(window as usize + chunk));
    // One more where the window begins inside a block.
    at_once.div_ceil(layout.block_tokens as usize) as u32 + 1
}

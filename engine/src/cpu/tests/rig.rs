//! A device with random weights, and plans made by hand.

use crate::checkpoint::WEIGHTS_FILE;
use crate::cpu::{CpuConfig, CpuDevice, CpuModel, Isa, LogitsTap, Pinning};
use crate::device::{Device, DeviceLimits};
use crate::models::ModelFiles;
use crate::random::RandomSpec;
use domain::plan::{BlockTable, Input, Sample, Span, StepOutput, StepPlan};
use domain::{BlockId, Dtype, Epoch, RequestId, SamplingParams, SeqKey, SlotId, StepId, Token};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

/// Blocks in each pool; sequence `n` has the blocks from `n * SEQUENCE_BLOCKS` on, in falling order.
pub(super) const BLOCKS: u32 = 5 * SEQUENCE_BLOCKS;
/// Blocks of a sequence.
pub(super) const SEQUENCE_BLOCKS: u32 = 32;

/// Returns the random model of this family and shape, loaded.
pub(super) fn model(family: &str, shape: &str, dtype: Dtype) -> Arc<CpuModel> {
    let files = files(family, shape, dtype);
    Arc::new(CpuModel::load(files.spec, &files.checkpoint, &mut |_| {}).expect("it loads"))
}

/// Returns the random model of this family and shape, open. Its directory is gone, its maps are not.
pub(in crate::cpu) fn files(family: &str, shape: &str, dtype: Dtype) -> ModelFiles {
    files_with(family, shape, dtype, |_| {})
}

/// Returns the same, with the bytes of its weights changed.
pub(super) fn files_with(family: &str, shape: &str, dtype: Dtype, change: impl FnOnce(&mut [u8])) -> ModelFiles {
    let dir = tempfile::TempDir::new().expect("a directory");
    let spec = RandomSpec::named(family, shape, 5, Some(dtype)).expect("family and shape have these names");
    spec.write(dir.path(), &mut |_, _| {}).expect("it is written");
    let weights = dir.path().join(WEIGHTS_FILE);
    let mut bytes = std::fs::read(&weights).expect("it can be read");
    change(&mut bytes);
    std::fs::write(weights, bytes).expect("it can be written");
    ModelFiles::load(dir.path()).expect("it can be read")
}

/// The random model without a number in what stands for a token.
pub(super) fn model_without(token: Token, dtype: Dtype) -> Arc<CpuModel> {
    let files = files_with("llama", "tiny", dtype, |bytes| {
        let begin = 8 + u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..begin]).expect("the header is JSON");
        let table = &header["model.embed_tokens.weight"];
        let width = table["shape"][1].as_u64().expect("a width") as usize * dtype.bytes();
        let at = begin + table["data_offsets"][0].as_u64().expect("an offset") as usize + token as usize * width;
        bytes[at..at + width].fill(0xff);
    });
    Arc::new(CpuModel::load(files.spec, &files.checkpoint, &mut |_| {}).expect("it loads"))
}

/// Logits of spans that sampled.
pub(super) type Logits = Vec<(SeqKey, Vec<f32>)>;

pub(super) struct Rig {
    pub(super) device: CpuDevice,
    ended: Receiver<()>,
    pub(super) logits: Arc<Mutex<Logits>>,
    pub(super) step: StepId,
}

struct Tap(Arc<Mutex<Logits>>);

impl LogitsTap for Tap {
    fn logits(&mut self, key: SeqKey, _position: u32, logits: &[f32]) {
        self.0.lock().unwrap().push((key, logits.to_vec()));
    }
}

pub(super) fn config(model: &CpuModel, block_tokens: u32, threads: usize, isa: Isa) -> CpuConfig {
    let layout = model.spec().kv_layout(model.spec().dtype, Some(block_tokens));
    let blocks = vec![BLOCKS; layout.groups.len()];
    let limits = DeviceLimits { rows_max: 320, outputs_max: 8, context_max: 2048, blocks, slots_max: 8 };
    CpuConfig { layout, limits, threads, pinning: Pinning::Off, guarded: false, isa }
}

impl Rig {
    pub(super) fn new(model: Arc<CpuModel>, block_tokens: u32, threads: usize, isa: Isa) -> Self {
        let config = config(&model, block_tokens, threads, isa);
        let mut device = CpuDevice::new(model, config).expect("the device starts");
        let logits = Arc::default();
        device.set_logits_tap(Box::new(Tap(Arc::clone(&logits))));
        let (ends, ended) = channel();
        device.set_waker(Box::new(move || ends.send(()).expect("the rig outlives the device's steps")));
        Self { device, ended, logits, step: StepId(0) }
    }

    /// Returns a plan with the next step's number, which tells the blocks that its spans need.
    pub(super) fn plan(&mut self, spans: Vec<Span>) -> StepPlan {
        self.step.0 += 1;
        let tables = |span: Span| {
            let tables = self.tables(&span);
            (span, tables)
        };
        let spans: Vec<_> = spans.into_iter().map(tables).collect();
        StepPlan::opening(self.step, Vec::new(), spans)
    }

    /// Returns the blocks that a span of sequence `n` needs: those of slot `n`.
    pub(super) fn tables(&self, span: &Span) -> Vec<BlockTable> {
        let (layout, n) = (self.device.layout(), span.slot.0);
        let last = (span.start + span.inputs.len() as u32 - 1) / layout.block_tokens;
        let table = |group| {
            let first = layout.window_start(group, span.start) / layout.block_tokens;
            let blocks = (first..=last).map(|block| BlockId((n + 1) * SEQUENCE_BLOCKS - 1 - block % SEQUENCE_BLOCKS));
            BlockTable { first, blocks: blocks.collect() }
        };
        (0..layout.groups.len()).map(table).collect()
    }

    pub(super) fn submit(&mut self, plan: StepPlan) {
        self.device.submit(Arc::new(plan)).expect("the plan is sound");
    }

    pub(super) fn output(&mut self) -> StepOutput {
        self.ended.recv().expect("the device lives");
        self.device.poll().expect("a step has ended")
    }

    /// Runs one step; the logits of its spans that sample.
    pub(super) fn run(&mut self, spans: Vec<Span>) -> (StepOutput, Logits) {
        let plan = self.plan(spans);
        self.submit(plan);
        let output = self.output();
        (output, std::mem::take(&mut *self.logits.lock().unwrap()))
    }

    /// Returns a span of sequence `n`, that samples once, greedily.
    pub(super) fn span(&self, n: u32, start: u32, inputs: &[Token]) -> Span {
        Span {
            key: key(n),
            slot: SlotId(n),
            start,
            inputs: inputs.iter().copied().map(Input::Token).collect(),
            samples: vec![Sample { row: inputs.len() as u32 - 1, ..sample(n, 0.0, 0) }],
            scores: Vec::new(),
            hidden: None,
            adapter: None,
        }
    }
}

pub(super) fn key(n: u32) -> SeqKey {
    SeqKey { request: RequestId(n.into()), epoch: Epoch(1), ..SeqKey::default() }
}

pub(super) fn sample(n: u32, temperature: f32, seed: u64) -> Sample {
    let params = Arc::new(SamplingParams { temperature, ..SamplingParams::default() });
    Sample { key: key(n), row: 0, params, seed, index: 0, masked: false }
}

/// Returns the tokens of sequence `n`.
pub(super) fn tokens(n: u32, count: usize) -> Vec<Token> {
    (0..count as u32).map(|i| (i * 37 + i * i * 11 + n * 101) % 512).collect()
}

//! A device with sequences side by side, whose blocks can be exchanged.

use domain::plan::{BlockTable, Input, Sample, Span, StepPlan};
use domain::{BlockId, Choice, Encoding, Epoch, KvLayout, RequestId, SamplingParams, SeqKey, SlotId, StepId, Token};
use engine::cpu::{CpuConfig, CpuDevice, CpuModel, Isa, LogitsTap, Pinning};
use engine::device::{Device, DeviceLimits};
use std::error::Error;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Prompt tokens of a step.
const CHUNK: u32 = 256;

/// Logits of spans that sampled, in their order.
type Logits = Arc<Mutex<Vec<Vec<f32>>>>;

struct Tap(Logits);

impl LogitsTap for Tap {
    fn logits(&mut self, _: SeqKey, _: u32, logits: &[f32]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(logits.to_vec());
    }
}

pub(super) struct Sequences {
    device: CpuDevice,
    ended: Receiver<()>,
    logits: Logits,
    step: StepId,
    /// Blocks that every sequence has.
    blocks: u32,
}

impl Sequences {
    /// Makes so many sequences, of so many tokens at most. Errors: there is no memory, or the model's context is
    /// shorter.
    pub(super) fn new(
        model: Arc<CpuModel>,
        layout: KvLayout,
        count: u32,
        tokens: u32,
        threads: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let blocks = tokens.div_ceil(layout.block_tokens);
        let limits = DeviceLimits {
            rows_max: CHUNK.max(count) as usize,
            outputs_max: count as usize,
            context_max: tokens as usize,
            blocks: vec![blocks * count; layout.groups.len()],
            slots_max: count as usize,
        };
        let config = CpuConfig { layout, limits, threads, pinning: Pinning::Off, guarded: false, isa: Isa::best() };
        let mut device = CpuDevice::new(model, config)?;
        let logits = Logits::default();
        device.set_logits_tap(Box::new(Tap(logits.clone())));
        let (ends, ended) = channel();
        device.set_waker(Box::new(move || {
            // An error says that nobody waits any more.
            let _ = ends.send(());
        }));
        Ok(Self { device, ended, logits, step: StepId(0), blocks })
    }

    /// Computes these tokens as the beginning of the first sequence.
    pub(super) fn compute(&mut self, tokens: &[Token]) -> Result<(), Box<dyn Error>> {
        for (start, chunk) in (0..).step_by(CHUNK as usize).zip(tokens.chunks(CHUNK as usize)) {
            let span = Span { samples: Vec::new(), ..self.span(0, start, chunk) };
            self.run(vec![span])?;
        }
        Ok(())
    }

    /// Gives the sequence the first one's blocks of so many tokens, as they come back from a tier with this encoding.
    pub(super) fn recode(&mut self, sequence: u32, encoding: Encoding, tokens: u32) {
        let layout = self.device.layout().clone().with_encoding(encoding);
        for group in 0..layout.groups.len() {
            let (mut record, mut stored) = (vec![0; layout.record_bytes(group)], vec![0; layout.stored_bytes(group)]);
            let pool = self.device.pool(group);
            for block in 0..tokens / layout.block_tokens {
                let to = sequence * self.blocks + block;
                assert!((to.max(block) as usize + 1) * record.len() <= pool.len(), "the blocks are in the pool");
                let first = pool.place().host().expect("the cpu device's pools are host memory");
                let at = |block: u32| first.wrapping_add(block as usize * record.len());
                let (from, to, len) = (at(block), at(to), record.len());
                // SAFETY: both blocks are inside the pool, and no step is under way that reads or writes it.
                unsafe { std::ptr::copy_nonoverlapping(from, record.as_mut_ptr(), len) };
                layout.encode(group, &record, &mut stored);
                layout.decode(group, &stored, &mut record);
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(record.as_ptr(), to, len) };
            }
        }
    }

    /// Gives each sequence a token at the position. Returns the logits of what follows, of each.
    pub(super) fn step(&mut self, position: u32, tokens: &[Token]) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
        let spans = (0..).zip(tokens).map(|(sequence, &token)| self.span(sequence, position, &[token])).collect();
        self.run(spans)
    }

    fn run(&mut self, spans: Vec<Span>) -> Result<Vec<Vec<f32>>, Box<dyn Error>> {
        self.step = StepId(self.step.0 + 1);
        let told = spans.into_iter().map(|span| (span.clone(), self.tables(&span)));
        let plan = StepPlan::opening(self.step, Vec::new(), told);
        self.device.submit(Arc::new(plan))?;
        self.ended.recv()?;
        let output = self.device.poll().ok_or("a step that ended has no output")?;
        output.sampled?;
        Ok(std::mem::take(&mut *self.logits.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns the blocks of a span's sequence.
    fn tables(&self, span: &Span) -> Vec<BlockTable> {
        let (layout, first) = (self.device.layout(), span.slot.0 * self.blocks);
        let end = (span.start + span.inputs.len() as u32).div_ceil(layout.block_tokens);
        vec![BlockTable { first: 0, blocks: (first..first + end).map(BlockId).collect() }; layout.groups.len()]
    }

    fn span(&self, sequence: u32, start: u32, tokens: &[Token]) -> Span {
        let key = SeqKey { request: RequestId(sequence.into()), epoch: Epoch(1), choice: Choice(0) };
        let params = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
        let (row, params) = (tokens.len() as u32 - 1, Arc::new(params));
        let sample = Sample { key, row, params, seed: 0, index: 0, masked: false };
        Span {
            key,
            slot: SlotId(sequence),
            start,
            inputs: tokens.iter().copied().map(Input::Token).collect(),
            samples: vec![sample],
            scores: Vec::new(),
            adapter: None,
            hidden: None,
        }
    }
}

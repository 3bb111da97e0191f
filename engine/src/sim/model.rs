//! The fake model on KV memory: deterministic, without time and threads.
//!
//! Every slot (a position in a layer) holds two words, its tag as K and the complement of the tag as V, or as a latent
//! and its rotated key. A state has one slot in each block, so a query reads its own position's alone; since a tag is
//! made of the one before, it stands for all of them. So outputs of a row are right for states only if it is the last
//! that the step writes in its block. A token is made of tags that are read back through the block
//! tables, so the text is right only if every block was the right one. Where the penalties need the history, it is
//! made of that, too.

use super::slots::{Slots, WORD};
use super::tags::{Vocabulary, adapted, heard, layer_read, mix, read_slot, tag};
use crate::device::PoolMemory;
use crate::layer_places::layer_places;
use crate::slots::DeviceSlots;
use domain::plan::{FailedSpan, HiddenSum, Input, Outputs, Sampled, Span, StepPlan, TokenLogprobs, TokenSet};
use domain::{BlockId, KvLayout, Token};
use std::sync::Arc;

/// The model and its pools. Takes checked plans only, and with each the [`DeviceSlots`] that took over its changes:
/// tables cover what spans read and write, and blocks are in the pools.
pub struct SimModel {
    layout: KvLayout,
    vocabulary: Vocabulary,
    /// Per layer its KV group and its place in the group's records.
    places: Vec<(usize, usize)>,
    /// Of each group.
    slots: Vec<Slots>,
    pools: Vec<Arc<dyn PoolMemory>>,
    /// What the step before sampled: nothing where a span failed, no entry where all of it did.
    previous: Vec<Option<Token>>,
    /// Spans of this step that fail alone.
    failing: Vec<FailedSpan>,
    torn: u64,
}

impl SimModel {
    /// Returns a model on these pools, one per KV group. `None` where there is not one pool per group, aligned to
    /// words, or where the layout has no layers, no room for [`Slots`], or is not of the whole model.
    pub fn new(layout: KvLayout, vocabulary: Vocabulary, pools: Vec<Arc<dyn PoolMemory>>) -> Option<Self> {
        let places = layer_places(&layout)?;
        let slots = (0..layout.groups.len()).map(|group| Slots::of(&layout, group)).collect::<Option<_>>()?;
        let aligned = pools.iter().all(|pool| pool.as_ptr().addr().is_multiple_of(WORD));
        let fits = pools.len() == layout.groups.len() && aligned && !places.is_empty() && layout.is_whole();
        let (previous, failing) = (Vec::new(), Vec::new());
        fits.then_some(Self { layout, vocabulary, places, slots, pools, previous, failing, torn: 0 })
    }

    /// Returns the layers that a step writes, one after the other.
    pub fn layers(&self) -> u16 {
        self.places.len() as u16
    }

    /// Slots that were read so far and whose words did not belong together: torn, foreign or never written.
    pub fn torn(&self) -> u64 {
        self.torn
    }

    /// A step ends without having sampled.
    pub fn fail(&mut self) {
        self.previous.clear();
    }

    /// Begins a step: copies the records that the plan wants copied. Spans fail alone whose inputs the step before
    /// should have sampled and did not, and `fails`: what they write is wrong, and nothing is sampled of them.
    /// Comes before the first layer.
    pub fn begin(&mut self, plan: &StepPlan, fails: Option<usize>) {
        self.failing.clear();
        for (number, span) in plan.spans.iter().enumerate() {
            let missing = |input: &Input| matches!(*input, Input::Sampled(n) if self.sampled(n).is_none());
            let reason = match span.inputs.iter().any(missing) {
                true => "the step before, which sampled an input, failed",
                false if fails == Some(number) => "the sequence was made to fail",
                false => continue,
            };
            self.failing.push(FailedSpan { span: number, reason: reason.to_owned() });
        }
        for copy in &plan.copies {
            let group = usize::from(copy.group.0);
            let record = self.layout.record_bytes(group);
            for at in (0..record).step_by(WORD) {
                self.write(
                    group,
                    copy.to.0 as usize * record + at,
                    self.read(group, copy.from.0 as usize * record + at),
                );
            }
        }
    }

    /// Writes the K and V of one layer for all spans, and zeros where the last block of a span has no tokens yet.
    pub fn write_layer(&mut self, plan: &StepPlan, slots: &DeviceSlots, layer: u16) {
        let size = self.layout.block_tokens;
        let (group, _) = self.places[usize::from(layer)];
        // With a window of one token, no position sees the one before.
        let chained = self.layout.groups[group].reach() != Some(1);
        let is_state = self.slots[group].is_state();
        for (number, span) in plan.spans.iter().enumerate() {
            let fails = self.fails(number);
            let mut before = 0;
            if chained && span.start > 0 {
                before = self.tag_at(span, slots, layer, span.start - 1);
            }
            for (position, input) in (span.start..).zip(&span.inputs) {
                let token = self.token(*input);
                before = tag(layer, position, token, if chained { before } else { 0 });
                before = adapted(before, span.adapter.as_ref());
                // Another one than is right, and a whole one: whoever takes it says another text.
                before = if fails { mix(before, 1) } else { before };
                self.write_slot(span, slots, layer, position, before, !before);
            }
            let end = span.start + span.inputs.len() as u32;
            // What a state's slot holds is of a token that there is.
            for position in (end..end.next_multiple_of(size)).filter(|_| !is_state) {
                self.write_slot(span, slots, layer, position, 0, 0);
            }
        }
    }

    /// What the plan wants of its rows, and the spans that failed alone. Comes after its last layer. `masks`: by the
    /// numbers of samples; a span fails that lacks one.
    ///
    /// The model is certain of what it says: the log probability of a sampled token is 0, and there are no
    /// alternatives. That of a known token is a number that is made of the tags that the row reads, and so are hidden
    /// states, one number wide.
    pub fn outputs(&mut self, plan: &StepPlan, slots: &DeviceSlots, masks: &[Option<Arc<TokenSet>>]) -> Outputs {
        let mut outputs = Outputs { sampled: Vec::with_capacity(plan.samples()), ..Outputs::default() };
        let (mut first_sample, mut sampled) = (0, Vec::with_capacity(plan.samples()));
        for (number, span) in plan.spans.iter().enumerate() {
            let masks = masks.get(first_sample..).unwrap_or(&[]);
            first_sample += span.samples.len();
            let mask = |sample: usize| masks.get(sample).and_then(Option::as_deref);
            let lacks_mask = (0..).zip(&span.samples).any(|(at, sample)| sample.masked && mask(at).is_none());
            if lacks_mask && !self.fails(number) {
                self.failing.push(FailedSpan { span: number, reason: "a mask of its samples did not come".to_owned() });
            }
            if self.fails(number) {
                sampled.extend(span.samples.iter().map(|_| None));
                continue;
            }
            for (at, sample) in span.samples.iter().enumerate() {
                let mut state = self.state_at(span, slots, sample.row);
                if sample.params.needs_history() {
                    let history = slots.history(span.slot);
                    let known = history.len().saturating_sub(span.start as usize);
                    let pending = span.inputs[..=sample.row as usize].iter().skip(known);
                    let pending = pending.map(|&input| self.token(input));
                    state = heard(state, history.prompt(), history.output().iter().copied().chain(pending));
                }
                let token = self.vocabulary.draw(state, sample, mask(at));
                let logprobs = sample.params.logprobs.map(|top| TokenLogprobs {
                    logprob: 0.0,
                    top: std::iter::once((token, 0.0)).take(top as usize).collect(),
                });
                outputs.sampled.push(Sampled { key: sample.key, token, logprobs });
                sampled.push(Some(token));
            }
            for score in &span.scores {
                let logprob = logprob(mix(self.state_at(span, slots, score.row), u64::from(score.token)));
                outputs.scored.push(TokenLogprobs { logprob, top: Vec::new() });
            }
            if let Some(wanted) = span.hidden {
                let rows = wanted.of(span.inputs.len());
                let count = rows.len() as u32;
                let sum = rows.map(|row| i64::from(self.state_at(span, slots, row as u32) as u32)).sum();
                outputs.hidden.push(HiddenSum { rows: count, sums: vec![sum] });
            }
        }
        self.previous = sampled;
        outputs.failed = std::mem::take(&mut self.failing);
        outputs.failed.sort_by_key(|failed| failed.span);
        outputs
    }

    /// Returns what a row reads of all positions that it attends to, folded.
    fn state_at(&mut self, span: &Span, slots: &DeviceSlots, row: u32) -> u64 {
        let query = span.start + row;
        let first = (0..self.layout.groups.len()).map(|group| self.layout.window_start(group, query)).min();
        let mut state = 0;
        for position in first.unwrap_or(0)..=query {
            let layer = layer_read(position, query, self.places.len());
            let (group, _) = self.places[usize::from(layer)];
            let is_seen = match self.slots[group].is_state() {
                true => position == query,
                false => position >= self.layout.window_start(group, query),
            };
            if is_seen {
                state = mix(state, self.tag_at(span, slots, layer, position));
            }
        }
        state
    }

    /// Returns the token of an input; any where it is missing.
    fn token(&self, input: Input) -> Token {
        match input {
            Input::Token(token) => token,
            Input::Sampled(sample) => self.sampled(sample).unwrap_or_default(),
        }
    }

    /// The token that the step before sampled as its `n`-th, if its span did not fail.
    fn sampled(&self, n: u32) -> Option<Token> {
        self.previous.get(n as usize).copied().flatten()
    }

    /// Returns whether span `number` of this step fails alone.
    pub(super) fn fails(&self, number: usize) -> bool {
        self.failing.iter().any(|failed| failed.span == number)
    }

    /// The tag of a slot, counted where it is none.
    fn tag_at(&mut self, span: &Span, slots: &DeviceSlots, layer: u16, position: u32) -> u64 {
        let (group, key, value) = self.words_at(span, slots, layer, position);
        read_slot(self.read(group, key), self.read(group, value)).unwrap_or_else(|torn| {
            self.torn += 1;
            torn
        })
    }

    fn write_slot(&self, span: &Span, slots: &DeviceSlots, layer: u16, position: u32, key_word: u64, value_word: u64) {
        let (group, key, value) = self.words_at(span, slots, layer, position);
        self.write(group, key, key_word);
        self.write(group, value, value_word);
    }

    /// The pool of a slot, and where in it K and V begin.
    fn words_at(&self, span: &Span, slots: &DeviceSlots, layer: u16, position: u32) -> (usize, usize, usize) {
        let (group, index) = self.places[usize::from(layer)];
        let size = self.layout.block_tokens;
        let table = slots.table(span.slot, group);
        let BlockId(block) = table.blocks[(position / size - table.first) as usize];
        let slice = block as usize * self.layout.record_bytes(group) + self.layout.slice_range(group, index).start;
        let [key, value] = self.slots[group].words((position % size) as usize);
        (group, slice + key, slice + value)
    }

    fn read(&self, group: usize, at: usize) -> u64 {
        // SAFETY: `word` is a valid word of the pool. What others write meanwhile, who read or copy it wrongly,
        // shows in the text; volatile keeps the compiler from assuming that nobody does.
        unsafe { self.word(group, at).read_volatile() }
    }

    fn write(&self, group: usize, at: usize, word: u64) {
        // SAFETY: as for reading; the pool's memory may be written.
        unsafe { self.word(group, at).write_volatile(word) }
    }

    fn word(&self, group: usize, at: usize) -> *mut u64 {
        let pool = &self.pools[group];
        assert!(at.is_multiple_of(WORD) && at + WORD <= pool.len(), "byte {at} of a pool of {}", pool.len());
        // SAFETY: just checked to be inside the pool.
        unsafe { pool.as_ptr().add(at).cast() }
    }
}

/// Returns a log probability that is made of a hash: between -16 and 0.
fn logprob(hash: u64) -> f32 {
    -((hash >> 40) as f32) / (1 << 20) as f32
}

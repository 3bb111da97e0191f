//! A plan as the kernels read it: lists in one slab, which goes to the card as one copy.
//!
//! Where a list lies follows from [`Sizes`] alone, so a graph that was recorded for some sizes serves every step that
//! has them. Lists whose length has no bound that follows from limits (changes of tables, histories, copies) lie behind
//! the others, and no graph reads them.

use super::slab::{Places, Section, Writer};
use crate::sampling::DrawNumbers;
use crate::slots::DeviceSlots;
use cuda::kernels::{
    AttentionLists, AttentionShape, AttentionSpan, EVERY_SHARE, HistoryRun, NO_REPORT, SampleKind, SampleRequest,
    SummedRows, TOP_MAX, TableUpdate,
};
use domain::ProgressWord;
use domain::plan::{Input, Sample, Score, SlotChange, Span, StepPlan};
use domain::planted_bugs::{self, Bug};
use std::ops::Range;

/// The slot of a row that fills a graph's rows up.
const NO_SLOT: u32 = u32::MAX;

/// Rows of a micro-batch, at most: activations that are as wide as the feed-forward have room for so many.
pub(super) const MICRO_BATCH_ROWS_MAX: usize = 2048;

/// Pieces of contexts that single rows are split into, at most, over all of a step. Where there are more, these rows go
/// the way of prompts, which has the same bits and needs no room for pieces.
pub(super) const PIECES_MAX: u32 = 4096;

/// What never changes.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    /// Heads of a layer.
    pub(super) attention: AttentionShape,
    /// Window of each KV group; 0: none.
    pub(super) windows: Vec<u32>,
    /// Tokens of the vocabulary.
    pub(super) vocab: usize,
}

/// What the places of lists follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    /// Rows.
    pub(super) rows: usize,
    /// Rows whose logits are wanted.
    pub(super) logits: usize,
    /// Samples and scores.
    pub(super) requests: usize,
    /// Spans whose hidden states are wanted.
    pub(super) hidden: usize,
    /// Whether every span has one row, and no row goes the way of prompts.
    pub(super) is_all_decoding: bool,
}

/// Where the lists of a micro-batch lie.
#[derive(Clone, Debug, Default)]
pub(super) struct MicroSections {
    /// For each KV group.
    pub(super) attention: Vec<AttentionSections>,
    /// Entries of 3 words: rows that are added up.
    pub(super) hidden: Section,
}

/// Where the lists of a micro-batch for layers of a KV group lie.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AttentionSections {
    pub(super) rows: Section,
    pub(super) slots: Section,
    pub(super) lengths: Section,
    pub(super) pieces: Section,
    pub(super) tiles: Section,
    /// Two words: entries of decode, and tiles.
    pub(super) counts: Section,
}

/// Where the lists of a step lie.
#[derive(Clone, Debug, Default)]
pub(super) struct Sections {
    /// Two words of 64 bits: the step's mark, and whether anybody listens.
    pub(super) step: Section,
    /// The same for the last layer, of which readers are told in any case.
    pub(super) last_step: Section,
    /// One word: samples and scores.
    pub(super) request_count: Section,
    /// For each micro-batch one word: entries of its list of hidden states.
    pub(super) hidden_counts: Section,
    pub(super) tokens: Section,
    pub(super) positions: Section,
    pub(super) slots: Section,
    pub(super) ends: Section,
    /// For each row of logits the row of its micro-batch.
    pub(super) logits: Section,
    pub(super) requests: Section,
    pub(super) micro: Vec<MicroSections>,
    /// Bytes of all of them.
    pub(super) bytes: usize,
}

impl Sizes {
    /// Returns the sizes of a plan.
    pub(super) fn of(plan: &StepPlan) -> Self {
        let logits = plan.spans.iter().map(logits_rows).sum();
        Self {
            rows: plan.rows(),
            logits,
            requests: plan.samples() + plan.scores(),
            hidden: plan.hidden(),
            is_all_decoding: false,
        }
    }

    /// Returns how many rows each micro-batch has, but for the last one.
    pub(super) fn micro_batch_rows(&self) -> usize {
        self.rows.div_ceil(self.micro_batches()).max(1)
    }

    /// Returns the number of micro-batches.
    pub(super) fn micro_batches(&self) -> usize {
        self.rows.div_ceil(MICRO_BATCH_ROWS_MAX).max(1)
    }

    /// Returns the rows of a micro-batch.
    pub(super) fn micro_batch(&self, index: usize) -> Range<usize> {
        let step = self.micro_batch_rows();
        (index * step).min(self.rows)..((index + 1) * step).min(self.rows)
    }
}

impl Sections {
    /// Gives the lists of a step of these sizes their places.
    pub(super) fn of(fixed: &Fixed, sizes: Sizes) -> Self {
        let word = size_of::<u32>();
        let mut places = Places::default();
        let micro_batches = sizes.micro_batches();
        let mut sections = Self {
            step: places.add(2 * size_of::<u64>()),
            last_step: places.add(2 * size_of::<u64>()),
            request_count: places.add(word),
            hidden_counts: places.add(micro_batches * word),
            tokens: places.add(sizes.rows * word),
            positions: places.add(sizes.rows * word),
            slots: places.add(sizes.rows * word),
            ends: places.add(sizes.rows * word),
            logits: places.add(sizes.logits * word),
            requests: places.add(sizes.requests * size_of::<SampleRequest>()),
            micro: Vec::with_capacity(micro_batches),
            bytes: 0,
        };
        for index in 0..micro_batches {
            let rows = sizes.micro_batch(index).len();
            let attention = |places: &mut Places| AttentionSections {
                rows: places.add(rows * word),
                slots: places.add(rows * word),
                lengths: places.add(rows * word),
                pieces: places.add((rows + 1) * word),
                // A span has a tile for each of its rows at most.
                tiles: places.add(rows * 4 * word),
                counts: places.add(2 * word),
            };
            let attention = fixed.windows.iter().map(|_| attention(&mut places)).collect();
            let hidden = places.add(sizes.hidden * 3 * word);
            sections.micro.push(MicroSections { attention, hidden });
        }
        sections.bytes = places.end();
        sections
    }
}

/// Returns the rows of a span whose logits are wanted.
fn logits_rows(span: &Span) -> usize {
    let mut rows = 0;
    each_logits_row(span, |_, _, _| rows += 1);
    rows
}

/// Calls `each` for every row of a span whose logits are wanted, by rising rows: with the row, and with its samples and
/// its scores among those of the span.
fn each_logits_row(span: &Span, mut each: impl FnMut(u32, Range<usize>, Range<usize>)) {
    let (mut sample, mut score) = (0, 0);
    loop {
        let next = [span.samples.get(sample).map(|it| it.row), span.scores.get(score).map(|it| it.row)];
        let Some(row) = next.into_iter().flatten().min() else { return };
        let samples = sample..sample + span.samples[sample..].iter().take_while(|it| it.row == row).count();
        let scores = score..score + span.scores[score..].iter().take_while(|it| it.row == row).count();
        (sample, score) = (samples.end, scores.end);
        each(row, samples, scores);
    }
}

/// Device memory that requests refer to, by its addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memories {
    /// Rows of logits.
    pub(super) logits: u64,
    /// Rows of adjusted logits, one for each request.
    pub(super) adjusted: u64,
    /// Marks of histories, one row for each slot.
    pub(super) marks: u64,
    /// Masks, one for each sample.
    pub(super) masks: u64,
    /// The lists behind the others.
    pub(super) tail: u64,
}

/// Lists whose length has no bound, as bytes, and where each begins.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// All of them.
    pub(super) bytes: Vec<u8>,
    /// Changes of tables, and how many there are.
    pub(super) updates: (usize, usize),
    /// The entries of these changes.
    pub(super) entries: usize,
    /// For each KV group: pairs of blocks, and how many there are.
    pub(super) copies: Vec<(usize, usize)>,
    /// Runs of histories, how many there are, and whether one forgets what was before.
    pub(super) runs: (usize, usize, bool),
    /// One word each: the counts of changes, of copies for each KV group, and of runs.
    pub(super) counts: usize,
}

/// Packs plans. Keeps its lists, so that a step allocates nothing once they have grown.
#[derive(Debug)]
pub(super) struct Packer {
    fixed: Fixed,
    lists: AttentionLists,
    spans: Vec<AttentionSpan>,
    pub(super) tail: Tail,
    /// The rows of logits that each micro-batch begins with, and behind the last one how many there are.
    pub(super) logits: Vec<usize>,
    /// Slots whose row of marks is not all zeros.
    marked: Vec<bool>,
    updates: Vec<TableUpdate>,
    entries: Vec<u32>,
    runs: Vec<(HistoryRun, Range<usize>)>,
    tokens: Vec<u32>,
}

/// What a step has that launches depend on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Packed {
    /// Whether a request needs to be weighed.
    pub(super) weighs: bool,
    /// Samples and scores.
    pub(super) requests: usize,
}

impl Packer {
    /// Makes a packer.
    pub(super) fn new(fixed: Fixed, slots_max: usize) -> Self {
        Self {
            fixed,
            logits: Vec::new(),
            marked: vec![false; slots_max],
            lists: AttentionLists::default(),
            spans: Vec::new(),
            tail: Tail::default(),
            updates: Vec::new(),
            entries: Vec::new(),
            runs: Vec::new(),
            tokens: Vec::new(),
        }
    }

    /// Returns how many bytes the tail of a plan has at most.
    pub(super) fn tail_bytes_max(&self, plan: &StepPlan) -> usize {
        const LIST_BYTES: usize = 64;
        let word = size_of::<u32>();
        let change = |change: &SlotChange| match change {
            SlotChange::Open { .. } | SlotChange::Close { .. } => 0,
            SlotChange::Table { change, .. } => change.blocks.len() * word,
            SlotChange::History { tokens, .. } => tokens.len() * word,
            SlotChange::Tokens { tokens, .. } => tokens.len() * word,
        };
        let sample = |sample: &Sample| {
            let params = &*sample.params;
            LIST_BYTES + (2 * params.logit_bias.len() + params.stop_tokens.len()) * word
        };
        let changes: usize = plan.changes.iter().map(|it| LIST_BYTES + change(it)).sum();
        let samples: usize = plan.spans.iter().flat_map(|span| &span.samples).map(sample).sum();
        let fixed = LIST_BYTES * (8 + 2 * self.fixed.windows.len());
        fixed + changes + plan.copies.len() * 2 * word + samples
    }

    /// Packs the lists that have no bound, for a tail at this address.
    pub(super) fn pack_tail(&mut self, plan: &StepPlan, memories: &Memories) {
        self.take_changes(plan, memories);
        let Self { tail, updates, entries, runs, tokens, fixed, .. } = self;
        tail.bytes.clear();
        let begin = |bytes: &mut Vec<u8>| {
            bytes.resize(bytes.len().next_multiple_of(16), 0);
            bytes.len()
        };
        let push = |bytes: &mut Vec<u8>, words: &[u32]| bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        tail.counts = begin(&mut tail.bytes);
        push(&mut tail.bytes, &[updates.len() as u32]);
        for group in 0..fixed.windows.len() {
            push(&mut tail.bytes, &[copies_of(plan, group).count() as u32]);
        }
        push(&mut tail.bytes, &[runs.len() as u32]);
        tail.updates = (begin(&mut tail.bytes), updates.len());
        updates.iter().for_each(|update| push(&mut tail.bytes, &update.words()));
        tail.entries = begin(&mut tail.bytes);
        push(&mut tail.bytes, entries);
        tail.copies.clear();
        for group in 0..fixed.windows.len() {
            let at = begin(&mut tail.bytes);
            copies_of(plan, group).for_each(|(from, to)| push(&mut tail.bytes, &[from, to]));
            tail.copies.push((at, copies_of(plan, group).count()));
        }
        let at = begin(&mut tail.bytes);
        push(&mut tail.bytes, tokens);
        let clears = runs.iter().any(|(run, _)| run.clears != 0);
        for (run, own) in runs.iter_mut() {
            run.tokens = memories.tail + (at + own.start * size_of::<u32>()) as u64;
        }
        tail.runs = (begin(&mut tail.bytes), runs.len(), clears);
        runs.iter().for_each(|(run, _)| tail.bytes.extend(HistoryRun::bytes(std::slice::from_ref(run))));
    }

    /// Takes what a plan changes of slots.
    fn take_changes(&mut self, plan: &StepPlan, memories: &Memories) {
        let Self { updates, entries, runs, tokens, fixed, marked, .. } = self;
        updates.clear();
        entries.clear();
        runs.clear();
        tokens.clear();
        let marks = |slot: u32| memories.marks + slot as u64 * (fixed.vocab * size_of::<u32>()) as u64;
        for change in &plan.changes {
            let slot = change.slot().0;
            match change {
                // What a table had before is not read: no position of the sequence is in it.
                SlotChange::Open { .. } if std::mem::take(&mut marked[slot as usize]) => {
                    let counts = marks(slot);
                    runs.retain(|(run, _)| run.counts != counts);
                    let from = tokens.len();
                    runs.push((HistoryRun { counts, clears: 1, ..HistoryRun::default() }, from..from));
                }
                SlotChange::Open { .. } | SlotChange::Close { .. } => {}
                SlotChange::Table { group, change, .. } => {
                    if !change.blocks.is_empty() {
                        let (first, count, from) = (change.from, change.blocks.len() as u32, entries.len() as u32);
                        updates.push(TableUpdate { group: u32::from(group.0), slot, first, count, from });
                        entries.extend(change.blocks.iter().map(|block| block.0));
                    }
                }
                SlotChange::History { tokens: all, .. } => {
                    let from = tokens.len();
                    tokens.extend(all.prompt().iter().chain(all.output()));
                    // What came before in this plan is forgotten with the rest.
                    let counts = marks(slot);
                    runs.retain(|(run, _)| run.counts != counts);
                    marked[slot as usize] = true;
                    let (len, prompt) = ((tokens.len() - from) as u32, all.prompt().len() as u32);
                    let run = HistoryRun { counts, tokens: 0, len, prompt, clears: 1, unused: 0 };
                    runs.push((run, from..tokens.len()));
                }
                SlotChange::Tokens { tokens: more, .. } => {
                    let from = tokens.len();
                    tokens.extend(more);
                    marked[slot as usize] = true;
                    let (counts, len) = (marks(slot), more.len() as u32);
                    let run = HistoryRun { counts, tokens: 0, len, prompt: 0, clears: 0, unused: 0 };
                    runs.push((run, from..tokens.len()));
                }
            }
        }
    }

    /// Packs the lists of a step into a slab of [`Sections::bytes`]. Rows beyond those of the plan fill a graph's up.
    pub(super) fn pack(
        &mut self,
        plan: &StepPlan,
        slots: &DeviceSlots,
        is_awaited: bool,
        (sizes, sections): (Sizes, &Sections),
        memories: &Memories,
        slab: &mut [u8],
    ) -> Packed {
        let mut writer = Writer::new(slab);
        let mark = ProgressWord::mark(plan.step, 0) - u64::from(!planted_bugs::is(Bug::ProgressAhead));
        let words = |number: u64| [number as u32, (number >> 32) as u32];
        writer.words(sections.step, 0, [words(mark), words(is_awaited.into())].concat());
        writer.words(sections.last_step, 0, [words(mark), words(1)].concat());
        self.pack_rows(plan, sizes, sections, &mut writer);
        for index in 0..sizes.micro_batches() {
            self.pack_micro_batch(plan, index, sizes, sections, &mut writer);
        }
        self.pack_requests(plan, slots, sections, memories, &mut writer)
    }

    fn pack_rows(&mut self, plan: &StepPlan, sizes: Sizes, sections: &Sections, writer: &mut Writer<'_>) {
        let (mut row, mut wanted, step) = (0, 0, sizes.micro_batch_rows());
        self.logits.clear();
        self.logits.resize(sizes.micro_batches() + 1, 0);
        for span in &plan.spans {
            let count = span.inputs.len();
            let token = |input: &Input| match *input {
                Input::Token(token) => token,
                // Below zero, as the kernels know it.
                Input::Sampled(sample) => !sample,
            };
            writer.words(sections.tokens, row, span.inputs.iter().map(token));
            writer.words(sections.positions, row, span.start..span.start + count as u32);
            writer.words(sections.slots, row, std::iter::repeat_n(span.slot.0, count));
            writer.words(sections.ends, row, std::iter::repeat_n(span.start + count as u32, count));
            each_logits_row(span, |own, _, _| {
                writer.words(sections.logits, wanted, [((row + own as usize) % step) as u32]);
                wanted += 1;
                self.logits[(row + own as usize) / step + 1] = wanted;
            });
            row += count;
        }
        // A micro-batch without any begins where it ends.
        for index in 1..self.logits.len() {
            self.logits[index] = self.logits[index].max(self.logits[index - 1]);
        }
        let missing = sizes.rows - row;
        for section in [sections.tokens, sections.positions, sections.ends] {
            writer.words(section, row, std::iter::repeat_n(0, missing));
        }
        writer.words(sections.slots, row, std::iter::repeat_n(NO_SLOT, missing));
        writer.words(sections.logits, wanted, std::iter::repeat_n(0, sizes.logits - wanted));
    }

    fn pack_micro_batch(
        &mut self,
        plan: &StepPlan,
        index: usize,
        sizes: Sizes,
        sections: &Sections,
        writer: &mut Writer<'_>,
    ) {
        let rows = sizes.micro_batch(index);
        self.spans.clear();
        let (mut row, mut hidden, mut sum) = (0, 0, 0);
        for span in &plan.spans {
            let own = row..row + span.inputs.len();
            let inside = own.start.max(rows.start)..own.end.min(rows.end);
            if !inside.is_empty() {
                let start = span.start + (inside.start - own.start) as u32;
                self.spans.push(AttentionSpan { slot: span.slot.0, start, count: inside.len() as u32 });
            }
            if let Some(wanted) = span.hidden {
                let wanted = wanted.of(span.inputs.len());
                let wanted = (row + wanted.start).max(rows.start)..(row + wanted.end).min(rows.end);
                if !wanted.is_empty() {
                    let first = (wanted.start - rows.start) as u32;
                    let entry = SummedRows { first, count: wanted.len() as u32, sum };
                    writer.words(sections.micro[index].hidden, hidden * 3, entry.words());
                    hidden += 1;
                }
                sum += 1;
            }
            row = own.end;
        }
        writer.words(sections.hidden_counts, index, [hidden as u32]);
        for (group, &window) in self.fixed.windows.iter().enumerate() {
            let shape = &self.fixed.attention;
            self.lists.fill(shape, window, 1, self.spans.iter().copied());
            if self.lists.pieces.last().is_some_and(|&pieces| pieces > PIECES_MAX) {
                self.lists.fill(shape, window, 0, self.spans.iter().copied());
            }
            let AttentionLists { rows, slots, lengths, pieces, tiles } = &self.lists;
            let own = sections.micro[index].attention[group];
            for (section, list) in [(own.rows, rows), (own.slots, slots), (own.lengths, lengths), (own.pieces, pieces)]
            {
                writer.words(section, 0, list.iter().copied());
            }
            writer.words(own.tiles, 0, tiles.iter().flat_map(|tile| tile.words()));
            writer.words(own.counts, 0, [rows.len() as u32, tiles.len() as u32]);
        }
    }

    /// Packs samples and scores: first all samples, in the order of the plan.
    fn pack_requests(
        &mut self,
        plan: &StepPlan,
        slots: &DeviceSlots,
        sections: &Sections,
        memories: &Memories,
        writer: &mut Writer<'_>,
    ) -> Packed {
        let (mut sample, mut score) = (0, plan.samples());
        let (mut row, mut wanted, mut weighs) = (0, 0, false);
        let row_bytes = (self.fixed.vocab * size_of::<f32>()) as u64;
        for span in &plan.spans {
            let known = slots.history(span.slot).len().saturating_sub(span.start as usize);
            each_logits_row(span, |own, samples, scores| {
                let logits = memories.logits + wanted * row_bytes;
                for it in &span.samples[samples] {
                    let mut request = self.sample(it, sample, logits, row_bytes, memories);
                    if it.params.needs_history() {
                        let marks = (self.fixed.vocab * size_of::<u32>()) as u64;
                        request.counts = memories.marks + u64::from(span.slot.0) * marks;
                        let end = row + own as usize + 1;
                        request.pending_first = (row + known).min(end) as u32;
                        request.pending_end = end as u32;
                    }
                    weighs |= request.is_weighed(self.fixed.vocab as u32);
                    let bytes = SampleRequest::bytes(std::slice::from_ref(&request));
                    writer.bytes(sections.requests, sample * size_of::<SampleRequest>(), bytes);
                    sample += 1;
                }
                for it in &span.scores[scores] {
                    let request = scored(it, logits);
                    weighs = true;
                    let bytes = SampleRequest::bytes(std::slice::from_ref(&request));
                    writer.bytes(sections.requests, score * size_of::<SampleRequest>(), bytes);
                    score += 1;
                }
                wanted += 1;
            });
            row += span.inputs.len();
        }
        writer.words(sections.request_count, 0, [score as u32]);
        Packed { weighs, requests: score }
    }

    /// Makes the request for a sample, of number `number`. Biases and stop tokens go behind the lists of the tail.
    fn sample(
        &mut self,
        sample: &Sample,
        number: usize,
        logits: u64,
        row_bytes: u64,
        memories: &Memories,
    ) -> SampleRequest {
        let params = &*sample.params;
        let DrawNumbers { scale, nucleus, least, uniform } = DrawNumbers::of(sample);
        let stops: &[u32] = if sample.index < params.min_tokens { &params.stop_tokens } else { &[] };
        let mask_bytes = (self.fixed.vocab.div_ceil(32) * size_of::<u32>()) as u64;
        let is_adjusted = sample.masked || !stops.is_empty() || !params.logit_bias.is_empty() || params.needs_history();
        let mut biases = params.logit_bias.clone();
        biases.sort_by_key(|&(token, _)| token);
        SampleRequest {
            logits,
            adjusted: if is_adjusted { memories.adjusted + number as u64 * row_bytes } else { 0 },
            mask: if sample.masked { memories.masks + number as u64 * mask_bytes } else { 0 },
            counts: 0,
            biases: self.append(memories, biases.iter().flat_map(|&(token, bias)| [token, bias.to_bits()])),
            stops: self.append(memories, stops.iter().copied()),
            uniform,
            nucleus: if nucleus == DrawNumbers::EVERY_SHARE { EVERY_SHARE } else { nucleus },
            least,
            bias_count: biases.len() as u32,
            stop_count: stops.len() as u32,
            kind: if scale.is_some() { SampleKind::Draw } else { SampleKind::Greedy },
            scale: scale.unwrap_or(0.0),
            top_k: params.top_k,
            report: params.logprobs.map_or(NO_REPORT, |top| top.min(TOP_MAX as u32)),
            token: 0,
            repetition: params.repetition_penalty,
            frequency: params.frequency_penalty,
            presence: params.presence_penalty,
            pending_first: 0,
            pending_end: 0,
            unused: 0,
        }
    }

    /// Puts words behind the lists of the tail. Returns their address; 0: there are none.
    fn append(&mut self, memories: &Memories, words: impl Iterator<Item = u32>) -> u64 {
        let bytes = &mut self.tail.bytes;
        bytes.resize(bytes.len().next_multiple_of(16), 0);
        let at = bytes.len();
        bytes.extend(words.flat_map(u32::to_le_bytes));
        if bytes.len() == at { 0 } else { memories.tail + at as u64 }
    }
}

/// Returns the copies of a plan in a KV group.
fn copies_of(plan: &StepPlan, group: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
    let own = plan.copies.iter().filter(move |copy| usize::from(copy.group.0) == group);
    own.map(|copy| (copy.from.0, copy.to.0))
}

/// Makes the request for a score.
fn scored(score: &Score, logits: u64) -> SampleRequest {
    let report = u32::from(score.top).min(TOP_MAX as u32);
    SampleRequest { logits, kind: SampleKind::Score, token: score.token, report, nucleus: EVERY_SHARE, ..neutral() }
}

/// Returns a request that changes nothing.
fn neutral() -> SampleRequest {
    SampleRequest { repetition: 1.0, ..SampleRequest::default() }
}

//! The text is the oracle's if every block is the right one, and another if any is not.

use super::rig::{BLOCKS, SEED, block, known, layout, layout_of_all_kinds, plan, prompt, span, vocabulary};
use crate::device::PoolMemory;
use crate::pool::Pool;
use crate::sim::{Oracle, SimModel, Vocabulary};
use crate::slots::DeviceSlots;
use domain::plan::{BlockCopy, StepPlan};
use domain::{GroupId, KvKind, KvLayout, SamplingParams, Token};
use proptest::prelude::*;
use std::sync::Arc;

/// Output tokens of a run.
const OUTPUT: u32 = 12;

struct Run {
    layout: KvLayout,
    model: SimModel,
    slots: DeviceSlots,
    pools: Vec<Arc<Pool>>,
    tokens: Vec<Token>,
    written: u32,
    prompt: u32,
}

impl Run {
    fn new(layout: KvLayout, prompt: Vec<Token>) -> Self {
        let bytes = |group| layout.record_bytes(group) * BLOCKS as usize;
        let pool = |group| Arc::new(Pool::new(bytes(group), layout.part(group), false).expect("memory"));
        let pools: Vec<_> = (0..layout.groups.len()).map(pool).collect();
        let shared = pools.iter().map(|pool| pool.clone() as Arc<dyn PoolMemory>).collect();
        let model = SimModel::new(layout.clone(), vocabulary(), shared).expect("a layout for tags");
        let slots = DeviceSlots::new(1, layout.groups.len());
        Self { layout, model, slots, pools, prompt: prompt.len() as u32, tokens: prompt, written: 0 }
    }

    fn execute(&mut self, plan: &StepPlan) {
        self.slots.take_over(plan);
        self.model.begin(plan, None);
        (0..self.model.layers()).for_each(|layer| self.model.write_layer(plan, &self.slots, layer));
        let outputs = self.model.outputs(plan, &self.slots, &[]);
        self.tokens.extend(outputs.sampled.iter().map(|sampled| sampled.token));
    }

    /// Computes so many of the tokens that are not computed yet; the last of them samples.
    fn advance(&mut self, rows: u32) {
        let to = (self.written + rows).min(self.tokens.len() as u32);
        let ends = (to == self.tokens.len() as u32).then(|| to - self.prompt);
        let inputs = known(&self.tokens[self.written as usize..to as usize]);
        let span = span(self.written, inputs, ends);
        self.written = to;
        self.execute(&plan(&self.layout, 1, vec![span]));
    }

    /// Returns the prompt in chunks, then tokens one by one.
    fn finish(&mut self, chunk: u32, output: u32) -> &[Token] {
        while self.tokens.len() < (self.prompt + output) as usize {
            self.advance(if self.written < self.prompt { chunk } else { 1 });
        }
        &self.tokens[self.prompt as usize..]
    }

    /// Changes the words of a byte range of a pool.
    fn damage(&self, group: usize, at: usize) {
        // SAFETY: inside the pool; nothing else runs.
        unsafe { *self.pools[group].as_ptr().add(at) ^= 1 };
    }
}

fn expected(layout: &KvLayout, prompt: &[Token]) -> Vec<Token> {
    let params = Arc::new(SamplingParams { max_tokens: OUTPUT, ..SamplingParams::default() });
    Oracle::new(layout, vocabulary()).text(prompt, &params, SEED)
}

proptest! {
    #[test]
    fn the_text_is_the_oracles(len in 1..120u32, chunk in 1..9u32, window in prop::option::of(1..20u32)) {
        let (layout, prompt) = (layout(window), prompt(len, len));
        let mut run = Run::new(layout.clone(), prompt.clone());
        prop_assert_eq!(run.finish(4 * chunk, OUTPUT), &expected(&layout, &prompt)[..]);
        prop_assert_eq!(run.model.torn(), 0);
    }

    #[test]
    fn the_text_is_the_oracles_whatever_layers_keep(len in 1..120u32, chunk in 1..40u32) {
        let (layout, prompt) = (layout_of_all_kinds(), prompt(len, len));
        let mut run = Run::new(layout.clone(), prompt.clone());
        prop_assert_eq!(run.finish(chunk, OUTPUT), &expected(&layout, &prompt)[..]);
        prop_assert_eq!(run.model.torn(), 0);
    }

    #[test]
    fn any_damaged_byte_of_the_context_changes_the_text(
        len in 1..60u32, window in prop::option::of(4..9u32), at in any::<prop::sample::Index>(), value: bool,
    ) {
        let (layout, prompt) = (layout(window), prompt(len, 5));
        let layers = layout.layers() as u16;
        let mut run = Run::new(layout.clone(), prompt.clone());
        run.finish(8, 1);
        let layer = at.index(usize::from(layers));
        let group = layout.groups.iter().position(|group| group.layers.contains(&(layer as u16))).expect("a group");
        let index = layout.groups[group].layers.iter().position(|&l| usize::from(l) == layer).expect("a layer");
        // A position that the next `layers` queries see, so that one of them reads it in this layer.
        let first = layout.window_start(group, len - 1 + u32::from(layers));
        prop_assume!(first < len);
        let position = first + at.index((len - first) as usize) as u32;
        let slot = block(position / 4).0 as usize * layout.record_bytes(group)
            + layout.slice_range(group, index).start
            + (position % 4) as usize * 8
            + if value { 4 * 8 } else { 0 };
        run.damage(group, slot + at.index(8));
        run.finish(8, 1 + u32::from(layers));
        prop_assert_ne!(&run.tokens[len as usize..], &expected(&layout, &prompt)[..1 + usize::from(layers)]);
        prop_assert!(run.model.torn() > 0);
    }
}

/// The one before the next position is all that a recurrent layer has.
#[test]
fn a_damaged_state_changes_the_text() {
    let (layout, prompt) = (layout_of_all_kinds(), prompt(21, 3));
    for index in 0..2 {
        let mut run = Run::new(layout.clone(), prompt.clone());
        run.finish(8, 1);
        run.damage(2, block(20 / 4).0 as usize * layout.record_bytes(2) + layout.slice_range(2, index).start);
        assert_ne!(run.finish(8, OUTPUT), &expected(&layout, &prompt)[..], "layer {index} of the states");
        assert!(run.model.torn() > 0);
    }
}

#[test]
fn blocks_of_another_prefix_are_foreign_though_their_tokens_are_the_same() {
    let layout = layout(None);
    let first = prompt(16, 1);
    let second = [prompt(8, 2), first[8..].to_vec()].concat();
    let mut run = Run::new(layout.clone(), first.clone());
    run.finish(16, 1);
    // The second prompt computes its first half, and takes the second half from the first as it is.
    run.tokens = second.clone();
    run.written = 0;
    run.advance(8);
    run.written = 15;
    assert_ne!(run.finish(1, OUTPUT), expected(&layout, &second));
    assert_eq!(run.model.torn(), 0, "every slot is whole, it is only another's");
}

#[test]
fn copied_records_say_the_same() {
    let layout = layout(Some(7));
    let prompt = prompt(22, 3);
    let mut run = Run::new(layout.clone(), prompt.clone());
    run.advance(21);
    // The tail goes to an unused block and comes back after its place was damaged.
    let (tail, aside) = (block(5), block(40));
    let copies = |from, to| (0..2).map(|group| BlockCopy { group: GroupId(group), from, to }).collect();
    run.execute(&StepPlan { copies: copies(tail, aside), ..plan(&layout, 1, vec![]) });
    for group in 0..2 {
        run.damage(group, tail.0 as usize * layout.record_bytes(group));
    }
    run.execute(&StepPlan { copies: copies(aside, tail), ..plan(&layout, 2, vec![]) });
    assert_eq!(run.finish(1, OUTPUT), expected(&layout, &prompt));
}

#[test]
fn a_layout_without_room_for_tags_is_refused() {
    let mut model = layout(None).model().clone();
    model.groups[0].kind = KvKind::of_heads(1, 1);
    let narrow = KvLayout::whole(model);
    let pool = || vec![Arc::new(Pool::new(4096, narrow.part(0), false).expect("memory")) as Arc<dyn PoolMemory>];
    assert!(SimModel::new(narrow.clone(), vocabulary(), pool()).is_none());
    assert!(SimModel::new(layout(Some(4)), vocabulary(), pool()).is_none(), "a pool is missing");
}

#[test]
fn silent_tokens_are_never_said_and_stop_tokens_not_too_early() {
    let vocabulary = Vocabulary::new(6, [0, 4, 99]).expect("tokens are left");
    let oracle = Oracle::new(&layout(None), vocabulary);
    let params = |min_tokens| {
        Arc::new(SamplingParams { stop_tokens: vec![2, 3], min_tokens, max_tokens: 50, ..SamplingParams::default() })
    };
    let mut said = [0; 6];
    for seed in 0..100 {
        let text = oracle.text(&[1, 2, 3], &params(20), seed);
        assert!(text.len() >= 20, "{text:?}");
        text.iter().for_each(|&token| said[token as usize] += 1);
    }
    assert!(said.iter().enumerate().all(|(token, &times)| (times > 0) == [1, 2, 3, 5].contains(&token)), "{said:?}");
    assert!(Vocabulary::new(2, [0, 1]).is_none());
}

#[test]
fn a_replay_finds_the_same_tokens() {
    let (layout, prompt) = (layout(Some(5)), prompt(10, 4));
    let text = expected(&layout, &prompt);
    let oracle = Oracle::new(&layout, vocabulary());
    let so_far = [&prompt[..], &text[..7]].concat();
    assert_eq!(oracle.token(&so_far, &Arc::default(), SEED, 7), text[7]);
}

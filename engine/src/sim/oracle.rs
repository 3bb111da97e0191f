//! What an undisturbed run of the fake model says, from tokens alone: no memory, no blocks, no plan.

use super::tags::{Vocabulary, adapted, heard, layer_read, mix, tag};
use domain::plan::Sample;
use domain::{Adapter, Choice, Epoch, KvKind, KvLayout, RequestId, SamplingParams, SeqKey, Token};
use std::sync::Arc;

/// Tells the text of a sequence.
#[derive(Clone, Debug)]
pub struct Oracle {
    layers: Vec<Layer>,
    vocabulary: Vocabulary,
    adapter: Option<Adapter>,
}

/// What a layer sees.
#[derive(Clone, Copy, Debug, Default)]
struct Layer {
    /// Tokens that a query reads, its own included; `None`: all.
    window: Option<u32>,
    /// Whether a tag is made of its own token alone.
    is_alone: bool,
}

/// The tags of a sequence so far: `[layer][position]`.
struct Tags(Vec<Vec<u64>>);

impl Oracle {
    /// For a model on pools of this layout that says these tokens.
    pub fn new(layout: &KvLayout, vocabulary: Vocabulary) -> Self {
        let mut layers = vec![Layer::default(); layout.layers()];
        for group in &layout.groups {
            let window = if let KvKind::State { .. } = group.kind { Some(1) } else { group.window };
            let layer = Layer { window, is_alone: group.reach() == Some(1) };
            group.layers.iter().for_each(|&at| layers[usize::from(at)] = layer);
        }
        Self { layers, vocabulary, adapter: None }
    }

    /// Returns the oracle of sequences that are computed with this adapter.
    pub fn with(&self, adapter: Option<&Adapter>) -> Self {
        Self { adapter: adapter.cloned(), ..self.clone() }
    }

    /// The tags that KV holds of `tokens`, as `[layer][position]`: K of the slot is the tag, V its complement.
    pub fn tags(&self, tokens: &[Token]) -> Vec<Vec<u64>> {
        let mut tags = Tags(vec![Vec::new(); self.layers.len()]);
        self.extend(&mut tags, tokens);
        tags.0
    }

    /// Returns the token that follows `tokens` (prompt and output so far, never empty): the `index`-th of the output of
    /// a sequence with this seed.
    pub fn token(&self, tokens: &[Token], params: &Arc<SamplingParams>, seed: u64, index: u32) -> Token {
        let mut tags = Tags(vec![Vec::new(); self.layers.len()]);
        self.extend(&mut tags, tokens);
        let (prompt, output) = tokens.split_at(tokens.len() - index as usize);
        self.draw(&tags, params, seed, index, [prompt, output])
    }

    /// The output of a sequence with this seed after `prompt`, from its first token to the one that ends it: a stop
    /// token, which is the last of the text, or the `max_tokens`-th.
    pub fn text(&self, prompt: &[Token], params: &Arc<SamplingParams>, seed: u64) -> Vec<Token> {
        let mut tags = Tags(vec![Vec::new(); self.layers.len()]);
        self.extend(&mut tags, prompt);
        let mut text = Vec::new();
        for index in 0..params.max_tokens {
            let token = self.draw(&tags, params, seed, index, [prompt, &text]);
            text.push(token);
            if params.stop_tokens.contains(&token) {
                break;
            }
            self.extend(&mut tags, &[token]);
        }
        text
    }

    fn extend(&self, tags: &mut Tags, tokens: &[Token]) {
        for ((layer, of), tags) in (0..).zip(&self.layers).zip(&mut tags.0) {
            for &token in tokens {
                let before = if of.is_alone { 0 } else { tags.last().copied().unwrap_or(0) };
                let tag = tag(layer, tags.len() as u32, token, before);
                tags.push(adapted(tag, self.adapter.as_ref()));
            }
        }
    }

    /// `history`: prompt and output.
    fn draw(&self, tags: &Tags, params: &Arc<SamplingParams>, seed: u64, index: u32, history: [&[Token]; 2]) -> Token {
        let query = tags.0[0].len() as u32 - 1;
        let mut state = 0;
        for position in 0..=query {
            let layer = usize::from(layer_read(position, query, self.layers.len()));
            if self.layers[layer].window.is_none_or(|window| position + window > query) {
                state = mix(state, tags.0[layer][position as usize]);
            }
        }
        if params.needs_history() {
            let [prompt, output] = history;
            state = heard(state, prompt, output.iter().copied());
        }
        // Whose sample it is makes no difference to its token.
        let key = SeqKey { request: RequestId(0), epoch: Epoch(0), choice: Choice(0) };
        let params = params.clone();
        let sample = Sample { key, row: 0, params, seed, index, masked: false };
        self.vocabulary.draw(state, &sample, None)
    }
}

//! What is right: the text of every sequence and the bytes of every block, told by the oracle from tokens alone;
//! and which tenant said what.

use crate::pool::Pool;
use crate::scenario::Scenario;
use domain::{Adapter, BlockHash, KvLayout, Request, RequestId, Scope, ScopeParts, Tenant, Token};
use engine::sim::{Oracle, Slots, Vocabulary};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The tags of a sequence: `[layer][position]`.
type Tags = Rc<Vec<Vec<u64>>>;

/// A sequence from the first token of its prompt to its last.
#[derive(Clone, Debug)]
pub(crate) struct Undisturbed {
    pub(crate) prompt: usize,
    /// Prompt and text.
    pub(crate) tokens: Vec<Token>,
    tags: Tags,
}

impl Undisturbed {
    /// Its output.
    pub(crate) fn text(&self) -> &[Token] {
        &self.tokens[self.prompt..]
    }
}

/// Everything that can be said in a world.
pub(crate) struct Expected {
    layout: KvLayout,
    /// By the names of tenants, and by adapters.
    scopes: BTreeMap<(String, Option<Adapter>), Scope>,
    oracle: Oracle,
    /// Per block identity a sequence that has the block, and which of its blocks it is.
    blocks: BTreeMap<BlockHash, (Tags, u32)>,
    said: BTreeMap<(Tenant, BlockHash), Said>,
}

/// Whose sequences of a tenant have a block.
#[derive(Clone, Copy, Debug)]
struct Said {
    first: RequestId,
    /// Those of a later request too.
    again: bool,
}

impl Expected {
    pub(crate) fn new(layout: KvLayout, tenants: &[String], vocabulary: Vocabulary) -> Self {
        let oracle = Oracle::new(&layout, vocabulary);
        let (weights, fingerprint) = (engine::sim::DIGEST, layout.fingerprint());
        let scope = |tenant: &String| {
            let derive = |adapter: Option<Adapter>| {
                let parts = ScopeParts { weights, layout: fingerprint, adapter: adapter.as_ref(), tenant };
                let scope = Scope::derive(&parts);
                ((tenant.clone(), adapter), scope)
            };
            [None, Some(Scenario::adapter())].map(derive)
        };
        let scopes = tenants.iter().flat_map(scope).collect();
        Self { layout, scopes, oracle, blocks: BTreeMap::new(), said: BTreeMap::new() }
    }

    /// The tenant of this name.
    pub(crate) fn tenant(&self, name: &str) -> Tenant {
        self.scopes[&(name.to_owned(), None)].tenant()
    }

    /// The sequences of a request, one per choice; their blocks are known from now on.
    pub(crate) fn learn(&mut self, request: &Request) -> Vec<Undisturbed> {
        let oracle = self.oracle.with(request.adapter.as_ref());
        let sequence = |choice| {
            let text = oracle.text(&request.prompt, &request.params, Request::seed(request.seed, choice));
            let tokens: Vec<Token> = request.prompt.iter().copied().chain(text).collect();
            let tags = Rc::new(oracle.tags(&tokens));
            Undisturbed { prompt: request.prompt.len(), tokens, tags }
        };
        let sequences: Vec<Undisturbed> = (0..request.choices).map(sequence).collect();
        for sequence in &sequences {
            for (number, hash) in (0..).zip(self.chain(&request.tenant, request.adapter.as_ref(), &sequence.tokens)) {
                self.blocks.entry(hash).or_insert_with(|| (sequence.tags.clone(), number));
                let said = self.said.entry((self.tenant(&request.tenant), hash));
                let said = said.or_insert(Said { first: request.id, again: false });
                said.again |= said.first != request.id;
            }
        }
        sequences
    }

    /// Identities of the full blocks of these tokens of a tenant, as computed with this adapter.
    pub(crate) fn chain(&self, tenant: &str, adapter: Option<&Adapter>, tokens: &[Token]) -> Vec<BlockHash> {
        let mut chain = Vec::new();
        self.scopes[&(tenant.to_owned(), adapter.cloned())].extend_chain(&mut chain, tokens, self.layout.block_tokens);
        chain
    }

    /// Whether the tenant has said what the identity stands for.
    pub(crate) fn has_said(&self, tenant: Tenant, hash: BlockHash) -> bool {
        self.said.contains_key(&(tenant, hash))
    }

    /// How many of these tokens, from the first, a request of the tenant could find cached if nobody else were
    /// there. `own`: it has been tried before, and may find its own.
    pub(crate) fn cached_alone(&self, request: &Request, tokens: &[Token], own: bool) -> u32 {
        let tenant = self.tenant(&request.tenant);
        let may_be_cached = |hash: &BlockHash| {
            let said = self.said.get(&(tenant, *hash));
            said.is_some_and(|said| own || said.again || said.first != request.id)
        };
        let chain = self.chain(&request.tenant, request.adapter.as_ref(), tokens);
        chain.into_iter().take_while(may_be_cached).count() as u32 * self.layout.block_tokens
    }

    /// Whether block `block` of a pool of `group` holds what its identity says. Errors: what is wrong.
    pub(crate) fn holds(&self, pool: &Pool, group: usize, block: u32, hash: BlockHash) -> Result<(), String> {
        let Some((tags, number)) = self.blocks.get(&hash) else {
            return Err("holds tokens that no undisturbed run has".to_owned());
        };
        self.compare(tags, pool, group, block, *number, self.layout.block_tokens)
    }

    /// Whether the first `positions` of block `number` of the sequence are in block `block` of a pool.
    pub(crate) fn holds_part(
        &self,
        sequence: &Undisturbed,
        pool: &Pool,
        group: usize,
        block: u32,
        number: u32,
        positions: u32,
    ) -> Result<(), String> {
        self.compare(&sequence.tags, pool, group, block, number, positions)
    }

    fn compare(
        &self,
        tags: &Tags,
        pool: &Pool,
        group: usize,
        block: u32,
        number: u32,
        positions: u32,
    ) -> Result<(), String> {
        let size = self.layout.block_tokens as usize;
        let record = block as usize * self.layout.record_bytes(group);
        let slots = Slots::of(&self.layout, group).expect("a layout of the sim device");
        for (index, &layer) in self.layout.held_layers(group).iter().enumerate() {
            let slice = record + self.layout.slice_range(group, index).start;
            for offset in slots.kept(positions as usize) {
                let position = number as usize * size + offset;
                let tag = tags[usize::from(layer)][position];
                let [key, value] = slots.words(offset).map(|word| pool.get(slice + word));
                if (key, value) != (tag, !tag) {
                    return Err(format!("does not hold position {position} in layer {layer}"));
                }
            }
        }
        Ok(())
    }
}

//! Tenants who say the same: whatever is opened, computed, parked and loaded, none takes over what another one has.

use super::*;
use crate::tiers::{ReadEnd, TierConfig, WriteEnd, WritePolicy};
use domain::{Scope, ScopeParts};
use proptest::prelude::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Op {
    /// A tenant's prompt, the first of which are the same for all; it stays open.
    Open {
        tenant: usize,
        tokens: u32,
    },
    /// The oldest open sequence ends.
    Close,
    Park {
        tenant: usize,
        tokens: u32,
    },
    Load {
        tenant: usize,
        tokens: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (tenant, tokens) = (0..3usize, 1..40u32);
    prop_oneof![
        4 => (tenant.clone(), tokens.clone()).prop_map(|(tenant, tokens)| Op::Open { tenant, tokens }),
        3 => Just(Op::Close),
        1 => (tenant.clone(), tokens.clone()).prop_map(|(tenant, tokens)| Op::Park { tenant, tokens }),
        2 => (tenant, tokens).prop_map(|(tenant, tokens)| Op::Load { tenant, tokens }),
    ]
}

/// Whose bytes a block has had since its last use began.
type Owners = HashMap<(BlockRef, Generation), usize>;

/// Every block that the sequence has is its tenant's, or nobody's yet.
fn claim(kv: &KvManager, owners: &mut Owners, key: SeqKey, tenant: usize) {
    for (group, table) in kv.groups().zip(kv.tables(key)) {
        for block in table.blocks.into_iter().map(|block| BlockRef { group, block }) {
            assert_eq!(*owners.entry((block, kv.generation(block))).or_insert(tenant), tenant, "{block:?} is shared");
        }
    }
}

fn write_all(kv: &mut KvManager) {
    while let Some(write) = kv.next_write() {
        kv.wrote(write.place, WriteEnd::Written);
    }
}

proptest! {
    #[test]
    fn no_block_is_ever_two_tenants(ops in prop::collection::vec(op(), 0..80)) {
        let mut kv = KvManager::new(config(&[(30, None), (30, Some(6))]));
        let tier = TierConfig { slots: vec![40; 2], writes_max: 4, backlog_max: 40, write: WritePolicy::Through };
        kv.add_tier(Tier::Host, tier, &[]);
        let scope = |tenant| Scope::derive(&ScopeParts { weights: [0; 32], layout: 0, adapter: "", tenant });
        let scopes = ["", "one", "other"].map(scope);
        let chain = |tenant: usize, tokens: u32| {
            let mut chain = Vec::new();
            scopes[tenant].extend_chain(&mut chain, &vec![7; tokens as usize], SIZE);
            chain
        };
        let (mut owners, mut open) = (Owners::new(), Vec::new());
        for (number, op) in (0..).zip(ops) {
            match op {
                Op::Open { tenant, tokens } => {
                    let (key, chain) = (key(number), chain(tenant, tokens));
                    if let Admit::Ready { .. } = kv.open(key, &chain, tokens, 1) {
                        claim(&kv, &mut owners, key, tenant);
                        kv.written(key, tokens, &chain);
                        open.push(key);
                    }
                }
                Op::Close => open.drain(..open.len().min(1)).for_each(|key| kv.close(key)),
                Op::Park { tenant, tokens } => {
                    kv.park(&chain(tenant, tokens));
                }
                Op::Load { tenant, tokens } => {
                    let (key, chain) = (key(number), chain(tenant, tokens));
                    let tokens = kv.loadable_tokens(&chain, kv.cached_tokens(&chain));
                    if let Some(reads) = kv.load(key, &chain, tokens) {
                        claim(&kv, &mut owners, key, tenant);
                        reads.iter().for_each(|read| kv.read_ended(read, &chain, ReadEnd::Good));
                        kv.close(key);
                    }
                }
            }
            write_all(&mut kv);
            kv.check();
        }
    }
}

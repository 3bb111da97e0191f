//! Identity of blocks: which tokens under which model and encoding a block's bytes stand for.

use crate::adapter::Adapter;
use crate::ids::{BlockId, GroupId, Token};
use crate::planted_bugs::{self, Bug};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Identity of a full block: a keyed 128-bit BLAKE3 over its parent's identity and its tokens. Equal identities
/// mean equal bytes (on the same device and dtype), in every tier and on every worker; where tiers keep them in an
/// encoding that loses something, bytes that are as near as that says. The same identity serves all KV groups; an
/// index keeps it per group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct BlockHash(pub [u8; 16]);

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in &self.0[..6] {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A block and the one that it continues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BlockLink {
    /// The block that it continues. `None`: it is the first of its sequences, or it is not known which block it
    /// continues.
    pub parent: Option<BlockHash>,
    /// The block.
    pub hash: BlockHash,
}

impl BlockLink {
    /// Links blocks that continue one another, the first one `parent`.
    pub fn run(parent: Option<BlockHash>, blocks: &[BlockHash]) -> impl DoubleEndedIterator<Item = Self> {
        let parent_of = move |number: usize| number.checked_sub(1).map_or(parent, |before| Some(blocks[before]));
        (0..blocks.len()).map(move |number| Self { parent: parent_of(number), hash: blocks[number] })
    }
}

/// A block of one worker: its KV group and its index in that group's pool.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct BlockRef {
    /// The KV group, which decides the record's size.
    pub group: GroupId,
    /// The index in the group's pool.
    pub block: BlockId,
}

/// Everything besides the tokens that changes the bytes of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeParts<'a> {
    /// Digest of the weights and of every model setting that changes KV (rotary, windows, norms).
    pub weights: [u8; 32],
    /// Fingerprint of the record layout (shape, dtype, encoding, layout version): [`crate::KvLayout::fingerprint`].
    pub layout: u64,
    /// What the blocks are computed with. `None`: the model alone.
    pub adapter: Option<&'a Adapter>,
    /// Tenant scope, set by the server and never taken from the client as is; empty when tenants share. It may have a
    /// salt: [`salted_tenant`].
    pub tenant: &'a str,
}

/// Between the name of a tenant and the digest of a salt.
const SALT: char = '\u{1f}';

/// Returns the name of a tenant with a salt of its client. It stands for the same tenant, and blocks are shared only
/// where the salts are equal, too. The name does not give the salt away.
pub fn salted_tenant(tenant: &str, salt: &str) -> String {
    let digest = blake3::Hasher::new_derive_key("baton 2026 cache salt v1").update(salt.as_bytes()).finalize();
    format!("{tenant}{SALT}{}", digest.to_hex())
}

/// Whose blocks are counted together: a digest of the tenant's name, short enough to be noted with every record.
/// Tenants of one number would share a quota, never a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tenant(pub u32);

impl Tenant {
    /// The tenant of blocks whose tenant is not known.
    pub const UNKNOWN: Self = Self(0);

    /// Returns the tenant of this name, with or without a salt. The empty name stands for all clients that share.
    pub fn named(name: &str) -> Self {
        let name = name.rsplit_once(SALT).map_or(name, |(name, _)| name);
        let digest = blake3::derive_key("baton 2026 tenant v1", name.as_bytes());
        let number = u32::from_le_bytes([digest[0], digest[1], digest[2], digest[3]]);
        Self(number.max(1))
    }
}

/// A key under which block identities are derived; different scopes never share a block.
#[derive(Clone, PartialEq, Eq)]
pub struct Scope {
    key: [u8; 32],
    tenant: Tenant,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope(..)")
    }
}

impl Scope {
    /// Derives the key, once per scope.
    pub fn derive(parts: &ScopeParts<'_>) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("baton 2026 block identity v1");
        hasher.update(&parts.weights);
        hasher.update(&parts.layout.to_le_bytes());
        let tenant = if planted_bugs::is(Bug::TenantsShareIdentities) { "" } else { parts.tenant };
        let adapter = if planted_bugs::is(Bug::AdaptersShareIdentities) { None } else { parts.adapter };
        for text in [adapter.map_or("", Adapter::name), tenant] {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Self { key: *hasher.finalize().as_bytes(), tenant: Tenant::named(parts.tenant) }
    }

    /// Returns the tenant that these blocks belong to.
    pub fn tenant(&self) -> Tenant {
        self.tenant
    }

    /// Returns the identity of the block that holds `tokens` (a full block) after the block `parent` (`None`: the
    /// first block).
    pub fn block(&self, parent: Option<BlockHash>, tokens: &[Token]) -> BlockHash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&parent.unwrap_or_default().0);
        for token in tokens {
            hasher.update(&token.to_le_bytes());
        }
        let mut hash = [0; 16];
        hash.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        BlockHash(hash)
    }

    /// Appends to `chain` the identities of those full blocks of `tokens` that it does not hold yet.
    pub fn extend_chain(&self, chain: &mut Vec<BlockHash>, tokens: &[Token], block_tokens: u32) {
        let size = block_tokens as usize;
        while (chain.len() + 1) * size <= tokens.len() {
            let from = chain.len() * size;
            chain.push(self.block(chain.last().copied(), &tokens[from..from + size]));
        }
    }
}

#[cfg(test)]
mod tests;

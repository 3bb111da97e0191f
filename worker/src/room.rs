//! Room on the device, in addition to what earlier jobs will take.

use domain::BlockHash;
use kv_manager::KvManager;

/// Returns whether the device has room for `tokens` of a prompt with this chain beyond what is cached of it, and for
/// `before` tokens of earlier jobs.
pub(crate) fn has_room(kv: &KvManager, chain: &[BlockHash], tokens: u32, before: u64) -> bool {
    u32::try_from(before).is_ok_and(|before| kv.has_room(chain, before.saturating_add(tokens)))
}

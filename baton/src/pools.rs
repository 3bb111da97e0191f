//! What the pools of a worker are for, as the configuration says.

use crate::config::Config;
use domain::KvLayout;
use kv_manager::sizing::PoolDemand;

/// Returns what pools of this layout are for. `context`: the model's longest one, in tokens.
pub(crate) fn demand<'a>(config: &Config, layout: &'a KvLayout, context: usize) -> PoolDemand<'a> {
    let (engine, kv) = (&config.engine, &config.kv);
    PoolDemand {
        layout,
        bytes: kv.device_bytes.0,
        context: u32::try_from(context).unwrap_or(u32::MAX),
        running_max: engine.running_max,
        prompts_max: engine.step_tokens_max.div_ceil(engine.chunk_tokens.max(1)),
        chunk_tokens: engine.chunk_tokens,
        reserve_percent: kv.reserve_percent,
        pinned_percent: kv.pinned_percent,
    }
}

//! What the pools of a worker are for, as the configuration says, and how much of a card they may take.

use crate::config::Config;
use crate::output::human_bytes;
use domain::KvLayout;
use kv_manager::sizing::PoolDemand;
use std::fmt;

/// Bytes of a worker's pools in host memory for `kv.device_bytes = "auto"`. The host has other programs, so it is not
/// what is free.
pub(crate) const HOST_POOL_BYTES: u64 = 1 << 30;

/// Of a card's memory, what no pool takes: what the driver rounds up, and what it allocates later.
const DRIVER_PERCENT: u64 = 2;
/// Bytes of a card that the graphs of a worker may take.
const GRAPH_BYTES: u64 = 128 << 20;

/// Returns what pools of this layout are for. `context`: the model's longest one, in tokens. `bytes`: of all pools.
pub(crate) fn demand<'a>(config: &Config, layout: &'a KvLayout, context: usize, bytes: u64) -> PoolDemand<'a> {
    let (engine, kv) = (&config.engine, &config.kv);
    PoolDemand {
        layout,
        bytes,
        context: u32::try_from(context).unwrap_or(u32::MAX),
        running_max: engine.running_max,
        prompts_max: engine.step_tokens_max.div_ceil(engine.chunk_tokens.max(1)),
        chunk_tokens: engine.chunk_tokens,
        reserve_percent: kv.reserve_percent,
        pinned_percent: kv.pinned_percent,
    }
}

/// The memory of a card on which a model's weights are, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardMemory {
    pub(crate) total: u64,
    /// What nothing has taken, neither this process nor another one.
    pub(crate) free: u64,
    pub(crate) weights: u64,
    /// What the steps of one worker compute in.
    pub(crate) step: u64,
    /// Workers of this process, which share the card in equal parts.
    pub(crate) workers: u64,
}

impl CardMemory {
    /// Returns the bytes of what is free that no pool takes: what steps compute in, graphs, and the driver.
    pub(crate) fn reserve(&self) -> u64 {
        let worker = self.step.saturating_add(GRAPH_BYTES);
        worker.saturating_mul(self.workers).saturating_add(self.total / 100 * DRIVER_PERCENT)
    }

    /// Returns the bytes of the pools of one worker.
    pub(crate) fn pools(&self) -> u64 {
        self.free.saturating_sub(self.reserve()) / self.workers.max(1)
    }
}

impl fmt::Display for CardMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [total, free, weights, reserve, step] =
            [self.total, self.free, self.weights, self.reserve(), self.step].map(human_bytes);
        let workers = match self.workers {
            1 => "1 worker".to_owned(),
            many => format!("{many} workers"),
        };
        write!(
            f,
            "the card has {total}, of which {free} are free next to {weights} of weights; {reserve} are reserved for \
             steps ({step} a worker), graphs and the driver; {workers}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H100: CardMemory =
        CardMemory { total: 80 << 30, free: 63 << 30, weights: 16 << 30, step: 1 << 30, workers: 1 };

    #[test]
    fn pools_take_what_the_reserve_leaves() {
        let percent = (80 << 30) / 100 * 2;
        assert_eq!(H100.reserve(), (1 << 30) + (128 << 20) + percent);
        assert_eq!(H100.pools(), (63 << 30) - H100.reserve());
        let two = CardMemory { workers: 2, ..H100 };
        assert_eq!(two.reserve(), 2 * ((1 << 30) + (128 << 20)) + percent);
        assert_eq!(two.pools(), ((63 << 30) - two.reserve()) / 2);
    }

    #[test]
    fn all_parts_together_fit_what_is_free() {
        for workers in 1..=9 {
            for free in [0, 1, 1 << 30, 10 << 30, 63 << 30] {
                let card = CardMemory { workers, free, ..H100 };
                let taken = card.pools() * workers + card.reserve();
                assert!(card.pools() == 0 || (taken <= free && free - taken < workers), "{card:?}");
            }
        }
    }

    #[test]
    fn a_card_that_is_full_has_no_pools() {
        let full = CardMemory { free: H100.reserve(), ..H100 };
        assert_eq!(full.pools(), 0);
        assert_eq!(CardMemory { free: full.free + 1, ..full }.pools(), 1);
        let odd = CardMemory { step: u64::MAX, workers: u64::MAX, ..H100 };
        assert_eq!(odd.pools(), 0);
    }

    #[test]
    fn all_figures_are_named() {
        let text = CardMemory { workers: 2, ..H100 }.to_string();
        for figure in ["80 GiB", "63 GiB", "16 GiB of weights", "3.85 GiB are reserved", "1 GiB a worker", "2 workers"]
        {
            assert!(text.contains(figure), "{figure}: {text}");
        }
    }
}

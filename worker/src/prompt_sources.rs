//! Where the tokens of a prompt came from, and how long that took. It is reported once per prompt, when its first token
//! is sampled.
//!
//! Deliberately absent: tokens that came over a handoff. The worker that computes a prompt's last token reports its
//! sources.

use domain::Time;
use kv_manager::tiers::Tier;
use std::collections::BTreeMap;
use std::time::Duration;

/// Where tokens of a prompt came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// They were cached on the device, or another prompt computed them meanwhile.
    Device,
    /// They were fetched from another worker's device.
    Peer,
    /// They were loaded from the tier.
    Tier(Tier),
    /// They were computed for this prompt.
    Computed,
}

impl Source {
    /// All sources, `Computed` last.
    pub(crate) const ALL: [Self; 7] = [
        Self::Device,
        Self::Peer,
        Self::Tier(Tier::Host),
        Self::Tier(Tier::Neighbours),
        Self::Tier(Tier::Disk),
        Self::Tier(Tier::Object),
        Self::Computed,
    ];

    /// Returns its name in metrics and in the timeline.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Peer => "peer",
            Self::Tier(tier) => tier.name(),
            Self::Computed => "computed",
        }
    }
}

/// What a prompt got from one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) tokens: u32,
    /// Time from the prompt's arrival to the last block, from a peer or a tier; of computed tokens, the time since the
    /// prompt began. `None`: the tokens were on the device.
    pub(crate) took: Option<Duration>,
}

/// What a prompt got from each source until now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// When its computation began. `None`: it did not begin, or its sources were reported.
    begun: Option<Time>,
    /// Blocks that a peer or tiers delivered and the prompt has not taken yet, by number, each with its slowest source.
    brought: BTreeMap<u32, Source>,
    shares: BTreeMap<Source, Share>,
}

impl Sources {
    /// Notes that a source delivered a block, so long after the prompt arrived.
    pub(crate) fn brought(&mut self, number: u32, source: Source, took: Duration) {
        self.brought.insert(number, source);
        self.shares.entry(source).or_default().took = Some(took);
    }

    /// Notes that the prompt begins with so many tokens that are there already.
    pub(crate) fn begin(&mut self, now: Time, tokens: u32, block_tokens: u32) {
        self.begun = Some(now);
        self.shares.values_mut().for_each(|share| share.tokens = 0);
        self.take(0, tokens, block_tokens);
    }

    /// Notes that the prompt takes these positions instead of computing them. Both are starts of blocks.
    pub(crate) fn take(&mut self, from: u32, to: u32, block_tokens: u32) {
        for number in from / block_tokens..to / block_tokens {
            let source = self.brought.remove(&number).unwrap_or(Source::Device);
            self.shares.entry(source).or_default().tokens += block_tokens;
        }
    }

    /// Returns whether the prompt began and its sources were not reported yet.
    pub(crate) fn is_open(&self) -> bool {
        self.begun.is_some()
    }

    /// Ends the account of a prompt of so many tokens. Returns the share of each source that delivered some.
    pub(crate) fn end(&mut self, now: Time, tokens: u32) -> BTreeMap<Source, Share> {
        let Self { begun, mut shares, .. } = std::mem::take(self);
        shares.retain(|_, share| share.tokens > 0);
        let taken = shares.values().map(|share| share.tokens).sum();
        let computed = Share { tokens: tokens.saturating_sub(taken), took: begun.map(|begun| now.since(begun)) };
        shares.insert(Source::Computed, computed);
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn every_token_has_one_source() {
        let mut sources = Sources::default();
        assert!(!sources.is_open());
        // Of ten blocks the first lies on the device; another worker has the next, and the others are loaded, but
        // for two that never come.
        let (host, disk) = (Source::Tier(Tier::Host), Source::Tier(Tier::Disk));
        sources.brought(1, Source::Peer, Duration::from_millis(3));
        (2..4).for_each(|number| sources.brought(number, host, Duration::from_millis(5)));
        (6..10).rev().for_each(|number| sources.brought(number, disk, Duration::from_millis(u64::from(30 - number))));
        sources.begin(at(40), 64, 16);
        assert!(sources.is_open());
        sources.take(96, 160, 16);
        let shares = sources.end(at(100), 170);
        let share = |tokens, ms: Option<u64>| Share { tokens, took: ms.map(Duration::from_millis) };
        let expected = [
            (Source::Device, share(16, None)),
            (Source::Peer, share(16, Some(3))),
            (host, share(32, Some(5))),
            (disk, share(64, Some(24))),
            (Source::Computed, share(42, Some(60))),
        ];
        assert_eq!(shares, expected.into());
        assert!(!sources.is_open(), "a prompt is told of once");
    }

    #[test]
    fn what_was_brought_in_vain_counts_for_nobody_and_a_prompt_that_begins_again_begins_at_nothing() {
        let mut sources = Sources::default();
        sources.brought(3, Source::Tier(Tier::Object), Duration::from_millis(9));
        sources.begin(at(0), 32, 16);
        sources.begin(at(10), 16, 16);
        let shares = sources.end(at(20), 40);
        let tokens: Vec<_> = shares.iter().map(|(source, share)| (source.name(), share.tokens)).collect();
        assert_eq!(tokens, [("device", 16), ("computed", 24)]);
    }
}

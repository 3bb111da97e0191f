//! What is measured, and how.

use crate::bounds::{DECODED, DEVICE_PROMPTS, LENGTHS_MAX, ROUNDS_MAX, TURNS};
use crate::error::BenchError;
use domain::KvLayout;
use kv_manager::tiers::Tier;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// What a record takes beside its bytes, at most: its header and what aligns it.
const BESIDE_RECORD: u64 = 8192;

/// What to measure.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Lengths of prompts, in tokens that a cache can have. Each has one more: it is computed in any case, since
    /// the first token of the answer depends on it.
    pub prompts: Vec<u32>,
    /// How often each prompt comes back.
    pub rounds: usize,
    /// From where.
    #[serde(serialize_with = "names")]
    pub tiers: Vec<Tier>,
}

/// The server that is measured, and its model.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The binary.
    pub program: PathBuf,
    /// Flags of its `serve` besides those that a measurement sets.
    pub flags: Vec<OsString>,
    /// Name of the model, for people.
    pub name: String,
    /// Layout of its KV.
    pub layout: KvLayout,
    /// Longest sequence of the model, in tokens.
    pub context: usize,
    /// Token ids of the model.
    pub vocab: usize,
    /// Share of the device that prompts leave alone, in percent.
    pub reserve_percent: u32,
    /// Reads of the disk under way at once.
    pub depth: u32,
    /// Where the disk tier lies during the run, and what is read beside it. It is there.
    pub folder: PathBuf,
}

impl Settings {
    /// Checks the settings. Errors: a number is out of its bounds, or the model cannot do it.
    pub(crate) fn check(&self, subject: &Subject) -> Result<(), BenchError> {
        let refuse = |why: String| Err(BenchError::Settings(why));
        if self.prompts.is_empty() || self.prompts.len() > LENGTHS_MAX {
            return refuse(format!("--prompts: 1 to {LENGTHS_MAX} lengths"));
        }
        let least = 4 * subject.layout.block_tokens;
        let most = subject.context.saturating_sub(DECODED as usize + 2);
        if let Some(tokens) = self.prompts.iter().find(|tokens| **tokens < least || **tokens as usize > most) {
            return refuse(format!("--prompts {tokens}: {least} to {most} tokens, with this model"));
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return refuse(format!("--rounds {}: 1 to {ROUNDS_MAX}", self.rounds));
        }
        if self.tiers.is_empty() {
            return refuse("--tiers: at least one".to_owned());
        }
        Ok(())
    }
}

impl Subject {
    /// Returns the number of blocks of a prompt that can come from a cache.
    pub(crate) fn blocks(&self, tokens: u32) -> u32 {
        tokens / self.layout.block_tokens
    }

    /// Returns what comes from a tier for a prompt: the length of each record, and how many there are. A group with a
    /// window needs only what the last token sees.
    pub(crate) fn records(&self, tokens: u32) -> Vec<(usize, u32)> {
        let blocks = self.blocks(tokens);
        let seen = |window: u32| window.div_ceil(self.layout.block_tokens).min(blocks);
        let groups = self.layout.groups.iter().enumerate();
        groups.map(|(at, group)| (self.layout.stored_bytes(at), group.reach().map_or(blocks, seen))).collect()
    }

    /// Returns the device's memory for prompts of the length.
    pub(crate) fn device_bytes(&self, tokens: u32) -> u64 {
        let usable = f64::from(self.whole(tokens)) * DEVICE_PROMPTS;
        let blocks = usable / (1.0 - f64::from(self.reserve_percent.min(99)) / 100.0);
        blocks.ceil() as u64 * self.block_bytes()
    }

    /// Returns the room of a tier for all prompts of the length, and to spare.
    pub(crate) fn tier_bytes(&self, tokens: u32) -> u64 {
        let each = self.block_bytes() + BESIDE_RECORD * self.layout.groups.len() as u64;
        u64::from(self.whole(tokens)) * TURNS as u64 * each * 5 / 4
    }

    /// Makes the prompt of so many tokens, and one more, that has this turn: ids from the middle of the vocabulary,
    /// drawn from turn and length.
    pub(crate) fn prompt(&self, tokens: u32, turn: usize) -> Vec<u32> {
        let quarter = (self.vocab as u64 / 4).max(1);
        let mut state = (u64::from(tokens) << 8) + turn as u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (quarter + (state >> 33) % quarter) as u32
        };
        (0..=tokens).map(|_| draw()).collect()
    }

    /// Returns the number of blocks of a prompt and of what is decoded after it.
    fn whole(&self, tokens: u32) -> u32 {
        (tokens + 1 + DECODED).div_ceil(self.layout.block_tokens) + 1
    }

    fn block_bytes(&self) -> u64 {
        (0..self.layout.groups.len()).map(|group| self.layout.record_bytes(group) as u64).sum()
    }
}

fn names<S: serde::Serializer>(tiers: &[Tier], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(tiers.iter().map(|tier| tier.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::{Dtype, Encoding, KvGroup, KvKind, ModelLayout};

    fn subject() -> Subject {
        let group = |layers: std::ops::Range<u16>, window| KvGroup {
            layers: layers.collect(),
            kind: KvKind::of_heads(2, 8),
            window,
        };
        let groups = vec![group(0..2, None), group(2..3, Some(40))];
        Subject {
            program: PathBuf::new(),
            flags: Vec::new(),
            name: "m".to_owned(),
            layout: KvLayout::whole(ModelLayout {
                block_tokens: 16,
                dtype: Dtype::F32,
                encoding: Encoding::Exact,
                groups,
            }),
            context: 1024,
            vocab: 400,
            reserve_percent: 5,
            depth: 16,
            folder: PathBuf::new(),
        }
    }

    #[test]
    fn the_device_holds_more_than_one_prompt_and_less_than_two() {
        let subject = subject();
        for tokens in [64, 100, 990] {
            let blocks = subject.device_bytes(tokens) / subject.block_bytes();
            let (usable, whole) = (blocks - blocks * 5 / 100, u64::from(subject.blocks(tokens)));
            assert!(usable > whole + u64::from(DECODED / 16), "{tokens}: {usable} blocks for {whole}");
        }
        let (usable, whole) = (subject.device_bytes(990) / subject.block_bytes(), subject.blocks(990));
        assert!(usable < 2 * u64::from(whole), "{usable} blocks hold two prompts of {whole}");
    }

    #[test]
    fn of_a_window_only_what_is_seen_comes() {
        let subject = subject();
        let blocks: Vec<u32> = subject.records(161).into_iter().map(|(_, blocks)| blocks).collect();
        assert_eq!(blocks, [10, 3]);
    }

    #[test]
    fn prompts_differ_and_are_the_same_again() {
        let subject = subject();
        assert_eq!(subject.prompt(64, 0), subject.prompt(64, 0));
        assert_ne!(subject.prompt(64, 0)[..16], subject.prompt(64, 1)[..16]);
        assert!(subject.prompt(1000, 2).iter().all(|token| (100..200).contains(token)));
    }

    #[test]
    fn what_cannot_be_measured_is_refused_by_name() {
        let good = Settings { prompts: vec![64], rounds: 1, tiers: vec![Tier::Host] };
        assert!(good.check(&subject()).is_ok());
        let check = |change: &dyn Fn(&mut Settings), part: &str| {
            let mut settings = good.clone();
            change(&mut settings);
            let error = settings.check(&subject()).expect_err(part).to_string();
            assert!(error.contains(part), "{error}");
        };
        check(&|it| it.prompts = vec![10], "--prompts 10: 64 to 990");
        check(&|it| it.prompts = vec![991], "--prompts 991");
        check(&|it| it.prompts.clear(), "--prompts: 1 to");
        check(&|it| it.rounds = 0, "--rounds 0");
        check(&|it| it.tiers.clear(), "--tiers");
    }
}

//! What prompts look for in a store, which has more objects than a worker remembers.
//!
//! A lookup follows the identities of a prompt from the first unknown one on. It asks for one block, then for twice as
//! many, and so on, as long as all of them are there. So a prompt that no worker computed before costs one question per
//! group, and a prompt that is in the store few rounds. No prompt waits for an answer. This file says which questions
//! to ask; the tier asks them.

use domain::{BlockHash, GroupId, SeqKey};
use std::collections::{BTreeSet, HashMap, VecDeque};
use transport::TransferId;

/// Lookups at once. Without a lookup, a prompt is computed.
const LOOKUPS_MAX: usize = 64;
/// Blocks of a prompt that are looked for: with the lookups, how many identities wait here.
const BLOCKS_MAX: usize = 8192;
/// Blocks of a round.
const ROUND_MAX: usize = 64;
/// Questions in progress, of all lookups: fewer than requests may be, because prompts wait for the others.
const QUESTIONS_MAX: usize = 16;

/// Whether a record is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The lookup's number.
    lookup: u64,
    block: usize,
    pub(super) group: GroupId,
    pub(super) hash: BlockHash,
}

/// What a round found for a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) prompt: SeqKey,
    pub(super) records: Vec<(GroupId, BlockHash)>,
    /// It was the last round.
    pub(super) last: bool,
}

/// All of them.
pub(super) struct Lookups {
    groups: u16,
    /// In the order in which they are served.
    lookups: VecDeque<Lookup>,
    under_way: HashMap<TransferId, Question>,
    /// The number of the next lookup.
    next: u64,
}

struct Lookup {
    /// Unique, also among earlier lookups whose answers are still to come.
    number: u64,
    prompt: SeqKey,
    chain: Vec<BlockHash>,
    /// The first block behind this round, and how many this round has.
    end: usize,
    width: usize,
    /// Blocks and groups of this round that are still to be asked for.
    questions: VecDeque<Question>,
    /// Questions without an answer.
    open: usize,
    /// What is there of this round.
    found: Vec<(GroupId, BlockHash)>,
    /// Blocks of this round of which something is there.
    there: BTreeSet<usize>,
}

impl Lookups {
    /// Makes an empty list, for a model with so many groups.
    pub(super) fn new(groups: u16) -> Self {
        Self { groups, lookups: VecDeque::new(), under_way: HashMap::new(), next: 0 }
    }

    /// Adds a lookup of these blocks of a prompt.
    pub(super) fn follow(&mut self, prompt: SeqKey, mut chain: Vec<BlockHash>) {
        let twice = self.lookups.iter().any(|lookup| lookup.prompt == prompt || lookup.chain.first() == chain.first());
        if chain.is_empty() || twice || self.lookups.len() >= LOOKUPS_MAX {
            return;
        }
        chain.truncate(BLOCKS_MAX);
        let mut lookup = Lookup {
            number: self.next,
            prompt,
            chain,
            end: 0,
            width: 1,
            questions: VecDeque::new(),
            open: 0,
            found: Vec::new(),
            there: BTreeSet::new(),
        };
        self.next += 1;
        lookup.go_on(self.groups);
        self.lookups.push_back(lookup);
    }

    /// Takes the next question, if one more may be in progress.
    pub(super) fn next(&mut self) -> Option<Question> {
        if self.under_way.len() >= QUESTIONS_MAX {
            return None;
        }
        let lookup = self.lookups.iter_mut().find(|lookup| !lookup.questions.is_empty())?;
        lookup.open += 1;
        lookup.questions.pop_front()
    }

    /// Notes that the question is in progress.
    pub(super) fn asked(&mut self, id: TransferId, question: Question) {
        self.under_way.insert(id, question);
    }

    /// Returns whether this is one of the questions in progress.
    pub(super) fn is_asked(&self, id: TransferId) -> bool {
        self.under_way.contains_key(&id)
    }

    /// Notes the answer to a question: whether the record is there. `None`: the store failed, and the lookup is lost.
    /// Returns what a round found, if this was its last answer.
    pub(super) fn answered(&mut self, id: TransferId, there: Option<bool>) -> Option<Found> {
        let question = self.under_way.remove(&id)?;
        let at = self.lookups.iter().position(|lookup| lookup.number == question.lookup)?;
        let Some(there) = there else {
            self.lookups.remove(at);
            return None;
        };
        let lookup = &mut self.lookups[at];
        lookup.open -= 1;
        if there {
            lookup.found.push((question.group, question.hash));
            lookup.there.insert(question.block);
        }
        if lookup.open > 0 || !lookup.questions.is_empty() {
            return None;
        }
        let last = lookup.there.len() < lookup.width || lookup.end == lookup.chain.len();
        let found = Found { prompt: lookup.prompt, records: std::mem::take(&mut lookup.found), last };
        if last {
            self.lookups.remove(at);
        } else {
            lookup.width *= 2;
            lookup.go_on(self.groups);
        }
        Some(found)
    }

    /// Removes all lookups.
    pub(super) fn clear(&mut self) {
        self.lookups.clear();
    }
}

impl Lookup {
    /// Begins the next round. A group with a window may lack what another group has, so a block counts as there if any
    /// group has it.
    fn go_on(&mut self, groups: u16) {
        let begin = self.end;
        self.width = self.width.min(ROUND_MAX).min(self.chain.len() - begin);
        self.end = begin + self.width;
        self.there.clear();
        let (lookup, chain) = (self.number, &self.chain);
        self.questions = (begin..self.end)
            .flat_map(|block| {
                (0..groups).map(move |group| Question { lookup, block, group: GroupId(group), hash: chain[block] })
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::key;

    fn hash(number: usize) -> BlockHash {
        BlockHash((number as u128).to_le_bytes())
    }

    /// Follows a chain of so many blocks with a store that has the first `there` of them, in all groups or only in
    /// the last. The records found, and the questions asked.
    fn follow(groups: u16, blocks: usize, there: usize, last_alone: bool) -> (usize, usize) {
        let mut lookups = Lookups::new(groups);
        lookups.follow(key(), (0..blocks).map(hash).collect());
        let (mut found, mut asked, mut under_way) = (0, 0, VecDeque::new());
        loop {
            while let Some(question) = lookups.next() {
                asked += 1;
                lookups.asked(TransferId(asked as u64), question);
                under_way.push_back((TransferId(asked as u64), question));
            }
            assert!(under_way.len() <= QUESTIONS_MAX);
            let Some((id, question)) = under_way.pop_front() else { break };
            let number = u128::from_le_bytes(question.hash.0) as usize;
            let is_there = number < there && (!last_alone || question.group.0 + 1 == groups);
            if let Some(Found { prompt, records, last }) = lookups.answered(id, Some(is_there)) {
                assert_eq!(prompt, key());
                assert_eq!(last, lookups.lookups.is_empty());
                found += records.len();
            }
        }
        assert!(lookups.lookups.is_empty(), "a lookup is left that nobody follows");
        (found, asked)
    }

    #[test]
    fn a_trail_finds_all_that_is_there_and_ends_where_nothing_is() {
        assert_eq!(follow(2, 1000, 0, false), (0, 2), "what nobody computed costs one question a group");
        assert_eq!(follow(1, 1, 1, false), (1, 1));
        assert_eq!(follow(1, 1000, 1000, false), (1000, 1000));
        let (found, asked) = follow(2, 1000, 300, false);
        assert_eq!(found, 600);
        assert!(asked <= 600 + 2 * ROUND_MAX, "{asked} questions");
        let (found, _) = follow(2, 100, 100, true);
        assert_eq!(found, 100, "of one group alone");
        let (found, asked) = follow(1, BLOCKS_MAX + 5, BLOCKS_MAX + 5, false);
        assert_eq!((found, asked), (BLOCKS_MAX, BLOCKS_MAX), "the bound of a prompt");
    }

    #[test]
    fn what_is_looked_for_is_bounded_and_a_store_that_fails_ends_it() {
        let mut lookups = Lookups::new(1);
        let prompt = |n: usize| SeqKey { request: domain::RequestId(n as u64), ..key() };
        (0..2 * LOOKUPS_MAX).for_each(|n| lookups.follow(prompt(n), vec![hash(n)]));
        assert_eq!(lookups.lookups.len(), LOOKUPS_MAX);
        lookups.follow(prompt(3), vec![hash(7000)]);
        assert_eq!(lookups.lookups.len(), LOOKUPS_MAX);
        let question = lookups.next().expect("there are some");
        lookups.asked(TransferId(1), question);
        assert!(lookups.is_asked(TransferId(1)));
        assert_eq!(lookups.answered(TransferId(1), None), None);
        assert_eq!(lookups.lookups.len(), LOOKUPS_MAX - 1);
        let question = lookups.next().expect("there are some");
        lookups.asked(TransferId(2), question);
        lookups.clear();
        lookups.follow(prompt(1), vec![hash(1)]);
        assert_eq!(lookups.answered(TransferId(2), Some(true)), None, "nobody follows it any more");
        assert!(lookups.next().is_some(), "the prompt that came again has a lookup of its own");
        assert_eq!(lookups.next(), None);
    }
}

//! Every policy against a plain model of it that is searched, and against the same uses: blocks come in as computed,
//! are used again, go, and are computed once more.

use super::*;
use proptest::prelude::*;

const BLOCKS: u32 = 12;
/// Identities; more than the blocks and the ghosts together.
const IDENTITIES: u8 = 40;

/// The identities are a tree: each continues that of half its number.
fn hash(identity: u8) -> BlockHash {
    BlockHash([identity; 16])
}

fn parent(identity: u8) -> Option<u8> {
    (identity > 0).then(|| (identity - 1) / 2)
}

/// What a policy shall do, said as plainly as possible. `insert` is told whether the block comes back from a use.
trait Model {
    fn insert(&mut self, block: BlockId, identity: u8, back: bool);
    fn remove(&mut self, block: BlockId);
    fn pop(&mut self) -> Option<BlockId>;
    fn forget(&mut self, block: BlockId) {
        self.remove(block);
    }
}

/// Blocks with their identities, oldest use first.
#[derive(Default)]
struct LruModel(Vec<(BlockId, u8)>);

impl Model for LruModel {
    fn insert(&mut self, block: BlockId, identity: u8, _: bool) {
        self.0.push((block, identity));
    }
    fn remove(&mut self, block: BlockId) {
        self.0.retain(|&(inside, _)| inside != block);
    }
    fn pop(&mut self) -> Option<BlockId> {
        (!self.0.is_empty()).then(|| self.0.remove(0).0)
    }
}

/// The same list, of which the first goes that none of it continues.
#[derive(Default)]
struct TreeModel(Vec<(BlockId, u8)>);

impl Model for TreeModel {
    fn insert(&mut self, block: BlockId, identity: u8, _: bool) {
        self.0.push((block, identity));
    }
    fn remove(&mut self, block: BlockId) {
        self.0.retain(|&(inside, _)| inside != block);
    }
    fn pop(&mut self) -> Option<BlockId> {
        let leaf = |&(_, identity): &(BlockId, u8)| self.0.iter().all(|&(_, other)| parent(other) != Some(identity));
        let place = self.0.iter().position(leaf)?;
        Some(self.0.remove(place).0)
    }
}

/// Queues as lists, oldest first.
#[derive(Default)]
struct S3FifoModel {
    small: Vec<(BlockId, u8)>,
    main: Vec<BlockId>,
    ghosts: Vec<u8>,
}

impl Model for S3FifoModel {
    fn insert(&mut self, block: BlockId, identity: u8, back: bool) {
        if back {
            self.main.push(block);
        } else if self.ghosts.contains(&identity) {
            self.ghosts.retain(|&ghost| ghost != identity);
            self.main.push(block);
        } else {
            self.small.push((block, identity));
        }
    }
    fn remove(&mut self, block: BlockId) {
        self.small.retain(|&(inside, _)| inside != block);
        self.main.retain(|&inside| inside != block);
    }
    fn pop(&mut self) -> Option<BlockId> {
        let all = self.small.len() + self.main.len();
        let first =
            if self.small.len() <= all / 4 { self.main.first() } else { self.small.first().map(|(block, _)| block) };
        let first = *first?;
        self.forget(first);
        Some(first)
    }
    fn forget(&mut self, block: BlockId) {
        self.main.retain(|&inside| inside != block);
        if let Some(place) = self.small.iter().position(|&(inside, _)| inside == block) {
            self.ghosts.push(self.small.remove(place).1);
            if self.ghosts.len() > BLOCKS as usize {
                self.ghosts.remove(0);
            }
        }
    }
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Held {
    /// In the policy.
    Cached(u8),
    /// In use; `true`: again, since it was cached.
    Used(u8, bool),
    /// Gone from the policy, but its memory is not given to another use.
    Gone(u8),
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// An identity is taken into use or, where it is in use, left again.
    Of(u8),
    /// The block that goes first goes; `true`: and may come back.
    Go(bool),
    /// The block with this identity goes, if it is in, and may come back.
    Forget(u8),
}

/// Runs the uses over policy and model.
fn check(mut policy: Box<dyn Eviction>, mut model: impl Model, uses: &[Use]) {
    let mut held: Vec<Option<Held>> = vec![None; BLOCKS as usize];
    for &one in uses {
        let identity = match one {
            Use::Of(identity) => identity,
            Use::Go(may_come_back) => {
                let popped = policy.pop();
                assert_eq!(popped, model.pop());
                if let Some(block) = popped {
                    let held = &mut held[block.0 as usize];
                    let Some(Held::Cached(identity)) = *held else { panic!("{block} was not in") };
                    *held = may_come_back.then_some(Held::Gone(identity));
                }
                continue;
            }
            Use::Forget(identity) => {
                if let Some(place) = held.iter().position(|held| *held == Some(Held::Cached(identity))) {
                    policy.forget(BlockId(place as u32));
                    model.forget(BlockId(place as u32));
                    held[place] = Some(Held::Gone(identity));
                }
                continue;
            }
        };
        let place = held.iter().position(|held| match held {
            Some(Held::Cached(other) | Held::Used(other, _) | Held::Gone(other)) => *other == identity,
            None => false,
        });
        match place.map(|place| (place, held[place].expect("it was found"))) {
            Some((place, Held::Cached(_))) => {
                policy.remove(BlockId(place as u32));
                model.remove(BlockId(place as u32));
                held[place] = Some(Held::Used(identity, true));
            }
            Some((place, Held::Gone(_))) => held[place] = Some(Held::Used(identity, false)),
            Some((place, Held::Used(_, again))) => {
                policy.insert(BlockId(place as u32), hash(identity), parent(identity).map(hash));
                model.insert(BlockId(place as u32), identity, again);
                held[place] = Some(Held::Cached(identity));
            }
            None => {
                let free = |held: &Option<Held>| matches!(held, None | Some(Held::Gone(_)));
                let free = held.iter().position(free).or_else(|| {
                    let popped = policy.pop();
                    assert_eq!(popped, model.pop());
                    popped.map(|block| block.0 as usize)
                });
                free.into_iter().for_each(|place| held[place] = Some(Held::Used(identity, false)));
            }
        }
        let cached = held.iter().flatten().filter(|held| matches!(held, Held::Cached(_))).count();
        assert_eq!(policy.len() as usize, cached);
    }
    let clone = policy.clone();
    for mut policy in [clone, policy] {
        let mut rest: Vec<_> = std::iter::from_fn(|| policy.pop()).collect();
        assert_eq!(policy.len(), 0);
        rest.sort_unstable();
        let cached = (0..).zip(&held).filter(|(_, held)| matches!(held, Some(Held::Cached(_))));
        assert_eq!(rest, cached.map(|(block, _)| BlockId(block)).collect::<Vec<_>>());
    }
}

fn uses() -> impl Strategy<Value = Vec<Use>> {
    // Half of the uses are of few identities, so that they come again.
    let identity = prop_oneof![0..8u8, 0..IDENTITIES];
    let one = prop_oneof![
        9 => identity.clone().prop_map(Use::Of),
        1 => any::<bool>().prop_map(Use::Go),
        1 => identity.prop_map(Use::Forget),
    ];
    prop::collection::vec(one, 0..400)
}

proptest! {
    #[test]
    fn lru_goes_by_last_use(uses in uses()) {
        check(Box::new(Lru::new(BLOCKS)), LruModel::default(), &uses);
    }

    #[test]
    fn tree_goes_by_last_use_of_leaves(uses in uses()) {
        check(Box::new(Tree::new(BLOCKS)), TreeModel::default(), &uses);
    }

    #[test]
    fn s3_fifo_goes_by_its_queues(uses in uses()) {
        check(Box::new(S3Fifo::new(BLOCKS)), S3FifoModel::default(), &uses);
    }
}

/// A prefix and what continues it, inserted in the order in which a window leaves them behind.
#[test]
fn a_block_that_is_continued_stays_whatever_its_last_use() {
    let order = |mut policy: Box<dyn Eviction>| -> Vec<u32> {
        for identity in [0, 1, 3, 2] {
            policy.insert(BlockId(identity.into()), hash(identity), parent(identity).map(hash));
        }
        std::iter::from_fn(|| policy.pop()).map(|block| block.0).collect()
    };
    // 3 continues 1, and 1 and 2 continue 0.
    assert_eq!(order(Box::new(Tree::new(BLOCKS))), [3, 1, 2, 0]);
    assert_eq!(order(Box::new(Lru::new(BLOCKS))), [0, 1, 3, 2]);
}

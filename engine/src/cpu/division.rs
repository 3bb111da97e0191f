//! How the attention of a step is divided into tasks.
//!
//! A tile of queries and a KV head are one task, unless that would be too much of all the work: where few
//! sequences decode after long contexts, there are fewer of them than threads. Such a tile is cut between
//! stretches of its context; the softmax states after each are kept, and joined in a second round of tasks. That leaves
//! the bits as they are, so that which tiles are cut, and where, may depend on anything.

use super::kernels::{KEPT_QUERIES, STRETCH};
use super::tiling::{QueryTile, Tiling};
use std::ops::Range;

/// Numbers of f32 that are kept at once, at most: of as many tiles as that is room for. The others stay whole.
pub(super) const KEPT_MAX: usize = 8 << 20;

/// Some stretches of a tile, or a whole one: a task for each KV head.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TileTask {
    /// Number of the tile in the batch.
    pub(super) tile: usize,
    /// Its stretches.
    pub(super) stretches: Range<usize>,
    /// Where the states after them are kept, as an index of f32, of the first KV head; `None`: the tile is whole.
    pub(super) kept: Option<usize>,
}

/// A tile that was cut, to be joined: a task for each KV head.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    /// Number of the tile in the batch.
    pub(super) tile: usize,
    /// How many stretches it has.
    pub(super) stretches: usize,
    /// Where the states after the first of them are kept, as an index of f32, of the first KV head.
    pub(super) kept: usize,
}

/// The tasks of the layers of a KV group. Planned for the limits, refilled for every step.
#[derive(Debug)]
pub(super) struct Division {
    tiling: Tiling,
    /// Position `p` attends to `p - window + 1 ..= p`.
    window: usize,
    /// Tasks that all tiles of a micro-batch are cut into, about.
    wanted: usize,
    tasks: Vec<TileTask>,
    cuts: Vec<Cut>,
}

impl Division {
    /// Room for so many tiles and micro-batches of a step.
    pub(super) fn new(tiling: Tiling, window: Option<u32>, tiles_max: usize, micro_batches_max: usize) -> Self {
        // One thread joins for nobody.
        let wanted = if tiling.threads == 1 { 1 } else { tiling.tasks_wanted().div_ceil(tiling.kv_heads) };
        Self {
            tiling,
            window: window.map_or(usize::MAX, |window| window as usize),
            wanted,
            // As many tasks as are wanted, and at most one more of every tile, since shares are rounded.
            tasks: Vec::with_capacity(tiles_max + micro_batches_max * wanted),
            // Only a tile of more than one share is cut.
            cuts: Vec::with_capacity(micro_batches_max * wanted),
        }
    }

    /// Nothing is divided.
    pub(super) fn clear(&mut self) {
        self.tasks.clear();
        self.cuts.clear();
    }

    /// Divides the tiles of one more micro-batch, from number `first` on.
    pub(super) fn divide(&mut self, first: usize, tiles: &[QueryTile]) {
        let total: usize = tiles.iter().map(|tile| self.work(tile)).sum();
        let mut free = 0;
        for (tile, number) in tiles.iter().zip(first..) {
            let seen = self.seen(tile);
            let stretches = seen.start / STRETCH..seen.end.div_ceil(STRETCH);
            let share = (2 * self.work(tile) * self.wanted + total) / (2 * total);
            let pieces = share.clamp(1, stretches.len());
            let numbers = self.tiling.kept(tile.count);
            if pieces == 1 || free + stretches.len() * numbers > KEPT_MAX {
                self.tasks.push(TileTask { tile: number, stretches, kept: None });
                continue;
            }
            let begin = |piece: usize| piece * stretches.len() / pieces;
            self.tasks.extend((0..pieces).map(|piece| TileTask {
                tile: number,
                stretches: stretches.start + begin(piece)..stretches.start + begin(piece + 1),
                kept: Some(free + begin(piece) * numbers),
            }));
            self.cuts.push(Cut { tile: number, stretches: stretches.len(), kept: free });
            free += stretches.len() * numbers;
        }
    }

    /// Returns the tasks of these tiles.
    pub(super) fn tasks(&self, tiles: &Range<usize>) -> &[TileTask] {
        let begin = |tile: usize| self.tasks.partition_point(|task| task.tile < tile);
        &self.tasks[begin(tiles.start)..begin(tiles.end)]
    }

    /// Those of these tiles that were cut.
    pub(super) fn cuts(&self, tiles: &Range<usize>) -> &[Cut] {
        let begin = |tile: usize| self.cuts.partition_point(|cut| cut.tile < tile);
        &self.cuts[begin(tiles.start)..begin(tiles.end)]
    }

    /// Returns the positions that any query of a tile attends to.
    fn seen(&self, tile: &QueryTile) -> Range<usize> {
        (tile.positions.start + 1).saturating_sub(self.window)..tile.positions.end
    }

    /// Returns what a tile costs, in no unit: queries are multiplied so many at a time.
    fn work(&self, tile: &QueryTile) -> usize {
        self.seen(tile).len() * tile.count.next_multiple_of(KEPT_QUERIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tiles of one query row each, at these positions, with a group of so many queries.
    fn tiles(group: usize, positions: &[usize]) -> Vec<QueryTile> {
        let tile =
            |(row, &at): (usize, &usize)| QueryTile { span: row, row, first: 0, count: group, positions: at..at + 1 };
        positions.iter().enumerate().map(tile).collect()
    }

    fn division(tiling: Tiling, window: Option<u32>, parts: &[Vec<QueryTile>]) -> Division {
        let mut division = Division::new(tiling, window, parts.iter().map(Vec::len).sum(), parts.len());
        let room = (division.tasks.capacity(), division.cuts.capacity());
        let mut first = 0;
        for tiles in parts {
            division.divide(first, tiles);
            first += tiles.len();
        }
        assert_eq!(room, (division.tasks.capacity(), division.cuts.capacity()), "a step allocates nothing");
        division
    }

    const TILING: Tiling = Tiling { group: 4, kv_heads: 8, queries_max: 256, threads: 64, kept_numbers: 16 * 130 };

    #[test]
    fn every_stretch_is_in_one_piece_and_has_a_place_of_its_own() {
        let contexts = [100, 1024, 1025, 9_000, 40_000, 131_000].map(|context| context - 1);
        for (threads, kv_heads, window) in
            [(1, 1, None), (2, 1, None), (2, 8, None), (64, 8, None), (64, 2, Some(3000)), (1024, 1, Some(1))]
        {
            let tiling = Tiling { threads, kv_heads, ..TILING };
            for count in 1..=contexts.len() {
                let parts = [tiles(4, &contexts[..count]), tiles(4, &contexts[contexts.len() - count..])];
                let division = division(tiling, window, &parts);
                let mut first = 0;
                for tiles in &parts {
                    let numbers = first..first + tiles.len();
                    let (tasks, cuts) = (division.tasks(&numbers), division.cuts(&numbers));
                    let mut kept = 0;
                    for (tile, number) in tiles.iter().zip(numbers.clone()) {
                        let own: Vec<_> = tasks.iter().filter(|task| task.tile == number).collect();
                        let seen = division.seen(tile);
                        assert_eq!(own[0].stretches.start, seen.start / STRETCH);
                        assert_eq!(own[own.len() - 1].stretches.end, (seen.end - 1) / STRETCH + 1);
                        assert!(own.iter().all(|task| !task.stretches.is_empty()));
                        assert!(own.windows(2).all(|pair| pair[0].stretches.end == pair[1].stretches.start));
                        let cut: Vec<_> = cuts.iter().filter(|cut| cut.tile == number).collect();
                        assert_eq!(cut.len(), usize::from(own.len() > 1), "what is cut is joined");
                        for task in &own {
                            assert_eq!(task.kept, cut.first().map(|_| kept));
                            kept += cut.len() * task.stretches.len() * tiling.kept(tile.count);
                        }
                        let stretches: usize = own.iter().map(|task| task.stretches.len()).sum();
                        assert!(cut.iter().all(|cut| cut.stretches == stretches));
                    }
                    assert!(kept <= KEPT_MAX);
                    assert!(threads > 1 || cuts.is_empty());
                    first = numbers.end;
                }
            }
        }
    }

    #[test]
    fn a_long_context_is_cut_where_threads_would_wait_for_it() {
        let pieces = |threads: usize, kv_heads: usize, positions: &[usize]| {
            let tiles = tiles(4, positions);
            let division = division(Tiling { threads, kv_heads, ..TILING }, None, std::slice::from_ref(&tiles));
            let of = |number: &usize| division.tasks.iter().filter(|task| task.tile == *number).count();
            (0..tiles.len()).collect::<Vec<_>>().iter().map(of).collect::<Vec<_>>()
        };
        // As many tasks as are wanted, if there are so many stretches.
        assert_eq!(pieces(2, 8, &[40_000]), [1]);
        assert_eq!(pieces(2, 4, &[40_000]), [2]);
        assert_eq!(pieces(64, 8, &[40_000]), [32]);
        assert_eq!(pieces(64, 8, &[4_000]), [4]);
        assert_eq!(pieces(64, 8, &[1_000]), [1]);
        // A long one among short ones; equal ones are tasks enough.
        assert_eq!(pieces(16, 8, &[500, 500, 40_000, 500]), [1, 1, 8, 1]);
        assert_eq!(pieces(16, 8, &[10_000; 8]), [1; 8]);
    }

    #[test]
    fn tiles_for_which_there_is_no_room_stay_whole() {
        let tiles = tiles(64, &[131_071; 200]);
        let division = division(Tiling { threads: 1024, ..TILING }, None, std::slice::from_ref(&tiles));
        let one = 128 * TILING.kept(64);
        assert_eq!(division.cuts.len(), KEPT_MAX / one);
        assert_eq!(division.tasks.len() - division.tasks(&(0..division.cuts.len())).len(), 200 - division.cuts.len());
    }
}

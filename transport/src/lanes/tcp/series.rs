//! Series: pieces of one length at one distance from each other, which is how requests name pieces.
//!
//! So a strided read, however many slices it has, is asked for in a few bytes; and pieces that follow no rule, in
//! no more than one by one.

use crate::transfer::Piece;

/// Bytes of a series in a request.
pub(super) const SERIES_BYTES: usize = 24;

/// Pieces of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Series {
    /// Where the first one begins.
    pub(super) from: u64,
    /// From the beginning of one to that of the next.
    pub(super) stride: u64,
    /// Bytes of each.
    pub(super) len: u32,
    /// How many.
    pub(super) count: u32,
}

impl Series {
    fn of(piece: &Piece) -> Self {
        Self { from: piece.from, stride: 0, len: piece.len as u32, count: 1 }
    }

    /// Takes a piece in, if it is the next one.
    fn extend(&mut self, piece: &Piece) -> bool {
        let Some(distance) = piece.from.checked_sub(self.from).filter(|_| piece.len as u32 == self.len) else {
            return false;
        };
        if self.count == 1 {
            self.stride = distance;
        } else if distance != self.stride * u64::from(self.count) {
            return false;
        }
        self.count += 1;
        true
    }

    /// Returns where the `n`-th piece begins; it is one of them.
    pub(super) fn at(&self, n: u32) -> u64 {
        self.from + self.stride * u64::from(n)
    }

    /// Returns whether all its pieces are in a region of so many bytes, and each has `len_max` at most.
    pub(super) fn fits(&self, region: u64, len_max: usize) -> bool {
        let end = |last: u64| self.stride.checked_mul(last)?.checked_add(self.from)?.checked_add(self.len.into());
        let last = self.count.checked_sub(1).map(u64::from);
        (1..=len_max as u32).contains(&self.len) && last.and_then(end).is_some_and(|end| end <= region)
    }

    pub(super) fn encode(&self) -> [u8; SERIES_BYTES] {
        let mut bytes = [0; SERIES_BYTES];
        bytes[..8].copy_from_slice(&self.from.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.stride.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_le_bytes());
        bytes[20..].copy_from_slice(&self.count.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; SERIES_BYTES]) -> Self {
        let (from, rest) = bytes.split_first_chunk().expect("it is long enough");
        let (stride, rest) = rest.split_first_chunk().expect("it is long enough");
        let (len, rest) = rest.split_first_chunk().expect("it is long enough");
        let (count, _) = rest.split_first_chunk().expect("it is long enough");
        Self {
            from: u64::from_le_bytes(*from),
            stride: u64::from_le_bytes(*stride),
            len: u32::from_le_bytes(*len),
            count: u32::from_le_bytes(*count),
        }
    }
}

/// The series of the first of `pieces`, `series_max` at most, and how many pieces they have.
pub(super) fn first_series(pieces: &[Piece], series_max: usize) -> (Vec<Series>, usize) {
    let mut all: Vec<Series> = Vec::new();
    for (taken, piece) in pieces.iter().enumerate() {
        if all.last_mut().is_some_and(|last| last.extend(piece)) {
            continue;
        }
        if all.len() == series_max {
            return (all, taken);
        }
        all.push(Series::of(piece));
    }
    (all, pieces.len())
}

/// Series that are gone through piece by piece.
#[derive(Debug)]
pub(super) struct Walk {
    series: Vec<Series>,
    /// The series and the piece in it that come next.
    at: (usize, u32),
    left: usize,
}

impl Walk {
    pub(super) fn new(series: Vec<Series>) -> Self {
        let left = series.iter().map(|series| series.count as usize).sum();
        Self { series, at: (0, 0), left }
    }

    /// Pieces that come.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Where the next piece begins, and its bytes.
    pub(super) fn peek(&self) -> Option<(u64, u32)> {
        let (series, piece) = self.at;
        self.series.get(series).map(|series| (series.at(piece), series.len))
    }

    /// It is taken.
    pub(super) fn advance(&mut self) {
        let (series, piece) = self.at;
        if let Some(current) = self.series.get(series) {
            self.at = if piece + 1 < current.count { (series, piece + 1) } else { (series + 1, 0) };
            self.left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(places: &[(u64, usize)]) -> Vec<Piece> {
        places.iter().map(|&(from, len)| Piece { from, to: 0, len }).collect()
    }

    #[track_caller]
    fn check(places: &[(u64, usize)], expect: &[(u64, u64, u32, u32)]) {
        let (series, taken) = first_series(&pieces(places), 8);
        let plain: Vec<_> = series.iter().map(|it| (it.from, it.stride, it.len, it.count)).collect();
        assert_eq!((plain.as_slice(), taken), (expect, places.len()));
    }

    #[test]
    fn what_follows_a_rule_is_one_series() {
        check(&[(5, 2), (15, 2), (25, 2), (35, 2)], &[(5, 10, 2, 4)]);
        check(&[(5, 2)], &[(5, 0, 2, 1)]);
        check(&[(5, 2), (5, 2), (5, 2)], &[(5, 0, 2, 3)]);
        check(&[(0, 2), (10, 2), (30, 2), (50, 2)], &[(0, 10, 2, 2), (30, 20, 2, 2)]);
        check(&[(0, 2), (10, 3), (20, 3)], &[(0, 0, 2, 1), (10, 10, 3, 2)]);
        check(&[(9, 2), (1, 2)], &[(9, 0, 2, 1), (1, 0, 2, 1)]);
        check(&[], &[]);
        let many: Vec<_> = (0..100_000).map(|n| (n * 128, 64)).collect();
        check(&many, &[(0, 128, 64, 100_000)]);
        let (series, taken) = first_series(&pieces(&[(0, 1), (5, 2), (9, 3)]), 2);
        assert_eq!((series.len(), taken), (2, 2), "no more than may be");
    }

    #[test]
    fn a_series_that_leaves_its_region_does_not_fit() {
        let sound = Series { from: 10, stride: 20, len: 5, count: 3 };
        assert!(sound.fits(55, 5));
        assert!(!sound.fits(54, 5) && !sound.fits(55, 4));
        for wrong in [
            Series { len: 0, ..sound },
            Series { count: 0, ..sound },
            Series { from: u64::MAX, ..sound },
            Series { stride: u64::MAX, ..sound },
            Series { stride: u64::MAX / 2 + 1, ..sound },
        ] {
            assert!(!wrong.fits(1 << 40, 1 << 20), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn series_are_their_pieces(
            places in proptest::collection::vec((0..40_u64, 1..4_usize), 0..60), series_max in 1..20_usize,
        ) {
            let pieces = pieces(&places);
            let (series, taken) = first_series(&pieces, series_max);
            prop_assert!(series.len() <= series_max && (taken == pieces.len() || series.len() == series_max));
            let series: Vec<_> = series.iter().map(|series| Series::decode(&series.encode())).collect();
            let mut walk = Walk::new(series);
            for (n, piece) in pieces[..taken].iter().enumerate() {
                prop_assert_eq!(walk.left(), taken - n);
                prop_assert_eq!(walk.peek(), Some((piece.from, piece.len as u32)));
                walk.advance();
            }
            prop_assert_eq!((walk.left(), walk.peek()), (0, None));
        }
    }
}

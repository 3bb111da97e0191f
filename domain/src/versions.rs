//! How two ends of different releases settle on a version of their protocol.

use std::fmt;

/// What a message about [`Versions`] without a common one says at its end: the way out.
pub const NO_COMMON_VERSION: &str =
    "they have no version in common: a release works with the one before it, so upgrade one release at a time";

/// The versions of a protocol that an end speaks: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest number.
    pub oldest: u32,
    /// The highest number.
    pub newest: u32,
}

impl Versions {
    /// Returns the newest version that both ends speak. `None`: there is none.
    pub fn common(self, theirs: Self) -> Option<u32> {
        let newest = self.newest.min(theirs.newest);
        (newest >= self.oldest.max(theirs.oldest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            return write!(f, "{}", self.newest);
        }
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_that_both_speak_is_taken() {
        let common = |(oldest, newest), (theirs, their_newest)| {
            let (ours, theirs) = (Versions { oldest, newest }, Versions { oldest: theirs, newest: their_newest });
            assert_eq!(ours.common(theirs), theirs.common(ours));
            ours.common(theirs)
        };
        assert_eq!(common((5, 6), (5, 6)), Some(6));
        assert_eq!(common((5, 6), (5, 5)), Some(5));
        assert_eq!(common((5, 6), (6, 7)), Some(6));
        assert_eq!(common((5, 9), (6, 7)), Some(7));
        assert_eq!(common((5, 6), (7, 8)), None);
        assert_eq!(common((5, 5), (6, 6)), None);
    }

    #[test]
    fn a_range_of_one_is_a_number() {
        assert_eq!(Versions { oldest: 5, newest: 5 }.to_string(), "5");
        assert_eq!(Versions { oldest: 5, newest: 6 }.to_string(), "5 to 6");
    }
}

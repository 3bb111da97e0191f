//! The bytes of a step's inputs: one piece of pinned memory, which goes to the card as one copy.

/// A list in a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Section {
    /// Where it begins, in bytes from the slab's first.
    pub(super) at: usize,
    /// Bytes that it may have.
    pub(super) bytes: usize,
}

/// Lists begin at multiples of it, as 16-byte accesses want.
const ALIGNMENT: usize = 16;

/// Gives sections their places, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Places {
    end: usize,
}

impl Places {
    /// Makes room for so many bytes.
    pub(super) fn add(&mut self, bytes: usize) -> Section {
        let at = self.end;
        self.end = (at + bytes).next_multiple_of(ALIGNMENT);
        Section { at, bytes }
    }

    /// Returns the bytes of all sections.
    pub(super) fn end(&self) -> usize {
        self.end
    }
}

/// Writes into sections of a slab.
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// Begins with a slab of these bytes.
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes }
    }

    /// Writes words to a section, from word `from` of it on.
    ///
    /// # Panics
    /// The section has no room for them.
    pub(super) fn words(&mut self, section: Section, from: usize, words: impl IntoIterator<Item = u32>) {
        let own = &mut self.bytes[section.at..section.at + section.bytes];
        let mut places = own[from * size_of::<u32>()..].as_chunks_mut().0.iter_mut();
        for word in words {
            *places.next().expect("the section has room") = word.to_le_bytes();
        }
    }

    /// Writes bytes to a section, from byte `from` of it on.
    ///
    /// # Panics
    /// The section has no room for them.
    pub(super) fn bytes(&mut self, section: Section, from: usize, bytes: &[u8]) {
        self.bytes[section.at..section.at + section.bytes][from..from + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_lie_apart_and_are_aligned() {
        let mut places = Places::default();
        let sections = [places.add(4), places.add(0), places.add(17), places.add(16)];
        assert_eq!(sections.map(|section| section.at), [0, 16, 16, 48]);
        assert_eq!(places.end(), 64);
        let mut bytes = vec![0; places.end()];
        let mut writer = Writer::new(&mut bytes);
        writer.words(sections[0], 0, [7]);
        writer.words(sections[3], 2, [1, 2]);
        writer.bytes(sections[2], 15, &[8, 9]);
        assert_eq!((bytes[0], &bytes[31..33], bytes[56], bytes[60]), (7, &[8, 9][..], 1, 2));
    }

    #[test]
    #[should_panic(expected = "the section has room")]
    fn a_section_is_not_left() {
        let mut places = Places::default();
        let (first, _) = (places.add(4), places.add(16));
        let mut bytes = vec![0; places.end()];
        Writer::new(&mut bytes).words(first, 0, [1, 2]);
    }
}

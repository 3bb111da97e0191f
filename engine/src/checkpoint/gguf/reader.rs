//! Reads little-endian values one after the other; nothing is read, and no memory taken, beyond what is there.

use super::error::GgufError;
use std::fmt::Display;
use std::path::Path;

/// Longest text, in bytes: chat templates are the longest.
const TEXT_BYTES_MAX: u64 = 1 << 24;

/// What is wrong with a file whose name is not known here.
#[derive(Debug)]
pub(super) enum Broken {
    /// It is no GGUF file: what it begins with.
    Other(String),
    /// The part, and what is wrong with it.
    Part(String, String),
}

impl Broken {
    /// Returns the error for the file at `path`.
    pub(super) fn at(self, path: &Path) -> GgufError {
        let path = path.to_owned();
        match self {
            Self::Other(found) => GgufError::Other { path, found },
            Self::Part(what, reason) => GgufError::Broken { path, what, reason },
        }
    }
}

/// A place in a file.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// What is being read, for errors.
    part: String,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, part: String::new() }
    }

    /// What comes next is called `part` in errors.
    pub(super) fn part(&mut self, part: &str) {
        part.clone_into(&mut self.part);
    }

    /// Returns an error in this part.
    pub(super) fn broken(&self, reason: impl Display) -> Broken {
        Broken::Part(self.part.clone(), reason.to_string())
    }

    /// Returns the bytes before the next one.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the next `count` bytes.
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Broken> {
        let taken = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| {
            self.broken(format!("{count} bytes from {} on, of a file that has {}", self.at, self.bytes.len()))
        })?;
        self.at += count;
        Ok(taken)
    }

    /// The next bytes, as many as the array has.
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many were taken"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Broken> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Broken> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number of things of which a file has `max` at most.
    pub(super) fn count(&mut self, what: &str, max: u64) -> Result<usize, Broken> {
        let count = self.u64()?;
        let fits = usize::try_from(count).ok().filter(|_| count <= max);
        fits.ok_or_else(|| self.broken(format!("{count} {what}, of which {max} are possible")))
    }

    pub(super) fn text(&mut self) -> Result<String, Broken> {
        let length = self.count("bytes of a text", TEXT_BYTES_MAX)?;
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|error| self.broken(error))
    }
}

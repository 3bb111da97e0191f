//! The fields of messages to other agents, one behind the other: little-endian numbers, texts, and who a worker is.
//! The control protocol, the exchange of the lane `rdma` and exported metadata are written and read by them.
//!
//! What is deliberately absent: requests and answers of the lane `tcp`. Their heads have one length, which is there as
//! a whole before it is read, so reading a field of them cannot fail.

use crate::regions::RegionId;
use crate::wire_error::WireError;
use domain::{Incarnation, WorkerId};

/// Bytes of a text that is written. A longer one is cut.
const TEXT_BYTES_MAX: usize = 1024;

/// A message that is being written.
#[derive(Default)]
pub(crate) struct FieldWriter(Vec<u8>);

impl FieldWriter {
    /// Appends a byte.
    pub(crate) fn u8(self, value: u8) -> Self {
        self.bytes(&[value])
    }

    /// Appends a number of two bytes.
    pub(crate) fn u16(self, value: u16) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number of four bytes.
    pub(crate) fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends a number of eight bytes.
    pub(crate) fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends bytes, without their number.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends which region is meant.
    pub(crate) fn region(self, region: RegionId) -> Self {
        self.u32(region.0)
    }

    /// Appends who a worker is.
    pub(crate) fn who(self, (id, incarnation): (WorkerId, Incarnation)) -> Self {
        self.u32(id.0).u64(incarnation.0)
    }

    /// Appends a text with its length, cut to [`TEXT_BYTES_MAX`].
    pub(crate) fn text(self, text: &str) -> Self {
        let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        self.u16(text.len() as u16).bytes(text)
    }

    /// Appends as many fields as there are `items`, by `write`.
    pub(crate) fn each<T>(self, items: impl IntoIterator<Item = T>, write: impl Fn(Self, T) -> Self) -> Self {
        items.into_iter().fold(self, write)
    }

    /// Returns the message.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// What is left of a message that is being read.
pub(crate) struct FieldReader<'a>(&'a [u8]);

impl<'a> FieldReader<'a> {
    /// Reads `bytes` from their beginning.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Takes as many bytes as the caller names by the type.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::TooShort)?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Takes a byte.
    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        self.bytes().map(|[byte]| byte)
    }

    /// Takes a number of two bytes.
    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.bytes().map(u16::from_le_bytes)
    }

    /// Takes a number of four bytes.
    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// Takes a number of eight bytes.
    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// Takes which region is meant.
    pub(crate) fn region(&mut self) -> Result<RegionId, WireError> {
        self.u32().map(RegionId)
    }

    /// Takes who a worker is.
    pub(crate) fn who(&mut self) -> Result<(WorkerId, Incarnation), WireError> {
        Ok((WorkerId(self.u32()?), Incarnation(self.u64()?)))
    }

    /// Takes a text.
    pub(crate) fn text(&mut self) -> Result<String, WireError> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(len).ok_or(WireError::TooShort)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| WireError::NotUtf8)
    }

    /// Checks that nothing is left.
    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::TooLong(self.0.len())) }
    }
}

/// Reads a message that names a region and says nothing else: it is registered no more.
pub(crate) fn read_region(message: &[u8]) -> Result<RegionId, WireError> {
    let mut fields = FieldReader::new(message);
    let region = fields.region()?;
    fields.end()?;
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let who = (WorkerId(3), Incarnation(1 << 40));
        let message = FieldWriter::default()
            .u8(1)
            .u16(0x0302)
            .u32(0x0706_0504)
            .u64(8)
            .bytes(&[9, 10])
            .region(RegionId(7))
            .who(who)
            .text("näme")
            .each([5, 6], FieldWriter::u8)
            .finish();
        assert_eq!(message[..7], [1, 2, 3, 4, 5, 6, 7], "numbers are little endian");
        let read = |message: &[u8]| {
            let mut fields = FieldReader::new(message);
            let numbers = (fields.u8()?, fields.u16()?, fields.u32()?, fields.u64()?);
            let (bytes, region, worker, text) = (fields.bytes()?, fields.region()?, fields.who()?, fields.text()?);
            let last: [u8; 2] = fields.bytes()?;
            fields.end()?;
            Ok::<_, WireError>((numbers, bytes, region, worker, text, last))
        };
        let expect = ((1, 0x0302, 0x0706_0504, 8), [9, 10], RegionId(7), who, "näme".to_owned(), [5, 6]);
        assert_eq!(read(&message), Ok(expect));
        (0..message.len()).for_each(|len| assert_eq!(read(&message[..len]), Err(WireError::TooShort), "{len} bytes"));
        assert_eq!(read(&[message.as_slice(), &[0, 0]].concat()), Err(WireError::TooLong(2)));
    }

    #[test]
    fn texts_are_cut_between_characters_and_must_be_utf8() {
        let long = FieldWriter::default().text(&format!("{}ä", "x".repeat(TEXT_BYTES_MAX - 1))).finish();
        assert_eq!(FieldReader::new(&long).text().map(|text| text.len()), Ok(TEXT_BYTES_MAX - 1));
        assert_eq!(FieldReader::new(&[1, 0, 0xFF]).text(), Err(WireError::NotUtf8));
    }
}

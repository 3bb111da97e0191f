//! What stands before the data: metadata and the list of tensors.

use super::format::format;
use super::reader::{Broken, Reader};
use super::value::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// The four bytes that a GGUF file begins with.
pub(super) const MAGIC: &[u8; 4] = b"GGUF";

/// Versions that are read: 3 differs from 2 in nothing but that big-endian files exist.
const VERSIONS: [u32; 2] = [2, 3];
/// Most metadata entries.
const ENTRIES_MAX: u64 = 1 << 16;
/// Most tensors.
const TENSORS_MAX: u64 = 1 << 20;
/// Most dimensions of a tensor, as in ggml.
const DIMENSIONS_MAX: u32 = 4;
/// Where tensors begin, if the file does not say: at multiples of this, in bytes.
pub(super) const ALIGNMENT_DEFAULT: u64 = 32;

/// A tensor of a GGUF file.
#[derive(Debug)]
pub(in crate::checkpoint) struct GgufTensor {
    /// ggml's number of its format.
    pub(in crate::checkpoint) kind: u32,
    /// Slowest dimension first.
    pub(in crate::checkpoint) shape: Vec<usize>,
    /// Which of the model's files it is in.
    pub(in crate::checkpoint) file: usize,
    /// Bytes of the file; up to where the next tensor begins, if the format is not one that is read.
    pub(in crate::checkpoint) range: Range<usize>,
}

/// Values and tensors by their names.
type Parsed = (BTreeMap<String, Value>, BTreeMap<String, GgufTensor>);

/// Reads the header of a file that is all of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Broken> {
    parse_head(bytes, bytes.len())
}

/// Reads the header of a file of `length` bytes, of which `bytes` are the first.
pub(super) fn parse_head(bytes: &[u8], length: usize) -> Result<Parsed, Broken> {
    let mut reader = Reader::new(bytes);
    reader.part("its first bytes");
    let magic = bytes.get(..MAGIC.len()).ok_or_else(|| Broken::Other(format!("it has {} bytes", bytes.len())))?;
    if magic != MAGIC {
        return Err(Broken::Other(format!("it begins with {:?}", String::from_utf8_lossy(magic))));
    }
    reader.take(MAGIC.len())?;
    let version = reader.u32()?;
    if !VERSIONS.contains(&version) {
        return Err(Broken::Other(format!("its version is {version}")));
    }
    let tensor_count = reader.count("tensors", TENSORS_MAX)?;
    let entry_count = reader.count("metadata entries", ENTRIES_MAX)?;

    let mut values = BTreeMap::new();
    for _ in 0..entry_count {
        reader.part("its metadata");
        let key = reader.text()?;
        reader.part(&key);
        let value = Value::read(&mut reader)?;
        if values.insert(key, value).is_some() {
            return Err(reader.broken("it is there twice"));
        }
    }
    let mut infos = Vec::new();
    for _ in 0..tensor_count {
        reader.part("its list of tensors");
        infos.push(TensorInfo::read(&mut reader)?);
    }
    reader.part("general.alignment");
    let alignment = match values.get("general.alignment") {
        None => ALIGNMENT_DEFAULT,
        Some(Value::Integer(alignment)) if (1..=1 << 20).contains(alignment) => *alignment as u64,
        Some(other) => return Err(reader.broken(format!("it is {other}"))),
    };
    let data = (reader.at() as u64).next_multiple_of(alignment);
    let mut offsets: Vec<u64> = infos.iter().map(|info| info.offset).collect();
    offsets.sort_unstable();
    let mut tensors = BTreeMap::new();
    for info in infos {
        reader.part(&info.name);
        let next = offsets.get(offsets.partition_point(|&offset| offset <= info.offset)).copied();
        let tensor = info.locate(&reader, data, next, length)?;
        if tensors.insert(info.name, tensor).is_some() {
            return Err(reader.broken("it is there twice"));
        }
    }
    Ok((values, tensors))
}

/// An entry of the list of tensors.
struct TensorInfo {
    name: String,
    /// Slowest dimension first.
    shape: Vec<u64>,
    kind: u32,
    /// From where the data begins.
    offset: u64,
}

impl TensorInfo {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Broken> {
        let name = reader.text()?;
        reader.part(&name);
        let dimensions = reader.u32()?;
        if dimensions == 0 || dimensions > DIMENSIONS_MAX {
            return Err(reader.broken(format!("{dimensions} dimensions")));
        }
        // The file has the fastest dimension first.
        let mut shape = (0..dimensions).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()?;
        shape.reverse();
        Ok(Self { name, shape, kind: reader.u32()?, offset: reader.u64()? })
    }

    /// Returns where it lies in a file of `length` bytes whose data begins at `data`. `next`: the offset of the tensor
    /// behind it.
    fn locate(&self, reader: &Reader<'_>, data: u64, next: Option<u64>, length: usize) -> Result<GgufTensor, Broken> {
        let too_large = || reader.broken(format!("its shape is {:?}", self.shape));
        let shape = self.shape.iter().map(|&size| usize::try_from(size).ok().filter(|size| *size > 0));
        let shape = shape.collect::<Option<Vec<usize>>>().ok_or_else(too_large)?;
        let numbers = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size)).ok_or_else(too_large)?;
        let row = shape.last().copied().unwrap_or(1);
        let bytes = match format(self.kind) {
            Some(format) if !row.is_multiple_of(format.block_numbers()) => {
                let block = format.block_numbers();
                return Err(reader.broken(format!("rows of {row} numbers in {format}, which has blocks of {block}")));
            }
            Some(format) if format.block_numbers() > 1 && shape.len() == 1 => {
                return Err(reader.broken(format!("one dimension in {format}, which is for matrices")));
            }
            Some(format) => format.bytes(numbers).ok_or_else(too_large)?,
            // How its numbers are packed is not known here.
            None => {
                let end = next.map_or(length as u64, |next| data.saturating_add(next).min(length as u64));
                end.saturating_sub(data.saturating_add(self.offset)) as usize
            }
        };
        let from = data.checked_add(self.offset).and_then(|from| usize::try_from(from).ok());
        let range = from.and_then(|from| Some(from..from.checked_add(bytes)?)).filter(|range| range.end <= length);
        let range = range.ok_or_else(|| {
            reader.broken(format!(
                "{bytes} bytes from {} on, of a file that has {length}",
                data.saturating_add(self.offset)
            ))
        })?;
        Ok(GgufTensor { kind: self.kind, shape, file: 0, range })
    }
}

//! Quantised weights in the order that the kernels read them.
//!
//! 16 outputs are a fragment. Its inputs are cut into units, and a unit of 16 outputs lies in one piece: first the
//! integers, 16 bytes of a lane after those of the lane before, then the scales. `kernels/quantised.cuh` says for each
//! form what a lane's bytes are. Nothing is rounded or lost; what a unit has beyond the matrix is zero.

use super::WeightForm;

/// Outputs of a fragment.
pub(super) const FRAGMENT: usize = 16;

/// Half of a fragment: a lane has an output of each half.
const HALF: usize = FRAGMENT / 2;

/// Inputs of a group, which is a block of the forms with blocks of 32.
const GROUP: usize = 32;

/// Bytes of an access of all 32 lanes, and of one for each of eight outputs.
const OWN_BYTES: usize = 512;
const SHARED_BYTES: usize = 128;

/// Where the integers of the first group are in a block of each form.
const Q4K_NUMBERS: usize = 16;

/// What is to be known of a quantised form.
#[derive(Clone, Copy)]
struct Shape {
    /// Inputs and bytes of a block in a file.
    block: (usize, usize),
    /// Inputs and bytes of a unit.
    unit: (usize, usize),
}

impl WeightForm {
    fn shape(self) -> Option<Shape> {
        let (block, unit) = match self {
            Self::Bf16 => return None,
            Self::Q8_0 => ((32, 34), (128, 4 * OWN_BYTES + SHARED_BYTES)),
            Self::Q4_0 => ((32, 18), (128, 2 * OWN_BYTES + SHARED_BYTES)),
            Self::Q4_1 => ((32, 20), (128, 2 * OWN_BYTES + 2 * SHARED_BYTES)),
            Self::Q4K => ((256, 144), (256, 4 * OWN_BYTES + 2 * SHARED_BYTES + HALF * 8)),
            Self::Q6K => ((256, 210), (256, 6 * OWN_BYTES + 2 * SHARED_BYTES + HALF * 4)),
        };
        Some(Shape { block, unit })
    }

    /// Returns the bytes of a unit; 0: it has none.
    pub(super) fn unit_bytes(self) -> usize {
        self.shape().map_or(0, |shape| shape.unit.1)
    }

    /// Returns what the inputs must be a multiple of.
    pub fn block_inputs(self) -> u32 {
        self.shape().map_or(GROUP as u32, |shape| shape.block.0 as u32)
    }

    /// Returns the bytes of a row of `inputs` in a file.
    pub fn row_bytes(self, inputs: usize) -> usize {
        self.shape().map_or(inputs * 2, |shape| inputs / shape.block.0 * shape.block.1)
    }

    /// Returns the bytes of a matrix in device memory.
    pub fn packed_bytes(self, outputs: usize, inputs: usize) -> usize {
        match self.shape() {
            None => outputs * inputs * 2,
            Some(shape) => outputs.div_ceil(FRAGMENT) * inputs.div_ceil(shape.unit.0) * shape.unit.1,
        }
    }

    /// Returns the rows that are packed together: a matrix may be packed in parts that begin at multiples of it.
    pub fn rows_together(self) -> usize {
        self.shape().map_or(1, |_| FRAGMENT)
    }

    /// Packs rows of a file's blocks, each of `row_bytes`. A part that begins and ends at multiples of 16 outputs is
    /// packed as in the whole matrix, so threads can share the work. Bf16 is copied.
    ///
    /// # Panics
    /// `rows` or `packed` have other lengths than the functions above say, or `inputs` are no whole blocks.
    pub fn pack<R: AsRef<[u8]>>(self, rows: &[R], inputs: usize, packed: &mut [u8]) {
        let row_bytes = self.row_bytes(inputs);
        assert!(inputs.is_multiple_of(self.block_inputs() as usize), "{inputs} inputs of {self:?}");
        assert!(rows.iter().all(|row| row.as_ref().len() == row_bytes), "bytes of rows");
        assert_eq!(packed.len(), self.packed_bytes(rows.len(), inputs), "bytes of packed weights");
        let Some(shape) = self.shape() else {
            let places = packed.chunks_exact_mut(row_bytes).zip(rows);
            return places.for_each(|(to, row)| to.copy_from_slice(row.as_ref()));
        };
        packed.fill(0);
        let units = inputs.div_ceil(shape.unit.0);
        let bytes_of_unit = shape.unit.0 / shape.block.0 * shape.block.1;
        for (output, row) in rows.iter().map(AsRef::as_ref).enumerate() {
            let fragment = &mut packed[output / FRAGMENT * units * shape.unit.1..][..units * shape.unit.1];
            let place = Place { g: output % HALF, is_lower: output % FRAGMENT / HALF };
            for (unit, blocks) in fragment.chunks_exact_mut(shape.unit.1).zip(row.chunks(bytes_of_unit)) {
                match self {
                    Self::Bf16 => unreachable!("it has no units"),
                    Self::Q8_0 => place.pack_q8_0(blocks, unit),
                    Self::Q4_0 => place.pack_q4(blocks, 1, unit),
                    Self::Q4_1 => place.pack_q4(blocks, 2, unit),
                    Self::Q4K => place.pack_q4k(blocks, unit),
                    Self::Q6K => place.pack_q6k(blocks, unit),
                }
            }
        }
    }
}

/// An output's place in its fragment.
#[derive(Clone, Copy)]
struct Place {
    g: usize,
    /// 0: outputs 0 to 7; 1: the others.
    is_lower: usize,
}

impl Place {
    /// Returns where the bytes of lane `t` of four begin in access `own`.
    fn lane(self, own: usize, t: usize) -> usize {
        own * OWN_BYTES + (self.g * 4 + t) * 16
    }

    /// Puts number `at` of four, each of two bytes, into shared access `shared`, behind `owns` accesses.
    fn put_scale(self, owns: usize, shared: usize, at: usize, bytes: &[u8], unit: &mut [u8]) {
        let from = owns * OWN_BYTES + shared * SHARED_BYTES + self.g * 16 + self.is_lower * 8 + at * 2;
        unit[from..][..2].copy_from_slice(bytes);
    }

    /// Puts 32 integers of 4 bits. Lane `t` takes eight of them, as `input` says.
    fn put_nibbles(self, group: usize, numbers: &[u8; GROUP], input: fn(usize, usize) -> usize, unit: &mut [u8]) {
        for t in 0..4 {
            let word = (0..8).fold(0_u32, |word, i| {
                let shift = i / 2 * 4 + i % 2 * 16;
                word | u32::from(numbers[input(t, i)] & 15) << shift
            });
            let at = self.lane(group / 2, t) + group % 2 * 8 + self.is_lower * 4;
            unit[at..][..4].copy_from_slice(&word.to_le_bytes());
        }
    }

    fn pack_q8_0(self, blocks: &[u8], unit: &mut [u8]) {
        for (group, block) in blocks.chunks_exact(34).enumerate() {
            let (scale, numbers) = block.split_at(2);
            self.put_scale(4, 0, group, scale, unit);
            for t in 0..4 {
                for i in 0..8 {
                    // Of four bytes the two in the middle change places.
                    let byte = i / 4 * 4 + [0, 2, 1, 3][i % 4];
                    unit[self.lane(group, t) + self.is_lower * 8 + byte] = numbers[eight_in_a_row(t, i)];
                }
            }
        }
    }

    /// Packs Q4_0, which has one number of 16 bits ahead of a block's integers, and Q4_1, which has two.
    fn pack_q4(self, blocks: &[u8], ahead: usize, unit: &mut [u8]) {
        for (group, block) in blocks.chunks_exact(2 * ahead + GROUP / 2).enumerate() {
            for (shared, scale) in block[..2 * ahead].chunks_exact(2).enumerate() {
                self.put_scale(2, shared, group, scale, unit);
            }
            let bytes = &block[2 * ahead..];
            let numbers = std::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15);
            self.put_nibbles(group, &numbers, eight_in_a_row, unit);
        }
    }

    fn pack_q4k(self, block: &[u8], unit: &mut [u8]) {
        let (parts, numbers) = (&block[4..16], &block[Q4K_NUMBERS..]);
        let own_parts = 4 * OWN_BYTES + self.is_lower * SHARED_BYTES + self.g * 16;
        for group in 0..8 {
            let (scale, min) = scale_and_min(parts, group);
            unit[own_parts + group] = scale;
            unit[own_parts + 8 + group] = min;
            let bytes = &numbers[group / 2 * GROUP..][..GROUP];
            let numbers = std::array::from_fn(|i| bytes[i] >> (group % 2 * 4) & 15);
            self.put_nibbles(group, &numbers, eight_in_a_row, unit);
        }
        let ends = 4 * OWN_BYTES + 2 * SHARED_BYTES + self.g * 8 + self.is_lower * 4;
        unit[ends..][..4].copy_from_slice(&block[..4]);
    }

    fn pack_q6k(self, block: &[u8], unit: &mut [u8]) {
        let (low, rest) = block.split_at(128);
        let (high, rest) = rest.split_at(64);
        let (parts, end) = rest.split_at(16);
        for group in 0..8 {
            // A half of the block has four groups: two in the lower nibbles of 64 bytes, two in the upper ones.
            let (half, quarter) = (group / 4, group % 4);
            let low = &low[half * 64 + quarter % 2 * GROUP..][..GROUP];
            let high = &high[half * GROUP..][..GROUP];
            let numbers = std::array::from_fn(|i| low[i] >> (quarter / 2 * 4) & 15);
            self.put_nibbles(group, &numbers, four_of_each_half, unit);
            for t in 0..4 {
                let at = self.lane(4 + group / 4, t) + group / 2 % 2 * 8 + self.is_lower * 4;
                let word = (0..8).fold(0_u32, |word, i| {
                    let bits = high[four_of_each_half(t, i)] >> (quarter * 2) & 3;
                    word | u32::from(bits) << (i / 2 * 2 + group % 2 * 8 + i % 2 * 16)
                });
                for (to, byte) in unit[at..][..4].iter_mut().zip(word.to_le_bytes()) {
                    *to |= byte;
                }
            }
        }
        let own_parts = 6 * OWN_BYTES + self.is_lower * SHARED_BYTES + self.g * 16;
        unit[own_parts..][..16].copy_from_slice(parts);
        let ends = 6 * OWN_BYTES + 2 * SHARED_BYTES + self.g * 4 + self.is_lower * 2;
        unit[ends..][..2].copy_from_slice(end);
    }
}

/// Returns which input of a group is number `i` of eight of lane `t`.
fn eight_in_a_row(t: usize, i: usize) -> usize {
    8 * t + i
}

/// As `eight_in_a_row`, where each half of a group has a scale of its own.
fn four_of_each_half(t: usize, i: usize) -> usize {
    i / 4 * 16 + 4 * t + i % 4
}

/// Returns scale and min of a part of a block of Q4_K: of 6 bits each, in 12 bytes.
fn scale_and_min(parts: &[u8], part: usize) -> (u8, u8) {
    if part < 4 {
        return (parts[part] & 63, parts[part + 4] & 63);
    }
    let low = parts[part + 4];
    (low & 15 | parts[part - 4] >> 6 << 4, low >> 4 | parts[part] >> 6 << 4)
}

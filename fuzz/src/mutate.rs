//! Changes of bytes that readers of formats dislike, decided by a seed.

/// Numbers at which lengths and counts go wrong.
const ODD: [u64; 10] =
    [0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF];
/// Bytes of a changed input, at most.
const BYTES_MAX: usize = 64 << 10;

/// Changes inputs; the same ones for the same seed.
pub struct Mutator(u64);

impl Mutator {
    /// A mutator that this seed decides.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One to eight changes of `input`, some with bytes of `other`.
    pub fn change(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(8) {
            self.change_once(&mut bytes, other);
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        match self.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            2 if at < bytes.len() => bytes[at] = self.next() as u8,
            3 => {
                // An odd number, of one to eight bytes, in place of what is there.
                let odd = ODD[self.below(ODD.len())].to_le_bytes();
                let len = 1 << self.below(4);
                bytes.iter_mut().skip(at).zip(&odd[..len]).for_each(|(byte, odd)| *byte = *odd);
            }
            4 => {
                let end = at + self.below(bytes.len() - at + 1);
                bytes.drain(at..end);
            }
            5 => {
                let end = at + self.below(bytes.len() - at + 1).min(64);
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let from = self.below(other.len() + 1);
                let to = from + self.below(other.len() - from + 1);
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }

    /// A number under `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

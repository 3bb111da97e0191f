//! Vectors of 16 f32 lanes on AVX-512, on AVX2 with FMA, on NEON, and in plain Rust; which of them, is chosen at
//! run time. Of AVX-512 there are levels, and NEON is with dot products of bytes or without, since kernels use
//! more than vectors of f32.
//!
//! All vectors compute the same bits: every operation is either exact data movement or one correctly rounded IEEE
//! operation per lane, and folds over lanes have one order. So a kernel written over [`Simd`] gives the same result on
//! every machine.
//!
//! A value of an instruction set's type is the proof that this CPU has it: only [`Isa::available`] makes one. That is
//! why arithmetic is safe to call; only loads and stores are not.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plain;
#[cfg(test)]
mod tests;
mod vector;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::{Avx512, Avx512Level};
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use plain::Plain;
#[cfg(test)]
pub(crate) use vector::{EXP_MAX, EXP_MIN};
pub(crate) use vector::{LANES, Number, Simd};

use std::fmt;

/// An instruction set that this CPU has.
#[derive(Clone, Copy)]
pub enum Isa {
    /// Plain Rust; runs everywhere.
    Plain(Plain),
    /// AVX2 with FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512, of some level.
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// NEON, with dot products of bytes or without.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Isa {
    /// The instruction sets that this CPU has, best first.
    pub fn available() -> Vec<Isa> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            found.extend(Avx512::detect().into_iter().map(Isa::Avx512));
            found.extend(Avx2::detect().map(Isa::Avx2));
        }
        #[cfg(target_arch = "aarch64")]
        found.extend(Neon::detect().into_iter().map(Isa::Neon));
        found.push(Isa::Plain(Plain));
        found
    }

    /// The best instruction set that this CPU has.
    pub fn best() -> Isa {
        Self::available()[0]
    }
}

impl fmt::Debug for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Plain(_) => "plain",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512(s) => s.name(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(s) => s.name(),
        })
    }
}

//! The inner loops: each a generic function over [`Simd`] and [`Number`], compiled once per instruction set and number
//! format and chosen per call.
//!
//! Kernels take raw pointers, since several threads write disjoint parts of one buffer, and other threads use other
//! blocks of a KV pool meanwhile. What may be read and written is each kernel's safety condition.
//!
//! What is deliberately absent: threads and the division of work among them (`step` has that).
//!
//! [`Simd`]: super::simd::Simd
//! [`Number`]: super::simd::Number

mod activation;
mod attention;
mod cap;
mod linear;
mod norm;
mod rotary;
#[cfg(test)]
mod tests;

pub(super) use activation::{Gated, gated};
pub(super) use attention::{
    Attention, HEAD_DIM_MAX, KEPT_QUERIES, KeptStates, QUERY_TILE, STRETCH, attend_stretches, attention, join,
    kept_numbers, queries_max,
};
pub(super) use cap::{CapRow, cap_row};
#[cfg(target_arch = "x86_64")]
pub(super) use linear::Tiles;
pub(super) use linear::{Form, PANEL, Preparation, Prepared, Product, Start};
pub(super) use norm::{RmsNorm, rms_norm};
pub(super) use rotary::{CacheRow, RotaryRow, cache_row, rotary};

/// Defines `fn $name(isa, dtype, args)`, which runs the generic function `$generic::<S, N>(s, args)` compiled for the
/// instruction set and the number format; with `plain numbers`, `fn $name(isa, args)` and `$generic::<S>(s, args)`.
macro_rules! dispatch {
    ($(#[$doc:meta])* fn $name:ident($args:ty) = $generic:ident, plain numbers) => {
        $(#[$doc])*
        pub(in crate::cpu) unsafe fn $name(isa: $crate::cpu::simd::Isa, args: &$args) {
            use $crate::cpu::simd::{Isa, Plain};
            #[cfg(target_arch = "aarch64")]
            use $crate::cpu::simd::Neon;
            #[cfg(target_arch = "x86_64")]
            use $crate::cpu::simd::{Avx2, Avx512};

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma,f16c")]
            unsafe fn avx512(s: Avx512, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic(s, args) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2(s: Avx2, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic(s, args) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            unsafe fn neon(s: Neon, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic(s, args) }
            }
            unsafe fn plain(s: Plain, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic(s, args) }
            }
            // SAFETY: the value inside `isa` proves that the CPU has the features; the rest as the caller says.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512(s) => avx512(s, args),
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2(s) => avx2(s, args),
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon(s) => neon(s, args),
                    Isa::Plain(s) => plain(s, args),
                }
            }
        }
    };
    ($(#[$doc:meta])* fn $name:ident($args:ty) = $generic:ident) => {
        $(#[$doc])*
        pub(in crate::cpu) unsafe fn $name(isa: $crate::cpu::simd::Isa, dtype: domain::Dtype, args: &$args) {
            use domain::Dtype;
            use half::{bf16, f16};
            use $crate::cpu::simd::{Isa, Number, Plain};
            #[cfg(target_arch = "aarch64")]
            use $crate::cpu::simd::Neon;
            #[cfg(target_arch = "x86_64")]
            use $crate::cpu::simd::{Avx2, Avx512};

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma,f16c")]
            unsafe fn avx512<N: Number>(s: Avx512, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic::<_, N>(s, args) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2<N: Number>(s: Avx2, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic::<_, N>(s, args) }
            }
            #[cfg(target_arch = "aarch64")]
            #[target_feature(enable = "neon")]
            unsafe fn neon<N: Number>(s: Neon, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic::<_, N>(s, args) }
            }
            unsafe fn plain<N: Number>(s: Plain, args: &$args) {
                // SAFETY: as the caller says.
                unsafe { $generic::<_, N>(s, args) }
            }
            // SAFETY: the value inside `isa` proves that the CPU has the features; the rest as the caller says.
            unsafe {
                match (isa, dtype) {
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx512(s), Dtype::F32) => avx512::<f32>(s, args),
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx512(s), Dtype::F16) => avx512::<f16>(s, args),
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx512(s), Dtype::Bf16) => avx512::<bf16>(s, args),
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx2(s), Dtype::F32) => avx2::<f32>(s, args),
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx2(s), Dtype::F16) => avx2::<f16>(s, args),
                    #[cfg(target_arch = "x86_64")]
                    (Isa::Avx2(s), Dtype::Bf16) => avx2::<bf16>(s, args),
                    #[cfg(target_arch = "aarch64")]
                    (Isa::Neon(s), Dtype::F32) => neon::<f32>(s, args),
                    #[cfg(target_arch = "aarch64")]
                    (Isa::Neon(s), Dtype::F16) => neon::<f16>(s, args),
                    #[cfg(target_arch = "aarch64")]
                    (Isa::Neon(s), Dtype::Bf16) => neon::<bf16>(s, args),
                    (Isa::Plain(s), Dtype::F32) => plain::<f32>(s, args),
                    (Isa::Plain(s), Dtype::F16) => plain::<f16>(s, args),
                    (Isa::Plain(s), Dtype::Bf16) => plain::<bf16>(s, args),
                }
            }
        }
    };
}
use dispatch;

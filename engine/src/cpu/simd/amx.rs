//! Whether this process may use AMX: registers of 8 tiles of 16 rows of 64 bytes, and products of tiles.
//!
//! Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter "Programming with Intel
//! AMX"; Documentation/arch/x86/xstate.rst of Linux.

use std::sync::OnceLock;

/// `arch_prctl`: asks for the use of a part of the processor's state.
#[cfg(target_os = "linux")]
const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
/// The state of the tiles.
#[cfg(target_os = "linux")]
const XFEATURE_XTILEDATA: libc::c_long = 18;
/// Bits of leaf 7, EDX, of `cpuid`: products of bf16, tiles, products of bytes.
const FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25;

/// Returns whether the CPU has tiles with products of bf16 and of bytes, and the system lets this process use them. The
/// first call asks the system, for all threads that there are and will be.
pub(super) fn permitted() -> bool {
    static PERMITTED: OnceLock<bool> = OnceLock::new();
    *PERMITTED.get_or_init(|| {
        let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
        features & FEATURES == FEATURES && asked()
    })
}

#[cfg(target_os = "linux")]
fn asked() -> bool {
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

/// Elsewhere nobody says how to ask.
#[cfg(not(target_os = "linux"))]
fn asked() -> bool {
    false
}

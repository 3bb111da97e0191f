//! The copy out of memory whose owner may be writing it.
//!
//! A reader whose lease lapsed may read bytes that the owner is overwriting. It will throw them away, but the copy
//! itself must not be undefined behaviour: so the compiler sees no access, only an opaque instruction.

/// Copies `len` bytes from `from` to `to`; bytes that another thread or process writes meanwhile arrive torn.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, the two must not overlap, and nobody else may access the
/// destination meanwhile.
pub(crate) unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise covers both ranges; `rep movsb` with the direction flag clear (the ABI guarantees
    // it) reads and writes exactly these.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise covers both ranges; volatile accesses are not assumed to be free of races.
    unsafe {
        let words = len / 8;
        if (from as usize | to as usize) % 8 == 0 {
            for i in 0..words {
                to.cast::<u64>().add(i).write_volatile(from.cast::<u64>().add(i).read_volatile());
            }
            for i in words * 8..len {
                to.add(i).write_volatile(from.add(i).read_volatile());
            }
        } else {
            for i in 0..len {
                to.add(i).write_volatile(from.add(i).read_volatile());
            }
        }
    }
}

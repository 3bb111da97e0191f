//! The copy out of memory whose owner may be writing it.
//!
//! A reader whose lease lapsed may read bytes that the owner is overwriting. It will throw them away, but the copy
//! itself must not be undefined behaviour: so the compiler sees no access, only an opaque instruction.

/// Copies of so many bytes and more go past the caches. They are read out of memory, and would only push out of
/// the caches what the threads that compute have there; and memory then need not be read before it is written,
/// which is a third of the traffic.
#[cfg(target_arch = "x86_64")]
const STREAM_BYTES_MIN: usize = 64 << 10;

/// Copies `len` bytes from `from` to `to`; bytes that another thread or process writes meanwhile arrive torn.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, the two must not overlap, and no other code may use the
/// destination meanwhile.
pub unsafe fn copy_racing(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAM_BYTES_MIN {
        // The first bytes, so that the rest begins with a line.
        let head = to.align_offset(LINE);
        let groups = (len - head) / GROUP;
        let done = head + groups * GROUP;
        // SAFETY: the caller's promise covers both ranges, and the parts are parts of them.
        return unsafe {
            copy_racing_cached(from, to, head);
            stream_groups(from.add(head), to.add(head), groups);
            copy_racing_cached(from.add(done), to.add(done), len - done);
        };
    }
    // SAFETY: as the caller says.
    unsafe { copy_racing_cached(from, to, len) }
}

/// Copies `len` bytes that are looked at next, and so are left in the caches; bytes that another thread or process
/// writes meanwhile arrive torn.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes, the two must not overlap, and no other code may use the
/// destination meanwhile.
pub unsafe fn copy_racing_cached(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise covers both ranges; `rep movsb` with the direction flag clear (the ABI
    // guarantees it) reads and writes exactly these.
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

/// Has the line at an address brought into the caches, if it is one of memory.
#[inline(always)]
pub fn fetch_ahead(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it is a hint, which reads nothing and never faults; SSE is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Brings `len` bytes that will be written soon into the caches of this core, a line of each of some pages in turn: see
/// [`stream_groups`].
pub fn fetch_to_write(to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for group in (0..len).step_by(GROUP) {
        for line in (0..PAGE).step_by(LINE) {
            for at in (group + line..len.min(group + GROUP)).step_by(PAGE) {
                let at = to.wrapping_add(at);
                // SAFETY: it is a hint, which writes nothing and never faults; processors that do not know it skip it.
                unsafe {
                    std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
                }
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (to, len);
}

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes of the pages that are copied together.
pub(crate) const GROUP: usize = 4 * PAGE;

/// Copies what the caches hold on to memory: past them, where it is a whole group and `to` is aligned to lines.
///
/// # Safety
/// `to` must be writable for as many bytes, which must not overlap them, and no other code may use those meanwhile.
pub(crate) unsafe fn copy_on(part: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if part.len() == GROUP && to.addr().is_multiple_of(LINE) {
        // SAFETY: the caller's promise covers the group.
        return unsafe { stream_groups(part.as_ptr(), to, 1) };
    }
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()) }
}

/// Keeps stores before it and after it apart, those past the caches too, which are in no order else.
#[cfg(target_arch = "x86_64")]
pub(crate) fn order_stores() {
    // SAFETY: it orders stores and touches nothing.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) };
}

/// Copies whole groups of pages past the caches: after all stores before it, and before all that follow. `to` is
/// aligned to lines. A line of each page in turn: so many more reads are under way at once than the order of
/// addresses would allow.
///
/// # Safety
/// As [`copy_racing`], for `groups * GROUP` bytes.
#[cfg(target_arch = "x86_64")]
unsafe fn stream_groups(from: *const u8, to: *mut u8, groups: usize) {
    order_stores();
    for group in 0..groups {
        // SAFETY: the caller's promise covers both ranges; each round reads and writes one line of each page of
        // the group, and stores of this kind need the alignment that the caller promises. SSE2 is part of x86-64.
        unsafe {
            std::arch::asm!(
                "2:",
                "prefetcht0 [{from} + 128]",
                "prefetcht0 [{from} + 4096 + 128]",
                "prefetcht0 [{from} + 8192 + 128]",
                "prefetcht0 [{from} + 12288 + 128]",
                "movdqu xmm0, [{from}]",
                "movdqu xmm1, [{from} + 16]",
                "movdqu xmm2, [{from} + 32]",
                "movdqu xmm3, [{from} + 48]",
                "movdqu xmm4, [{from} + 4096]",
                "movdqu xmm5, [{from} + 4112]",
                "movdqu xmm6, [{from} + 4128]",
                "movdqu xmm7, [{from} + 4144]",
                "movdqu xmm8, [{from} + 8192]",
                "movdqu xmm9, [{from} + 8208]",
                "movdqu xmm10, [{from} + 8224]",
                "movdqu xmm11, [{from} + 8240]",
                "movdqu xmm12, [{from} + 12288]",
                "movdqu xmm13, [{from} + 12304]",
                "movdqu xmm14, [{from} + 12320]",
                "movdqu xmm15, [{from} + 12336]",
                "movntdq [{to}], xmm0",
                "movntdq [{to} + 16], xmm1",
                "movntdq [{to} + 32], xmm2",
                "movntdq [{to} + 48], xmm3",
                "movntdq [{to} + 4096], xmm4",
                "movntdq [{to} + 4112], xmm5",
                "movntdq [{to} + 4128], xmm6",
                "movntdq [{to} + 4144], xmm7",
                "movntdq [{to} + 8192], xmm8",
                "movntdq [{to} + 8208], xmm9",
                "movntdq [{to} + 8224], xmm10",
                "movntdq [{to} + 8240], xmm11",
                "movntdq [{to} + 12288], xmm12",
                "movntdq [{to} + 12304], xmm13",
                "movntdq [{to} + 12320], xmm14",
                "movntdq [{to} + 12336], xmm15",
                "add {from}, 64",
                "add {to}, 64",
                "dec {lines}",
                "jnz 2b",
                from = inout(reg) from.add(group * GROUP) => _,
                to = inout(reg) to.add(group * GROUP) => _,
                lines = inout(reg) PAGE / LINE => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack),
            );
        }
    }
    order_stores();
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_alignment_every_byte_arrives_and_no_other() {
        let source: Vec<u8> = (0..STREAM_BYTES_MIN + 1000).map(|i| (i * 31 % 251) as u8).collect();
        for len in [0, 1, 63, 4096, STREAM_BYTES_MIN - 1, STREAM_BYTES_MIN, STREAM_BYTES_MIN + 129] {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (7, 63), (64, 100)] {
                let mut destination = vec![0xAA; len + 200];
                // SAFETY: both vectors are longer than what is copied, and apart.
                unsafe { copy_racing(source[from..].as_ptr(), destination[to..].as_mut_ptr(), len) };
                assert!(destination[to..to + len] == source[from..from + len], "{len} bytes from {from} to {to}");
                let rest = destination[..to].iter().chain(&destination[to + len..]);
                assert!(rest.into_iter().all(|&byte| byte == 0xAA), "{len} bytes from {from} to {to}");
            }
        }
    }
}

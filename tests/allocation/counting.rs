//! An allocator that counts what each thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Allocations of this thread, and their bytes.
    static COUNT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Bytes that it freed.
    static FREED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: it is the system's allocator, with a counter beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let (count, bytes) = COUNT.get();
        COUNT.set((count + 1, bytes + layout.size()));
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        FREED.set(FREED.get() + layout.size());
        // SAFETY: as the caller says.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and bytes of this.
pub(crate) fn count<T>(act: impl FnOnce() -> T) -> (usize, usize) {
    let before = COUNT.get();
    act();
    let after = COUNT.get();
    (after.0 - before.0, after.1 - before.1)
}

/// What this makes, and the bytes that it holds.
pub(crate) fn held<T>(make: impl FnOnce() -> T) -> (T, usize) {
    let before = (COUNT.get().1, FREED.get());
    let made = make();
    let (allocated, freed) = (COUNT.get().1 - before.0, FREED.get() - before.1);
    (made, allocated - freed)
}

//! An allocator that tells of every allocation: for tests of "allocates nothing".
//!
//! For: test binaries alone; the product uses the system's allocator.
//! In and out: sizes to a function of the test; memory from the system.
//! Invariants: the function may allocate only if it keeps itself from being told of that.
//! Absent on purpose: counting (each test knows which threads matter to it).

use std::alloc::{GlobalAlloc, Layout, System};

/// See the module. Use it as `#[global_allocator]`.
#[derive(Debug)]
pub struct Telling {
    tell: fn(usize),
}

impl Telling {
    /// `tell` is given the bytes of each allocation and reallocation.
    #[must_use]
    pub const fn new(tell: fn(usize)) -> Telling {
        Telling { tell }
    }
}

// SAFETY: every call goes to the system's allocator as it came; telling touches no memory of the caller.
unsafe impl GlobalAlloc for Telling {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.tell)(layout.size());
        // SAFETY: the caller's promises are those of this very call.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        (self.tell)(bytes);
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

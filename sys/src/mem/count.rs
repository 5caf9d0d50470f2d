//! An allocator that counts: for tests of "allocates nothing".
//!
//! For: test binaries alone; the product uses the system's allocator.
//! In and out: `count(true)` on a thread begins, `count(false)` ends; `counted` takes the sum of all threads and begins anew.
//! Invariants: memory is the system's; only threads that asked for it are counted.
//! Absent on purpose: frees (giving back is not what a steady state is about).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Is this thread counted from now on?
pub fn count(on: bool) {
    COUNTS.with(|counts| counts.set(on));
}

/// Allocations (and reallocations) and their bytes since the last call.
pub fn counted() -> (u64, u64) {
    (ALLOCATIONS.swap(0, Ordering::Relaxed), BYTES.swap(0, Ordering::Relaxed))
}

fn note(bytes: usize) {
    if COUNTS.with(Cell::get) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Use it as `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are those of this very call.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

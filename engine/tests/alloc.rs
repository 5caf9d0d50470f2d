//! In steady state a worker's loop allocates nothing.
//!
//! For: both ends of a real job, both drivers, both kinds of rails.
//! In and out: one large file; the count of allocations on the workers' threads between a quarter and nine tenths of it.
//! Invariants: keepers and this test's thread may allocate as they like; only workers' threads are counted.
//! Absent on purpose: small files (a pack tells its digests in a list of its own).
#![allow(unsafe_code)] // a counting allocator cannot be written without

mod pair;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pair::{Hook, Scratch, Setup, Way, move_tree, noise};
use sys::ring::Kind;

thread_local! {
    /// Is this thread within a turn that counts?
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

struct Counting;

impl Counting {
    fn note(bytes: usize) {
        if COUNTS.with(Cell::get) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
            BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
            if std::env::var_os("ALLOC_TRACE").is_some() {
                COUNTS.with(|counts| counts.set(false));
                eprintln!("{bytes} bytes at {}", std::backtrace::Backtrace::force_capture());
                COUNTS.with(|counts| counts.set(true));
            }
        }
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Counting::note(layout.size());
        // SAFETY: the caller's promises are those of this very call.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Counting::note(bytes);
        // SAFETY: the caller's promises are those of this very call, and `alloc` above gave `at`.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: usize = 1 << 20;
const FILE: usize = 160 * MIB;

#[test]
fn the_loop_allocates_nothing_in_steady_state() {
    for kind in [Kind::Uring, Kind::Plain] {
        for way in [Way::Pair, Way::Loopback] {
            let scratch = Scratch::new("alloc");
            std::fs::write(scratch.from().join("large"), noise(FILE, 7)).expect("room for the file");
            ALLOCATIONS.store(0, Ordering::Relaxed);
            let turns = Arc::new(AtomicU64::new(0));
            let counted = turns.clone();
            let hook: Hook = Arc::new(move |landed, turn| {
                let steady = (250..900).contains(&landed);
                counted.fetch_add(u64::from(steady), Ordering::Relaxed);
                COUNTS.with(|counts| counts.set(steady));
                let more = turn();
                COUNTS.with(|counts| counts.set(false));
                more
            });
            let (sent, _) = move_tree(&scratch.from(), &scratch.to(), Setup::new(kind, way), &hook);
            assert_eq!(sent.tally.files_done, 1);
            assert!(turns.load(Ordering::Relaxed) > 50, "the file is large enough to see a steady state");
            let (count, bytes) = (ALLOCATIONS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
            assert_eq!(count, 0, "{kind:?} {way:?}: {count} allocations of {bytes} bytes");
        }
    }
}

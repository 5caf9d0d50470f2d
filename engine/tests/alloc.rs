//! In steady state a worker's loop allocates nothing.
//!
//! For: both ends of a real job, both drivers, both kinds of rails.
//! In and out: one large file; the count of allocations on the workers' threads between a quarter and nine tenths of it.
//! Invariants: job drivers and this test's thread may allocate as they like; only workers' threads are counted.
//! Absent on purpose: small files (a pack tells its digests in a list of its own).

mod pair;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pair::{Hook, Scratch, Setup, Way, move_tree, noise};
use sys::count::{Counting, count, counted};
use sys::ring::Kind;

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: usize = 1 << 20;
const FILE: usize = 160 * MIB;

#[test]
fn the_loop_allocates_nothing_in_steady_state() {
    for kind in [Kind::Uring, Kind::Plain] {
        for way in [Way::Pair, Way::Loopback, Way::Datagrams] {
            // Datagrams at a pace that loopback loses nothing at: tables grow to what the worst moment of a busy machine asks for, once,
            // and when that moment comes is nobody's to say.
            let setup = Setup { pace: 50 << 20, ..Setup::new(kind, way) };
            let scratch = Scratch::new("alloc");
            std::fs::write(scratch.from().join("large"), noise(FILE, 7)).expect("room for the file");
            counted();
            let turns = Arc::new(AtomicU64::new(0));
            let steady_turns = turns.clone();
            let hook: Hook = Arc::new(move |landed, turn| {
                let steady = (250..900).contains(&landed);
                steady_turns.fetch_add(u64::from(steady), Ordering::Relaxed);
                count(steady);
                let more = turn();
                count(false);
                more
            });
            let (sent, _) = move_tree(&scratch.from(), &scratch.to(), setup, &hook);
            assert_eq!(sent.tally.files_done, 1);
            assert!(turns.load(Ordering::Relaxed) > 50, "the file is large enough to see a steady state");
            let (allocations, bytes) = counted();
            assert_eq!(allocations, 0, "{kind:?} {way:?}: {allocations} allocations of {bytes} bytes");
        }
    }
}

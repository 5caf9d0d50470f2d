//! A datagram rail whose socket is replaced in mid-job, while its receiver stands still.
//!
//! For: a receiver that is busy for a second looks like an address that changed, so its sender greets from another one; what lies in the socket
//! that it leaves arrived, and is not sent again.
//! In and out: a file over loopback; panics when anything went twice.
//! Invariants: the receiver's worker does nothing from before the packets came until after the rail has moved: the interleaving is made, not met.
//! Absent on purpose: who decides to move (`proto::session::migration`), and greetings (node).

#[allow(dead_code)]
mod pair;

use std::sync::Arc;

use pair::{Hook, Scratch, Setup, Way, move_tree_metered, noise};
use sys::ring::Kind;

#[test]
fn what_came_before_a_rail_moved_is_read_after_it() {
    let scratch = Scratch::new("moved");
    let bytes = noise(12 << 20, 7);
    std::fs::write(scratch.from().join("file"), &bytes).expect("a source");
    let hook: Hook = Arc::new(|_, turn| turn());
    // A fixed rate, and no more than the socket holds in all: only what is thrown away can go twice.
    let setup = Setup { moves_at: Some(250), pace: 40_000_000, ..Setup::new(Kind::Uring, Way::Datagrams) };
    let (sent, received, meters) = move_tree_metered(&scratch.from(), &scratch.to(), setup, &hook);
    assert!(sent.faults.is_empty() && received.faults.is_empty(), "{:?} {:?}", sent.faults, received.faults);
    assert_eq!(std::fs::read(scratch.to().join("file")).expect("it landed"), bytes);
    let stats = meters[0].read();
    assert_eq!((stats.repair_bytes, stats.lost_packets), (0, 0), "{stats:?}");
}

//! Races: programs that do the same work in turn, on one machine, in one run.
//!
//! For: `bench wan`, `bench disk` and the program `race` (bench/race), which all have the same contestants and the same rounds.
//! In and out: contestants → commands, what they printed → figures, figures → medians with their spread.
//! Invariants: rounds alternate over all contestants, so that what disturbs the machine meets each alike.
//! Absent on purpose: hosts and links (lab), files to be copied, tables and pages of results.

pub mod contestant; // a program, its commands, what it leaves out
pub mod content; // what is copied, and whether it arrived
pub mod reading; // what programs print of themselves
pub mod running; // a server, a client
pub mod turns; // rounds, medians

pub use contestant::{Contestant, Reading, Words};
pub use running::{Running, Waited};
pub use turns::{Spread, alternate};

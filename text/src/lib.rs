//! How quantities, failures and exit codes are written for people.
//!
//! For: every crate above `engine` that says something to a user, so that all say it in the same words.
//! In and out: numbers and errors → text, text → numbers.
//! Invariants: no I/O; a number of [`exit::Exit`] never changes its meaning between versions.
//! Absent on purpose: terminals, JSON, what stands on a page (whoever draws them has them).
#![forbid(unsafe_code)]

pub mod exit; // exit codes, and the two lines of a failure
pub mod refused; // codes of the other end, and what to do about them
pub mod attempt; // the same errno, said for what was attempted
pub mod units; // rates, sizes, durations
pub mod time; // dates and times of day
pub mod table; // aligned columns
pub mod page; // what all HTML pages have in common
pub mod plot; // lines and bars of a page

//! The two ends of the data path: where a chunk's bytes come from, and where they go.
//!
//! For: plain bufs filled from files, and plain bufs put into files.
//! In and out: assignments and empty bufs in, filled bufs out; opened chunks in, `Landed` out.
//! Invariants: an end knows neither rails nor seals.
//! Absent on purpose: names on disk (the trees), durability (the committers).

pub(crate) mod file_source; // chunks of files, packs of small ones → buf
pub(crate) mod file_sink; // buf → parts of files, small files

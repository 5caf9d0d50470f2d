//! Sinks: where bytes land, and how they become files.

pub mod commit; // flush, rename: the committer's work, off the loop
pub mod file; // parts of a tree, by chunk or packed

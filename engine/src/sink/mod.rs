//! Sinks: where bytes land, and how they become files.

pub mod commit; // flush, rename: the committer's work, off the loop
pub mod volumes; // N disks as one
pub mod file; // parts of a tree, by chunk or packed

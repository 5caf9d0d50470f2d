//! Sinks: where bytes land.

pub mod file; // parts of a tree, by chunk or packed

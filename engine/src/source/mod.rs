//! Sources: where bytes come from.

pub mod file; // files of a tree, by chunk or packed

//! Sources: where bytes come from.

pub mod volumes; // N disks as one
pub mod file; // files of a tree, by chunk or packed

//! Sinks: where bytes land, and how they become files.

pub mod commit; // flush, rename: the committer's work, off the loop
pub mod volumes; // N disks as one
pub(crate) mod striped; // and one file on many of them
mod stood; // of such a file, the version before

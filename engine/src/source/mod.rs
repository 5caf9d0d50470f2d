//! Sources: where bytes come from.

pub mod volumes; // N disks as one

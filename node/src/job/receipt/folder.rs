//! Names in the folder of receipts.
//!
//! For: whoever writes, reads, refers to or removes a receipt below LONGHAUL_HOME.
//! In and out: a job ↔ the name of its receipt; names made durable.
//! Invariants: what is no job's name is no receipt.
//! Absent on purpose: what stands in a receipt.

use std::fs::File;
use std::io;
use std::path::Path;

use proto::receipt::{Line, parse_line};

/// A list of less is as soon written again: with its ends and the granularity of a file system a receipt that refers to another takes 4 KiB.
pub const LIST_BYTES_MIN: u64 = 64 << 10;

/// The name of a job's receipt below LONGHAUL_HOME.
#[must_use]
pub fn file_name(job: &[u8; 16]) -> String {
    let name: String = job.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{name}.receipt")
}

/// The job that a receipt's name names.
#[must_use]
pub fn job_of(name: &str) -> Option<[u8; 16]> {
    match parse_line(format!("job {}", name.strip_suffix(".receipt")?).as_bytes()) {
        Ok(Line::Job(job)) => Some(job),
        _ => None,
    }
}

/// Returns when the names in a folder are on the disk; a path without one is the working directory's.
pub fn flush_names(folder: &Path) -> io::Result<()> {
    File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all()
}

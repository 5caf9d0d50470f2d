//! The table of `engine/src/seal/digest/zeros.rs`, hashed again: all of its terabyte.
//!
//! For: `make zeros`.
//! In and out: the path of a file to write, or `check` → whether the table that is built in is the same.
//! Invariants: uses nothing of the table.
//! Absent on purpose: speed beyond one thread per core (a TiB of zeros takes minutes).

use std::sync::atomic::{AtomicU64, Ordering};

use engine::seal::digest::zeros::{ZEROS_BYTES, hash_zeros};
use proto::wire::control::HOLE_REACH_BYTES;

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "check".to_owned());
    let entries = HOLE_REACH_BYTES / ZEROS_BYTES;
    let next = AtomicU64::new(0);
    let work = || {
        let mut own = Vec::new();
        loop {
            let entry = next.fetch_add(1, Ordering::Relaxed);
            if entry >= entries {
                return own;
            }
            own.push((entry, hash_zeros(entry * ZEROS_BYTES, ZEROS_BYTES)));
        }
    };
    let cores = std::thread::available_parallelism()?.get();
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    all.sort_unstable();
    let table: Vec<u8> = all.into_iter().flat_map(|(_, digest)| digest).collect();
    println!("{} entries, BLAKE3 of all {}", entries, blake3::hash(&table).to_hex());
    if path != "check" {
        return std::fs::write(path, table);
    }
    let built_in = include_bytes!("../src/seal/digest/zeros.bin");
    if *built_in == table[..] { Ok(()) } else { Err(std::io::Error::other("zeros.bin is not what hashing gives")) }
}

//! What a sender of MODE E says.
//!
//! For: finding heads of blocks by which a byte is taken twice, one behind the limit is taken, or an end is seen where there is none.
//! In and out: heads, 17 bytes each.
//! Invariants: those of `proto::ftp::blocks::played`.
//! Absent on purpose: files and sockets.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = proto::ftp::blocks::played::play(bytes);
});

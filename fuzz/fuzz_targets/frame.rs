//! Control frames from a stranger.
//!
//! For: finding bytes that make `Frame::decode` panic, or that it reads but does not write again the same.
//! In and out: one frame's bytes, type byte first.
//! Invariants: what decodes is encoded to the same bytes.
//! Absent on purpose: sequences of frames (the simulator plays those).
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::wire::control::Frame;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = Frame::decode(bytes) {
        let mut again = Vec::with_capacity(bytes.len());
        frame.encode(&mut again);
        assert_eq!(again, bytes, "{} has two encodings", frame.name());
    }
});

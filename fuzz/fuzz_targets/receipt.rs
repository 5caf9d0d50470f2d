//! A receipt from anybody.
//!
//! For: finding lines that make the parser panic, escape the root, or have two spellings.
//! In and out: a whole text, taken line by line.
//! Invariants: an entry line that parses is written again byte for byte, and its path passes `check_path`.
//! Absent on purpose: signatures (node).
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::manifest::check_path;
use proto::receipt::{Line, Reading, parse_line, write_entry};
use proto::wire::control::DigestKind;

fuzz_target!(|text: &[u8]| {
    let mut reading = Reading::new();
    let mut whole = true;
    for line in text.split(|&byte| byte == b'\n') {
        whole &= reading.take(line).is_ok();
        if let Ok(Line::Entry(entry)) = parse_line(line) {
            check_path(&entry.entry.path).expect("a parsed path stays below its root");
            let (kind, digest) = entry.digest.unzip();
            let mut again = Vec::with_capacity(line.len() + 1);
            write_entry(
                &mut again,
                &entry.entry,
                digest.as_ref(),
                kind.unwrap_or(DigestKind::Blake3),
                entry.durability,
            );
            assert_eq!(again.strip_suffix(b"\n"), Some(line));
        }
    }
    if whole {
        let _ = reading.finish();
    }
});

//! A journal as a power cut, a bad disk or an enemy left it.
//!
//! For: finding bytes that make `Replay::parse` panic or believe what no writer wrote.
//! In and out: raw bytes; and, so that the checksums do not keep the fuzzer out, the same bytes as digests behind a true header.
//! Invariants: what is believed is a prefix, and writing it again gives that prefix.
//! Absent on purpose: the file system.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::journal::{JOURNAL_VERSION, JournalHeader, Replay, encode_header, encode_record};
use proto::wire::control::DigestKind;

fn check(bytes: &[u8]) -> usize {
    let replay = Replay::parse(bytes);
    let Some(header) = replay.header else {
        assert_eq!((replay.valid_bytes, replay.records.len()), (0, 0));
        return 0;
    };
    let mut again = encode_header(&header).to_vec();
    for record in &replay.records {
        assert!(record.first + record.digests.len() as u64 <= header.chunks());
        encode_record(record.first, record.digests, &mut again);
    }
    // Notes and zeros stand between the others, and nobody keeps in which order.
    if replay.noted.is_empty() && replay.holes.is_empty() {
        assert_eq!(again, bytes[..replay.valid_bytes]);
    }
    replay.valid_bytes
}

fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let header = JournalHeader {
        version: JOURNAL_VERSION,
        bytes: 200 << 20,
        mtime_s: 0,
        mtime_ns: 0,
        chunk_bytes: 1 << 20,
        digest: DigestKind::Blake3,
        boot_id_hash: [0; 8],
        durability_written_only: false,
        sparse: false,
    };
    let mut journal = encode_header(&header).to_vec();
    let (digests, tail) = bytes.as_chunks::<32>();
    for (index, digests) in digests.chunks(3).enumerate() {
        if index * 3 + digests.len() <= 200 {
            encode_record(index as u64 * 3, digests, &mut journal);
        }
    }
    let whole = journal.len();
    journal.extend_from_slice(tail);
    assert_eq!(check(&journal), whole);
    if let Some(&[bit_low, bit_high]) = tail.first_chunk::<2>() {
        let bit = usize::from(u16::from_le_bytes([bit_low, bit_high])) % (whole * 8);
        journal[bit / 8] ^= 1 << (bit % 8);
        assert!(check(&journal) <= bit / 8, "a flipped bit was believed");
    }
});

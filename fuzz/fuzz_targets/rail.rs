//! What stands on a rail, from a stranger: greeting, header, pack.
//!
//! For: finding bytes that make a decoder of the data path panic or hand out a place outside its payload.
//! In and out: the first 72 bytes are a header (its first 64 also a greeting), the rest is the payload.
//! Invariants: what decodes is encoded to the same bytes; a pack covers its payload once, without gaps.
//! Absent on purpose: seals and digests (engine).
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::wire::chunk::{CHUNK_BYTES_MAX, ChunkKind, Greeting, Header, PACK_LINE_BYTES, frame_tags, pack_lines};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, payload)) = bytes.split_first_chunk::<72>() else { return };
    let first = head.first_chunk::<64>().expect("72 bytes");
    if let Ok(greeting) = Greeting::decode(first) {
        assert_eq!(greeting.encode(), *first);
    }
    let mut count = u64::from(head[16]);
    if let Ok(header) = Header::decode(head) {
        assert_eq!(header.encode(), *head);
        assert!(frame_tags(header.payload_bytes, proto::PIECE_BYTES, true) <= 128);
        if header.kind == ChunkKind::Pack {
            count = header.entry;
        }
    }
    if let Ok(lines) = pack_lines(payload, count, CHUNK_BYTES_MAX) {
        let mut end = count as usize * PACK_LINE_BYTES;
        for (line, place) in lines {
            assert_eq!((place.start, place.len()), (end, line.bytes as usize));
            end = place.end;
        }
        assert_eq!(end, payload.len());
    }
});

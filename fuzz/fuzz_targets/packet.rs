//! What stands in a datagram, behind a seal that an enemy holds.
//!
//! For: finding bytes that make a head or a body panic, or that are read but not written again the same.
//! In and out: eight bytes of head, then a body, read as control and as feedback; all of it as a part of the session, and of a greeting.
//! Invariants: what decodes is encoded to the same bytes; a feedback cut to fit is a shorter true one.
//! Absent on purpose: seals (engine); what follows from a body (`flow`).
#![no_main]

use libfuzzer_sys::fuzz_target;
use proto::packet::{Control, Feedback, HEAD_BYTES, Head, HelloPart, SessionPart, expand};

fuzz_target!(|bytes: &[u8]| {
    let Some((first, body)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return };
    if let Ok(head) = Head::decode(first) {
        assert_eq!(head.encode(), *first);
    }
    if let Ok(part) = SessionPart::decode(bytes) {
        let mut again = Vec::new();
        part.encode(&mut again);
        assert_eq!(again, bytes);
    }
    if let Ok(part) = HelloPart::decode(bytes) {
        let mut again = Vec::new();
        part.encode(&mut again);
        assert_eq!(again, bytes);
    }
    let expected = u64::from_le_bytes(*first) >> 2;
    let number = expand(expected.rotate_left(7) as u32, expected);
    assert_eq!(number as u32, expected.rotate_left(7) as u32);
    assert!(number.abs_diff(expected) <= 1 << 31 || number < 1 << 32);
    if let Ok(control) = Control::decode(body) {
        let mut again = Vec::new();
        control.encode(&mut again);
        assert_eq!(again, body);
    }
    if let Ok(feedback) = Feedback::decode(body) {
        let mut again = Vec::new();
        feedback.encode(&mut again, usize::MAX);
        assert_eq!(again, body);
        again.clear();
        feedback.encode(&mut again, 120);
        let cut = Feedback::decode(&again).expect("a cut body is a body");
        assert!(cut.to() <= feedback.to());
        assert!(cut.coverage().zip(feedback.coverage()).all(|(one, other)| one == other));
    }
});

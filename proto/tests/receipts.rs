//! Receipts: written, read back, and refused when anything in them was moved.
//!
//! For: the promise that both ends hold the same bytes and that one value has one spelling.
//! In and out: generated entries; whole receipts; arbitrary lines.
//! Invariants: parse and write are inverse.
//! Absent on purpose: signatures and hashing (node).

use proptest::collection::vec;
use proptest::prelude::*;
use proto::manifest::{Entry, EntryKind, Meta, NodeKind};
use proto::receipt::*;
use proto::wire::control::{DigestKind, Durability};

fn entry() -> impl Strategy<Value = Entry> {
    let name = vec(any::<u8>().prop_map(|byte| if matches!(byte, 0 | b'/' | b'.') { b' ' } else { byte }), 1..20);
    let kind = prop_oneof![
        (0..=i64::MAX as u64).prop_map(|bytes| EntryKind::File { bytes }),
        Just(EntryKind::Folder),
        vec(1u8.., 1..50).prop_map(|target| EntryKind::Link { target: target.into() }),
        vec(0x21u8..0x2e, 1..50).prop_map(|first| EntryKind::Name { first: first.into() }),
        Just(EntryKind::Node { kind: NodeKind::Fifo, major: 0, minor: 0 }),
        Just(EntryKind::Node { kind: NodeKind::Socket, major: 0, minor: 0 }),
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| EntryKind::Node { kind: NodeKind::Char, major, minor }),
        (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| EntryKind::Node { kind: NodeKind::Block, major, minor }),
    ];
    let ns = prop_oneof![0u32..1_000_000_000, Just(0), Just(500_000_000), (0u32..1000).prop_map(|ms| ms * 1_000_000)];
    (vec(name, 0..4), kind, 0u32..=0o7777, any::<i64>(), ns).prop_map(|(names, kind, mode, mtime_s, mtime_ns)| Entry {
        id: 0,
        path: names.join(&b'/').into(),
        kind,
        mode,
        mtime_s,
        mtime_ns,
        meta: Meta::default(),
    })
}

fn write_line(line: &EntryLine) -> Vec<u8> {
    let mut out = Vec::new();
    let (kind, digest) = line.digest.unzip();
    write_entry(&mut out, &line.entry, digest.as_ref(), kind.unwrap_or(DigestKind::Blake3), line.durability);
    out
}

proptest! {
    // A case that fails becomes a test with a name; no file of seeds beside the source.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_entry_comes_back_from_its_line(entry in entry(), mut digest in any::<[u8; 32]>(), how in 0u8..3, durability in 0u8..4) {
        let durability = Durability::from_byte(durability).expect("four durabilities");
        let digest = match how {
            _ if !entry.is_file() => None,
            0 => None,
            1 => Some((DigestKind::Blake3, digest)),
            _ => {
                digest[8..].fill(0);
                Some((DigestKind::Crc64, digest))
            }
        };
        let line = EntryLine { entry, digest, durability };
        let text = write_line(&line);
        let (newline, words) = text.split_last().expect("a line");
        prop_assert_eq!(*newline, b'\n');
        prop_assert!(words.iter().all(|byte| matches!(byte, 0x20..=0x7E)));
        prop_assert_eq!(parse_line(words), Ok(Line::Entry(Box::new(line))));
    }

    #[test]
    fn a_changed_line_is_refused_or_has_this_one_spelling(entry in entry(), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut text = write_line(&EntryLine { entry, digest: None, durability: Durability::Published });
        let _ = text.pop();
        let at = at.index(text.len());
        text[at] = to;
        if let Ok(Line::Entry(line)) = parse_line(&text) {
            text.push(b'\n');
            prop_assert_eq!(write_line(&line), text);
        }
    }

    #[test]
    fn arbitrary_lines_never_panic(words in vec("[fdl]|-|[0-9a-f.-]{0,20}|[%A-F0-9a-z.]{0,9}|signed|job|end", 0..10), junk in vec(any::<u8>(), 0..99)) {
        let _ = parse_line(words.join(" ").as_bytes());
        let _ = parse_line(&junk);
    }
}

#[test]
fn a_receipt_of_what_nobody_read_at_the_source_says_so_once() {
    let mut text = Vec::new();
    write_head(&mut text, &Head { bare: true, ..HEAD });
    let text = String::from_utf8(text).expect("a head is ASCII");
    let read = |text: &str| {
        let mut reading = Reading::new();
        text.lines().try_for_each(|line| reading.take(line.as_bytes()).map(drop)).map(|()| reading.head().copied())
    };
    assert_eq!(read(&text).expect("it is well formed"), Some(Head { bare: true, ..HEAD }));
    assert!(read(&text.replace("source unread", "source read")).is_err());
    assert!(read(&text.replace("source unread", "source unread\nsource unread")).is_err());
}

const HEAD: Head = Head {
    job: [1; 16],
    digest: DigestKind::Blake3,
    durability: Durability::Flushed,
    layout: None,
    bare: false,
    sender: [2; 32],
    receiver: [3; 32],
};

fn file(path: &str, bytes: u64) -> Entry {
    Entry {
        id: 9,
        path: path.as_bytes().into(),
        kind: EntryKind::File { bytes },
        mode: 0o640,
        mtime_s: -1,
        mtime_ns: 500_000_000,
        meta: Meta::default(),
    }
}

fn receipt() -> Vec<u8> {
    let mut text = Vec::new();
    write_head(&mut text, &HEAD);
    let root = Entry { kind: EntryKind::FolderEnd, mode: 0o40755, ..file("", 0) };
    write_entry(&mut text, &root, None, HEAD.digest, Durability::Flushed);
    write_entry(&mut text, &file("a b%", 5), Some(&[0xAB; 32]), HEAD.digest, Durability::Published);
    let link = Entry { kind: EntryKind::Link { target: (*b"/x y").into() }, ..file("l", 0) };
    write_entry(&mut text, &link, None, HEAD.digest, Durability::Published);
    write_end(&mut text, 1, 5);
    write_body_digest(&mut text, &[7; 32]);
    write_signed(&mut text, Signer::Sender, &HEAD.sender, &[8; 64]);
    write_signed(&mut text, Signer::Receiver, &HEAD.receiver, &[9; 64]);
    text
}

fn read(text: &[u8]) -> Result<(Sealed, usize), ReceiptError> {
    let mut reading = Reading::new();
    let mut entries = 0;
    for line in text.strip_suffix(b"\n").expect("ends with a newline").split(|&byte| byte == b'\n') {
        entries += usize::from(matches!(reading.take(line)?, Taken::Entry(_)));
    }
    Ok((reading.finish()?, entries))
}

#[test]
fn a_whole_receipt_reads_as_drawn() {
    let text = String::from_utf8(receipt()).expect("a receipt is ASCII");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "longhaul-receipt 1");
    assert_eq!(lines[2], "digest blake3");
    assert_eq!(lines[6], "d - 0 755 -1.5 f .");
    assert_eq!(lines[7], format!("f {} 5 640 -1.5 p a%20b%25", "ab".repeat(32)));
    assert_eq!(lines[8], "l - 0 640 -1.5 p l /x%20y");
    assert_eq!(lines[9], "end 1 5");
    let (sealed, entries) = read(text.as_bytes()).expect("a true receipt");
    assert_eq!((sealed.head, sealed.files, sealed.bytes, entries), (HEAD, 1, 5, 3));
    assert_eq!((sealed.sender, sealed.receiver), (Some([8; 64]), Some([9; 64])));
    assert_eq!(sealed.body, [7; 32]);
}

/// One that refers to another.
fn unchanged() -> String {
    let mut text = Vec::new();
    write_head(&mut text, &HEAD);
    write_former(&mut text, &FORMER);
    write_end(&mut text, 1, 5);
    write_body_digest(&mut text, &[7; 32]);
    write_signed(&mut text, Signer::Receiver, &HEAD.receiver, &[9; 64]);
    String::from_utf8(text).expect("a receipt is ASCII")
}

const FORMER: Former = Former { job: [6; 16], body: [0xCD; 32], alike: Alike::Times };

#[test]
fn a_receipt_that_refers_to_a_former_one_reads_as_drawn_and_names_nothing_itself() {
    let text = unchanged();
    let line = format!("unchanged {} {} times", "06".repeat(16), "cd".repeat(32));
    assert_eq!(text.lines().nth(6), Some(line.as_str()));
    let (sealed, entries) = read(text.as_bytes()).expect("a true receipt");
    assert_eq!((sealed.former, sealed.files, sealed.bytes, entries), (Some(FORMER), 1, 5, 0));
    let contents = Former { alike: Alike::Contents, ..FORMER };
    let other = text.replace(" times", " contents");
    assert_eq!(read(other.as_bytes()).expect("as true").0.former, Some(contents));
    assert_eq!(read(&receipt()).expect("a true one").0.former, None);

    let refused = |text: String| read(text.as_bytes()).expect_err("it cannot stand there");
    assert_eq!(refused(text.replace(&line, &format!("{line}\n{line}"))), ReceiptError::Order, "twice");
    let entry = "f - 5 640 -1.5 p a";
    assert_eq!(refused(text.replace(&line, &format!("{line}\n{entry}"))), ReceiptError::Order, "and an entry");
    assert_eq!(refused(text.replace(&line, &format!("{entry}\n{line}"))), ReceiptError::Order, "after an entry");
    let own = text.replace(&format!("unchanged {}", "06".repeat(16)), &format!("unchanged {}", "01".repeat(16)));
    assert_eq!(refused(own), ReceiptError::Order, "to itself");
    assert_eq!(refused(text.replace(" times", " names")), ReceiptError::LineUnknown);
    assert_eq!(refused(text.replace(" times", "")), ReceiptError::WordCount);
    assert_eq!(refused(text.replace("cdcd times", "cd times")), ReceiptError::Hex);
}

#[test]
fn a_receipt_without_its_end_or_with_a_line_moved_is_refused() {
    let text = receipt();
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    for end in 1..lines.len() - 2 {
        assert!(read(&lines[..end].concat()).is_err(), "{end} lines");
    }
    for (one, other) in [(0, 1), (1, 2), (4, 5), (5, 6), (8, 9), (9, 10), (10, 11)] {
        let mut moved = lines.clone();
        moved.swap(one, other);
        assert!(read(&moved.concat()).is_err(), "{one} and {other} swapped");
    }
    let mut without_file = lines.clone();
    let _ = without_file.remove(7);
    assert_eq!(read(&without_file.concat()), Err(ReceiptError::Totals));
    let twice = [&lines[..], &lines[12..]].concat();
    assert_eq!(read(&twice.concat()), Err(ReceiptError::Order));
}

#[test]
fn malformed_receipts_are_refused_by_name() {
    assert_eq!(Reading::new().take(b"#!/bin/sh"), Err(ReceiptError::NotAReceipt));
    assert_eq!(Reading::new().take(b"longhaul-receipt 2"), Err(ReceiptError::VersionUnknown));
    let line = |text: &str| parse_line(text.as_bytes()).expect_err("malformed");
    assert_eq!(line("f - 5 644 0.0 p ../x"), ReceiptError::Path);
    assert_eq!(line("f - 5 644 0.0 p /x"), ReceiptError::Path);
    assert_eq!(line("f - 5 644 0.0 p a%2Fx"), ReceiptError::Escape);
    assert_eq!(line("f - 5 644 0.0 p a%00x"), ReceiptError::Escape);
    assert_eq!(line("f - 5 644 0.0 p a%0ax"), ReceiptError::Escape);
    assert_eq!(line("f - 5 644 0.0 p a%0"), ReceiptError::Escape);
    assert_eq!(line("f - 05 644 0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f - +5 644 0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f - 5 648 0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f - 5 644 0.00 p a"), ReceiptError::Number);
    assert_eq!(line("f - 5 644 -0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f - 18446744073709551616 644 0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f - 9223372036854775808 644 0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f AB 5 644 0.0 p a"), ReceiptError::Hex);
    assert_eq!(line("d - 1 644 0.0 p a"), ReceiptError::Number);
    assert_eq!(line("f - 5 644 0.0 p a b"), ReceiptError::WordCount);
    assert_eq!(line("l - 0 644 0.0 p a"), ReceiptError::WordCount);
    assert_eq!(line("x"), ReceiptError::LineUnknown);
    assert_eq!(line(""), ReceiptError::LineUnknown);
    let mut long = b"f - 5 644 0.0 p ".to_vec();
    long.resize(RECEIPT_LINE_BYTES_MAX + 1, b'a');
    assert_eq!(parse_line(&long), Err(ReceiptError::LineTooLong));
}

#[test]
fn a_digest_of_another_kind_and_a_foreign_key_are_refused() {
    let text = String::from_utf8(receipt()).expect("ASCII");
    let other = text.replace(&"ab".repeat(32), "0123456789abcdef");
    assert_eq!(read(other.as_bytes()), Err(ReceiptError::DigestKind));
    let foreign = text.replace("signed sender 02", "signed sender 12");
    assert_eq!(read(foreign.as_bytes()), Err(ReceiptError::Key));
}

#[test]
fn crc64_is_written_as_one_number() {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&0x0123_4567_89AB_CDEF_u64.to_le_bytes());
    let mut out = Vec::new();
    put_digest(&mut out, &digest, DigestKind::Crc64);
    assert_eq!(out, b"0123456789abcdef");
}

#[test]
fn the_signed_message_names_what_it_is() {
    let message = signed_message(&[5; 32]);
    assert_eq!(&message[..19], b"longhaul-receipt 1\n");
    assert_eq!(message[19..], [5; 32]);
}

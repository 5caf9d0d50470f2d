//! Tests of `longhaul verify` on real trees and signed receipts.

use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use proto::manifest::{Entry, EntryKind};
use proto::receipt::{self, Head, Signer};
use proto::wire::control::{Digest, DigestKind, Durability};

use super::*;
use node::identity::Identity;
use node::verify::is_end_of;

/// A folder that goes away with the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-verify-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(path.join("data/dir")).unwrap();
        std::fs::write(path.join("data/a file"), b"hello").unwrap();
        std::fs::write(path.join("data/dir/empty"), b"").unwrap();
        std::fs::write(path.join("data/dir/three"), vec![7; 3_000_001]).unwrap();
        symlink("a file", path.join("data/link")).unwrap();
        Self(path)
    }

    fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    fn receipt(&self) -> PathBuf {
        self.0.join("receipt")
    }

    /// Writes the receipt of the tree as it is now, signed by both ends; gives the sender's fingerprint.
    fn sign(&self, kind: DigestKind) -> String {
        self.sign_under(kind, "")
    }

    /// As `sign`, each path with `top` in front.
    fn sign_under(&self, kind: DigestKind, top: &str) -> String {
        let (sender, receiver) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
        let mut body = Vec::new();
        let head = Head {
            job: [9; 16],
            digest: kind,
            durability: Durability::Published,
            layout: None,
            bare: false,
            sender: sender.public(),
            receiver: receiver.public(),
        };
        receipt::write_head(&mut body, &head);
        let (mut files, mut bytes) = (0, 0);
        let mut write = |path: &str, what: EntryKind| {
            let full = self.data().join(path);
            let facts = std::fs::symlink_metadata(&full).unwrap();
            let content = matches!(what, EntryKind::File { .. }).then(|| std::fs::read(&full).unwrap());
            let digest: Option<Digest> = content.map(|content| engine::seal::digest::digest_of(kind, &content));
            let entry = Entry {
                id: 0,
                path: format!("{top}{path}").into_bytes().into(),
                kind: what,
                mode: facts.mode() & 0o7777,
                mtime_s: facts.mtime(),
                mtime_ns: u32::try_from(facts.mtime_nsec()).unwrap(),
                meta: proto::manifest::Meta::default(),
            };
            files += u64::from(entry.is_file());
            bytes += entry.bytes();
            receipt::write_entry(&mut body, &entry, digest.as_ref(), kind, Durability::Published);
        };
        for path in ["a file", "dir/empty", "dir/three", "big"] {
            if let Ok(facts) = std::fs::metadata(self.data().join(path)) {
                write(path, EntryKind::File { bytes: facts.len() });
            }
        }
        write("dir", EntryKind::Folder);
        write("link", EntryKind::Link { target: (*b"a file").into() });
        receipt::write_end(&mut body, files, bytes);
        let digest = *blake3::hash(&body).as_bytes();
        receipt::write_body_digest(&mut body, &digest);
        let message = receipt::signed_message(&digest);
        receipt::write_signed(&mut body, Signer::Sender, &sender.public(), &sender.sign(&message));
        receipt::write_signed(&mut body, Signer::Receiver, &receiver.public(), &receiver.sign(&message));
        std::fs::write(self.receipt(), body).unwrap();
        node::identity::keys::fingerprint(&sender.public())
    }

    fn verify(&self) -> Result<(Exit, String), Failure> {
        self.verify_at(self.data(), None, false)
    }

    fn verify_at(&self, path: PathBuf, signer: Option<String>, json: bool) -> Result<(Exit, String), Failure> {
        let arguments = VerifyArguments {
            receipt: self.receipt(),
            path: vec![path],
            json,
            workers: Some(3),
            signer,
            ftp: Default::default(),
        };
        let page = Page::default();
        let mode = if json { Mode::Json } else { Mode::Lines };
        let mut screen = Screen::onto(mode, Box::new(page.clone()), Box::new(std::io::sink()));
        let exit = run_on(&arguments, &mut screen)?;
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        Ok((exit, text))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn flip(path: &std::path::Path, offset: u64) {
    let facts = std::fs::metadata(path).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
    file.set_modified(facts.modified().unwrap()).unwrap();
}

#[test]
fn a_copy_that_is_as_the_receipt_says_is_whole() {
    for kind in [DigestKind::Blake3, DigestKind::Crc64] {
        let tree = Tree::new(&format!("whole-{}", kind.name()));
        tree.sign(kind);
        let (exit, text) = tree.verify().unwrap();
        assert_eq!(exit, Exit::Whole, "{text}");
        assert!(text.starts_with("verified 3 files, 3.00 MB in "), "{text}");
        assert!(text.contains(&format!("all as the receipt says ({})\n", kind.name())), "{text}");
        assert!(text.contains("signed by sender lh:") && text.contains(", receiver lh:"), "{text}");
    }
}

#[test]
fn one_flipped_bit_is_found_and_its_file_named() {
    for kind in [DigestKind::Blake3, DigestKind::Crc64] {
        let tree = Tree::new(&format!("flip-{}", kind.name()));
        tree.sign(kind);
        flip(&tree.data().join("dir/three"), 1_234_567);
        let (exit, text) = tree.verify().unwrap();
        assert_eq!(exit, Exit::Mismatch, "{text}");
        assert!(text.starts_with("dir/three: DIFFERS: same length, but its digest is "), "{text}");
        assert!(text.contains("1 entry DIFFER\n") && text.contains("  next      "), "{text}");
        assert_eq!(text.matches("DIFFERS").count(), 1, "{text}");
    }
}

#[test]
fn a_big_file_is_checked_in_segments_and_gives_the_same_digest() {
    for kind in [DigestKind::Blake3, DigestKind::Crc64] {
        let tree = Tree::new(&format!("big-{}", kind.name()));
        let big = tree.data().join("big");
        let file = std::fs::File::create(&big).unwrap();
        // Two whole segments and a byte: an uneven tree; mostly a hole.
        file.set_len((128 << 20) + 1).unwrap();
        file.write_all_at(b"x", 100 << 20).unwrap();
        tree.sign(kind);
        let (exit, text) = tree.verify().unwrap();
        assert_eq!(exit, Exit::Whole, "{text}");
        flip(&big, 128 << 20);
        let (exit, text) = tree.verify().unwrap();
        assert_eq!(exit, Exit::Mismatch, "{text}");
        assert!(text.starts_with("big: DIFFERS: same length"), "{text}");
    }
}

/// Deals "big" out to three volumes beside the tree, by turns in runs of one and two chunks; gives the chunk's piece on each.
fn deal_out(tree: &Tree, kind: DigestKind) -> Vec<PathBuf> {
    use engine::tree::beside_of;
    use proto::journal::{JournalHeader, encode_header, encode_record};
    use proto::striped::Whole;
    const MIB: usize = 1 << 20;
    let big = tree.data().join("big");
    let facts = std::fs::metadata(&big).unwrap();
    let content = std::fs::read(&big).unwrap();
    let entry = Entry {
        id: 0,
        path: (*b"big").into(),
        kind: EntryKind::File { bytes: facts.len() },
        mode: 0,
        mtime_s: facts.mtime(),
        mtime_ns: u32::try_from(facts.mtime_nsec()).unwrap(),
        meta: proto::manifest::Meta::default(),
    };
    let name = |ending| String::from_utf8(beside_of(b"big", Whole::of(&entry), ending)).unwrap();
    let mut pieces = Vec::new();
    for volume in 0..3 {
        let folder = tree.0.join(format!("v{volume}"));
        std::fs::create_dir(&folder).unwrap();
        let piece = folder.join(if volume == 1 { "big".to_owned() } else { name("chunks") });
        let file = std::fs::File::create(&piece).unwrap();
        let mut map = encode_header(&JournalHeader::of(&entry, MIB as u32, kind)).to_vec();
        for (index, chunk) in content.chunks(MIB).enumerate().filter(|(index, _)| [0, 1, 1, 2, 0][index % 5] == volume)
        {
            file.write_all_at(chunk, (index * MIB) as u64).unwrap();
            encode_record(index as u64, &[[7; 32]], &mut map);
        }
        file.set_len(facts.len()).unwrap();
        file.set_modified(facts.modified().unwrap()).unwrap();
        std::fs::write(folder.join(name("map")), map).unwrap();
        pieces.push(piece);
    }
    for other in ["a file", "dir", "link"] {
        std::fs::rename(tree.data().join(other), tree.0.join("v0").join(other)).unwrap();
    }
    pieces
}

#[test]
fn a_file_on_three_volumes_is_read_from_all_and_what_rots_on_any_is_found() {
    for kind in [DigestKind::Blake3, DigestKind::Crc64] {
        let tree = Tree::new(&format!("dealt-{}", kind.name()));
        let content: Vec<u8> = (0..(19 << 20) + 5_u32).map(|at| (at * 7 + at / 999) as u8).collect();
        std::fs::write(tree.data().join("big"), content).unwrap();
        tree.sign(kind);
        let pieces = deal_out(&tree, kind);
        let verify = || tree.verify_at(tree.0.join("v{0..2}"), None, false).unwrap();
        let (exit, text) = verify();
        assert_eq!(exit, Exit::Whole, "{text}");
        assert!(text.starts_with("verified 4 files, "), "{text}");
        for (volume, chunk) in [(0, 5), (1, 2), (2, 18)] {
            flip(&pieces[volume], chunk << 20);
            let (exit, text) = verify();
            assert_eq!(exit, Exit::Mismatch, "{text}");
            assert!(text.starts_with("big: DIFFERS: same length, but its digest is "), "{text}");
            flip(&pieces[volume], chunk << 20);
        }
        // What stands in the hole of a piece belongs to no chunk of it.
        flip(&pieces[0], 1 << 20);
        assert_eq!(verify().0, Exit::Whole);
        std::fs::File::options().write(true).open(&pieces[2]).unwrap().set_len(3 << 20).unwrap();
        let (_, text) = verify();
        assert!(text.starts_with("big: UNREADABLE: it became shorter"), "{text}");
        assert_eq!(text.matches("UNREADABLE:").count(), 1, "{text}");
        std::fs::remove_dir_all(tree.0.join("v2")).unwrap();
        std::fs::create_dir(tree.0.join("v2")).unwrap();
        let (_, text) = verify();
        assert!(text.starts_with("big: UNREADABLE: "), "{text}");
    }
}

#[test]
fn every_way_to_differ_is_named() {
    type Spoil = fn(&std::path::Path);
    let table: [(&str, &str, Spoil); 6] = [
        ("missing", "a file: MISSING", |data| std::fs::remove_file(data.join("a file")).unwrap()),
        ("size", "a file: DIFFERS: it is 2 B long, the receipt says 5 B", |data| {
            std::fs::write(data.join("a file"), b"he").unwrap()
        }),
        ("kind", "dir/empty: DIFFERS: it is a folder, the receipt says a file", |data| {
            std::fs::remove_file(data.join("dir/empty")).unwrap();
            std::fs::create_dir(data.join("dir/empty")).unwrap();
        }),
        ("target", "link: DIFFERS: it points to dir, the receipt says a file", |data| {
            std::fs::remove_file(data.join("link")).unwrap();
            symlink("dir", data.join("link")).unwrap();
        }),
        ("file-link", "a file: DIFFERS: it is a link, the receipt says a file", |data| {
            std::fs::rename(data.join("a file"), data.join("b")).unwrap();
            symlink("b", data.join("a file")).unwrap();
        }),
        // The same bytes are there, but through a link that someone else may turn anywhere.
        ("folder-link", "dir/three: DIFFERS: it is below a link or a file", |data| {
            std::fs::rename(data.join("dir"), data.join("other")).unwrap();
            symlink("other", data.join("dir")).unwrap();
        }),
    ];
    for (name, line, spoil) in table {
        let tree = Tree::new(name);
        tree.sign(DigestKind::Blake3);
        spoil(&tree.data());
        let (exit, text) = tree.verify().unwrap();
        assert_eq!(exit, Exit::Mismatch, "{name}: {text}");
        assert!(text.contains(line), "{name}: {text}");
    }
}

#[test]
fn another_mode_or_time_is_a_note_and_no_mismatch() {
    let tree = Tree::new("metadata");
    tree.sign(DigestKind::Blake3);
    std::fs::set_permissions(tree.data().join("a file"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let (exit, text) = tree.verify().unwrap();
    assert_eq!(exit, Exit::Whole);
    assert!(text.starts_with("a file: note: same contents, but mode 600, time "), "{text}");
    assert!(text.contains("  note      1 entry has another mode or time"), "{text}");
}

#[test]
fn a_receipt_that_was_altered_is_refused_before_any_file_is_read() {
    let tree = Tree::new("altered");
    tree.sign(DigestKind::Blake3);
    let good = std::fs::read(tree.receipt()).unwrap();
    let text = String::from_utf8(good.clone()).unwrap();
    let signed_at = text.find("signed sender").unwrap();
    // The last hex digit of the sender's signature.
    let signature_end = signed_at + text[signed_at..].find('\n').unwrap() - 1;
    let mut signature_bent = good.clone();
    signature_bent[signature_end] = if good[signature_end] == b'0' { b'1' } else { b'0' };
    for (what, bytes, exit, part) in [
        ("body", text.replacen(" 5 ", " 6 ", 1).into_bytes(), Exit::Mismatch, "files and bytes do not add up"),
        ("mode", text.replacen("d - 0 7", "d - 0 6", 1).into_bytes(), Exit::Mismatch, "its own digest does not hold"),
        ("signature", signature_bent, Exit::Mismatch, "the signature of the sender does not hold"),
        ("cut", good[..good.len() / 2].to_vec(), Exit::Mismatch, "its end is missing"),
        ("text", b"hello\n".to_vec(), Exit::Usage, "this is not a receipt"),
        ("empty", Vec::new(), Exit::Mismatch, "the end is missing"),
        ("later", b"longhaul-receipt 2\n".to_vec(), Exit::Negotiation, "later version"),
        ("long", vec![b'x'; 1 << 20], Exit::Mismatch, "line 1: it is too long"),
    ] {
        std::fs::write(tree.receipt(), bytes).unwrap();
        let failure = tree.verify().expect_err(what);
        assert_eq!(failure.exit, exit, "{what}: {failure}");
        assert!(failure.cause.contains(part), "{what}: {failure}");
    }
}

#[test]
fn a_receipt_without_signatures_says_so_and_a_named_signer_is_demanded() {
    let tree = Tree::new("signer");
    let fingerprint = tree.sign(DigestKind::Blake3);
    assert!(tree.verify_at(tree.data(), Some(fingerprint.clone()), false).is_ok());
    let failure = tree.verify_at(tree.data(), Some("lh:aaaa".to_owned()), false).unwrap_err();
    assert_eq!(failure.exit, Exit::Identity);
    let text = std::fs::read_to_string(tree.receipt()).unwrap();
    std::fs::write(tree.receipt(), &text[..text.find("signed").unwrap()]).unwrap();
    let (exit, text) = tree.verify().unwrap();
    assert_eq!(exit, Exit::Whole);
    assert!(text.contains("signed by nobody"), "{text}");
    assert_eq!(tree.verify_at(tree.data(), Some(fingerprint), false).unwrap_err().exit, Exit::Identity);
}

#[test]
fn one_file_can_be_checked_alone() {
    let tree = Tree::new("one");
    tree.sign(DigestKind::Blake3);
    std::fs::remove_file(tree.data().join("a file")).unwrap();
    let (exit, text) = tree.verify_at(tree.data().join("dir/three"), None, false).unwrap();
    assert_eq!(exit, Exit::Whole, "{text}");
    assert!(text.starts_with("verified 1 file, 3.00 MB"), "{text}");
    flip(&tree.data().join("dir/three"), 0);
    assert_eq!(tree.verify_at(tree.data().join("dir/three"), None, false).unwrap().0, Exit::Mismatch);
    let failure = tree.verify_at(tree.receipt(), None, false).unwrap_err();
    assert_eq!(failure.cause, "the receipt names no such file");
    assert_eq!(tree.verify_at(tree.0.join("nowhere"), None, false).unwrap_err().exit, Exit::Vanished);
    for (entry, full, is_end) in
        [("", "/a/b", true), ("b", "/a/b", true), ("a/b", "/a/b", true), ("b", "/ab", false), ("c", "/a/b", false)]
    {
        assert_eq!(is_end_of(entry.as_bytes(), full.as_bytes()), is_end, "{entry} {full}");
    }
}

#[test]
fn a_tree_copied_under_a_new_name_is_found_from_above_and_by_its_own_name() {
    let tree = Tree::new("renamed");
    tree.sign_under(DigestKind::Blake3, "data/");
    let (from_above, by_name) = (tree.verify_at(tree.0.clone(), None, false), tree.verify());
    assert_eq!((from_above.unwrap().0, by_name.unwrap().0), (Exit::Whole, Exit::Whole));
    flip(&tree.data().join("dir/three"), 9);
    for path in [tree.0.clone(), tree.data()] {
        let (exit, text) = tree.verify_at(path, None, false).unwrap();
        assert_eq!(exit, Exit::Mismatch);
        assert!(text.starts_with("data/dir/three: DIFFERS"), "{text}");
    }
    // Nothing of the tree is there: that is said for each entry.
    std::fs::create_dir(tree.0.join("elsewhere")).unwrap();
    let (exit, text) = tree.verify_at(tree.0.join("elsewhere"), None, false).unwrap();
    assert_eq!(exit, Exit::Mismatch);
    assert!(text.contains("5 entries MISSING"), "{text}");
}

#[test]
fn json_has_a_line_per_mismatch_and_one_at_the_end() {
    let tree = Tree::new("json");
    tree.sign(DigestKind::Blake3);
    std::fs::remove_file(tree.data().join("a file")).unwrap();
    let (exit, text) = tree.verify_at(tree.data(), None, true).unwrap();
    assert_eq!(exit, Exit::Mismatch);
    let events: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|event| event["event"] == kind).collect::<Vec<_>>();
    assert_eq!((&of("mismatch")[0]["path"], &of("mismatch")[0]["kind"]), (&"a file".into(), &"missing".into()));
    let done = events.last().unwrap();
    assert_eq!(
        (&done["event"], &done["exit"], &done["missing"], &done["files"]),
        (&"done".into(), &40.into(), &1.into(), &3.into())
    );
    assert_eq!(done["signed_by"].as_array().unwrap().len(), 2);
}

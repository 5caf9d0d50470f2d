//! Uploads that end, are cut and go on, on a folder of the host.

use std::path::PathBuf;

use super::*;
use crate::seal::digest::digest_of;

const MIB: usize = 1 << 20;

struct Place(PathBuf, Dir);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("longhaul-open-ended-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let dir = Dir::open(path.as_os_str().as_encoded_bytes()).unwrap();
        Place(path, dir)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(&self.0).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn begin(&self, from: From, digest: DigestKind) -> io::Result<OpenEnded> {
        OpenEnded::begin(&self.1, b"f", from, How { durability: Durability::Published, digest })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 509) as u8 | 1).collect()
}

fn put(it: &mut OpenEnded, bytes: &[u8]) {
    bytes.chunks(MIB).for_each(|run| it.put(run.chunks(20_000)).unwrap());
}

#[test]
fn an_upload_has_its_name_when_it_is_whole_and_leaves_nothing_else() {
    let place = Place::new("whole");
    for (digest, len) in [(DigestKind::Blake3, 0), (DigestKind::Blake3, 5), (DigestKind::Crc64, 40 * MIB + 77)] {
        let bytes = bytes(len);
        let mut it = place.begin(From::Start, digest).unwrap();
        put(&mut it, &bytes);
        assert!(!place.0.join("f").exists());
        assert_eq!(place.begin(From::Start, digest).unwrap_err().raw_os_error(), Some(EBUSY), "one writer");
        let whole = it.publish().unwrap();
        assert_eq!(whole, Whole { bytes: len as u64, digest: digest_of(digest, &bytes) });
        assert!(std::fs::read(place.0.join("f")).unwrap() == bytes);
        assert_eq!(place.names(), ["f"]);
        std::fs::remove_file(place.0.join("f")).unwrap();
    }
}

#[test]
fn a_cut_upload_goes_on_where_it_was_to_the_byte_and_any_earlier_place() {
    let place = Place::new("cut");
    let bytes = bytes(43 * MIB + 1234);
    for digest in [DigestKind::Blake3, DigestKind::Crc64] {
        for cut in [1, MIB - 1, MIB, MIB + 1, 2 * MIB, 41 * MIB + 99] {
            for back in [0, 1, MIB] {
                let at = cut.saturating_sub(back).max(1);
                let mut it = place.begin(From::Start, digest).unwrap();
                put(&mut it, &bytes[..cut]);
                assert_eq!(standing(&place.1, b"f").unwrap(), None, "somebody is at it");
                assert_eq!(it.leave().unwrap(), cut as u64);
                // One less: who is told a length that is the file's has nothing left to send.
                assert_eq!(standing(&place.1, b"f").unwrap(), (cut > 1).then_some(cut as u64 - 1));
                assert_eq!(
                    place.begin(From::At(cut as u64 + 1), digest).unwrap_err().kind(),
                    io::ErrorKind::InvalidInput
                );
                let from = if back == 0 { From::End } else { From::At(at as u64) };
                let mut it = place.begin(from, digest).unwrap();
                assert_eq!(it.bytes(), at as u64);
                put(&mut it, &bytes[at..]);
                assert_eq!(it.publish().unwrap().digest, digest_of(digest, &bytes), "{digest:?} {cut} {at}");
                assert!(std::fs::read(place.0.join("f")).unwrap() == bytes);
                assert_eq!(place.names(), ["f"]);
                std::fs::remove_file(place.0.join("f")).unwrap();
            }
        }
    }
}

#[test]
fn what_a_kill_leaves_is_believed_as_far_as_the_journal_and_the_bytes_agree() {
    let place = Place::new("kill");
    let bytes = bytes(20 * MIB);
    let mut it = place.begin(From::Start, DigestKind::Blake3).unwrap();
    put(&mut it, &bytes);
    // As a kill does it: nobody says good-bye, and the lock is let go.
    it.claim = None;
    drop(it);
    let stands = standing(&place.1, b"f").unwrap().unwrap();
    assert_eq!(stands + 1, 16 * MIB as u64, "noted every 8 MiB");
    if !sys::fs::is_memory_file_system(&File::open(&place.0).unwrap()) {
        // Noted and not flushed: a byte that is not what it was ends what is believed.
        let part = place.1.open_file_to_write(&beside(b"f", "part")).unwrap();
        part.write_all_at(&[0], 9 * MIB as u64).unwrap();
        assert_eq!(standing(&place.1, b"f").unwrap(), Some(9 * MIB as u64 - 1));
        part.write_all_at(&bytes[9 * MIB..=9 * MIB], 9 * MIB as u64).unwrap();
    }
    // A torn journal is believed up to the tear.
    let name = place.1.open_file_to_write(&beside(b"f", "journal")).unwrap();
    let end = sys::fs::stat_file(&name).unwrap().bytes;
    sys::fs::truncate(&name, end - 3).unwrap();
    assert_eq!(standing(&place.1, b"f").unwrap(), Some(8 * MIB as u64 - 1));
    let mut it = place.begin(From::End, DigestKind::Blake3).unwrap();
    put(&mut it, &bytes[8 * MIB..]);
    assert_eq!(it.publish().unwrap().digest, digest_of(DigestKind::Blake3, &bytes));
    assert_eq!(place.names(), ["f"]);
}

#[test]
fn a_file_that_stands_is_added_to_beside_itself_and_stays_whole_until_then() {
    let place = Place::new("append");
    std::fs::write(place.0.join("f"), b"hello ").unwrap();
    let mut it = place.begin(From::End, DigestKind::Blake3).unwrap();
    it.put([&b"world"[..]].into_iter()).unwrap();
    assert_eq!(std::fs::read(place.0.join("f")).unwrap(), b"hello ");
    assert_eq!(it.publish().unwrap().bytes, 11);
    assert_eq!(std::fs::read(place.0.join("f")).unwrap(), b"hello world");
    let mut it = place.begin(From::At(2), DigestKind::Blake3).unwrap();
    it.put([&b"y"[..]].into_iter()).unwrap();
    it.publish().unwrap();
    assert_eq!(std::fs::read(place.0.join("f")).unwrap(), b"hey");
    // A folder and a link are no files.
    std::fs::create_dir(place.0.join("d")).unwrap();
    std::os::unix::fs::symlink("f", place.0.join("l")).unwrap();
    let how = How { durability: Durability::Written, digest: DigestKind::Blake3 };
    assert_eq!(OpenEnded::begin(&place.1, b"d", From::Start, how).unwrap_err().raw_os_error(), Some(EISDIR));
    assert_eq!(OpenEnded::begin(&place.1, b"l", From::Start, how).unwrap_err().raw_os_error(), Some(EINVAL));
    assert_eq!(place.names(), ["d", "f", "l"]);
}

#[test]
fn zeros_at_the_end_and_in_the_middle_are_holes_that_count() {
    let place = Place::new("holes");
    let mut bytes = bytes(MIB);
    bytes.resize(20 * MIB, 0);
    bytes.extend_from_slice(b"end");
    bytes.resize(30 * MIB, 0);
    let mut it = place.begin(From::Start, DigestKind::Blake3).unwrap();
    put(&mut it, &bytes[..12 * MIB + 5]);
    assert_eq!(it.leave().unwrap(), 12 * MIB as u64 + 5);
    assert_eq!(standing(&place.1, b"f").unwrap(), Some(12 * MIB as u64 + 4));
    let mut it = place.begin(From::End, DigestKind::Blake3).unwrap();
    put(&mut it, &bytes[12 * MIB + 5..]);
    assert_eq!(it.publish().unwrap().digest, digest_of(DigestKind::Blake3, &bytes));
    assert!(std::fs::read(place.0.join("f")).unwrap() == bytes);
    let stat = place.1.stat(b"f").unwrap();
    assert!(stat.blocks * 512 < 6 * MIB as u64, "{} of {}", stat.blocks * 512, stat.bytes);
}

//! The same file, whose bytes come in blocks of any order.
//!
//! For: uploads by MODE E of GridFTP.
//! In and out: runs of bytes, each with its place; the file under its name, or a part whose beginning a later upload goes on with.
//! Invariants: those of `open_ended`; no byte is put twice (whoever calls it asked `proto::ftp::blocks` before); bytes that come at the place where the part's
//! beginning ends are hashed as they come, and so is a chunk that comes from its first byte on, in order; what else came is read back before it counts;
//! memory is bounded, however far apart blocks lie.
//! Absent on purpose: whether all of it came (`rail::plain::gather`).

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;

use proto::ftp::blocks::{APART_MAX, CONNECTIONS_MAX, Stretches};
use proto::wire::control::Digest;
use sys::fs::Dir;

use super::{CHUNK_BYTES, From, How, OpenEnded, Whole};
use crate::seal::hash::{Hash, HashAs};

const CHUNK: u64 = CHUNK_BYTES as u64;
/// Chunks that are being hashed: one for each connection and the block it begins.
const HASHED_AT_ONCE: usize = 2 * CONNECTIONS_MAX as usize;
/// Digests of chunks that lie apart: 64 GiB of them. Chunks beyond are read back.
const DIGESTS_MAX: usize = 1 << 16;

/// A file whose bytes come in any order, until it is published, left as a part or discarded.
pub struct Scattered {
    of: OpenEnded,
    /// The place of the first byte on the wire.
    zero: u64,
    /// Bytes of a file that stood there, of which what is not written stays.
    old: Option<u64>,
    /// What was written apart from the beginning.
    apart: Stretches,
    digests: BTreeMap<u64, Digest>,
    /// Chunks that come in order from their first byte on, and what comes next.
    hashed: BTreeMap<u64, (Hash, u64)>,
}

impl std::fmt::Debug for Scattered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scattered").field("of", &self.of).field("zero", &self.zero).finish_non_exhaustive()
    }
}

impl Scattered {
    /// Begins a file, or goes on with one behind what stands.
    ///
    /// # Errors
    /// As of `OpenEnded::begin`.
    pub fn begin(base: &Dir, path: &[u8], from: From, how: How) -> io::Result<Scattered> {
        OpenEnded::begin(base, path, from, how).map(|of| Scattered::on(of, 0, None))
    }

    /// Writes into a file, or a new one, from a place on: what stands elsewhere in it stays.
    ///
    /// # Errors
    /// As of `OpenEnded::begin`.
    pub fn begin_into(base: &Dir, path: &[u8], zero: u64, how: How) -> io::Result<Scattered> {
        let of = OpenEnded::begin(base, path, From::Start, how)?;
        let copied = match base.open_file(path, false) {
            Ok(old) => sys::fs::stat_file(&old)
                .and_then(|stat| sys::fs::copy_range(&old, &of.part, 0, stat.bytes).map(|_| stat.bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        };
        match copied {
            Ok(bytes) => Ok(Scattered::on(of, zero, Some(bytes))),
            Err(error) => {
                of.discard();
                Err(error)
            }
        }
    }

    fn on(of: OpenEnded, zero: u64, old: Option<u64>) -> Scattered {
        Scattered { of, zero, old, apart: Stretches::default(), digests: BTreeMap::new(), hashed: BTreeMap::new() }
    }

    /// Bytes that stand without a gap, from the first on.
    #[must_use]
    pub fn standing(&self) -> u64 {
        self.of.bytes()
    }

    /// The next bytes of a block, which belong at `offset` of the wire.
    ///
    /// # Errors
    /// The file system's.
    pub fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = self.zero.checked_add(offset).ok_or(io::ErrorKind::FileTooLarge)?;
        if self.old.is_none() && at == self.of.bytes() {
            self.of.put(std::iter::once(bytes))?;
        } else {
            self.of.part.write_all_at(bytes, at)?;
            let end = at.checked_add(bytes.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
            let added = self.apart.add(at..end, 2 * APART_MAX);
            added.map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken.words()))?;
            self.hash(at, bytes);
        }
        if self.old.is_none() { self.advance(false) } else { Ok(()) }
    }

    /// Hashes what of these bytes goes on with a chunk, or begins one.
    fn hash(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let index = at / CHUNK;
            let chunk_end = (index + 1) * CHUNK;
            let (now, rest) = bytes.split_at(bytes.len().min((chunk_end - at) as usize));
            let mut held = self.hashed.remove(&index).filter(|&(_, next)| next == at);
            if at == index * CHUNK && self.hashed.len() < HASHED_AT_ONCE {
                held =
                    Some((Hash::alone(self.of.how.digest, HashAs { offset: at, whole: false, crc_only: false }), at));
            }
            at += now.len() as u64;
            bytes = rest;
            // Without its beginning it is read back.
            let Some((mut hash, _)) = held else { continue };
            hash.update(now);
            if at < chunk_end {
                self.hashed.insert(index, (hash, at));
            } else if self.digests.len() < DIGESTS_MAX {
                self.digests.insert(index, hash.finish().digest);
            }
        }
    }

    /// What lies apart joins the beginning, as far as it does. `is_last`: nothing more comes.
    fn advance(&mut self, is_last: bool) -> io::Result<()> {
        loop {
            let at = self.of.bytes();
            let Some(there) = self.apart.end_from(at) else { break };
            let (index, chunk_end) = (at / CHUNK, (at / CHUNK + 1) * CHUNK);
            let begins = at == index * CHUNK;
            // The last chunk may be all of the file, whose digest is another: a byte has to follow.
            if begins
                && there >= chunk_end
                && self.apart.end() > chunk_end
                && let Some(digest) = self.digests.remove(&index)
            {
                self.of.hash.skip(&digest);
                self.of.fresh.1.push(digest);
                continue;
            }
            let is_on_its_way = begins && (self.hashed.contains_key(&index) || self.digests.contains_key(&index));
            if is_on_its_way && !is_last {
                break;
            }
            self.of.hash_again(there.min(chunk_end))?;
        }
        self.apart.forget_before(self.of.bytes());
        self.of.note_many()
    }

    /// All of it came, `end` bytes of the wire: it gets its name.
    ///
    /// # Errors
    /// InvalidData: not all of it came; the file system's. The part is gone then.
    pub fn publish(self, end: u64) -> io::Result<Whole> {
        self.publish_seen(end, |_| ())
    }

    /// As `publish`; `before` is that of `OpenEnded::publish_seen`.
    ///
    /// # Errors
    /// As of `publish`.
    pub fn publish_seen(mut self, end: u64, before: impl FnOnce(&std::fs::File)) -> io::Result<Whole> {
        match self.complete(end) {
            Ok(()) => self.of.publish_seen(before),
            Err(error) => {
                self.of.discard();
                Err(error)
            }
        }
    }

    fn complete(&mut self, end: u64) -> io::Result<()> {
        self.hashed.clear();
        let Some(old) = self.old else {
            self.advance(true)?;
            return if self.of.bytes() == end { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
        };
        let bytes = self.zero.checked_add(end).ok_or(io::ErrorKind::FileTooLarge)?.max(old);
        if bytes > old {
            sys::fs::truncate(&self.of.part, bytes)?;
        }
        self.of.hash_again(bytes)
    }

    /// It was cut: the beginning that came stays, for an upload that goes on behind it. Returns its bytes.
    ///
    /// # Errors
    /// The file system's; then less of it stays, or nothing.
    pub fn leave(mut self) -> io::Result<u64> {
        self.hashed.clear();
        if self.old.is_some() || self.advance(true).is_err() {
            self.of.discard();
            return Ok(0);
        }
        // What lies behind a gap is sent again.
        if self.apart.end() > self.of.bytes() {
            sys::fs::truncate(&self.of.part, self.of.bytes())?;
        }
        self.of.leave()
    }

    /// Nothing of it stays.
    pub fn discard(self) {
        self.of.discard();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::wire::control::{DigestKind, Durability};

    fn folder(name: &str) -> (std::path::PathBuf, Dir) {
        let path = std::env::temp_dir().join(format!("longhaul-scattered-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let dir = Dir::open(path.as_os_str().as_encoded_bytes()).unwrap();
        (path, dir)
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 4093) as u8 | 1).collect()
    }

    const HOW: How = How { durability: Durability::Written, digest: DigestKind::Blake3 };

    #[test]
    fn blocks_of_any_order_and_size_are_one_file_with_its_digest() {
        let (path, dir) = folder("order");
        for (len, block) in [
            (0usize, 1usize),
            (5, 3),
            (1 << 20, 1 << 20),
            (1 << 20, 300_000),
            ((5 << 20) + 7, 1 << 20),
            ((5 << 20) + 7, 100_003),
            (9 << 20, 3 << 20),
        ] {
            let content = bytes(len);
            for step in [1, 2, 3, 5, 7] {
                for digest in [DigestKind::Blake3, DigestKind::Crc64] {
                    let mut file = Scattered::begin(&dir, b"f", From::Start, How { digest, ..HOW }).unwrap();
                    let blocks: Vec<_> = content.chunks(block).enumerate().collect();
                    for first in (0..step).rev() {
                        for (at, bytes) in blocks.iter().skip(first).step_by(step) {
                            for (piece, run) in bytes.chunks(70_001).enumerate() {
                                file.put((at * block + piece * 70_001) as u64, run).unwrap();
                            }
                        }
                    }
                    let whole = file.publish(len as u64).unwrap();
                    let wanted = match digest {
                        DigestKind::Blake3 => *blake3::hash(&content).as_bytes(),
                        DigestKind::Crc64 => {
                            let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &content);
                            let mut all = [0; 32];
                            all[..8].copy_from_slice(&crc.to_le_bytes());
                            all
                        }
                    };
                    assert_eq!(whole.digest, wanted, "{len} bytes in blocks of {block}, each {step}th");
                    assert!(std::fs::read(path.join("f")).unwrap() == content);
                    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
                }
            }
        }
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_gap_is_no_file_and_a_cut_leaves_the_beginning_that_came() {
        let (path, dir) = folder("cut");
        let content = bytes(6 << 20);
        let mut file = Scattered::begin(&dir, b"f", From::Start, HOW).unwrap();
        file.put(3 << 20, &content[3 << 20..]).unwrap();
        assert_eq!(file.publish(6 << 20).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nothing is left of it");
        let mut file = Scattered::begin(&dir, b"f", From::Start, HOW).unwrap();
        file.put(1 << 20, &content[1 << 20..3 << 20]).unwrap();
        file.put(5 << 20, &content[5 << 20..]).unwrap();
        file.put(0, &content[..1 << 20]).unwrap();
        assert_eq!(file.leave().unwrap(), 3 << 20);
        assert!(!path.join("f").exists());
        let mut file = Scattered::begin(&dir, b"f", From::At(3 << 20), HOW).unwrap();
        assert_eq!(file.standing(), 3 << 20);
        file.put(4 << 20, &content[4 << 20..]).unwrap();
        file.put(3 << 20, &content[3 << 20..4 << 20]).unwrap();
        assert_eq!(file.publish(6 << 20).unwrap().digest, *blake3::hash(&content).as_bytes());
        assert!(std::fs::read(path.join("f")).unwrap() == content);
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn bytes_into_the_middle_of_a_file_leave_the_others_and_a_cut_leaves_the_file() {
        let (path, dir) = folder("into");
        std::fs::write(path.join("f"), b"0123456789").unwrap();
        let mut file = Scattered::begin_into(&dir, b"f", 4, HOW).unwrap();
        file.put(1, b"b").unwrap();
        file.put(0, b"a").unwrap();
        assert_eq!(file.publish(2).unwrap().digest, *blake3::hash(b"0123ab6789").as_bytes());
        let mut file = Scattered::begin_into(&dir, b"f", 12, HOW).unwrap();
        file.put(0, b"xyz").unwrap();
        assert_eq!(file.publish(3).unwrap().bytes, 15);
        assert_eq!(std::fs::read(path.join("f")).unwrap(), b"0123ab6789\0\0xyz");
        let mut file = Scattered::begin_into(&dir, b"f", 0, HOW).unwrap();
        file.put(0, b"never").unwrap();
        assert_eq!(file.leave().unwrap(), 0);
        assert_eq!(std::fs::read(path.join("f")).unwrap(), b"0123ab6789\0\0xyz");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
        std::fs::remove_dir_all(path).unwrap();
    }
}

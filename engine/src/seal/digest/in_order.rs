//! The digest of a file whose bytes come in order, and whose length nobody knows before its end.
//!
//! For: uploads of other protocols (`tree::sink::open_ended`), whose journal wants the digest of each chunk.
//! In and out: runs of bytes of any length; each chunk's digest as soon as the chunk is whole, and at the end the file's, which `b3sum` prints
//! (or CRC-64/NVME).
//! Invariants: memory is one digest for each level of the tree, 2^44 chunks at most; the last chunk stays open until a byte follows it, for only
//! then is it known not to be the root.
//! Absent on purpose: chunks out of order (`digest`).
//! Source: BLAKE3 paper, section 5.1.2 (incremental hashing by a stack of chaining values).

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use crc_fast::CrcAlgorithm::Crc64Nvme;
use proto::wire::control::{Digest, DigestKind};

use super::{crc_digest, crc_of, join_crc};

/// The digest of the bytes that came so far, in order.
#[derive(Debug)]
pub struct InOrder {
    chunk_bytes: u64,
    /// Bytes so far.
    bytes: u64,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Blake3 {
        /// Subtrees that wait for their right neighbour, the largest first.
        stack: Vec<Digest>,
        /// The last chunk.
        open: Box<blake3::Hasher>,
    },
    Crc64 {
        /// Of all chunks before the last.
        before: u64,
        open: Box<crc_fast::Digest>,
    },
}

impl InOrder {
    /// Nothing yet. `chunk_bytes` is a power of two.
    #[must_use]
    pub fn new(kind: DigestKind, chunk_bytes: u32) -> InOrder {
        let way = match kind {
            DigestKind::Blake3 => Way::Blake3 { stack: Vec::new(), open: Box::default() },
            DigestKind::Crc64 => Way::Crc64 { before: 0, open: Box::new(crc_fast::Digest::new(Crc64Nvme)) },
        };
        InOrder { chunk_bytes: u64::from(chunk_bytes), bytes: 0, way }
    }

    /// So many whole chunks are there already, each with this digest; at least one byte more has to follow.
    pub fn skip(&mut self, chunk: &Digest) {
        self.close_open();
        self.close(*chunk);
        self.bytes += self.chunk_bytes;
    }

    /// A whole chunk that stands open is not the last.
    fn close_open(&mut self) {
        if self.bytes > 0 && self.is_open() {
            let digest = self.open_digest();
            self.close(digest);
        }
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// More bytes; `whole` hears of each chunk that these complete: its index and digest.
    pub fn update(&mut self, bytes: &[u8], mut whole: impl FnMut(u64, Digest)) {
        let mut left = bytes;
        while !left.is_empty() {
            let in_chunk = self.bytes % self.chunk_bytes;
            if in_chunk == 0 {
                self.close_open();
            }
            let (now, rest) = left.split_at(left.len().min((self.chunk_bytes - in_chunk) as usize));
            match &mut self.way {
                Way::Blake3 { open, .. } => drop(open.update(now)),
                Way::Crc64 { open, .. } => open.update(now),
            }
            self.bytes += now.len() as u64;
            if self.bytes.is_multiple_of(self.chunk_bytes) {
                whole(self.bytes / self.chunk_bytes - 1, self.open_digest());
            }
            left = rest;
        }
    }

    /// The index and digest of the last chunk, if it is not whole: what a journal says of it.
    #[must_use]
    pub fn rest(&self) -> Option<(u64, Digest)> {
        let is_whole = self.bytes.is_multiple_of(self.chunk_bytes);
        (!is_whole).then(|| (self.bytes / self.chunk_bytes, self.open_digest()))
    }

    /// The file's digest: these were all its bytes.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.way {
            Way::Blake3 { stack, open } if stack.is_empty() => *open.finalize().as_bytes(),
            Way::Blake3 { mut stack, open } => {
                let mut digest = open.finalize_non_root();
                while let Some(left) = stack.pop() {
                    digest = if stack.is_empty() {
                        *merge_subtrees_root(&left, &digest, Mode::Hash).as_bytes()
                    } else {
                        merge_subtrees_non_root(&left, &digest, Mode::Hash)
                    };
                }
                digest
            }
            Way::Crc64 { before, open } => {
                let last_bytes = match self.bytes % self.chunk_bytes {
                    0 => self.bytes.min(self.chunk_bytes),
                    rest => rest,
                };
                crc_digest(join_crc(before, open.finalize(), last_bytes))
            }
        }
    }

    /// Has the last chunk bytes that were not closed? After `skip` it has none.
    fn is_open(&self) -> bool {
        match &self.way {
            Way::Blake3 { open, .. } => open.count() > 0,
            Way::Crc64 { open, .. } => open.get_amount() > 0,
        }
    }

    fn open_digest(&self) -> Digest {
        match &self.way {
            Way::Blake3 { open, .. } => open.finalize_non_root(),
            Way::Crc64 { open, .. } => crc_digest(open.clone().finalize()),
        }
    }

    /// The last chunk was not the file's last: its digest goes into the tree, and the next one begins.
    fn close(&mut self, digest: Digest) {
        match &mut self.way {
            Way::Blake3 { stack, open } => {
                // `close` is called when `self.bytes` stands at the end of that chunk, or by `skip` at its begin.
                let index =
                    if open.count() > 0 { self.bytes / self.chunk_bytes - 1 } else { self.bytes / self.chunk_bytes };
                let (mut digest, mut number) = (digest, index + 1);
                while number & 1 == 0 {
                    let left = stack.pop().expect("a level for each bit of the chunk's number");
                    digest = merge_subtrees_non_root(&left, &digest, Mode::Hash);
                    number >>= 1;
                }
                stack.push(digest);
                // `reset` keeps where the last one began.
                **open = blake3::Hasher::new();
                open.set_input_offset((index + 1) * self.chunk_bytes);
            }
            Way::Crc64 { before, open } => {
                *before = join_crc(*before, crc_of(&digest), self.chunk_bytes);
                open.reset();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::digest::digest_of;

    const CHUNK: u32 = 1 << 14;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_in_order_have_the_digest_of_the_whole_file_however_they_are_cut() {
        let chunk = CHUNK as usize;
        for kind in [DigestKind::Blake3, DigestKind::Crc64] {
            for len in [
                0,
                1,
                chunk - 1,
                chunk,
                chunk + 1,
                2 * chunk,
                3 * chunk,
                4 * chunk,
                5 * chunk + 17,
                8 * chunk,
                11 * chunk + 5,
            ] {
                let bytes = bytes(len);
                for step in [1000, chunk, chunk * 3 + 7] {
                    let (mut hash, mut whole) = (InOrder::new(kind, CHUNK), Vec::new());
                    bytes.chunks(step).for_each(|run| hash.update(run, |index, digest| whole.push((index, digest))));
                    assert_eq!(whole.len(), len / chunk);
                    assert_eq!(hash.finish(), digest_of(kind, &bytes), "{kind:?} {len} {step}");
                }
            }
        }
    }

    #[test]
    fn what_was_there_already_counts_by_its_chunks_digests() {
        let chunk = CHUNK as usize;
        for kind in [DigestKind::Blake3, DigestKind::Crc64] {
            let bytes = bytes(9 * chunk + 100);
            let (mut first, mut whole) = (InOrder::new(kind, CHUNK), Vec::new());
            first.update(&bytes, |_, digest| whole.push(digest));
            assert_eq!(first.rest().unwrap().0, 9);
            for skipped in 0..=9 {
                let mut hash = InOrder::new(kind, CHUNK);
                whole[..skipped].iter().for_each(|digest| hash.skip(digest));
                assert_eq!(hash.bytes(), (skipped * chunk) as u64);
                hash.update(&bytes[skipped * chunk..], |index, digest| assert_eq!(digest, whole[index as usize]));
                assert_eq!(hash.finish(), digest_of(kind, &bytes), "{kind:?} {skipped}");
            }
        }
    }
}

//! A file that is checked: what its bytes are read from, and what several threads that read it share.
//!
//! For: one file read by one worker, or in parts by many.
//! In and out: an opened file (of a set, its pieces on many volumes) and its line of the receipt in; ranges of bytes, the digests of parts and
//! their root out.
//! Invariants: a part belongs to one volume of a set; the digest of the whole is there when the last part is.
//! Absent on purpose: which thread reads which part (`files`, `by_volume`).

use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

use engine::seal::digest::DigestTree;
use engine::tree::source::joined::Joined;
use proto::receipt::EntryLine;
use proto::wire::control::{Digest, DigestKind};

/// What a file's bytes are read from.
#[derive(Debug)]
pub(super) struct Content {
    /// What its name leads to.
    pub(super) file: File,
    /// Where its name stands.
    pub(super) home: usize,
    /// Its chunks stand on many volumes.
    pub(super) joined: Option<Joined>,
}

impl Content {
    /// What the page cache holds says nothing about the disk; a file system without a cache refuses, rightly. Of a file on many volumes the
    /// range is within one chunk.
    pub(super) fn drop_cache(&self, offset: u64, len: u64) {
        let file = self.joined.as_ref().map_or(Some(&self.file), |joined| joined.piece_at(offset));
        let _ = file.map(|file| sys::fs::drop_cache(file, offset, len));
    }

    pub(super) fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        match &self.joined {
            Some(joined) => joined.read_at(into, offset),
            None => sys::fs::read_at_full(&self.file, into, offset),
        }
    }
}

/// A file that several threads read.
#[derive(Debug)]
pub(super) struct Big {
    pub(super) content: Content,
    pub(super) line: Box<EntryLine>,
    pub(super) kind: DigestKind,
    pub(super) expected: Digest,
    pub(super) part_bytes: u32,
    pub(super) tree: Mutex<DigestTree>,
    pub(super) parts_left: AtomicU64,
    /// It was told already that it cannot be read.
    pub(super) told: AtomicBool,
}

impl Big {
    pub(super) fn new(
        content: Content,
        line: Box<EntryLine>,
        (kind, expected): (DigestKind, Digest),
        part_bytes: u32,
    ) -> Big {
        let tree = Mutex::new(DigestTree::new(kind, line.entry.bytes(), part_bytes));
        let parts_left = line.entry.bytes().div_ceil(part_bytes.into()).into();
        Big { content, line, kind, expected, part_bytes, tree, parts_left, told: false.into() }
    }

    pub(super) fn parts(&self) -> u64 {
        self.line.entry.bytes().div_ceil(self.part_bytes.into())
    }

    /// The first part from `from` on that stands on this volume.
    pub(super) fn seek(&self, volume: usize, from: u64) -> Option<u64> {
        let Some(joined) = &self.content.joined else {
            return Some(from).filter(|&from| volume == self.content.home && from < self.parts());
        };
        (from..self.parts()).find(|part| joined.volume_at(part * u64::from(self.part_bytes)) == Some(volume))
    }
}

//! A file that is striped by chunk, read as one.
//!
//! For: whoever reads a set of volumes outside of a job (`longhaul verify`).
//! In and out: the folders of the volumes and a path below them; bytes at any place of the file.
//! Invariants: every chunk has a place, or nothing is opened; links are not followed.
//! Absent on purpose: reading in a job (tree/volumes/source.rs), comparing chunks with their maps: the caller has the file's digest.

use std::fs::File;
use std::io;

use proto::striped::{Join, JoinFault, Whole};
use sys::fs::Dir;

use crate::tree::beside_of;

/// One file that is striped by chunk over volumes, read as a whole.
#[derive(Debug)]
pub struct Joined {
    join: Join,
    /// By volume.
    pieces: Vec<Option<File>>,
}

impl Joined {
    /// The file of this length and time; `None`: no volume has a map of it, so it is not striped. Errors: a chunk is on none of them
    /// (NotFound), a map is damaged (InvalidData).
    pub fn open(volumes: &[Dir], path: &[u8], file: Whole) -> io::Result<Option<Joined>> {
        let mut maps = Vec::new();
        let mut pieces = Vec::with_capacity(volumes.len());
        for (index, volume) in (0..).zip(volumes) {
            let mut map = match volume.open_file(&beside_of(path, file, "map"), false) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    pieces.push(None);
                    continue;
                }
                other => other?,
            };
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut map, &mut bytes)?;
            maps.push((index, bytes));
            pieces.push(Some(match volume.open_file(&beside_of(path, file, "chunks"), false) {
                // Where its name stands, that is the piece.
                Err(error) if error.kind() == io::ErrorKind::NotFound => volume.open_file(path, false)?,
                other => other?,
            }));
        }
        if maps.is_empty() {
            return Ok(None);
        }
        let join = Join::of(file, &maps).map_err(|fault| {
            let is_missing = matches!(fault, JoinFault::Missing { .. });
            let kind = if is_missing { io::ErrorKind::NotFound } else { io::ErrorKind::InvalidData };
            io::Error::new(kind, fault.to_string())
        })?;
        Ok(Some(Joined { join, pieces }))
    }

    /// Fills `into` from `offset` on; less only at the file's end.
    pub fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let step = u64::from(self.join.chunk_bytes());
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let Some(volume) = self.volume_at(at) else { break };
            let piece = self.pieces[volume].as_ref().ok_or(io::ErrorKind::NotFound)?;
            let left = usize::try_from(step - at % step).unwrap_or(usize::MAX);
            let end = into.len().min(done.saturating_add(left));
            let read = sys::fs::read_at_full(piece, &mut into[done..end], at)?;
            done += read;
            if read == 0 {
                break;
            }
        }
        Ok(done)
    }

    /// Bytes of the chunks that it is cut into.
    #[must_use]
    pub fn chunk_bytes(&self) -> u32 {
        self.join.chunk_bytes()
    }

    /// The volume that has the byte at `offset`.
    #[must_use]
    pub fn volume_at(&self, offset: u64) -> Option<usize> {
        self.join.volume_at(offset).map(usize::from)
    }

    /// The file that holds it there.
    #[must_use]
    pub fn piece_at(&self, offset: u64) -> Option<&File> {
        self.pieces[self.volume_at(offset)?].as_ref()
    }
}

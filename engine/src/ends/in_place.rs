//! A chunk whose source is at hand where it is written: read, hashed and put into its part in one pass.
//!
//! For: a copy within one process. The rail carries headers alone; the worker that writes a chunk reads it as well, so its bytes are copied
//! twice by the kernel (read, write) and hashed once, where a rail of its own would copy them four times and hash them twice.
//! In and out: the header of a chunk and its source, open already, in; the chunk in its part, and at the sending end what its own worker would have
//! told of it.
//! Invariants: what is written is what was hashed, out of the same memory, and the same digest is told to both ends; the writing end's rules hold
//! as ever (who writes a part, when it counts, when it has its name); a source that cannot be read is reported to the sending end, as by its
//! own worker.
//! Absent on purpose: opening (only the sending end knows which volume has a file), packs (many small files are read once by the sending end),
//! files that are not read at once: their reads would wait on the worker that writes.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Receiver;

use proto::PIECE_BYTES;
use proto::books::Stage;
use proto::manifest::EntryId;
use proto::wire::chunk::{Header, SEALED_HEADER_BYTES};
use proto::wire::control::{ChunkId, Digest, FaultKind};
use sys::mem::Buf;

use crate::ends::pieces::read_piece;
use crate::job::{Beside, Cover, EntryError, Event, EventQueue, OFFERS_MAX, Offered, Terms, fault_kind};
use crate::platform::Platform;
use crate::seal::hash::{Hash, HashAs, Hashed};
use crate::worker::cx::Cx;

/// Stands for the digest in the header of a frame without a payload. A CRC's digest ends in zeros, and no BLAKE3 of anything is known to be this.
pub(crate) const IN_PLACE: Digest = [0xff; 32];

/// Read, hashed and written at once: a part of a level-2 cache of 1 MiB, with as few calls as that allows. 1 GiB on tmpfs, two workers, BLAKE3: 15.3 instead of
/// 13.7 Gb/s by 128 KiB, and 14.7 by 512 KiB; with CRC-64 15.5, 14.8, 15.7 (EPYC, medians of 7 alternating rounds, 2026-11).
const STEP_BYTES: usize = 2 * PIECE_BYTES;

/// The source, at the end that writes.
#[derive(Debug)]
pub(crate) struct InPlace<P: Platform> {
    offers: Receiver<Offered<P::File>>,
    /// Those that came before the one that was looked for: of other rails, and of rails that died.
    earlier: VecDeque<Offered<P::File>>,
    /// To the sending end.
    told: EventQueue,
}

impl<P: Platform> InPlace<P> {
    pub(crate) fn new(beside: Beside<P>) -> Self {
        let Beside { offers, told } = beside;
        InPlace { offers, earlier: VecDeque::with_capacity(OFFERS_MAX), told }
    }

    /// The source of this chunk, which the sending end offered before its header went.
    pub(crate) fn take_offered(&mut self, chunk: ChunkId) -> Option<Offered<P::File>> {
        if let Some(at) = self.earlier.iter().position(|it| it.chunk == chunk) {
            return self.earlier.remove(at);
        }
        while let Ok(offered) = self.offers.try_recv() {
            if offered.chunk == chunk {
                return Some(offered);
            }
            self.earlier.push_back(offered);
        }
        None
    }

    /// These entries are over: what was offered of them is closed. Only chunks whose rail died are left so.
    pub(crate) fn forget(&mut self, entries: &[EntryId]) {
        self.earlier.extend(self.offers.try_iter());
        self.earlier.retain(|it| !entries.contains(&it.entry));
    }

    /// Reads and hashes a chunk piece by piece, and hands `drain` what it has not taken yet: from which offset, and whether no more will come. Once it
    /// takes that, its memory is used again, and so stays in the level-2 cache; if it takes nothing, the buf is whole afterwards. With the digest, how
    /// many bytes were taken.
    pub(crate) fn read(
        &mut self,
        cx: &mut Cx<'_, P>,
        file: &P::File,
        header: &Header,
        how: HashAs,
        buf: &mut Buf,
        mut drain: impl FnMut(&P, u64, &[u8], bool) -> bool,
    ) -> (io::Result<Hashed>, usize) {
        let mut hash = Hash::alone(cx.terms.digest, how);
        let payload = &mut buf.payload_mut()[..header.payload_bytes as usize];
        let mut taken = 0;
        for at in (0..payload.len()).step_by(STEP_BYTES) {
            let end = payload.len().min(at + STEP_BYTES);
            let piece = &mut payload[at - taken..end - taken];
            let read = read_piece(cx.platform, file, header.offset + at as u64, piece);
            cx.watch.lap(Stage::Read);
            if let Err(error) = read {
                return (Err(error), taken);
            }
            hash.update(piece);
            cx.watch.lap(Stage::Hash);
            let is_last = end == payload.len();
            if drain(cx.platform, header.offset + taken as u64, &payload[..end - taken], is_last) {
                taken = end;
            }
            cx.watch.lap(Stage::Write);
        }
        (Ok(hash.finish()), taken)
    }

    /// The header's frame is over, read with this digest. The sending end hears what its own worker would have said: first that the rail may have
    /// another chunk, so that no file is over with bytes of it uncounted.
    pub(crate) fn tell(&mut self, terms: &Terms, rail: u16, header: &Header, digest: Digest) {
        let &Header { chunk, entry, offset, payload_bytes, .. } = header;
        // With --bare nobody looks at the source: the digest is the destination's alone.
        let digest = if terms.cover == Cover::Bare { [0; 32] } else { digest };
        self.told.push(Event::Sent { rail, chunk, bytes: SEALED_HEADER_BYTES as u64, payload: payload_bytes.into() });
        self.told.push(Event::Read { chunk, entry, offset, digest });
    }

    /// The source cannot be read: its entry fails, and the chunk never came, as far as this end is concerned.
    pub(crate) fn tell_unreadable(&mut self, rail: u16, header: &Header, error: &io::Error) {
        let changed = error.kind() == io::ErrorKind::UnexpectedEof;
        let kind = if changed { FaultKind::Torn } else { fault_kind(error, true) };
        let errno = error.raw_os_error().unwrap_or(0);
        let error = EntryError { entry: header.entry, kind, errno, step: "read the source" };
        self.told.push(Event::Dropped { rail, chunk: header.chunk, error });
    }

    /// Once per iteration of the loop, as the job's own events.
    pub(crate) fn flush(&mut self) -> bool {
        self.told.flush()
    }
}

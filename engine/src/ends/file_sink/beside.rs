//! Chunks whose source is at hand: read and written by one worker.
//!
//! For: a copy within one process.
//! In and out: a header and a buf in; the chunk in its part and reported to both ends, or taken back.
//! Invariants: what was written of a chunk that could not be read to its end reads as missing again.
//! Absent on purpose: reading (`ends::in_place`).

use std::io;

use proto::PIECE_BYTES;
use proto::books::Stage;
use proto::error::Breach;
use proto::wire::chunk::Header;
use sys::mem::Buf;

use super::{Arrival, FileSink, is_zero};
use crate::ends::pieces::{is_again, write_piece};
use crate::platform::Platform;
use crate::seal::hash::hash_as;
use crate::worker::cx::Cx;

impl<F> Arrival<F> {
    /// One piece or more, at `offset` of the file, that may wait: false, another worker is writing the file, and this one has better to do than to sleep.
    /// `must`: nothing else is left to do. A file that is not written at once takes nothing.
    pub(crate) fn drain_in_turn<P: Platform<File = F>>(
        &mut self,
        platform: &P,
        offset: u64,
        bytes: &[u8],
        must: bool,
    ) -> bool {
        let Some(part) = &self.into else { return false };
        let mut runs = runs_of_data(bytes, part.sparse).peekable();
        if self.written.is_err() || runs.peek().is_none() {
            return true;
        }
        let mut at_first = !must;
        for (from, end) in runs {
            let (mut from, place) = (from, |from: usize| offset + from as u64);
            if std::mem::take(&mut at_first) {
                match platform.try_write_at_once(&part.file, place(from), &bytes[from..end]) {
                    None => return false,
                    Some(Ok(moved)) => from += moved,
                    Some(Err(error)) if is_again(&error) => {}
                    Some(Err(error)) => {
                        self.written = Err(error);
                        return true;
                    }
                }
            }
            self.written = write_piece(platform, &part.file, place(from), &bytes[from..end]);
            if self.written.is_err() {
                break;
            }
        }
        true
    }
}

/// What of some pieces is to be written: neighbours together. `sparse`: pieces of zeros are not.
fn runs_of_data(bytes: &[u8], sparse: bool) -> impl Iterator<Item = (usize, usize)> {
    let is_data = move |at: usize| !(sparse && is_zero(&bytes[at..bytes.len().min(at + PIECE_BYTES)]));
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = (at..bytes.len()).step_by(PIECE_BYTES).find(|&it| is_data(it))?;
        at = (from..bytes.len()).step_by(PIECE_BYTES).find(|&it| !is_data(it)).unwrap_or(bytes.len());
        Some((from, at))
    })
}

impl<P: Platform> FileSink<P> {
    /// A header came whose payload is in the source beside: it is read, hashed and, where its file is written at once, written, piece by piece;
    /// then it lands. Errors: the peer broke the protocol.
    pub(crate) fn copy_in_place(&mut self, cx: &mut Cx<'_, P>, header: Header, mut buf: Buf) -> Result<(), Breach> {
        let mut arrival = self.prepare(cx.platform, &cx.terms, &header);
        cx.watch.lap(Stage::Loop);
        let here = self.in_place.as_mut().expect("such headers are taken only where the source is at hand");
        let Some(offered) = here.take_offered(header.chunk) else {
            // Its entry fails at the other end, and so at this one: no fault of this kind passes for a copy.
            self.take_back(cx, arrival, header, (buf, 0), &io::Error::other("the source was not handed over"));
            return Ok(());
        };
        // Of an entry that is not expected any more, too: the other end waits to hear of what it is.
        let how = hash_as(&header, offered.file_bytes, cx.terms.chunk_bytes);
        let drain =
            |platform: &P, offset, bytes: &[u8], is_last| arrival.drain_in_turn(platform, offset, bytes, is_last);
        let (read, drained) = here.read(cx, &offered.file, &header, how, &mut buf, drain);
        match read {
            Ok(hashed) => {
                here.tell(&cx.terms, cx.rail, &header, hashed.digest);
                self.land(cx, arrival, header, Ok(hashed), buf)
            }
            Err(error) => {
                self.take_back(cx, arrival, header, (buf, drained), &error);
                Ok(())
            }
        }
    }

    /// The source could not be read to the chunk's end: what was written of it reads as missing again.
    fn take_back(
        &mut self,
        cx: &mut Cx<'_, P>,
        arrival: Arrival<P::File>,
        header: Header,
        (mut buf, drained): (Buf, usize),
        unread: &io::Error,
    ) {
        let room = &mut buf.payload_mut()[..drained];
        room.fill(0);
        let taken_back = match &arrival.into {
            Some(part) => write_piece(cx.platform, &part.file, header.offset, room),
            None => Ok(()),
        };
        cx.give_buf(buf);
        let here = self.in_place.as_mut().expect("what was read here");
        match taken_back {
            Ok(()) => here.tell_unreadable(cx.rail, &header, unread),
            Err(error) => {
                here.tell(&cx.terms, cx.rail, &header, [0; 32]);
                cx.report_write_failed(&header, &error, "write the part");
            }
        }
    }
}

//! Payloads that pass from their file to the network without being read here.
//!
//! For: stream rails of jobs without protection (`--bare`).
//! In and out: sends that carried one in; what became of it out: gone, or to be read and sent as others are.
//! Invariants: a frame whose header was sealed goes, whatever its file says by then; nothing else that stood in a buf goes with it.
//! Absent on purpose: the pipe between file and socket (`sys::pipe`), which frames may go so (`stream`).

use std::io;

use proto::manifest::EntryId;
use proto::wire::control::FaultKind;
use sys::mem::Mem;

use crate::ends::pieces::read_piece;
use crate::job::{EntryError, Event, fault_kind};
use crate::platform::{Done, Op, Platform};
use crate::worker::cx::Cx;
use crate::worker::slots::{Load, Slot};

/// Of errno(3): a file system or a socket between which nothing can be handed over.
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Where a payload is that nobody reads.
#[derive(Debug)]
pub(super) struct Unread<F> {
    pub(super) file: F,
    pub(super) entry: EntryId,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What became of such a frame.
pub(super) enum Outcome {
    /// It went, or the rail is broken: as any other send from here on.
    Sent(Slot, Done),
    /// Nothing went, for the file's bytes cannot be handed over: they were read, and are being sent.
    Read,
}

impl<F> Unread<F> {
    /// The send of its frame came back.
    pub(super) fn on_sent<P: Platform<File = F>>(
        self,
        socket: &P::Socket,
        cx: &mut Cx<'_, P>,
        slot: Slot,
        done: Done,
    ) -> Outcome {
        let Load::Frame { chunk, .. } = slot.load else { unreachable!("frames are sent") };
        let (result, missing) = match done.result {
            Err(error)
                if matches!(error.raw_os_error(), Some(EINVAL | EOPNOTSUPP))
                    || error.kind() == io::ErrorKind::Unsupported =>
            {
                let Mem::Buf(mut buf) = done.mem else { unreachable!("frames are in bufs") };
                let payload = &mut buf.payload_mut()[..self.bytes as usize];
                let read = read_piece(cx.platform, &self.file, self.offset, payload);
                if read.is_err() {
                    payload.fill(0); // its header is sealed, so it goes; and nothing else that stood here
                }
                self.report(cx, chunk, read.err());
                let (socket, at, len) = (socket.clone(), slot.at, slot.len);
                cx.submit(slot, Op::Send { socket, mem: Mem::Buf(buf), at, len, lend: false });
                return Outcome::Read;
            }
            Ok(moved) if moved < slot.len => (Ok(slot.len), Some(io::ErrorKind::UnexpectedEof.into())),
            other => (other, None),
        };
        if result.is_ok() {
            cx.watch.spared.lent += u64::from(self.bytes);
            cx.watch.spared.unread += u64::from(self.bytes);
            self.report(cx, chunk, missing);
        }
        Outcome::Sent(slot, Done { result, ..done })
    }

    fn report<P: Platform>(&self, cx: &mut Cx<'_, P>, chunk: u64, error: Option<io::Error>) {
        let (entry, offset) = (self.entry, self.offset);
        cx.events.push(match error {
            // No digest: nobody looked.
            None => Event::Read { chunk, entry, offset, digest: [0; 32] },
            Some(error) => {
                let changed = error.kind() == io::ErrorKind::UnexpectedEof;
                let kind = if changed { FaultKind::Torn } else { fault_kind(&error, true) };
                let errno = error.raw_os_error().unwrap_or(0);
                Event::SourceChanged { chunk, error: EntryError { entry, kind, errno, step: "send the source" } }
            }
        });
    }
}

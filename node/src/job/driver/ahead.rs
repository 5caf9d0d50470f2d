//! What a sender says ahead of the plan: its first entries follow `Open` at once.
//!
//! For: a push whose entries are answered together with its `Open`, which saves a round trip.
//! In and out: a source, scanned while the connection is made, in; frames for behind `Open`, and later the same entries for the machine, out.
//! Invariants: what the machine announces first is what was said, byte for byte; what could not be looked at, and more than a first flight holds,
//! is not said ahead; nothing is read, made or promised by it.
//! Absent on purpose: whether it may be said (`client::session`), whether it counts (the acceptor's `Accept` tells).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use engine::tree::Sources;
use engine::tree::scan::Batch;
use proto::manifest::Entry;
use proto::wire::control::Frame;
use sys::event::Event;

use super::threads::{Panics, spawn_scan};
use super::{End, JobDriver};
use text::exit::Failure;

/// Bytes of entries, about: with the last words of the handshake and `Open` they fit into the ten segments that TCP sends unasked (RFC 6928).
const AHEAD_BYTES_MAX: usize = 8 << 10;
/// An entry beside its path, link target and attributes.
const ENTRY_BYTES: usize = 48;

/// A source whose scan has begun before there is a plan.
pub struct Ahead {
    /// What is scanned.
    pub source: Arc<Sources>,
    /// Rung by the scan.
    pub wake: Event,
    pub(super) panics: Panics,
    pub(super) scan: Receiver<Option<Batch>>,
    said: Option<Said>,
}

/// What is said ahead.
#[derive(Default)]
struct Said {
    first: Batch,
    /// Found with it, and not said.
    rest: Option<Batch>,
    is_all: bool,
    frames: Vec<Vec<u8>>,
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Ahead").field("frames", &self.said.as_ref().map(|it| it.frames.len())).finish_non_exhaustive()
    }
}

impl Ahead {
    /// Begins to scan.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    pub fn begin(source: Arc<Sources>) -> io::Result<Ahead> {
        let wake = Event::new()?;
        let panics = Panics::new(&wake);
        let scan = spawn_scan(&source, &wake, &panics)?;
        Ok(Ahead { source, wake, panics, scan, said: None })
    }

    /// Frames of what the scan has found by now; none where that is nothing yet, or had a fault. The same when asked again.
    pub fn frames(&mut self) -> &[Vec<u8>] {
        if self.said.is_none() {
            self.said = match self.scan.try_recv() {
                Ok(Some(batch)) if batch.faults.is_empty() => Some(Said::of(batch, &self.scan)),
                // What was taken from the scan is the machine's first.
                Ok(rest) => Some(Said { is_all: rest.is_none(), rest, ..Said::default() }),
                Err(_) => None,
            };
        }
        self.said.as_ref().map_or(&[], |said| &said.frames)
    }

    /// Bytes of the whole job's files, if all of it was said.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let said = self.said.as_ref().filter(|said| said.is_all)?;
        Some(said.first.entries.iter().filter(|entry| entry.is_file()).map(Entry::bytes).sum())
    }
}

impl Said {
    fn of(mut first: Batch, scan: &Receiver<Option<Batch>>) -> Said {
        let mut bytes = 0;
        let fits = first.entries.iter().take_while(|entry| {
            bytes += ENTRY_BYTES + entry.window_bytes();
            bytes <= AHEAD_BYTES_MAX
        });
        let more = first.entries.split_off(fits.count());
        let more = (!more.is_empty()).then(|| Batch { entries: more, unnamed: first.unnamed, ..Batch::default() });
        let (rest, is_all) = match more {
            Some(more) => (Some(more), false),
            None => match scan.try_recv() {
                Ok(next) => {
                    let is_all = next.is_none();
                    (next, is_all)
                }
                Err(_) => (None, false),
            },
        };
        let mut frames = Vec::new();
        let mut say = |frame: Frame| frame.encode_parts(&mut |bytes| frames.push(bytes.to_vec()));
        if !first.names.is_empty() {
            say(Frame::Names(first.names.clone()));
        }
        let entries: Vec<_> = (0..)
            .zip(&first.entries)
            .map(|(id, entry)| {
                let mut entry = entry.clone();
                entry.id = id;
                entry
            })
            .collect();
        if !entries.is_empty() {
            say(Frame::Entries(entries));
        }
        Said { first, rest, is_all, frames }
    }
}

impl JobDriver<'_, '_> {
    /// The machine announces what was said ahead, which is not said again.
    pub(super) fn take_ahead(&mut self, ahead: Ahead) -> Result<(), Failure> {
        self.scan = Some(ahead.scan);
        let (Some(said), End::Send(end)) = (ahead.said, &mut self.end) else { return Ok(()) };
        end.names(said.first.names, said.first.unnamed, &mut self.out);
        end.scan(said.first.entries, &mut self.out);
        let mut frames = Vec::new();
        // Nothing else has been said yet.
        self.out.frames.drain(..).for_each(|frame| frame.encode_parts(&mut |bytes| frames.push(bytes.to_vec())));
        if frames != said.frames {
            return Err(self.bug("entries that were said ahead of the plan are not those that are announced"));
        }
        self.held = said.rest;
        if said.is_all {
            self.scan = None;
            end.scan_ended(&mut self.out);
        }
        Ok(())
    }
}

//! Threads beside the job driver: the scanner walks the source, the committer flushes and renames, the comparer reads what stands there.
//!
//! For: system calls that wait for a disk, kept away from the thread that runs the job; and how they and the job driver talk. A push's scan begins
//! while the connection is made: its first entries follow `Open` at once, and are answered with the plan (`Ahead`).
//! In and out: a source → batches of entries; tasks → what became of them; the wake-up event is signalled for each.
//! Invariants: all end with the job driver, which holds the other end of their mailboxes; what the machine announces first is what was said ahead,
//! byte for byte.
//! Absent on purpose: what is walked and how it is made durable (engine); whether entries said ahead count (the acceptor's `Accept`).

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::fault::{panic_if_asked, words};
use engine::job::Terms;
use engine::machine::compare::{self, Compare, Compared, Look, Seen};
use engine::platform::{SinkTree, VolumeSet};
use engine::tree::commit::{self, Settled, Task};
use engine::tree::scan::{Batch, Scan};
use engine::tree::{Sinks, Sources};
use proto::manifest::Entry;
use proto::wire::control::Frame;
use sys::event::Event;

use super::end::End;
use super::{Job, JobDriver, Way};
use text::exit::Failure;

/// A sender's scan, or a receiver's committers.
type First = (Option<Receiver<Option<Batch>>>, Option<Committer>);

/// What a thread beside the job driver panicked with, for the job driver to end the job by.
#[derive(Debug, Clone)]
pub(super) struct Panics {
    first: Arc<Mutex<Option<String>>>,
    /// One handle for each thread that has not ended.
    alive: Arc<()>,
    wake: Event,
}

impl Panics {
    pub(super) fn new(wake: &Event) -> Panics {
        Panics { first: Arc::default(), alive: Arc::default(), wake: wake.clone() }
    }

    /// Of a job; a scan that began before it is its own.
    pub(super) fn of(job: &Job<'_>) -> Panics {
        job.ahead.as_ref().map_or_else(|| Panics::new(&job.wake), |ahead| ahead.panics.clone())
    }

    /// A thread that does this work; if it panics, the job driver hears of it.
    pub(super) fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (panics, what) = (self.clone(), name.to_owned());
        std::thread::Builder::new().name(name.into()).spawn(move || {
            // What the work owned is dropped, and what it shared are trees and channels.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
                let why = format!("the {what} panicked: {}", words(&*panic));
                panics.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                panics.wake.signal();
            }
        })?;
        Ok(())
    }

    /// The thread that every job of its way has.
    pub(super) fn spawn_first(&self, job: &Job<'_>) -> io::Result<First> {
        match &job.way {
            Way::Send(_) if job.ahead.is_some() => Ok((None, None)),
            Way::Send(source) => Ok((Some(spawn_scan(source, &job.wake, self)?), None)),
            Way::Recv { sink, .. } => Ok((None, Some(spawn_committer(sink, &job.wake, self)?))),
        }
    }

    /// Have all threads of the job ended?
    pub(super) fn are_over(&self) -> bool {
        Arc::strong_count(&self.alive) == 1
    }

    pub(super) fn take(&self) -> Option<String> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Batches as they are found; `None`: that was all.
pub(super) fn spawn_scan(source: &Arc<Sources>, wake: &Event, panics: &Panics) -> io::Result<Receiver<Option<Batch>>> {
    let (to, from) = sync_channel(4);
    let (source, wake) = (source.clone(), wake.clone());
    panics.spawn("scanner", move || {
        let mut scan = Scan::new(&source);
        loop {
            let batch = scan.next_batch();
            let entries = batch.iter().flat_map(|batch| &batch.entries);
            entries.for_each(|entry| panic_if_asked("scanner", &entry.path));
            let over = batch.is_none();
            if to.send(batch).is_err() {
                return;
            }
            wake.signal();
            if over {
                return;
            }
        }
    })?;
    Ok(from)
}

/// Tasks in, by volume; what became of them out.
pub(super) type Committer = (Vec<Sender<Task>>, Receiver<Settled>);

/// Settles task after task, for each volume by itself: a disk that is slow to flush holds up no other. As many again take the notes,
/// which wait for no flush.
pub(super) fn spawn_committer(sink: &Arc<Sinks>, wake: &Event, panics: &Panics) -> io::Result<Committer> {
    let (to, from) = channel();
    let mut asks = Vec::new();
    for lane in 0..2 * sink.volumes() {
        let (ask, asked) = channel::<Task>();
        let name = if lane < sink.volumes() { "committer" } else { "noter" };
        let (sink, wake, to) = (sink.clone(), wake.clone(), to.clone());
        panics.spawn(name, move || {
            for task in asked {
                if to.send(commit::run(&*sink, task)).is_err() {
                    return;
                }
                wake.signal();
            }
        })?;
        asks.push(ask);
    }
    Ok((asks, from))
}

/// Looks in, what was seen out: at the receiver.
pub(super) type Looker = (Sender<Look>, Receiver<Seen>);

/// Compares at the receiver.
pub(super) fn spawn_looker(sink: &Arc<Sinks>, terms: Terms, wake: &Event, panics: &Panics) -> io::Result<Looker> {
    let (ask, asked) = channel::<Look>();
    let (to, from) = channel();
    let (sink, can, wake) = (sink.clone(), sink.clone().capabilities(), wake.clone());
    panics.spawn("comparer", move || {
        for look in asked {
            let goes_on = compare::look(&*sink, &can, &terms, look, &mut |seen| {
                let is_heard = to.send(seen).is_ok();
                wake.signal();
                is_heard
            });
            if !goes_on {
                return;
            }
        }
    })?;
    Ok((ask, from))
}

/// The peer's digests in, which chunks are the same out: at the sender.
pub(super) type Comparer = (Sender<Compare>, Receiver<Compared>);

/// Compares at the sender.
pub(super) fn spawn_comparer(
    source: &Arc<Sources>,
    terms: Terms,
    wake: &Event,
    panics: &Panics,
) -> io::Result<Comparer> {
    let (ask, asked) = channel::<Compare>();
    let (to, from) = channel();
    let (source, wake) = (source.clone(), wake.clone());
    panics.spawn("comparer", move || {
        for work in asked {
            if to.send(compare::compare(&*source, &terms, &work)).is_err() {
                return;
            }
            wake.signal();
        }
    })?;
    Ok((ask, from))
}

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

impl fmt::Debug for Ahead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
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

    /// A thread of the job that panicked ends the job.
    pub(super) fn take_panics(&mut self) -> Result<(), Failure> {
        match self.panics.take() {
            Some(why) => Err(self.bug(&why)),
            None => Ok(()),
        }
    }

    pub(super) fn take_settled(&mut self) -> Result<(), Failure> {
        loop {
            let Some(Ok(settled)) = self.tasks.as_ref().map(|(_, from)| from.try_recv()) else { return Ok(()) };
            // A note is no wait for the disk, as a rule.
            if matches!(settled, Settled::Noted { .. }) {
                self.commit_ns += self.stuck_note_ns();
                self.notes_open -= 1;
                self.note_from = self.now;
            } else {
                self.commits_open -= 1;
                self.commit_ns += self.now.as_ns() - self.commit_from.as_ns();
                self.commit_from = self.now;
            }
            if let End::Recv(end) = &mut self.end {
                end.on_settled(settled, &mut self.out).map_err(|stop| self.stopped(stop))?;
            }
        }
    }

    /// A note that takes this long waits for the disk after all: the peer is told of it as of a flush, and is as patient.
    pub(super) fn stuck_note_ns(&self) -> u64 {
        const STUCK: Duration = Duration::from_secs(1);
        let since = if self.notes_open > 0 { self.now.since(self.note_from) } else { Duration::ZERO };
        if since < STUCK { 0 } else { u64::try_from(since.as_nanos()).unwrap_or(0) }
    }

    /// What the comparer saw.
    pub(super) fn take_seen(&mut self) -> Result<(), Failure> {
        while let Some(Ok(seen)) = self.looks.as_ref().map(|(_, from)| from.try_recv()) {
            if let End::Recv(end) = &mut self.end {
                end.on_seen(seen, &mut self.out).map_err(|stop| self.stopped(stop))?;
            }
        }
        while let Some(Ok(compared)) = self.compares.as_ref().map(|(_, from)| from.try_recv()) {
            if let End::Send(end) = &mut self.end {
                end.on_compared(compared, &mut self.out);
            }
        }
        Ok(())
    }

    /// Hands work to the comparer, which is started with its first.
    pub(super) fn put_looks(&mut self) -> io::Result<()> {
        let (terms, wake) = (self.job.terms, &self.job.wake);
        if let (false, None, Way::Recv { sink, .. }) = (self.out.looks.is_empty(), &self.looks, &self.job.way) {
            self.looks = Some(spawn_looker(sink, terms, wake, &self.panics)?);
        }
        if let (false, None, Way::Send(source)) = (self.out.compares.is_empty(), &self.compares, &self.job.way) {
            self.compares = Some(spawn_comparer(source, terms, wake, &self.panics)?);
        }
        // The comparer lives as long as this job driver.
        for look in self.out.looks.drain(..) {
            let _ = self.looks.as_ref().map(|(to, _)| to.send(look));
        }
        for work in self.out.compares.drain(..) {
            let _ = self.compares.as_ref().map(|(to, _)| to.send(work));
        }
        Ok(())
    }
}

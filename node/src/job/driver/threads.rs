//! Threads beside the job driver: the scanner walks the source, the committer flushes and renames, the comparer reads what stands there.
//!
//! For: system calls that wait for a disk, kept away from the thread that runs the job; and how they and the job driver talk.
//! In and out: a source → batches of entries; tasks → what became of them; the wake-up event is signalled for each.
//! Invariants: all end with the job driver, which holds the other end of their mailboxes.
//! Absent on purpose: what is walked and how it is made durable (engine).

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

impl JobDriver<'_, '_> {
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

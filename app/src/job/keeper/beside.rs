//! Two threads beside the keeper: the scanner walks the source, the committer flushes and renames.
//!
//! For: system calls that wait for a disk, kept away from the thread that turns the job.
//! In and out: a source → batches of entries; tasks → what became of them; the bell rings for each.
//! Invariants: both end with the keeper, which holds the other end of their mailboxes.
//! Absent on purpose: what is walked and how it is made durable (engine).

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use engine::linux::scan::{Batch, Scan};
use engine::linux::sink::LinuxSink;
use engine::linux::source::LinuxSource;
use engine::sink::commit::{self, Settled, Task};
use sys::event::Event;

/// Batches as they are found; `None`: that was all.
pub(super) fn spawn_scan(source: &Arc<LinuxSource>, bell: &Event) -> io::Result<Receiver<Option<Batch>>> {
    let (to, from) = sync_channel(4);
    let (source, bell) = (source.clone(), bell.clone());
    std::thread::Builder::new().name("scanner".into()).spawn(move || {
        let mut scan = Scan::new(&source);
        loop {
            let batch = scan.next_batch();
            let over = batch.is_none();
            if to.send(batch).is_err() {
                return;
            }
            bell.signal();
            if over {
                return;
            }
        }
    })?;
    Ok(from)
}

/// Tasks in, what became of them out.
pub(super) type Committer = (Sender<Task>, Receiver<Settled>);

/// Settles task after task.
pub(super) fn spawn_committer(sink: &Arc<LinuxSink>, bell: &Event) -> io::Result<Committer> {
    let (ask, asked) = channel::<Task>();
    let (to, from) = channel();
    let (sink, bell) = (sink.clone(), bell.clone());
    std::thread::Builder::new().name("committer".into()).spawn(move || {
        for task in asked {
            if to.send(commit::run(&*sink, task)).is_err() {
                return;
            }
            bell.signal();
        }
    })?;
    Ok((ask, from))
}

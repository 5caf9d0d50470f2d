//! The machine of this job's end.
//!
//! For: the job driver, which drives a sending end and a receiving end alike.
//! In and out: a `Job` in; its machine, set up as the job asks, out.
//! Invariants: what both machines have in common is asked here and nowhere else.
//! Absent on purpose: driving it (`driver.rs`).

use engine::linux::Linux;
use engine::machine::Record;
use engine::machine::recv::RecvEnd;
use engine::machine::send::SendEnd;
use proto::layout::Stripe;

use super::{Job, Way};

/// The state machine of this end.
pub(super) enum End {
    Send(Box<SendEnd<Linux>>),
    Recv(Box<RecvEnd<Linux>>),
}

impl End {
    /// The machine of this end, with nothing in it.
    pub(super) fn of(job: &Job<'_>) -> End {
        let count = job.workers.count();
        let mut end = match &job.way {
            Way::Send(source) => {
                let rails = if job.plan.datagrams > 0 { job.plan.datagrams } else { job.plan.streams };
                let rails = usize::from(rails).max(job.rails.names().len());
                let disks = source.trees().len();
                let depth = crate::job::offer::depth(job.pool_bytes, job.plan.chunk_bytes, rails, disks);
                let mut end = SendEnd::new(job.no, job.terms, &job.plan, job.durability, source.clone(), count, depth);
                let to = job.layout.filter(|it| it.stripe == Stripe::File).map_or(1, |it| it.volumes);
                end.spread_over(u16::try_from(disks).unwrap_or(u16::MAX), to);
                end.lie_on(job.volume_nodes.clone(), job.workers.homes());
                End::Send(Box::new(end))
            }
            Way::Recv { sink, keep, carried, sync } => {
                let (sink, carried) = (sink.clone(), carried.clone());
                sink.lie_on(job.volume_nodes.clone());
                let boot = boot_hash();
                let mut end =
                    RecvEnd::new(job.no, job.terms, &job.plan, job.durability, sink, count, *keep, boot, carried);
                end.compare_by(sync.compare);
                end.prune(sync.prune);
                End::Recv(Box::new(end))
            }
        };
        end.record().dry = job.dry;
        end
    }
    pub(super) fn record(&mut self) -> &mut Record {
        match self {
            End::Send(end) => &mut end.record,
            End::Recv(end) => &mut end.record,
        }
    }
    pub(super) fn is_done(&self) -> bool {
        match self {
            End::Send(end) => end.is_done(),
            End::Recv(end) => end.is_done(),
        }
    }
    pub(super) fn rails_up(&self) -> usize {
        match self {
            End::Send(end) => end.rails_up(),
            End::Recv(end) => end.rails_up(),
        }
    }
    pub(super) fn largest_open(&self) -> Option<&[u8]> {
        match self {
            End::Send(end) => end.largest_open(),
            End::Recv(end) => end.largest_open(),
        }
    }
    pub(super) fn open_text(&self) -> String {
        match self {
            End::Send(end) => {
                let (entries, chunks) = end.open_counts();
                format!("{entries} entries open, {chunks} chunks not acknowledged")
            }
            End::Recv(end) => format!("{} entries open", end.open_count()),
        }
    }
}

fn boot_hash() -> [u8; 8] {
    let hash = blake3::hash(sys::host::boot_id().unwrap_or_default().as_bytes());
    let mut boot = [0; 8];
    boot.copy_from_slice(&hash.as_bytes()[..8]);
    boot
}

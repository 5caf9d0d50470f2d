//! What every rail has, whatever its kind.
//!
//! For: the loop, which knows rails by this much.
//! In and out: a job, a number and a socket in; how the rail ended out.
//! Invariants: only the first reason for an end counts; after it nothing new begins on the rail.
//! Absent on purpose: ops in flight (`worker::slots` counts them), how payload stands on the rail (its kind).

use std::sync::Arc;

use crate::job::{JobNo, RailEnd};
use crate::platform::Platform;
use crate::worker::bound::Bound;

/// What every rail has.
#[derive(Debug)]
pub(crate) struct Base<P: Platform> {
    /// Whose it is.
    pub(crate) job: JobNo,
    /// Its number, as both ends name it.
    pub(crate) number: u16,
    /// Its connection.
    pub(crate) socket: P::Socket,
    /// The bound of all rails of the job together.
    pub(crate) bound: Arc<Bound>,
    /// Backpressure: too much waits for the destination's disk, no new frames for now.
    pub(crate) paused: bool,
    end: Option<RailEnd>,
}

impl<P: Platform> Base<P> {
    /// Of a new rail.
    pub(crate) fn new(job: JobNo, number: u16, socket: P::Socket, bound: Arc<Bound>) -> Self {
        Base { job, number, socket, bound, paused: false, end: None }
    }

    /// The rail has ended; only the first reason counts.
    pub(crate) fn end(&mut self, end: RailEnd) {
        self.end.get_or_insert(end);
    }

    /// The rail ends for a reason of ours: its ops come back soon.
    pub(crate) fn break_off(&mut self, platform: &mut P, end: RailEnd) {
        self.end(end);
        platform.cut(&self.socket);
    }

    /// Does nothing new begin here?
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// Why it ended.
    pub(crate) fn take_end(&mut self) -> RailEnd {
        self.end.take().unwrap_or(RailEnd::Cut)
    }
}

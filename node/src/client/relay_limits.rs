//! What a daemon gives a job that it makes for a client.
//!
//! For: a relayed job, which has what a job of that client's own would have at that daemon, and no more.
//! In and out: what the request asks for in; what is allowed of it, workers, rates and sessions out.
//! Invariants: the initiator's side knows no daemon; it asks this trait where it would take of the whole host.
//! Absent on purpose: who may have what (serve::relay).

use std::sync::Arc;
use std::time::Duration;

use engine::host::Workers;
use engine::job::JobNo;
use engine::worker::bound::Bound;

use crate::address::Address;
use crate::identity::PublicKey;
use crate::job::offer::Requested;
use crate::link::Link;
use text::exit::Failure;

/// Whoever makes a job in another's place.
pub trait RelayLimits: std::fmt::Debug + Sync {
    /// What the client asked for, within what a job of its own would have here.
    fn narrow(&self, requested: Requested) -> Requested;
    /// The workers of all jobs, and the bytes of their pools.
    fn workers(&self) -> (Arc<Workers>, u64);
    /// Holds all jobs of the client's key or ticket together.
    fn bound(&self) -> Arc<Bound>;
    /// What the job may have of the client's rate and of the daemon's, bytes per second; see `driver::Job::share`.
    fn share(&self, no: JobNo) -> Box<dyn Fn(u64, bool) -> u64 + Send + '_>;
    /// The job is over: its share is the others'.
    fn forget(&self, job: [u8; 16], no: JobNo);
    /// No progress for so long ends the job.
    fn stall(&self, asked: Duration) -> Duration;
    /// A session with whoever proves `key` at the address of this daemon, or at one of its addresses.
    ///
    /// # Errors
    /// One failure, whatever the reason.
    fn dial(&self, daemon: &Address, key: PublicKey) -> Result<Link, Failure>;
}

/// Gives the share back when it goes.
#[derive(Debug)]
pub struct Forget<'a>(pub &'a dyn RelayLimits, pub [u8; 16], pub JobNo);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1, self.2);
    }
}

//! One job end in this process: what `cp` and the daemon both run.
//!
//! For: turning an opened control session and a plan into moved files and a report.
//! In and out: a `Link`, a plan, a source or a sink, ways to rails in; an `Outcome` out.
//! Invariants: the job driver is the only thread that drives the state machines; every wait in it has a time.
//! Absent on purpose: who may do what (serve), what the user typed (cp), order of work (proto).
//!
//! The modules stand in the order in which a job meets them.

pub mod registry; // which run, and what is asked of them
pub mod greeting; // the greeting and the frames before data
pub mod driver; // THE job driver's loop
pub mod keys; // rail secrets from the session
pub mod cancel; // an order to end, from outside
pub mod offer; // what this end has
pub mod endpoint; // user's paths → sources and sinks
pub mod numa; // on which NUMA nodes workers are put, and why
pub mod measured; // a placement that `host probe` has measured
pub mod rails; // connected rails, made or awaited
pub mod receipt; // the receipt's file, and digests carried from an earlier run
pub mod sweep; // what killed processes left
pub mod udp; // datagram rails: the messages before packets

impl std::fmt::Debug for driver::Job<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Job").field("no", &self.no).field("plan", &self.plan).finish_non_exhaustive()
    }
}

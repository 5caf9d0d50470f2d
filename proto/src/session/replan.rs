//! Replanning while data flows: an end has other resources than it had when the plan was made.
//!
//! For: an end whose cores are halved, or given back, in the middle of a job.
//! In and out: the cores that this process may use, and the peer's report of its own (the frame Resources), in; a report for the peer and the plan
//! that both ends then compute, out.
//! Invariants: both ends hold the same two offers once their reports have crossed, so both compute the same plan; nothing that bytes on disk or on
//! the wire depend on changes (`negotiate::replan`); a peer can cause a new plan twice a second and no oftener.
//! Absent on purpose: more workers than the job began with, other buffers, and the load: the plan does not depend on it.

use alloc::string::String;
use core::time::Duration;

use super::Moment;
use crate::negotiate::{Offer, Plan, Resources, replan};
use crate::rate::Policy;

/// Cores are looked at this often: reading an affinity mask and a cgroup's files takes some ten microseconds.
const LOOK: Duration = Duration::from_secs(1);
/// A peer's report is taken no oftener than this: dialling and closing rails for a new plan takes some round trips.
const PAUSE: Duration = Duration::from_millis(500);

/// What both ends offered when the session was opened, with their resources of today.
#[derive(Debug, Clone)]
pub struct Offers {
    /// Of the end that opened the session.
    pub initiator: Offer,
    /// Of the end that accepted it.
    pub acceptor: Offer,
    /// This end is the initiator.
    pub is_initiator: bool,
}

impl Offers {
    fn of(&mut self, own: bool) -> &mut Offer {
        if own == self.is_initiator { &mut self.initiator } else { &mut self.acceptor }
    }
}

/// A new plan is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The peer's resources changed; false: this end's.
    pub by_peer: bool,
    /// Cores before and now, of the end whose resources changed.
    pub cores: (u16, u16),
    /// Workers that the plan uses: this end's, the peer's.
    pub workers: (u16, u16),
    /// Streams before and now.
    pub streams: (u16, u16),
    /// Why there are so many streams.
    pub reason: String,
}

/// The plan of a job and what it is made from.
#[derive(Debug, Clone)]
pub struct Replan {
    offers: Offers,
    initiator_sends: bool,
    /// The plan that the job began with, and the plan in force.
    first: Plan,
    plan: Plan,
    /// Cores offered at the beginning (the user may have named fewer or more), and those that there were.
    cores_first: (u16, u16),
    looked: Moment,
    made: Moment,
    /// The peer's report, until it is taken.
    reported: Option<Resources>,
}

impl Replan {
    /// A job that begins at `now` with this plan. `cores`: those that this process may use, if that is known; `sends`: this end sends.
    #[must_use]
    pub fn new(now: Moment, mut offers: Offers, plan: &Plan, cores: Option<u16>, sends: bool) -> Replan {
        let offered = offers.of(true).cores;
        let cores_first = (offered, cores.unwrap_or(offered));
        let initiator_sends = sends == offers.is_initiator;
        let (first, plan) = (plan.clone(), plan.clone());
        Replan { offers, initiator_sends, first, plan, cores_first, looked: now, made: now, reported: None }
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// True while the plan that the job began with is in force.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.plan == self.first
    }

    /// Would a rail of this number be on workers that the plan uses, at both ends?
    #[must_use]
    pub fn is_in_plan(&self, rail: u16) -> bool {
        let (first, now) = (self.first.workers, self.plan.workers);
        rail % first.0.max(1) < now.0 && rail % first.1.max(1) < now.1
    }

    /// True if it is time for `on_cores`.
    #[must_use]
    pub fn is_due(&self, now: Moment) -> bool {
        now.since(self.looked) >= LOOK
    }

    /// Cores that this process may use now (`None`: not known). Returns the report for the peer, and the new plan if there is one.
    pub fn on_cores(
        &mut self,
        now: Moment,
        cores: Option<u16>,
        load_percent: impl FnOnce() -> u32,
    ) -> Option<(Resources, Option<Change>)> {
        self.looked = now;
        let ((offered, there_were), own) = (self.cores_first, self.offers.of(true));
        let had = own.cores;
        let has = cores.filter(|now| *now < there_were).map_or(offered, |now| now.clamp(1, offered.max(1)));
        if has == had {
            return None;
        }
        (own.cores, own.load_percent) = (has, load_percent());
        let report = Resources { cores: has, load_percent: own.load_percent };
        Some((report, self.make(false, (had, has))))
    }

    /// The peer reports other resources.
    pub fn on_peer(&mut self, resources: Resources) {
        self.reported = Some(resources);
    }

    /// The new plan after the peer's last report, when its time has come.
    pub fn next_change(&mut self, now: Moment) -> Option<Change> {
        if now.since(self.made) < PAUSE {
            return None;
        }
        let Resources { cores, load_percent } = self.reported.take()?;
        self.made = now;
        let theirs = self.offers.of(false);
        let had = theirs.cores;
        (theirs.cores, theirs.load_percent) = (cores, load_percent);
        self.make(true, (had, cores))
    }

    /// A user changed the job: rate cap (bit/s, 0: none), policy and least rate (bit/s) of both plans.
    pub fn on_settings(&mut self, rate_bps: u64, policy: Policy, min_bps: u64) {
        for plan in [&mut self.first, &mut self.plan] {
            plan.rate_bps = rate_bps;
            (plan.pace.policy, plan.pace.min_bps) = (policy, min_bps);
        }
    }

    fn make(&mut self, by_peer: bool, cores: (u16, u16)) -> Option<Change> {
        let Offers { initiator, acceptor, is_initiator } = &self.offers;
        let (plan, reason) = replan(&self.first, initiator, acceptor, self.initiator_sends);
        if plan == self.plan {
            return None;
        }
        let before = core::mem::replace(&mut self.plan, plan);
        let (initiator, acceptor) = self.plan.workers;
        let workers = if *is_initiator { (initiator, acceptor) } else { (acceptor, initiator) };
        Some(Change { by_peer, cores, workers, streams: (before.streams, self.plan.streams), reason })
    }
}

#[cfg(test)]
#[path = "replan/tests.rs"]
pub(super) mod tests;

//! What a policy means in figures, for `delay`.
//!
//! For: the share that a flow claims beside its own kind and beside rivals.
//! In and out: a policy in; its figures out.
//! Invariants: `fair` is the measure: its push is 1.
//! Absent on purpose: `fixed`, which claims a rate and not a share; without a target it is `fair`.

use super::Policy;

/// Queueing delay that one flow alone keeps, nanoseconds.
pub(super) const QUEUE_ALONE_NS: f64 = 1_500_000.0;

/// A policy in figures.
#[derive(Debug)]
pub(super) struct Weight {
    /// Share of the push.
    pub(super) push: f64,
    /// Part of the train's rate to begin with.
    pub(super) first: f64,
    /// Beside a rival: parts of the link it takes at least and at most.
    pub(super) floor: f64,
    pub(super) ceiling: f64,
    /// Queueing delay kept alone.
    pub(super) queue_ns: f64,
}

pub(super) const FAIR: Weight = Weight { push: 1.0, first: 0.9, floor: 0.37, ceiling: 0.65, queue_ns: QUEUE_ALONE_NS };
const HIGH: Weight = Weight { push: 2.0, first: 0.9, floor: 0.45, ceiling: 0.8, queue_ns: QUEUE_ALONE_NS };
pub(super) const LOW: Weight =
    Weight { push: 0.05, first: 0.25, floor: 0.0, ceiling: 0.0, queue_ns: QUEUE_ALONE_NS / 2.0 };

/// The figures of a policy.
pub(super) const fn of(policy: Policy) -> &'static Weight {
    match policy {
        Policy::High => &HIGH,
        Policy::Low => &LOW,
        Policy::Fair | Policy::Fixed => &FAIR,
    }
}

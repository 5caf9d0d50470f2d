//! What a policy means in figures, for the `delay` controller.
//!
//! For: the share that a flow takes beside its own kind and beside loss-based competitors.
//! In and out: a policy in; its figures out.
//! Invariants: `fair` is the unit: its gain is 1.
//! Absent on purpose: `fixed`, which takes a rate and not a share; without a target it is `fair`.

use super::Policy;

/// Queueing delay that one flow alone keeps, ns: the lateness that reports can resolve, well below the 10 ms that others shall notice at most
/// (docs/design/003).
pub(super) const QUEUE_ALONE_NS: f64 = 1_500_000.0;
/// Queueing delay that every further flow adds, ns (Q of docs/design/003).
pub(super) const QUEUE_EACH_NS: f64 = 1_000_000.0;

/// A policy in figures.
#[derive(Debug)]
pub(super) struct Weight {
    /// Multiple of the probe gain: flows share in proportion to it.
    pub(super) gain: f64,
    /// Share of the packet train's rate to start with.
    pub(super) first: f64,
    /// Beside a competitor: least share of the link.
    pub(super) floor: f64,
    /// ... share to begin with: windows of CUBIC come to equal shares only over minutes, longer than the mode lasts ...
    pub(super) entry: f64,
    /// ... and largest share; 0: never competes.
    pub(super) ceiling: f64,
    /// Queueing delay that is kept alone, ns.
    pub(super) queue_ns: f64,
}

/// An equal share.
pub(super) const FAIR: Weight =
    Weight { gain: 1.0, first: 0.9, floor: 0.37, entry: 0.55, ceiling: 0.65, queue_ns: QUEUE_ALONE_NS };
/// Twice the share.
const HIGH: Weight = Weight { gain: 2.0, first: 0.9, floor: 0.45, entry: 0.7, ceiling: 0.8, queue_ns: QUEUE_ALONE_NS };
/// A scavenger (as LEDBAT, RFC 6817): what others leave.
pub(super) const LOW: Weight =
    Weight { gain: 0.05, first: 0.25, floor: 0.0, entry: 0.0, ceiling: 0.0, queue_ns: QUEUE_ALONE_NS / 2.0 };

/// The figures of a policy.
pub(super) const fn of(policy: Policy) -> &'static Weight {
    match policy {
        Policy::High => &HIGH,
        Policy::Low => &LOW,
        Policy::Fair | Policy::Fixed => &FAIR,
    }
}

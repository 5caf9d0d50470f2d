//! What the job driver decides with time, as state machines.
//!
//! For: the driver of a job's end, which has the connections, the threads and the clock, and decides nothing by itself.
//! In and out: a moment and a fact in (`on_*`), what is to be done out (`Action`s, `next_*`); the driver carries it out.
//! Invariants: no clock, no I/O, no randomness: the same facts at the same moments give the same actions, so each rule is tested in virtual
//! time; a machine never asks for the time, and a moment that it is handed is never earlier than the one before.
//! Absent on purpose: what the session's frames look like (wire), connections and their keys (the driver), which bytes go next (send, recv).
//!
//! One file is one concern, and no machine uses another one; `connection` is what several of them are told.

pub mod order; // which control frame may come when
pub mod connection; // what the kernel knows of a connection: silent, dead
pub mod migration; // a datagram rail on another address of this end
pub mod reconnect; // the session goes on over another connection
pub mod stall; // no progress for too long
pub mod closing; // signatures and farewells
pub mod policer; // a sender of packets is held to its cap

pub mod transport; // TCP, UDP or both: the first choice, and trials while the job runs
pub mod paths; // which rails are dialled, paced, left and dialled again
pub mod nic_speeds; // weights of paths, and a name that led to a slow NIC
pub mod share; // path-share check: what each path brings, beside what it should
pub mod growth; // more data connections while they pay
pub mod replan; // the plan, when an end has other resources
pub mod settings; // rate, policy and least rate, asked for while the job runs
pub mod blackhole; // long packets that vanish under a running job

use core::ops::{Add, AddAssign};
use core::time::Duration;

/// Each end reports to the other how it goes this often (the frame `Pulse`): silence is measured in multiples of this period.
pub const PULSE: Duration = Duration::from_millis(500);

/// A point in time: nanoseconds of a clock that never goes backwards. Only the difference of two moments means anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The moment at which the clock shows so many nanoseconds.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Moment {
        Moment(ns)
    }

    /// What the clock shows, nanoseconds.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// The time that passed from `earlier` to this moment; zero if `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment so long before this one; the clock's zero if there is none.
    #[must_use]
    pub const fn before(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

/// Nanoseconds of a span: five hundred years at most.
const fn nanos(span: Duration) -> u64 {
    let ns = span.as_nanos();
    if ns > u64::MAX as u128 { u64::MAX } else { ns as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_a_clock_never_overflow_and_never_count_backwards() {
        let (early, late) = (Moment::from_ns(5), Moment::from_ns(9));
        assert_eq!((late.since(early), early.since(late)), (Duration::from_nanos(4), Duration::ZERO));
        assert_eq!(early + Duration::MAX, Moment::from_ns(u64::MAX));
        assert_eq!((late.before(Duration::from_nanos(4)), late.before(Duration::MAX)), (early, Moment::from_ns(0)));
        let mut moment = early;
        moment += Duration::from_nanos(4);
        assert_eq!(moment, late);
    }
}

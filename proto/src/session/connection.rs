//! What the kernel knows of a connection, and what follows from it.
//!
//! For: telling a path that is dead from a peer that is busy or stopped.
//! In and out: the figures of TCP_INFO in; silent, dead or answered out.
//! Invariants: both ends report every [`PULSE`], so a connection that works always has something to acknowledge; a time is compared with a
//! fixed part and four round trips, so that the rules hold on any path.
//! Absent on purpose: asking the kernel (the driver), what is done about a dead path (reconnect, migration).

use core::time::Duration;

use super::PULSE;

/// The peer reports twice a second: nothing from it for so long and four round trips, and its connection is doubted (two reports are missing).
pub const SILENCE: Duration = Duration::from_millis(1500);
/// Round trips that are added to every fixed time: a report, its acknowledgement, and each of them lost once.
pub const TRIPS: u32 = 4;

/// A TCP connection as its kernel counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connection {
    /// Smoothed round trip.
    pub rtt: Duration,
    /// Bytes of this end are not acknowledged, or not even sent (what an end says whose own address is gone).
    pub is_owed: bool,
    /// Time since the peer's kernel acknowledged anything.
    pub unanswered: Duration,
    /// Time since a byte of the peer came.
    pub unheard: Duration,
}

impl Connection {
    /// Four round trips.
    #[must_use]
    pub fn trips(&self) -> Duration {
        self.rtt * TRIPS
    }

    /// Does something that was said wait for its acknowledgement, and nothing at all comes back?
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_owed && self.is_past(self.unanswered)
    }

    /// Is a data connection as dead as the session's was? A sender (`sends`) goes by its acknowledgements: where bytes wait for the peer's
    /// window nothing is on its way, and probes of the window are answered. A receiver goes by what comes.
    #[must_use]
    pub fn is_dead(&self, sends: bool) -> bool {
        if sends { self.is_silent() } else { self.is_past(self.unheard) }
    }

    /// Was that so long ago that a path which is there would have brought something since?
    fn is_past(&self, ago: Duration) -> bool {
        ago >= SILENCE.saturating_sub(PULSE) + self.trips()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a path of 20 ms: is something owed, and milliseconds since anything came back.
    fn connection(is_owed: bool, ms: u64) -> Connection {
        let ago = Duration::from_millis(ms);
        Connection { rtt: Duration::from_millis(20), is_owed, unanswered: ago, unheard: ago }
    }

    #[test]
    fn of_the_streams_of_a_session_that_went_on_elsewhere_those_that_are_answered_stay() {
        assert!(connection(true, 1100).is_dead(true), "nothing was acknowledged for two reports and four round trips");
        assert!(!connection(true, 900).is_dead(true) && !connection(false, 5000).is_dead(true));
        assert!(connection(false, 1100).is_dead(false) && !connection(false, 900).is_dead(false));
    }
}

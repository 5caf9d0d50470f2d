//! A datagram rail goes on when this end's address changes: after a move to another network, or when a NAT forgets its mapping.
//!
//! For: a job that does not end, and is at its rate again within a second.
//! In and out: what a rail hears, and how a greeting from a new socket went, in; when to greet, and that UDP is blocked, out.
//! Invariants: the initiator alone migrates, since it alone can be reached nowhere; the old socket stays in use until the new one is answered
//! (greeting, W, K: docs/protocol.md section 7; RFC 9000 section 9.3); where nothing is heard because nothing is sent, or because the peer has
//! no core for it, the pauses between greetings grow, and shrink slowly.
//! Absent on purpose: sockets and greetings (the driver), a new rate (the congestion controller finds it), the control session (reconnect).

use core::time::Duration;

use super::connection::Connection;
use super::{Moment, PULSE};

/// Nothing heard for so long, or for so many round trips, while something is on its way: the path is looked for again. Feedback comes at
/// least every round trip or 25 ms; four of them are not lost one after another.
const SILENCE: Duration = Duration::from_millis(250);
const SILENCE_RTTS: u32 = 4;
/// Twice as long after each greeting, up to this.
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// Half of that again when this has passed without a greeting. A packet that comes says nothing of whether the greeting was called for: beside
/// hundreds of jobs on two cores each rail is silent for a second now and then, and what waits in the old socket is lost with each move
/// (measured: 183 jobs moved 4,952 times, and 20 of them brought nothing within a minute).
const CALM: Duration = Duration::from_secs(8);
/// Greetings that make the longest pause: 250 ms times 2^5 is 8 s.
const TRIES_MAX: u32 = 6;
/// The peer reports twice a second: silent for longer than this, the whole path is down, not UDP alone.
const PEER_ALIVE: Duration = Duration::from_secs(2);
/// Greetings in a row, none answered although the peer is there, after which UDP is what does not get through. One is not enough: it may
/// have begun while the whole path was down, and the session come back before it ended.
const UNANSWERED: u32 = 2;

/// What a rail and its session show at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// A count that changes when something is heard on the rail: feedback where this end sends, packets where it receives.
    pub heard: u64,
    /// Something is on its way.
    pub is_waiting: bool,
    /// The longer of the rail's and the session's round trips.
    pub rtt: Duration,
}

/// Has the peer no core, or is it stopped? Nothing was reported by it for `silence` although its kernel answers over `session`: it sends no
/// packets either, and a greeting would not be answered.
#[must_use]
pub fn is_busy(silence: Duration, session: &Connection) -> bool {
    silence >= PULSE * 2 + session.rtt * SILENCE_RTTS && !session.is_silent()
}

/// Whether one datagram rail is heard, and when it is greeted from another socket.
#[derive(Debug)]
pub struct Migration {
    heard: u64,
    since: Moment,
    /// Greetings, less one for each `CALM` without any.
    tries: u32,
    /// The last greeting, or when one was forgotten.
    calm: Moment,
    /// Greetings in a row that the peer did not answer although it was there.
    unanswered: u32,
    /// One is on its way.
    is_greeting: bool,
}

impl Migration {
    /// A rail that came up now.
    #[must_use]
    pub const fn new(now: Moment) -> Migration {
        Migration { heard: 0, since: now, tries: 0, calm: now, unanswered: 0, is_greeting: false }
    }

    /// True: the rail is to be greeted from a new socket now. The driver then begins a greeting, and reports its end.
    pub fn on_look(&mut self, now: Moment, look: &Look) -> bool {
        if look.heard != self.heard {
            (self.heard, self.unanswered, self.since) = (look.heard, 0, now);
            if now.since(self.calm) >= CALM {
                (self.tries, self.calm) = (self.tries.saturating_sub(1), now);
            }
        }
        if !look.is_waiting {
            self.since = now;
        }
        let patience = SILENCE.max(look.rtt * SILENCE_RTTS) * 2u32.saturating_pow(self.tries);
        let is_lost = look.is_waiting && now.since(self.since) >= patience.min(SILENCE_MAX);
        if self.is_greeting || !is_lost {
            return false;
        }
        (self.is_greeting, self.tries, self.calm) = (true, (self.tries + 1).min(TRIES_MAX), now);
        true
    }

    /// The greeting was answered: the rail is on another socket. What was heard before belongs to the old address, and the new one gets its
    /// time. Returns for how long nothing had been heard.
    pub fn on_migrated(&mut self, now: Moment) -> Duration {
        let silence = now.since(self.since);
        (self.is_greeting, self.since) = (false, now);
        silence
    }

    /// The greeting came to nothing. `unanswered`: it was sent, and no answer came (as opposed to one that this end could not even send: its
    /// address just changed, no route for a moment). `silence`: since the peer's last report. True: UDP does not get through.
    pub fn on_failed(&mut self, now: Moment, unanswered: bool, silence: Duration) -> bool {
        (self.is_greeting, self.since) = (false, now);
        let is_blocked = unanswered && silence < PEER_ALIVE;
        self.unanswered = if is_blocked { self.unanswered + 1 } else { 0 };
        self.unanswered >= UNANSWERED
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    fn look(heard: u64, rtt_ms: u64) -> Look {
        Look { heard, is_waiting: true, rtt: Duration::from_millis(rtt_ms) }
    }

    #[test]
    fn silence_while_something_is_on_its_way_is_a_lost_path_and_the_pauses_grow() {
        let mut rail = Migration::new(at(0));
        let mut greeted = Vec::new();
        for ms in 0..20_000u64 {
            // Heard until 1000 ms, then never again.
            if rail.on_look(at(ms), &look(1 + ms.min(1000), 20)) {
                greeted.push(ms);
                rail.on_migrated(at(ms));
            }
        }
        assert_eq!(
            greeted,
            [1250, 1750, 2750, 4750, 8750, 16750],
            "a quarter of a second, then twice as long each time"
        );
    }

    #[test]
    fn no_second_greeting_begins_while_one_is_on_its_way() {
        let mut rail = Migration::new(at(0));
        assert!(rail.on_look(at(250), &look(0, 20)));
        assert!((251..60_000).all(|ms| !rail.on_look(at(ms), &look(0, 20))));
        assert_eq!(rail.on_migrated(at(60_000)), Duration::from_secs(60), "for so long nothing was heard");
        assert!(!rail.on_look(at(60_499), &look(0, 20)) && rail.on_look(at(60_500), &look(0, 20)));
    }

    #[test]
    fn over_a_long_path_silence_is_four_round_trips() {
        let mut rail = Migration::new(at(0));
        assert!(!rail.on_look(at(2399), &look(0, 600)) && rail.on_look(at(2400), &look(0, 600)));
    }

    #[test]
    fn a_rail_that_is_silent_for_a_while_and_heard_again_is_not_greeted_each_time() {
        let (mut rail, mut greeted) = (Migration::new(at(0)), 0);
        // Heard for half a second, then not for half a second, as beside hundreds of jobs on two cores.
        for ms in 0..60_000u64 {
            if rail.on_look(at(ms), &look(ms.saturating_sub(ms / 500 % 2 * (ms % 500)), 0)) {
                greeted += 1;
                rail.on_migrated(at(ms));
            }
        }
        assert!(greeted <= 8, "{greeted} in a minute");
        // Heard for as long as the longest pause for each greeting: as soon as ever.
        for ms in 60_000..120_000u64 {
            assert!(!rail.on_look(at(ms), &look(ms, 0)));
        }
        let lost = (0..1000).find(|ms| rail.on_look(at(120_000 + ms), &look(119_999, 0)));
        assert_eq!(lost, Some(249));
    }

    #[test]
    fn a_rail_with_nothing_on_its_way_is_silent_rightly() {
        let mut rail = Migration::new(at(0));
        for ms in 0..10_000 {
            assert!(!rail.on_look(at(ms), &Look { is_waiting: false, ..look(7, 0) }), "{ms}");
        }
        // The wait begins when something goes.
        assert!(!rail.on_look(at(10_100), &look(7, 0)));
        assert!(rail.on_look(at(10_350), &look(7, 0)));
    }

    #[test]
    fn udp_is_blocked_after_two_silent_greetings_while_the_peer_is_there() {
        let (there, away) = (Duration::from_millis(400), PEER_ALIVE);
        let mut rail = Migration::new(at(0));
        assert!(!rail.on_failed(at(1), true, there), "one may have begun before the path came back");
        assert!(rail.on_failed(at(2), true, there));
        let mut rail = Migration::new(at(0));
        for ms in 0..9 {
            assert!(!rail.on_failed(at(ms), true, away), "the whole path is down");
            assert!(!rail.on_failed(at(ms), false, there), "nothing left this end");
            assert!(!rail.on_failed(at(ms), true, there), "and these do not add up");
            assert!(!rail.on_look(at(ms), &Look { is_waiting: false, ..look(0, 0) }));
        }
        // Something heard in between is an answer.
        let mut rail = Migration::new(at(0));
        assert!(!rail.on_failed(at(1), true, there));
        rail.on_look(at(2), &look(1, 0));
        assert!(!rail.on_failed(at(3), true, there));
    }

    #[test]
    fn a_peer_whose_kernel_answers_and_that_reports_nothing_is_busy() {
        let session = |is_owed, ms| {
            let ago = Duration::from_millis(ms);
            Connection { rtt: Duration::from_millis(20), is_owed, unanswered: ago, unheard: ago }
        };
        assert!(is_busy(Duration::from_millis(1080), &session(true, 500)));
        assert!(!is_busy(Duration::from_millis(1079), &session(true, 500)), "its next report may be on its way");
        assert!(!is_busy(Duration::from_millis(5000), &session(true, 5000)), "nothing comes back: the path is away");
    }
}

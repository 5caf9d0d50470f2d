//! What one rail brought lately: is it silent, slow, or well?
//!
//! For: leaving a rail that is dead or became slow while others carry, and dealing out chunks by what each rail brings.
//! In and out: a rail's counters at moments in; its rate and three answers out.
//! Invariants: a rail with nothing in flight is neither silent nor slow.
//! Absent on purpose: what is done about it (paths).

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::session::Moment;

/// A rate is that of the last second of being busy: long enough for a hundred packets at 1 Mbit/s, short enough to see a change within two looks.
pub(super) const WINDOW: Duration = Duration::from_secs(1);
/// Nothing acknowledged for this long, or for so many round trips, of what a rail has in flight: it is dead. (Linux's least retransmission timer is
/// 200 ms: two of them lost one after another.)
const SILENCE: Duration = Duration::from_millis(500);
const SILENCE_RTTS: u32 = 6;
/// A rail that brings so many times less than its best is slow: what it owes is worth more elsewhere.
const SLOWER: u64 = 12;
/// Of a rail that was not busy for half a window, this much time gives a rate where nothing else does.
const GLANCE: Duration = Duration::from_millis(100);

/// Counters of a rail at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Bytes that the rail has brought; of a datagram rail's sender, those sent for the first time (what is in flight counts little beside a window).
    pub bytes: u64,
    /// Changes when the path brings anything: acknowledged bytes, feedbacks, or packets.
    pub sign: u64,
    /// Something is in flight, and the peer would take it.
    pub waits: bool,
}

/// What one rail brought lately.
#[derive(Debug, Clone)]
pub(super) struct Track {
    /// Bytes brought, over the last `WINDOW` of being busy.
    seen: VecDeque<(Moment, u64)>,
    /// The sign of life, and when it last changed.
    sign: u64,
    changed: Moment,
    /// Bytes per second over the last window, and the most of them.
    rate: u64,
    best: u64,
    waits: bool,
}

impl Track {
    pub(super) fn new(now: Moment) -> Track {
        Track { seen: VecDeque::new(), sign: 0, changed: now, rate: 0, best: 0, waits: false }
    }

    /// Bytes that the rail has brought.
    pub(super) fn bytes(&self) -> u64 {
        self.seen.back().map_or(0, |(_, bytes)| *bytes)
    }

    /// Bytes per second over the last window; 0: not known yet.
    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    /// The best rate of a whole window, bytes per second.
    pub(super) fn best(&self) -> u64 {
        self.best
    }

    /// Something was in flight at the last look.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Bytes per second, as far as anything is known.
    pub(super) fn brings(&self) -> u64 {
        let (Some((from, before)), Some((to, bytes)), 0) = (self.seen.front(), self.seen.back(), self.rate) else {
            return self.rate;
        };
        let spent = to.since(*from);
        if spent < GLANCE { 0 } else { per_second(bytes.saturating_sub(*before), spent) }
    }

    /// Counters now; `busy`: the rail owes something.
    pub(super) fn look(&mut self, now: Moment, seen: &Seen, busy: bool) {
        let bytes = seen.bytes;
        self.waits = seen.waits;
        if seen.sign != self.sign || !(busy && seen.waits) {
            (self.sign, self.changed) = (seen.sign, now);
        }
        if !busy {
            self.seen.clear();
        }
        self.seen.push_back((now, bytes));
        while self.seen.get(1).is_some_and(|(then, _)| now.since(*then) >= WINDOW) {
            self.seen.pop_front();
        }
        let (then, before) = self.seen[0];
        let spent = now.since(then);
        // Half a window says how fast it is; the whole one, what it can do.
        if spent >= WINDOW / 2 {
            self.rate = per_second(bytes.saturating_sub(before), spent);
        }
        if spent >= WINDOW {
            self.best = self.best.max(self.rate);
        }
    }

    /// Something is in flight and nothing came back for too long.
    pub(super) fn is_silent(&self, now: Moment, rtt: Duration) -> bool {
        now.since(self.changed) >= SILENCE.max(rtt * SILENCE_RTTS)
    }

    /// It was busy for a whole window and is that much slower than it was.
    pub(super) fn is_slow(&self) -> bool {
        let spent = self.seen.back().map_or(Duration::ZERO, |(now, _)| now.since(self.seen[0].0));
        spent >= WINDOW && self.rate.saturating_mul(SLOWER) < self.best
    }

    /// It does what it can, or nearly.
    pub(super) fn is_well(&self) -> bool {
        self.rate.saturating_mul(2) >= self.best && self.rate > 0
    }
}

fn per_second(bytes: u64, spent: Duration) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / spent.as_micros().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    /// A rail that brings `rate` bytes per second, looked at every 100 ms.
    fn run(track: &mut Track, ms: core::ops::Range<u64>, bytes: &mut u64, rate: u64) -> Vec<(u64, bool, bool)> {
        let mut out = Vec::new();
        for ms in ms.step_by(100) {
            *bytes += rate / 10;
            let now = at(ms);
            track.look(now, &Seen { bytes: *bytes, sign: *bytes, waits: true }, true);
            out.push((ms, track.is_silent(now, Duration::ZERO), track.is_slow()));
        }
        out
    }

    #[test]
    fn a_rail_that_stops_is_silent_after_half_a_second() {
        let (mut track, mut bytes) = (Track::new(at(0)), 0);
        assert!(run(&mut track, 0..3000, &mut bytes, 1_000_000).iter().all(|(_, silent, slow)| !silent && !slow));
        let after = run(&mut track, 3000..4000, &mut bytes, 0);
        let first = after.iter().find(|(_, silent, _)| *silent).expect("it is silent");
        assert!((3300..=3500).contains(&first.0), "{first:?}");
    }

    #[test]
    fn a_rail_twenty_times_slower_is_slow_within_two_seconds_and_one_half_as_fast_is_not() {
        let (mut track, mut bytes) = (Track::new(at(0)), 0);
        run(&mut track, 0..3000, &mut bytes, 20_000_000);
        assert!(run(&mut track, 3000..6000, &mut bytes, 10_000_000).iter().all(|(.., slow)| !slow));
        let after = run(&mut track, 6000..8000, &mut bytes, 1_000_000);
        let first = after.iter().find(|(.., slow)| *slow).expect("it is slow");
        assert!(first.0 <= 7200, "{first:?}");
    }

    #[test]
    fn a_rail_with_nothing_to_bring_is_neither_silent_nor_slow() {
        let (mut track, mut bytes) = (Track::new(at(0)), 0);
        run(&mut track, 0..3000, &mut bytes, 20_000_000);
        for ms in (3000..9000).step_by(100) {
            track.look(at(ms), &Seen { bytes, sign: bytes, waits: false }, false);
            assert!(!track.is_silent(at(ms), Duration::ZERO) && !track.is_slow(), "{ms}");
        }
    }
}

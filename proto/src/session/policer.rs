//! A sender of packets is held to the rate that it was told.
//!
//! For: a cap of a key or of a daemon that holds against who ignores it, too.
//! In and out: the caps that were sent, and when, and what came in; the rate that is enforced, and the end of a job whose sender goes on, out.
//! Invariants: the first cap holds at once, since its frame goes before any rail; a lower one when its frame can have been heard, a higher one
//! at once; only caps of this end are enforced: what the sender bounds itself is its own affair.
//! Absent on purpose: which packets are taken (engine::limit), streams (they are read no faster).

use alloc::collections::VecDeque;
use core::time::Duration;

use super::Moment;

/// A cap is heard, and acted upon, within this time and four round trips: a report's period of 500 ms is not waited for by either end.
const HEARD: Duration = Duration::from_millis(300);
/// A cap's frame and the first packets that obey it may each be lost once.
const TRIPS: u32 = 4;
/// Whoever sends too much for so long is sent away: twice the 2 s over which a cap is measured (SPECIFICATION, promise 162).
const PATIENCE: Duration = Duration::from_secs(4);
/// Too much is more than the cap and this part of it, as promise 162 says.
const EXCESS: u64 = 10;

/// What was sent to the other end, and how it is kept.
#[derive(Debug)]
pub struct Policer {
    /// Caps, bytes per second (0: no cap), and since when; the oldest is in force or was last.
    caps: VecDeque<(Moment, u64)>,
    /// Bytes taken and refused at the last look, and when that was.
    seen: (u64, u64, Moment),
    /// Looks have found too much since then.
    over: Option<Moment>,
}

impl Policer {
    /// No cap was sent yet.
    #[must_use]
    pub const fn new(now: Moment) -> Policer {
        Policer { caps: VecDeque::new(), seen: (0, 0, now), over: None }
    }

    /// This cap is the one that was sent last, bytes per second; 0: none. Returns the rate that may be held against the sender: the highest
    /// of those it may still go by; 0: none.
    pub fn on_cap(&mut self, now: Moment, cap: u64, rtt: Duration) -> u64 {
        if self.caps.back().is_none_or(|(_, last)| *last != cap) {
            self.caps.push_back((now, cap));
        }
        // Once a cap was heard, the ones before it are over.
        let heard = HEARD + rtt * TRIPS;
        while self.caps.get(1).is_some_and(|(since, _)| now.since(*since) >= heard) {
            self.caps.pop_front();
        }
        let all = self.caps.iter().map(|(_, cap)| *cap);
        if all.clone().any(|cap| cap == 0) { 0 } else { all.max().unwrap_or(0) }
    }

    /// So many bytes were taken and refused in all, while `rate` was enforced. `Some`: what came since the last look, bytes per second, if it
    /// has been too much for longer than anybody may.
    pub fn on_counts(&mut self, now: Moment, rate: u64, (taken, refused): (u64, u64)) -> Option<u64> {
        let span = now.since(self.seen.2).as_secs_f64().max(0.001);
        let came = ((taken + refused - self.seen.0 - self.seen.1) as f64 / span) as u64;
        let is_over = rate > 0 && refused > self.seen.1 && came > rate + rate / EXCESS;
        self.seen = (taken, refused, now);
        self.over = if is_over { self.over.or(Some(now)) } else { None };
        self.over.filter(|since| now.since(*since) >= PATIENCE).map(|_| came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::PULSE;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_lower_rate_holds_when_it_can_have_been_heard_and_a_higher_one_at_once() {
        let mut policer = Policer::new(at(0));
        let mut on_cap = |cap, ms| policer.on_cap(at(ms), cap, Duration::ZERO);
        assert_eq!(on_cap(100, 0), 100, "the first word goes with the plan");
        assert_eq!(on_cap(100, 500), 100);
        assert_eq!(on_cap(50, 1000), 100);
        assert_eq!(on_cap(50, 1500), 50);
        assert_eq!(on_cap(80, 1600), 80);
        assert_eq!(on_cap(0, 1700), 0, "lifted");
        assert_eq!(on_cap(40, 1800), 0, "and the next word is on its way");
        assert_eq!(on_cap(40, 2099), 0);
        assert_eq!(on_cap(40, 2100), 40);
    }

    #[test]
    fn over_a_long_path_a_lower_rate_holds_four_round_trips_later() {
        let (mut policer, rtt) = (Policer::new(at(0)), Duration::from_millis(200));
        assert_eq!(policer.on_cap(at(0), 100, rtt), 100);
        assert_eq!(policer.on_cap(at(1000), 50, rtt), 100);
        assert_eq!(policer.on_cap(at(2099), 50, rtt), 100);
        assert_eq!(policer.on_cap(at(2100), 50, rtt), 50);
    }

    /// When a sender that brings so many bytes in each half second, of which so many are refused, is sent away.
    fn sent_away(rate: u64, each: &[(u64, u64)]) -> Option<usize> {
        let (mut policer, mut counts) = (Policer::new(at(0)), (0, 0));
        each.iter().enumerate().position(|(index, &(taken, refused))| {
            counts = (counts.0 + taken, counts.1 + refused);
            policer.on_counts(at(0) + PULSE * (index as u32 + 1), rate, counts).is_some()
        })
    }

    #[test]
    fn who_goes_on_for_four_seconds_is_sent_away_and_a_moment_is_forgiven() {
        assert_eq!(sent_away(1000, &[(500, 500); 20]), Some(8));
        assert_eq!(sent_away(1000, &[(500, 40); 20]), None, "within a tenth");
        assert_eq!(sent_away(0, &[(500, 500); 20]), None, "no cap is enforced");
        let mut moments = [(500, 500); 60];
        moments.iter_mut().step_by(8).for_each(|it| *it = (500, 0));
        assert_eq!(sent_away(1000, &moments), None);
    }
}

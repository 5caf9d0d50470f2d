//! A sender of packets is held to the rate that it was told.
//!
//! For: a cap of a key or of a daemon that holds against who ignores it, too.
//! In and out: the rates that were told, and when, in; the limit of what is taken, and the end of a job whose sender goes on, out.
//! Invariants: the first rate holds at once, since its word goes before any rail, a lower one when its word can have been heard, a higher one at once; only caps of this end are held, what the sender bounds
//! itself is its own affair.
//! Absent on purpose: which packets are taken (engine::limit), streams (they are read no faster).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proto::error::Breach;

use super::asked::least_cap;
use super::{Closing, End, Keeper};
use text::exit::{Exit, Failure};
use text::units::exact_rate;

/// A word is heard, and acted upon, within so long and four round trips.
const HEARD: Duration = Duration::from_millis(300);
/// Whoever sends a tenth more than it may for so long, twice what a cap is measured over, is sent away.
const PATIENCE: Duration = Duration::from_secs(4);

/// What was told, and how it is kept.
#[derive(Debug)]
pub(super) struct Policed {
    /// B/s (0: no cap), and since when; the oldest is in force or was last.
    told: VecDeque<(Instant, u64)>,
    /// Bytes taken and refused at the last look, and when that was.
    seen: (u64, u64, Instant),
    /// Looks have found too much since then.
    over: Option<Instant>,
}

impl Policed {
    /// Nothing was told yet. The first word goes with the plan, before any rail: it is in force at once.
    pub(super) fn new(now: Instant) -> Policed {
        Policed { told: VecDeque::new(), seen: (0, 0, now), over: None }
    }

    /// This was told. The rate that may be held against the sender: the highest of those it may still go by; 0: none.
    fn tell(&mut self, cap: u64, heard: Duration, now: Instant) -> u64 {
        if self.told.back().is_none_or(|(_, last)| *last != cap) {
            self.told.push_back((now, cap));
        }
        // Once a word was heard, the ones before it are over.
        while self.told.get(1).is_some_and(|(since, _)| now.saturating_duration_since(*since) >= heard) {
            self.told.pop_front();
        }
        let all = self.told.iter().map(|(_, cap)| *cap);
        if all.clone().any(|cap| cap == 0) { 0 } else { all.max().unwrap_or(0) }
    }

    /// What came since the last look, B/s, if it has been too much for longer than anybody may.
    fn judge(&mut self, rate: u64, (taken, refused): (u64, u64), now: Instant) -> Option<u64> {
        let span = now.saturating_duration_since(self.seen.2).as_secs_f64().max(0.001);
        let came = ((taken + refused - self.seen.0 - self.seen.1) as f64 / span) as u64;
        let is_over = rate > 0 && refused > self.seen.1 && came > rate + rate / 10;
        self.seen = (taken, refused, now);
        self.over = if is_over { self.over.or(Some(now)) } else { None };
        self.over.filter(|since| now.saturating_duration_since(*since) >= PATIENCE).map(|_| came)
    }
}

impl Keeper<'_, '_> {
    /// Twice a second, where packets come.
    pub(super) fn hold_sender(&mut self) -> Result<(), Failure> {
        if !matches!(self.end, End::Recv(_)) || self.closing != Closing::Open {
            return Ok(());
        }
        let info = sys::sock::tcp_info(self.job.link.as_fd());
        let rtt = info.map_or(Duration::ZERO, |info| Duration::from_micros(info.rtt_us.into()));
        let (now, cap) = (Instant::now(), least_cap([self.wishes.caps.0 / 8, self.caps.1]));
        let rate = self.policed.tell(cap, HEARD + 4 * rtt, now);
        let limit = &self.job.bound.limit;
        limit.set_rate(rate);
        let Some(came) = self.policed.judge(rate, limit.counts(), now) else { return Ok(()) };
        let cause = format!(
            "the peer at {} sends {} although its cap here is {}",
            self.peer_name(),
            exact_rate(came.saturating_mul(8)),
            exact_rate(rate.saturating_mul(8)),
        );
        self.refuse(Breach::RateIgnored.code(), &cause);
        Err(Exit::of_wire_code(Breach::RateIgnored.code()).fail("hold the sender to its cap", cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PULSE: Duration = Duration::from_millis(500);

    #[test]
    fn a_lower_rate_holds_when_it_can_have_been_heard_and_a_higher_one_at_once() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut held = Policed::new(begin);
        assert_eq!(held.tell(100, HEARD, at(0)), 100, "the first word goes with the plan");
        assert_eq!(held.tell(100, HEARD, at(500)), 100);
        assert_eq!(held.tell(50, HEARD, at(1000)), 100);
        assert_eq!(held.tell(50, HEARD, at(1500)), 50);
        assert_eq!(held.tell(80, HEARD, at(1600)), 80);
        assert_eq!(held.tell(0, HEARD, at(1700)), 0, "lifted");
        assert_eq!(held.tell(40, HEARD, at(1800)), 0, "and the next word is on its way");
        assert_eq!(held.tell(40, HEARD, at(2099)), 0);
        assert_eq!(held.tell(40, HEARD, at(2100)), 40);
    }

    /// When a sender that brings so many bytes in each half second, of which so many are refused, is sent away.
    fn sent_away(each: &[(u64, u64)]) -> Option<usize> {
        let begin = Instant::now();
        let (mut held, mut counts) = (Policed::new(begin), (0, 0));
        each.iter().enumerate().position(|(at, &(taken, refused))| {
            counts = (counts.0 + taken, counts.1 + refused);
            held.judge(1000, counts, begin + PULSE * (at as u32 + 1)).is_some()
        })
    }

    #[test]
    fn who_goes_on_for_four_seconds_is_sent_away_and_a_moment_is_forgiven() {
        assert_eq!(sent_away(&[(500, 500); 20]), Some(8));
        assert_eq!(sent_away(&[(500, 40); 20]), None, "within a tenth");
        let mut moments = [(500, 500); 60];
        moments.iter_mut().step_by(8).for_each(|it| *it = (500, 0));
        assert_eq!(sent_away(&moments), None);
    }
}

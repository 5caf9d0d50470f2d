//! More data connections while they pay.
//!
//! For: as many streams as the path needs, and no more, where nobody said how many.
//! In and out: bytes that moved and both ends' books in; one more, or no more for good, out.
//! Invariants: one more only while both ends wait for the network, and only if the last one brought something; once it did not, nothing is tried
//! until the plan is made anew.
//! Absent on purpose: connecting (the driver), datagram rails (one fills a path), jobs with a cap (one stream brings any cap).

use core::time::Duration;

use super::Moment;
use crate::books::{Books, Stage};

/// Rates are compared over at least this: two reports of either end.
const LOOK: Duration = Duration::from_secs(1);
/// Both ends wait for the network for more than this part of their workers' time.
const WAITS: f64 = 0.4;
/// A connection that pays brings this times what there was before: less is within what a path's rate changes by itself in a second.
const PAYS: f64 = 1.1;

/// What is known of the last data connection that was added, and when another one is tried.
#[derive(Debug, Default)]
pub struct Growth {
    since: Option<Moment>,
    moved: u64,
    /// Bytes per second when the last one was added; 0: none was.
    rate: f64,
    is_settled: bool,
}

impl Growth {
    /// Is a look due? The first call begins the time that it takes.
    pub fn is_due(&mut self, now: Moment) -> bool {
        let since = *self.since.get_or_insert(now);
        !self.is_settled && now.since(since) >= LOOK
    }

    /// So many bytes moved in the job. True: one more connection.
    pub fn on_look(&mut self, now: Moment, moved: u64, sender: &Books, receiver: &Books) -> bool {
        let span = self.since.map_or(Duration::ZERO, |since| now.since(since));
        let rate = moved.saturating_sub(self.moved) as f64 / span.max(LOOK).as_secs_f64();
        let is_first = self.rate == 0.0;
        let waits = |books: &Books, stage: Stage| books.ns[stage as usize] as f64 / books.wall_ns.max(1) as f64;
        let is_network = waits(sender, Stage::WaitSend) > WAITS && waits(receiver, Stage::WaitRecv) > WAITS;
        if !is_network || (!is_first && rate < self.rate * PAYS) {
            self.is_settled = !is_first || moved > 0;
            return false;
        }
        *self = Growth { since: Some(now), moved, rate, is_settled: false };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    /// Books of an end that waits for the network this part of its time, in percent.
    fn books(stage: Stage, percent: u64) -> Books {
        let mut books = Books { wall_ns: 100, ..Books::default() };
        books.ns[stage as usize] = percent;
        books
    }

    /// How many connections a path gets in a minute that brings so much each second over so many, if both ends wait this part of their time.
    fn grown(sender: u64, receiver: u64, brings: impl Fn(u64) -> u64) -> u64 {
        let (mut growth, mut streams, mut moved) = (Growth::default(), 1, 0);
        for ms in (0..60_000).step_by(500) {
            if growth.is_due(at(ms)) {
                let (sender, receiver) = (books(Stage::WaitSend, sender), books(Stage::WaitRecv, receiver));
                streams += u64::from(growth.on_look(at(ms), moved, &sender, &receiver));
            }
            moved += brings(streams) / 2;
        }
        streams
    }

    #[test]
    fn a_path_whose_connections_are_each_bound_gets_more_until_the_last_one_brings_nothing() {
        assert_eq!(grown(90, 90, |streams| 1000 * streams.min(5)), 6);
        assert_eq!(grown(90, 90, |_| 1000), 2, "the first one more shows that it does not pay");
    }

    #[test]
    fn an_end_that_has_no_time_left_gets_no_more() {
        assert_eq!(grown(30, 90, |streams| 1000 * streams), 1);
        assert_eq!(grown(90, 30, |streams| 1000 * streams), 1);
    }

    #[test]
    fn nothing_is_concluded_before_anything_moved() {
        let mut growth = Growth::default();
        assert!(!growth.is_due(at(0)) && !growth.is_due(at(999)) && growth.is_due(at(1000)));
        assert!(!growth.on_look(at(1000), 0, &Books::default(), &Books::default()));
        assert!(growth.is_due(at(1500)), "it is looked again");
        assert!(!growth.on_look(at(1500), 7, &Books::default(), &Books::default()));
        assert!(!growth.is_due(at(9000)), "settled");
    }
}

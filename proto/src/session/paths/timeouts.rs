//! Streams in a retransmission timeout at the end of a job, while other streams have nothing more to do.
//!
//! For: jobs over TCP on paths that lose. After a timeout the kernel sends one segment, waits a round trip, sends two: a chunk of 700 segments takes
//! nine round trips more, beside a stream whose window holds it.
//! In and out: the kernel's figures of each stream in; a stream to be cut, whose chunks go again over the others, out.
//! Invariants: only once nothing is left to hand out; only if another stream that is in no timeout brings it sooner, by `MARGIN_RTTS`; no more than
//! `CUTS_MAX` cuts in a job, one for each two round trips, so that what is repeated stays a few chunks.
//! Absent on purpose: several paths (`paths` judges those by what they bring), streams that stand for good (`blackhole`), cutting (the driver).

use core::time::Duration;

use crate::session::Moment;

/// Streams are looked at so often, or once a round trip where that is longer.
const LOOK: Duration = Duration::from_millis(50);
/// What is cut goes again once the receiver has said what it has: one round trip, and another until the repeat is there.
const AGAIN_RTTS: u32 = 2;
/// So much sooner must it come over the other stream: figures are what was, and both may lose again.
const MARGIN_RTTS: u32 = 2;
/// Cuts of one job: a path on which more are wanted loses so much that every stream of it stands.
const CUTS_MAX: u8 = 8;

/// What the kernel knows of one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stream {
    /// Its rail.
    pub rail: u16,
    /// It recovers from a timeout (TCP_CA_Loss).
    pub is_in_timeout: bool,
    /// Timeouts in a row with no acknowledgement between: each waits twice as long as the one before.
    pub timeouts: u8,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// What it has to bring yet.
    pub owed_bytes: u64,
}

impl Stream {
    /// Round trips until it has brought what it owes and `more`: a window doubles in each.
    fn rtts(&self, more: u64) -> u32 {
        let windows = (self.owed_bytes + more) / self.window_bytes.max(1);
        // Timeouts in a row: 200 ms at least, or a round trip or two; the next is 2 to the power of them as far.
        let waits = if self.is_in_timeout { (1u32 << self.timeouts.min(6)) - 1 } else { 0 };
        waits + (windows + 1).ilog2() + 1
    }
}

/// When which stream was cut.
#[derive(Debug, Clone, Default)]
pub struct Timeouts {
    looked: Moment,
    cut: Option<Moment>,
    cuts: u8,
}

impl Timeouts {
    /// True if it is time for `on_streams`. `rtt`: of the path.
    #[must_use]
    pub fn is_due(&self, now: Moment, rtt: Duration) -> bool {
        self.cuts < CUTS_MAX
            && now.since(self.looked) >= LOOK.max(rtt)
            && self.cut.is_none_or(|then| now.since(then) >= rtt * 2)
    }

    /// Nothing is left to hand out, and this is what each stream has to bring yet. The one to be cut.
    pub fn on_streams(&mut self, now: Moment, streams: &[Stream]) -> Option<u16> {
        self.looked = now;
        let stands = streams.iter().filter(|it| it.is_in_timeout && it.owed_bytes > 0).max_by_key(|it| it.rtts(0))?;
        let others = streams.iter().filter(|it| it.rail != stands.rail && !it.is_in_timeout && it.window_bytes > 0);
        let soonest = others.map(|it| it.rtts(stands.owed_bytes)).min()?;
        if stands.rtts(0) < soonest + AGAIN_RTTS + MARGIN_RTTS {
            return None;
        }
        (self.cut, self.cuts) = (Some(now), self.cuts + 1);
        Some(stands.rail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(150);
    const SEGMENT: u64 = 1448;

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    fn stands(rail: u16, timeouts: u8, owed_bytes: u64) -> Stream {
        Stream { rail, is_in_timeout: true, timeouts, window_bytes: SEGMENT, owed_bytes }
    }

    fn goes(rail: u16, segments: u64, owed_bytes: u64) -> Stream {
        Stream { rail, is_in_timeout: false, timeouts: 0, window_bytes: segments * SEGMENT, owed_bytes }
    }

    #[test]
    fn a_chunk_in_a_timeout_goes_over_a_stream_whose_window_holds_it() {
        let mut it = Timeouts::default();
        assert!(it.is_due(at(200), RTT));
        // 724 segments from one segment on: ten round trips; there: two until it goes again, and one or two.
        assert_eq!(it.on_streams(at(200), &[stands(3, 1, 1 << 20), goes(4, 500, 0)]), Some(3));
        assert!(!it.is_due(at(400), RTT) && it.is_due(at(500), RTT), "one for each two round trips");
        // What has backed off three times waits longer than its few segments would take.
        assert_eq!(it.on_streams(at(600), &[stands(5, 3, 4 * SEGMENT), goes(4, 500, 0)]), Some(5));
    }

    #[test]
    fn what_would_come_no_sooner_over_another_is_left_alone() {
        let none = |streams: &[Stream]| Timeouts::default().on_streams(at(200), streams).is_none();
        assert!(none(&[stands(3, 1, 4 * SEGMENT), goes(4, 500, 0)]), "a few segments");
        assert!(none(&[stands(3, 1, 1 << 20), goes(4, 4, 0)]), "the other begins as slowly");
        assert!(none(&[stands(3, 1, 1 << 20), goes(4, 500, 400 << 20)]), "the other has enough to do");
        assert!(none(&[stands(3, 1, 1 << 20), stands(4, 1, 1 << 20)]), "both stand");
        assert!(none(&[stands(3, 1, 0), goes(4, 500, 0)]), "it owes nothing");
        assert!(none(&[goes(3, 2, 1 << 20), goes(4, 500, 0)]), "slow, and in no timeout");
        assert!(none(&[stands(3, 1, 1 << 20)]), "the only one");
    }

    #[test]
    fn a_path_on_which_every_stream_stands_again_and_again_is_cut_no_more_than_eight_times() {
        let mut it = Timeouts::default();
        let mut cuts = 0;
        for step in 1..1000 {
            let now = at(step * 50);
            if it.is_due(now, RTT) {
                cuts += u32::from(it.on_streams(now, &[stands(3, 6, 16 << 20), goes(4, 1000, 0)]).is_some());
            }
        }
        assert_eq!(cuts, 8);
    }
}

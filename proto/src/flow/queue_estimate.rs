//! Queue estimate: how long a burst the shallowest queue of the path holds.
//!
//! For: bursts spare both ends a wake-up per packet, until they are longer than the shallowest queue on their way; then their tails are lost.
//! In and out: what became of each packet and where in its burst it stood in; the largest burst, in packets, out.
//! Invariants: losses that strike a burst's packets alike (a path's random loss, whole bursts) change nothing; one packet is always
//! allowed.
//! Absent on purpose: the rate (`crate::rate`): an overflowing queue is its concern, too.

use core::ops::Range;

use super::flight::Run;
use crate::rate::Controller;

/// Lost first and last packets of bursts that one test counts. If both were lost alike, 26 or more last ones among 32 would be seen once in
/// 3,500 tests (binomial). A queue that is too short takes the first and not the last, however much too short it is.
const SAMPLES: u32 = 32;
/// Last packets among them that show a queue too short for the burst.
const LAST_MIN: u32 = 26;
/// Shortest burst that is tested, packets.
const PACKETS_MIN: u32 = 2;
/// Packets received without such a finding after which bursts a quarter longer are tried (paths change, tests err): at first, and at most. Each
/// finding doubles it, since a try that fails costs some dozens of packets and what is in flight meanwhile.
const RETRY_AFTER_PACKETS: (u64, u64) = (32_768, 1 << 20);
/// A burst delays what is behind it by its own length: at most this part of the round trip (divisor) ...
const SPAN_DIVISOR: u64 = 64;
/// ... and no more than this, ns: the queueing delay that one more flow adds (`rate::weight::QUEUE_EACH_NS`).
const SPAN_NS_MAX: u64 = 1_000_000;
/// A slow rate makes few packets in that, and a wake-up costs as much for one as for eight: up to so many leave together if the rate makes them in
/// this part of the round trip and in so much time, ns (how long a queue may be that nobody notices: a twentieth of a tenth of a second).
const SLOW_PACKETS: u64 = 8;
const SLOW_SPAN_DIVISOR: u64 = 16;
const SLOW_SPAN_NS_MAX: u64 = 5_000_000;
/// Packets of the first bursts; until the first finding bursts double ...
const BURST_FIRST: u32 = 4;
/// ... after each so many packets received.
const GROW_AFTER_PACKETS: u64 = 1024;
/// Packets of the longest burst: as good as no bound.
const BURST_MAX: u32 = 1 << 16;

/// What was seen.
#[derive(Debug, Clone)]
pub(super) struct QueueEstimate {
    most: u32,
    first: u32,
    last: u32,
    resolved: u64,
    try_after: u64,
    /// Packets below this number left before the last judgement.
    found_below: u64,
}

impl QueueEstimate {
    pub(super) const fn new() -> Self {
        QueueEstimate {
            most: BURST_FIRST,
            first: 0,
            last: 0,
            resolved: 0,
            try_after: RETRY_AFTER_PACKETS.0,
            found_below: 0,
        }
    }

    /// Bytes that may leave back to back: what the controller allows at once, or on a long path what the rate makes in a 64th of the round trip,
    /// where the path's queues hold that.
    pub(super) fn burst(&self, controller: &Controller, packet_bytes: u64) -> u64 {
        if controller.is_policed() {
            return u64::from(controller.burst());
        }
        let within = |part: u64, most_ns: u64| {
            let span_ns = (controller.base_rtt_ns() / part).min(most_ns);
            let bytes = u128::from(controller.rate()) * u128::from(span_ns) / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        // On a short path what would be saved is little, and a burst is much of its round trip.
        let is_long = controller.base_rtt_ns() >= SLOW_SPAN_DIVISOR * SPAN_NS_MAX;
        let slow = within(SLOW_SPAN_DIVISOR, SLOW_SPAN_NS_MAX).min(SLOW_PACKETS * packet_bytes);
        let long = within(SPAN_DIVISOR, SPAN_NS_MAX).max(if is_long { slow } else { 0 });
        let (allowed, most) = (u64::from(controller.burst()), u64::from(self.most) * packet_bytes);
        if self.found_below == 0 { allowed.max(long.min(most)) } else { allowed.max(long).min(most) }
    }

    /// These numbers of the burst have this fate. `next`: the next packet's number.
    pub(super) fn on_resolved(&mut self, run: &Run, numbers: &Range<u64>, received: bool, next: u64) {
        if received {
            self.resolved += numbers.end - numbers.start;
            let (after, more) = match self.found_below {
                0 => (GROW_AFTER_PACKETS, self.most),
                _ => (self.try_after, (self.most / 4).max(1)),
            };
            if self.resolved >= after {
                self.resolved = 0;
                self.most = (self.most + more).min(BURST_MAX);
            }
            return;
        }
        if run.packets < PACKETS_MIN || run.first < self.found_below {
            return;
        }
        self.first += u32::from(numbers.contains(&run.first));
        self.last += u32::from(numbers.contains(&(run.end() - 1)));
        if self.first + self.last < SAMPLES {
            return;
        }
        if self.last >= LAST_MIN {
            self.most = (self.most.min(run.packets) / 2).max(1);
            self.resolved = 0;
            self.try_after = (self.try_after * 2).min(RETRY_AFTER_PACKETS.1);
            self.found_below = next;
        }
        (self.first, self.last) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::flight::Cargo;
    use super::*;

    fn burst(first: u64, packets: u32) -> Run {
        let (unit, offset, bytes) = (0, 0, packets * 1000);
        let (cargo, superseded_below) = (Cargo::Data, 0);
        Run {
            first,
            sent_ns: 0,
            packets,
            unit,
            offset,
            bytes,
            payload: 1000,
            cargo,
            repair: false,
            superseded_below,
            copies: 0,
            before: 0,
        }
    }

    #[test]
    fn bursts_whose_ends_are_lost_become_shorter_until_they_fit_and_longer_bursts_are_tried_again() {
        let (mut estimate, mut first) = (QueueEstimate::new(), 0);
        let holds = 10_u64;
        for _ in 0..1000 {
            let run = burst(first, 40.min(estimate.most));
            let fit = run.end().min(run.first + holds);
            estimate.on_resolved(&run, &(run.first..fit), true, run.end());
            if fit < run.end() {
                estimate.on_resolved(&run, &(fit..run.end()), false, run.end());
            }
            first = run.end();
        }
        assert!((5..=10).contains(&estimate.most), "{estimate:?}");
        let before = estimate.most;
        for _ in 0..estimate.try_after / 8 {
            let run = burst(first, 8);
            estimate.on_resolved(&run, &(run.first..run.end()), true, run.end());
            first = run.end();
        }
        assert_eq!(estimate.most, before + before / 4);
    }

    #[test]
    fn losses_that_strike_all_packets_of_a_burst_alike_shorten_nothing() {
        let mut estimate = QueueEstimate::new();
        let mut dice = 1_u64;
        let mut first = 0;
        for _ in 0..2_000 {
            let run = burst(first, 13);
            for number in run.first..run.end() {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                estimate.on_resolved(&run, &(number..number + 1), !(dice >> 33).is_multiple_of(50), run.end());
            }
            first = run.end();
            // A whole burst, as a full socket at the other end loses it.
            let run = burst(first, 13);
            estimate.on_resolved(&run, &(run.first..run.end()), false, run.end());
            first = run.end();
        }
        assert_eq!(estimate.found_below, 0, "{estimate:?}");
    }
}

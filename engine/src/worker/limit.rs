//! What comes over datagram rails, held against the rate that its sender was told.
//!
//! For: a sender that ignores its cap. A stream is read no faster than its bound lets it; packets come whether they are taken or not.
//! In and out: packets that held in; whether they count as having come, out; what was taken and what was not, for whoever judges the sender.
//! Invariants: over any two seconds no more is taken than rate × time and a tenth; what is not taken is as if it had been lost on the way: not
//! acknowledged, and paid for by nobody; forged packets are not asked about, so nobody else uses up a sender's right. No lock, no memory.
//! Absent on purpose: how long a sender may go on like that, and from when a new rate holds (the job driver knows when it was told).

use std::sync::atomic::{AtomicU64, Ordering};

/// Packets may come so much earlier than at the rate: a path that stood still for a moment brings them all at once. A tenth of two seconds.
const EARLY_NS: u64 = 200_000_000;
/// And so many bytes at once whatever the rate: a few packets.
const EARLY_BYTES: u64 = 6000;

/// See the module. Times are of the platform's clock, ns.
#[derive(Debug, Default)]
pub struct Limit {
    /// B/s; 0: none.
    rate: AtomicU64,
    /// All that was taken would have come by then at the rate.
    until_ns: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
}

impl Limit {
    /// From now on; B/s, 0: none.
    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Bytes that were taken and that were not, while there was a limit.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.taken.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed))
    }

    /// May these bytes, which came then, count as having come?
    pub(crate) fn takes(&self, now_ns: u64, bytes: u64) -> bool {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return true;
        }
        let price_ns = |bytes: u64| bytes.saturating_mul(1_000_000_000) / rate;
        let latest = now_ns.saturating_add(EARLY_NS.max(price_ns(EARLY_BYTES)));
        let next = |until: u64| (until <= latest).then(|| until.max(now_ns).saturating_add(price_ns(bytes)));
        let taken = self.until_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok();
        let count = if taken { &self.taken } else { &self.refused };
        count.fetch_add(bytes, Ordering::Relaxed);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A sender's packets of 1,400 bytes at `sent` B/s, each `late_ns` of its number later than it left, for ten seconds: the most taken in any two
    /// of them, and all that was refused.
    fn run(rate: u64, sent: u64, late_ns: impl Fn(u64) -> u64) -> (u64, u64) {
        let limit = Limit::default();
        limit.set_rate(rate);
        let (mut taken, mut came) = (Vec::new(), 0);
        for packet in 0..10 * sent / 1400 {
            came = (7_000 * MS + packet * 1400 * 1_000_000_000 / sent + late_ns(packet)).max(came);
            if limit.takes(came, 1400) {
                taken.push(came);
            }
        }
        let (mut most, mut first) = (0, 0);
        for (at, now) in taken.iter().enumerate() {
            while taken[first] + 2_000 * MS <= *now {
                first += 1;
            }
            most = most.max(at + 1 - first);
        }
        (most as u64 * 1400, limit.counts().1)
    }

    #[test]
    fn a_sender_that_ignores_its_rate_brings_no_more_than_it_and_a_tenth_over_any_two_seconds() {
        for sent in [1_200_000, 2_000_000, 50_000_000] {
            let (most, refused) = run(1_000_000, sent, |_| 0);
            assert!((2_000_000..=2_200_000 + 2 * 1400).contains(&most), "{sent} B/s: {most}");
            assert!(refused > 0);
        }
    }

    #[test]
    fn a_sender_that_keeps_to_its_rate_loses_nothing_though_its_path_stands_still_now_and_then() {
        // Every second nothing comes for 150 ms, and then all of it.
        let stalls = |packet: u64| 150 * MS - (packet * 1400 / 1000 * MS % (1000 * MS)).min(150 * MS);
        assert_eq!(run(1_000_000, 1_000_000, |_| 0).1, 0);
        assert_eq!(run(1_000_000, 1_000_000, stalls).1, 0);
        assert_eq!(run(10_000, 10_000, |_| 0).1, 0);
        assert_eq!(run(0, 50_000_000, |_| 0).1, 0, "no limit");
    }
}

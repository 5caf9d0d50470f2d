//! `--rate`: one bound for all rails of a job, above it one for all jobs of a key, above that one for all jobs of a process.
//!
//! For: a bound that holds in sum and is reached whenever the rails together can carry it, whatever each of them can.
//! In and out: bytes about to leave in; the time from which they may, out.
//! Invariants: bytes are paid for before they leave, in slices of a fortieth of a second, so that between any two moments no more leave than rate × time,
//! a twentieth of a second that nobody used, and one slice; who waits is served in the order of asking, so a rail that is slow by itself takes its
//! own and leaves the rest to others. One atomic word, no lock, no memory.
//! Absent on purpose: shares. They are what each rail asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::worker::limit::Limit;

/// Unused right is kept for so long and no longer: over 2 s the bound holds within 2.5 %, and what a thread that came late did not use is not lost.
const KEPT_NS: u64 = 50_000_000;
/// Slices of so much of a second: half of what is kept.
const SLICES_PER_SECOND: u64 = 40;
/// And no smaller than this, about one packet of an Ethernet: smaller ones would cost more headers than they are worth.
const SLICE_BYTES_MIN: u64 = 1400;
/// Nobody asks for a place further ahead than this, so that a bound that is lifted lets go within that time.
const AHEAD_NS_MAX: u64 = 1_000_000_000;

/// See the module. Times are of the platform's clock, ns.
#[derive(Debug, Default)]
pub struct Bound {
    /// B/s; 0: none.
    rate: AtomicU64,
    /// All that was let go is paid for at this time; 0: nothing was yet.
    free_at_ns: AtomicU64,
    /// Bytes let go.
    taken: AtomicU64,
    above: Option<Arc<Bound>>,
    /// Of what comes in packets.
    pub limit: Limit,
}

impl Bound {
    /// At most `rate` B/s (0: no bound), and within `above`.
    #[must_use]
    pub fn new(rate: u64, above: Option<Arc<Bound>>) -> Bound {
        Bound { rate: AtomicU64::new(rate), above, ..Bound::default() }
    }

    /// The bound that is in force here, B/s; 0: none.
    #[must_use]
    pub fn rate(&self) -> u64 {
        self.rate.load(Ordering::Relaxed)
    }

    /// Is there a bound, here or above?
    pub(crate) fn is_bound(&self) -> bool {
        self.rate() > 0 || self.above.as_ref().is_some_and(|above| above.is_bound())
    }

    /// Bytes let go so far.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Another bound from now on. What was let go and is not paid for yet is paid for at the new one.
    pub fn set_rate(&self, now_ns: u64, rate: u64) {
        let had = self.rate.swap(rate, Ordering::Relaxed);
        if had == rate || had == 0 {
            return;
        }
        self.change(|free_at| {
            let left_ns = u128::from(free_at.saturating_sub(now_ns)) * u128::from(had) / u128::from(rate.max(1));
            if left_ns == 0 { free_at } else { now_ns.saturating_add(u64::try_from(left_ns).unwrap_or(u64::MAX)) }
        });
    }

    /// The most of these bytes that may leave at once.
    pub(crate) fn slice(&self, bytes: u64) -> u64 {
        let bytes = self.above.as_ref().map_or(bytes, |above| above.slice(bytes));
        match self.rate() {
            0 => bytes,
            rate => bytes.min((rate / SLICES_PER_SECOND).max(SLICE_BYTES_MIN)),
        }
    }

    /// When may these bytes leave? They are booked: who asks, sends. `None`: not yet, ask again after `held_ns`.
    pub(crate) fn take(&self, now_ns: u64, bytes: u64) -> Option<u64> {
        if self.held_ns(now_ns, bytes) > 0 {
            return None;
        }
        Some(self.book(now_ns, bytes))
    }

    /// How long until a place can be asked for.
    pub(crate) fn held_ns(&self, now_ns: u64, bytes: u64) -> u64 {
        let above = self.above.as_ref().map_or(0, |above| above.held_ns(now_ns, bytes));
        let rate = self.rate();
        if rate == 0 {
            return above;
        }
        let ahead = AHEAD_NS_MAX.saturating_sub(price_ns(bytes, rate));
        self.free_at_ns.load(Ordering::Relaxed).saturating_sub(now_ns.saturating_add(ahead)).max(above)
    }

    fn book(&self, now_ns: u64, bytes: u64) -> u64 {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
        let above = self.above.as_ref().map_or(0, |above| above.book(now_ns, bytes));
        let rate = self.rate();
        if rate == 0 {
            return above;
        }
        let price = price_ns(bytes, rate);
        let paid_at = self.change(|free_at| {
            // No right is left over from before anybody asked.
            let from = if free_at == 0 { now_ns } else { free_at.max(now_ns.saturating_sub(KEPT_NS)) };
            from.saturating_add(price)
        });
        paid_at.max(above)
    }

    /// What is left to pay for now: for bytes that go first and are paid for after (bursts of packets, control sessions).
    #[must_use]
    pub fn owes_ns(&self, now_ns: u64) -> u64 {
        let above = self.above.as_ref().map_or(0, |above| above.owes_ns(now_ns));
        let own = if self.rate() == 0 { 0 } else { self.free_at_ns.load(Ordering::Relaxed).saturating_sub(now_ns) };
        own.max(above)
    }

    /// These bytes have left, or came.
    pub fn pay(&self, now_ns: u64, bytes: u64) {
        self.book(now_ns, bytes);
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> u64 {
        let mut seen = self.free_at_ns.load(Ordering::Relaxed);
        loop {
            let new = to(seen);
            match self.free_at_ns.compare_exchange_weak(seen, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return new,
                Err(now) => seen = now,
            }
        }
    }
}

fn price_ns(bytes: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const CHUNK: u64 = 1 << 20;

    /// Rails whose paths carry `own` B/s each, in virtual time: bytes that each brought in `seconds`.
    fn run(bound: &Bound, own: &[u64], seconds: u64) -> Vec<u64> {
        let mut brought = vec![0; own.len()];
        // When each has done with what it sends, and the place it has for the next.
        let (mut busy, mut place) = (vec![0; own.len()], vec![None; own.len()]);
        let mut now = 7_000 * MS;
        let (begin, end) = (now, now + seconds * 1000 * MS);
        while now < end {
            for at in 0..own.len() {
                if busy[at] > now {
                    continue;
                }
                let slice = bound.slice(CHUNK);
                place[at] = place[at].or_else(|| bound.take(now, slice));
                if place[at].is_some_and(|then| then <= now) {
                    place[at] = None;
                    busy[at] = now + price_ns(slice, own[at]);
                    brought[at] += slice;
                }
            }
            now += MS / 4;
            let (sum, rate) = (brought.iter().sum::<u64>(), bound.rate());
            let may = (now - begin) as u128 * u128::from(rate) / 1_000_000_000;
            assert!(u128::from(sum) <= may, "{sum} bytes after {} ms at {rate} B/s", (now - begin) / MS);
        }
        brought
    }

    #[test]
    fn unlike_paths_reach_the_bound_together_and_never_pass_it() {
        let unit = 12_500_000;
        let paths = [unit, unit, 2 * unit, 4 * unit];
        for part in [3, 5, 7] {
            let rate = part * unit;
            let brought = run(&Bound::new(rate, None), &paths, 20);
            let sum: u64 = brought.iter().sum();
            assert!(sum * 100 >= rate * 20 * 98, "{part} of 8: {brought:?}");
        }
    }

    #[test]
    fn over_any_two_seconds_no_more_leaves_than_the_rate_and_a_tenth_whatever_the_sizes() {
        // Frames of small and of large files, one rail and six, of one job and of three below the same bound; pauses of all lengths between.
        for (rate, rails, frame) in [
            (125_000, 1, CHUNK),
            (125_000, 6, CHUNK),
            (125_000, 6, 1000),
            (2_500_000, 6, CHUNK),
            (2_500_000, 2, 70_000),
        ] {
            let key = Arc::new(Bound::new(rate, None));
            let jobs: Vec<Bound> = (0..3).map(|_| Bound::new(rate, Some(key.clone()))).collect();
            let (mut left, mut sent, mut now) = (vec![0_u64; rails], Vec::new(), MS);
            let mut place: Vec<Option<(u64, u64)>> = vec![None; rails];
            while now < 40_000 * MS {
                // Everybody rests for up to a second now and then, and comes back at once.
                let rests = (now / MS).is_multiple_of(5) && (now / (1000 * MS)) % 3 == 2;
                for at in (0..rails).filter(|_| !rests) {
                    let bound = &jobs[at % 3];
                    left[at] = if left[at] == 0 { frame } else { left[at] };
                    let slice = bound.slice(left[at]);
                    place[at] = place[at].or_else(|| bound.take(now, slice).map(|then| (then, slice)));
                    if let Some((_, slice)) = place[at].filter(|(then, _)| *then <= now) {
                        place[at] = None;
                        left[at] -= slice;
                        sent.push((now, slice));
                    }
                }
                now += MS;
            }
            let total: u64 = sent.iter().map(|(_, bytes)| bytes).sum();
            assert!(total <= rate * 40 && total >= rate * 38, "{total} of {} at {rate} B/s, {rails} rails", rate * 40);
            for (first, (from, _)) in sent.iter().enumerate() {
                let within = sent[first..].iter().take_while(|(at, _)| at - from < 2000 * MS);
                let bytes: u64 = within.map(|(_, bytes)| bytes).sum();
                assert!(bytes * 10 <= rate * 22, "{bytes} within 2 s at {rate} B/s, {rails} rails, {frame}");
            }
        }
    }

    #[test]
    fn jobs_share_the_bound_above_them_and_one_that_asks_for_little_leaves_the_rest() {
        let above = Arc::new(Bound::new(50_000_000, None));
        let small = Bound::new(0, Some(above.clone()));
        let large = Bound::new(0, Some(above.clone()));
        let (mut busy, mut brought, mut now) = ([0; 2], [0; 2], MS);
        let (mut place, end) = ([None; 2], 20_000 * MS);
        while now < end {
            for (at, (bound, own)) in [(&small, 5_000_000), (&large, 500_000_000)].into_iter().enumerate() {
                if busy[at] > now {
                    continue;
                }
                place[at] = place[at].or_else(|| bound.take(now, CHUNK));
                if place[at].is_some_and(|then| then <= now) {
                    (place[at], busy[at]) = (None, now + price_ns(CHUNK, own));
                    brought[at] += CHUNK;
                }
            }
            now += MS / 4;
        }
        let sum = brought[0] + brought[1];
        assert!((980_000_000..=1_000_000_000).contains(&sum), "{brought:?}");
        assert!(brought[0] >= 85_000_000, "{brought:?}");
        assert_eq!((small.taken() >= brought[0], above.taken() >= sum), (true, true));
    }

    #[test]
    fn a_bound_that_is_lifted_lets_go_and_one_that_is_lowered_holds() {
        let bound = Bound::new(1_000_000, None);
        assert_eq!(bound.take(5 * MS, 500_000), Some(505 * MS), "paid for before it leaves, the first one, too");
        bound.set_rate(5 * MS, 10_000_000);
        assert_eq!(bound.owes_ns(5 * MS), 50 * MS);
        bound.set_rate(5 * MS, 0);
        assert_eq!(bound.take(6 * MS, CHUNK), Some(0));
        // Bytes that take seconds are paid for before they leave like any others.
        let slow = Bound::new(100_000, None);
        assert_eq!(slow.take(MS, 1 << 18), Some(MS + price_ns(1 << 18, 100_000)));
        assert!(slow.take(MS, CHUNK).is_none() && slow.held_ns(MS, CHUNK) > 2000 * MS);
    }

    #[test]
    fn threads_that_ask_at_once_are_given_places_one_after_another() {
        let bound = Bound::new(1_000_000_000, None);
        let mut places: Vec<u64> = std::thread::scope(|scope| {
            let asks: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..200).filter_map(|_| bound.take(MS, 1000)).collect::<Vec<_>>()))
                .collect();
            asks.into_iter().flat_map(|it| it.join().expect("it asks")).collect()
        });
        places.sort_unstable();
        assert_eq!(places.len(), 800);
        assert!(places.iter().enumerate().all(|(at, place)| *place == MS + 1000 * (at as u64 + 1)), "{places:?}");
    }
}

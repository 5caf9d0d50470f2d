//! Which packet numbers arrived.
//!
//! For: the replay window and the coverage.
//! In and out: numbers in; runs of arrived and missing numbers out.
//! Invariants: one bit per number, a word cleared when it comes around again; grows to hold about four seconds of packets and no
//! further than 2 MiB.
//! Absent on purpose: what a packet carried.

use alloc::vec;
use alloc::vec::Vec;

/// Bits at the start: 8 KiB.
const BITS_MIN: u64 = 1 << 16;
/// Bits at most: four seconds of 4 million packets each, what 45 Gbit/s in 1440-byte packets come to.
const BITS_MAX: u64 = 1 << 24;
/// Time that the window shall hold, ns: a round trip of 2 s and a feedback lost in between.
const TURN_NS: u64 = 4_000_000_000;

/// A ring of bits.
#[derive(Debug)]
pub(super) struct Window {
    words: Vec<u64>,
    /// Numbers below are forgotten; a multiple of 64.
    low: u64,
    /// The newest number plus one.
    end: u64,
    /// When `low` last went once around, and where.
    turn_ns: u64,
    turn_low: u64,
}

impl Window {
    pub(super) fn new(now_ns: u64) -> Self {
        Window { words: vec![0; (BITS_MIN / 64) as usize], low: 0, end: 0, turn_ns: now_ns, turn_low: 0 }
    }

    /// Bits in it.
    const fn bits(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    const fn place(&self, number: u64) -> usize {
        (number / 64) as usize & (self.words.len() - 1)
    }

    /// The oldest number known.
    pub(super) const fn low(&self) -> u64 {
        self.low
    }

    /// The newest number plus one.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Did it arrive, or is it too old to say?
    pub(super) fn has(&self, number: u64) -> bool {
        number < self.low || (number < self.end && self.words[self.place(number)] >> (number % 64) & 1 == 1)
    }

    /// It arrived. `needed`: numbers from there on should not be forgotten.
    pub(super) fn set(&mut self, now_ns: u64, number: u64, needed: u64) {
        if number >= self.low + self.bits() {
            self.advance(now_ns, number, needed);
        }
        self.end = self.end.max(number + 1);
        let place = self.place(number);
        self.words[place] |= 1 << (number % 64);
    }

    fn advance(&mut self, now_ns: u64, number: u64, needed: u64) {
        while self.bits() < BITS_MAX && (number >= needed.max(self.low) + self.bits() || self.turns_fast(now_ns)) {
            self.grow();
            self.turn_ns = now_ns;
            self.turn_low = self.low;
        }
        let low = (number / 64 + 1).saturating_mul(64).saturating_sub(self.bits()).max(self.low);
        if low - self.low >= self.bits() {
            self.words.fill(0);
        } else {
            for word in self.low / 64..low / 64 {
                let place = self.place(word * 64);
                self.words[place] = 0;
            }
        }
        self.low = low;
        if self.low >= self.turn_low + self.bits() {
            self.turn_ns = now_ns;
            self.turn_low = self.low;
        }
    }

    /// Will the window have gone around in less time than it shall hold?
    fn turns_fast(&self, now_ns: u64) -> bool {
        let gone = self.low - self.turn_low;
        gone + self.bits() / 4 >= self.bits() && now_ns - self.turn_ns.min(now_ns) < TURN_NS * 3 / 4
    }

    fn grow(&mut self) {
        let mut words = vec![0; self.words.len() * 2];
        for word in self.low / 64..self.end.div_ceil(64) {
            let to = word as usize & (words.len() - 1);
            words[to] = self.words[self.place(word * 64)];
        }
        self.words = words;
    }

    /// How many numbers from `from` on, below `until`, share the fate of `from`, and which fate.
    pub(super) fn run(&self, from: u64, until: u64) -> (u64, bool) {
        let received = self.has(from);
        let mut at = from;
        while at < until {
            let word = self.words[self.place(at)] >> (at % 64);
            let left = 64 - at % 64;
            let same = u64::from(if received { !word } else { word }.trailing_zeros()).min(left);
            at += same;
            if same < left {
                break;
            }
        }
        (at.min(until) - from, received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_single_bits_wherever_the_ring_stands() {
        let mut window = Window::new(0);
        let mut arrived = std::collections::BTreeSet::new();
        let mut state = 1_u64;
        for number in 0..300_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Losses in bursts longer than a word now and then.
            if number % 1000 > 100 && state >> 60 > 2 {
                window.set(number * 1_000_000, number, number);
                arrived.insert(number);
            }
        }
        let mut at = window.low();
        assert!(at > 0 && window.end() - at <= BITS_MAX);
        while at < window.end() {
            let (count, received) = window.run(at, window.end());
            assert!(count > 0);
            assert!((at..at + count).all(|number| arrived.contains(&number) == received), "at {at}");
            at += count;
            assert!(at == window.end() || arrived.contains(&at) != received, "a run ends where the fate changes");
        }
    }

    #[test]
    fn a_window_that_goes_around_too_fast_grows_and_forgets_nothing_by_it() {
        let mut window = Window::new(0);
        for number in 0..BITS_MIN * 8 {
            if number % 3 != 0 {
                window.set(number * 1000, number, 0);
            }
        }
        assert_eq!(window.low(), 0);
        assert!((0..BITS_MIN * 8 - 1).all(|number| window.has(number) == (number % 3 != 0)));
    }

    #[test]
    fn a_leap_over_the_whole_window_leaves_nothing_but_the_new_number() {
        let mut window = Window::new(0);
        (0..1000).for_each(|number| window.set(0, number, number));
        let far = BITS_MAX * 3;
        window.set(1, far, far);
        assert!(window.has(far) && window.has(0) && !window.has(far - 1));
        assert_eq!(window.run(window.low(), far), (far - window.low(), false));
    }
}

//! Figures that cost the kernel work, for many who ask.
//!
//! For: books that each of a thousand jobs writes twice a second, of figures that belong to the process: its CPU time is summed up over all
//! threads, of which a thousand jobs have a thousand, and others are files of /proc.
//! In and out: the way to ask in; a figure that is new, or so old that asking has cost a hundredth of a core at most.
//! Invariants: never waits; who comes while another asks has the last figure, or asks as well where there is none yet.
//! Absent on purpose: what is asked.

use std::sync::atomic::{AtomicU64, Ordering};

/// A figure is as good for so many times what it cost.
const WORTH: u64 = 100;

/// One figure.
#[derive(Debug, Default)]
pub struct Seldom {
    value: AtomicU64,
    /// It is asked for again from then on; 0: it never was.
    again_ns: AtomicU64,
}

impl Seldom {
    /// Never asked.
    #[must_use]
    pub const fn new() -> Seldom {
        Seldom { value: AtomicU64::new(0), again_ns: AtomicU64::new(0) }
    }

    /// The figure. `now_ns`: a clock that never goes back.
    pub fn get(&self, now_ns: impl Fn() -> u64, ask: impl FnOnce() -> u64) -> u64 {
        let (began, again) = (now_ns(), self.again_ns.load(Ordering::Acquire));
        let taken = || self.again_ns.compare_exchange(again, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if began < again || (again > 0 && !taken()) {
            return self.value.load(Ordering::Relaxed);
        }
        let value = ask();
        let over = now_ns();
        self.value.store(value, Ordering::Relaxed);
        self.again_ns.store(over + (over - began) * WORTH, Ordering::Release);
        value
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_costs_much_is_asked_seldom_and_what_costs_nothing_each_time() {
        let (clock, asked, figure) = (Cell::new(1000), Cell::new(0), Seldom::new());
        let ask = |cost: u64| {
            figure.get(
                || clock.get(),
                || {
                    clock.set(clock.get() + cost);
                    asked.set(asked.get() + 1);
                    asked.get()
                },
            )
        };
        assert_eq!([ask(0), ask(0), ask(0)], [1, 2, 3]);
        assert_eq!(ask(50), 4);
        assert_eq!(ask(50), 4, "as good for 5,000 ns");
        clock.set(clock.get() + 4_999);
        assert_eq!(ask(50), 4);
        clock.set(clock.get() + 1);
        assert_eq!(ask(50), 5);
        let (begun, many) = (asked.get(), 1_000_000);
        let from = clock.get();
        for _ in 0..many {
            clock.set(clock.get() + 1);
            ask(50);
        }
        assert!((asked.get() - begun) * 50 * 99 < clock.get() - from, "a hundredth of the time");
    }
}

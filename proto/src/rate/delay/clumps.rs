//! How clumped losses are: the variance of their number beside that of independent ones.
//!
//! For: the search for a ceiling (`ceiling`), whose evidence is counted in lost packets: ten that one burst of a radio link took are one event.
//! In and out: what passed and what arrived, per report, in; the index of dispersion out (Cox and Lewis 1966), 1 where losses are independent.
//! Invariants: between 1 and `MOST`. Windows are counted in packets, not in reports, which at a low rate hold a packet or two each.
//! Absent on purpose: the model of the bursts (Gilbert 1960), whose parameters would need more of them than are seen in time.

use super::look::Report;

/// Packets of a window at least: a burst should fit.
const WINDOW_PACKETS: f64 = 32.0;
/// The measure is a mean over so many windows at most.
const WINDOWS: f64 = 64.0;
/// Before anything is seen losses are independent, as sure as so many windows are.
const PRIOR: f64 = 8.0;
/// Losses count as clumped up to this many at once.
const MOST: f64 = 100.0;
/// Mean shares below this are too few losses to compare.
const SHARE_LEAST: f64 = 0.005;

#[derive(Debug, Clone)]
pub(super) struct Clumps {
    passed: f64,
    arrived: f64,
    windows: f64,
    /// Mean share of loss over the windows.
    share: f64,
    /// The last window's.
    before: f64,
    /// Mean of half the squared difference between neighbours, times their packets (von Neumann 1941): a share that jumps once, as a policer's does
    /// when its bucket is empty, is one difference, and bursts are many.
    differences: f64,
}

impl Clumps {
    pub(super) const fn new() -> Self {
        Self { passed: 0.0, arrived: 0.0, windows: 0.0, share: 0.0, before: 0.0, differences: 0.0 }
    }

    pub(super) fn add(&mut self, report: &Report) {
        self.passed += report.passed;
        self.arrived += report.arrived;
        let packets = self.passed / report.packet_bytes;
        if packets < WINDOW_PACKETS {
            return;
        }
        let share = (1.0 - self.arrived / self.passed).max(0.0);
        (self.passed, self.arrived) = (0.0, 0.0);
        self.windows = (self.windows + 1.0).min(WINDOWS);
        self.share += (share - self.share) / self.windows;
        if self.windows >= 2.0 {
            let difference = share - self.before;
            self.differences += (packets * difference * difference / 2.0 - self.differences) / (self.windows - 1.0);
        }
        self.before = share;
    }

    pub(super) fn dispersion(&self) -> f64 {
        if self.share < SHARE_LEAST || self.windows < 2.0 {
            return 1.0;
        }
        let seen = (self.differences / (self.share * (1.0 - self.share).max(0.05))).min(MOST);
        let weight = (self.windows - 1.0) / (self.windows - 1.0 + PRIOR);
        (1.0 + (seen - 1.0) * weight).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of one packet each, as a slow path has them.
    fn after(lost: impl Fn(u32) -> bool) -> f64 {
        let mut clumps = Clumps::new();
        for number in 0..4_000 {
            let arrived = if lost(number) { 0.0 } else { 1_500.0 };
            let report = Report {
                now_ns: u64::from(number),
                passed: 1_500.0,
                arrived,
                interval_ns: 1.0,
                packet_bytes: 1_500.0,
                rtt_ns: 100,
                report_ns: 1,
                round_ns: 100,
                queueless: true,
                limited: false,
                rate: 1.0,
            };
            clumps.add(&report);
        }
        clumps.dispersion()
    }

    fn chance(number: u32) -> u32 {
        number.wrapping_mul(2_654_435_761) >> 16
    }

    #[test]
    fn losses_that_come_in_bursts_are_clumped_and_others_are_not() {
        assert!(after(|number| chance(number).is_multiple_of(16)) < 1.5, "each by itself");
        assert!(after(|number| number % 4 == 0) < 1.1, "as a policer drops of what comes evenly");
        let bursts = after(|number| chance(number / 20).is_multiple_of(8));
        assert!(bursts > 8.0, "twenty at once: {bursts:.1}");
    }

    /// A policer's bucket is empty from the thousandth packet on.
    #[test]
    fn a_share_that_jumps_once_is_no_clump() {
        let jumped = after(|number| number > 1_000 && number % 2 == 0);
        assert!(jumped < 1.5, "{jumped:.1}");
    }
}

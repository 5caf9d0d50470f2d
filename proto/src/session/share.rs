//! Path-share check: does each path carry the share that it should?
//!
//! For: a link, a NIC or a cable that does less than it says is seen while it does.
//! In and out: bytes that each path brought and its weight in; which paths are off their weight, out, whenever that changes.
//! Invariants: judged only while the network is what the job waits for, no rate cap holds it, and every path carries; a path is off, or on again,
//! after two spans in a row say so.
//! Absent on purpose: changing anything: the rail that is free takes the next chunk, so a slow path harms itself alone.

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{borrow::ToOwned, format, vec};
use core::time::Duration;

use super::Moment;

/// Shares are taken over this long: twenty looks, so that one chunk more or less is below a tenth even at 4 MiB chunks and 200 Mbit/s.
const SPAN: Duration = Duration::from_secs(2);
/// Beyond this part of its weight a path is off (SPECIFICATION, row 94: a tenth).
const OFF: f64 = 0.1;
/// So many spans in a row must say so: one may hold a burst of retransmissions.
const IN_A_ROW: u32 = 2;
/// The sender waits for the network for at least this part of the span; else something other than the paths bounds the job.
const NETWORK: f64 = 0.4;

/// What is known of one path.
#[derive(Debug, Clone, Copy, Default)]
struct Standing {
    /// Spans in a row that say otherwise than `is_off`.
    against: u32,
    is_off: bool,
    was_off: bool,
    share: f64,
}

/// What the driver sees at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Bytes that each path has brought.
    pub brought: Vec<u64>,
    /// Time that the sender's workers waited for the network, nanoseconds.
    pub waited_ns: u64,
    /// Wall time of the sender's workers, nanoseconds.
    pub worked_ns: u64,
    /// Every path carries, no cap holds the job, and it does not end.
    pub may_judge: bool,
}

/// The paths that carry another share than they should, since now: path, share and weight, of 1. Empty: each carries its weight again.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// Path, its share, its weight.
    pub off: Vec<(usize, f64, f64)>,
}

impl Change {
    /// For the user; `names`: of each path.
    #[must_use]
    pub fn line(&self, names: &dyn Fn(usize) -> String) -> String {
        if self.off.is_empty() {
            return "each path carries its weight again".to_owned();
        }
        let each = self.off.iter().map(|&(path, share, weight)| {
            format!("{} {:.0} % (weight {:.0} %)", names(path), share * 100.0, weight * 100.0)
        });
        format!("paths carry other shares than their weights: {}", each.collect::<Vec<_>>().join(", "))
    }
}

/// The shares of all paths.
#[derive(Debug, Clone)]
pub struct PathShares {
    /// Of each path, of 1; empty: nobody said.
    weights: Vec<f64>,
    standings: Vec<Standing>,
    /// When the span began, and what was counted then.
    from: Option<(Moment, Facts)>,
}

impl PathShares {
    /// Weights of all paths, of 1; empty: nobody said, and nothing is judged.
    #[must_use]
    pub fn new(weights: Vec<f64>) -> PathShares {
        PathShares { standings: vec![Standing::default(); weights.len()], weights, from: None }
    }

    /// True if there are weights to judge by.
    #[must_use]
    pub fn has_weights(&self) -> bool {
        !self.weights.is_empty()
    }

    /// The weight of a path, and whether it was ever off.
    #[must_use]
    pub fn of(&self, path: usize) -> (Option<f64>, bool) {
        (self.weights.get(path).copied(), self.standings.get(path).is_some_and(|it| it.was_off))
    }

    /// With each look at the paths. Returns a change of what is off.
    pub fn on_shares(&mut self, now: Moment, facts: &Facts) -> Option<Change> {
        if !facts.may_judge || facts.brought.len() != self.weights.len() {
            self.from = None;
            return None;
        }
        let Some((then, had)) = &self.from else {
            self.from = Some((now, facts.clone()));
            return None;
        };
        if now.since(*then) < SPAN {
            return None;
        }
        let new: Vec<u64> = facts.brought.iter().zip(&had.brought).map(|(now, had)| now.saturating_sub(*had)).collect();
        let span_waited = facts.waited_ns.saturating_sub(had.waited_ns);
        let span_worked = facts.worked_ns.saturating_sub(had.worked_ns);
        self.from = Some((now, facts.clone()));
        let sum: u64 = new.iter().sum();
        if sum == 0 || (span_waited as f64) < NETWORK * span_worked as f64 {
            return None;
        }
        let mut changed = false;
        for ((standing, weight), bytes) in self.standings.iter_mut().zip(&self.weights).zip(new) {
            standing.share = bytes as f64 / sum as f64;
            let is_off = (standing.share / weight - 1.0).abs() > OFF;
            standing.against = if is_off == standing.is_off { 0 } else { standing.against + 1 };
            if standing.against >= IN_A_ROW {
                *standing = Standing { against: 0, is_off, was_off: standing.was_off || is_off, ..*standing };
                changed = true;
            }
        }
        changed.then(|| Change { off: self.off() })
    }

    fn off(&self) -> Vec<(usize, f64, f64)> {
        let all = self.standings.iter().zip(&self.weights).enumerate();
        all.filter(|(_, (it, _))| it.is_off).map(|(path, (it, weight))| (path, it.share, *weight)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::vec;

    use super::*;

    /// Ten looks a second for so many seconds at these rates; the lines that came.
    fn run(
        shares: &mut PathShares,
        clock: &mut (Moment, Vec<u64>, u64),
        seconds: u64,
        rates: &[u64],
        wait: u64,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..seconds * 10 {
            clock.0 += Duration::from_millis(100);
            clock.1.iter_mut().zip(rates).for_each(|(bytes, rate)| *bytes += rate / 10);
            clock.2 += 100;
            let (waited_ns, worked_ns) = (clock.2 * wait / 100, clock.2);
            let facts = Facts { brought: clock.1.clone(), waited_ns, worked_ns, may_judge: true };
            lines.extend(shares.on_shares(clock.0, &facts).map(|change| change.line(&|at| format!("path{at}"))));
        }
        lines
    }

    fn four() -> (PathShares, (Moment, Vec<u64>, u64)) {
        (PathShares::new(vec![0.125, 0.125, 0.25, 0.5]), (Moment::default(), vec![0; 4], 0))
    }

    #[test]
    fn a_path_that_brings_half_of_its_weight_is_told_once_and_again_when_it_is_back() {
        let (mut shares, mut clock) = four();
        assert_eq!(run(&mut shares, &mut clock, 20, &[100, 104, 200, 390], 90), [""; 0], "within 10 % of the weights");
        let lines = run(&mut shares, &mut clock, 20, &[100, 100, 200, 200], 90);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("path3 33 % (weight 50 %)"), "{lines:?}");
        let lines = run(&mut shares, &mut clock, 20, &[100, 100, 200, 400], 90);
        assert_eq!(lines, ["each path carries its weight again"]);
        assert_eq!(shares.of(3), (Some(0.5), true));
    }

    #[test]
    fn it_is_told_within_seven_seconds_and_not_for_one_bad_span() {
        let (mut shares, mut clock) = four();
        run(&mut shares, &mut clock, 4, &[100, 100, 200, 400], 90);
        assert_eq!(run(&mut shares, &mut clock, 2, &[100, 100, 200, 100], 90), [""; 0]);
        assert_eq!(run(&mut shares, &mut clock, 6, &[100, 100, 200, 400], 90), [""; 0]);
        assert_eq!(run(&mut shares, &mut clock, 7, &[100, 100, 200, 100], 90).len(), 1);
    }

    #[test]
    fn shares_that_something_else_than_the_network_makes_are_not_judged() {
        let (mut shares, mut clock) = four();
        assert_eq!(
            run(&mut shares, &mut clock, 20, &[100, 100, 100, 100], 10),
            [""; 0],
            "the sender is busy, the paths are not"
        );
        let (mut shares, mut clock) = (PathShares::new(Vec::new()), (Moment::default(), vec![0; 2], 0));
        assert_eq!(run(&mut shares, &mut clock, 20, &[100, 900], 90), [""; 0], "no weights, no alarm");
        assert_eq!(shares.of(0), (None, false));
    }
}

//! Rail truth: what share each path brings, beside the share that it should.
//!
//! For: a link, a card or a cable that does less than it says is seen while it does.
//! In and out: bytes that each path brought and its weight in; which paths are off, and one line per change, out.
//! Invariants: judged only while the network is what the job waits for, no cap holds it, and every path carries; a path is off, or on again,
//! after two spans in a row say so.
//! Absent on purpose: changing anything: who is free takes the next chunk, so a slow path harms itself alone.

use std::time::{Duration, Instant};

use proto::books::Stage;

use super::{Closing, End, Keeper};

/// Shares are taken over so long.
const SPAN: Duration = Duration::from_secs(2);
/// Beyond this part of its weight a path is off.
const OFF: f64 = 0.1;
/// So many spans in a row.
const IN_A_ROW: u32 = 2;
/// The sender waits for the network for this part of the span, or else something else bounds the job.
const NETWORK: f64 = 0.4;

/// What is known of one path.
#[derive(Debug, Clone, Default)]
struct Standing {
    /// Spans in a row that say otherwise than `is_off`.
    against: u32,
    is_off: bool,
    was_off: bool,
    share: f64,
}

/// The shares of all paths.
#[derive(Debug)]
pub(super) struct Truth {
    /// Of each path, of 1; empty: nobody said.
    weights: Vec<f64>,
    standings: Vec<Standing>,
    /// The span's beginning: when, what each had brought, what the sender had waited for the network and had worked, ns.
    from: Option<(Instant, Vec<u64>, u64, u64)>,
}

impl Truth {
    pub(super) fn new(weights: Vec<f64>) -> Truth {
        Truth { standings: vec![Standing::default(); weights.len()], weights, from: None }
    }

    /// The weight of a path, and whether it was ever off.
    pub(super) fn of(&self, path: usize) -> (Option<f64>, bool) {
        (self.weights.get(path).copied(), self.standings.get(path).is_some_and(|it| it.was_off))
    }

    /// A look; `waited` and `worked`: the sender's books. Returns the line of a change.
    fn look(
        &mut self,
        now: Instant,
        brought: &[u64],
        (waited, worked): (u64, u64),
        may_judge: bool,
        names: &dyn Fn(usize) -> String,
    ) -> Option<String> {
        if !may_judge || brought.len() != self.weights.len() {
            self.from = None;
            return None;
        }
        let Some((then, had, had_waited, had_worked)) = &self.from else {
            self.from = Some((now, brought.to_vec(), waited, worked));
            return None;
        };
        if now.saturating_duration_since(*then) < SPAN {
            return None;
        }
        let new: Vec<u64> = brought.iter().zip(had).map(|(now, then)| now.saturating_sub(*then)).collect();
        let (span_waited, span_worked) = (waited.saturating_sub(*had_waited), worked.saturating_sub(*had_worked));
        self.from = Some((now, brought.to_vec(), waited, worked));
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
        changed.then(|| self.line(names))
    }

    fn line(&self, names: &dyn Fn(usize) -> String) -> String {
        let off = self.standings.iter().zip(&self.weights).enumerate().filter(|(_, (it, _))| it.is_off);
        let each: Vec<String> = off
            .map(|(at, (it, weight))| {
                format!("{} {:.0} % (weight {:.0} %)", names(at), it.share * 100.0, weight * 100.0)
            })
            .collect();
        if each.is_empty() {
            return "each path carries its weight again".to_owned();
        }
        format!("paths carry other shares than their weights: {}", each.join(", "))
    }
}

impl Keeper<'_, '_> {
    /// With each look at the paths.
    pub(super) fn watch_truth(&mut self, now: Instant) {
        if self.truth.weights.is_empty() {
            return;
        }
        let own = self.books();
        let sender = if matches!(self.end, End::Send(_)) { Some(own) } else { self.peers };
        let carries = |path: usize| self.carriers.values().any(|it| it.path == path && it.rests_until.is_none());
        let all_carry = (0..self.paths.len()).all(carries);
        let may_judge = all_carry && self.job.bound.rate() == 0 && self.closing == Closing::Open && sender.is_some();
        let books = sender.map_or((0, 0), |it| (it.ns[Stage::WaitSend as usize], it.wall_ns));
        let shares = self.path_shares();
        let brought: Vec<u64> = shares.iter().map(|it| it.bytes).collect();
        let line = self.truth.look(now, &brought, books, may_judge, &|at| shares[at].name.clone());
        self.said.extend(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten looks a second for so many seconds at these rates; the lines that came.
    fn run(
        truth: &mut Truth,
        clock: &mut (Instant, Vec<u64>, u64),
        seconds: u64,
        rates: &[u64],
        wait: u64,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..seconds * 10 {
            clock.0 += Duration::from_millis(100);
            clock.1.iter_mut().zip(rates).for_each(|(bytes, rate)| *bytes += rate / 10);
            clock.2 += 100;
            let books = (clock.2 * wait / 100, clock.2);
            lines.extend(truth.look(clock.0, &clock.1, books, true, &|at| format!("path{at}")));
        }
        lines
    }

    fn four() -> (Truth, (Instant, Vec<u64>, u64)) {
        (Truth::new(vec![0.125, 0.125, 0.25, 0.5]), (Instant::now(), vec![0; 4], 0))
    }

    #[test]
    fn a_path_that_brings_half_of_its_weight_is_told_once_and_again_when_it_is_back() {
        let (mut truth, mut clock) = four();
        assert_eq!(run(&mut truth, &mut clock, 20, &[100, 104, 200, 390], 90), [""; 0], "within 10 % of the weights");
        let lines = run(&mut truth, &mut clock, 20, &[100, 100, 200, 200], 90);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("path3 33 % (weight 50 %)"), "{lines:?}");
        let lines = run(&mut truth, &mut clock, 20, &[100, 100, 200, 400], 90);
        assert_eq!(lines, ["each path carries its weight again"]);
        assert_eq!(truth.of(3), (Some(0.5), true));
    }

    #[test]
    fn it_is_told_within_seven_seconds_and_not_for_one_bad_span() {
        let (mut truth, mut clock) = four();
        run(&mut truth, &mut clock, 4, &[100, 100, 200, 400], 90);
        assert_eq!(run(&mut truth, &mut clock, 2, &[100, 100, 200, 100], 90), [""; 0]);
        assert_eq!(run(&mut truth, &mut clock, 6, &[100, 100, 200, 400], 90), [""; 0]);
        assert_eq!(run(&mut truth, &mut clock, 7, &[100, 100, 200, 100], 90).len(), 1);
    }

    #[test]
    fn shares_that_something_else_than_the_network_makes_are_not_judged() {
        let (mut truth, mut clock) = four();
        assert_eq!(
            run(&mut truth, &mut clock, 20, &[100, 100, 100, 100], 10),
            [""; 0],
            "the sender is busy, the paths are not"
        );
        let (mut truth, mut clock) = (Truth::new(Vec::new()), (Instant::now(), vec![0; 2], 0));
        assert_eq!(run(&mut truth, &mut clock, 20, &[100, 900], 90), [""; 0], "no weights, no alarm");
        assert_eq!(truth.of(0), (None, false));
    }
}

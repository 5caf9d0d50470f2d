//! Selection of the I/O mode: which mode, I/O size and depth a file system likes best, found by short trials.
//!
//! For: choosing by measurement where a guess would be wrong by up to 6 × on some file systems.
//! In and out: `next_trial` says what to move, `on_trial` takes how long it took; at the end a `Verdict` with the others beside it.
//! Invariants: at most the budget is spent, but for the trial that runs when it is used up; every candidate's first trial comes before any second one;
//! a refused candidate is out; what is not better than the default by more than a tie does not take its place, and among others within a tie of the
//! best the one that leaves others' memory alone most wins.
//! Absent on purpose: moving bytes, clocks, when to measure (`engine::tree::io_mode`).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::{IoMode, Way};

/// Bytes of the first trials: they show who is clearly too slow. Smaller ones show the latency of one flush and little else.
pub const TRIAL_BYTES_MIN: u64 = 4 << 20;
/// Bytes of the longest trial.
pub const TRIAL_BYTES_MAX: u64 = 16 << 20;
/// What the trials of a selection may cost: both ends of a job together, with what is around them, stay below 1 % of a job of 30 s.
pub const BUDGET_NS: u64 = 80_000_000;
/// Candidates whose rates differ by less, in percent, are equal: on a machine with other work the best of three trials of one candidate differs as much
/// from selection to selection. With 4 %, of modes that are all equal another one took the default's place in 20 of 100 selections of the model below
/// where each tenth trial is disturbed, and in 29 where three of ten are; with 12 % in none and in 5. With 20 % a mode that is 1.1 x as fast loses.
const TIE_PERCENT: u64 = 12;
/// A size or a depth of the winner is kept when it is better by more, in percent: it is the same mode, and what is lost by a mistake is small.
const TIE_PERCENT_REFINED: u64 = 4;
/// After a round, candidates below so many percent of the best are out.
const OUT_PERCENT: u64 = 70;
/// The same after the first round, where the second would cost too much: no disturbance of a trial explains that.
const OUT_PERCENT_DEAR: u64 = 40;
/// Rounds of all modes; then sizes and depths of the best one.
const ROUNDS: u32 = 3;
/// A candidate whose trials cost less, in parts of the budget, runs this many before it may be out: on a fast disk a trial takes as long as what disturbs it.
const CHEAP_PART: u64 = 6;
const CHEAP_TRIALS: u32 = 3;
/// Operations in flight while modes are compared.
const DEPTH: u16 = 8;
/// A smaller operation: fits a level-2 cache beside what is hashed and sealed.
const IO_BYTES_SMALL: u32 = 256 << 10;

/// What runs against others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// How bytes move.
    pub mode: IoMode,
    /// By operations of so many.
    pub io_bytes: u32,
    /// So many at once.
    pub depth: u16,
}

/// One candidate's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Which candidate, as `on_trial` wants it.
    pub number: usize,
    /// The candidate that the trial is of.
    pub candidate: Candidate,
    /// How much of it.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    candidate: Candidate,
    /// Best of its trials: what disturbs a trial only ever makes it slower.
    best: u64,
    trials: u32,
    /// Nanoseconds of its longest trial.
    longest_ns: u64,
    out: bool,
}

/// A selection in progress.
#[derive(Debug)]
pub struct Selection {
    way: Way,
    /// What moves files where nothing is measured.
    default: IoMode,
    candidates: Vec<Measured>,
    /// Candidates of the refinements begin here.
    refined_from: usize,
    round: u32,
    trial_bytes: u64,
    spent_ns: u64,
    budget_ns: u64,
    trials: u32,
    chunk_bytes: u32,
    in_refinement: bool,
}

/// What came of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Reading or writing.
    pub way: Way,
    /// The winner.
    pub candidate: Candidate,
    /// Its bytes per second.
    pub bps: u64,
    /// The best other mode, if another one finished a trial.
    pub second: Option<(IoMode, u64)>,
    /// Wall nanoseconds spent.
    pub spent_ns: u64,
    /// Trials run.
    pub trials: u32,
}

impl Verdict {
    /// Was the next mode as good, as far as trials can tell? Then another selection may well find the other.
    #[must_use]
    pub fn is_tie(&self) -> bool {
        self.second.is_some_and(|(_, bps)| is_tie(bps, self.bps))
    }

    /// What won, and by how much, as `--explain` prints it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = String::new();
        let rate = |bps: u64| (bps / 1_000_000_000, bps / 10_000_000 % 100);
        let (whole, part) = rate(self.bps);
        let _ = write!(text, "{whole}.{part:02} GB/s measured");
        // What is remembered of an earlier one does not say how long it took.
        if self.trials > 0 {
            let _ = write!(text, " in {} trials and {} ms", self.trials, self.spent_ns / 1_000_000);
        }
        match self.second {
            Some((mode, bps)) if bps > 0 => {
                let (whole, part) = rate(bps);
                let percent = self.bps.saturating_mul(100) / bps;
                let _ =
                    write!(text, "; {mode} reached {whole}.{part:02} GB/s: {}.{:02} x", percent / 100, percent % 100);
            }
            _ => text.push_str("; no other I/O mode works here"),
        }
        text
    }
}

impl Selection {
    /// A selection in this direction. `default`: the mode of files where nothing is measured. `chunk_bytes`: the largest operation. `refused`: modes
    /// that are known not to work.
    #[must_use]
    pub fn new(
        way: Way,
        default: IoMode,
        chunk_bytes: u32,
        budget_ns: u64,
        refused: impl Fn(IoMode) -> bool,
    ) -> Selection {
        let modes = IoMode::ALL.into_iter().filter(|mode| mode.can(way) && !refused(*mode));
        let candidate = |mode| Candidate { mode, io_bytes: chunk_bytes, depth: DEPTH };
        let candidates: Vec<Measured> = modes
            .map(|mode| Measured { candidate: candidate(mode), best: 0, trials: 0, longest_ns: 0, out: false })
            .collect();
        Selection {
            way,
            default,
            refined_from: candidates.len(),
            candidates,
            round: 0,
            trial_bytes: TRIAL_BYTES_MIN,
            spent_ns: 0,
            budget_ns,
            trials: 0,
            chunk_bytes,
            in_refinement: false,
        }
    }

    /// What runs next; `None`: it is over.
    #[must_use]
    pub fn next_trial(&mut self) -> Option<Trial> {
        loop {
            // A first trial of everybody comes before the budget: a selection in which one runs alone says nothing.
            let waiting = |it: &Measured| !it.out && it.trials <= self.round;
            let from = if self.in_refinement { self.refined_from } else { 0 };
            let next = self.candidates.iter().enumerate().skip(from).find(|(_, it)| waiting(it));
            let over = self.spent_ns >= self.budget_ns + if self.round == 0 { self.budget_ns / 2 } else { 0 };
            match next {
                _ if over => return None,
                Some((number, measured)) => {
                    return Some(Trial { number, candidate: measured.candidate, bytes: self.trial_bytes });
                }
                None if self.in_refinement => return None,
                None => self.end_round(),
            }
        }
    }

    fn end_round(&mut self) {
        let best = self.candidates.iter().map(|it| it.best).max().unwrap_or(0);
        let cheap_ns = self.budget_ns / CHEAP_PART;
        // The second trials are of twice the bytes, and the refinements are to have their part of the budget, too.
        let next_ns: u64 = self.candidates.iter().filter(|it| !it.out).map(|it| it.longest_ns * 2).sum();
        let is_dear = self.round == 0 && self.spent_ns + next_ns > self.budget_ns / 4 * 3;
        for measured in &mut self.candidates {
            let may_go = measured.trials >= CHEAP_TRIALS || measured.longest_ns > cheap_ns;
            let least = if may_go { OUT_PERCENT } else { OUT_PERCENT_DEAR * u64::from(is_dear) };
            measured.out |= measured.best.saturating_mul(100) < best.saturating_mul(least);
        }
        self.round += 1;
        self.trial_bytes = (self.trial_bytes * 2).min(TRIAL_BYTES_MAX);
        if self.round < ROUNDS {
            return;
        }
        self.in_refinement = true;
        let Some(winner) = self.winner().map(|it| it.candidate) else { return };
        let mut refinements = Vec::new();
        if self.chunk_bytes > IO_BYTES_SMALL {
            refinements.push(Candidate { io_bytes: IO_BYTES_SMALL, ..winner });
        }
        // How many writes are in flight is the network's to say; a source may read as far ahead as it likes.
        if self.way == Way::Read && winner.mode != IoMode::Mmap {
            refinements.extend([2, 16].map(|depth| Candidate { depth, ..winner }));
        }
        // They join as if they had run all rounds but the last one.
        let trials = self.round;
        self.candidates.extend(refinements.into_iter().map(|candidate| Measured {
            candidate,
            best: 0,
            trials,
            longest_ns: 0,
            out: false,
        }));
    }

    /// A trial took so long.
    pub fn on_trial(&mut self, trial: Trial, bytes: u64, ns: u64) {
        let measured = &mut self.candidates[trial.number];
        let bps = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX);
        measured.best = measured.best.max(bps);
        measured.trials += 1;
        measured.longest_ns = measured.longest_ns.max(ns);
        self.trials += 1;
        self.spent_ns += ns;
    }

    /// The candidate's mode does not work here; trying cost so long.
    pub fn on_refused(&mut self, trial: Trial, ns: u64) {
        let measured = &mut self.candidates[trial.number];
        (measured.out, measured.best) = (true, 0);
        self.spent_ns += ns;
    }

    /// The best by rate; of ties the default, then by manners; a refinement must be better than its mode's own candidate.
    fn winner(&self) -> Option<&Measured> {
        let modes = &self.candidates[..self.refined_from];
        let best = modes.iter().map(|it| it.best).max().filter(|&best| best > 0)?;
        let near = |it: &&Measured| is_tie(it.best, best);
        // The order of the others is that of manners.
        let default = modes.iter().find(|it| it.candidate.mode == self.default).filter(near);
        let winner = default.or_else(|| modes.iter().find(near))?;
        let better =
            |it: &&Measured| it.best.saturating_mul(100) > winner.best.saturating_mul(100 + TIE_PERCENT_REFINED);
        self.candidates[self.refined_from..].iter().filter(better).max_by_key(|it| it.best).or(Some(winner))
    }

    /// What came of it; `None`: nothing ran.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let winner = self.winner()?;
        let others = self.candidates.iter().filter(|it| it.candidate.mode != winner.candidate.mode && it.best > 0);
        let second = others.max_by_key(|it| it.best).map(|it| (it.candidate.mode, it.best));
        Some(Verdict {
            way: self.way,
            candidate: winner.candidate,
            bps: winner.best,
            second,
            spent_ns: self.spent_ns,
            trials: self.trials,
        })
    }
}

/// Is this rate as good as the best one, as far as trials can tell?
fn is_tie(bps: u64, best: u64) -> bool {
    bps.saturating_mul(100) >= best.saturating_mul(100 - TIE_PERCENT)
}

/// Seconds after which what a selection found is measured again: a disk fills, ages and gets neighbours, a kernel's path changes with its settings. By
/// then a day's jobs have paid the 80 ms of the selection many times over.
pub const AGE_S_MAX: u64 = 30 * 24 * 3600;
/// The same after a tie: nobody won, or the machine was busy.
pub const AGE_S_MAX_TIE: u64 = 24 * 3600;

/// Is what was found at `then_s` to be measured again at `now_s` (seconds of the wall clock)? What lies in the future was written by a wrong clock.
#[must_use]
pub fn is_aged(verdict: &Verdict, then_s: u64, now_s: u64) -> bool {
    let age_s_max = if verdict.is_tie() { AGE_S_MAX_TIE } else { AGE_S_MAX };
    now_s.checked_sub(then_s).is_none_or(|age_s| age_s >= age_s_max)
}

/// Did the rate fall so far below what the selection saw that another one is due? `bytes` moved in `ns` by a job whose limit was this disk.
#[must_use]
pub fn is_stale(measured_bps: u64, bytes: u64, ns: u64) -> bool {
    // Less says more about the job than about the disk.
    const BYTES_MIN: u64 = 1 << 30;
    bytes >= BYTES_MIN && u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1)) * 2 < u128::from(measured_bps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    /// Runs a selection over made-up rates in bytes per second; 0 refuses.
    fn selection(way: Way, budget_ns: u64, rate: impl Fn(Candidate) -> u64) -> (Selection, Vec<Trial>) {
        selection_beside(IoMode::Direct, way, budget_ns, rate)
    }

    /// The same where another mode is the default.
    fn selection_beside(
        default: IoMode,
        way: Way,
        budget_ns: u64,
        rate: impl Fn(Candidate) -> u64,
    ) -> (Selection, Vec<Trial>) {
        let mut selection = Selection::new(way, default, MIB, budget_ns, |_| false);
        let mut trials = Vec::new();
        while let Some(trial) = selection.next_trial() {
            assert!(trials.len() < 100, "it ends");
            trials.push(trial);
            match rate(trial.candidate) {
                0 => selection.on_refused(trial, 1000),
                bps => selection.on_trial(trial, trial.bytes, trial.bytes * 1_000_000_000 / bps),
            }
        }
        (selection, trials)
    }

    /// In a selection on a machine that is not idle some trials lose milliseconds, as long as a short trial takes. How many of 1000 selections find a
    /// mode within 5 % of the best, in how many the default wins, and what the longest costs.
    fn in_noise(default: IoMode, way: Way, permille: u64, rates: [u64; 4]) -> (u32, u32, u64) {
        let (mut good, mut kept, mut longest) = (0, 0, 0);
        for seed in 1..=1000u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut next = |most: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) % most
            };
            let mut selection = Selection::new(way, default, MIB, BUDGET_NS, |_| false);
            let true_rate =
                |mode| IoMode::ALL.iter().filter(|it| it.can(way)).position(|it| *it == mode).map(|at| rates[at]);
            while let Some(trial) = selection.next_trial() {
                let ns = trial.bytes * 1_000_000_000 / true_rate(trial.candidate.mode).expect("it runs");
                let lost = if next(1000) < permille { 500_000 + next(5_000_000) } else { 0 };
                selection.on_trial(trial, trial.bytes, ns * (95 + next(10)) / 100 + lost);
            }
            let mode = selection.verdict().expect("it ran").candidate.mode;
            kept += u32::from(mode == default);
            let won = true_rate(mode).expect("it ran");
            good += u32::from(won * 100 >= rates.into_iter().max().expect("four") * 95);
            longest = longest.max(selection.spent_ns);
        }
        (good, kept, longest)
    }

    #[test]
    fn heats_that_lose_milliseconds_seldom_change_the_winner() {
        let gb = |tenths: u64| tenths * 100_000_000;
        for (way, rates) in [
            // direct, dontcache, early, buffered; what loop devices and a fast disk show
            (Way::Write, [gb(82), gb(36), gb(17), gb(16)]),
            (Way::Write, [gb(65), gb(35), gb(17), gb(16)]),
            (Way::Read, [gb(36), gb(18), gb(20), gb(16)]),
            (Way::Write, [gb(7), gb(7), gb(9), gb(8)]),
        ] {
            let (good, _, longest) = in_noise(IoMode::Direct, way, 300, rates);
            // Where a short trial takes longer than what disturbs it, and the best is 1.1 x the next, there is more to confuse.
            let asked = if rates[0] > gb(10) { 970 } else { 920 };
            assert!(good >= asked, "{rates:?}: {good} of 1000");
            assert!(longest <= BUDGET_NS * 3 / 2, "{longest} ns");
        }
    }

    #[test]
    fn among_equal_modes_the_default_is_kept_also_on_a_machine_that_is_not_idle() {
        let gb = |tenths: u64| tenths * 100_000_000;
        let machines =
            [(Way::Write, gb(16), 100), (Way::Write, gb(16), 300), (Way::Read, gb(36), 300), (Way::Write, gb(8), 500)];
        let kept = [IoMode::Direct, IoMode::Buffered]
            .map(|default| machines.map(|(way, rate, permille)| in_noise(default, way, permille, [rate; 4]).1));
        let bounds = [990, 940, 940, 800];
        let is_kept = |kept: &[u32; 4]| kept.iter().zip(bounds).all(|(kept, bound)| *kept >= bound);
        assert!(kept.iter().all(is_kept), "of 1000, {bounds:?} were to be: {kept:?}");
    }

    #[test]
    fn slow_candidates_leave_what_the_refinement_needs() {
        let rates = |candidate: Candidate| if candidate.mode == IoMode::Direct { 3_000_000_000 } else { 500_000_000 };
        let (selection, trials) = selection(Way::Read, BUDGET_NS, rates);
        assert!(selection.in_refinement && trials.iter().any(|it| it.candidate.depth == 16), "{trials:?}");
    }

    #[test]
    fn the_fastest_io_mode_wins_and_the_second_is_named() {
        let (selection, _) = selection(Way::Write, BUDGET_NS, |candidate| match candidate.mode {
            IoMode::Direct => 500_000_000,
            IoMode::Buffered => 3_000_000_000,
            _ => 1_000_000_000,
        });
        let verdict = selection.verdict().expect("it ran");
        assert_eq!(verdict.candidate.mode, IoMode::Buffered, "O_DIRECT would have been the wrong guess: {verdict:?}");
        assert_eq!(verdict.second.map(|it| it.1), Some(1_000_000_000));
        assert!(verdict.sentence().contains("3.00 x"), "{}", verdict.sentence());
    }

    #[test]
    fn a_tie_goes_to_the_one_that_leaves_others_memory_alone() {
        let rates = |candidate: Candidate| match candidate.mode {
            IoMode::Buffered => 500_000_000,
            IoMode::Mmap => 1_030_000_000,
            _ => 1_000_000_000,
        };
        let (selection, _) = selection_beside(IoMode::Buffered, Way::Read, BUDGET_NS, rates);
        assert_eq!(selection.verdict().expect("it ran").candidate.mode, IoMode::Direct);
    }

    #[test]
    fn a_tie_keeps_the_default_and_a_clear_winner_takes_its_place() {
        let rates = |direct: u64| move |it: Candidate| if it.mode == IoMode::Direct { direct } else { 1_000_000_000 };
        let of = |direct| {
            let (selection, _) = selection_beside(IoMode::Buffered, Way::Read, BUDGET_NS, rates(direct));
            selection.verdict().expect("it ran")
        };
        let tie = of(1_100_000_000);
        assert_eq!((tie.candidate.mode, tie.is_tie()), (IoMode::Buffered, true), "{tie:?}");
        let clear = of(1_200_000_000);
        assert_eq!((clear.candidate.mode, clear.is_tie()), (IoMode::Direct, false), "{clear:?}");
    }

    #[test]
    fn what_was_found_is_measured_again_after_a_month_and_a_tie_after_a_day() {
        let verdict = |second| Verdict {
            way: Way::Read,
            candidate: Candidate { mode: IoMode::Direct, io_bytes: MIB, depth: 8 },
            bps: 1_000_000_000,
            second: Some((IoMode::Buffered, second)),
            spent_ns: 0,
            trials: 0,
        };
        const NOW: u64 = 1_800_000_000;
        for (second, age_s_max) in
            [(500_000_000, AGE_S_MAX), (950_000_000, AGE_S_MAX_TIE), (1_050_000_000, AGE_S_MAX_TIE)]
        {
            let verdict = verdict(second);
            assert!(!is_aged(&verdict, NOW, NOW) && !is_aged(&verdict, NOW - age_s_max + 1, NOW), "{second}");
            assert!(is_aged(&verdict, NOW - age_s_max, NOW), "{second}");
            assert!(is_aged(&verdict, NOW + 1, NOW), "written by a clock that was ahead");
        }
    }

    #[test]
    fn refused_modes_are_out_and_if_all_are_there_is_no_verdict() {
        let (selection_one, trials) =
            selection(Way::Read, BUDGET_NS, |candidate| if candidate.mode == IoMode::Mmap { 1 << 30 } else { 0 });
        let verdict = selection_one.verdict().expect("one ran");
        assert_eq!((verdict.candidate.mode, verdict.second), (IoMode::Mmap, None));
        assert_eq!(trials.iter().filter(|it| it.candidate.mode == IoMode::Direct).count(), 1, "asked once");
        assert_eq!(selection(Way::Read, BUDGET_NS, |_| 0).0.verdict(), None);
    }

    #[test]
    fn the_budget_holds_but_for_one_trial_and_everybody_runs_once() {
        for bps in [50_000_000, 200_000_000, 2_000_000_000, 20_000_000_000] {
            let (selection, trials) = selection(Way::Write, BUDGET_NS, |_| bps);
            let longest = trials.iter().map(|it| it.bytes * 1_000_000_000 / bps).max().expect("one ran");
            let limit = if selection.round == 0 { BUDGET_NS / 2 * 3 } else { BUDGET_NS };
            assert!(selection.spent_ns < limit + longest, "{bps}: {}", selection.spent_ns);
            if bps >= 200_000_000 {
                assert_eq!(trials[..4].iter().map(|it| it.candidate.mode).collect::<Vec<_>>(), IoMode::ALL[..4]);
            }
        }
    }

    #[test]
    fn sizes_and_depths_are_tried_for_the_winner_alone_and_need_to_be_clearly_better() {
        let better = |candidate: Candidate| if candidate.depth == 16 { 1_200_000_000 } else { 1_000_000_000 };
        let (selection_one, trials) = selection(Way::Read, 10 * BUDGET_NS, better);
        assert_eq!(
            selection_one.verdict().expect("it ran").candidate,
            Candidate { mode: IoMode::Direct, io_bytes: MIB, depth: 16 }
        );
        assert!(trials.iter().all(|it| it.candidate.depth == DEPTH || it.candidate.mode == IoMode::Direct));
        let hardly = |candidate: Candidate| if candidate.io_bytes < MIB { 1_020_000_000 } else { 1_000_000_000 };
        assert_eq!(selection(Way::Read, 10 * BUDGET_NS, hardly).0.verdict().expect("it ran").candidate.io_bytes, MIB);
    }

    #[test]
    fn a_rate_that_fell_to_less_than_half_calls_for_another_race() {
        assert!(is_stale(1_000_000_000, 4 << 30, 10_000_000_000));
        assert!(!is_stale(1_000_000_000, 4 << 30, 8_000_000_000));
        assert!(!is_stale(1_000_000_000, 1 << 20, 10_000_000_000), "too little to say");
    }
}

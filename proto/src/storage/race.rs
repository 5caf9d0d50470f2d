//! The race: which engine, I/O size and depth a file system likes best, found by short heats.
//!
//! For: choosing by measurement where a guess would be wrong by up to 6 × on some file systems.
//! In and out: `next_heat` says what to move, `on_heat` takes how long it took; at the end a `Verdict` with its field.
//! Invariants: at most the budget is spent, but for the heat that runs when it is used up; every lane's first heat comes before any second one;
//! a refused lane is out; among lanes within `TIE` of the best the one that leaves others' memory alone most wins.
//! Absent on purpose: moving bytes, clocks, when to race (`engine::tree::io_mode`).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use super::{Engine, Way};

/// Bytes of the first heats: they show who is clearly too slow. Smaller ones show the latency of one flush and little else.
pub const HEAT_BYTES_MIN: u64 = 4 << 20;
/// Bytes of the longest heat.
pub const HEAT_BYTES_MAX: u64 = 16 << 20;
/// What the heats of a race may cost: both ends of a job together, with what is around them, stay below 1 % of a job of 30 s.
pub const BUDGET_NS: u64 = 80_000_000;
/// Lanes whose rates differ by less, in percent, are equal: rates of one lane differ as much from heat to heat.
const TIE_PERCENT: u64 = 4;
/// After a round, lanes below so many percent of the best are out.
const OUT_PERCENT: u64 = 70;
/// The same after the first round, where the second would cost too much: no disturbance of a heat explains that.
const OUT_PERCENT_DEAR: u64 = 40;
/// Rounds of all engines; then sizes and depths of the best one.
const ROUNDS: u32 = 3;
/// A lane whose heats cost less, in parts of the budget, runs this many before it may be out: on a fast disk a heat takes as long as what disturbs it.
const CHEAP_PART: u64 = 6;
const CHEAP_HEATS: u32 = 3;
/// Operations in flight while engines race.
const DEPTH: u16 = 8;
/// A smaller operation: fits a level-2 cache beside what is hashed and sealed.
const IO_BYTES_SMALL: u32 = 256 << 10;

/// What runs against others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// How bytes move.
    pub engine: Engine,
    /// By operations of so many.
    pub io_bytes: u32,
    /// So many at once.
    pub depth: u16,
}

/// One lane's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heat {
    /// Which lane, as `on_heat` wants it.
    pub number: usize,
    /// What to do.
    pub lane: Lane,
    /// How much of it.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Runner {
    lane: Lane,
    /// Best of its heats: what disturbs a heat only ever makes it slower.
    best: u64,
    heats: u32,
    /// Nanoseconds of its longest heat.
    longest_ns: u64,
    out: bool,
}

/// A race in progress.
#[derive(Debug)]
pub struct Race {
    way: Way,
    runners: Vec<Runner>,
    /// Runners of the finals begin here.
    finals_from: usize,
    round: u32,
    heat_bytes: u64,
    spent_ns: u64,
    budget_ns: u64,
    heats: u32,
    chunk_bytes: u32,
    in_finals: bool,
}

/// What came of a race.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Reading or writing.
    pub way: Way,
    /// The winner.
    pub lane: Lane,
    /// Its bytes per second.
    pub bps: u64,
    /// The best other engine, if another one finished a heat.
    pub second: Option<(Engine, u64)>,
    /// Wall nanoseconds spent.
    pub spent_ns: u64,
    /// Heats run.
    pub heats: u32,
}

impl Verdict {
    /// What won, and by how much, as `--explain` prints it.
    #[must_use]
    pub fn sentence(&self) -> String {
        let mut text = String::new();
        let rate = |bps: u64| (bps / 1_000_000_000, bps / 10_000_000 % 100);
        let (whole, part) = rate(self.bps);
        let _ = write!(text, "{whole}.{part:02} GB/s in a race");
        // What is remembered of an earlier one does not say how long it took.
        if self.heats > 0 {
            let _ = write!(text, " of {} heats and {} ms", self.heats, self.spent_ns / 1_000_000);
        }
        match self.second {
            Some((engine, bps)) if bps > 0 => {
                let (whole, part) = rate(bps);
                let percent = self.bps.saturating_mul(100) / bps;
                let _ =
                    write!(text, "; {engine} reached {whole}.{part:02} GB/s: {}.{:02} x", percent / 100, percent % 100);
            }
            _ => text.push_str("; no other I/O mode works here"),
        }
        text
    }
}

impl Race {
    /// A race in this direction. `chunk_bytes`: the largest operation. `refused`: engines that are known not to work.
    #[must_use]
    pub fn new(way: Way, chunk_bytes: u32, budget_ns: u64, refused: impl Fn(Engine) -> bool) -> Race {
        let engines = Engine::ALL.into_iter().filter(|engine| engine.can(way) && !refused(*engine));
        let lane = |engine| Lane { engine, io_bytes: chunk_bytes, depth: DEPTH };
        let runners: Vec<Runner> =
            engines.map(|engine| Runner { lane: lane(engine), best: 0, heats: 0, longest_ns: 0, out: false }).collect();
        Race {
            way,
            finals_from: runners.len(),
            runners,
            round: 0,
            heat_bytes: HEAT_BYTES_MIN,
            spent_ns: 0,
            budget_ns,
            heats: 0,
            chunk_bytes,
            in_finals: false,
        }
    }

    /// What runs next; `None`: it is over.
    #[must_use]
    pub fn next_heat(&mut self) -> Option<Heat> {
        loop {
            // A first heat of everybody comes before the budget: a race in which one runs alone says nothing.
            let waiting = |it: &Runner| !it.out && it.heats <= self.round;
            let from = if self.in_finals { self.finals_from } else { 0 };
            let next = self.runners.iter().enumerate().skip(from).find(|(_, it)| waiting(it));
            let over = self.spent_ns >= self.budget_ns + if self.round == 0 { self.budget_ns / 2 } else { 0 };
            match next {
                _ if over => return None,
                Some((number, runner)) => {
                    return Some(Heat { number, lane: runner.lane, bytes: self.heat_bytes });
                }
                None if self.in_finals => return None,
                None => self.end_round(),
            }
        }
    }

    fn end_round(&mut self) {
        let best = self.runners.iter().map(|it| it.best).max().unwrap_or(0);
        let cheap_ns = self.budget_ns / CHEAP_PART;
        // The second heats are of twice the bytes, and the finals are to have their part of the budget, too.
        let next_ns: u64 = self.runners.iter().filter(|it| !it.out).map(|it| it.longest_ns * 2).sum();
        let is_dear = self.round == 0 && self.spent_ns + next_ns > self.budget_ns / 4 * 3;
        for runner in &mut self.runners {
            let may_go = runner.heats >= CHEAP_HEATS || runner.longest_ns > cheap_ns;
            let least = if may_go { OUT_PERCENT } else { OUT_PERCENT_DEAR * u64::from(is_dear) };
            runner.out |= runner.best.saturating_mul(100) < best.saturating_mul(least);
        }
        self.round += 1;
        self.heat_bytes = (self.heat_bytes * 2).min(HEAT_BYTES_MAX);
        if self.round < ROUNDS {
            return;
        }
        self.in_finals = true;
        let Some(winner) = self.winner().map(|it| it.lane) else { return };
        let mut finals = Vec::new();
        if self.chunk_bytes > IO_BYTES_SMALL {
            finals.push(Lane { io_bytes: IO_BYTES_SMALL, ..winner });
        }
        // How many writes are in flight is the network's to say; a source may read as far ahead as it likes.
        if self.way == Way::Read && winner.engine != Engine::Mmap {
            finals.extend([2, 16].map(|depth| Lane { depth, ..winner }));
        }
        // They join as if they had run all rounds but the last one.
        let heats = self.round;
        self.runners.extend(finals.into_iter().map(|lane| Runner { lane, best: 0, heats, longest_ns: 0, out: false }));
    }

    /// A heat took so long.
    pub fn on_heat(&mut self, heat: Heat, bytes: u64, ns: u64) {
        let runner = &mut self.runners[heat.number];
        let bps = u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1))).unwrap_or(u64::MAX);
        runner.best = runner.best.max(bps);
        runner.heats += 1;
        runner.longest_ns = runner.longest_ns.max(ns);
        self.heats += 1;
        self.spent_ns += ns;
    }

    /// The lane's engine does not work here; trying cost so long.
    pub fn on_refused(&mut self, heat: Heat, ns: u64) {
        let runner = &mut self.runners[heat.number];
        (runner.out, runner.best) = (true, 0);
        self.spent_ns += ns;
    }

    /// The best by rate, ties by manners; a final must be better than its engine's own lane by more than a tie.
    fn winner(&self) -> Option<&Runner> {
        let engines = &self.runners[..self.finals_from];
        let best = engines.iter().map(|it| it.best).max().filter(|&best| best > 0)?;
        let near = |it: &&Runner| it.best.saturating_mul(100) >= best.saturating_mul(100 - TIE_PERCENT);
        // Their order is that of manners.
        let winner = engines.iter().find(near)?;
        let better = |it: &&Runner| it.best.saturating_mul(100) > winner.best.saturating_mul(100 + TIE_PERCENT);
        self.runners[self.finals_from..].iter().filter(better).max_by_key(|it| it.best).or(Some(winner))
    }

    /// What came of it; `None`: nothing ran.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let winner = self.winner()?;
        let others = self.runners.iter().filter(|it| it.lane.engine != winner.lane.engine && it.best > 0);
        let second = others.max_by_key(|it| it.best).map(|it| (it.lane.engine, it.best));
        Some(Verdict {
            way: self.way,
            lane: winner.lane,
            bps: winner.best,
            second,
            spent_ns: self.spent_ns,
            heats: self.heats,
        })
    }
}

/// Did the rate fall so far below what the race saw that another race is due? `bytes` moved in `ns` by a job whose limit was this disk.
#[must_use]
pub fn is_stale(raced_bps: u64, bytes: u64, ns: u64) -> bool {
    // Less says more about the job than about the disk.
    const BYTES_MIN: u64 = 1 << 30;
    bytes >= BYTES_MIN && u128::from(bytes) * 1_000_000_000 / u128::from(ns.max(1)) * 2 < u128::from(raced_bps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    /// Runs a race over made-up rates in bytes per second; 0 refuses.
    fn race(way: Way, budget_ns: u64, rate: impl Fn(Lane) -> u64) -> (Race, Vec<Heat>) {
        let mut race = Race::new(way, MIB, budget_ns, |_| false);
        let mut heats = Vec::new();
        while let Some(heat) = race.next_heat() {
            assert!(heats.len() < 100, "it ends");
            heats.push(heat);
            match rate(heat.lane) {
                0 => race.on_refused(heat, 1000),
                bps => race.on_heat(heat, heat.bytes, heat.bytes * 1_000_000_000 / bps),
            }
        }
        (race, heats)
    }

    /// In a race on a machine that is not idle some heats lose milliseconds, as long as a short heat takes. How many of 1000 races find an
    /// engine within 5 % of the best, and what the longest costs.
    fn in_noise(way: Way, permille: u64, rates: [u64; 4]) -> (u32, u64) {
        let (mut good, mut longest) = (0, 0);
        for seed in 1..=1000u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut next = |most: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 11) % most
            };
            let mut race = Race::new(way, MIB, BUDGET_NS, |_| false);
            let true_rate =
                |engine| Engine::ALL.iter().filter(|it| it.can(way)).position(|it| *it == engine).map(|at| rates[at]);
            while let Some(heat) = race.next_heat() {
                let ns = heat.bytes * 1_000_000_000 / true_rate(heat.lane.engine).expect("it runs");
                let lost = if next(1000) < permille { 500_000 + next(5_000_000) } else { 0 };
                race.on_heat(heat, heat.bytes, ns * (95 + next(10)) / 100 + lost);
            }
            let won = true_rate(race.verdict().expect("it ran").lane.engine).expect("it ran");
            good += u32::from(won * 100 >= rates.into_iter().max().expect("four") * 95);
            longest = longest.max(race.spent_ns);
        }
        (good, longest)
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
            let (good, longest) = in_noise(way, 300, rates);
            // Where a short heat takes longer than what disturbs it, and the best is 1.1 x the next, there is more to confuse.
            let asked = if rates[0] > gb(10) { 970 } else { 920 };
            assert!(good >= asked, "{rates:?}: {good} of 1000");
            assert!(longest <= BUDGET_NS * 3 / 2, "{longest} ns");
        }
    }

    #[test]
    fn slow_lanes_do_not_use_up_what_the_finals_need() {
        let rates = |lane: Lane| if lane.engine == Engine::Direct { 3_000_000_000 } else { 500_000_000 };
        let (race, heats) = race(Way::Read, BUDGET_NS, rates);
        assert!(race.in_finals && heats.iter().any(|it| it.lane.depth == 16), "{heats:?}");
    }

    #[test]
    fn the_fastest_engine_wins_and_the_second_is_named() {
        let (race, _) = race(Way::Write, BUDGET_NS, |lane| match lane.engine {
            Engine::Direct => 500_000_000,
            Engine::Buffered => 3_000_000_000,
            _ => 1_000_000_000,
        });
        let verdict = race.verdict().expect("it ran");
        assert_eq!(verdict.lane.engine, Engine::Buffered, "O_DIRECT would have been the wrong guess: {verdict:?}");
        assert_eq!(verdict.second.map(|it| it.1), Some(1_000_000_000));
        assert!(verdict.sentence().contains("3.00 x"), "{}", verdict.sentence());
    }

    #[test]
    fn a_tie_goes_to_the_one_that_leaves_others_memory_alone() {
        let rates = |lane: Lane| if lane.engine == Engine::Buffered { 1_030_000_000 } else { 1_000_000_000 };
        assert_eq!(race(Way::Read, BUDGET_NS, rates).0.verdict().expect("it ran").lane.engine, Engine::Direct);
    }

    #[test]
    fn refused_engines_are_out_and_if_all_are_there_is_no_verdict() {
        let (race_one, heats) =
            race(Way::Read, BUDGET_NS, |lane| if lane.engine == Engine::Mmap { 1 << 30 } else { 0 });
        let verdict = race_one.verdict().expect("one ran");
        assert_eq!((verdict.lane.engine, verdict.second), (Engine::Mmap, None));
        assert_eq!(heats.iter().filter(|it| it.lane.engine == Engine::Direct).count(), 1, "asked once");
        assert_eq!(race(Way::Read, BUDGET_NS, |_| 0).0.verdict(), None);
    }

    #[test]
    fn the_budget_holds_but_for_one_heat_and_everybody_runs_once() {
        for bps in [50_000_000, 200_000_000, 2_000_000_000, 20_000_000_000] {
            let (race, heats) = race(Way::Write, BUDGET_NS, |_| bps);
            let longest = heats.iter().map(|it| it.bytes * 1_000_000_000 / bps).max().expect("one ran");
            let limit = if race.round == 0 { BUDGET_NS / 2 * 3 } else { BUDGET_NS };
            assert!(race.spent_ns < limit + longest, "{bps}: {}", race.spent_ns);
            if bps >= 200_000_000 {
                assert_eq!(heats[..4].iter().map(|it| it.lane.engine).collect::<Vec<_>>(), Engine::ALL[..4]);
            }
        }
    }

    #[test]
    fn sizes_and_depths_are_tried_for_the_winner_alone_and_need_to_be_clearly_better() {
        let better = |lane: Lane| if lane.depth == 16 { 1_200_000_000 } else { 1_000_000_000 };
        let (race_one, heats) = race(Way::Read, 10 * BUDGET_NS, better);
        assert_eq!(race_one.verdict().expect("it ran").lane, Lane { engine: Engine::Direct, io_bytes: MIB, depth: 16 });
        assert!(heats.iter().all(|it| it.lane.depth == DEPTH || it.lane.engine == Engine::Direct));
        let hardly = |lane: Lane| if lane.io_bytes < MIB { 1_020_000_000 } else { 1_000_000_000 };
        assert_eq!(race(Way::Read, 10 * BUDGET_NS, hardly).0.verdict().expect("it ran").lane.io_bytes, MIB);
    }

    #[test]
    fn a_rate_that_fell_to_less_than_half_calls_for_another_race() {
        assert!(is_stale(1_000_000_000, 4 << 30, 10_000_000_000));
        assert!(!is_stale(1_000_000_000, 4 << 30, 8_000_000_000));
        assert!(!is_stale(1_000_000_000, 1 << 20, 10_000_000_000), "too little to say");
    }
}

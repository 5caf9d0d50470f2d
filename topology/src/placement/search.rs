//! The search: which placement is tried next, which are out, and when it is enough.
//!
//! For: the best of thousands of placements, by a few hundred noisy rates.
//! In and out: `next_trial` says what to measure, `on_rate` takes how it went; at the end a `Verdict` with what was found of each.
//! Invariants: at most the budget is spent, but for the first round of the presets, which takes at most half of it more, and the trial that runs
//! when it is used up; the winner was measured beside each preset that is not clearly slower, turn by turn, in the same minutes; who asks less of
//! the hosts wins a tie.
//! How: the presets are compared, then a coarse grid beside the best of them; from the best on, one word (streams with their interrupts; workers, home, interrupts, memory, rings, count) is
//! changed at a time, at both ends together, then at each alone (the slower end alone decides the rate: what helps both must be tried at both), and
//! its values are compared; when a whole pass finds nothing better, two or three words are changed at once, by chance, and what is better begins another
//! pass. A comparison is rounds in which each that is left runs once, in random order (what disturbs the hosts for a
//! while disturbs all); after each round those clearly slower than the best are out, and of many the lower ones (sequential halving:
//! Karnin, Koren, Somekh, ICML 2013; racing: Maron, Moore 1997). What "clearly" means is reckoned from the spread of all repeated rates so far.
//! Absent on purpose: measuring, clocks.

use super::presets;
use super::shape::Shape;
use super::spec::{Group, Irqs, STREAMS, Spec, WORDS, Words};
use super::{Placement, Rings};
use proto::rate::maths::{exp, ln, sqrt};

/// What a search may cost, and where it begins.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Time of all trials.
    pub budget_ns: u64,
    /// So many streams and no other number.
    pub streams: Option<u16>,
    /// A winner of earlier, in an earlier world.
    pub known: Option<Placement>,
    /// Of the order of trials.
    pub seed: u64,
}

/// One trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// As `on_rate` wants it.
    pub number: usize,
    /// What to measure.
    pub placement: Placement,
}

/// Spread of rates (of their logarithms) taken for granted before it was seen, and how many samples that is worth.
const SPREAD: (f64, f64) = (0.05, 6.0);
/// A rate is clearly lower by so many standard errors of a difference: one in two hundred by chance.
const CLEARLY: f64 = 2.6;
/// Of an interval that holds the mean in 95 of 100.
const INTERVAL: f64 = 2.0;
/// The same for the best of a dozen, which is the best by chance, too (0.05 / 12, two-sided).
const INTERVAL_OF_BEST: f64 = 2.9;
/// Rounds of a comparison at a word; of the last one, at most.
const ROUNDS: u32 = 5;
const LAST_ROUNDS: u32 = 60;
const LAST_ROUNDS_MIN: u32 = 4;
/// Share of the budget that the last comparison may have, and what each contestant of it needs about.
const LAST_SHARE: u64 = 4;
const LAST_TRIALS: u64 = 16;
/// Rates whose logarithms differ by less are equal.
const TIE: f64 = 0.015;
/// So much is given up at most for leaving the hosts alone.
const NOTHING: f64 = 0.03;
/// What replaces the best so far must be better by so much of a standard error: among equals nothing moves.
const BETTER: f64 = 0.5;

/// Cores for interrupts, and rings.
const SCALES: [(Irqs, Rings); 8] = [
    (Irqs::First(1), Rings::AsIs),
    (Irqs::First(2), Rings::AsIs),
    (Irqs::First(4), Rings::AsIs),
    (Irqs::First(8), Rings::AsIs),
    (Irqs::First(1), Rings::First),
    (Irqs::First(2), Rings::First),
    (Irqs::First(4), Rings::First),
    (Irqs::First(8), Rings::First),
];

/// Groups of cores that differ in kind.
const GRID: [(Group, bool); 6] = [
    (Group::Free, false),
    (Group::Same, true),
    (Group::Beside, true),
    (Group::Away, true),
    (Group::Home, true),
    (Group::Node, false),
];

#[derive(Debug, Clone)]
struct Arm {
    names: Vec<&'static str>,
    spec: Option<Spec>,
    placement: Placement,
    /// Of all rates' logarithms: how many, their mean, the sum of squares around it (Welford 1962).
    count: u32,
    mean: f64,
    squares: f64,
    /// Of those in the last comparison: how many, their sum.
    last: (u32, f64),
    refused: bool,
}

/// A contestant of the comparison that is on.
#[derive(Debug, Clone, Copy)]
struct Runner {
    arm: usize,
    /// Of its rates' logarithms; of those of whole rounds.
    sum: f64,
    whole: f64,
}

/// Rounds in which each runs once.
#[derive(Debug, Clone, Default)]
struct Comparison {
    left: Vec<Runner>,
    /// Still to run in this round, places in `left`.
    waiting: Vec<usize>,
    round: u32,
    rounds_max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Presets,
    /// Groups of cores with scales: which of them go together no word alone shows.
    Grid,
    /// Which word is changed next; whether this pass has found something.
    Words {
        next: usize,
        found: bool,
    },
    /// Several words at once, by chance: some help only together.
    Shake {
        vain: u32,
    },
    Last,
    Over,
}

/// Places in a pass: streams with interrupts and rings, each word at both ends, each at the receiver, each at the sender.
const PASS: usize = 1 + 3 * WORDS;
/// Contestants of a comparison between the best so far and others with two or three other words.
const SHAKEN: usize = 10;
/// So many such comparisons in a row that find nothing are the end.
const SHAKES: u32 = 4;

/// A search in progress.
#[derive(Debug, Clone)]
pub struct Search {
    send: Shape,
    recv: Shape,
    settings: Settings,
    arms: Vec<Arm>,
    comparison: Comparison,
    stage: Stage,
    best: usize,
    spent_ns: u64,
    trials: u32,
    dice: u64,
}

/// What was found of one placement.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Number of its trials.
    pub number: usize,
    /// Presets that it is.
    pub names: Vec<&'static str>,
    /// The placement.
    pub placement: Placement,
    /// How often it was measured.
    pub trials: u32,
    /// Geometric mean of its rates, as they were told (bit/s).
    pub rate: f64,
    /// Where that mean lies in 95 of 100.
    pub low: f64,
    /// The same.
    pub high: f64,
}

/// What came of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Which of `found`.
    pub winner: usize,
    /// All that were measured.
    pub found: Vec<Found>,
    /// Winner : nothing arranged, and where that ratio lies in 95 of 100, by the last comparison alone; `None`: there was no time for one.
    pub gain: Option<[f64; 3]>,
    /// Trials of all.
    pub trials: u32,
    /// Time spent.
    pub spent_ns: u64,
    /// It ended because there was nothing left to try, not because its time was over.
    pub settled: bool,
}

impl Search {
    /// A search between two machines.
    #[must_use]
    pub fn new(send: Shape, recv: Shape, settings: Settings) -> Search {
        let mut search = Search {
            dice: settings.seed,
            arms: Vec::new(),
            comparison: Comparison::default(),
            stage: Stage::Presets,
            best: 0,
            spent_ns: 0,
            trials: 0,
            send,
            recv,
            settings,
        };
        let mut first = Vec::new();
        for it in presets::of(&search.send, &search.recv, search.settings.streams) {
            first.push(search.arm(it.names, Some(it.spec), it.placement));
        }
        if let Some(known) = search.settings.known.clone() {
            first.push(search.arm(Vec::from(["remembered"]), None, known));
        }
        search.start_race(first, ROUNDS);
        search
    }

    /// The arm of a placement, an old one if it was tried before.
    fn arm(&mut self, names: Vec<&'static str>, spec: Option<Spec>, placement: Placement) -> usize {
        if let Some(at) = self.arms.iter().position(|arm| arm.placement == placement) {
            self.arms[at].spec = self.arms[at].spec.or(spec);
            self.arms[at].names.extend(names);
            return at;
        }
        self.arms.push(Arm {
            names,
            spec,
            placement,
            count: 0,
            mean: 0.0,
            squares: 0.0,
            last: (0, 0.0),
            refused: false,
        });
        self.arms.len() - 1
    }

    /// splitmix64 (Steele, Lea, Flood 2014).
    fn throw(&mut self, sides: usize) -> usize {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.dice;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % sides.max(1) as u64) as usize
    }

    /// Standard deviation of a rate's logarithm, from all that were measured more than once.
    fn spread(&self) -> f64 {
        let (prior, worth) = SPREAD;
        let squares: f64 = self.arms.iter().map(|arm| arm.squares).sum();
        let freedom: f64 = self.arms.iter().map(|arm| f64::from(arm.count.saturating_sub(1))).sum();
        sqrt((squares + prior * prior * worth) / (freedom + worth))
    }

    fn start_race(&mut self, mut arms: Vec<usize>, rounds_max: u32) {
        arms.retain(|arm| !self.arms[*arm].refused);
        let mut seen: Vec<usize> = Vec::new();
        arms.retain(|arm| {
            !seen.contains(arm) && {
                seen.push(*arm);
                true
            }
        });
        let left = arms.into_iter().map(|arm| Runner { arm, sum: 0.0, whole: 0.0 }).collect();
        self.comparison = Comparison { left, waiting: Vec::new(), round: 0, rounds_max };
        self.start_round();
    }

    fn start_round(&mut self) {
        let count = self.comparison.left.len();
        self.comparison.waiting = (0..count).collect();
        for at in (1..count).rev() {
            let other = self.throw(at + 1);
            self.comparison.waiting.swap(at, other);
        }
    }

    /// Time after which a stage ends as it stands.
    fn limit_ns(&self) -> u64 {
        let budget = self.settings.budget_ns;
        match self.stage {
            Stage::Presets if self.comparison.round == 0 => budget + budget / 2,
            Stage::Presets | Stage::Grid | Stage::Words { .. } | Stage::Shake { .. } => {
                // What the last comparison may need; nothing, if no preset is near any more.
                let near = self.finalists().len() as u64 - 1;
                budget - (near * LAST_TRIALS * self.spent_ns / u64::from(self.trials.max(1))).min(budget / LAST_SHARE)
            }
            Stage::Last | Stage::Over => budget,
        }
    }

    /// What is measured next; `None`: it is over.
    pub fn next_trial(&mut self) -> Option<Trial> {
        loop {
            if self.stage == Stage::Over {
                return None;
            }
            if self.spent_ns >= self.limit_ns() {
                self.end_race(true);
                continue;
            }
            if let Some(place) = self.comparison.waiting.last() {
                let number = self.comparison.left[*place].arm;
                return Some(Trial { number, placement: self.arms[number].placement.clone() });
            }
            self.comparison.round += 1;
            self.comparison.left.iter_mut().for_each(|it| it.whole = it.sum);
            self.drop_slow();
            if self.comparison.left.len() < 2 || self.comparison.round >= self.comparison.rounds_max {
                self.end_race(false);
            } else {
                self.start_round();
            }
        }
    }

    /// A trial moved bytes at this rate (bit/s) and took so long, with what is around it.
    pub fn on_rate(&mut self, trial: &Trial, rate: f64, ns: u64) {
        if !rate.is_finite() || rate <= 0.0 {
            return self.on_refused(trial, ns);
        }
        self.spent_ns = self.spent_ns.saturating_add(ns);
        self.trials += 1;
        let log = ln(rate);
        let arm = &mut self.arms[trial.number];
        arm.count += 1;
        let before = log - arm.mean;
        arm.mean += before / f64::from(arm.count);
        arm.squares += before * (log - arm.mean);
        if self.stage == Stage::Last {
            arm.last = (arm.last.0 + 1, arm.last.1 + log);
        }
        if let Some(place) = self.comparison.waiting.pop() {
            self.comparison.left[place].sum += log;
        }
    }

    /// The placement cannot be had; trying cost so long.
    pub fn on_refused(&mut self, trial: &Trial, ns: u64) {
        self.spent_ns = self.spent_ns.saturating_add(ns);
        self.arms[trial.number].refused = true;
        if let Some(place) = self.comparison.waiting.pop() {
            self.comparison.left.remove(place);
            for other in self.comparison.waiting.iter_mut().filter(|other| **other > place) {
                *other -= 1;
            }
        }
    }

    fn drop_slow(&mut self) {
        let rounds = f64::from(self.comparison.round);
        let best = self.comparison.left.iter().map(|it| it.whole / rounds).fold(f64::MIN, f64::max);
        let clearly = CLEARLY * self.spread() * sqrt(2.0 / rounds);
        let none = self.none();
        let left = &mut self.comparison.left;
        left.sort_by(|one, other| other.whole.total_cmp(&one.whole));
        let half = left.len().div_ceil(2).max(2);
        let keep = match (self.stage, self.comparison.round) {
            // One trial that was disturbed puts nobody out of the last comparison, which takes its time.
            (Stage::Last, ..LAST_ROUNDS_MIN) => return,
            (Stage::Last, 8 | 12 | 18 | 27) => half,
            (Stage::Last, _) => left.len(),
            (_, 1) => (left.len() / 3).max(8),
            _ => half,
        };
        // In the last comparison nothing at all runs to the end: the winner is held against it.
        let stays = |arm: usize| self.stage == Stage::Last && Some(arm) == none;
        let slow = left.split_off(keep.min(left.iter().take_while(|it| it.whole / rounds >= best - clearly).count()));
        if self.stage == Stage::Last && left.len() == 1 {
            self.comparison.rounds_max = self.comparison.round;
        }
        left.extend(slow.into_iter().filter(|it| stays(it.arm)));
        // Of those that are equal nothing is to be learned.
        if clearly < TIE {
            self.comparison.rounds_max = self.comparison.round;
        }
    }

    /// The best of the comparison that is on: by the rounds that all have run; who asks less wins a tie.
    fn first(&self) -> Option<usize> {
        if self.comparison.round == 0 {
            // Cut off in its first round: what is known of them from all comparisons.
            let known = self.comparison.left.iter().map(|it| it.arm).filter(|arm| self.arms[*arm].count > 0);
            return known.max_by(|one, other| self.arms[*one].mean.total_cmp(&self.arms[*other].mean));
        }
        let rounds = f64::from(self.comparison.round);
        let best = self.comparison.left.iter().map(|it| it.whole / rounds).fold(f64::MIN, f64::max);
        let equal = |within: f64| self.comparison.left.iter().filter(move |it| it.whole / rounds >= best - within);
        // At the end, hosts are left alone unless arranging them is better by a standard error, or by a little.
        let error = (self.spread() * sqrt(2.0 / rounds)).min(NOTHING);
        let nothing = equal(error).find(|it| self.stage == Stage::Last && self.cost(it.arm) == 0);
        nothing.or_else(|| equal(TIE).min_by_key(|it| self.cost(it.arm))).map(|it| it.arm)
    }

    /// The winner of the last comparison, unless the whole record shows the one before it, or a preset, to be better beyond noise: where rates spread
    /// widely, a few rounds say less than all trials.
    fn on_record(&self, first: usize) -> usize {
        let edge = |arm: usize, sign: f64| {
            let Arm { mean, count, .. } = &self.arms[arm];
            mean + sign * INTERVAL * self.spread() / sqrt(f64::from((*count).max(1)))
        };
        let others = (0..self.arms.len()).filter(|arm| *arm == self.best || !self.arms[*arm].names.is_empty());
        let clear = others.filter(|arm| self.arms[*arm].count > 0 && edge(*arm, -1.0) > edge(first, 1.0));
        clear.max_by(|one, other| edge(*one, -1.0).total_cmp(&edge(*other, -1.0))).unwrap_or(first)
    }

    fn cost(&self, arm: usize) -> u16 {
        let Placement { send, recv, .. } = &self.arms[arm].placement;
        send.cost() + recv.cost()
    }

    fn end_race(&mut self, cut: bool) {
        let rounds = f64::from(self.comparison.round.max(1));
        let first = self.first();
        match self.stage {
            Stage::Presets => {
                self.best = first.unwrap_or(0);
                self.stage = Stage::Grid;
            }
            Stage::Grid | Stage::Words { .. } | Stage::Shake { .. } if cut => {}
            Stage::Grid => {
                self.is_better(first, rounds);
                self.stage = Stage::Words { next: 0, found: false };
            }
            Stage::Words { next, found } => {
                let is_better = self.is_better(first, rounds);
                self.stage = Stage::Words { next, found: found || is_better };
            }
            Stage::Shake { vain } => {
                self.stage = match self.is_better(first, rounds) {
                    true => Stage::Words { next: 0, found: false },
                    false => Stage::Shake { vain: vain + 1 },
                };
            }
            Stage::Last => {
                self.best = self.on_record(first.unwrap_or(self.best));
                self.stage = Stage::Over;
                return;
            }
            Stage::Over => return,
        }
        self.next_race(cut);
    }

    /// Takes the first of a comparison for the best so far, if it is by more than chance makes of equals.
    fn is_better(&mut self, first: Option<usize>, rounds: f64) -> bool {
        let mean = |arm: usize| self.comparison.left.iter().find(|it| it.arm == arm).map(|it| it.whole / rounds);
        let least = BETTER * self.spread() * sqrt(2.0 / rounds);
        let better = first.filter(|first| {
            // Gone from the comparison, the best so far was among the slower ones.
            *first != self.best && mean(self.best).is_none_or(|best| mean(*first).is_some_and(|it| it > best + least))
        });
        self.best = better.unwrap_or(self.best);
        better.is_some()
    }

    fn next_race(&mut self, cut: bool) {
        loop {
            let arms = match self.stage {
                _ if cut => break,
                Stage::Grid => self.grid(),
                Stage::Words { next, found } if next < PASS => {
                    self.stage = Stage::Words { next: next + 1, found };
                    self.values(next)
                }
                Stage::Words { found: true, .. } => {
                    self.stage = Stage::Words { next: 0, found: false };
                    continue;
                }
                Stage::Words { found: false, .. } => {
                    self.stage = Stage::Shake { vain: 0 };
                    continue;
                }
                Stage::Shake { vain } if vain < SHAKES => self.shaken(),
                Stage::Presets | Stage::Shake { .. } | Stage::Last | Stage::Over => break,
            };
            if arms.len() > 1 {
                self.start_race(arms, ROUNDS);
                return;
            }
            match self.stage {
                Stage::Grid => self.stage = Stage::Words { next: 0, found: false },
                Stage::Shake { vain } => self.stage = Stage::Shake { vain: vain + 1 },
                Stage::Presets | Stage::Words { .. } | Stage::Last | Stage::Over => {}
            }
        }
        self.stage = Stage::Last;
        let arms = self.finalists();
        self.start_race(arms, LAST_ROUNDS);
    }

    /// The best so far and what it becomes with other values of one word; but for what is known to be clearly slower.
    fn values(&mut self, place: usize) -> Vec<usize> {
        let Some(now) = self.arms[self.best].spec else { return Vec::new() };
        let specs = match place.checked_sub(1) {
            None => self.scaled(&now),
            Some(place) => self.changed(&now, place % WORDS, place / WORDS),
        };
        let mut arms = Vec::from([self.best]);
        for spec in specs {
            if let Some(arm) = self.sketched(spec).filter(|arm| !self.is_hopeless(*arm)) {
                arms.push(arm);
            }
        }
        arms
    }

    fn sketched(&mut self, spec: Spec) -> Option<usize> {
        let placement = spec.placement(&self.send, &self.recv)?;
        Some(self.arm(Vec::new(), Some(spec), placement))
    }

    /// The best so far, and each group of cores with few and with many streams, few and many cores for interrupts, in the NIC's domain and the next.
    fn grid(&mut self) -> Vec<usize> {
        let all = self.streams(&Spec::both(Words::NONE, 4));
        let most = all.last().copied().unwrap_or(4);
        let few = all.iter().copied().find(|streams| *streams >= 4).unwrap_or(most);
        let mut arms = Vec::from([self.best]);
        for (workers, exact) in GRID {
            for home in [0, 1] {
                for irqs in [Irqs::AsIs, Irqs::First(1), Irqs::First(4), Irqs::First(8)] {
                    for streams in [few, most] {
                        let words = |shape: &Shape| {
                            let rings = if shape.rings && irqs != Irqs::AsIs { Rings::First } else { Rings::AsIs };
                            Words { home, irqs, workers, exact, rings, ..Words::NONE }
                        };
                        let spec = Spec { send: words(&self.send), recv: words(&self.recv), streams };
                        let is_too_many = matches!(irqs, Irqs::First(count) if count > streams);
                        let arm = if is_too_many { None } else { self.sketched(spec) };
                        arms.extend(arm.filter(|arm| !self.is_hopeless(*arm)));
                    }
                }
            }
        }
        arms
    }

    /// Numbers of streams that may be tried: more than two workers a core only wait for each other.
    fn streams(&self, now: &Spec) -> Vec<u16> {
        let cores = self.send.cores.len().max(self.recv.cores.len());
        match self.settings.streams {
            Some(_) => Vec::from([now.streams]),
            None => STREAMS.into_iter().filter(|streams| usize::from(*streams) <= (2 * cores).max(4)).collect(),
        }
    }

    /// Streams with cores and rings for their interrupts: more of the one help only with more of the other.
    fn scaled(&self, now: &Spec) -> Vec<Spec> {
        let mut out = Vec::new();
        for streams in self.streams(now) {
            out.push(Spec { streams, ..*now });
            for (irqs, rings) in SCALES {
                if matches!(irqs, Irqs::First(count) if count <= streams) {
                    let scaled = |words: &Words| Words { irqs, rings, ..*words };
                    out.push(Spec { send: scaled(&now.send), recv: scaled(&now.recv), streams });
                }
            }
        }
        out
    }

    /// One word with each of its values, at both ends (0), at the receiver (1), at the sender (2).
    fn changed(&self, now: &Spec, word: usize, ends: usize) -> Vec<Spec> {
        let (send, recv) = (now.send.changed(word, &self.send), now.recv.changed(word, &self.recv));
        match ends {
            0 => send.into_iter().zip(recv).map(|(send, recv)| Spec { send, recv, ..*now }).collect(),
            1 => recv.into_iter().map(|recv| Spec { recv, ..*now }).collect(),
            _ => send.into_iter().map(|send| Spec { send, ..*now }).collect(),
        }
    }

    /// The best so far, and others with two or three words of it (or of a preset) changed by chance.
    fn shaken(&mut self) -> Vec<usize> {
        let mut arms = Vec::from([self.best]);
        let from: Vec<Spec> = self.arms.iter().filter(|arm| !arm.names.is_empty()).filter_map(|arm| arm.spec).collect();
        for _ in 0..8 * SHAKEN {
            if arms.len() > SHAKEN {
                break;
            }
            let preset = from.get(self.throw(4 * from.len())).copied();
            let Some(mut spec) = preset.or(self.arms[self.best].spec) else { break };
            for _ in 0..2 + self.throw(2) {
                // Two of three changes are made at both ends.
                let (word, ends) = (self.throw(WORDS + 1), [0, 0, 0, 0, 1, 2][self.throw(6)]);
                let values = if word == WORDS { self.scaled(&spec) } else { self.changed(&spec, word, ends) };
                spec = values.get(self.throw(values.len())).copied().unwrap_or(spec);
            }
            let known = self.arms.len();
            // What was tried is not tried again.
            arms.extend(self.sketched(spec).filter(|arm| *arm >= known));
        }
        arms
    }

    /// Measured before, and clearly slower than the best.
    fn is_hopeless(&self, arm: usize) -> bool {
        let (it, best) = (&self.arms[arm], &self.arms[self.best]);
        let error = |arm: &Arm| 1.0 / f64::from(arm.count.max(1));
        it.count > 0 && it.mean < best.mean - CLEARLY * self.spread() * sqrt(error(it) + error(best))
    }

    /// The best so far, and every preset that may still be better.
    fn finalists(&self) -> Vec<usize> {
        let mut arms = Vec::from([self.best]);
        let presets = (0..self.arms.len()).filter(|arm| !self.arms[*arm].names.is_empty());
        // By what is measured here the winner is held against nothing at all: rates of earlier comparisons chose it, and so flatter it.
        arms.extend(presets.filter(|arm| self.cost(*arm) == 0 || !self.is_hopeless(*arm)));
        arms
    }

    /// What was found; `None`: nothing was measured.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let winner = &self.arms[self.best];
        if winner.count == 0 {
            return None;
        }
        let spread = self.spread();
        let found = self.arms.iter().enumerate().filter(|(_, arm)| arm.count > 0).map(|(number, arm)| {
            let half = INTERVAL * spread / sqrt(f64::from(arm.count));
            Found {
                number,
                names: arm.names.clone(),
                placement: arm.placement.clone(),
                trials: arm.count,
                rate: exp(arm.mean),
                low: exp(arm.mean - half),
                high: exp(arm.mean + half),
            }
        });
        let found: Vec<Found> = found.collect();
        let winner = found.iter().position(|it| it.placement == winner.placement)?;
        let settled = self.stage == Stage::Over && self.spent_ns < self.settings.budget_ns;
        let gain = self.gain();
        Some(Verdict { winner, found, gain, trials: self.trials, spent_ns: self.spent_ns, settled })
    }

    /// The arm in which nothing is arranged.
    fn none(&self) -> Option<usize> {
        self.arms.iter().position(|arm| arm.names.contains(&"none"))
    }

    fn gain(&self) -> Option<[f64; 3]> {
        let none = &self.arms[self.none()?];
        let winner = &self.arms[self.best];
        let mean = |arm: &Arm| (arm.last.0 > 0).then(|| arm.last.1 / f64::from(arm.last.0));
        let log = mean(winner)? - mean(none)?;
        let error = sqrt(1.0 / f64::from(winner.last.0) + 1.0 / f64::from(none.last.0));
        let half = if core::ptr::eq(winner, none) { 0.0 } else { INTERVAL_OF_BEST * self.spread() * error };
        Some([log, log - half, log + half].map(exp))
    }
}

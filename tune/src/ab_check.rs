//! Does a change help? Measured with it and without it, in random order.
//!
//! For: `host apply --ab-check`. In and out: pairs of figures (with, without) → a verdict.
//! Invariants: exact: the chance that noise alone shows as much is counted over all ways the pairs could have fallen, not assumed; what cannot
//! be told from noise is "no effect".
//! Source: the paired permutation test (R. A. Fisher, The Design of Experiments, 1935, section 21).
//! Absent on purpose: how a figure is measured (`lease`).

/// Noise alone passes for an effect in at most this share of the trials.
pub const CHANCE_MAX: f64 = 0.02;

/// What the pairs say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Mean of the ratios with : without, as a factor.
    pub factor: f64,
    /// Chance that noise alone shows as much, either way.
    pub chance: f64,
}

impl Verdict {
    /// It helps, beyond chance.
    #[must_use]
    pub fn helps(&self) -> bool {
        self.chance <= CHANCE_MAX && self.factor > 1.0
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match (self.chance <= CHANCE_MAX, self.factor > 1.0) {
            (false, _) => "no effect",
            (true, true) => "helps",
            (true, false) => "hurts",
        }
    }
}

/// Judges pairs of figures (with, without), of which more is better. At most 20 pairs are looked at: 2^20 ways.
#[must_use]
pub fn judge(pairs: &[(f64, f64)]) -> Verdict {
    let logs: Vec<f64> = pairs.iter().take(20).map(|(with, without)| (with / without).ln()).collect();
    if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
        return Verdict { factor: 1.0, chance: 1.0 };
    }
    let sum: f64 = logs.iter().sum();
    // If the change does nothing, each pair could as well have fallen the other way round.
    let as_much = (0_u32..1 << logs.len()).filter(|flips| {
        let flipped: f64 =
            logs.iter().enumerate().map(|(at, log)| if flips >> at & 1 == 1 { -log } else { *log }).sum();
        flipped.abs() >= sum.abs() - 1e-12
    });
    let chance = as_much.count() as f64 / f64::from(1_u32 << logs.len());
    Verdict { factor: (sum / logs.len() as f64).exp(), chance }
}

/// Random numbers for the order of the runs: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub struct Coin(u64);

impl Coin {
    /// From a seed.
    #[must_use]
    pub fn new(seed: u64) -> Coin {
        Coin(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A figure with noise of about 5 %, whose scale drifts from pair to pair as a shared machine's does.
    fn pairs(coin: &mut Coin, factor: f64) -> Vec<(f64, f64)> {
        let mut noise = || (0..4).map(|_| coin.bits() as f64 / u64::MAX as f64 - 0.5).sum::<f64>() * 0.09 + 1.0;
        (0..10).map(|_| (factor * noise(), noise())).collect()
    }

    #[test]
    fn a_placebo_has_no_effect_in_at_least_95_of_100_trials() {
        // What is kept goes by `helps`, what is told by the words: both.
        let placebo = |coin: &mut Coin| {
            let verdict = judge(&pairs(coin, 1.0));
            verdict.words() == "no effect" && !verdict.helps()
        };
        let mut coin = Coin::new(1);
        for hundred in 0..10 {
            let none = (0..100).filter(|_| placebo(&mut coin)).count();
            assert!(none >= 93, "{none} of hundred {hundred}");
        }
        let mut coin = Coin::new(2);
        let none = (0..1000).filter(|_| placebo(&mut coin)).count();
        assert!(none >= 970, "{none} of 1000");
    }

    #[test]
    fn a_seventh_more_or_less_is_seen() {
        let mut coin = Coin::new(3);
        let helps = (0..100).filter(|_| judge(&pairs(&mut coin, 1.15)).helps()).count();
        let hurts = (0..100).filter(|_| judge(&pairs(&mut coin, 0.85)).words() == "hurts").count();
        assert!(helps >= 95 && hurts >= 95, "{helps} and {hurts} of 100");
    }

    #[test]
    fn too_few_pairs_and_broken_figures_prove_nothing() {
        assert_eq!(judge(&[]).words(), "no effect");
        assert_eq!(judge(&[(2.0, 1.0); 5]).words(), "no effect", "2 of 32 ways are as extreme");
        assert_eq!(judge(&[(2.0, 1.0); 7]).words(), "helps");
        assert_eq!(judge(&[(0.0, 1.0); 10]).words(), "no effect");
        assert_eq!(judge(&[(f64::NAN, 1.0); 10]).words(), "no effect");
    }
}

//! Chance, from a seed.
//!
//! For: what a link loses, delays and harms; the same seed gives the same link.
//! In and out: a seed → 64-bit numbers; a `Share` → yes or no, with that probability.
//! Invariants: no clock, no operating system; a share of 0 is never, a share of 1 always.
//! Absent on purpose: secrets (this is no cryptography).

/// A probability, kept as the threshold below which a 64-bit number means yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// In 10^-9: what the user said, for showing it again.
    ppb: u32,
}

/// All of it.
const WHOLE_PPB: u32 = 1_000_000_000;

impl Share {
    /// Never.
    pub const NEVER: Share = Share { ppb: 0 };
    /// Always.
    #[cfg(test)]
    pub const ALWAYS: Share = Share { ppb: WHOLE_PPB };

    /// From parts of 10^9; above that it is always.
    #[must_use]
    pub fn from_ppb(ppb: u64) -> Share {
        Share { ppb: u32::try_from(ppb).unwrap_or(WHOLE_PPB).min(WHOLE_PPB) }
    }

    /// In parts of 10^9.
    #[must_use]
    pub fn ppb(self) -> u32 {
        self.ppb
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.ppb) / f64::from(WHOLE_PPB)
    }

    /// Never?
    #[must_use]
    pub fn is_never(self) -> bool {
        self.ppb == 0
    }
}

/// xoshiro256++ (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021).
#[derive(Debug, Clone)]
pub struct Dice {
    state: [u64; 4],
}

impl Dice {
    /// The state is spread from the seed by SplitMix64, as the authors advise.
    #[must_use]
    pub fn new(seed: u64) -> Dice {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = at;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Dice { state }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let mut next = [a, b, c ^ a, d ^ b];
        next[1] ^= next[2];
        next[0] ^= next[3];
        next[2] ^= b << 17;
        next[3] = next[3].rotate_left(45);
        self.state = next;
        out
    }

    /// Yes with this probability. Never and always throw no dice.
    pub fn says(&mut self, share: Share) -> bool {
        match share.ppb {
            0 => false,
            WHOLE_PPB => true,
            // 2^64 / 10^9, cut: the error is below 10^-9 of the share.
            ppb => self.draw() < u64::from(ppb) * 18_446_744_073,
        }
    }

    /// A number below `bound`, each as likely as the others up to 2^-32; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.draw()) * u128::from(bound);
        (wide >> 64) as u64
    }

    /// About normal: mean 0, standard deviation 1000. The sum of four numbers of 16 bits (Irwin-Hall), which ends at ±3464.
    pub fn bell(&mut self) -> i64 {
        let number = self.draw();
        let sum: u64 = (0..4).map(|part| (number >> (16 * part)) & 0xffff).sum();
        // The sum has mean 2 x 65535 and standard deviation 65536 x sqrt(4 / 12) = 37837.
        (i64::try_from(sum).unwrap_or(0) - 131_070) * 1000 / 37_837
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_seed_others() {
        let numbers = |seed| {
            let mut dice = Dice::new(seed);
            [dice.draw(), dice.draw(), dice.draw()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn a_share_comes_true_as_often_as_it_says() {
        let mut dice = Dice::new(1);
        for ppb in [1_000_u64, 1_000_000, 50_000_000, 300_000_000, 999_000_000] {
            let share = Share::from_ppb(ppb);
            let throws = 4_000_000_u32;
            let yes = (0..throws).filter(|_| dice.says(share)).count();
            let mean = share.value() * f64::from(throws);
            let sigma = (mean * (1.0 - share.value())).sqrt();
            #[expect(clippy::cast_precision_loss, reason = "a few millions")]
            let off = (yes as f64 - mean).abs();
            assert!(off <= 4.0 * sigma + 1.0, "{ppb} ppb: {yes} of {throws}, {off:.0} off, sigma {sigma:.1}");
        }
        assert!((0..1000).all(|_| !dice.says(Share::NEVER) && dice.says(Share::ALWAYS)));
    }

    #[test]
    fn the_bell_has_the_mean_and_width_it_says() {
        let mut dice = Dice::new(3);
        let throws: Vec<i64> = (0..200_000).map(|_| dice.bell()).collect();
        let mean = throws.iter().sum::<i64>() / 200_000;
        let square = throws.iter().map(|x| x * x).sum::<i64>() / 200_000;
        assert!(mean.abs() <= 10, "{mean}");
        assert!((980_000..1_020_000).contains(&square), "{square}");
    }

    #[test]
    fn numbers_below_a_bound_stay_below_it_and_reach_it() {
        let mut dice = Dice::new(4);
        let seen: Vec<u64> = (0..1000).map(|_| dice.below(5)).collect();
        assert!((0..5).all(|wanted| seen.contains(&wanted)) && seen.iter().all(|number| *number < 5));
        assert_eq!(dice.below(0), 0);
    }
}

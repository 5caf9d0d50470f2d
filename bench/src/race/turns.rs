//! Rounds in turn, and what comes of their samples.
//!
//! For: every comparison. In and out: lanes and what one turn of a lane does → all rounds done, or stopped; samples → median and ends.
//! Invariants: in each round every lane has one turn, always in the same order.
//! Absent on purpose: averages, what a turn does.

use std::ops::ControlFlow;

use serde::Serialize;

use crate::table::median;

/// So many rounds over all lanes; false: a turn broke it off.
///
/// # Errors
/// The first of a turn.
pub fn alternate<L, E>(
    rounds: usize,
    lanes: &mut [L],
    mut turn: impl FnMut(usize, &mut L) -> Result<ControlFlow<()>, E>,
) -> Result<bool, E> {
    for round in 0..rounds {
        for lane in lanes.iter_mut() {
            if turn(round, lane)?.is_break() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Median and ends of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of samples; `None` of none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Spread> {
        let min = samples.iter().copied().min_by(f64::total_cmp)?;
        let max = samples.iter().copied().max_by(f64::total_cmp)?;
        Some(Spread { median: median(samples), min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_has_its_turn_in_each_round_until_one_breaks_it_off() {
        let mut seen = Vec::new();
        let mut turn = |round: usize, lane: &mut char| {
            seen.push((round, *lane));
            let ended = round == 1 && *lane == 'b';
            Ok::<_, ()>(if ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        assert_eq!(alternate(3, &mut ['a', 'b', 'c'], &mut turn), Ok(false));
        assert_eq!(seen, [(0, 'a'), (0, 'b'), (0, 'c'), (1, 'a'), (1, 'b')]);
    }
}

//! Price: how many flows a queue speaks for, what each of them takes back for that, and what it pushes.
//!
//! For: the `delay` controller. All flows of a bottleneck see the same queue, so a share that follows from the queue alone is the same for all of them, whatever their
//! round trips are. The queue's deviation from what this says is steered away by the flow's own round trip (`delay::step`), and must not stay: a flow of 10 ms would
//! give way twenty times as fast as one of 200 ms, and did (docs/design/003).
//! In and out: the queue that stands in; a number of flows, the share to take back and the share of the link to push, each round, out.
//! Invariants: what is pushed, divided by what is taken back, is the link divided by the number of flows, for any number; the number follows the queue as slowly as
//! stability over this round trip asks.
//! Absent on purpose: who the others are (`competitor`), and what the link's rate is (`delay`).

use super::PROBE_GAIN;
use crate::rate::maths;
use crate::rate::weight::QUEUE_EACH_NS;

/// What the second flow adds to the queue, ns: less than a further one, since a queue of a few milliseconds has to have room for a stranger's, too ...
const QUEUE_SECOND_NS: f64 = 0.4 * QUEUE_EACH_NS;
/// ... and from so many flows on each of which adds `QUEUE_EACH_NS` ...
const FEW: f64 = 8.0;
/// ... e times as many add this: a hundred keep 14 ms. They push less each, and take back what few do.
const QUEUE_MANY_NS: f64 = 2_250_000.0;
/// Time constant, in rounds, of the integral (12 R of docs/design/003).
const INTEGRAL_ROUNDS: f64 = 12.0;
/// No queue speaks for more flows than these, nor for so many times as many others as this flow's own share of the link says, where that is more than `FEW`.
const FLOWS_MOST: f64 = 10_000.0;
const FLOWS_MULTIPLE: f64 = 4.0;

/// The queue above the target that other flows' pushes keep, ns; negative: it is below the target.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Others {
    ns: f64,
}

/// So many flows keep this much more than one does, ns.
fn queue_of(flows: f64) -> f64 {
    let few = flows.min(FEW);
    let queue = if few < 2.0 { (few - 1.0) * QUEUE_SECOND_NS } else { QUEUE_SECOND_NS + (few - 2.0) * QUEUE_EACH_NS };
    if flows <= FEW { queue } else { queue + QUEUE_MANY_NS * maths::ln(flows / FEW) }
}

impl Others {
    /// What so many flows keep.
    pub(super) fn of(flows: f64) -> Self {
        Self { ns: queue_of(flows.clamp(1.0, FLOWS_MOST)) }
    }

    pub(super) const fn ns(self) -> f64 {
        self.ns
    }

    /// Flows that keep this, this one among them.
    pub(super) fn flows(self) -> f64 {
        if self.ns < QUEUE_SECOND_NS {
            return (1.0 + self.ns / QUEUE_SECOND_NS).max(0.0);
        }
        let few = 2.0 + (self.ns - QUEUE_SECOND_NS) / QUEUE_EACH_NS;
        if few <= FEW { few } else { FEW * maths::exp((self.ns - queue_of(FEW)) / QUEUE_MANY_NS) }
    }

    /// Share of its rate that a flow takes back each round.
    pub(super) fn take(self) -> f64 {
        PROBE_GAIN * self.flows().min(FEW)
    }

    /// Share of the link that it pushes each round.
    pub(super) fn push(self) -> f64 {
        PROBE_GAIN * FEW / self.flows().max(FEW)
    }

    /// `excess_ns` stands above the target. `alike`: flows of this one's share that the link would hold. `elapsed`: rounds of `round_ns`. `is_low`: a scavenger.
    pub(super) fn follow(&mut self, excess_ns: f64, alike: f64, (elapsed, round_ns): (f64, f64), is_low: bool) {
        // What a burst of others put into the queue is no offer to integrate.
        let most = if is_low { FEW } else { (1.0 + FLOWS_MULTIPLE * (alike - 1.0)).clamp(FEW, FLOWS_MOST) };
        let flows = self.flows();
        let each = if flows < 2.0 { QUEUE_SECOND_NS } else { QUEUE_EACH_NS };
        let slope = if flows < FEW { PROBE_GAIN / each } else { FEW * PROBE_GAIN / QUEUE_MANY_NS };
        let part = (elapsed / (INTEGRAL_ROUNDS * round_ns * slope)).min(1.0);
        self.ns = (self.ns + (excess_ns.min(queue_of(most)) - self.ns) * part).max(-QUEUE_SECOND_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_flows_come_to_the_link_divided_by_their_number() {
        for flows in [1.0, 1.5, 2.0, 3.0, 8.0, 9.0, 100.0, 10_000.0] {
            let others = Others::of(flows);
            assert!((others.flows() / flows - 1.0).abs() < 0.01, "{flows}: {}", others.flows());
            // What is pushed of the link is what is taken back of the share.
            assert!((others.push() / others.take() * flows - 1.0).abs() < 0.01, "{flows}");
        }
        assert!(Others::of(100.0).ns() < 13_000_000.0 && Others::of(1.0).ns() == 0.0);
    }

    #[test]
    fn the_number_follows_the_queue_that_stands_as_fast_as_the_round_trip_allows_and_no_further_than_the_share() {
        let after = |rounds: u32, round_ns: f64, alike: f64, is_low: bool| {
            let mut others = Others::default();
            for _ in 0..rounds {
                others.follow(50e6, alike, (1.0, round_ns), is_low);
            }
            others.flows()
        };
        assert!(after(20, 10e6, 8.0, false) > 7.9, "{}", after(20, 10e6, 8.0, false));
        assert!(after(20, 200e6, 8.0, false) < 6.0, "{}", after(20, 200e6, 8.0, false));
        // A queue of 50 ms speaks for millions of flows, and this one has half of the link.
        assert!((after(2000, 10e6, 2.0, false) - FEW).abs() < 0.1);
        assert!((after(2000, 10e6, 20.0, false) - 77.0).abs() < 1.0);
        assert!((after(2000, 10e6, 1e6, true) - FEW).abs() < 0.1);
        let mut empty = Others::of(8.0);
        for _ in 0..2000 {
            empty.follow(-50e6, 1.0, (1.0, 10e6), false);
        }
        assert_eq!(empty.flows(), 0.0, "nobody is there, and what is free is taken");
    }
}

//! What a datagram rail's meter said at its end.
//!
//! For: the report, and the answer of the other end.
//! In and out: the engine's `PathStats` → sums that cross as JSON, and that add up over runs.
//! Invariants: what only the other half of a rail knows is 0.
//! Absent on purpose: reading the meter (packets.rs).

use std::iter::Sum;

use engine::meter::PathStats;
use serde::{Deserialize, Serialize};

macro_rules! sums {
    ($($(#[doc = $what:literal])+ $name:ident,)+) => {
        /// What a rail's meter said at its end; over several runs the sum. What only the other half knows is 0.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Sums {
            $($(#[doc = $what])+ pub $name: u64,)+
            /// Runs that were added up.
            pub runs: u64,
            /// From the last chunk that was sent to the end of which the sender knows: a round trip, and what the tail's losses cost.
            pub tail_ns: u64,
            /// Of the longest run: round trip as the sender last smoothed it.
            pub rtt_ns: u64,
            /// The highest rate in force at an end.
            pub rate: u64,
        }

        impl Sums {
            /// Of one run.
            pub(super) fn of(stats: &PathStats, tail_ns: u64) -> Sums {
                Sums { $($name: stats.$name,)+ runs: 1, tail_ns, rtt_ns: stats.rtt_ns, rate: stats.rate }
            }
        }

        impl Sum for Sums {
            fn sum<I: Iterator<Item = Sums>>(iter: I) -> Sums {
                iter.fold(Sums::default(), |sum, it| Sums {
                    $($name: sum.$name + it.$name,)+
                    runs: sum.runs + it.runs,
                    tail_ns: sum.tail_ns + it.tail_ns,
                    rtt_ns: sum.rtt_ns.max(it.rtt_ns),
                    rate: sum.rate.max(it.rate),
                })
            }
        }
    };
}

sums! {
    /// Data packets sent, or taken.
    packets,
    /// Unit bytes sent for the first time.
    fresh_bytes,
    /// Unit bytes sent again since they were lost.
    repair_bytes,
    /// Unit bytes sent again though not known to be lost.
    copy_bytes,
    /// Packets that were lost.
    lost_packets,
    /// Times of silence.
    quiets,
    /// Receiver: wire bytes of data taken.
    wire_bytes,
    /// Receiver: unit bytes that came and were there.
    already_bytes,
    /// Receiver: packets that came after a higher number.
    late,
    /// Feedbacks taken, or sent.
    feedbacks,
    /// Packets that came twice.
    again,
    /// Receiver: packets that held and found no buf.
    no_room,
    /// Sender: steps that data packets left in.
    bursts,
    /// Sender: of these, out of memory that the network reads itself.
    lent_bursts,
    /// Sender: chunks read again for a repair.
    reloaded,
    /// Receiver: chunks put into their place before they were whole.
    spilled,
}

impl Sums {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let share = |bytes: u64| 100.0 * bytes as f64 / (self.fresh_bytes as f64).max(1.0);
        format!(
            "{} packets lost of {}, {:.2} % sent again, {:.2} % copies, {:.1} packets a burst, {:.0} % of bursts lent, \
             {} feedbacks, tail {:.1} ms, round trip {} us",
            self.lost_packets,
            self.packets,
            share(self.repair_bytes),
            share(self.copy_bytes),
            self.packets as f64 / self.bursts.max(1) as f64,
            100.0 * self.lent_bursts as f64 / self.bursts.max(1) as f64,
            self.feedbacks,
            self.tail_ns as f64 / self.runs.max(1) as f64 / 1e6,
            self.rtt_ns / 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_add_up_and_keep_the_worst() {
        let one = Sums { packets: 3, runs: 1, rtt_ns: 7, ..Sums::default() };
        let two = Sums { packets: 4, runs: 1, rtt_ns: 5, ..Sums::default() };
        let sum: Sums = [one, two].into_iter().sum();
        assert_eq!((sum.packets, sum.runs, sum.rtt_ns), (7, 2, 7));
    }
}

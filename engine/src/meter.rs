//! What a datagram rail tells of itself while it runs.
//!
//! For: screens, reports, the choice of transport, and tests that must see that memory was short.
//! In and out: one rail writes, anybody reads.
//! Invariants: a reader never stops the writer; each figure is true of some moment of the last turns, figures of one reading may be of two.
//! Absent on purpose: judging, history.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! meter {
    ($($(#[doc = $what:literal])+ $name:ident,)+) => {
        /// Figures of one datagram rail. What only the other half knows is 0.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct PathStats {
            $($(#[doc = $what])+ pub $name: u64,)+
        }

        /// One writer (the worker), many readers.
        #[derive(Debug, Default)]
        pub struct Meter {
            $($name: AtomicU64,)+
        }

        impl Meter {
            /// The figures now.
            #[must_use]
            pub fn read(&self) -> PathStats {
                PathStats { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }

            pub(crate) fn write(&self, stats: &PathStats) {
                $(self.$name.store(stats.$name, Ordering::Relaxed);)+
            }
        }
    };
}

meter! {
    /// Sender: rate in force, wire bytes per second.
    rate,
    /// Sender: smoothed round trip, ns.
    rtt_ns,
    /// Sender: recent loss, parts per million of packets.
    loss_ppm,
    /// Sender: wire bytes on their way.
    in_flight,
    /// Sender: UDP payload of a data packet now.
    packet_bytes,
    /// Data packets sent, or packets taken.
    packets,
    /// Sender: unit bytes sent for the first time.
    fresh_bytes,
    /// Sender: unit bytes sent again since they were lost.
    repair_bytes,
    /// Sender: unit bytes sent again though not known to be lost.
    copy_bytes,
    /// Sender: packets that were lost.
    lost_packets,
    /// Sender: times of silence.
    quiets,
    /// Sender: black holes found (packets of a size that do not pass any more).
    holes,
    /// Units not whole.
    units,
    /// Receiver: wire bytes of data taken.
    wire_bytes,
    /// Receiver: of these, with a congestion mark.
    marked_bytes,
    /// Receiver: unit bytes that came and were there: what was sent needlessly.
    already_bytes,
    /// Receiver: packets that came after a higher number.
    late,
    /// Feedbacks taken, or sent.
    feedbacks,
    /// Packets that are none of this rail's: another tag, another kind, cut.
    foreign,
    /// Packets whose tag did not hold.
    forged,
    /// Packets that came twice.
    again,
    /// Receiver: packets that held and found no buf: as if lost.
    no_room,
    /// Errors that a socket told of earlier packets.
    icmp_errors,
    /// Sender: bufs given back before the receiver had all.
    unloaded,
    /// Sender: steps that data packets left in.
    bursts,
    /// Sender: of these, out of memory that the network reads itself.
    lent_bursts,
    /// Sender: chunks read again for a repair.
    reloaded,
    /// Receiver: chunks put into their place before they were whole.
    spilled,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let meter = Meter::default();
        assert_eq!(meter.read(), PathStats::default());
        let stats = PathStats { rate: 7, spilled: 3, ..PathStats::default() };
        meter.write(&stats);
        assert_eq!(meter.read(), stats);
    }
}

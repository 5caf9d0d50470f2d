//! What a datagram rail, or a queue pair, tells of itself while it runs.
//!
//! For: screens, reports, the choice of transport, and tests that must see that memory was short.
//! In and out: one rail writes, anybody reads.
//! Invariants: a reader never stops the writer; each figure is true of some moment of the last turns, figures of one reading may be of two.
//! Absent on purpose: judging, history.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::rate::Snapshot;

use sys::rdma::Counts as PairCounts;

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
    /// Sender: round trip of the empty path, ns; 0: unknown.
    base_rtt_ns,
    /// Sender: one-way delay above the empty path's, ns.
    queue_ns,
    /// Sender: wire bytes that may be on their way; `u64::MAX`: no bound.
    window,
    /// Sender: wire bytes per second that a policer on the path lets through; 0: none was found.
    policer,
    /// Sender: wire bytes that arrived, as the receiver said last.
    delivered_bytes,
    /// Sender: the controller's phase, its first eight letters as bytes.
    phase_begin,
    /// Sender: the next eight.
    phase_end,
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

/// A phase's name as two figures of a meter; letters beyond the sixteenth are lost.
fn phase_words(name: &str) -> (u64, u64) {
    let mut letters = [0; 16];
    let count = name.len().min(letters.len());
    letters[..count].copy_from_slice(&name.as_bytes()[..count]);
    let word = u128::from_le_bytes(letters);
    (word as u64, (word >> 64) as u64)
}

impl PathStats {
    /// With what the controller takes its path for.
    pub(crate) fn with(self, controller: &Snapshot) -> PathStats {
        let (phase_begin, phase_end) = phase_words(controller.phase);
        PathStats {
            base_rtt_ns: controller.base_rtt_ns,
            queue_ns: controller.queue_ns,
            window: controller.window,
            policer: controller.policer.unwrap_or(0),
            phase_begin,
            phase_end,
            ..self
        }
    }

    /// The first letters of the name of the controller's phase, zeros behind it; all are zeros at a receiver.
    #[must_use]
    pub fn phase(&self) -> [u8; 16] {
        (u128::from(self.phase_end) << 64 | u128::from(self.phase_begin)).to_le_bytes()
    }
}

/// What a queue pair tells of itself: figures of its worker's adapter. One writer, many readers.
#[derive(Debug, Default)]
pub struct PairMeter {
    not_ready: AtomicU64,
    regions: AtomicU64,
    registered_bytes: AtomicU64,
}

impl PairMeter {
    /// The figures now.
    #[must_use]
    pub fn read(&self) -> PairCounts {
        let of = |it: &AtomicU64| it.load(Ordering::Relaxed);
        PairCounts {
            not_ready: of(&self.not_ready),
            regions: of(&self.regions),
            registered_bytes: of(&self.registered_bytes),
        }
    }

    pub(crate) fn write(&self, counts: &PairCounts) {
        self.not_ready.store(counts.not_ready, Ordering::Relaxed);
        self.regions.store(counts.regions, Ordering::Relaxed);
        self.registered_bytes.store(counts.registered_bytes, Ordering::Relaxed);
    }
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

    #[test]
    fn the_name_of_a_phase_goes_through_a_meter() {
        for (name, read) in
            [("hold", *b"hold\0\0\0\0\0\0\0\0\0\0\0\0"), ("more than sixteen letters", *b"more than sixtee")]
        {
            let (phase_begin, phase_end) = phase_words(name);
            assert_eq!(PathStats { phase_begin, phase_end, ..PathStats::default() }.phase(), read);
        }
    }
}

//! What a sending end counted.
//!
//! For: reports and tests.
//! In and out: written by `send` and `cover`, read by anybody.
//! Invariants: counts only grow; what is a state says so.
//! Absent on purpose: figures over time (engine's meter).

/// What the sender counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Data packets sent.
    pub packets: u64,
    /// Steps that they were sent in.
    pub bursts: u64,
    /// Unit bytes sent for the first time.
    pub fresh_bytes: u64,
    /// Unit bytes sent again since they were lost.
    pub repair_bytes: u64,
    /// Unit bytes sent again although not known to be lost: copies at the end.
    pub copy_bytes: u64,
    /// Data packets that coverage called lost.
    pub lost_packets: u64,
    /// Words sent.
    pub words: u64,
    /// Of these, asks for a feedback that was lost.
    pub asks: u64,
    /// Feedbacks taken.
    pub feedbacks: u64,
    /// Times the receiver did not know any more what had arrived.
    pub cuts: u64,
    /// Times of silence.
    pub quiets: u32,
    /// Black holes found.
    pub holes: u32,
    /// UDP payload of a data packet now.
    pub packet_bytes: u16,
    /// Smoothed round trip.
    pub rtt_ns: u64,
    /// Rate in force, wire bytes per second.
    pub rate: u64,
    /// Wire bytes on their way.
    pub in_flight: u64,
    /// Records of bursts kept.
    pub runs: usize,
    /// Units not whole at the other end.
    pub units: u32,
    /// Wire bytes that arrived, as the receiver said last.
    pub delivered_bytes: u64,
    /// Recent loss, parts per million of packets.
    pub loss_ppm: u32,
}

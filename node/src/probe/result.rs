//! What a look at a path showed: a round trip, a packet size, a train.
//!
//! For: the forecast (model.rs), and whoever looked (job::udp::packet_train, job::rails).
//! In and out: counts of a packet train → the rate of the narrowest link, losses.
//! Invariants: a train too short or too quick to time has no rate.
//! Absent on purpose: packets (job::udp::packet_train).

use std::time::Duration;

/// A train faster than this was measured by our own processors, not by the path.
pub(crate) const PATH_BPS_MAX: f64 = 8e9;
/// Dispersion of fewer packets says little.
pub(crate) const PACKETS_MIN: u16 = 8;
/// A train that came in less was joined somewhere, or the path is faster than this host sends it: no rate is read from it.
pub(crate) const SPAN_MIN: Duration = Duration::from_micros(100);

/// From here on, 500ths, a train's rate is no measure: a tenth, as of a flow's own train (docs/design/003).
const UNEVEN: u8 = 50;
/// Below this it came evenly.
const EVEN: u8 = 15;

/// What became of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Train {
    /// Packets that left.
    pub sent: u16,
    /// That came.
    pub arrived: u16,
    /// Highest index that came.
    pub last: u16,
    /// From the first to the last.
    pub span: Duration,
    /// UDP payload of each.
    pub packet_bytes: u16,
    /// How far wrong the rate may be, in 500ths of it, and one; 0: that is not known.
    pub doubt: u8,
}

impl Train {
    /// Rate of the narrowest link, bit/s of IP; `None`: faster than can be seen, or too little came.
    #[must_use]
    pub fn rate_bps(&self) -> Option<f64> {
        self.dispersion_bps().filter(|bps| *bps < PATH_BPS_MAX)
    }

    pub(crate) fn dispersion_bps(&self) -> Option<f64> {
        let bits = f64::from(self.arrived.saturating_sub(1)) * f64::from(u32::from(self.packet_bytes) + 28) * 8.0;
        (self.arrived >= PACKETS_MIN && self.span >= SPAN_MIN).then(|| bits / self.span.as_secs_f64())
    }

    /// It came unevenly: something else than the narrowest link drew it out.
    #[must_use]
    pub const fn is_uneven(&self) -> bool {
        self.doubt > 1 + UNEVEN
    }

    /// It came as evenly as a link spreads packets.
    #[must_use]
    pub const fn is_even(&self) -> bool {
        self.doubt > 0 && self.doubt <= EVEN
    }

    /// How far off its packets came, ns: as long as all of it took where they came unevenly; 0: they came evenly, or that is not known.
    #[must_use]
    pub fn jitter_ns(&self) -> u64 {
        let parts = match self.doubt {
            0..=EVEN => 0,
            _ if self.is_uneven() => 500,
            doubt => u64::from(doubt - 1),
        };
        // Of 500, of so many 1,000 ns: a train takes no minutes.
        2 * parts * self.span.as_micros() as u64
    }

    /// Packets lost by chance, and those the buffer had no room for: the end of the train, if all of it is missing.
    #[must_use]
    pub fn lost(&self) -> (u16, u16) {
        if self.arrived == 0 {
            return (self.sent, 0);
        }
        ((self.last + 1).saturating_sub(self.arrived), self.sent.saturating_sub(self.last + 1))
    }
}

/// What a look at the path showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// There and back over UDP.
    pub rtt: Duration,
    /// UDP payload that passed both ways.
    pub packet_bytes: u16,
    /// What became of the train; `None`: nothing came of it.
    pub train: Option<Train>,
}

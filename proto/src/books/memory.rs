//! How often a byte of payload crosses the memory bus of one end, beside the least that it can.
//!
//! For: hosts whose memory, not their network, is the limit: at 100 Gbit/s each crossing is 12.5 GB/s.
//! In and out: what moved, and how much of it went past a copy, in; crossings by step out.
//! Invariants: a copy crosses twice (read, write), a look once, a device's own access once; nothing is taken to have stayed in a cache, so
//! this is the most that the memory has to bear.
//! Absent on purpose: what a disk moves into or out of the page cache (nobody tells a process whether it did), measuring (the host's
//! counters, where they can be read).

use alloc::vec::Vec;

/// Device to memory, memory to device.
pub const LEAST: f64 = 2.0;

/// How payload crossed the memory of one end; bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crossing {
    /// From disk to network; else from network to disk.
    pub sends: bool,
    /// Payload that moved.
    pub moved: u64,
    /// Of it, what a disk read or wrote without the page cache.
    pub direct: u64,
    /// Of it, what the network read from where it lay.
    pub lent: u64,
    /// Of it, what travelled in datagrams.
    pub packets: u64,
    /// It was sealed here, or opened.
    pub sealed: bool,
    /// Of it, what went from the page cache to the network without a buf of ours.
    pub unread: u64,
    /// The sender did not look at it.
    pub bare: bool,
}

impl Crossing {
    /// Crossings per byte, by step, in the order of the data's way; steps without any are left out.
    #[must_use]
    pub fn steps(&self) -> Vec<(&'static str, f64)> {
        let share = |bytes: u64| bytes.min(self.moved) as f64 / self.moved.max(1) as f64;
        let (direct, lent, packets) = (share(self.direct), share(self.lent), share(self.packets));
        let file = direct + 2.0 * (1.0 - direct);
        let cipher = if self.sealed { 2.0 } else { 0.0 };
        let all = if self.sends {
            [
                ("source read", file * (1.0 - share(self.unread))),
                ("digest", if self.bare { 0.0 } else { 1.0 }),
                ("seal", cipher),
                ("network", lent + 3.0 * (1.0 - lent)),
            ]
        } else {
            // A packet's bytes lie beside others' when they come: opening them into their place is the copy, in clear there is one more.
            let place = if self.sealed { 0.0 } else { 2.0 * packets };
            [("network", 3.0), ("open or place", cipher + place), ("digest", 1.0), ("destination write", file)]
        };
        all.into_iter().filter(|(_, times)| *times > 0.0).collect()
    }

    /// Crossings of memory for each byte of payload, all steps together.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.steps().iter().map(|(_, times)| times).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_past_a_copy_takes_its_crossings_off() {
        let plain = Crossing { sends: true, moved: 1000, sealed: true, ..Crossing::default() };
        assert_eq!(plain.steps(), [("source read", 2.0), ("digest", 1.0), ("seal", 2.0), ("network", 3.0)]);
        assert_eq!(Crossing { direct: 1000, ..plain }.sum(), 7.0);
        assert_eq!(Crossing { lent: 500, ..plain }.sum(), 7.0);
        assert_eq!(Crossing { sealed: false, ..plain }.sum(), 6.0);
        let bare = Crossing { bare: true, sealed: false, lent: 1000, unread: 1000, ..plain };
        assert_eq!(bare.steps(), [("network", 1.0)], "with the disk's own access this is the least");
        assert_eq!(Crossing { unread: 500, ..bare }.sum(), 2.0, "half of it could only be read");
        let receiver = Crossing { sends: false, ..plain };
        assert_eq!(receiver.sum(), 8.0);
        assert_eq!(Crossing { packets: 1000, ..receiver }.sum(), 8.0, "opened into its place");
        assert_eq!(Crossing { packets: 1000, sealed: false, ..receiver }.sum(), 8.0);
        assert_eq!(Crossing { sealed: false, direct: 1000, ..receiver }.sum(), 5.0);
        assert_eq!(Crossing { lent: 5000, ..plain }.sum(), 6.0, "what went twice is no more than all");
        assert_eq!(Crossing::default().sum(), 6.0, "of nothing: no division by it");
    }
}

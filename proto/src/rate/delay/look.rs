//! What passed in a while, and what of it arrived.
//!
//! For: the search for a ceiling (`ceiling`).
//! In and out: reports in; shares and rates out.
//! Invariants: no share is outside 0..1.
//! Absent on purpose: what follows from it.

/// What one report shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report {
    pub(super) now_ns: u64,
    /// Bytes that passed since the report before (arrived or lost), and those of them that arrived.
    pub(super) passed: f64,
    pub(super) arrived: f64,
    /// Receiver's clock between the two.
    pub(super) interval_ns: f64,
    pub(super) packet_bytes: f64,
    pub(super) rtt_ns: u64,
    /// Reports come about so far apart.
    pub(super) report_ns: u64,
    pub(super) round_ns: u64,
    /// No queue was seen, as far as jitter lets see one.
    pub(super) queueless: bool,
    /// The sender had nothing to send, or was not allowed to.
    pub(super) limited: bool,
    /// What is sent now, bytes per second.
    pub(super) rate: f64,
}

impl Report {
    /// From then on reports speak only of what left after `since_ns`.
    pub(super) fn echo_ns(&self, since_ns: u64) -> u64 {
        since_ns.saturating_add(self.rtt_ns).saturating_add(self.report_ns).saturating_add(self.interval_ns as u64)
    }
}

/// What passed in a while.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Look {
    pub(super) passed: f64,
    pub(super) arrived: f64,
    /// Receiver's clock, ns.
    pub(super) ns: f64,
    /// A queue was seen in it.
    pub(super) queued: bool,
}

impl Look {
    pub(super) fn add(&mut self, report: &Report) {
        self.passed += report.passed;
        self.arrived += report.arrived;
        self.ns += report.interval_ns;
        self.queued |= !report.queueless;
    }

    pub(super) fn lost(&self) -> f64 {
        (self.passed - self.arrived).max(0.0)
    }

    pub(super) fn share(&self) -> f64 {
        self.lost() / self.passed.max(1.0)
    }

    /// What left, bytes per second: where no queue is, what passed did so as it had left.
    pub(super) fn sent_rate(&self) -> f64 {
        if self.ns > 0.0 { self.passed * 1e9 / self.ns } else { f64::MAX }
    }
}

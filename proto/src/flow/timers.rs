//! Keep-alive, probe timeout and silence: when the sender reports its newest number, asks for missed feedback, and what silence means.
//!
//! For: a lost tail is noticed at once (as by a probe timeout, RFC 9002 section 6.2), a lost feedback is asked for, a dead path and its return
//! are noticed.
//! In and out: sendings and feedback in; "is a control packet due?" and "until when is nothing due?" out.
//! Invariants: silence never sends data again, only control packets; these are spaced, so that a dead path costs a few packets per round trip.
//! Absent on purpose: what is lost (coverage alone says that).

/// Nanoseconds.
const MS: u64 = 1_000_000;
/// From the last data to the first keep-alive, ns: short, since the repair of a lost tail waits for it.
const TELL_FIRST_NS: u64 = MS;
/// Keep-alives are a quarter of the round trip apart within these bounds, ns: after an outage the path's return is seen that soon.
const TELL_NS: (u64, u64) = (2 * MS, 200 * MS);
/// Shortest silence that is reported to the engine, ns: four times the longest distance of feedbacks (50 ms, `receiver::INTERVAL_NS`).
const QUIET_NS_MIN: u64 = 200 * MS;
/// ... and before the first feedback, ns: one and a half times the longest round trip that is served (2 s).
const QUIET_NS_FIRST: u64 = 3_000 * MS;
/// The round-trip time is reported again after this, ns: the packet that carried it may have been lost.
const TOLD_NS: u64 = 1_000 * MS;

/// Timers of control packets and of silence.
#[derive(Debug)]
pub(super) struct Timers {
    /// Last feedback, or the first sending after nothing was on its way.
    heard_ns: u64,
    /// A feedback came at all.
    met: bool,
    rtt_ns: u64,
    /// Last sending of anything.
    sent_ns: u64,
    /// Keep-alives since data was sent.
    tells: u32,
    /// Since when there is silence, and when that is told next.
    quiet: Option<(u64, u64)>,
    quiets: u32,
    ask_from: Option<u64>,
    asked_ns: Option<u64>,
    told_ns: u64,
    told_rtt_ns: u64,
}

impl Timers {
    pub(super) const fn new(now_ns: u64) -> Self {
        Timers {
            heard_ns: now_ns,
            met: false,
            rtt_ns: 0,
            sent_ns: now_ns,
            tells: 0,
            quiet: None,
            quiets: 0,
            ask_from: None,
            asked_ns: None,
            told_ns: 0,
            told_rtt_ns: 0,
        }
    }

    pub(super) const fn rtt_ns(&self) -> u64 {
        self.rtt_ns
    }

    pub(super) const fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    pub(super) const fn quiets(&self) -> u32 {
        self.quiets
    }

    pub(super) const fn met(&self) -> bool {
        self.met
    }

    /// A round trip was measured. Smoothed as TCP does (RFC 6298: 1/8).
    pub(super) fn on_rtt(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1_000);
        self.rtt_ns = if self.rtt_ns == 0 { rtt_ns } else { self.rtt_ns - self.rtt_ns / 8 + rtt_ns / 8 };
    }

    pub(super) fn on_feedback(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.met = true;
        self.quiet = None;
    }

    /// Something leaves now; `waiting`: something else is on its way already.
    pub(super) fn on_sent(&mut self, now_ns: u64, data: bool, waiting: bool) {
        self.sent_ns = now_ns;
        if !waiting {
            self.heard_ns = self.heard_ns.max(now_ns);
        }
        if data {
            self.tells = 0;
        } else {
            self.tells = self.tells.saturating_add(1);
        }
    }

    /// Coverage has a hole before it: ask from there on.
    pub(super) fn want_ask(&mut self, from: u64) {
        self.ask_from = Some(from);
    }

    /// Coverage joins again.
    pub(super) fn no_ask(&mut self) {
        self.ask_from = None;
        self.asked_ns = None;
    }

    fn ask_at_ns(&self) -> u64 {
        match (self.ask_from, self.asked_ns) {
            (None, _) => u64::MAX,
            (Some(_), None) => 0,
            // The answer takes a round trip; asked a little sooner, since either may be lost.
            (Some(_), Some(asked)) => asked + (self.rtt_ns * 3 / 4).max(5 * MS),
        }
    }

    pub(super) fn take_ask(&mut self, now_ns: u64) -> Option<u64> {
        if self.ask_at_ns() > now_ns {
            return None;
        }
        self.asked_ns = Some(now_ns);
        self.ask_from
    }

    fn tell_gap_ns(&self) -> u64 {
        let gap = (self.rtt_ns / 4).clamp(TELL_NS.0, TELL_NS.1);
        if self.rtt_ns == 0 { 50 * MS } else { gap.min(TELL_FIRST_NS << self.tells.min(10)) }
    }

    /// When to say how far we are, while data waits for its answer and none follows it.
    pub(super) fn tell_at_ns(&self) -> u64 {
        self.sent_ns + self.tell_gap_ns()
    }

    /// The receiver does not know the round trip yet, or another one, or may not have heard.
    pub(super) fn is_rtt_news(&self, now_ns: u64) -> bool {
        let (told, rtt) = (self.told_rtt_ns, self.rtt_ns);
        rtt > 0
            && (told == 0
                || now_ns - self.told_ns >= TOLD_NS.max(rtt * 4)
                || (rtt.abs_diff(told) > told / 4 && now_ns - self.told_ns > rtt / 2))
    }

    pub(super) fn on_told(&mut self, now_ns: u64) {
        self.told_ns = now_ns;
        self.told_rtt_ns = self.rtt_ns;
    }

    /// How long the receiver may say nothing: three round trips, and 16 packets at the rate in force, since it speaks of packets.
    fn patience_ns(&self, packet_ns: u64) -> u64 {
        let least = if self.met { QUIET_NS_MIN } else { QUIET_NS_FIRST };
        (self.rtt_ns * 3).max(packet_ns.saturating_mul(16)).max(least)
    }

    /// When silence begins, or is told again.
    pub(super) fn quiet_at_ns(&self, packet_ns: u64) -> u64 {
        self.quiet.map_or(self.heard_ns.saturating_add(self.patience_ns(packet_ns)), |(_, next)| next)
    }

    /// Packets wait for an answer. Since when, if that is to be told now.
    pub(super) fn take_quiet(&mut self, now_ns: u64, packet_ns: u64) -> Option<u64> {
        if now_ns < self.quiet_at_ns(packet_ns) {
            return None;
        }
        if self.quiet.is_none() {
            self.quiets += 1;
        }
        let long = now_ns - self.heard_ns;
        self.quiet = Some((self.heard_ns, now_ns.saturating_add(long)));
        Some(self.heard_ns)
    }

    /// When an ask, silence or nothing of this is due next.
    pub(super) fn next_at_ns(&self) -> u64 {
        self.ask_at_ns()
    }
}

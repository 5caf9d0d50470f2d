//! Control packets of the sending end: packets without data.
//!
//! For: which control packet is due, and until when none is.
//! In and out: the sender's state and the time in; a control step or a wait out.
//! Invariants: a control packet has a number like any packet; a wait never lies in the past.
//! Absent on purpose: the timers themselves (`timers`), sizes to probe (`mtu`).

use super::Step;
use super::flight::{Cargo, Run};
use super::sender::{FlowSender, Last};
use crate::packet::Control;

/// Longest path MTU probe (divisor of the rate): what the rate sends in 1/32 s, at least an Ethernet frame.
const PROBE_SHARE: u64 = 32;

/// Shortest distance of window probes, ns: a sender without a grant asks for one, as TCP does (RFC 9293, 3.8.6.1).
const WINDOW_PROBE_NS_MIN: u64 = 20_000_000;

impl FlowSender {
    /// The next control packet that is due.
    pub(super) fn next_control(&mut self, now_ns: u64) -> Option<Control> {
        if let Some(from) = self.timers.take_ask(now_ns) {
            self.stats.asks += 1;
            return Some(Control::Ask { from });
        }
        // The path must have answered once before it is asked for more, and be asked only while there is something to send.
        if self.timers.met() && !self.timers.is_quiet() && self.flight.has_data() {
            if self.timers.is_rtt_news(now_ns) {
                return Some(self.tell());
            }
            let bytes_max = (self.controller.rate() / PROBE_SHARE).max(1500);
            if let Some((bytes, token)) = self.search.next_probe(now_ns, bytes_max) {
                return Some(Control::Probe { bytes, token });
            }
        }
        if self.flight.is_waiting() && now_ns >= self.timers.tell_at_ns() && !self.is_data_next(now_ns) {
            return Some(self.tell());
        }
        if self.is_window_closed() && now_ns >= self.window_probe_at_ns() {
            return Some(self.tell());
        }
        // `Close` goes after all data was acknowledged.
        if self.closing && !self.flight.has_data() && self.units.open() == 0 {
            self.closing = false;
            return Some(Control::Close);
        }
        None
    }

    fn tell(&self) -> Control {
        Control::Tell { newest: self.flight.next().saturating_sub(1), rtt_us: self.timers.rtt_ns().div_ceil(1000) }
    }

    /// Will data follow by itself, so that no keep-alive is needed?
    fn is_data_next(&mut self, now_ns: u64) -> bool {
        let open = self.flight.bytes() + self.wire_packet() <= self.controller.window();
        open && self.is_soon(now_ns, self.next_send_ns) && !self.timers.is_quiet() && self.pick().is_some()
    }

    /// All that was granted has arrived and nothing is in flight: if the feedback with a larger grant was lost, only this end can ask for it.
    fn is_window_closed(&self) -> bool {
        !self.ended && self.granted <= self.units.next() && self.units.open() == 0 && !self.flight.is_waiting()
    }

    /// When to ask again.
    fn window_probe_at_ns(&self) -> u64 {
        self.timers.tell_at_ns().saturating_add(self.timers.rtt_ns().max(WINDOW_PROBE_NS_MIN))
    }

    /// Is a packet that leaves then as good as a control packet now?
    fn is_soon(&self, now_ns: u64, send_ns: u64) -> bool {
        send_ns.saturating_sub(now_ns) < self.timers.rtt_ns().max(1_000_000)
    }

    pub(super) fn send_control(&mut self, now_ns: u64, body: Control) -> Step {
        let (cargo, bytes) = match body {
            Control::Probe { bytes, .. } => (Cargo::Probe, bytes),
            _ => (Cargo::Control, 0),
        };
        if matches!(body, Control::Tell { .. }) {
            self.timers.on_told(now_ns);
        }
        let waiting = self.flight.is_waiting();
        if !waiting {
            // Only control packets were in flight: their records shall not pile up while nobody answers.
            self.flight.skip_control();
        }
        let run = Run {
            first: 0,
            sent_ns: now_ns,
            packets: 1,
            unit: 0,
            offset: 0,
            bytes: u32::from(bytes),
            payload: 0,
            cargo,
            repair: false,
            superseded_below: 0,
            copies: 0,
            before: 0,
        };
        let number = self.flight.push(run);
        self.timers.on_sent(now_ns, false, waiting);
        self.stats.words += 1;
        if cargo == Cargo::Probe {
            self.last = Last::Probe { number, bytes };
        }
        Step::Control { number, body }
    }

    /// Nothing now: when to ask again.
    pub(super) fn wait(&mut self, now_ns: u64, send_ns: u64) -> Step {
        let mut until_ns = send_ns.min(self.timers.next_at_ns());
        if self.flight.is_waiting() {
            until_ns = until_ns.min(self.timers.quiet_at_ns(self.packet_ns()));
            if !self.is_soon(now_ns, send_ns) {
                until_ns = until_ns.min(self.timers.tell_at_ns());
            }
        } else if self.is_window_closed() {
            until_ns = until_ns.min(self.window_probe_at_ns());
        }
        Step::Wait { until_ns: until_ns.max(now_ns + 1) }
    }
}

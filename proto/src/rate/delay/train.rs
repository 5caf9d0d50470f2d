//! Train: what a start's packet train shows of the path.
//!
//! For: the `delay` controller's start.
//! In and out: signals in; the link's rate, and with it a flight, a climb or another train, out.
//! Invariants: only what was seen spread out by the bottleneck is a rate of its (Keshav 1991); under jitter no more of a train is taken than is needed.
//! Absent on purpose: what a flight of the rate that was found shows (`delay`).

use super::{Delay, OBSERVE_NOISE_MULTIPLE, Phase, QUEUE_ALONE_NS};
use crate::rate::path::rate_of;
use crate::rate::{Policy, Signal, TRAIN_PACKETS};

/// Packet trains without an echo before the start goes on without one.
const TRIES: u32 = 3;
/// So much of a train is known to be lost where the start goes on without trains.
const TRAIN_LOST: f64 = 0.7;
/// Share of a train that must be seen spread out: under jitter the rest only blurs the rate.
const TRAIN_SHARE_MIN: f64 = 0.4;
/// So many packets that come far slower than they left, beside a queue, show the rate behind a bucket.
const BEHIND_PACKETS: f64 = 8.0;

impl Delay {
    /// What left closer together than it arrived: a train. Only arrivals count: packets that found a queue full took no time of the link.
    fn disperse(&mut self, signal: &Signal) {
        if signal.sent_interval_ns < signal.interval_ns / 2 {
            self.train_bytes += signal.interval_bytes as f64;
            self.train_ns += signal.interval_ns as f64;
            self.gaps.push(self.passing, signal.interval_ns as f64);
        }
    }

    /// The rate at which the train came, if it was seen spread out.
    fn train_rate(&self) -> Option<f64> {
        let two_packets = 1.5 * f64::from(self.config.packet_bytes);
        rate_of(self.train_bytes as u64, self.train_ns as u64).filter(|_| self.train_bytes >= two_packets)
    }

    /// The start went on without a train; the next one, longer, may have been seen.
    pub(super) fn late_echo(&mut self, signal: &Signal) -> bool {
        if self.link > 0.0 {
            return false;
        }
        self.disperse(signal);
        let Some(rate) = self.train_rate() else { return false };
        let enough = TRAIN_SHARE_MIN * f64::from(self.train_packets) * f64::from(self.config.packet_bytes);
        if self.train_bytes < enough || rate <= self.rate {
            return self.found_behind_bucket(signal, rate);
        }
        self.link = rate;
        self.rate = self.weight().first * rate;
        self.phase = Phase::Verify { since_ns: signal.now_ns };
        true
    }

    /// A shaper's bucket passed what was sent until now, and is empty: what comes now comes at the rate behind it, and a queue grows. That is known long
    /// before the echo of what is being sent. What waits is given back.
    fn found_behind_bucket(&mut self, signal: &Signal, rate: f64) -> bool {
        let since_ns = signal.now_ns.saturating_sub(self.path.report_ns().saturating_mul(2));
        let queue = self.path.queue_least(since_ns, signal.now_ns);
        let few = self.train_bytes < BEHIND_PACKETS * f64::from(self.config.packet_bytes);
        if few
            || 2.0 * rate > self.rate
            || queue < 4.0 * QUEUE_ALONE_NS + OBSERVE_NOISE_MULTIPLE * self.path.start_noise_ns()
        {
            return false;
        }
        self.link = rate;
        self.goal = 0.98 * rate;
        self.full = self.goal;
        self.rate = self.goal;
        self.stepped_ns = signal.now_ns;
        self.jumped_arrival_ns = self.arrival_ns;
        self.flight_bytes = 0.0;
        self.starting = false;
        self.drain.shed(signal.now_ns, queue);
        self.phase = Phase::Steady;
        true
    }

    /// A train left back to back and arrives spread out: by how much is the bottleneck's rate.
    pub(super) fn on_echo(&mut self, signal: &Signal) {
        if !self.path.known() {
            return;
        }
        let packet = f64::from(self.config.packet_bytes);
        let train = packet * f64::from(TRAIN_PACKETS);
        // Under jitter the rest of the train only blurs the rate.
        if self.train_bytes < TRAIN_SHARE_MIN * train {
            self.disperse(signal);
        }
        if core::mem::take(&mut self.silent) && self.goal_before > 0.05 * self.link {
            // What was seen across the silence is no measure of anything after it.
            self.path.resume();
            self.passed.clear();
            self.came.clear();
            // The path is back, perhaps another one. Half of what it carried, then what the echo says; trains sent into the silence are gone.
            self.rate = 0.5 * self.goal_before;
            self.flight_bytes = 0.0;
            self.phase = Phase::Verify { since_ns: signal.now_ns };
            return;
        }
        self.lost_at_start += signal.lost as f64;
        let came = signal.delivered.saturating_sub(self.delivered_from) as f64;
        // On a slow link half a train takes so long that there is no need to wait for the rest.
        let slow = self.train_ns > self.path.rtt_ns() as f64 / 4.0 && self.train_bytes > train / 4.0;
        // A receiver may tell of each packet by itself, or of all at once: what was seen spread out counts, and else the train's end.
        let over = self.sent.saturating_sub(self.sent_from) as f64 > 0.9 * train;
        let enough = self.train_bytes >= TRAIN_SHARE_MIN * train || (over && came > train / 3.0);
        if !enough && !slow {
            let late = signal.now_ns.saturating_sub(self.stepped_ns) > self.path.rtt_ns().saturating_mul(3) / 2;
            if !late && self.lost_at_start < TRAIN_LOST * train {
                return;
            }
            // What neither came nor is on its way was never sent.
            let gone = self.lost_at_start + signal.in_flight as f64;
            if came <= (1.0 - TRAIN_LOST) * train && gone >= TRAIN_LOST * train {
                // Most of it was lost: a bucket, or a queue, holds less.
                self.link = self.train_rate().unwrap_or(self.link);
                self.climb(signal.now_ns);
                return;
            }
            if self.tries < TRIES {
                if late {
                    self.send_train_again(signal.now_ns);
                }
                return;
            }
        }
        let seen = self.train_rate();
        // No dispersion seen: what a doubling window would do, from the train's size.
        let blind = 2.0 * packet * f64::from(TRAIN_PACKETS) * 1e9 / self.path.rtt_ns() as f64;
        self.link = seen.unwrap_or(self.link);
        let rate = seen.map_or(blind, |rate| self.weight().first * rate);
        if self.start_blurred(signal, seen.unwrap_or(0.0).max(blind)) {
            return;
        }
        let rtt = self.path.rtt_ns() as f64;
        if seen.is_some_and(|rate| train * 1e9 > rtt / 4.0 * rate) && self.config.policy != Policy::Low {
            // The train has the link for a quarter of a round trip: beside others it would come at our share.
            self.found_by_train(signal.now_ns, train);
            return;
        }
        self.launch(signal.now_ns, self.first_flight(), rate);
    }

    /// Too few came to say anything: once more. What came tells how fast a packet goes through: the next ones need not be a tenth of a second apart.
    fn send_train_again(&mut self, now_ns: u64) {
        self.tries += 1;
        let by_round = 2.0 * f64::from(self.config.packet_bytes) * 1e9 / self.path.rtt_ns() as f64;
        let seen = self.train_rate().unwrap_or(0.0);
        self.restart(now_ns);
        self.rate = self.rate.max(by_round.min(seen / 2.0));
    }

    /// A train took so long that its rate is the link's, or our share of it. What of it does not fit into the path waits in the queue: that is given back.
    fn found_by_train(&mut self, now_ns: u64, train: f64) {
        self.goal = 0.98 * self.link;
        self.rate = self.goal;
        self.full = self.goal;
        self.stepped_ns = now_ns;
        let waits = train * 1e9 / self.link.max(1.0) - self.path.rtt_ns() as f64;
        if waits > QUEUE_ALONE_NS {
            self.drain.shed(now_ns, waits);
            self.rate *= 0.5;
            self.starting = false;
            self.phase = Phase::Steady;
        } else {
            self.phase = Phase::Hold { until_ns: now_ns.saturating_add(self.path.rtt_ns()) };
        }
    }
}

//! When the queue is let run dry, and for how long.
//!
//! For: `delay`. A queue that never empties becomes the base of whoever comes late, and he would keep his own queue above it.
//! In and out: time, queue and share in; the part of the rate to hold back out.
//! Invariants: never more than half is held back, never longer than two rounds; alone on a path the link idles for the dig only.
//! Absent on purpose: agreement between flows by anything but the queue: who sees it fall helps.

use super::path::Path;

/// Every so many rounds, and no more often than so many nanoseconds.
const ROUNDS: u64 = 20;
const PAUSE_NS: u64 = 1_000_000_000;
/// By holding back so much of the rate at most.
const PART_MAX: f64 = 0.5;
/// The part held back while a start on a busy path is paid for.
const PAY: f64 = 0.9;
/// Who sees the queue fall by this part, and by more than jitter makes it, sees somebody drain it: one of eight cannot take more off it.
const JOIN: f64 = 0.1;
/// A queue longer than a crowd of ours keeps falls because it is worked off: only below this part of it somebody drains it.
const CROWD_NS: f64 = 12_000_000.0;
const JOIN_DEEP: f64 = 0.4;
/// What is dug beyond the queue that is seen, nanoseconds of the link: for the error of seeing.
const DIG_NS: f64 = 300_000.0;

#[derive(Debug, Clone)]
pub(super) struct Drain {
    from_ns: u64,
    until_ns: u64,
    part: f64,
    count: u32,
    /// 0..128.
    chance: u64,
    dig_ns: f64,
    queue_usual: f64,
    /// The least one-way delay known when the last one began; taken when it is judged.
    base_before: Option<i64>,
    /// What it holds back, nanoseconds of the link, and how late packets were before its echo.
    held_ns: f64,
    late_ns: Option<f64>,
}

impl Drain {
    pub(super) const fn new(now_ns: u64) -> Self {
        Self {
            from_ns: now_ns,
            until_ns: now_ns,
            part: 0.0,
            count: 0,
            chance: 0,
            dig_ns: DIG_NS,
            queue_usual: 0.0,
            base_before: None,
            held_ns: 0.0,
            late_ns: None,
        }
    }

    /// A rate was tried that others had: what it put into the queue is given back for a round.
    pub(super) fn pay(&mut self, now_ns: u64, span_ns: u64) {
        self.part = PAY;
        self.from_ns = now_ns;
        self.until_ns = now_ns.saturating_add(span_ns);
        self.count = self.count.max(1);
    }

    pub(super) fn running(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// What arrives now left while a drain was on.
    pub(super) fn echoes(&self, path: &Path, now_ns: u64) -> bool {
        let rtt = path.rtt_ns();
        let until = self.until_ns.saturating_add(rtt).saturating_add(path.report_ns());
        self.count > 0 && (self.from_ns.saturating_add(rtt)..=until).contains(&now_ns)
    }

    /// The part of the rate to hold back now. `low`: a scavenger, which takes the word of no drain for more room.
    pub(super) fn held_back(&mut self, path: &mut Path, now_ns: u64, queue_ns: f64, share: f64, low: bool) -> f64 {
        let echo_ns = self.from_ns.saturating_add(path.rtt_ns());
        if self.late_ns.is_none() && self.held_ns > 0.0 && now_ns >= echo_ns {
            self.late_ns = path.late_mean(echo_ns.saturating_sub(path.round_ns()), echo_ns);
        }
        if self.running(now_ns) {
            if self.part <= PART_MAX && queue_ns < self.queue_usual / 16.0 {
                self.until_ns = now_ns; // the echo shows it empty: more would idle the link
                return 0.0;
            }
            // Paying goes on while the delay still falls: what a newcomer found at the start was no empty path.
            let paid =
                now_ns.saturating_sub(self.from_ns.max(path.base_fell_ns())) > path.round_ns().saturating_mul(3) / 2;
            if self.part > PART_MAX && paid {
                self.until_ns = now_ns;
                return 0.0;
            }
            return self.part;
        }
        let round = path.round_ns();
        self.queue_usual += (queue_ns - self.queue_usual) * 0.02;
        self.judge(path, now_ns);
        let since = now_ns.saturating_sub(self.until_ns);
        // Someone else drains: help, all at once it costs nobody.
        let dip = self.queue_usual - queue_ns;
        let part = if self.queue_usual < CROWD_NS { JOIN } else { 1.0 - JOIN_DEEP };
        let fell = dip > part * self.queue_usual + 3.0 * path.noise_ns();
        let join = fell && self.queue_usual > 500_000.0 && since > 8 * round;
        // A newcomer has seen no empty path yet, and who has just found a lower base may find a still lower one.
        let soon = self.count < 2 || self.dig_ns > DIG_NS || (path.doubtful() && round <= 2 * path.rtt_ns());
        // Up to half longer, by chance: one begins, the others see it and help, instead of all beginning at once.
        let pause = if soon { 3 * round } else { (ROUNDS * round).max(PAUSE_NS) / 256 * (256 + self.chance) };
        if !join && since <= pause {
            return 0.0;
        }
        let need = if join { queue_ns } else { (1.1 * queue_ns + self.dig_ns + path.haze_ns() / 2.0) / share };
        let span = (need / PART_MAX).max(path.report_ns() as f64).clamp(1.0, 2.0 * round as f64);
        self.part = (need / span).min(PART_MAX);
        self.from_ns = now_ns;
        self.until_ns = now_ns.saturating_add(span as u64);
        self.count = self.count.saturating_add(1);
        // Knuth's multiplicative hash: flows differ in their shares, and so in the digits.
        self.chance = (share.to_bits() >> 16).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 57;
        self.base_before = Some(path.base_one_way_ns());
        self.late_ns = None;
        self.held_ns = if join || low { 0.0 } else { self.part * span * share };
        self.part
    }

    /// Its echo is over: a base that fell shows that we took someone's standing queue for the empty path. Dig deeper.
    fn judge(&mut self, path: &mut Path, now_ns: u64) {
        let after_ns = self.until_ns.saturating_add(path.rtt_ns());
        let over = after_ns.saturating_add((2 * path.report_ns()).max(path.round_ns() / 2));
        let Some(before) = self.base_before.filter(|_| now_ns > over) else { return };
        self.base_before = None;
        if let (Some(late), Some(after)) = (self.late_ns, path.late_mean(after_ns, now_ns)) {
            path.drained(self.held_ns, late, after);
        }
        self.held_ns = 0.0;
        let fell = before.saturating_sub(path.base_one_way_ns()) as f64;
        // Jitter lowers the base by chance.
        self.dig_ns = if fell > 0.3 * self.dig_ns + path.noise_ns() {
            (4.0 * self.dig_ns).min(path.round_ns() as f64 / 4.0).max(DIG_NS)
        } else {
            DIG_NS
        };
    }
}

//! When a running job is to try the other transport, and which of the two it keeps.
//!
//! For: `--transport auto`, after the first choice: a forecast that was wrong, or a path that changed.
//! In and out: what the last window showed in; what to open, and then what to keep, out.
//! Invariants: pure; no more than one trial at a time; a trial that brought nothing makes the next one wait twice as long, so a job does
//! not flap; what is kept is what was measured to carry more, whatever was expected.
//! Absent on purpose: measuring and opening rails (the job driver), expecting (forecast).

use super::forecast::Carry;

/// Below this part of what was expected, and
const SHORT_OF: f64 = 0.7;
/// above this multiple of what is had, the other transport is worth a trial,
const TEMPTING: f64 = 1.3;
/// if it was so for so many windows.
const WINDOWS_BAD: u32 = 2;
/// A trial has one window to start up, and is judged by so many more.
const WINDOWS_JUDGED: u32 = 2;
/// It must bring so much more in all.
const GAIN: f64 = 1.1;
/// Whoever carries less than this is not kept beside the other: its last chunks would be what the job waits for.
const SHARE_MIN: f64 = 0.25;
/// A job that ends within so many windows is left alone.
const WINDOWS_LEFT: f64 = 5.0;
/// Pause after a trial, seconds; twice as long after each that brought nothing.
const REST_S: f64 = 10.0;
const REST_S_MAX: f64 = 320.0;

/// What one window showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Since the job began, seconds.
    pub now_s: f64,
    /// How long it was.
    pub window_s: f64,
    /// Payload, bit/s, in all.
    pub total_bps: f64,
    /// Of this over datagrams.
    pub udp_bps: f64,
    /// What the other transport alone is expected to carry now; 0: not known.
    pub other_bps: f64,
    /// Neither a disk nor a cap holds the job.
    pub by_network: bool,
    /// How long the rest takes at this rate; infinite if that is not known.
    pub left_s: f64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Act {
    /// Nothing.
    Stay,
    /// Open rails of this kind beside those that run.
    Try(Carry),
    /// The trial is over: from now on this, which carried so much, where it was that much before.
    Keep { carry: Carry, before_bps: f64, after_bps: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    Steady { bad: u32 },
    Trial { before_bps: f64, seen: u32, total_bps: f64, udp_bps: f64 },
}

/// Rates of both transports of a running job, and when the other one is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steer {
    carry: Carry,
    expected_bps: f64,
    phase: Phase,
    rest_s: f64,
    rest_until_s: f64,
}

impl Steer {
    /// A job that begins with `carry`, of which so much is expected.
    #[must_use]
    pub fn new(carry: Carry, expected_bps: f64) -> Steer {
        Steer { carry, expected_bps, phase: Phase::Steady { bad: 0 }, rest_s: REST_S, rest_until_s: 0.0 }
    }

    /// What carries, or what is tried beside what.
    #[must_use]
    pub fn carry(&self) -> Carry {
        if matches!(self.phase, Phase::Trial { .. }) { Carry::Both } else { self.carry }
    }

    /// The other transport is there again: trials may begin.
    pub fn freed(&mut self) {
        self.rest_until_s = 0.0;
    }

    /// A transport is gone: nothing is left to choose.
    pub fn forced(&mut self, carry: Carry) {
        (self.carry, self.phase, self.rest_until_s) = (carry, Phase::Steady { bad: 0 }, f64::INFINITY);
    }

    /// A window is over.
    pub fn on_window(&mut self, window: &Window) -> Act {
        match self.phase {
            Phase::Steady { bad } => self.steady(window, bad),
            Phase::Trial { before_bps, seen, total_bps, udp_bps } => {
                // The first window is the start-up of what was opened.
                let counts = if seen == 0 { 0.0 } else { 1.0 };
                let (total_bps, udp_bps) = (total_bps + counts * window.total_bps, udp_bps + counts * window.udp_bps);
                if seen == WINDOWS_JUDGED {
                    return self.judge(window.now_s, before_bps, total_bps, udp_bps);
                }
                self.phase = Phase::Trial { before_bps, seen: seen + 1, total_bps, udp_bps };
                Act::Stay
            }
        }
    }

    fn steady(&mut self, window: &Window, bad: u32) -> Act {
        // The last window alone: the one before may have been before the path changed.
        let before_bps = window.total_bps;
        let short = window.total_bps < SHORT_OF * self.expected_bps;
        let tempting = window.other_bps > TEMPTING * window.total_bps;
        let bad = if window.by_network && (short || tempting) { bad + 1 } else { 0 };
        self.phase = Phase::Steady { bad };
        let may = window.now_s >= self.rest_until_s && window.left_s > WINDOWS_LEFT * window.window_s;
        let other = match self.carry {
            Carry::Tcp => Carry::Udp,
            Carry::Udp => Carry::Tcp,
            Carry::Both => return Act::Stay,
        };
        if bad < WINDOWS_BAD || !may {
            return Act::Stay;
        }
        self.phase = Phase::Trial { before_bps, seen: 0, total_bps: 0.0, udp_bps: 0.0 };
        Act::Try(other)
    }

    fn judge(&mut self, now_s: f64, before_bps: f64, total_bps: f64, udp_bps: f64) -> Act {
        let after_bps = total_bps / f64::from(WINDOWS_JUDGED);
        let share = if total_bps > 0.0 { udp_bps / total_bps } else { 0.0 };
        let carry = if after_bps < GAIN * before_bps {
            self.rest_s = (self.rest_s * 2.0).min(REST_S_MAX);
            self.carry
        } else if share < SHARE_MIN {
            Carry::Tcp
        } else if share > 1.0 - SHARE_MIN || self.carry == Carry::Tcp {
            // Streams that needed help are not kept beside: what they have in hand is what the job would wait for at its end.
            Carry::Udp
        } else {
            Carry::Both
        };
        let kept_bps = if carry == self.carry { before_bps } else { after_bps };
        (self.carry, self.expected_bps) = (carry, kept_bps);
        (self.phase, self.rest_until_s) = (Phase::Steady { bad: 0 }, now_s + self.rest_s);
        Act::Keep { carry, before_bps, after_bps }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn window(now_s: f64, total_bps: f64, udp_bps: f64, other_bps: f64) -> Window {
        Window { now_s, window_s: 1.0, total_bps, udp_bps, other_bps, by_network: true, left_s: 1000.0 }
    }

    /// Plays windows of a second; `path(carry)` says what (all, UDP) carry. What was done, and when.
    fn play(steer: &mut Steer, from: u32, to: u32, other: f64, path: impl Fn(Carry) -> (f64, f64)) -> Vec<(u32, Act)> {
        let mut acts = Vec::new();
        for second in from..to {
            let (total, udp) = path(steer.carry());
            match steer.on_window(&window(f64::from(second), total, udp, other)) {
                Act::Stay => {}
                act => acts.push((second, act)),
            }
        }
        acts
    }

    #[test]
    fn a_transport_that_does_what_was_expected_is_left_alone() {
        for carry in [Carry::Tcp, Carry::Udp, Carry::Both] {
            let mut steer = Steer::new(carry, 1e9);
            assert_eq!(play(&mut steer, 0, 100, 0.9e9, |_| (0.8e9, 0.0)), []);
        }
    }

    #[test]
    fn streams_that_lose_are_left_for_datagrams() {
        let mut steer = Steer::new(Carry::Tcp, 0.9e9);
        let path = |carry| if carry == Carry::Tcp { (0.05e9, 0.0) } else { (0.9e9, 0.85e9) };
        let acts = play(&mut steer, 0, 60, 0.0, path);
        assert_eq!(acts.len(), 2, "{acts:?}");
        assert_eq!(acts[0], (1, Act::Try(Carry::Udp)));
        assert_eq!(acts[1], (4, Act::Keep { carry: Carry::Udp, before_bps: 0.05e9, after_bps: 0.9e9 }));
    }

    #[test]
    fn datagrams_that_are_throttled_are_left_for_streams() {
        let mut steer = Steer::new(Carry::Udp, 0.9e9);
        let path = |carry| if carry == Carry::Udp { (0.1e9, 0.1e9) } else { (0.8e9, 0.1e9) };
        let acts = play(&mut steer, 0, 60, 0.0, path);
        assert!(matches!(acts[..], [(_, Act::Try(Carry::Tcp)), (_, Act::Keep { carry: Carry::Tcp, .. })]), "{acts:?}");
    }

    #[test]
    fn streams_that_needed_help_are_not_kept_beside_it() {
        let mut steer = Steer::new(Carry::Tcp, 0.9e9);
        let path = |carry| if carry == Carry::Tcp { (0.05e9, 0.0) } else { (0.08e9, 0.04e9) };
        let acts = play(&mut steer, 0, 60, 0.0, path);
        assert!(matches!(acts[..2], [_, (_, Act::Keep { carry: Carry::Udp, .. })]), "{acts:?}");
    }

    #[test]
    fn both_stay_where_each_brings_its_part() {
        let mut steer = Steer::new(Carry::Udp, 5e9);
        let path = |carry| if carry == Carry::Udp { (2e9, 2e9) } else { (3.5e9, 1.7e9) };
        let acts = play(&mut steer, 0, 60, 0.0, path);
        assert!(matches!(acts[..], [_, (_, Act::Keep { carry: Carry::Both, .. })]), "{acts:?}");
    }

    #[test]
    fn a_slow_path_that_is_slow_for_both_makes_no_job_flap() {
        let mut steer = Steer::new(Carry::Tcp, 1e9);
        // The forecast goes on tempting, and is wrong each time.
        let acts = play(&mut steer, 0, 600, 1e9, |carry| (0.1e9, if carry == Carry::Both { 0.05e9 } else { 0.0 }));
        let tries = acts.iter().filter(|(_, act)| matches!(act, Act::Try(_))).count();
        assert!((2..=6).contains(&tries), "{tries} trials in ten minutes");
        assert_eq!(steer.carry(), Carry::Tcp);
    }

    #[test]
    fn a_disk_a_short_rest_and_a_lost_transport_are_no_reason() {
        let slow = |_| (0.01e9, 0.0);
        let mut steer = Steer::new(Carry::Tcp, 1e9);
        for second in 0..20 {
            let disk = Window { by_network: false, ..window(f64::from(second), 0.01e9, 0.0, 1e9) };
            assert_eq!(steer.on_window(&disk), Act::Stay);
            let ends = Window { left_s: 4.0, ..window(f64::from(second), 0.01e9, 0.0, 1e9) };
            assert_eq!(steer.on_window(&ends), Act::Stay);
        }
        let mut steer = Steer::new(Carry::Udp, 1e9);
        steer.forced(Carry::Tcp);
        assert_eq!(play(&mut steer, 0, 100, 1e9, slow), []);
        steer.freed();
        assert_eq!(play(&mut steer, 100, 102, 1e9, slow)[0].1, Act::Try(Carry::Udp), "it is there again");
    }
}

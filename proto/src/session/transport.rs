//! Choice of transport (`--transport auto`): one decision before data moves, and trials while the job runs.
//!
//! For: jobs whose user leaves the choice between TCP and UDP to the program.
//! In and out: the answer of a path probe, meters and TCP's counters in; the transport that is wanted, with the figures for its reason, out.
//! Invariants: a job waits `LOOK` or `LOOK_RTTS` round trips at most for the path probe, and a small job only if its early greeting was sent;
//! after a transport failed for good nothing is tried any more.
//! Absent on purpose: equations (forecast), hysteresis (trial), opening rails and reading counters (the job driver).

pub mod duplicate; // the session's bytes a second time, in datagrams
pub mod greeting; // when greetings go, and when UDP does not get through
pub mod forecast; // equations: what each transport would carry
pub mod trial; // trials of the other transport while a job runs

use core::time::Duration;

use super::Moment;
use crate::books::{STAGES, Stage};
use forecast::{Carry, Forecast, Host, SMALL_BYTES, View, forecast};
use trial::{Act, Steer, Window};

/// Below this round trip TCP begins without a path probe: a loss costs little time there, and TCP's offloads are worth more
/// (docs/design/004-auto-and-migration.md).
pub const SHORT_RTT: Duration = Duration::from_millis(1);
/// The longest wait for a path probe: this time, or so many round trips where these are longer (the greeting, its size, the packet train and its
/// echo). Measured over 155 Mbit/s and 550 ms: with one second alone the job went over TCP in 18 s, with five round trips over UDP in 5 s.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_RTTS: u32 = 5;
/// A greeting that was sent ahead of the plan and has no answer yet is waited for so long: it left with the question that the plan was the answer to,
/// and once more 10 ms after it (`greeting`). After an answer a small job waits so many round trips more for the packet train (one for the train, one
/// for its echo).
const LOOK_SMALL: Duration = Duration::from_millis(30);
const LOOK_SMALL_RTTS: u32 = 2;
/// So much sooner must what is left come over UDP for a job that began over TCP to change: its streams owe chunks, which are waited for.
const LATE_WORTH: f64 = 1.3;
/// Over a short path TCP that loses no more than one packet in so many, its own overflows of a queue, is left alone however little it carries:
/// something else bounds it.
const NEAR_PACKETS_PER_LOSS: u64 = 1000;
/// Length of a window of the running job: this time, or so many round trips where these are longer, so that each window holds several feedbacks.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_RTTS: u32 = 10;

/// Where the choice stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nothing was asked yet. to: Look, Run.
    Begin,
    /// A path probe was asked for at this moment. from: Begin. to: Run.
    Look(Moment),
    /// Data moves. from: Begin, Look.
    Run(Steer),
}

/// What is known before data moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Before {
    /// What came of the path probe; `None`: no answer yet.
    pub look: Option<Look>,
    /// Bytes of the whole job; `None` while the source is still being scanned.
    pub bytes: Option<u64>,
    /// Whether a greeting sent ahead of the plan was answered; `None`: none was sent.
    pub early_answered: Option<bool>,
    /// The acceptor looked at its storage before it knew of the job's rails: the first greeting came too early there, and the second is waited for.
    pub is_storage_looked_at: bool,
}

/// What came of a path probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Look {
    /// The path as the probe measured it.
    Seen(View),
    /// No datagram got through.
    Failed,
}

/// What is to be done before data moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum First {
    /// Nothing yet, or the choice was made before.
    Wait,
    /// Probe the path.
    Look,
    /// Open rails for `forecast.carry`.
    Decided {
        /// What is expected of each transport, and the choice.
        forecast: Forecast,
        /// The path as it was known.
        view: View,
        /// All was known that a path probe can show; false: the probe failed or took too long, so TCP was taken.
        is_probed: bool,
    },
}

/// Counters of the running job at one time; all of them only rise.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// Payload bytes that the receiver has.
    pub moved_bytes: u64,
    /// Payload bytes over datagrams.
    pub udp_bytes: u64,
    /// Datagrams sent or received, and those lost.
    pub udp_packets: (u64, u64),
    /// TCP segments sent, and those sent again.
    pub tcp_packets: (u64, u64),
    /// Time per stage, nanoseconds: this end's and the peer's.
    pub stage_ns: ([u64; STAGES], [u64; STAGES]),
}

/// What else the running job tells with its counters.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Running {
    /// This end sends.
    pub sends: bool,
    /// Round trip as datagram rails measure it; zero: unknown.
    pub rtt: Duration,
    /// Bytes of the whole job; `None` while the source is still being scanned.
    pub bytes_total: Option<u64>,
}

/// A change of the transport of the running job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Change {
    /// Open rails of the other transport beside those that carry.
    Try {
        /// What carries.
        was: Carry,
        /// What is tried beside it.
        other: Carry,
        /// Payload that the job carries now, bit/s.
        total_bps: f64,
        /// What was expected of it, bit/s.
        expected_bps: f64,
        /// Packets lost in the last window, percent.
        lost_percent: f64,
    },
    /// The answer of a path probe came after the job had begun over TCP, and says that UDP is worth it for what is left: UDP only.
    Proved {
        /// Payload that UDP is expected to carry, bit/s.
        udp_bps: f64,
        /// Payload that TCP was expected to carry on such a path, bit/s.
        tcp_bps: f64,
    },
    /// The trial is over: keep rails of this transport only.
    Keep {
        /// What carries from now on.
        carry: Carry,
        /// Payload before the trial, bit/s.
        before_bps: f64,
        /// Payload during the trial, bit/s.
        after_bps: f64,
    },
}

impl Change {
    /// The rails that are wanted after the change.
    #[must_use]
    pub fn carry(&self) -> Carry {
        match self {
            Change::Try { .. } => Carry::Both,
            Change::Proved { .. } => Carry::Udp,
            Change::Keep { carry, .. } => *carry,
        }
    }
}

/// The choice of transport of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct TransportChoice {
    host: Host,
    /// Round trip when the session was opened; zero: unknown.
    rtt: Duration,
    view: View,
    phase: Phase,
    begun: Moment,
    forecast: Option<Forecast>,
    /// When the current window began, and the counters then.
    window: Option<(Moment, Counts)>,
    /// What carried before the last trial.
    before_trial: Carry,
    changes: u32,
    /// A user changed rate or policy of the running job: the first forecast was of another job.
    is_changed: bool,
    /// The job began over TCP before the path probe had an answer.
    is_probe_late: bool,
    /// Until when the answer of the path probe is waited for, as far as was known when that was last asked.
    due: Option<Moment>,
}

impl TransportChoice {
    /// A job that begins at `now` over a path of which `view` is known so far; `rtt`: as the session's connection measured it, zero if unknown.
    #[must_use]
    pub fn new(now: Moment, rtt: Duration, view: View, host: Host) -> TransportChoice {
        TransportChoice {
            host,
            rtt,
            view,
            phase: Phase::Begin,
            begun: now,
            forecast: None,
            window: None,
            before_trial: Carry::Tcp,
            changes: 0,
            is_changed: false,
            is_probe_late: false,
            due: None,
        }
    }

    /// When `next_first` has something to say although nothing happens.
    #[must_use]
    pub fn due(&self) -> Option<Moment> {
        self.due.filter(|_| matches!(self.phase, Phase::Look(_)))
    }

    /// The forecast that the report compares with the outcome; `None` where there was none, or a user changed the job's rate since.
    #[must_use]
    pub fn forecast(&self) -> Option<Forecast> {
        self.forecast.filter(|_| !self.is_changed)
    }

    /// The path as it was known when the transport was chosen.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// How often the job changed its transport.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// True once it has decided.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        matches!(self.phase, Phase::Run(_))
    }

    /// True while a path probe is on its way and its answer counts.
    #[must_use]
    pub fn is_looking(&self) -> bool {
        matches!(self.phase, Phase::Look(_)) || self.is_probe_late
    }

    /// Rate or policy were changed by a user: windows begin again, and the forecast is not compared with the outcome.
    pub fn on_settings_changed(&mut self) {
        (self.is_changed, self.window) = (true, None);
    }

    /// The answer of a path probe that the job did not wait for; `bytes_left`: what the peer has not yet, where that is known. Streams that began
    /// fill the queue in which the probe's packets stood, so only more than a trial's gain counts.
    pub fn on_late_probe(&mut self, view: View, bytes_left: Option<u64>) -> Option<Change> {
        if !core::mem::take(&mut self.is_probe_late) || !matches!(self.phase, Phase::Run(_)) {
            return None;
        }
        self.view = view;
        let found = forecast(&view, &self.host, bytes_left);
        if found.carry != Carry::Udp || found.gain() < LATE_WORTH {
            return None;
        }
        self.phase = Phase::Run(Steer::new(Carry::Udp, found.udp.rate_bps));
        // What was said before was of another transport, and is not compared with the outcome.
        (self.window, self.changes, self.is_changed) = (None, self.changes + 1, true);
        Some(Change::Proved { udp_bps: found.udp.rate_bps, tcp_bps: found.tcp.rate_bps })
    }

    /// UDP does not get through: TCP stays, and nothing is tried until it does.
    pub fn on_no_datagrams(&mut self) {
        self.is_probe_late = false;
        if let Phase::Run(steer) = &mut self.phase {
            steer.forced(Carry::Tcp);
        }
    }

    /// UDP gets through after all: it is worth a trial again.
    pub fn on_datagrams_again(&mut self) {
        if let Phase::Run(steer) = &mut self.phase {
            steer.freed();
        }
    }

    /// What is to be done before data moves; called until it has decided.
    pub fn next_first(&mut self, now: Moment, before: &Before) -> First {
        match (self.phase, before.look) {
            (Phase::Run(_), _) => First::Wait,
            (Phase::Begin, _) if self.rtt < SHORT_RTT => self.decide(before.bytes, true),
            (Phase::Begin, _) => {
                self.phase = Phase::Look(now);
                self.due = Some(now + self.patience(before));
                First::Look
            }
            (Phase::Look(_), Some(Look::Seen(view))) => {
                self.view = view;
                self.decide(before.bytes, true)
            }
            (Phase::Look(_), Some(Look::Failed)) => self.decide(before.bytes, false),
            (Phase::Look(since), None) if now.since(since) >= self.patience(before) => {
                self.is_probe_late = true;
                self.decide(before.bytes, false)
            }
            (Phase::Look(since), None) => {
                self.due = Some(since + self.patience(before));
                First::Wait
            }
        }
    }

    /// How long the answer of the path probe is waited for.
    fn patience(&self, before: &Before) -> Duration {
        let is_small = before.bytes.is_some_and(|bytes| bytes <= SMALL_BYTES);
        match (is_small, before.early_answered) {
            // Where UDP is blocked no answer ever comes, and TCP is to lose nothing by that: it begins, and UDP takes over should it be proved yet.
            (false, Some(false)) if !before.is_storage_looked_at => LOOK_SMALL,
            (false, _) => LOOK.max(self.rtt.saturating_mul(LOOK_RTTS)),
            (true, None) => Duration::ZERO,
            (true, Some(false)) => LOOK_SMALL,
            (true, Some(true)) => LOOK_SMALL.saturating_add(self.rtt.saturating_mul(LOOK_SMALL_RTTS)),
        }
    }

    fn decide(&mut self, bytes: Option<u64>, is_probed: bool) -> First {
        let mut forecast = forecast(&self.view, &self.host, bytes);
        // A path of which nothing is known, not even its round trip, gets TCP, and so does a short one: nobody probed it.
        if !is_probed || self.view.rtt_s <= 0.0 || self.rtt < SHORT_RTT {
            forecast.carry = Carry::Tcp;
        }
        self.forecast = Some(forecast);
        self.phase = Phase::Run(Steer::new(forecast.carry, forecast.chosen().rate_bps));
        First::Decided { forecast, view: self.view, is_probed }
    }

    /// Counters of the running job: at the end of a window, does the transport carry what was expected?
    pub fn on_counts(&mut self, now: Moment, counts: &Counts, running: &Running) -> Option<Change> {
        let Phase::Run(mut steer) = self.phase else { return None };
        let rtt = if running.rtt.is_zero() { self.rtt } else { running.rtt };
        let Some((then, from)) = self.window.filter(|_| counts.moved_bytes > 0) else {
            self.window = Some((now, *counts));
            return None;
        };
        let window = now.since(then);
        if window < WINDOW.max(rtt.saturating_mul(WINDOW_RTTS)) {
            return None;
        }
        self.window = Some((now, *counts));
        let window_s = window.as_secs_f64();
        let bps = |now: u64, from: u64| now.saturating_sub(from) as f64 * 8.0 / window_s;
        let total_bps = bps(counts.moved_bytes, from.moved_bytes);
        let udp_bps = bps(counts.udp_bytes, from.udp_bytes).min(total_bps);
        let was = steer.carry();
        let (looked, lost) = match was {
            Carry::Tcp => risen(counts.tcp_packets, from.tcp_packets),
            _ => risen(counts.udp_packets, from.udp_packets),
        };
        let other_bps = self.other_bps(was, (looked, lost), running);
        let left_s = match running.bytes_total {
            Some(total) if total_bps > 0.0 => total.saturating_sub(counts.moved_bytes) as f64 * 8.0 / total_bps,
            _ => f64::INFINITY,
        };
        let is_tcps_own =
            was == Carry::Tcp && lost.saturating_mul(NEAR_PACKETS_PER_LOSS) <= looked && self.view.is_near_and_clean();
        let by_network = !is_tcps_own && held_by_network(&counts.stage_ns, &from.stage_ns, running.sends, was);
        let now_s = now.since(self.begun).as_secs_f64();
        let act = steer.on_window(&Window { now_s, window_s, total_bps, udp_bps, other_bps, by_network, left_s });
        self.phase = Phase::Run(steer);
        match act {
            Act::Stay => None,
            Act::Try(other) => {
                self.before_trial = was;
                let expected_bps = self.forecast.map_or(0.0, |forecast| forecast.chosen().rate_bps);
                let lost_percent = lost as f64 * 100.0 / looked.max(1) as f64;
                Some(Change::Try { was, other, total_bps, expected_bps, lost_percent })
            }
            Act::Keep { carry, before_bps, after_bps } => {
                self.changes += u32::from(carry != self.before_trial);
                Some(Change::Keep { carry, before_bps, after_bps })
            }
        }
    }

    /// What the other transport is expected to carry over the path as the running one shows it, bit/s; 0: not known.
    fn other_bps(&self, was: Carry, (looked, lost): (u64, u64), running: &Running) -> f64 {
        let mut view = self.view;
        (view.looked, view.lost) = (looked.max(lost), lost);
        if !running.rtt.is_zero() {
            view.rtt_s = view.rtt_s.min(running.rtt.as_secs_f64());
        }
        let expected = forecast(&view, &self.host, None);
        match was {
            // Datagrams pay against loss; where TCP lost nothing, a slow job is not known to be slow because of the path.
            Carry::Tcp if lost == 0 || !running.sends => 0.0,
            Carry::Tcp => expected.udp.rate_bps,
            Carry::Udp => expected.tcp.rate_bps,
            Carry::Both => 0.0,
        }
    }
}

fn risen(now: (u64, u64), from: (u64, u64)) -> (u64, u64) {
    (now.0.saturating_sub(from.0), now.1.saturating_sub(from.1))
}

/// Stage times of this end and of the peer, nanoseconds.
type BothStages = ([u64; STAGES], [u64; STAGES]);

/// True if neither end spent most of the window on its disk or on the user's rate; nor, over TCP, on its processors: a byte costs them no less over UDP.
fn held_by_network(now: &BothStages, from: &BothStages, sends: bool, was: Carry) -> bool {
    let most = |now: &[u64; STAGES], from: &[u64; STAGES]| {
        let spent = |stage: Stage| now[stage as usize].saturating_sub(from[stage as usize]);
        Stage::ALL.into_iter().filter(|stage| *stage != Stage::Idle).max_by_key(|stage| spent(*stage))
    };
    let (own, peer) = (most(&now.0, &from.0), most(&now.1, &from.1));
    let (sender, receiver) = if sends { (own, peer) } else { (peer, own) };
    let computes = |most| matches!(most, Some(Stage::Hash | Stage::Seal | Stage::Send | Stage::Recv | Stage::Loop));
    !matches!(sender, Some(Stage::Read | Stage::WaitRead | Stage::WaitRate))
        && !matches!(receiver, Some(Stage::Write | Stage::WaitWrite))
        && !(was == Carry::Tcp && (computes(sender) || computes(receiver)))
}

#[cfg(test)]
#[path = "transport/tests.rs"]
mod tests;

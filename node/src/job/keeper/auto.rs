//! `--transport auto` while the job runs: a look at the path, a choice, and trials when it turns out wrong.
//!
//! For: jobs that nobody wants to choose a transport for.
//! In and out: the look's answer, meters and the kernel's counts in; how many rails of which kind are wanted, and sentences, out.
//! Invariants: a job waits `LOOK`, or `LOOK_RTTS`, at most for the look, a small one only for one whose greeting is answered already; equations and trials are decided in `probe`, which is
//! pure; where the acceptor takes no datagrams, or a cap holds the job, nothing is tried.
//! Absent on purpose: equations (probe::model), hysteresis (probe::steer), making rails (rails.rs).

use std::time::{Duration, Instant};

use proto::books::{STAGES, Stage};
use proto::rate::Policy;

use super::{Closing, End, Keeper};
use crate::job::rails::Ask;
use crate::probe::model::{Carry, Forecast, SMALL_BYTES};
use crate::probe::seen::Seen;
use crate::probe::steer::{Act, Steer, Window};
use crate::probe::{self, Known};
use text::units::show_bits_per_second;

/// Longest wait for a look at the path: so long, or so many round trips (the greeting, its size, the train and its echo; 155 Mbit/s over 550 ms
/// went over TCP in 18 s when a second was all, over UDP in 5).
const LOOK: Duration = Duration::from_secs(1);
const LOOK_RTTS: u32 = 5;
/// A small job waits so long for the answer to a greeting that went ahead, and two round trips for what comes of its train.
const LOOK_SMALL: Duration = Duration::from_millis(30);
const LOOK_SMALL_RTTS: u32 = 2;
/// A window of the running job: so long, or so many round trips.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_RTTS: u32 = 10;

/// Where the choice stands.
#[derive(Debug)]
enum Phase {
    /// Nothing asked yet.
    Begin,
    /// A look is on its way.
    Look(Instant),
    /// Data moves.
    Run(Steer),
}

/// Counts at the beginning of a window.
#[derive(Debug, Clone, Copy)]
struct From {
    at: Instant,
    moved: u64,
    udp: u64,
    packets: (u64, u64),
    tcp: (u64, u64),
    books: ([u64; STAGES], [u64; STAGES]),
}

/// See the module.
#[derive(Debug)]
pub struct Auto {
    known: Known,
    stage: Phase,
    looks_at: Option<u16>,
    seen: Option<Seen>,
    forecast: Option<Forecast>,
    from: Option<From>,
    /// What carried before the last trial.
    tried_beside: Carry,
    changes: u32,
    /// A user asked for another pace while it ran: what was expected was expected of another job.
    is_other: bool,
}

/// What the report says of it.
#[derive(Debug, Clone)]
pub struct Told {
    /// What was expected, before.
    pub forecast: Forecast,
    /// The path in a line.
    pub path: String,
    /// How often the job changed its transport.
    pub changes: u32,
}

impl Auto {
    /// A job whose path is known so far.
    #[must_use]
    pub fn new(known: Known) -> Auto {
        let (looks_at, seen, forecast, from) = (None, None, None, None);
        Auto {
            known,
            stage: Phase::Begin,
            looks_at,
            seen,
            forecast,
            from,
            tried_beside: Carry::Tcp,
            changes: 0,
            is_other: false,
        }
    }

    /// For the report.
    #[must_use]
    pub fn told(&self) -> Option<Told> {
        let path = probe::path_words(&self.known.view(self.seen.as_ref()));
        let forecast = self.forecast.filter(|_| !self.is_other);
        forecast.map(|forecast| Told { forecast, path, changes: self.changes })
    }

    /// The job has another pace from now on.
    pub(super) fn on_pace(&mut self) {
        (self.is_other, self.from) = (true, None);
    }

    /// The number that was greeted for a look, once.
    pub(super) fn take_looked(&mut self) -> Option<u16> {
        self.looks_at.take()
    }
}

impl Keeper<'_, '_> {
    /// Once per turn, until data moves: is it known what to go over?
    pub(super) fn choose_transport(&mut self) {
        let Some(auto) = &mut self.auto else { return };
        match auto.stage {
            Phase::Run(_) => {}
            Phase::Begin if auto.known.rtt < probe::SHORT => self.decide(true),
            Phase::Begin => {
                auto.stage = Phase::Look(Instant::now());
                let greeted = self.job.rails.take_early();
                let rail = greeted.unwrap_or(self.next_rail);
                self.next_rail += u16::from(greeted.is_none());
                auto.looks_at = Some(rail);
                self.job.rails.ask(0, Ask::Look(rail));
            }
            Phase::Look(since) => match self.job.rails.view() {
                Some(Ok(seen)) => {
                    auto.seen = Some(seen);
                    self.decide(true);
                }
                Some(Err(error)) => {
                    self.decide(false);
                    self.give_up_datagrams(None, &error);
                }
                None => {
                    let tally = self.end.record().tally;
                    let is_small = tally.scan_ended && tally.bytes_total <= SMALL_BYTES;
                    let patience = match (is_small, self.job.rails.early_answered()) {
                        (false, _) => LOOK.max(auto.known.rtt * LOOK_RTTS),
                        (true, None) => Duration::ZERO,
                        (true, Some(false)) => LOOK_SMALL,
                        (true, Some(true)) => LOOK_SMALL + auto.known.rtt * LOOK_SMALL_RTTS,
                    };
                    if since.elapsed() >= patience {
                        self.decide(false);
                    }
                }
            },
        }
    }

    /// The first choice. `looked`: all is known that a look can show.
    fn decide(&mut self, looked: bool) {
        let tally = self.end.record().tally;
        let Some(auto) = &mut self.auto else { return };
        let bytes = tally.scan_ended.then_some(tally.bytes_total);
        let mut forecast = auto.known.forecast(auto.seen.as_ref(), bytes);
        if !looked {
            forecast.carry = Carry::Tcp;
        }
        auto.forecast = Some(forecast);
        auto.stage = Phase::Run(Steer::new(forecast.carry, forecast.chosen().rate_bps));
        let view = auto.known.view(auto.seen.as_ref());
        let why =
            if looked { String::new() } else { "the look at the path took too long or the job is small; ".into() };
        self.said.push(format!("auto: {} ({why}{})", probe::forecast_words(&forecast), probe::path_words(&view)));
        self.want(forecast.carry);
    }

    /// Rails for this from now on.
    fn want(&mut self, carry: Carry) {
        let (streams, packets) = (usize::from(self.job.plan.streams), usize::from(self.job.plan.datagrams));
        self.wanted = match carry {
            Carry::Tcp => super::rails::Wanted { streams, packets: 0 },
            Carry::Udp => super::rails::Wanted { streams: 0, packets },
            Carry::Both => super::rails::Wanted { streams, packets },
        };
    }

    /// UDP is gone for good.
    pub(super) fn auto_without_datagrams(&mut self) {
        if let Some(Auto { stage: Phase::Run(steer), .. }) = &mut self.auto {
            steer.forced(Carry::Tcp);
        }
    }

    /// Now and then: does what was chosen do what was expected?
    pub(super) fn steer(&mut self) {
        // TCP has no policy that takes what others leave.
        let is_low = self.job.plan.pace.policy == Policy::Low;
        if self.auto.is_none() || is_low || self.job.bound.rate() > 0 || self.closing != Closing::Open {
            return;
        }
        let now = self.counts();
        let packets = self.packets().unwrap_or_default();
        let tally = self.end.record().tally;
        let Some(auto) = &mut self.auto else { return };
        let Phase::Run(steer) = &mut auto.stage else { return };
        let sends = matches!(self.end, End::Send(_));
        let rtt = if packets.rtt_ns > 0 { Duration::from_nanos(packets.rtt_ns) } else { auto.known.rtt };
        let Some(from) = auto.from.filter(|_| now.moved > 0) else {
            auto.from = Some(now);
            return;
        };
        let window_s = (now.at - from.at).as_secs_f64();
        if now.at - from.at < WINDOW.max(rtt * WINDOW_RTTS) {
            return;
        }
        auto.from = Some(now);
        let bps = |now: u64, from: u64| now.saturating_sub(from) as f64 * 8.0 / window_s;
        let total_bps = bps(now.moved, from.moved);
        let udp_bps = bps(now.udp, from.udp).min(total_bps);
        // The path as the running transport shows it.
        let mut view = auto.known.view(auto.seen.as_ref());
        let since = |now: (u64, u64), from: (u64, u64)| (now.0.saturating_sub(from.0), now.1.saturating_sub(from.1));
        let (looked, lost) = match steer.carry() {
            Carry::Tcp => since(now.tcp, from.tcp),
            _ => since(now.packets, from.packets),
        };
        (view.looked, view.lost) = (looked.max(lost), lost);
        if packets.rtt_ns > 0 {
            view.rtt_s = view.rtt_s.min(rtt.as_secs_f64());
        }
        let expected = probe::model::forecast(&view, &auto.known.host, None);
        // Datagrams pay against loss; where none was seen, what is slow is not known to be the path.
        let other_bps = match steer.carry() {
            Carry::Tcp if lost == 0 || !sends => 0.0,
            Carry::Tcp => expected.udp.rate_bps,
            Carry::Udp => expected.tcp.rate_bps,
            Carry::Both => 0.0,
        };
        let left = tally.bytes_total.saturating_sub(now.moved) as f64 * 8.0;
        let left_s = if tally.scan_ended && total_bps > 0.0 { left / total_bps } else { f64::INFINITY };
        let by_network = held_by_network(&now.books, &from.books, sends);
        let now_s = self.started.elapsed().as_secs_f64();
        let window = Window { now_s, window_s, total_bps, udp_bps, other_bps, by_network, left_s };
        let was = steer.carry();
        let act = steer.on_window(&window);
        self.obey(act, was, total_bps, lost as f64 * 100.0 / looked.max(1) as f64);
    }

    /// A trial begins, or is over.
    fn obey(&mut self, act: Act, was: Carry, total_bps: f64, lost_percent: f64) {
        let Some(auto) = &mut self.auto else { return };
        let (carry, text) = match act {
            Act::Stay => return,
            Act::Try(other) => {
                let expected_bps = auto.forecast.map_or(0.0, |forecast| forecast.chosen().rate_bps);
                let (now, expected) = (show_bits_per_second(total_bps), show_bits_per_second(expected_bps));
                let text = format!(
                    "auto: {was} carries {now} where {expected} was expected ({lost_percent:.3} % lost): {other} is tried beside it"
                );
                auto.tried_beside = was;
                (Carry::Both, text)
            }
            Act::Keep { carry, before_bps, after_bps } => {
                auto.changes += u32::from(carry != auto.tried_beside);
                let (before, after) = (show_bits_per_second(before_bps), show_bits_per_second(after_bps));
                (carry, format!("auto: {carry} from now on: {before} before the trial, {after} with both"))
            }
        };
        self.said.push(text);
        self.want(carry);
    }

    fn counts(&mut self) -> From {
        let packets = self.packets().unwrap_or_default();
        let sends = matches!(self.end, End::Send(_));
        let own = self.books().ns;
        From {
            at: Instant::now(),
            moved: if sends { self.peer.0 } else { self.end.record().tally.moved },
            udp: if sends { packets.fresh_bytes } else { packets.wire_bytes },
            packets: (packets.packets, packets.lost_packets),
            tcp: self.stream_counts(),
            books: (own, self.peers.map_or([0; STAGES], |peers| peers.ns)),
        }
    }
}

/// Is no disk what both ends mostly waited for or worked at in the window?
fn held_by_network(now: &([u64; STAGES], [u64; STAGES]), from: &([u64; STAGES], [u64; STAGES]), sends: bool) -> bool {
    let most = |now: &[u64; STAGES], from: &[u64; STAGES]| {
        let spent = |stage: Stage| now[stage as usize].saturating_sub(from[stage as usize]);
        Stage::ALL.into_iter().filter(|stage| *stage != Stage::Idle).max_by_key(|stage| spent(*stage))
    };
    let (own, peer) = (most(&now.0, &from.0), most(&now.1, &from.1));
    let (sender, receiver) = if sends { (own, peer) } else { (peer, own) };
    !matches!(sender, Some(Stage::Read | Stage::WaitRead | Stage::WaitRate))
        && !matches!(receiver, Some(Stage::Write | Stage::WaitWrite))
}

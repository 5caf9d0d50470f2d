//! `--transport auto` while the job runs: facts for `proto::session::transport`, and rails as that wants them.
//!
//! For: jobs that nobody wants to choose a transport for.
//! In and out: the path probe's answer, meters and the kernel's counters in; how many rails of which kind are wanted, and lines for the user, out.
//! Invariants: nothing is decided here; where the acceptor takes no datagrams, or a cap holds the job, nothing is asked.
//! Absent on purpose: the choice and its trials (proto::session::transport), making rails (rails.rs).

use std::time::Duration;

use proto::books::STAGES;
use proto::rate::Policy;
use proto::session::Moment;
use proto::session::paths::Wanted;
use proto::session::transport::forecast::{Carry, Forecast, View};
use proto::session::transport::{Before, Change, Counts, First, Look, Running, TransportChoice};

use super::{End, JobDriver};
use crate::job::rails::{Arrival, Ask, Carrier};
use crate::probe::{self, Known};
use text::units::show_bits_per_second;

/// The choice of transport and what it was made from.
#[derive(Debug)]
pub struct Auto {
    known: Known,
    choice: TransportChoice,
    /// The rail number that the path probe greeted, until a rail takes it over.
    probed: Option<u16>,
    /// Streams that were connected while the path was probed: they carry if TCP is chosen.
    held: Vec<Arrival>,
}

/// What the report says of it.
#[derive(Debug, Clone)]
pub struct TransportReport {
    /// What was expected, before.
    pub forecast: Forecast,
    /// The path in a line.
    pub path: String,
    /// How often the job changed its transport.
    pub changes: u32,
}

impl Auto {
    /// A job that begins at `now` and whose path is known so far.
    #[must_use]
    pub fn new(now: Moment, known: Known) -> Auto {
        let choice = TransportChoice::new(now, known.rtt, known.view(None), known.host);
        Auto { known, choice, probed: None, held: Vec::new() }
    }

    /// For the report of a job whose user asked for a forecast.
    #[must_use]
    pub fn report(&self) -> Option<TransportReport> {
        if !self.known.is_asked {
            return None;
        }
        let path = probe::path_words(&self.choice.view());
        self.choice.forecast().map(|forecast| TransportReport { forecast, path, changes: self.choice.changes() })
    }

    /// When the choice is to be asked again although nothing happens.
    pub(super) fn due(&self) -> Option<Moment> {
        self.choice.due()
    }

    /// The job has another pace from now on.
    pub(super) fn on_pace(&mut self) {
        self.choice.on_settings_changed();
    }

    /// Has the transport been chosen?
    pub(super) fn is_chosen(&self) -> bool {
        self.choice.is_chosen()
    }

    /// A stream that was connected before the transport is chosen waits for that; `Some`: it is for whoever called.
    pub(super) fn hold(&mut self, arrival: Arrival) -> Option<Arrival> {
        if self.is_chosen() || !matches!(arrival.carrier, Carrier::Stream) || arrival.socket.is_err() {
            return Some(arrival);
        }
        self.held.push(arrival);
        None
    }

    /// Do streams wait that need not any more?
    pub(super) fn has_held(&self) -> bool {
        self.is_chosen() && !self.held.is_empty()
    }

    /// The streams that waited.
    pub(super) fn take_held(&mut self) -> Vec<Arrival> {
        if self.is_chosen() { std::mem::take(&mut self.held) } else { Vec::new() }
    }

    /// The number that was greeted for a path probe, once.
    pub(super) fn take_looked(&mut self) -> Option<u16> {
        self.probed.take()
    }
}

impl JobDriver<'_, '_> {
    /// Once per iteration, until data moves: is it known what to go over?
    pub(super) fn choose_transport(&mut self) {
        let sends = matches!(self.end, End::Send(_));
        let Some(auto) = &mut self.auto else { return };
        if self.job.dry && !auto.known.is_asked {
            return;
        }
        let answer = if auto.choice.is_looking() { self.job.rails.view() } else { None };
        if let (true, Some(Ok(seen))) = (auto.is_chosen(), &answer) {
            let view = auto.known.view(Some(seen));
            self.on_late_probe(view);
            return;
        }
        let look = answer.as_ref().map(|answer| match answer {
            Ok(seen) => Look::Seen(auto.known.view(Some(seen))),
            Err(_) => Look::Failed,
        });
        let tally = self.end.record().tally;
        let bytes = tally.scan_ended.then_some(tally.bytes_total);
        let before = Before {
            look,
            bytes,
            early_answered: self.job.rails.early_answered(),
            is_storage_looked_at: auto.known.is_asked,
        };
        match auto.choice.next_first(self.now, &before) {
            First::Wait => {}
            First::Look => {
                let greeted = self.job.rails.take_early();
                let rail = greeted.unwrap_or(self.next_rail);
                self.next_rail += u16::from(greeted.is_none());
                auto.probed = Some(rail);
                self.job.rails.ask(0, Ask::Look(rail));
                // Streams take two round trips to connect. They take them now, so that TCP, should it be chosen, costs what it costs where nobody
                // asks. A peer that sends would begin at once, and its streams fill the queue in which the probe's packets stand.
                if sends && !self.job.dry {
                    self.want(Carry::Tcp);
                }
            }
            First::Decided { forecast, view, is_probed } => {
                let why = if is_probed { "" } else { "the look at the path took too long or the job is small; " };
                let files = if tally.scan_ended { tally.files_total } else { 0 };
                let (what, path) = (probe::forecast_words(&forecast, files), probe::path_words(&view));
                let line = format!("auto: {what} ({why}{path})");
                // A dry run's own report has it, once all is counted; whoever left the choice to the program without a word is told with -v.
                match (self.job.dry, auto.known.is_asked) {
                    (true, _) => {}
                    (false, true) => self.said.push(line),
                    (false, false) => self.out.notes.push(line),
                }
                self.want(forecast.carry);
            }
        }
        if let Some(Err(error)) = answer {
            self.give_up_datagrams(None, &error);
        }
    }

    /// The job began over TCP before the path probe was answered; now it is.
    fn on_late_probe(&mut self, view: View) {
        let tally = self.end.record().tally;
        let moved = if matches!(self.end, End::Send(_)) { self.peer.0 } else { tally.moved };
        let left = tally.scan_ended.then(|| tally.bytes_total.saturating_sub(moved));
        let Some(change) = self.auto.as_mut().and_then(|auto| auto.choice.on_late_probe(view, left)) else { return };
        self.out.notes.push(line(&change));
        self.want(change.carry());
    }

    /// A dry run is over when its forecast is made as well.
    pub(super) fn is_forecasting(&self) -> bool {
        self.job.dry && self.auto.as_ref().is_some_and(|auto| auto.known.is_asked && !auto.is_chosen())
    }

    /// Rails for this from now on.
    fn want(&mut self, carry: Carry) {
        let (streams, datagrams) = (usize::from(self.job.plan.streams), usize::from(self.job.plan.datagrams));
        self.wanted = match carry {
            Carry::Tcp => Wanted { streams, datagrams: 0 },
            Carry::Udp => Wanted { streams: 0, datagrams },
            Carry::Both => Wanted { streams, datagrams },
        };
    }

    /// A datagram rail is up where UDP had been given up: whoever asked for UDP has it; where the transport is left to us, it may be tried again.
    pub(super) fn datagrams_again(&mut self) {
        if !std::mem::take(&mut self.no_datagrams) {
            return;
        }
        let now = match &mut self.auto {
            Some(auto) => {
                auto.choice.on_datagrams_again();
                "it may be tried"
            }
            None => {
                self.wanted = super::rails::first(&self.job.plan, false);
                "it is used from now on"
            }
        };
        self.said.push(format!("UDP to {} gets through after all: {now}", self.peer_name()));
    }

    /// UDP does not get through.
    pub(super) fn auto_without_datagrams(&mut self) {
        self.auto.iter_mut().for_each(|auto| auto.choice.on_no_datagrams());
    }

    /// Now and then: does what was chosen do what was expected?
    pub(super) fn steer(&mut self) {
        // TCP has no policy that takes what others leave.
        let is_low = self.job.plan.pace.policy == Policy::Low;
        if self.auto.is_none() || is_low || self.job.bound.rate() > 0 || !self.is_open() {
            return;
        }
        let packets = self.packets().unwrap_or_default();
        let (sends, tally) = (matches!(self.end, End::Send(_)), self.end.record().tally);
        let counts = Counts {
            moved_bytes: if sends { self.peer.0 } else { tally.moved },
            udp_bytes: if sends { packets.fresh_bytes } else { packets.wire_bytes },
            udp_packets: (packets.packets, packets.lost_packets),
            tcp_packets: self.stream_counts(),
            stage_ns: (self.books().ns, self.peers.map_or([0; STAGES], |peers| peers.ns)),
        };
        let bytes_total = tally.scan_ended.then_some(tally.bytes_total);
        let running = Running { sends, rtt: Duration::from_nanos(packets.rtt_ns), bytes_total };
        let Some(auto) = &mut self.auto else { return };
        let Some(change) = auto.choice.on_counts(self.now, &counts, &running) else { return };
        self.said.push(line(&change));
        self.want(change.carry());
    }
}

/// A trial begins, or is over: for the user.
fn line(change: &Change) -> String {
    match *change {
        Change::Try { was, other, total_bps, expected_bps, lost_percent } => {
            let (now, expected) = (show_bits_per_second(total_bps), show_bits_per_second(expected_bps));
            format!(
                "auto: {was} carries {now} where {expected} was expected ({lost_percent:.3} % lost): {other} is tried beside it"
            )
        }
        Change::Proved { udp_bps, tcp_bps } => {
            let (udp, tcp) = (show_bits_per_second(udp_bps), show_bits_per_second(tcp_bps));
            format!(
                "auto: UDP from now on: the path probe was answered late, and {udp} are expected of it ({tcp} of TCP)"
            )
        }
        Change::Keep { carry, before_bps, after_bps } => {
            let (before, after) = (show_bits_per_second(before_bps), show_bits_per_second(after_bps));
            format!("auto: {carry} from now on: {before} before the trial, {after} with both")
        }
    }
}

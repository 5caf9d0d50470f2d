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
use proto::session::transport::forecast::{Carry, Forecast};
use proto::session::transport::{Before, Change, Counts, First, Look, Running, TransportChoice};

use super::{End, JobDriver};
use crate::job::rails::Ask;
use crate::probe::{self, Known};
use text::units::show_bits_per_second;

/// The choice of transport and what it was made from.
#[derive(Debug)]
pub struct Auto {
    known: Known,
    choice: TransportChoice,
    /// The rail number that the path probe greeted, until a rail takes it over.
    probed: Option<u16>,
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
        Auto { known, choice, probed: None }
    }

    /// For the report.
    #[must_use]
    pub fn report(&self) -> Option<TransportReport> {
        let path = probe::path_words(&self.choice.view());
        self.choice.forecast().map(|forecast| TransportReport { forecast, path, changes: self.choice.changes() })
    }

    /// The job has another pace from now on.
    pub(super) fn on_pace(&mut self) {
        self.choice.on_settings_changed();
    }

    /// Has the transport been chosen?
    pub(super) fn is_chosen(&self) -> bool {
        self.choice.forecast().is_some()
    }

    /// The number that was greeted for a path probe, once.
    pub(super) fn take_looked(&mut self) -> Option<u16> {
        self.probed.take()
    }
}

impl JobDriver<'_, '_> {
    /// Once per iteration, until data moves: is it known what to go over?
    pub(super) fn choose_transport(&mut self) {
        let Some(auto) = &mut self.auto else { return };
        let answer = if auto.choice.is_looking() { self.job.rails.view() } else { None };
        let look = answer.as_ref().map(|answer| match answer {
            Ok(seen) => Look::Seen(auto.known.view(Some(seen))),
            Err(_) => Look::Failed,
        });
        let tally = self.end.record().tally;
        let bytes = tally.scan_ended.then_some(tally.bytes_total);
        let before = Before { look, bytes, early_answered: self.job.rails.early_answered() };
        match auto.choice.next_first(self.now, &before) {
            First::Wait => {}
            First::Look => {
                let greeted = self.job.rails.take_early();
                let rail = greeted.unwrap_or(self.next_rail);
                self.next_rail += u16::from(greeted.is_none());
                auto.probed = Some(rail);
                self.job.rails.ask(0, Ask::Look(rail));
            }
            First::Decided { forecast, view, is_probed } => {
                let why = if is_probed { "" } else { "the look at the path took too long or the job is small; " };
                let files = if tally.scan_ended { tally.files_total } else { 0 };
                let (what, path) = (probe::forecast_words(&forecast, files), probe::path_words(&view));
                // A dry run's own report has it, once all is counted.
                if !self.job.dry {
                    self.said.push(format!("auto: {what} ({why}{path})"));
                }
                self.want(forecast.carry);
            }
        }
        if let Some(Err(error)) = answer {
            self.give_up_datagrams(None, &error);
        }
    }

    /// A dry run is over when its forecast is made as well.
    pub(super) fn is_forecasting(&self) -> bool {
        self.job.dry && self.auto.as_ref().is_some_and(|auto| !auto.is_chosen())
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

    /// UDP is gone for good.
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
        Change::Keep { carry, before_bps, after_bps } => {
            let (before, after) = (show_bits_per_second(before_bps), show_bits_per_second(after_bps));
            format!("auto: {carry} from now on: {before} before the trial, {after} with both")
        }
    }
}

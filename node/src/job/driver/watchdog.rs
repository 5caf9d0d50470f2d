//! Whether it moves: books, pulse, screen, watchdog.
//!
//! For: both ends and the user knowing how it goes, and no job that hangs.
//! In and out: counts and books of this end, the peer's pulse in; a pulse, a `Status` or `Failure` out.
//! Invariants: no progress for `stall` ends the job with the reason as far as the books show it.
//! Absent on purpose: drawing (report), what limits a job (proto::books), what a standstill is (`proto::session::stall`).

use std::time::Duration;

use engine::seldom::Seldom;
use proto::books::{Books, STAGES, Stage};
use proto::error::Refusal;
use proto::session::stall::{Look, Progress, Verdict, slowness};
use proto::wire::control::Frame;

use super::end::End;
use super::{JobDriver, PULSE, Status, TICK, Way};
use proto::session::settings::least_cap;
use text::exit::{Exit, Failure};

/// Of the process, for all its jobs.
static CPU: Seldom = Seldom::new();
static PEAK: Seldom = Seldom::new();

/// CPU time of the process.
pub(super) fn process_cpu_ns() -> u64 {
    CPU.get(sys::clock::now_ns, sys::clock::process_cpu_ns)
}

impl JobDriver<'_, '_> {
    pub(super) fn pulse(&mut self) {
        self.pulsed = self.now;
        let books = Box::new(self.books());
        let tally = self.end.record().tally;
        // What a sender reads of a resumed file moves nothing, and the receiver is to see that it goes on.
        let written = tally.written + tally.read_again;
        let frame = Frame::Pulse { received: tally.moved, written, durable: tally.durable, books };
        self.say(&frame);
    }

    pub(super) fn books(&mut self) -> Books {
        // A worker that never had a rail did not wait for anything: its idleness limits nobody.
        let count = self.job.workers.count().min(self.rails_seen.max(1));
        let (mut ns, mut wall_ns) = ([0; STAGES], 0);
        for (now, from) in self.job.workers.books().iter().zip(&self.books_from).take(count) {
            let (passed, wall) = now.since(from);
            ns.iter_mut().zip(passed).for_each(|(sum, passed)| *sum += passed);
            wall_ns += wall;
        }
        let delays = self.job.workers.run_delays_ns();
        let run_delay_ns =
            delays.iter().zip(&self.delays_from).take(count).map(|(now, from)| now.saturating_sub(*from)).sum();
        let mut commit_ns = self.commit_ns + self.stuck_note_ns();
        if self.commits_open > 0 {
            commit_ns += self.now.as_ns() - self.commit_from.as_ns();
        }
        let tally = self.end.record().tally;
        // What went again is in the meters; a stream's chunks that went again are the machine's to count.
        let packets = self.packets().unwrap_or_default();
        let again = packets.repair_bytes + packets.copy_bytes;
        let rail_bytes = if self.is_over_streams() || packets.fresh_bytes == 0 {
            tally.rail_bytes + again
        } else {
            packets.fresh_bytes + again + packets.packets * proto::packet::PACKET_OVERHEAD as u64
        };
        Books {
            ns,
            wall_ns,
            workers: u16::try_from(count).unwrap_or(u16::MAX),
            cpu_ns: process_cpu_ns().saturating_sub(self.cpu_from),
            peak_memory_bytes: PEAK.get(sys::clock::now_ns, sys::clock::peak_memory_bytes),
            payload_bytes: tally.moved,
            rail_bytes,
            resent_bytes: tally.resent + again,
            commit_ns,
            run_delay_ns,
        }
    }

    /// Once per iteration: pulse, screen, watchdog, growth.
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let due = self.now.since(self.pulsed) >= PULSE;
        if due && self.is_open() {
            self.pulse();
            self.job.link.follow_round_trip();
            self.grow();
            self.steer();
            self.hold_sender()?;
        }
        if self.is_open() && self.now.since(self.caps.asked) >= TICK {
            self.ask_share();
        }
        self.storage_news();
        self.take_gone();
        if due || !self.out.notes.is_empty() || !self.said.is_empty() {
            self.pulsed = if due { self.now } else { self.pulsed };
            self.show();
            self.post();
        }
        self.migrate_rails();
        self.watch_paths();
        self.look_at_rails(false);
        let senders = matches!(self.end, End::Send(_)).then_some(&self.carriers);
        self.beside.on_look(self.now, self.reconnect.silence(self.now), senders);
        self.watch_black_hole();
        self.watch_timeouts();
        self.watch_resources();
        self.take_peers_settings();
        self.take_asked()?;
        self.take_halt()?;
        self.watch_session();
        self.watchdog()
    }

    /// How each rail goes now, for the trace and for `--json`.
    pub(super) fn look_at_rails(&mut self, is_last: bool) {
        let controller = matches!(self.end, End::Send(_)).then(|| self.job.plan.pace.controller.name());
        let name = |at: usize| self.path_names.get(at).map_or_else(String::new, |path| path.name().to_owned());
        self.beside.looks.on_look((self.now, is_last), &self.carriers, controller, &name);
    }

    /// The user is told how it goes.
    pub(super) fn show(&mut self) {
        let own = self.books();
        let notes = std::mem::take(&mut self.out.notes);
        let said = std::mem::take(&mut self.said);
        let (rails, paths) = (self.end.rails_up(), self.path_shares());
        let is_silent = self.is_open() && self.is_unheard();
        let (heard, until) = (self.reconnect.heard(), self.stall.until());
        let largest = self.end.largest_open().map(<[u8]>::to_vec);
        let status = Status {
            largest: largest.as_deref(),
            cap_bps: self.job.plan.rate_bps,
            record: self.end.record(),
            peer: self.peer,
            own: &own,
            rails,
            paths: &paths,
            looks: &self.beside.looks.last,
            elapsed: self.now.since(self.started),
            said: &said,
            silent: is_silent.then(|| (self.now.since(heard), until.since(heard))),
        };
        (self.watch)(&status, &notes);
    }

    /// Volumes whose disks went out since the last look: told, and remembered for the end.
    pub(super) fn take_gone(&mut self) {
        let Way::Recv { sink, .. } = &self.job.way else { return };
        for gone in sink.take_gone() {
            self.said.push(self.job.failed_disks.out(&gone));
            if !gone.before {
                let names = self.out_of_set.get_or_insert_default();
                *names += if names.is_empty() { "" } else { ", " };
                *names += &format!("'{}' ({})", gone.name, gone.why);
            }
        }
    }

    fn watchdog(&mut self) -> Result<(), Failure> {
        let tally = self.end.record().tally;
        let progress = Progress {
            bytes: tally.moved + self.peer.0 + tally.written + tally.compared + tally.read_again + tally.holes,
            resolved: tally.files_done + tally.failed + tally.folders_done + tally.links_done,
            found: tally.files_total + u64::from(tally.scan_ended),
            durable: tally.durable + self.peer.1 + self.peer.2,
        };
        let wants_books = self.stall.on_progress(self.now, progress, self.is_open());
        let books = wants_books.then(|| (self.books(), self.peers.unwrap_or_default()));
        let peer_flushes = self.peer_flushes && self.peer_silence() < PULSE * 10;
        let look = Look {
            is_flushing: self.commits_open + self.notes_open > 0 || peer_flushes,
            is_unheard: self.is_unheard(),
            slowness: self.slowness(),
            books,
        };
        match self.stall.on_look(self.now, &look) {
            Verdict::GoOn => Ok(()),
            Verdict::Waiting { peer, at_most } => {
                self.say_waiting(peer, at_most);
                Ok(())
            }
            Verdict::Stalled { after } => Err(self.stalled(after)),
        }
    }

    /// The user is told that the job's turn does not come.
    fn say_waiting(&mut self, peer: bool, at_most: Duration) {
        if !self.job.rails.dials() {
            return;
        }
        let whose = if peer { format!("the other end, {},", self.peer_name()) } else { "this host".to_owned() };
        self.said.push(format!(
            "waiting for a turn, for {} s at most: {whose} is busy with other jobs, or its cores are taken",
            at_most.as_secs()
        ));
    }

    fn stalled(&mut self, after: Duration) -> Failure {
        let own = self.books();
        let stage = largest(&own).map_or("nothing", Stage::name);
        let peers = self.peers.as_ref().and_then(largest).map_or("unknown", Stage::name);
        let rails = self.end.rails_up();
        let cause = format!(
            "no progress for {} s: {rails} rails up, this end mostly in '{stage}', the peer at {} mostly in '{peers}', {}",
            after.as_secs(),
            self.peer_name(),
            self.end.open_text(),
        );
        self.refuse(Refusal::Stalled.code(), &cause);
        Exit::Stalled.fail("go on", cause)
    }

    /// What a chunk of each rail takes under the caps in force.
    fn slowness(&self) -> Duration {
        let (own, peers) = (self.settings.caps().0 / 8, self.settings.caps().1 / 8);
        let rate = least_cap([self.job.bound.rate(), self.caps.peers, own, peers]);
        slowness(rate, self.job.terms.chunk_bytes, self.end.rails_up())
    }
}

fn largest(books: &Books) -> Option<Stage> {
    Stage::ALL.into_iter().max_by_key(|stage| books.ns[*stage as usize]).filter(|stage| books.ns[*stage as usize] > 0)
}

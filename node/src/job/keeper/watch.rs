//! Whether it moves: books, pulse, screen, watchdog.
//!
//! For: both ends and the user knowing how it goes, and no job that hangs.
//! In and out: counts and books of this end, the peer's pulse in; a pulse, a `Status` or `Failure` out.
//! Invariants: no progress for `stall` ends the job with the reason as far as the books show it; a flush gets more, and so does a job whose turn
//! does not come because an end has its hands full or no core, and neither without end.
//! Absent on purpose: drawing (report), the verdict (proto::books).

use std::time::{Duration, Instant};

use engine::seldom::Seldom;
use proto::books::{Books, STAGES, Stage};
use proto::error::Refusal;
use proto::wire::control::Frame;

use super::asked::least_cap;
use super::{Closing, Keeper, PULSE, Status, Way};
use crate::job::volumes;
use text::exit::{Exit, Failure};

/// A pause between two tries and a connection's greeting.
const GRACE: Duration = Duration::from_secs(10);

/// A flush may take so many times `stall`, and so may waiting for a turn.
const MORE: u32 = 4;
/// Nothing moved for this part of `stall`: what the ends do meanwhile is looked at.
const STILL_PART: u32 = 4;

/// A job that stands still.
#[derive(Debug)]
pub(super) struct Still {
    own: Books,
    peers: Books,
    told: bool,
}

/// Was more than half of the workers' time taken since `from`, by jobs or by whoever has the cores? Their books are of all jobs that they have.
fn is_taken(from: &Books, now: &Books) -> bool {
    let work =
        |books: &Books| Stage::ALL.iter().filter(|it| !it.is_wait()).map(|it| books.ns[*it as usize]).sum::<u64>();
    let taken = work(now).saturating_sub(work(from)) + now.run_delay_ns.saturating_sub(from.run_delay_ns);
    let wall_ns = now.wall_ns.saturating_sub(from.wall_ns);
    wall_ns > 0 && taken > wall_ns / 2
}

/// Of the process, for all its jobs.
static CPU: Seldom = Seldom::new();
static PEAK: Seldom = Seldom::new();

/// CPU time of the process.
pub(super) fn process_cpu_ns() -> u64 {
    CPU.get(sys::clock::now_ns, sys::clock::process_cpu_ns)
}

impl Keeper<'_, '_> {
    pub(super) fn pulse(&mut self) {
        self.pulsed = Instant::now();
        let books = Box::new(self.books());
        let tally = self.end.record().tally;
        let frame = Frame::Pulse { received: tally.moved, written: tally.written, durable: tally.durable, books };
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
            commit_ns += u64::try_from(self.commit_from.elapsed().as_nanos()).unwrap_or(0);
        }
        let tally = self.end.record().tally;
        // What went again is in the meters; a stream's chunks that went again are the machine's to count.
        let packets = self.packets().unwrap_or_default();
        let again = packets.repair_bytes + packets.copy_bytes;
        let rail_bytes = if self.streams_up || packets.fresh_bytes == 0 {
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

    /// Once per turn: pulse, screen, watchdog, growth.
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let due = self.pulsed.elapsed() >= PULSE;
        if due && self.closing == Closing::Open {
            self.pulse();
            self.grow();
            self.steer();
            self.ask_share();
            self.hold_sender()?;
        }
        self.storage_news();
        self.take_gone();
        if due || !self.out.notes.is_empty() || !self.said.is_empty() {
            self.pulsed = if due { Instant::now() } else { self.pulsed };
            self.show();
            self.post();
        }
        self.listen();
        self.watch_paths();
        self.watch_swallow();
        self.watch_means();
        self.take_peers_wish();
        self.take_asked()?;
        self.take_halt()?;
        self.doubt();
        self.watchdog()
    }

    /// The user is told how it goes.
    pub(super) fn show(&mut self) {
        let own = self.books();
        let notes = std::mem::take(&mut self.out.notes);
        let said = std::mem::take(&mut self.said);
        let (rails, paths) = (self.end.rails_up(), self.path_shares());
        let is_silent = self.closing == Closing::Open && self.is_unheard();
        let status = Status {
            record: self.end.record(),
            peer: self.peer,
            own: &own,
            rails,
            paths: &paths,
            elapsed: self.started.elapsed(),
            said: &said,
            silent: is_silent.then(|| (self.peer_told, self.moved + self.job.stall)),
        };
        (self.watch)(&status, &notes);
    }

    /// Volumes whose disks went out since the last look: told, and remembered for the end.
    pub(super) fn take_gone(&mut self) {
        let Way::Recv { sink, .. } = &self.job.way else { return };
        for gone in sink.take_gone() {
            self.said.push(volumes::out(&gone));
            if !gone.before {
                let names = self.out_of_set.get_or_insert_default();
                *names += if names.is_empty() { "" } else { ", " };
                *names += &format!("'{}' ({})", gone.name, gone.why);
            }
        }
    }

    pub(super) fn watchdog(&mut self) -> Result<(), Failure> {
        let tally = self.end.record().tally;
        let closing = u64::from(self.closing != Closing::Open);
        let sign = (
            tally.moved + self.peer.0 + tally.written + tally.compared + tally.holes + closing,
            tally.files_done + tally.failed + tally.folders_done + tally.links_done,
            tally.files_total + u64::from(tally.scan_ended),
            tally.durable + self.peer.1 + self.peer.2,
        );
        if sign != self.moved_sign {
            self.moved_sign = sign;
            self.moved = Instant::now();
        }
        // A disk that flushes is given more time, here or there; not without end.
        let flushing =
            self.commits_open + self.notes_open > 0 || (self.peer_flushes && self.peer_told.elapsed() < PULSE * 10);
        let waits = self.waits_for_its_turn();
        let patience = (if flushing || waits { self.job.stall * MORE } else { self.job.stall }).max(self.slowness());
        // A path that comes back in the last moment is noticed somewhat later.
        let grace = if self.is_unheard() { (self.job.stall / 4).min(GRACE) } else { Duration::ZERO };
        if self.moved.elapsed() < patience + grace {
            return Ok(());
        }
        let own = self.books();
        let stage = largest(&own).map_or("nothing", Stage::name);
        let peers = self.peers.as_ref().and_then(largest).map_or("unknown", Stage::name);
        let rails = self.end.rails_up();
        let cause = format!(
            "no progress for {} s: {rails} rails up, this end mostly in '{stage}', the peer at {} mostly in '{peers}', {}",
            patience.as_secs(),
            self.peer_name(),
            self.end.open_text(),
        );
        self.refuse(Refusal::Stalled.code(), &cause);
        Err(Exit::Stalled.fail("go on", cause))
    }
}

impl Keeper<'_, '_> {
    /// Nothing moved for a while: because an end works for other jobs, of which there may be a thousand, or has no core? The user is told.
    fn waits_for_its_turn(&mut self) -> bool {
        if self.moved.elapsed() < self.job.stall / STILL_PART || self.closing != Closing::Open {
            self.still = None;
            return false;
        }
        let (own, peers) = (self.books(), self.peers.unwrap_or_default());
        let still = self.still.get_or_insert(Still { own, peers, told: false });
        let (here, there) = (is_taken(&still.own, &own), is_taken(&still.peers, &peers));
        if (here || there) && !std::mem::replace(&mut still.told, true) && self.job.rails.dials() {
            let whose = if there { format!("the other end, {},", self.peer_name()) } else { "this host".to_owned() };
            let most = (self.job.stall * MORE).saturating_sub(self.moved.elapsed()).as_secs();
            self.said.push(format!(
                "waiting for a turn, for {most} s at most: {whose} is busy with other jobs, or its cores are taken"
            ));
        }
        here || there
    }

    /// Under a cap chunks are seconds or minutes apart, and that is no standstill: three times what one of each rail takes.
    fn slowness(&self) -> Duration {
        let (own, peers) = (self.wishes.caps.0 / 8, self.wishes.caps.1 / 8);
        let rate = least_cap([self.job.bound.rate(), self.caps.0, own, peers]);
        let bytes = u64::from(self.job.terms.chunk_bytes) * self.end.rails_up().max(1) as u64;
        (3 * bytes).checked_div(rate).map_or(Duration::ZERO, Duration::from_secs)
    }
}

fn largest(books: &Books) -> Option<Stage> {
    Stage::ALL.into_iter().max_by_key(|stage| books.ns[*stage as usize]).filter(|stage| books.ns[*stage as usize] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_works_or_has_no_core_has_its_time_taken_and_one_that_waits_has_not() {
        let books = |stage: Stage, ns, run_delay_ns| {
            let mut books = Books { wall_ns: 10_000, run_delay_ns, ..Books::default() };
            books.ns[Stage::Idle as usize] = 5_000;
            books.ns[stage as usize] += ns;
            books
        };
        let from = books(Stage::Loop, 100, 100);
        let later = |stage, ns, run_delay_ns| Books { wall_ns: 20_000, ..books(stage, ns, run_delay_ns) };
        assert!(is_taken(&from, &later(Stage::Write, 5_200, 100)), "it writes for others");
        assert!(is_taken(&from, &later(Stage::Loop, 100, 5_200)), "others have its cores");
        assert!(is_taken(&from, &later(Stage::Seal, 2_700, 2_700)), "both");
        assert!(!is_taken(&from, &later(Stage::Seal, 2_700, 2_300)));
        for waits in Stage::ALL.into_iter().filter(|it| it.is_wait()) {
            assert!(!is_taken(&from, &later(waits, 9_900, 100)), "{}", waits.name());
        }
        assert!(!is_taken(&from, &from), "nothing is known yet");
    }
}

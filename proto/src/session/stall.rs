//! The watchdog: no job stands still for ever.
//!
//! For: the driver of either end, which ends a job that makes no progress.
//! In and out: counts of what moved, who is heard, and both ends' books in; go on, a word to the user, or the end of the job out.
//! Invariants: no progress for `stall` ends the job; a flush gets more time, and so does a job whose turn does not come because an end has its
//! hands full or no core, and neither without end; under a cap a chunk's time is no standstill.
//! Absent on purpose: why it stands still (books name the stage), the words (the driver).

use core::time::Duration;

use super::Moment;
use crate::books::{Books, Stage};

/// A flush may take so many times `stall`, and so may waiting for a turn.
const MORE: u32 = 4;
/// Nothing moved for this part of `stall`: what the ends do meanwhile is looked at.
const STILL_PART: u32 = 4;
/// Added where the peer is not heard, so that a path that comes back in the last moment is noticed: a pause between two dials (8 s at most) and a
/// connection's greeting; at most a quarter of `stall`.
const GRACE: Duration = Duration::from_secs(10);
/// Chunks under a cap are so many times what one of each rail takes apart, at most.
const CHUNKS: u64 = 3;

/// What changes when a job moves: any difference is progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes sent, received, written, compared or skipped as zeros, at either end.
    pub bytes: u64,
    /// Entries that were resolved.
    pub resolved: u64,
    /// Files that were found.
    pub found: u64,
    /// Bytes durable or written, at either end.
    pub durable: u64,
}

/// What the watchdog looks at, beside progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct Look {
    /// A disk flushes, here or there.
    pub is_flushing: bool,
    /// The peer is not heard, and is looked for.
    pub is_unheard: bool,
    /// What a chunk of each rail takes under the caps in force, see [`slowness`].
    pub slowness: Duration,
    /// This end's books and the peer's as it reported them (all zero: it has not); only where `on_progress` asked for them.
    pub books: Option<(Books, Books)>,
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    GoOn,
    /// The user is told, once per standstill: an end is busy with other jobs or its cores are taken; `peer`: the other one. It is waited for so
    /// long at most.
    Waiting { peer: bool, at_most: Duration },
    /// The job ends: nothing moved for so long.
    Stalled { after: Duration },
}

/// A job that stands still: both ends' books when that was seen.
#[derive(Debug)]
struct Still {
    own: Books,
    peers: Books,
    reported: bool,
}

/// What moved last, and until when standing still is allowed.
#[derive(Debug)]
pub struct Stall {
    stall: Duration,
    moved: Moment,
    /// The last progress, and whether data still moved then: that the job is closing is progress, too.
    seen: (Progress, bool),
    still: Option<Still>,
}

/// Under a cap of `rate` bytes per second (0: none) chunks are seconds or minutes apart, and that is no standstill: three times what one of each
/// rail takes.
#[must_use]
pub fn slowness(rate: u64, chunk_bytes: u32, rails: usize) -> Duration {
    let bytes = u64::from(chunk_bytes) * rails.max(1) as u64;
    (CHUNKS * bytes).checked_div(rate).map_or(Duration::ZERO, Duration::from_secs)
}

/// Was more than half of the workers' time taken since `from`, by jobs or by whoever has the cores? Their books are of all jobs that they have.
fn is_taken(from: &Books, now: &Books) -> bool {
    let work =
        |books: &Books| Stage::ALL.iter().filter(|it| !it.is_wait()).map(|it| books.ns[*it as usize]).sum::<u64>();
    let taken = work(now).saturating_sub(work(from)) + now.run_delay_ns.saturating_sub(from.run_delay_ns);
    let wall_ns = now.wall_ns.saturating_sub(from.wall_ns);
    wall_ns > 0 && taken > wall_ns / 2
}

impl Stall {
    /// A job that begins now and may stand still for `stall`.
    #[must_use]
    pub fn new(now: Moment, stall: Duration) -> Stall {
        Stall { stall, moved: now, seen: (Progress::default(), true), still: None }
    }

    /// When the job's time is over, should nothing more move.
    #[must_use]
    pub fn until(&self) -> Moment {
        self.moved + self.stall
    }

    /// The session goes on over another connection: what waited for the path gets half of `stall` to move again.
    pub fn on_reconnected(&mut self, now: Moment) {
        self.moved = self.moved.max(now.before(self.stall / 2));
    }

    /// Once per iteration, before `on_look`; `is_open`: data moves, the job is not closing yet. True: nothing moved for a while, and the next look
    /// needs both ends' books.
    pub fn on_progress(&mut self, now: Moment, progress: Progress, is_open: bool) -> bool {
        if (progress, is_open) != self.seen {
            (self.seen, self.moved) = ((progress, is_open), now);
        }
        is_open && now.since(self.moved) >= self.stall / STILL_PART
    }

    /// Once per iteration.
    pub fn on_look(&mut self, now: Moment, look: &Look) -> Verdict {
        let (waits, report) = self.waits_for_its_turn(now, look.books);
        let more = look.is_flushing || waits;
        let patience = (if more { self.stall * MORE } else { self.stall }).max(look.slowness);
        let grace = if look.is_unheard { (self.stall / 4).min(GRACE) } else { Duration::ZERO };
        if now.since(self.moved) >= patience + grace {
            return Verdict::Stalled { after: patience };
        }
        report.unwrap_or(Verdict::GoOn)
    }

    /// Nothing moved for a while: because an end works for other jobs, of which there may be a thousand, or has no core? The user is told.
    fn waits_for_its_turn(&mut self, now: Moment, books: Option<(Books, Books)>) -> (bool, Option<Verdict>) {
        let Some((own, peers)) = books else {
            self.still = None;
            return (false, None);
        };
        let still = self.still.get_or_insert(Still { own, peers, reported: false });
        let (here, there) = (is_taken(&still.own, &own), is_taken(&still.peers, &peers));
        let is_news = (here || there) && !core::mem::replace(&mut still.reported, true);
        let at_most = (self.stall * MORE).saturating_sub(now.since(self.moved));
        (here || there, is_news.then_some(Verdict::Waiting { peer: there, at_most }))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const STALL: Duration = Duration::from_secs(60);
    const LOOK: Look = Look { is_flushing: false, is_unheard: false, slowness: Duration::ZERO, books: None };
    const PROGRESS: Progress = Progress { bytes: 7, resolved: 0, found: 0, durable: 0 };

    fn at(s: u64) -> Moment {
        Moment::from_ns(s * 1_000_000_000)
    }

    /// Books after so many seconds, of which a worker worked this part, in percent.
    fn books(s: u64, percent: u64) -> Books {
        let mut books = Books { wall_ns: s * 1_000_000_000, ..Books::default() };
        books.ns[Stage::Write as usize] = books.wall_ns * percent / 100;
        books.ns[Stage::Idle as usize] = books.wall_ns - books.ns[Stage::Write as usize];
        books
    }

    /// What is said, second by second, where nothing moves and the ends work this part of the time, until the job ends.
    fn stands(is_open: bool, look: Look, own: u64, peers: u64) -> Vec<(u64, Verdict)> {
        let (mut stall, mut said) = (Stall::new(at(0), STALL), Vec::new());
        for s in 0..2000 {
            let wants = stall.on_progress(at(s), PROGRESS, is_open);
            let books = wants.then(|| (books(s, own), books(s, peers)));
            match stall.on_look(at(s), &Look { books, ..look }) {
                Verdict::GoOn => {}
                verdict => said.push((s, verdict)),
            }
            if matches!(said.last(), Some((_, Verdict::Stalled { .. }))) {
                break;
            }
        }
        said
    }

    /// What is said at that second, should nothing have moved.
    fn look(stall: &mut Stall, s: u64, look: &Look) -> Verdict {
        stall.on_progress(at(s), PROGRESS, true);
        stall.on_look(at(s), look)
    }

    fn stalled(after: u64) -> Verdict {
        Verdict::Stalled { after: Duration::from_secs(after) }
    }

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

    #[test]
    fn a_job_in_which_both_ends_wait_ends_after_stall() {
        assert_eq!(stands(true, LOOK, 0, 0), [(60, stalled(60))]);
    }

    #[test]
    fn any_progress_begins_the_time_anew() {
        let mut stall = Stall::new(at(0), STALL);
        let moves: [fn(&mut Progress) -> &mut u64; 4] =
            [|it| &mut it.bytes, |it| &mut it.resolved, |it| &mut it.found, |it| &mut it.durable];
        let mut progress = PROGRESS;
        let mut verdict = |s, progress, is_open| {
            stall.on_progress(at(s), progress, is_open);
            stall.on_look(at(s), &LOOK)
        };
        assert_eq!(verdict(0, progress, true), Verdict::GoOn);
        for (index, field) in moves.into_iter().enumerate() {
            *field(&mut progress) += 1;
            assert_eq!(verdict(59 * (index as u64 + 1), progress, true), Verdict::GoOn);
        }
        assert_eq!(verdict(295, progress, false), Verdict::GoOn, "closing is progress");
        assert_eq!(verdict(354, progress, false), Verdict::GoOn);
        assert_eq!(verdict(355, progress, false), stalled(60));
    }

    #[test]
    fn a_flush_gets_four_times_stall_and_no_more() {
        assert_eq!(stands(true, Look { is_flushing: true, ..LOOK }, 0, 0), [(240, stalled(240))]);
    }

    #[test]
    fn a_job_that_waits_for_its_turn_says_so_once_and_waits_four_times_stall() {
        let waiting = |peer, at_most| Verdict::Waiting { peer, at_most: Duration::from_secs(at_most) };
        // Nothing is known of the first look at a standstill, after a quarter of the time: it is told at the second.
        assert_eq!(stands(true, LOOK, 90, 0), [(16, waiting(false, 224)), (240, stalled(240))]);
        assert_eq!(stands(true, LOOK, 0, 90), [(16, waiting(true, 224)), (240, stalled(240))]);
        assert_eq!(stands(true, LOOK, 40, 40), [(60, stalled(60))], "less than half is no reason");
        assert_eq!(stands(false, LOOK, 90, 90), [(60, stalled(60))], "nor is it while closing");
    }

    #[test]
    fn a_peer_that_is_not_heard_is_waited_for_a_little_longer() {
        assert_eq!(stands(true, Look { is_unheard: true, ..LOOK }, 0, 0), [(70, stalled(60))]);
        let (mut stall, unheard) = (Stall::new(at(0), Duration::from_secs(20)), Look { is_unheard: true, ..LOOK });
        assert_eq!(look(&mut stall, 0, &unheard), Verdict::GoOn);
        assert_eq!(look(&mut stall, 24, &unheard), Verdict::GoOn);
        assert_eq!(look(&mut stall, 25, &unheard), stalled(20), "a quarter of stall at most");
    }

    #[test]
    fn another_connection_gives_half_of_stall_and_never_takes_any() {
        let mut stall = Stall::new(at(0), STALL);
        look(&mut stall, 0, &LOOK);
        stall.on_reconnected(at(10));
        assert_eq!(stall.until(), at(60), "there was more time left");
        stall.on_reconnected(at(59));
        assert_eq!(stall.until(), at(89));
        assert_eq!(look(&mut stall, 88, &LOOK), Verdict::GoOn);
        assert_eq!(look(&mut stall, 89, &LOOK), stalled(60));
    }

    #[test]
    fn under_a_cap_three_chunks_of_each_rail_are_no_standstill() {
        let second = |s| Duration::from_secs(s);
        assert_eq!(slowness(1 << 20, 8 << 20, 4), second(96));
        assert_eq!(slowness(1 << 20, 8 << 20, 0), second(24), "a rail may be on its way");
        assert_eq!(slowness(0, 8 << 20, 4), Duration::ZERO, "no cap");
        assert_eq!(stands(true, Look { slowness: second(96), ..LOOK }, 0, 0), [(96, stalled(96))]);
        assert_eq!(stands(true, Look { slowness: second(24), ..LOOK }, 0, 0), [(60, stalled(60))]);
    }
}

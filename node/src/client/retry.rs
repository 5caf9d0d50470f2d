//! The same job again, by itself, when its session was lost: a daemon that is restarted, a path that is away for a while.
//!
//! For: nobody has to type the command again for an outage shorter than `--stall`.
//! In and out: passes over the source that ended, well or not; the last one's exit code out, the events told meanwhile.
//! Invariants: only a session that had carried a job is made again, and only while the outage is younger than `--stall`; what a wrong key, a
//! spent ticket or a full disk refuses is told at once; a pass that brought nothing durable does not begin the time anew, so a peer that dies of
//! the job each time is not asked for ever.
//! Absent on purpose: what resumes (journals, files that are there), the session's own ways over another connection (job::driver).

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use engine::machine::Tally;
use proto::layout::Layout;

use crate::event::Events;
use crate::report::Reconnecting;
use text::exit::{Exit, Failure};

/// The first pause; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// And the longest: a daemon that is back is found within so long.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// What passes before the last one brought, for the report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Sessions that were lost and made again.
    pub lost: u64,
    /// Files that were sent and verified before.
    pub files: u64,
    /// Payload sent of these.
    pub bytes: u64,
    /// All bytes of these: what the last pass finds there.
    pub whole_bytes: u64,
    /// Bytes on rails.
    pub rail_bytes: u64,
}

/// Passes over the source: because a disk of the destination went out, or because the session was lost.
#[derive(Debug, Default)]
pub struct Retries {
    wanted: Cell<bool>,
    made: Cell<u16>,
    broke: RefCell<Option<Tally>>,
    job: Cell<[u8; 16]>,
    before: Cell<[u8; 16]>,
    earlier: Cell<Earlier>,
}

/// An outage.
struct Outage {
    since: Instant,
    told: SystemTime,
    pause: Duration,
    attempts: u32,
}

impl Retries {
    /// Is there to be another pass, without the disks that went out? Each takes at least one disk out, or it was the last.
    #[must_use]
    pub fn want(&self, layout: Option<Layout>) -> bool {
        let wanted = layout.is_some_and(|it| self.made.get() + 1 < it.volumes);
        self.wanted.set(wanted);
        self.made.set(self.made.get() + u16::from(wanted));
        wanted
    }

    /// A session carries the job of this name.
    pub fn is_on(&self, job: [u8; 16]) {
        self.job.set(job);
    }

    /// The job that the last session carried; zeros: none did.
    #[must_use]
    pub fn job(&self) -> [u8; 16] {
        self.job.get()
    }

    /// A session ended that had carried a job, which had come so far.
    pub fn broke(&self, tally: Tally) {
        self.broke.replace(Some(tally));
        self.before.set(self.job.get());
    }

    /// The job whose session was lost: the peer may not know that yet, and writes its files until it is told. Zeros: none was.
    #[must_use]
    pub fn before(&self) -> [u8; 16] {
        self.before.get()
    }

    /// Was a session lost that had carried the job?
    #[must_use]
    pub fn was_lost(&self) -> bool {
        self.earlier.get().lost > 0
    }

    /// What passes before this one brought.
    #[must_use]
    pub fn earlier(&self) -> Earlier {
        self.earlier.get()
    }

    /// Makes passes until none is wanted any more, or an outage lasts for `stall`.
    pub fn until_done(
        &self,
        stall: Duration,
        events: &mut Events<'_>,
        mut pass: impl FnMut(&mut Events<'_>) -> Result<Exit, Failure>,
    ) -> Result<Exit, Failure> {
        let mut outage: Option<Outage> = None;
        // The most that was durable at the destination at the end of any pass.
        let mut best = None;
        loop {
            let failure = match pass(events) {
                Ok(_) if self.wanted.take() => {
                    outage = None;
                    continue;
                }
                Ok(exit) => return Ok(exit),
                Err(failure) => failure,
            };
            let broke = self.broke.take();
            if !(is_outage(&failure) && (broke.is_some() || outage.is_some())) {
                return Err(failure);
            }
            if let Some(tally) = broke {
                let came =
                    (tally.bytes_kept + tally.bytes_resumed + tally.durable, tally.files_done + tally.folders_done);
                if best.is_none_or(|best| came > best) {
                    best = Some(came);
                    outage = None;
                }
                self.add(&tally);
            }
            let begins = outage.is_none();
            let now = Instant::now();
            let it = outage.get_or_insert_with(|| Outage {
                since: now,
                told: SystemTime::now(),
                pause: PAUSE_MIN,
                attempts: 0,
            });
            let left = stall.saturating_sub(it.since.elapsed());
            if left.is_zero() {
                let cause =
                    format!("{} attempts in {} s, the last: {}", it.attempts, stall.as_secs_f32(), failure.cause);
                return Err(Exit::Lost.fail("make the session again", cause));
            }
            let waiting = Reconnecting::of(it.told, stall);
            if begins {
                events.note(&format!("{}: {}; {}", failure.what, failure.cause, waiting.sentence()));
            }
            events.reconnecting(waiting);
            std::thread::sleep(it.pause.min(left));
            it.pause = (it.pause * 2).min(PAUSE_MAX);
            it.attempts += 1;
        }
    }

    fn add(&self, tally: &Tally) {
        let earlier = self.earlier.get();
        // Of what this pass found, an earlier one brought some: it is counted there.
        let kept = tally.files_kept.saturating_sub(earlier.files);
        let kept_bytes = tally.bytes_kept.saturating_sub(earlier.whole_bytes);
        let had = tally.bytes_kept + tally.bytes_resumed + tally.holes;
        self.earlier.set(Earlier {
            lost: earlier.lost + 1,
            files: tally.files_done.saturating_sub(kept),
            bytes: earlier.bytes + tally.bytes_done.saturating_sub(had),
            whole_bytes: tally.bytes_done.saturating_sub(kept_bytes),
            rail_bytes: earlier.rail_bytes + tally.rail_bytes,
        });
    }
}

/// Is it of a kind that passes by itself? The other end being away is; what it refuses for a reason is not.
fn is_outage(failure: &Failure) -> bool {
    matches!(failure.exit, Exit::Lost | Exit::Connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_millis(700);

    fn lost() -> Failure {
        Exit::Lost.fail("keep the session with h:1", "the peer ended the session")
    }

    fn away() -> Failure {
        Exit::Connect.fail("connect to h:1", "connection refused")
    }

    /// What came of it, after how many passes, and what the user read.
    fn run(mut pass: impl FnMut(&Retries, u32) -> Result<Exit, Failure>) -> (Result<Exit, Failure>, u32) {
        let again = Retries::default();
        let mut nobody = |_| ();
        let mut events = Events::to(&mut nobody);
        let mut passes = 0;
        let ended = again.until_done(STALL, &mut events, |_| {
            passes += 1;
            pass(&again, passes)
        });
        (ended, passes)
    }

    #[test]
    fn a_lost_session_is_made_again_and_what_it_brought_is_counted_once() {
        let tally = |done, kept| Tally {
            files_done: done,
            bytes_done: done,
            files_kept: kept,
            bytes_kept: kept,
            ..Tally::default()
        };
        let mut earlier = Earlier::default();
        let (ended, passes) = run(|again, pass| match pass {
            // Five were there before, three came, then the session went.
            1 => {
                again.broke(tally(8, 5));
                Err(lost())
            }
            2 => Err(away()),
            // Eight are there, of which three came before; two more come.
            3 => {
                again.broke(tally(10, 8));
                Err(lost())
            }
            _ => {
                earlier = again.earlier();
                Ok(Exit::Whole)
            }
        });
        assert_eq!((ended.unwrap(), passes), (Exit::Whole, 4));
        assert_eq!((earlier.lost, earlier.files, earlier.bytes, earlier.whole_bytes), (2, 5, 5, 5));
    }

    #[test]
    fn what_never_was_a_job_and_what_is_refused_is_not_asked_again() {
        let (ended, passes) = run(|_, _| Err(away()));
        assert_eq!((ended.unwrap_err().exit, passes), (Exit::Connect, 1));
        for exit in [Exit::Refused, Exit::Identity, Exit::Full, Exit::Breach, Exit::Stalled] {
            let (ended, passes) = run(|again, pass| {
                if pass == 1 {
                    again.broke(Tally::default());
                    return Err(lost());
                }
                Err(exit.fail("go on", "no"))
            });
            assert_eq!((ended.unwrap_err().exit, passes), (exit, 2));
        }
    }

    #[test]
    fn an_outage_is_waited_for_as_long_as_stall_and_no_longer_where_nothing_comes() {
        for dies_each_time in [false, true] {
            let since = Instant::now();
            let (ended, passes) = run(|again, pass| {
                if pass == 1 || dies_each_time {
                    // It lives long enough to be asked, and brings nothing that lasts.
                    again.broke(Tally { moved: 1000 * u64::from(pass), ..Tally::default() });
                    return Err(lost());
                }
                Err(away())
            });
            let failure = ended.unwrap_err();
            assert_eq!(failure.exit, Exit::Lost, "{failure}");
            assert!(since.elapsed() >= STALL && passes > 2, "{passes} passes in {:?}", since.elapsed());
        }
    }
}

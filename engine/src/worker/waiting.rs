//! Why an iteration waits, and until when.
//!
//! For: stage accounting: a wait is booked to what it is for, and what the thread did in it to the same.
//! In and out: ops in flight, rails and held chunks in; a stage and a number of nanoseconds out.
//! Invariants: nobody sleeps past the moment at which a rail, a bound or a held chunk wants to go on.
//! Absent on purpose: sleeping (`Platform::wait`).

use proto::books::Stage;

use crate::ends::held::LOOK_NS;
use crate::platform::Platform;
use crate::rail::Rail;
use crate::rail::datagram::Pause;
use crate::worker::Worker;
use crate::worker::slots::{KINDS, Kind};

impl<P: Platform> Worker<P> {
    /// The commands were taken: what queue pairs fetched before may be opened.
    pub(super) fn ripen_pairs(&mut self) {
        for rail in self.rails.iter_mut().flatten() {
            if let Rail::Rdma(rail) = rail {
                rail.ripen();
            }
        }
    }

    pub(super) fn why_wait(&self, sleep_ns_max: u64) -> (Stage, u64) {
        if self.late {
            return (Stage::Idle, 1_000_000);
        }
        let now = self.platform.now_ns();
        let mut counts = [0_usize; KINDS];
        let mut sleep_ns = sleep_ns_max;
        for slot in self.slots.iter() {
            counts[slot.kind as usize] += 1;
        }
        let (mut held, mut hungry, mut paused, mut stuck, mut listening) = (false, false, false, false, false);
        for rail in self.rails.iter().flatten() {
            paused |= rail.base().paused;
            match rail {
                Rail::Stream(rail) => {
                    if let Some(wait_ns) = rail.held_ns(now) {
                        held = true;
                        sleep_ns = sleep_ns.min(wait_ns);
                    }
                    hungry |= rail.is_hungry();
                }
                Rail::Datagram(rail) if !rail.wire.base.has_ended() => {
                    sleep_ns = sleep_ns.min(rail.wake_ns().saturating_sub(now));
                    held |= rail.pause() == Pause::Cap;
                    stuck |= rail.pause() == Pause::Path;
                    listening |= rail.is_receiving();
                }
                Rail::Rdma(rail) => {
                    if let Some(wait_ns) = rail.held_ns(now) {
                        held = true;
                        sleep_ns = sleep_ns.min(wait_ns);
                    }
                    if rail.wants_turn() {
                        sleep_ns = 0;
                    }
                    stuck |= rail.waits_for_credit();
                    hungry |= rail.is_hungry();
                    listening |= rail.is_receiving() && !rail.base.has_ended();
                }
                Rail::Datagram(_) => {}
            }
        }
        let holds = self.jobs.values().any(|job| job.end.holds());
        if holds {
            sleep_ns = sleep_ns.min(LOOK_NS);
        }
        let of = |kind: Kind| counts[kind as usize];
        let stage = if held {
            Stage::WaitRate
        } else if paused || holds || (hungry && of(Kind::Write) > 0) {
            Stage::WaitWrite
        } else if of(Kind::Send) > 0 || (stuck && of(Kind::Read) + of(Kind::Reload) == 0) {
            // A paced rail spreads what little a slow source gives: as long as the source owes something, that is what is waited for.
            Stage::WaitSend
        } else if of(Kind::Read) + of(Kind::Reload) > 0 {
            Stage::WaitRead
        } else if of(Kind::Write) + of(Kind::Spill) + of(Kind::Check) > 0 {
            // Before what listens: a rail always listens, and a disk that takes its time must not look like a network that does.
            Stage::WaitWrite
        } else if listening || of(Kind::Head) + of(Kind::Payload) > 0 {
            Stage::WaitRecv
        } else {
            Stage::Idle
        };
        (stage, sleep_ns)
    }
}

/// What the thread did while it was booked as waiting.
pub(super) fn work_of(wait: Stage) -> Stage {
    match wait {
        Stage::WaitRead => Stage::Read,
        Stage::WaitSend => Stage::Send,
        Stage::WaitRecv => Stage::Recv,
        Stage::WaitWrite => Stage::Write,
        _ => Stage::Loop,
    }
}

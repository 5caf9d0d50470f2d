//! Datagram rails go on when this end's address changes: after a move to another network, or when a NAT forgets its mapping.
//!
//! For: a job that does not end, and is at its rate again within a second.
//! In and out: the rails' meters in; a greeting from a new socket, and the socket to the worker, out.
//! Invariants: the initiator alone moves, since it alone can be reached nowhere; the new address carries no data before it has shown that it
//! hears (greeting, W, K: docs/protocol.md section 7; RFC 9000 section 9.3), and the old one stays in use until then; where nothing is heard
//! because nothing is sent, or because the peer has no core for it, the pauses between greetings grow, and shrink slowly.
//! Absent on purpose: a new rate (the law finds it from what it hears), a new control session.

use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::job::Cmd;

use super::again::is_silent;
use super::{Closing, End, Keeper, PULSE};
use crate::job::rails::Ask;

/// Nothing heard for so long, or for so many round trips, while something is on its way: the path is looked for again. Feedback comes at
/// least every round trip or 25 ms; four of them are not lost one after another.
const SILENCE: Duration = Duration::from_millis(250);
const SILENCE_RTTS: u32 = 4;
/// Twice as long after each greeting, up to
const SILENCE_MAX: Duration = Duration::from_secs(8);
/// and half of that again when this has passed without one. A packet that comes says nothing of whether the greeting was called for: beside
/// hundreds of jobs on two cores each rail is silent for a second now and then, and what waits in the old socket is lost with each move
/// (183 jobs moved 4,952 times, and 20 of them brought nothing within a minute).
const CALM: Duration = Duration::from_secs(8);
/// So many make the longest pause.
const TRIES_MAX: u32 = 6;
/// The control session has a word of the peer twice a second: silent for longer, it is the whole path that is down, not UDP alone.
const PEER_ALIVE: Duration = Duration::from_secs(2);
/// So many greetings in a row, none answered although the peer is there, and UDP is what does not get through. One is not enough: it may
/// have begun while the whole path was down, and the session come back before it ended.
const UNANSWERED: u32 = 2;

/// Whether a rail is heard.
#[derive(Debug)]
pub(super) struct Hearing {
    sign: u64,
    since: Instant,
    /// Greetings, less one for each `CALM` without any.
    tries: u32,
    /// The last greeting, or when one was forgotten.
    calm: Instant,
    /// Of these, one after another, those that the peer did not answer although it was there.
    unanswered: u32,
    /// One is on its way.
    asked: bool,
}

impl Hearing {
    pub(super) fn new() -> Hearing {
        let now = Instant::now();
        Hearing { sign: 0, since: now, tries: 0, calm: now, unanswered: 0, asked: false }
    }

    /// `sign` changes when something is heard. Is it time to greet? `waits`: something is on its way.
    fn is_lost(&mut self, now: Instant, sign: u64, waits: bool, rtt: Duration) -> bool {
        if sign != self.sign {
            (self.sign, self.unanswered, self.since) = (sign, 0, now);
            if now.saturating_duration_since(self.calm) >= CALM {
                (self.tries, self.calm) = (self.tries.saturating_sub(1), now);
            }
        }
        if !waits {
            self.since = now;
        }
        let patience = SILENCE.max(rtt * SILENCE_RTTS) * 2u32.saturating_pow(self.tries);
        !self.asked && waits && now.saturating_duration_since(self.since) >= patience.min(SILENCE_MAX)
    }

    fn greets(&mut self, now: Instant) {
        (self.asked, self.tries, self.calm) = (true, (self.tries + 1).min(TRIES_MAX), now);
    }

    /// A greeting came to nothing. Is it UDP that does not get through? Not if this end could not even send it (its address just changed, no
    /// route for a moment), nor if the peer is silent altogether.
    fn is_blocked(&mut self, error: &Error, peer_is_there: bool) -> bool {
        let silence = matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionRefused);
        self.unanswered = if silence && peer_is_there { self.unanswered + 1 } else { 0 };
        self.unanswered >= UNANSWERED
    }
}

impl Keeper<'_, '_> {
    /// Once per turn: a datagram rail that is not heard is greeted from a new socket.
    pub(super) fn listen(&mut self) {
        if !self.job.rails.dials() || self.closing != Closing::Open {
            return;
        }
        let (now, sends) = (Instant::now(), matches!(self.end, End::Send(_)));
        let session = sys::sock::tcp_info(self.job.link.as_fd()).unwrap_or_default();
        let ours = session.rtt_us;
        // Its kernel answers and it says nothing: it has no core, or is stopped, and sends no packets either.
        let is_busy = self.peer_told.elapsed() >= 2 * PULSE + Duration::from_micros(ours.into()) * SILENCE_RTTS
            && !is_silent(&session);
        for (&rail, it) in &mut self.carriers {
            let Some(meter) = it.meter.as_ref().filter(|_| it.rests_until.is_none()) else { continue };
            let stats = meter.read();
            let sign = if sends { stats.feedbacks } else { stats.packets };
            let rtt = Duration::from_nanos(stats.rtt_ns).max(Duration::from_micros(ours.into()));
            if it.hearing.is_lost(now, sign, stats.units > 0 && !is_busy, rtt) {
                it.hearing.greets(now);
                self.job.rails.ask(it.path, Ask::Packets(rail));
            }
        }
    }

    /// A datagram rail has another socket.
    pub(super) fn moved(&mut self, rail: u16, socket: OwnedFd) {
        let Some(it) = self.carriers.get_mut(&rail) else { return };
        let silent = it.hearing.since.elapsed();
        // What was heard before belongs to the old address; the new one gets its time.
        (it.hearing.asked, it.hearing.since) = (false, Instant::now());
        let socket = Arc::new(socket);
        it.socket = Arc::downgrade(&socket);
        let (job, worker) = (self.job.no, usize::from(rail) % self.job.workers.count());
        self.job.workers.send(worker, Cmd::RailMoved { job, rail, socket });
        let text = format!("rail {rail} goes on from another address: nothing was heard for {} ms", silent.as_millis());
        self.out.notes.push(text);
    }

    /// A greeting of a rail that is up came to nothing. True: it is greeted anew later; false: it is UDP that does not get through.
    pub(super) fn not_moved(&mut self, rail: u16, error: &Error) -> bool {
        let peer_is_there = self.peer_told.elapsed() < PEER_ALIVE;
        let Some(it) = self.carriers.get_mut(&rail) else { return false };
        (it.hearing.asked, it.hearing.since) = (false, Instant::now());
        !it.hearing.is_blocked(error, peer_is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_while_something_is_on_its_way_is_a_lost_path_and_the_pauses_grow() {
        let rtt = Duration::from_millis(20);
        let (mut hearing, begin) = (Hearing::new(), Instant::now());
        let mut greeted = Vec::new();
        for ms in 0..20_000u64 {
            let now = begin + Duration::from_millis(ms);
            // Heard until 1000 ms, then never again.
            let sign = 1 + ms.min(1000);
            if hearing.is_lost(now, sign, true, rtt) {
                greeted.push(ms);
                hearing.greets(now);
                (hearing.asked, hearing.since) = (false, now);
            }
        }
        assert_eq!(
            greeted,
            [1250, 1750, 2750, 4750, 8750, 16750],
            "a quarter of a second, then twice as long each time"
        );
    }

    #[test]
    fn a_rail_that_is_silent_for_a_while_and_heard_again_is_not_greeted_each_time() {
        let (mut hearing, begin, mut greeted) = (Hearing::new(), Instant::now(), 0);
        // Heard for half a second, then not for half a second, as beside hundreds of jobs on two cores.
        for ms in 0..60_000u64 {
            let now = begin + Duration::from_millis(ms);
            if hearing.is_lost(now, ms.saturating_sub(ms / 500 % 2 * (ms % 500)), true, Duration::ZERO) {
                greeted += 1;
                hearing.greets(now);
                (hearing.asked, hearing.since) = (false, now);
            }
        }
        assert!(greeted <= 8, "{greeted} in a minute");
        // Heard for as long as the longest pause for each greeting: as soon as ever.
        for ms in 60_000..120_000u64 {
            assert!(!hearing.is_lost(begin + Duration::from_millis(ms), ms, true, Duration::ZERO));
        }
        let lost = (0..1000)
            .find(|ms| hearing.is_lost(begin + Duration::from_millis(120_000 + ms), 119_999, true, Duration::ZERO));
        assert_eq!(lost, Some(249));
    }

    #[test]
    fn a_rail_with_nothing_on_its_way_is_silent_rightly() {
        let (mut hearing, begin) = (Hearing::new(), Instant::now());
        for ms in 0..10_000 {
            let now = begin + Duration::from_millis(ms);
            assert!(!hearing.is_lost(now, 7, false, Duration::ZERO), "{ms}");
        }
        // The wait begins when something goes.
        let later = begin + Duration::from_millis(10_100);
        assert!(!hearing.is_lost(later, 7, true, Duration::ZERO));
        assert!(hearing.is_lost(later + SILENCE, 7, true, Duration::ZERO));
    }

    #[test]
    fn udp_is_blocked_after_two_silent_greetings_while_the_peer_is_there() {
        let (silence, no_route) = (Error::from(ErrorKind::TimedOut), Error::from(ErrorKind::NetworkUnreachable));
        let mut hearing = Hearing::new();
        assert!(!hearing.is_blocked(&silence, true), "one may have begun before the path came back");
        assert!(hearing.is_blocked(&silence, true));
        let mut hearing = Hearing::new();
        for _ in 0..9 {
            assert!(!hearing.is_blocked(&silence, false), "the whole path is down");
            assert!(!hearing.is_blocked(&no_route, true), "nothing left this end");
            assert!(!hearing.is_blocked(&silence, true), "and these do not add up");
            assert!(!hearing.is_lost(Instant::now(), 0, false, Duration::ZERO));
        }
        // Something heard in between is an answer.
        let mut hearing = Hearing::new();
        assert!(!hearing.is_blocked(&silence, true));
        hearing.is_lost(Instant::now(), 1, true, Duration::ZERO);
        assert!(!hearing.is_blocked(&silence, true));
    }
}

//! The control session goes on over another connection: after a move to another network, or when its path was dead for a while.
//!
//! For: a job that outlives the connection which negotiated it.
//! In and out: silence of the peer and of its kernel, and how dials and their greetings went, in; when to dial, what to believe of a broken
//! connection, and when the session is lost, out.
//! Invariants: the initiator alone dials, since it alone can be reached nowhere; one connection is made at a time; nothing is read from the old
//! connection after this end's count was sent on a new one, unless the new one came to nothing; a session that nothing completes is not
//! carried from connection to connection for ever.
//! Absent on purpose: who is believed (keys and counts of the handshake: the driver), which bytes go again (the link), rails (migration).
//! Source: docs/protocol.md section 6, *Another connection*.
//!
//! ```text
//! from: in use (the connection carries the session)
//!   silence, or a broken connection    → to: dialling       (next_dial)
//! from: dialling
//!   the dial failed                    → to: in use, or broken; again after a pause that doubles
//!   greeted, and the own count is sent → to: proving        (on_count_sent)
//! from: proving
//!   the peer's count came              → to: in use         (begin_change, on_changed)
//!   it ended, said something else, or `PROVE` passed → to: in use, or broken
//! An acceptor never dials: a connection that was proven to it before comes with the initiator's count (begin_change).
//! ```

use core::time::Duration;

use super::Moment;
use super::connection::{Connection, SILENCE, TRIPS};

/// But where its kernel acknowledges what is said to it, the path is there, and it is the peer that has no core (measured: a thousand jobs on
/// two of them) or is stopped: another connection brings it nothing but work. Something in between may answer in its place, so that is not
/// believed for longer than this.
const BUSY: Duration = Duration::from_secs(6);
/// Silent for so long, the user is told; and of dials that fail meanwhile nothing is concluded. Six reports are missing.
const UNHEARD: Duration = Duration::from_secs(3);
/// Between two dials, the first time and at most; never more than an eighth of the time that a job waits for progress.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// See [`PAUSE`].
const PAUSE_PART: u32 = 8;
/// A connection that is closed instead of greeted so often, while the old one is of no use: the peer knows of no such job any more.
const UNKNOWN_MAX: u32 = 2;
/// A connection that greeted must have said its count by then: a handshake of two round trips, and a peer that has no core for seconds.
const PROVE: Duration = Duration::from_secs(10);
/// Connections in a row that carry the session and bring no frame, until bytes of the session are known to be harmed: a length of a record of
/// TLS that somebody changed waits for bytes that never come, over each of them.
const MUTE_MAX: u32 = 3;

/// How a connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// The kernel gave it up: no route, no answer, its address is gone.
    Failed,
    /// It was reset, or closed for writing: so ends the connection of a process that is gone.
    Reset,
    /// It ended without a farewell: the peer's process is gone, or has gone on over another connection that came to nothing.
    Cut,
    /// What came over it was no session: nothing goes on from there.
    Other,
}

/// The session is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// The peer closes what it should greet: it does not know the job any more.
    Unknown,
    /// So many connections in a row brought nothing of it: bytes of it were lost or changed.
    Mute(u32),
}

/// The state of the control session's connection: heard, looked for, or replaced.
#[derive(Debug)]
pub struct Reconnect {
    /// This end dials.
    initiates: bool,
    /// No dial pauses longer than a part of this.
    stall: Duration,
    /// The last report of the peer, or the last change of connections.
    heard: Moment,
    /// A connection is being made.
    is_dialling: bool,
    /// This end's count was sent on a new connection then; its answer is awaited.
    proving: Option<Moment>,
    pause: Duration,
    not_before: Moment,
    /// The old connection is of no use any more.
    is_broken: bool,
    /// A count was sent: the peer may have gone on over a connection that then came to nothing, and closed the old one.
    has_tried: bool,
    /// Connections that the peer closed instead of greeting them.
    unknown: u32,
    /// Connections that carried the session since a frame came last.
    mute: u32,
    /// When the peer was last found silent for long.
    unheard: Option<Moment>,
}

impl Reconnect {
    /// A session that was opened now. `initiates`: this end dials; `stall`: the job waits so long for progress.
    #[must_use]
    pub const fn new(now: Moment, initiates: bool, stall: Duration) -> Reconnect {
        Reconnect {
            initiates,
            stall,
            heard: now,
            is_dialling: false,
            proving: None,
            pause: PAUSE.0,
            not_before: now,
            is_broken: false,
            has_tried: false,
            unknown: 0,
            mute: 0,
            unheard: None,
        }
    }

    /// A frame of the session came.
    pub const fn on_frame(&mut self) {
        self.mute = 0;
    }

    /// The peer's report came.
    pub const fn on_report(&mut self, now: Moment) {
        self.heard = now;
    }

    /// The time since the peer's last report.
    #[must_use]
    pub const fn silence(&self, now: Moment) -> Duration {
        now.since(self.heard)
    }

    /// Since when the peer is not heard, if it is not.
    #[must_use]
    pub const fn heard(&self) -> Moment {
        self.heard
    }

    /// Is the old connection left alone: neither read nor written?
    #[must_use]
    pub const fn is_between(&self) -> bool {
        self.is_broken || self.proving.is_some()
    }

    /// Has the peer said nothing for longer than a busy machine or a lost packet explains?
    #[must_use]
    pub fn is_unheard(&self, now: Moment, rtt: Duration) -> bool {
        self.silence(now) >= UNHEARD + rtt * TRIPS
    }

    /// Was nothing heard for a while, until a moment ago? What a path held back comes all at once when it is there again.
    #[must_use]
    pub fn was_unheard(&self, now: Moment) -> bool {
        self.unheard.is_some_and(|then| now.since(then) < PROVE)
    }

    /// The connection broke. True: the session waits for another one, as long as the watchdog lets it. An end without a farewell is that of the
    /// peer's process.
    pub fn on_break(&mut self, how: Break) -> bool {
        let waits = match how {
            Break::Failed => true,
            Break::Cut => self.has_tried,
            Break::Reset | Break::Other => false,
        };
        self.is_broken |= waits;
        waits
    }

    /// Once per iteration. True: a connection for the session is to be dialled now; its end is told with `on_dial_failed` or `on_count_sent`.
    /// `connection`: of the session; `None`: the kernel does not know it any more.
    pub fn next_dial(&mut self, now: Moment, connection: Option<&Connection>) -> bool {
        let rtt = connection.map_or(Duration::ZERO, |it| it.rtt);
        if self.is_unheard(now, rtt) {
            self.unheard = Some(now);
        }
        if !self.initiates || self.is_dialling || self.proving.is_some() {
            return false;
        }
        let silence = self.silence(now);
        let is_away = silence >= SILENCE && connection.is_none_or(|it| self.is_away(silence, it));
        if !is_away && !self.is_broken {
            self.pause = PAUSE.0;
            return false;
        }
        if now < self.not_before {
            return false;
        }
        (self.is_dialling, self.not_before) = (true, now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1).min((self.stall / PAUSE_PART).max(PAUSE.0));
        true
    }

    /// Is the peer to be looked for over another connection, of which nothing was heard for so long over this one? Sooner where the connection
    /// before brought no frame either, though the peer's process sent its count on it, and so has a core.
    fn is_away(&self, silence: Duration, connection: &Connection) -> bool {
        let busy = if self.mute > 0 { BUSY / 3 } else { BUSY };
        silence >= SILENCE + connection.trips() && (connection.is_silent() || silence >= busy + connection.trips())
    }

    /// The new connection whose answer is awaited has had its time: the driver lets it go.
    pub fn is_unproven(&mut self, now: Moment) -> bool {
        self.proving.take_if(|since| now.since(*since) >= PROVE).is_some()
    }

    /// No connection could be made. `closed`: it was refused, or closed instead of greeted; a daemon that was started again, or has given the
    /// job up, closes, and one that is not there yet refuses.
    ///
    /// # Errors
    /// The peer does not know the job any more.
    pub fn on_dial_failed(&mut self, closed: bool) -> Result<(), Lost> {
        self.is_dialling = false;
        self.unknown = if closed { self.unknown + 1 } else { 0 };
        if self.is_broken && self.unknown >= UNKNOWN_MAX { Err(Lost::Unknown) } else { Ok(()) }
    }

    /// A connection was made and greeted; `sent`: this end's count is on it, and the peer's is awaited.
    pub const fn on_count_sent(&mut self, now: Moment, sent: bool) {
        (self.is_dialling, self.unknown) = (false, 0);
        if sent {
            (self.has_tried, self.proving) = (true, Some(now));
        }
    }

    /// The new connection ended, or said what nobody with the key said for it.
    pub const fn on_proof_failed(&mut self) {
        self.proving = None;
    }

    /// The peer has shown, on a new connection, how much of the session it has: may the session go on over it?
    ///
    /// # Errors
    /// Too many connections brought nothing.
    pub const fn begin_change(&mut self) -> Result<(), Lost> {
        (self.unknown, self.proving) = (0, None);
        if self.mute == MUTE_MAX {
            return Err(Lost::Mute(MUTE_MAX));
        }
        self.mute += 1;
        Ok(())
    }

    /// The session goes on over the new connection. True: what waited for the path gets time to move again: only for the first connection
    /// since a frame came, so that a path which only says hello does not hold a job for ever.
    pub const fn on_changed(&mut self, now: Moment) -> bool {
        (self.is_broken, self.has_tried, self.heard) = (false, false, now);
        self.mute == 1
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const STALL: Duration = Duration::from_secs(60);

    fn at(ms: u64) -> Moment {
        Moment::from_ns(ms * 1_000_000)
    }

    /// Of a path of 20 ms: is something owed, and milliseconds since the peer's kernel answered.
    fn connection(is_owed: bool, ms: u64) -> Connection {
        let ago = Duration::from_millis(ms);
        Connection { rtt: Duration::from_millis(20), is_owed, unanswered: ago, unheard: ago }
    }

    /// Does an end that heard nothing for so long dial? `mute`: the connection before brought no frame either.
    fn dials(is_owed: bool, unanswered: u64, silence: u64, mute: bool) -> bool {
        let mut session = Reconnect::new(at(0), true, STALL);
        session.mute = u32::from(mute);
        session.next_dial(at(silence), Some(&connection(is_owed, unanswered)))
    }

    #[test]
    fn a_peer_without_a_core_whose_kernel_answers_is_left_alone_and_one_behind_a_dead_path_is_looked_for() {
        assert!(dials(true, 1400, 1600, false), "what was said twice a second came to nothing");
        assert!(!dials(true, 1400, 1500, false), "four round trips more");
        for unheard in [1600, 3000, 6000] {
            assert!(!dials(false, unheard, unheard, false), "all that was said has arrived: {unheard} ms");
            assert!(!dials(true, 300, unheard, false), "it is being acknowledged: {unheard} ms");
        }
        assert!(dials(false, 6100, 6100, false), "something in between may answer for a peer that is gone");
        assert!(dials(false, 2100, 2100, true), "it told its count, and then nothing");
        assert!(!dials(false, 1900, 1900, true));
        assert!(Reconnect::new(at(0), true, STALL).next_dial(at(1500), None), "the kernel has no such connection");
    }

    #[test]
    fn an_acceptor_never_dials() {
        let mut session = Reconnect::new(at(0), false, STALL);
        assert!(session.on_break(Break::Failed) && session.is_between());
        assert!((0..100).all(|s| !session.next_dial(at(s * 1000), None)));
    }

    /// When an end dials, in milliseconds, whose path is dead from the beginning and whose dials fail after so many milliseconds.
    fn schedule(stall: Duration, fails_after: u64, until: u64) -> Vec<u64> {
        let (mut session, mut dials, mut fails) = (Reconnect::new(at(0), true, stall), Vec::new(), None);
        for ms in 0..until {
            if fails == Some(ms) {
                session.on_dial_failed(false).unwrap();
                fails = None;
            }
            if session.next_dial(at(ms), Some(&connection(true, ms))) {
                dials.push(ms);
                fails = Some(ms + fails_after);
            }
        }
        dials
    }

    #[test]
    fn pauses_between_dials_double_up_to_eight_seconds_or_an_eighth_of_stall() {
        assert_eq!(schedule(STALL * 2, 1, 33_000), [1580, 2580, 4580, 8580, 16580, 24580, 32580]);
        assert_eq!(schedule(Duration::from_secs(16), 1, 9000), [1580, 2580, 4580, 6580, 8580], "an eighth of stall");
        assert_eq!(schedule(Duration::from_secs(2), 1, 5000), [1580, 2580, 3580, 4580], "a second at least");
        assert_eq!(schedule(STALL, 5000, 13_000), [1580, 6580, 11580], "one at a time, and a slow one is no pause");
    }

    #[test]
    fn a_peer_that_is_heard_again_has_its_first_pause_back() {
        let mut session = Reconnect::new(at(0), true, STALL);
        assert!(session.next_dial(at(2000), None));
        session.on_dial_failed(false).unwrap();
        assert!(session.next_dial(at(3000), None));
        session.on_dial_failed(false).unwrap();
        session.on_report(at(3500));
        assert!(!session.next_dial(at(4000), None));
        assert!(!session.next_dial(at(4999), None) && session.next_dial(at(5000), None));
        session.on_dial_failed(false).unwrap();
        assert!(!session.next_dial(at(5999), None) && session.next_dial(at(6000), None), "a second again");
    }

    #[test]
    fn a_job_that_the_peer_does_not_know_any_more_is_lost_at_the_second_refusal_and_not_while_the_old_path_works() {
        let mut session = Reconnect::new(at(0), true, STALL);
        for _ in 0..9 {
            assert_eq!(session.on_dial_failed(true), Ok(()), "the old connection may still bring something");
        }
        let mut session = Reconnect::new(at(0), true, STALL);
        assert!(session.on_break(Break::Failed));
        assert_eq!(session.on_dial_failed(true), Ok(()));
        assert_eq!(session.on_dial_failed(false), Ok(()), "no route for a moment");
        assert_eq!(session.on_dial_failed(true), Ok(()), "these do not add up");
        assert_eq!(session.on_dial_failed(true), Err(Lost::Unknown));
    }

    #[test]
    fn a_broken_connection_is_waited_for_and_the_end_of_a_process_is_not() {
        for (how, waits) in [(Break::Failed, true), (Break::Reset, false), (Break::Cut, false), (Break::Other, false)] {
            let mut session = Reconnect::new(at(0), true, STALL);
            assert_eq!((session.on_break(how), session.is_between()), (waits, waits), "{how:?}");
        }
        // The peer may have closed the old connection since it heard this end's count on one that then came to nothing.
        let mut session = Reconnect::new(at(0), true, STALL);
        session.on_count_sent(at(0), true);
        session.on_proof_failed();
        assert!(session.on_break(Break::Cut) && session.is_between());
        assert!(session.next_dial(at(1), Some(&connection(false, 0))), "at once");
    }

    #[test]
    fn a_connection_that_does_not_prove_itself_is_let_go_after_ten_seconds() {
        let mut session = Reconnect::new(at(0), true, STALL);
        assert!(session.next_dial(at(2000), None));
        session.on_count_sent(at(2100), true);
        assert!(session.is_between(), "nothing is read from the old one meanwhile");
        assert!(!session.next_dial(at(12_099), None) && !session.is_unproven(at(12_099)));
        assert!(session.is_unproven(at(12_100)) && !session.is_between());
        assert!(session.next_dial(at(12_100), None));
        // One whose count could not be written is none.
        session.on_count_sent(at(12_200), false);
        assert!(!session.is_between());
    }

    #[test]
    fn the_third_connection_in_a_row_that_brings_no_frame_is_the_last() {
        let mut session = Reconnect::new(at(0), true, STALL);
        for connection in 0..MUTE_MAX {
            assert_eq!(session.begin_change(), Ok(()));
            assert_eq!(session.on_changed(at(0)), connection == 0, "time to move again, once");
        }
        assert_eq!(session.begin_change(), Err(Lost::Mute(3)));
        session.on_frame();
        assert_eq!(session.begin_change(), Ok(()), "a frame came");
    }

    #[test]
    fn a_peer_is_unheard_after_three_seconds_and_was_so_for_ten_more() {
        let (mut session, rtt) = (Reconnect::new(at(0), false, STALL), Duration::from_millis(20));
        let look = |session: &mut Reconnect, ms| session.next_dial(at(ms), Some(&connection(false, 0)));
        look(&mut session, 3079);
        assert!(!session.is_unheard(at(3079), rtt) && !session.was_unheard(at(3079)));
        look(&mut session, 3080);
        assert!(session.is_unheard(at(3080), rtt) && session.was_unheard(at(3080)));
        session.on_report(at(4000));
        look(&mut session, 4000);
        assert!(!session.is_unheard(at(4000), rtt) && session.was_unheard(at(13_079)));
        assert!(!session.was_unheard(at(13_080)));
    }
}

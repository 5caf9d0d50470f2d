//! The control session goes on over another connection: after a move to another network, or when its path was dead for a while.
//!
//! For: a job that outlives the connection which negotiated it.
//! In and out: silence of the peer and of its kernel, and connections that greeted, in; a link that goes on where it was, out.
//! Invariants: only who knows the job's secret and has heard this connection's nonce is believed, and an acceptor's job does not know of any other
//! (the door waits for that word: a greeting can be repeated by whoever heard it); nothing is read from the old connection
//! after its count was told, unless the new one came to nothing; the session under TLS is the same, so nothing is negotiated, sealed or
//! trusted anew; the initiator alone begins, since it alone can be reached nowhere.
//! Absent on purpose: rails (they have their own ways), a session whose peer process has ended (a farewell, or the connection's end).
//! Source: docs/protocol.md section 6, *Another connection*.
//!
//! ```text
//! initiator                                       acceptor
//! greeting of rail 65535, 64 bytes              →
//!                                               ←  nonce (32)
//! bytes received (u64), MAC (32)                →  reads the old connection empty
//! reads on from here                            ←  bytes received (u64), MAC (32), then what the initiator lacks
//! what the acceptor lacks                       →
//! MACs: BLAKE3 keyed with the job's greeting key, over who (`i`, `a`), nonce, own count, the other's count (0: not heard yet)
//! ```

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use engine::job::Cmd;
use sys::sock::TcpInfo;

use super::{Closing, End, Keeper, PULSE};
use crate::job::keys::{COUNT_BYTES, JobSecret};
use crate::job::rails::Ask;
use crate::link::LinkError;
use text::exit::Failure;

/// The peer has a word twice a second; silent for so long and four round trips, its connection is doubted.
const SILENCE: Duration = Duration::from_millis(1500);
/// But where its kernel acknowledges what is said to it, the path is there, and it is the peer that has no core (a thousand jobs on two of them) or
/// is stopped: another connection brings it nothing but work. Something in between may answer in its place, so that is not believed for ever.
const BUSY: Duration = Duration::from_secs(6);
/// Silent for so long, the user is told; and of dials that fail meanwhile nothing is concluded.
const UNHEARD: Duration = Duration::from_secs(3);
/// Between two tries, the first time and at most; never more than an eighth of the time that a job waits for progress.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// A connection that is closed instead of greeted so often, while the old one is of no use: the peer knows of no such job any more.
const UNKNOWN_MAX: u32 = 2;
/// A connection that greeted must have said its count by then.
const PROVE: Duration = Duration::from_secs(10);
/// Connections in a row that carry the session and bring no frame, until bytes of the session are known to be harmed: a length of a record of
/// TLS that somebody changed waits for bytes that never come, over each of them.
const MUTE_MAX: u32 = 3;

/// A connection that this end has made and told its count on.
#[derive(Debug)]
struct Next {
    stream: TcpStream,
    nonce: [u8; 32],
    word: [u8; COUNT_BYTES],
    got: usize,
    since: Instant,
    /// This end's own count.
    told: u64,
}

/// What the peer has said on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// Not all of it.
    Nothing,
    /// It ended, or what it said nobody with the key said for this nonce.
    Wrong,
    /// The peer has so many bytes of the session.
    Count(u64),
}

/// Is the peer to be looked for over another connection, of which nothing was heard for so long over this one? `mute`: nor was a frame over the
/// one before, though the peer's process told its count on it, and so has a core.
fn is_away(info: &TcpInfo, unheard: Duration, mute: bool) -> bool {
    let trips = Duration::from_micros(info.rtt_us.into()) * 4;
    let busy = if mute { BUSY / 3 } else { BUSY };
    unheard >= SILENCE + trips && (is_silent(info) || unheard >= busy + trips)
}

/// Does something that was said wait for its acknowledgement, and nothing at all comes back? Each end says something twice a second. What an end says
/// whose own address is gone is not even sent.
pub(super) fn is_silent(info: &TcpInfo) -> bool {
    (info.unacked > 0 || info.notsent_bytes > 0) && is_past(info, info.last_ack_recv_ms)
}

/// Was that so long ago that a path which is there would have brought something since?
fn is_past(info: &TcpInfo, ms: u32) -> bool {
    let trips = Duration::from_micros(info.rtt_us.into()) * 4;
    Duration::from_millis(ms.into()) >= SILENCE.saturating_sub(PULSE) + trips
}

/// Is a stream as dead as the session's connection was? Where bytes wait for the peer's window nothing is on its way; probes of it are answered.
fn is_dead(info: &TcpInfo, sends: bool) -> bool {
    match sends {
        true => is_silent(info),
        false => is_past(info, info.last_data_recv_ms),
    }
}

impl Next {
    fn hear(&mut self, secret: &JobSecret) -> Heard {
        while self.got < COUNT_BYTES {
            match self.stream.read(&mut self.word[self.got..]) {
                Ok(0) => return Heard::Wrong,
                Ok(bytes) => self.got += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(_) => return Heard::Wrong,
            }
        }
        secret.count_of(&self.word, b'a', &self.nonce, self.told).map_or(Heard::Wrong, Heard::Count)
    }
}

/// What is on its way, see the module.
#[derive(Debug)]
pub(super) struct Again {
    next: Option<Next>,
    /// A connection is being made.
    asked: bool,
    pause: Duration,
    not_before: Instant,
    /// The old connection is of no use any more.
    broken: bool,
    /// A count was told: the peer may have gone on over a connection that then came to nothing, and closed the old one.
    tried: bool,
    /// Connections that the peer closed instead of greeting them.
    unknown: u32,
    /// Connections that carried the session since a frame came last.
    mute: u32,
    /// When the peer was last found silent for long.
    unheard: Option<Instant>,
}

impl Again {
    pub(super) fn new() -> Again {
        Again {
            next: None,
            asked: false,
            pause: PAUSE.0,
            not_before: Instant::now(),
            broken: false,
            tried: false,
            unknown: 0,
            mute: 0,
            unheard: None,
        }
    }

    /// A frame came.
    pub(super) fn on_heard(&mut self) {
        self.mute = 0;
    }

    /// What is to be polled beside the link.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.next.iter().map(|next| next.stream.as_fd())
    }
}

impl Keeper<'_, '_> {
    /// Is the old connection left alone?
    pub(super) fn is_between(&self) -> bool {
        self.again.broken || (self.job.rails.dials() && self.again.next.is_some())
    }

    /// The connection failed; if the job may go on over another one, it waits for that, as long as the watchdog lets it. An end without a
    /// farewell is that of the peer's process.
    pub(super) fn may_go_on(&mut self, error: &LinkError) -> bool {
        let lost = match error {
            LinkError::Io { source, .. } => {
                !matches!(source.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
            }
            LinkError::Cut => self.again.tried,
            _ => false,
        };
        let may = lost && self.closing == Closing::Open && self.job.link.peer_key() != [0; 32];
        self.again.broken |= may;
        may
    }

    /// Has the peer said nothing for longer than a busy machine or a lost packet explains?
    pub(super) fn is_unheard(&self) -> bool {
        let info = sys::sock::tcp_info(self.job.link.as_fd());
        let rtt = info.map_or(Duration::ZERO, |info| Duration::from_micros(info.rtt_us.into()));
        self.peer_told.elapsed() >= UNHEARD + 4 * rtt
    }

    /// Was nothing heard for a while, until a moment ago? What a path held back comes all at once when it is there again.
    pub(super) fn was_unheard(&self) -> bool {
        self.again.unheard.is_some_and(|then| then.elapsed() < PROVE)
    }

    /// Once per turn: is the peer heard?
    pub(super) fn doubt(&mut self) {
        if self.is_unheard() {
            self.again.unheard = Some(Instant::now());
        }
        let (now, again) = (Instant::now(), &mut self.again);
        again.next.take_if(|next| next.since.elapsed() >= PROVE);
        if !self.job.rails.dials() || self.closing == Closing::Over || again.asked || again.next.is_some() {
            return;
        }
        let unheard = self.peer_told.elapsed();
        let silent = unheard >= SILENCE
            && sys::sock::tcp_info(self.job.link.as_fd()).map_or(true, |info| is_away(&info, unheard, again.mute > 0));
        if !silent && !again.broken {
            again.pause = PAUSE.0;
        } else if now >= again.not_before {
            (again.asked, again.not_before) = (true, now + again.pause);
            again.pause = (again.pause * 2).min(PAUSE.1).min((self.job.stall / 8).max(PAUSE.0));
            self.job.rails.ask(0, Ask::Control);
        }
    }

    /// A connection was made from here, or could not be; or one came here whose maker has shown to have `theirs` bytes of the session.
    pub(super) fn on_control(
        &mut self,
        nonce: [u8; 32],
        theirs: Option<u64>,
        socket: std::io::Result<OwnedFd>,
    ) -> Result<(), Failure> {
        let initiates = self.job.rails.dials();
        self.again.asked &= !initiates;
        let mut stream = match socket.map(TcpStream::from) {
            Ok(stream) => stream,
            Err(error) => {
                // A daemon that was started again, or has given the job up, closes; one that is not there yet refuses.
                let closed = matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
                );
                self.again.unknown = if closed { self.again.unknown + 1 } else { 0 };
                if self.again.broken && self.again.unknown >= UNKNOWN_MAX {
                    return Err(self.lost(&format!("the peer does not know the job any more: {error}")));
                }
                return Ok(());
            }
        };
        self.again.unknown = 0;
        if let Some(theirs) = theirs.filter(|_| !initiates) {
            return if stream.set_nonblocking(true).is_ok() { self.change(stream, nonce, theirs) } else { Ok(()) };
        }
        let told = self.job.link.drain().map_err(|error| self.lost(&error.to_string()))?;
        // 40 bytes into an empty send buffer do not block.
        let is_told = stream.write_all(&self.secret.count_word(b'i', &nonce, [told, 0])).is_ok();
        if is_told && stream.set_nonblocking(true).is_ok() {
            self.again.tried = true;
            self.again.next = Some(Next { stream, nonce, word: [0; COUNT_BYTES], got: 0, since: Instant::now(), told });
        }
        Ok(())
    }

    /// Hears the one that was told this end's count. If the peer proves itself on it, it carries the session from now on.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        let heard = self.again.next.as_mut().map_or(Heard::Nothing, |next| next.hear(&self.secret));
        match (heard, self.again.next.take_if(|_| heard != Heard::Nothing)) {
            (Heard::Count(theirs), Some(Next { stream, nonce, .. })) => self.change(stream, nonce, theirs),
            _ => Ok(()),
        }
    }

    /// The session goes on over `stream`; the peer has `theirs` bytes of it.
    fn change(&mut self, mut stream: TcpStream, nonce: [u8; 32], theirs: u64) -> Result<(), Failure> {
        let initiates = self.job.rails.dials();
        if self.again.mute == MUTE_MAX {
            let cause =
                format!("{MUTE_MAX} connections in a row brought nothing of it: bytes of it were lost or changed");
            return Err(self.lost(&cause));
        }
        self.again.mute += 1;
        if !initiates {
            let count = self.job.link.drain().map_err(|error| self.lost(&error.to_string()))?;
            let word = self.secret.count_word(b'a', &nonce, [count, theirs]);
            if !matches!(stream.write(&word), Ok(COUNT_BYTES)) {
                return Ok(());
            }
        }
        let changed = self.job.link.carry_on(stream, theirs, initiates);
        changed
            .map_err(|error| self.lost(&format!("what was lost with its connection is not kept any more: {error}")))?;
        self.again.next = None;
        (self.again.broken, self.again.tried) = (false, false);
        (self.peer_told, self.dials_failed) = (Instant::now(), 0);
        // What waited for the path gets time to move again; half of it, and once, so that a path which only says hello does not hold a
        // job for ever.
        if self.again.mute == 1 {
            self.moved = self.moved.max(Instant::now().checked_sub(self.job.stall / 2).unwrap_or(self.moved));
        }
        self.out.notes.push(format!("the control session goes on over another connection to {}", self.peer_name()));
        self.session_changed();
        if initiates {
            self.cut_streams();
        }
        Ok(())
    }

    /// The path was dead for the session; streams on it wait for their timers, on an address that may be gone. New ones take their place. One
    /// that is answered goes on: what it has on its way would all go again.
    fn cut_streams(&mut self) {
        if self.paths.len() > 1 {
            // Each is watched for itself.
            return;
        }
        let (job, count, sends) = (self.job.no, self.job.workers.count(), matches!(self.end, End::Send(_)));
        let infos = self.carriers.iter().filter(|(_, it)| it.meter.is_none());
        let infos = infos.map(|(&rail, it)| (rail, it.socket.upgrade().and_then(|it| sys::sock::tcp_info(&*it).ok())));
        for (rail, _) in infos.filter(|(_, info)| info.is_none_or(|info| is_dead(&info, sends))) {
            self.job.workers.send(usize::from(rail) % count, Cmd::RailDown { job, rail });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What an end hears of a word that comes in two parts.
    fn heard(told: u64, nonce: [u8; 32], word: &[u8]) -> Heard {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut there = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let stream = listener.accept().expect("a connection").0;
        stream.set_nonblocking(true).expect("a socket");
        let mut next = Next { stream, nonce, word: [0; COUNT_BYTES], got: 0, since: Instant::now(), told };
        let secret = JobSecret::from_master([9; 32], [7; 16]);
        assert_eq!(next.hear(&secret), Heard::Nothing);
        let mut last = Heard::Nothing;
        for part in word.chunks(17) {
            there.write_all(part).expect("room");
            let until = Instant::now() + Duration::from_secs(5);
            let before = next.got;
            while last == Heard::Nothing && next.got < before + part.len() && Instant::now() < until {
                last = next.hear(&secret);
            }
        }
        drop(there);
        if last == Heard::Nothing { next.hear(&secret) } else { last }
    }

    /// Of a path of 20 ms: packets on their way, and milliseconds since anything came back.
    fn info(unacked: u32, last_ack_recv_ms: u32) -> TcpInfo {
        TcpInfo { rtt_us: 20_000, unacked, last_ack_recv_ms, last_data_recv_ms: last_ack_recv_ms, ..TcpInfo::default() }
    }

    #[test]
    fn a_peer_without_a_core_whose_kernel_answers_is_left_alone_and_one_behind_a_dead_path_is_looked_for() {
        let ms = Duration::from_millis;
        assert!(is_away(&info(2, 1400), ms(1600), false), "what was said twice a second came to nothing");
        assert!(!is_away(&info(2, 1400), ms(1500), false), "four round trips more");
        let unsent = TcpInfo { notsent_bytes: 90, ..info(0, 1400) };
        assert!(is_away(&unsent, ms(1600), false), "this end's address is gone: its kernel keeps what is said");
        for unheard in [1600, 3000, 6000] {
            assert!(
                !is_away(&info(0, unheard), ms(unheard.into()), false),
                "all that was said has arrived: {unheard} ms"
            );
            assert!(!is_away(&info(1, 300), ms(unheard.into()), false), "it is being acknowledged: {unheard} ms");
        }
        assert!(is_away(&info(0, 6100), ms(6100), false), "something in between may answer for a peer that is gone");
        assert!(is_away(&info(0, 2100), ms(2100), true), "it told its count, and then nothing");
        assert!(!is_away(&info(0, 1900), ms(1900), true));
    }

    #[test]
    fn of_the_streams_of_a_session_that_went_on_elsewhere_those_that_are_answered_stay() {
        assert!(is_dead(&info(3, 1100), true) && !is_dead(&info(3, 900), true) && !is_dead(&info(0, 5000), true));
        assert!(is_dead(&TcpInfo { notsent_bytes: 1, ..info(0, 1100) }, true), "a window that nobody opens");
        assert!(is_dead(&info(0, 1100), false) && !is_dead(&info(0, 900), false));
    }

    #[test]
    fn a_connection_without_the_key_changes_nothing() {
        let secret = |master| JobSecret::from_master([master; 32], [7; 16]);
        let (nonce, other) = ([3; 32], [4; 32]);
        let good = secret(9).count_word(b'a', &nonce, [77, 1234]);
        assert_eq!(heard(1234, nonce, &good), Heard::Count(77));
        let mut changed = good;
        changed[0] ^= 1;
        for (what, nonce, word) in [
            ("another key", nonce, secret(8).count_word(b'a', &nonce, [77, 1234])),
            ("another nonce: heard elsewhere", other, good),
            ("another count", nonce, changed),
            ("what this end says itself", nonce, secret(9).count_word(b'i', &nonce, [77, 1234])),
            ("an answer to another count", nonce, secret(9).count_word(b'a', &nonce, [77, 1235])),
            ("zeros", nonce, [0; COUNT_BYTES]),
        ] {
            assert_eq!(heard(1234, nonce, &word), Heard::Wrong, "{what}");
        }
        assert_eq!(heard(1234, nonce, &good[..39]), Heard::Wrong, "it ends too early");
    }
}

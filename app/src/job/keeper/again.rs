//! The control session goes on over another connection: after a move to another network, or when its path was dead for a while.
//!
//! For: a job that outlives the connection which negotiated it.
//! In and out: silence of the peer, and connections that greeted, in; a link that goes on where it was, out.
//! Invariants: only who knows the job's secret and has heard this connection's nonce is believed; nothing is read from the old connection
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

use super::{Closing, Keeper};
use crate::exit::Failure;
use crate::job::keys::JobSecret;
use crate::job::rails::Ask;
use crate::link::LinkError;

/// The peer has a word twice a second; silent for so long and four round trips, its connection is doubted.
const SILENCE: Duration = Duration::from_millis(1500);
/// Silent for so long, the user is told; and of dials that fail meanwhile nothing is concluded.
const UNHEARD: Duration = Duration::from_secs(3);
/// Between two tries, the first time and at most; never more than an eighth of the time that a job waits for progress.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// A connection that is closed instead of greeted so often, while the old one is of no use: the peer knows of no such job any more.
const UNKNOWN_MAX: u32 = 2;
/// A connection that greeted must have said its count by then.
const PROVE: Duration = Duration::from_secs(10);
/// So many may be proving themselves at an acceptor.
const PROVING_MAX: usize = 16;
/// Count and MAC.
const WORD_BYTES: usize = 40;

/// A connection that wants to carry the session.
#[derive(Debug)]
struct Next {
    stream: TcpStream,
    nonce: [u8; 32],
    word: [u8; WORD_BYTES],
    got: usize,
    since: Instant,
    /// The initiator's own count.
    told: u64,
}

/// What a connection that greeted has said.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    /// Not all of it.
    Nothing,
    /// It ended, or what it said nobody with the key said for this nonce.
    Wrong,
    /// The peer has so many bytes of the session.
    Count(u64),
}

/// A count as it is told: `counts` are the teller's own and the other's.
fn count_word(secret: &JobSecret, who: u8, nonce: &[u8; 32], counts: [u64; 2]) -> [u8; WORD_BYTES] {
    let mut word = [0; WORD_BYTES];
    word[..8].copy_from_slice(&counts[0].to_le_bytes());
    word[8..].copy_from_slice(&secret.vouch_count(who, nonce, counts));
    word
}

impl Next {
    fn hear(&mut self, secret: &JobSecret, initiates: bool) -> Heard {
        while self.got < WORD_BYTES {
            match self.stream.read(&mut self.word[self.got..]) {
                Ok(0) => return Heard::Wrong,
                Ok(bytes) => self.got += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Heard::Nothing,
                Err(_) => return Heard::Wrong,
            }
        }
        let theirs = u64::from_le_bytes(*self.word.first_chunk().expect("8 of 40"));
        let (who, other) = if initiates { (b'a', self.told) } else { (b'i', 0) };
        let own = count_word(secret, who, &self.nonce, [theirs, other]);
        // `blake3::Hash` compares in constant time.
        let mac = |word: &[u8; WORD_BYTES]| blake3::Hash::from_bytes(*word[8..].first_chunk().expect("32 of 40"));
        if mac(&own) == mac(&self.word) { Heard::Count(theirs) } else { Heard::Wrong }
    }
}

/// What is on its way, see the module.
#[derive(Debug)]
pub(super) struct Again {
    next: Vec<Next>,
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
    /// When the peer was last found silent for long.
    unheard: Option<Instant>,
}

impl Again {
    pub(super) fn new() -> Again {
        Again {
            next: Vec::new(),
            asked: false,
            pause: PAUSE.0,
            not_before: Instant::now(),
            broken: false,
            tried: false,
            unknown: 0,
            unheard: None,
        }
    }

    /// What is to be polled beside the link.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.next.iter().map(|next| next.stream.as_fd())
    }
}

impl Keeper<'_, '_> {
    /// Is the old connection left alone?
    pub(super) fn is_between(&self) -> bool {
        self.again.broken || (self.job.rails.dials() && !self.again.next.is_empty())
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
        again.next.retain(|next| next.since.elapsed() < PROVE);
        if !self.job.rails.dials() || self.closing == Closing::Over || again.asked || !again.next.is_empty() {
            return;
        }
        let info = sys::sock::tcp_info(self.job.link.as_fd());
        let rtt = info.map_or(Duration::ZERO, |info| Duration::from_micros(info.rtt_us.into()));
        let silent = self.peer_told.elapsed() >= SILENCE + 4 * rtt;
        if !silent && !again.broken {
            again.pause = PAUSE.0;
        } else if now >= again.not_before {
            (again.asked, again.not_before) = (true, now + again.pause);
            again.pause = (again.pause * 2).min(PAUSE.1).min((self.job.stall / 8).max(PAUSE.0));
            self.job.rails.ask(0, Ask::Control);
        }
    }

    /// A connection greeted, here or there; or it could not be made.
    pub(super) fn on_control(&mut self, nonce: [u8; 32], socket: std::io::Result<OwnedFd>) -> Result<(), Failure> {
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
        let mut told = 0;
        if initiates {
            told = self.job.link.drain().map_err(|error| self.lost(&error.to_string()))?;
            let word = count_word(&self.secret, b'i', &nonce, [told, 0]);
            // 40 bytes into an empty send buffer do not block.
            if stream.write_all(&word).is_err() {
                return Ok(());
            }
        }
        if stream.set_nonblocking(true).is_ok() {
            let since = Instant::now();
            self.again.tried |= initiates;
            self.again.next.push(Next { stream, nonce, word: [0; WORD_BYTES], got: 0, since, told });
            let many = self.again.next.len().saturating_sub(PROVING_MAX);
            self.again.next.drain(..many);
        }
        Ok(())
    }

    /// Hears those that greeted. The first that proves itself carries the session from now on.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        let initiates = self.job.rails.dials();
        let mut at = 0;
        while let Some(next) = self.again.next.get_mut(at) {
            match next.hear(&self.secret, initiates) {
                Heard::Nothing => at += 1,
                Heard::Wrong => drop(self.again.next.remove(at)),
                Heard::Count(theirs) => {
                    let next = self.again.next.remove(at);
                    return self.change(next, theirs);
                }
            }
        }
        Ok(())
    }

    /// The session goes on over `next`; the peer has `theirs` bytes of it.
    fn change(&mut self, next: Next, theirs: u64) -> Result<(), Failure> {
        let initiates = self.job.rails.dials();
        let Next { mut stream, nonce, .. } = next;
        if !initiates {
            let count = self.job.link.drain().map_err(|error| self.lost(&error.to_string()))?;
            let word = count_word(&self.secret, b'a', &nonce, [count, theirs]);
            if !matches!(stream.write(&word), Ok(WORD_BYTES)) {
                return Ok(());
            }
        }
        let changed = self.job.link.carry_on(stream, theirs, initiates);
        changed
            .map_err(|error| self.lost(&format!("what was lost with its connection is not kept any more: {error}")))?;
        self.again.next.clear();
        (self.again.broken, self.again.tried) = (false, false);
        (self.peer_told, self.dials_failed) = (Instant::now(), 0);
        // What waited for the path gets time to move again; half of it, so that a path which only says hello does not hold a job for ever.
        self.moved = self.moved.max(Instant::now().checked_sub(self.job.stall / 2).unwrap_or(self.moved));
        self.out.notes.push(format!("the control session goes on over another connection to {}", self.peer_name()));
        self.session_changed();
        if initiates {
            self.cut_streams();
        }
        Ok(())
    }

    /// The path was dead for the session; streams on it wait for their timers, on an address that may be gone. New ones take their place.
    fn cut_streams(&mut self) {
        if self.paths.len() > 1 {
            // Each is watched for itself.
            return;
        }
        let (job, count) = (self.job.no, self.job.workers.count());
        for &rail in self.carriers.iter().filter(|(_, it)| it.meter.is_none()).map(|(rail, _)| rail) {
            self.job.workers.send(usize::from(rail) % count, Cmd::RailDown { job, rail });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What an end hears of a word that comes in two parts.
    fn heard(initiates: bool, told: u64, nonce: [u8; 32], word: &[u8]) -> Heard {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut there = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let stream = listener.accept().expect("a connection").0;
        stream.set_nonblocking(true).expect("a socket");
        let mut next = Next { stream, nonce, word: [0; WORD_BYTES], got: 0, since: Instant::now(), told };
        let secret = JobSecret::from_master([9; 32], [7; 16]);
        assert_eq!(next.hear(&secret, initiates), Heard::Nothing);
        let mut last = Heard::Nothing;
        for part in word.chunks(17) {
            there.write_all(part).expect("room");
            let until = Instant::now() + Duration::from_secs(5);
            let before = next.got;
            while last == Heard::Nothing && next.got < before + part.len() && Instant::now() < until {
                last = next.hear(&secret, initiates);
            }
        }
        drop(there);
        if last == Heard::Nothing { next.hear(&secret, initiates) } else { last }
    }

    #[test]
    fn a_connection_without_the_key_changes_nothing() {
        let secret = |master| JobSecret::from_master([master; 32], [7; 16]);
        let (nonce, other) = ([3; 32], [4; 32]);
        let good = count_word(&secret(9), b'i', &nonce, [1234, 0]);
        assert_eq!(heard(false, 0, nonce, &good), Heard::Count(1234));
        let answer = count_word(&secret(9), b'a', &nonce, [77, 1234]);
        assert_eq!(heard(true, 1234, nonce, &answer), Heard::Count(77));
        let mut changed = good;
        changed[0] ^= 1;
        for (what, initiates, nonce, word) in [
            ("another key", false, nonce, count_word(&secret(8), b'i', &nonce, [1234, 0])),
            ("another nonce: heard elsewhere", false, other, good),
            ("another count", false, nonce, changed),
            ("what the other end says", false, nonce, count_word(&secret(9), b'a', &nonce, [1234, 0])),
            ("an answer to another count", true, nonce, count_word(&secret(9), b'a', &nonce, [77, 1235])),
            ("zeros", false, nonce, [0; WORD_BYTES]),
        ] {
            assert_eq!(heard(initiates, 1234, nonce, &word), Heard::Wrong, "{what}");
        }
        assert_eq!(heard(false, 0, nonce, &good[..39]), Heard::Wrong, "it ends too early");
    }
}

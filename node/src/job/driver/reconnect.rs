//! The control session goes on over another connection: the connections themselves.
//!
//! For: a job that outlives the connection which negotiated it.
//! In and out: what the kernel knows of a connection, and connections that greeted, in; a link that goes on where it was, out.
//! Invariants: only who knows the job's secret and has heard this connection's nonce is believed, and an acceptor's job does not know of any other
//! (the listener waits for that word: a greeting can be repeated by whoever heard it); the session under TLS is the same, so nothing is negotiated,
//! sealed or trusted anew.
//! Absent on purpose: when to dial, what to believe of a silence (`proto::session::reconnect`), rails (they have their own ways), a session whose
//! peer process has ended (a farewell, or the connection's end).
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
use std::os::fd::OwnedFd;
use std::time::Duration;

use engine::job::Cmd;
use proto::session::connection::Connection;
use proto::session::reconnect::{Break, Lost};
use sys::sock::TcpInfo;

use super::{End, JobDriver};
use crate::job::keys::{COUNT_BYTES, JobSecret};
use crate::job::rails::Ask;
use crate::link::LinkError;
use text::exit::Failure;

/// A connection that this end has made and told its count on.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) stream: TcpStream,
    nonce: [u8; 32],
    word: [u8; COUNT_BYTES],
    got: usize,
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

/// What the kernel says of a connection.
fn connection(info: &TcpInfo) -> Connection {
    Connection {
        rtt: Duration::from_micros(info.rtt_us.into()),
        is_owed: info.unacked > 0 || info.notsent_bytes > 0,
        unanswered: Duration::from_millis(info.last_ack_recv_ms.into()),
        unheard: Duration::from_millis(info.last_data_recv_ms.into()),
    }
}

impl Candidate {
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

impl JobDriver<'_, '_> {
    /// Is the old connection left alone?
    pub(super) fn is_between(&self) -> bool {
        self.reconnect.is_between()
    }

    /// The session's connection; `None`: the kernel does not know it any more.
    pub(super) fn session(&self) -> Option<Connection> {
        sys::sock::tcp_info(self.job.link.as_fd()).ok().map(|info| connection(&info))
    }

    /// The time since the peer reported.
    pub(super) fn peer_silence(&self) -> Duration {
        self.reconnect.silence(self.now)
    }

    /// The connection failed; if the job may go on over another one, it waits for that, as long as the watchdog lets it.
    pub(super) fn may_go_on(&mut self, error: &LinkError) -> bool {
        let how = match error {
            LinkError::Io { source, .. }
                if matches!(source.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                Break::Reset
            }
            LinkError::Io { .. } => Break::Failed,
            LinkError::Cut => Break::Cut,
            _ => Break::Other,
        };
        self.is_open() && self.job.link.peer_key() != [0; 32] && self.reconnect.on_break(how)
    }

    /// Has the peer said nothing for longer than a busy machine or a lost packet explains?
    pub(super) fn is_unheard(&self) -> bool {
        self.reconnect.is_unheard(self.now, self.session().map_or(Duration::ZERO, |it| it.rtt))
    }

    /// Once per iteration: is the peer heard?
    pub(super) fn watch_session(&mut self) {
        if self.reconnect.is_unproven(self.now) {
            self.candidate = None;
        }
        let session = self.session();
        if !self.closing.is_over() && self.reconnect.next_dial(self.now, session.as_ref()) {
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
        let mut stream = match socket.map(TcpStream::from) {
            Ok(stream) => stream,
            Err(error) => {
                let closed = matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
                );
                let lost = self.reconnect.on_dial_failed(closed);
                return lost.map_err(|_| self.lost(&format!("the peer does not know the job any more: {error}")));
            }
        };
        if let Some(theirs) = theirs.filter(|_| !initiates) {
            return if stream.set_nonblocking(true).is_ok() { self.change(stream, nonce, theirs) } else { Ok(()) };
        }
        let told = self.job.link.drain().map_err(|error| self.lost(&error.to_string()))?;
        // 40 bytes into an empty send buffer do not block.
        let is_told = stream.write_all(&self.secret.count_word(b'i', &nonce, [told, 0])).is_ok()
            && stream.set_nonblocking(true).is_ok();
        self.reconnect.on_count_sent(self.now, is_told);
        if is_told {
            self.candidate = Some(Candidate { stream, nonce, word: [0; COUNT_BYTES], got: 0, told });
        }
        Ok(())
    }

    /// Hears the one that was told this end's count. If the peer proves itself on it, it carries the session from now on.
    pub(super) fn go_on(&mut self) -> Result<(), Failure> {
        let heard = self.candidate.as_mut().map_or(Heard::Nothing, |candidate| candidate.hear(&self.secret));
        match (heard, self.candidate.take_if(|_| heard != Heard::Nothing)) {
            (Heard::Count(theirs), Some(Candidate { stream, nonce, .. })) => self.change(stream, nonce, theirs),
            (Heard::Wrong, _) => {
                self.reconnect.on_proof_failed();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The session goes on over `stream`; the peer has `theirs` bytes of it.
    fn change(&mut self, mut stream: TcpStream, nonce: [u8; 32], theirs: u64) -> Result<(), Failure> {
        let initiates = self.job.rails.dials();
        if let Err(Lost::Mute(connections)) = self.reconnect.begin_change() {
            let cause =
                format!("{connections} connections in a row brought nothing of it: bytes of it were lost or changed");
            return Err(self.lost(&cause));
        }
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
        if self.reconnect.on_changed(self.now) {
            self.stall.on_reconnected(self.now);
        }
        self.paths.on_session_moved();
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
        let rtt = self.session().map_or(Duration::ZERO, |it| it.rtt);
        if self.paths.watches_itself(self.now, rtt) {
            return;
        }
        let (job, count, sends) = (self.job.no, self.job.workers.count(), matches!(self.end, End::Send(_)));
        let infos = self.carriers.iter().filter(|(_, it)| it.meter.is_none());
        let infos = infos.map(|(&rail, it)| (rail, it.socket.upgrade().and_then(|it| sys::sock::tcp_info(&*it).ok())));
        for (rail, _) in infos.filter(|(_, info)| info.is_none_or(|info| connection(&info).is_dead(sends))) {
            self.job.workers.send(usize::from(rail) % count, Cmd::RailDown { job, rail });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    /// What an end hears of a word that comes in two parts.
    fn heard(told: u64, nonce: [u8; 32], word: &[u8]) -> Heard {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut there = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let stream = listener.accept().expect("a connection").0;
        stream.set_nonblocking(true).expect("a socket");
        let mut next = Candidate { stream, nonce, word: [0; COUNT_BYTES], got: 0, told };
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

    #[test]
    fn what_is_owed_is_what_was_sent_and_what_could_not_be_sent() {
        let info = TcpInfo { rtt_us: 20_000, last_ack_recv_ms: 1400, last_data_recv_ms: 1300, ..TcpInfo::default() };
        let ms = Duration::from_millis;
        let quiet = Connection { rtt: ms(20), is_owed: false, unanswered: ms(1400), unheard: ms(1300) };
        assert_eq!(connection(&info), quiet);
        assert!(connection(&TcpInfo { unacked: 2, ..info }).is_owed);
        assert!(connection(&TcpInfo { notsent_bytes: 90, ..info }).is_owed, "its kernel keeps what is said");
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

//! A session over somebody else's TLS: that of FTP, after LHDATA, which has it back afterwards.
//!
//! For: `ftp`, both sides.
//! In and out: a connection under TLS and what of it is known → a `Link`; the connection back, once both ends took leave.
//! Invariants: TLS 1.3 alone; no frame counts before the peer has shown its key, which it signed for this very TLS connection and session; all that is exported is
//! of this session, so none has the keys of another over the same connection; what FTP has back is behind both farewells.
//! Absent on purpose: who may do what (FTP's login says so), certificates (FTP looked at them).
//! Source: docs/protocol.md section 16.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use proto::error::Breach;
use proto::ftp::lhdata::{EXPORTER_LABEL, SHOWN_BYTES, Who, signed_message};
use rustls::{Connection, ProtocolVersion};

use super::handshake::Deadline;
use super::{Carrier, Link, LinkError, Step, Turn, timers, tls};
use crate::identity::{Identity, keys};

/// The first byte of what shows a key.
const KEY: u8 = b'K';
/// Both ends say theirs at once, and so that each is there when it is waited for.
const SHOW_TIME: Duration = Duration::from_secs(10);

/// A connection that is lent to a session, or had back from one.
pub struct Lent {
    /// TLS over it, after its handshake.
    pub connection: Connection,
    /// Itself, which does not block.
    pub stream: TcpStream,
    /// Bytes of TLS that went out and came in, its handshake included.
    pub moved: (u64, u64),
    /// Bytes that went out before TLS.
    pub clear_sent: u64,
    /// What came and was opened, and nobody looked at.
    pub early: Vec<u8>,
    /// Sessions that had it before.
    pub sessions: u32,
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Lent").field("moved", &self.moved).field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// What a link remembers of the loan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loan {
    pub(super) sessions: u32,
    /// See `Lent`; 0 once the session goes on over another connection.
    pub(super) clear_sent: u64,
    /// The peer has shown its key.
    pub(super) is_shown: bool,
    /// The peer took leave in good order: what follows is FTP's.
    pub(super) is_over: bool,
}

impl Link {
    /// A session over this connection. Rails are dialled at `peer`. Blocks until the peer has shown its key.
    ///
    /// # Errors
    /// TLS before 1.3; the peer shows no key, or one whose secret it does not hold, or is gone.
    pub fn over(lent: Lent, peer: SocketAddr, id: &Identity) -> Result<Link, LinkError> {
        let Lent { mut connection, stream, moved, clear_sent, early, sessions } = lent;
        if connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            return Err(LinkError::NotLonghaul);
        }
        let io = |source| LinkError::Io { step: "set up the socket of", source };
        stream.set_nonblocking(true).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        timers::set(&stream, timers::HANDSHAKE_QUARTERS);
        connection.set_buffer_limit(Some(tls::RUSTLS_BYTES_MAX));
        let mut link = Link::with(Carrier::Tls { connection: Box::new(connection), stream, peer }, [0; 32]);
        (link.bytes_sent, link.bytes_received, link.stream_at) = (moved.0, moved.1, moved.1);
        link.loan = Some(Loan { sessions, clear_sent, is_shown: false, is_over: false });
        link.inbox = early;
        link.open(&[])?;
        link.show_key(id);
        link.hear_key()?;
        Ok(link)
    }

    fn is_initiator(&self) -> bool {
        matches!(&self.carrier, Carrier::Tls { connection, .. } if matches!(**connection, Connection::Client(_)))
    }

    fn show_key(&mut self, id: &Identity) {
        let (who, key) = (if self.is_initiator() { Who::Initiator } else { Who::Acceptor }, id.public());
        let signature = id.sign(&signed_message(who, &self.export(EXPORTER_LABEL, &[]), &key));
        self.queue.push_back(KEY);
        self.queue.extend(key);
        self.queue.extend(signature);
    }

    fn hear_key(&mut self) -> Result<(), LinkError> {
        let deadline = Deadline::after(SHOW_TIME);
        let mut frames = Vec::new();
        self.cut_frames(&mut frames)?;
        self.flush()?;
        while self.loan.is_some_and(|it| !it.is_shown) {
            deadline.wait(self.as_fd(), true, self.wants_write(), Step::Prove)?;
            self.flush()?;
            self.take_in(&mut frames)?;
        }
        self.ready.extend(frames);
        Ok(())
    }

    /// The peer's key, at the front of what came. False: not all of it came.
    pub(super) fn take_key(&mut self) -> Result<bool, LinkError> {
        let Some(loan) = self.loan.filter(|it| !it.is_shown) else { return Ok(true) };
        if self.inbox.first().is_some_and(|&first| first != KEY) {
            return Err(Breach::FrameUnknown.into());
        }
        let Some((_, shown)) = self.inbox.get(..SHOWN_BYTES).and_then(<[u8]>::split_first) else { return Ok(false) };
        let key: [u8; 32] = shown[..32].try_into().expect("32 of 96");
        let who = if self.is_initiator() { Who::Acceptor } else { Who::Initiator };
        let message = signed_message(who, &self.export(EXPORTER_LABEL, &[]), &key);
        if !keys::usable(&key) || !keys::verify(&key, &message, &shown[32..]) {
            return Err(Breach::SignatureInvalid.into());
        }
        self.inbox.drain(..SHOWN_BYTES);
        (self.peer_key, self.loan) = (key, Some(Loan { is_shown: true, ..loan }));
        Ok(true)
    }

    /// Is its connection lent?
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.loan.is_some()
    }

    /// Sessions that its connection has carried, this one with them; 0: it is not lent.
    #[must_use]
    pub fn sessions(&self) -> u32 {
        self.loan.map_or(0, |it| it.sessions + 1)
    }

    /// After `close`: the connection, once the peer took leave as well and all that the session said has come over it, within `timeout`. What else the peer
    /// still says of the session is thrown away.
    #[must_use]
    pub fn give_back(mut self, timeout: Duration) -> Option<Lent> {
        let deadline = Deadline::after(timeout);
        let mut frames = Vec::new();
        while self.wants_write() || self.loan.is_some_and(|it| !it.is_over) || self.stream_at < self.bytes_received {
            match self.turn(&mut frames) {
                Ok(Turn::Closed) if self.loan.is_some_and(|it| !it.is_over) => return None,
                Ok(_) => {}
                Err(_) => return None,
            }
            frames.clear();
            if self.wants_write() || self.loan.is_some_and(|it| !it.is_over) || self.stream_at < self.bytes_received {
                let beside = (self.datagram_fd(), self.datagrams_due());
                deadline.wait_beside(self.as_fd(), (true, self.wants_write()), beside, Step::Wait).ok()?;
            }
        }
        let (loan, moved, early) = (self.loan?, (self.bytes_sent, self.bytes_received), self.inbox);
        let Carrier::Tls { connection, stream, .. } = self.carrier else { return None };
        Some(Lent {
            connection: *connection,
            stream,
            moved,
            clear_sent: loan.clear_sent,
            early,
            sessions: loan.sessions + 1,
        })
    }
}

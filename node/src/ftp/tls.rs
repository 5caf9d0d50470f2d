//! TLS of the FTP door: its terms, and the handshake of data connections.
//!
//! For: FTPS by RFC 4217, on this door alone; sessions of ours have another TLS (`link::tls`).
//! In and out: a certificate; for each control session terms of its own; a data connection that is up, with its keys taken out for `engine::rail::plain`.
//! Invariants: TLS 1.2 and 1.3, ECDHE and AEAD only; the memory of TLS sessions is one control session's own, so a data connection that resumes one resumes
//! this one's, and nobody else's data connection can.
//! Absent on purpose: moving bytes of files (`engine`).

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use engine::rail::plain::{Direction, Keys};
use engine::seal::record::{Cipher, Key, Version, record_bytes};
use rustls::crypto::aws_lc_rs;
use rustls::kernel::KernelConnection;
use rustls::server::{
    ClientHello, ResolvesServerCert, ServerConnectionData, StoresServerSessions, UnbufferedServerConnection,
};
use rustls::sign::CertifiedKey;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::version::{TLS12, TLS13};
use rustls::{ConnectionTrafficSecrets, HandshakeKind, ProtocolVersion, ServerConfig};

/// TLS sessions that a control session remembers for good: those of its own handshake, which clients (lftp) show for each data connection, although a
/// ticket should be used once (RFC 8446 appendix C.4). Nobody can see more by that than that the connections belong together; 0-RTT there is none.
const SESSIONS_KEPT: usize = TICKETS_FIRST;
/// And besides the newest ones: each data connection brings `TICKETS`.
const SESSIONS_NEW: usize = 60;
/// Tickets for a control connection. A client that shows each once, and reads none of those that come on data connections which it only writes to, has
/// as many uploads (Cyberduck #18399): 230 bytes each.
const TICKETS_FIRST: usize = 16;
/// Tickets for a data connection: clients that open two at once have one for each.
const TICKETS: usize = 2;
/// A record with all that is around it, and a little of the next.
const RECORD_BYTES: usize = 20 << 10;
/// What a peer may say before its handshake is over.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// The TLS sessions of one control session and its data connections, which nobody else can go on with.
#[derive(Debug, Default)]
pub struct TlsSessions(Mutex<VecDeque<(Vec<u8>, Vec<u8>)>>);

impl TlsSessions {
    /// Does a ClientHello ask to go on with one of them? Their names are 32 random bytes, in clear: a session id, or a ticket of ours. Who only repeats what it
    /// saw on the wire is found out by the handshake.
    #[must_use]
    pub fn are_named_in(&self, hello: &[u8]) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().any(|(name, _)| !name.is_empty() && hello.windows(name.len()).any(|it| it == name))
    }
}

impl StoresServerSessions for TlsSessions {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(it, _)| *it != key);
        if all.len() >= SESSIONS_KEPT + SESSIONS_NEW {
            all.remove(SESSIONS_KEPT);
        }
        all.push_back((key, value));
        true
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(it, _)| it == key).map(|(_, value)| value.clone())
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get(key)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// The terms of one control session, and those of its data connections.
#[derive(Debug, Clone)]
pub struct TermsOf {
    /// Of the control connection.
    pub control: Arc<ServerConfig>,
    /// Of data connections.
    pub data: Arc<ServerConfig>,
    /// What both remember.
    pub sessions: Arc<TlsSessions>,
}

/// Makes them. `is_tls12`: nothing newer.
///
/// # Errors
/// Versions that the library does not have.
pub fn terms(key: &Arc<CertifiedKey>, is_tls12: bool) -> Result<TermsOf, rustls::Error> {
    let versions: &[_] = if is_tls12 { &[&TLS12] } else { &[&TLS13, &TLS12] };
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::clone(key))));
    let sessions = Arc::new(TlsSessions::default());
    config.session_storage = Arc::clone(&sessions) as Arc<dyn StoresServerSessions>;
    config.send_tls13_tickets = TICKETS_FIRST;
    let mut data = config.clone();
    data.send_tls13_tickets = TICKETS;
    data.enable_secret_extraction = true;
    Ok(TermsOf { control: Arc::new(config), data: Arc::new(data), sessions })
}

/// Does a ClientHello offer TLS 1.2? Without the extension supported_versions (RFC 8446 section 4.2.1: type 43, lengths of two bytes and of one) it offers nothing newer.
pub fn offers_tls12(hello: &[u8]) -> bool {
    let at =
        hello.windows(5).position(|it| it[..3] == [0, 43, 0] && it[3].checked_sub(1) == Some(it[4]) && it[4] % 2 == 0);
    at.is_none_or(|at| hello[at + 5..].chunks(2).take(usize::from(hello[at + 4]) / 2).any(|it| it == [3, 3]))
}

/// The keys that follow, which few connections ever ask for.
pub type Next = Box<dyn FnMut(Direction) -> Option<Key> + Send>;

/// A data connection whose handshake is over.
pub struct DataTls {
    /// What moves its bytes.
    pub keys: Keys<Next>,
    /// Sealed before all that `keys` seals, and to be sent before it (TLS 1.3). On an upload that is after the client's end: who has said all it has to say
    /// and closes a connection with something unread in it resets it, and throws away what it has not sent yet (RFC 9293 section 3.6.1, RFC 2525 section 2.17).
    pub tickets: Vec<u8>,
    /// It goes on from the control session's TLS.
    pub resumed: bool,
}

impl std::fmt::Debug for DataTls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DataTls").field("resumed", &self.resumed).finish_non_exhaustive()
    }
}

/// Makes the server's half of a handshake over a socket that blocks, with a time limit of its own.
///
/// # Errors
/// The network's; what is wrong with what the peer says.
pub fn accept(config: &Arc<ServerConfig>, stream: &mut TcpStream) -> io::Result<DataTls> {
    let mut connection = UnbufferedServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    // The library sees a record at a time, and none that it does not ask for: the first bytes of a file may come with the handshake's last.
    let (mut ahead, mut incoming, mut outgoing) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let UnbufferedStatus { mut discard, state } = connection.process_tls_records(&mut incoming);
        let mut is_over = false;
        let failed = match state {
            Ok(ConnectionState::EncodeTlsData(mut state)) => {
                encode(&mut state, &mut outgoing)?;
                None
            }
            Ok(ConnectionState::TransmitTlsData(state)) => {
                state.done();
                None
            }
            Ok(ConnectionState::BlockedHandshake) => {
                stream.write_all(&outgoing)?;
                outgoing.clear();
                incoming.drain(..std::mem::take(&mut discard));
                take_record(stream, &mut ahead, &mut incoming)?;
                None
            }
            Ok(ConnectionState::WriteTraffic(_)) => {
                is_over = true;
                None
            }
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            tell_alert(&mut connection, stream);
            return Err(io::Error::other(error));
        }
        discard = discard.min(incoming.len());
        incoming.drain(..discard);
        if is_over {
            break;
        }
    }
    let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(io::Error::other)?;
    let version = version_of(&kernel);
    // With TLS 1.2 the last word of the handshake, for which the client waits.
    if version == Version::Tls12 {
        stream.write_all(&outgoing)?;
        outgoing.clear();
    }
    let sealing = key_of(version, secrets.tx)?;
    let opening = key_of(version, secrets.rx)?;
    Ok(DataTls {
        keys: Keys { sealing, opening, early: ahead, next: next_of(version, kernel) },
        tickets: outgoing,
        resumed,
    })
}

/// Encodes what the library has to say behind what `out` has. `D`: the data of a server's or of a client's connection.
pub(super) fn encode<D>(state: &mut rustls::unbuffered::EncodeTlsData<'_, D>, out: &mut Vec<u8>) -> io::Result<()> {
    let at = out.len();
    loop {
        match state.encode(&mut out[at..]) {
            Ok(bytes) => {
                out.truncate(at + bytes);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(wanted)) => out.resize(at + wanted.required_size, 0),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// The peer hears why, if there is something to say.
fn tell_alert(connection: &mut UnbufferedServerConnection, stream: &mut TcpStream) {
    let mut outgoing = Vec::new();
    while let Ok(ConnectionState::EncodeTlsData(mut state)) = connection.process_tls_records(&mut []).state {
        if encode(&mut state, &mut outgoing).is_err() {
            break;
        }
    }
    let _ = stream.write_all(&outgoing);
}

/// Gives the library the next record, once it is whole.
pub(super) fn take_record(stream: &mut TcpStream, ahead: &mut Vec<u8>, incoming: &mut Vec<u8>) -> io::Result<()> {
    let mut room = [0; RECORD_BYTES];
    loop {
        let whole = record_bytes(ahead).map_err(|_| io::Error::other("no TLS came"))?;
        if let Some(bytes) = whole.filter(|&bytes| bytes <= ahead.len()) {
            incoming.extend(ahead.drain(..bytes));
            return Ok(());
        }
        if ahead.len() >= HANDSHAKE_BYTES_MAX {
            return Err(io::Error::other("the other end's handshake is too long"));
        }
        // Servers send tickets and a short file in several segments, and each waits for our word on the one before (RFC 896): 40 ms a file, measured.
        sys::sock::acknowledge_now(&*stream);
        match stream.read(&mut room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => ahead.extend_from_slice(&room[..bytes]),
        }
    }
}

fn version_of(kernel: &KernelConnection<ServerConnectionData>) -> Version {
    if kernel.protocol_version() == ProtocolVersion::TLSv1_3 { Version::Tls13 } else { Version::Tls12 }
}

pub(super) fn key_of(version: Version, (number, secrets): (u64, ConnectionTrafficSecrets)) -> io::Result<Key> {
    let (cipher, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::ChaCha20Poly1305, key, iv),
        _ => return Err(io::Error::other("a cipher that this program does not have")),
    };
    let iv = iv.as_ref().try_into().map_err(|_| io::Error::other("a nonce of another length"))?;
    Ok(Key::new(version, cipher, key.as_ref(), iv, number))
}

fn next_of(version: Version, mut kernel: KernelConnection<ServerConnectionData>) -> Next {
    Box::new(move |direction| {
        let secrets = match direction {
            Direction::Sealing => kernel.update_tx_secret(),
            Direction::Opening => kernel.update_rx_secret(),
        };
        key_of(version, secrets.ok()?).ok()
    })
}

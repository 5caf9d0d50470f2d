//! TLS of a client: the terms of one control session, and the handshake of its data connections.
//!
//! For: FTPS by RFC 4217 with servers of others.
//! In and out: a verifier; a data connection that is up, with its keys taken out for `engine::rail::plain`.
//! Invariants: each control session has a memory of TLS sessions of its own, of which its data connections resume, a ticket of TLS 1.3 once each
//! (RFC 8446 appendix C.4); tickets that come on data connections are kept, whichever way these carry files (Cyberduck #18399).
//! Absent on purpose: moving bytes of files (`engine`).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, PoisonError};

use engine::rail::plain::{Direction, Keys};
use engine::seal::record::{Key, Version, record_bytes};
use rustls::client::{ClientConnectionData, Resumption, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::{ClientConfig, ProtocolVersion, SupportedProtocolVersion};

use super::trust::Verifier;
use crate::ftp::tls::{HANDSHAKE_BYTES_MAX, encode, key_of, take_record};

/// Servers of one control session: itself.
const SESSIONS: usize = 8;

/// The terms of one control session and of its data connections, with these versions.
///
/// # Errors
/// Versions that the library does not have.
pub fn terms(
    verifier: &Arc<Verifier>,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(verifier) as Arc<_>)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

type Kernel = Arc<Mutex<KernelConnection<ClientConnectionData>>>;
/// The keys that follow, which few connections ever ask for.
pub type Next = Box<dyn FnMut(Direction) -> Option<Key> + Send>;

/// What came first behind the handshake.
#[derive(Debug, Default)]
pub struct First {
    /// Bytes of the file, opened already.
    pub bytes: Vec<u8>,
    /// And that was all.
    pub is_end: bool,
}

/// A data connection whose handshake is over.
pub struct DataTls {
    /// What moves its bytes.
    pub keys: Keys<Next>,
    /// What came while tickets were waited for.
    pub first: First,
    kernel: Kernel,
}

impl std::fmt::Debug for DataTls {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("DataTls").field("first", &self.first).finish_non_exhaustive()
    }
}

impl DataTls {
    /// After an upload: reads what the server says until it ends the connection, and keeps its tickets.
    pub fn drain(&mut self, stream: &mut TcpStream) {
        let mut ahead = std::mem::take(&mut self.keys.early);
        let mut room = [0; 4096];
        loop {
            while let Ok(Some(bytes)) = record_bytes(&ahead) {
                if bytes > ahead.len() {
                    break;
                }
                let mut record: Vec<u8> = ahead.drain(..bytes).collect();
                let Ok((_, range)) = self.keys.opening.open(&mut record) else { return };
                self.keep_tickets(&record[range]);
            }
            match stream.read(&mut room) {
                Ok(bytes) if bytes > 0 && ahead.len() < HANDSHAKE_BYTES_MAX => ahead.extend_from_slice(&room[..bytes]),
                _ => return,
            }
        }
    }

    /// Messages that came behind the handshake: tickets are kept.
    pub fn keep(&self, messages: &[u8]) {
        self.keep_tickets(messages);
    }

    fn keep_tickets(&self, mut messages: &[u8]) {
        let mut kernel = self.kernel.lock().unwrap_or_else(PoisonError::into_inner);
        // NewSessionTicket (RFC 8446 section 4): type 4, three bytes of length.
        while let &[4, a, b, c, ref rest @ ..] = messages {
            let Some((ticket, after)) = rest.split_at_checked(u32::from_be_bytes([0, a, b, c]) as usize) else {
                return;
            };
            let _ = kernel.handle_new_session_ticket(ticket);
            messages = after;
        }
    }
}

/// Makes the client's half of a handshake over a socket that blocks, with a time limit of its own. `waits`: something is to come, and tickets before it.
///
/// # Errors
/// The network's; what is wrong with what the peer says.
pub fn connect(
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    stream: &mut TcpStream,
    waits: bool,
) -> io::Result<DataTls> {
    let mut connection = UnbufferedClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
    let (mut ahead, mut incoming, mut outgoing) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = First::default();
    loop {
        let UnbufferedStatus { mut discard, state } = connection.process_tls_records(&mut incoming);
        let mut is_over = false;
        match state.map_err(io::Error::other)? {
            ConnectionState::EncodeTlsData(mut state) => encode(&mut state, &mut outgoing)?,
            // It goes with what comes next, at the latest before anything is waited for: one segment instead of two, and one wake-up of the server.
            ConnectionState::TransmitTlsData(state) => state.done(),
            ConnectionState::BlockedHandshake => {
                stream.write_all(&outgoing)?;
                outgoing.clear();
                incoming.drain(..std::mem::take(&mut discard));
                take_record(stream, &mut ahead, &mut incoming)?;
            }
            ConnectionState::ReadTraffic(mut state) => {
                while let Some(record) = state.next_record() {
                    let record = record.map_err(io::Error::other)?;
                    discard += record.discard;
                    first.bytes.extend_from_slice(record.payload);
                }
            }
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                first.is_end = true;
                is_over = true;
            }
            ConnectionState::WriteTraffic(_) if waits && first.bytes.is_empty() => {
                if !outgoing.is_empty() {
                    stream.write_all(&outgoing)?;
                    outgoing.clear();
                }
                incoming.drain(..std::mem::take(&mut discard).min(incoming.len()));
                // Tickets, or the first bytes.
                take_record(stream, &mut ahead, &mut incoming)?;
            }
            ConnectionState::WriteTraffic(_) => is_over = true,
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        discard = discard.min(incoming.len());
        incoming.drain(..discard);
        if is_over {
            break;
        }
    }
    if !outgoing.is_empty() {
        stream.write_all(&outgoing)?;
    }
    let (secrets, kernel) = connection.dangerous_into_kernel_connection().map_err(io::Error::other)?;
    let version = if kernel.protocol_version() == ProtocolVersion::TLSv1_3 { Version::Tls13 } else { Version::Tls12 };
    let (sealing, opening) = (key_of(version, secrets.tx)?, key_of(version, secrets.rx)?);
    let kernel = Arc::new(Mutex::new(kernel));
    let next = next_of(version, Arc::clone(&kernel));
    Ok(DataTls { keys: Keys { sealing, opening, early: ahead, next }, first, kernel })
}

fn next_of(version: Version, kernel: Kernel) -> Next {
    Box::new(move |direction| {
        let mut kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
        let secrets = match direction {
            Direction::Sealing => kernel.update_tx_secret(),
            Direction::Opening => kernel.update_rx_secret(),
        };
        key_of(version, secrets.ok()?).ok()
    })
}

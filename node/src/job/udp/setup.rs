//! Setup messages of a datagram rail: what both ends say between greeting and packets.
//!
//! For: confirming that the other end hears at its address, and measuring the path with a packet train.
//! In and out: a rail's number and the job's secret in; bytes of a message out, and back.
//! Invariants: a message is believed only if its MAC holds; it is compared in constant time.
//! Absent on purpose: which message follows which (`udp`, `demultiplexer`).
//! Source: docs/protocol.md section 7.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Instant;

use sys::event::Interest;

use crate::job::keys::JobSecret;

/// Bytes of a setup message, without its padding.
pub const SETUP_BYTES: usize = 48;

/// What a setup message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SetupKind {
    /// The greeting of this length came.
    Welcome = b'W',
    /// So long are the packets at the start.
    Confirm = b'K',
    /// The rail is up.
    Ready = b'R',
    /// One packet of a train; the size field is its index.
    Train = b'P',
    /// That was all of the train: what came of it?
    TrainEnd = b'E',
    /// So many came (the size field), over so many µs (token 0..4), up to that index (token 4..6).
    TrainResult = b'T',
    /// A train is wanted, of packets of this size.
    TrainAsk = b'A',
}

/// A message between greeting and packets.
///
/// ```text
///  0      1          4         6              8          16         48
///  +------+----------+---------+--------------+----------+----------+---------
///  | kind | rail tag | rail no | packet bytes | token    | MAC      | padding
///  +------+----------+---------+--------------+----------+----------+---------
///  MAC: BLAKE3 keyed with the job's greeting key, over bytes 0..16
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetupMessage {
    /// What it says.
    pub say: SetupKind,
    /// Which rail.
    pub rail: u16,
    /// Length of the greeting that is answered (`W`), of packets at the start (`K`, `R`).
    pub packet_bytes: u16,
    /// Made by the acceptor for each rail; `K` shows that its sender got the `W`.
    pub token: [u8; 8],
}

impl SetupMessage {
    /// The bytes of the drawing, without padding.
    #[must_use]
    pub fn encode(&self, secret: &JobSecret) -> [u8; SETUP_BYTES] {
        let mut out = [0; SETUP_BYTES];
        out[0] = self.say as u8;
        out[1..4].copy_from_slice(&secret.tag(self.rail).to_le_bytes()[..3]);
        out[4..6].copy_from_slice(&self.rail.to_le_bytes());
        out[6..8].copy_from_slice(&self.packet_bytes.to_le_bytes());
        out[8..16].copy_from_slice(&self.token);
        let mac = secret.vouch(&out[..16]);
        out[16..].copy_from_slice(&mac);
        out
    }

    /// Reads a message of this rail; `None` for anything else, and for a message that nobody with the secret wrote.
    #[must_use]
    pub fn decode(bytes: &[u8], secret: &JobSecret, rail: u16) -> Option<SetupMessage> {
        let bytes: &[u8; SETUP_BYTES] = bytes.first_chunk()?;
        let say = match bytes[0] {
            b'W' => SetupKind::Welcome,
            b'K' => SetupKind::Confirm,
            b'R' => SetupKind::Ready,
            b'P' => SetupKind::Train,
            b'E' => SetupKind::TrainEnd,
            b'T' => SetupKind::TrainResult,
            b'A' => SetupKind::TrainAsk,
            _ => return None,
        };
        let packet_bytes = u16::from_le_bytes([bytes[6], bytes[7]]);
        let word = SetupMessage { say, rail, packet_bytes, token: *bytes[8..].first_chunk()? };
        // Compared in constant time, as `blake3::Hash` does.
        let (mac, own) = (bytes[16..].first_chunk::<32>()?, word.encode(secret));
        let own = blake3::Hash::from_bytes(*own[16..].first_chunk()?);
        (own == blake3::Hash::from_bytes(*mac) && bytes[..6] == word.encode(secret)[..6]).then_some(word)
    }
}

/// Waits for something to read.
pub(super) fn wait(socket: &UdpSocket, until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(false);
    }
    sys::event::poll(&[(socket.as_fd(), Interest::Read)], Some(left))?;
    Ok(true)
}

//! Bytes ↔ records of TLS, sealed and opened where they stand.
//!
//! For: data connections of other protocols (FTPS), after somebody else has made the handshake and taken the secrets out.
//! In and out: bytes in a buf with room around each record → records that stand one after another; records → where their content stands in the buf.
//! Invariants: a record's number is used once with a key; nothing is handed out before its tag held; what a peer says of lengths is checked against
//! the bytes that are there; no key seals more records than its algorithm bears (`RECORDS_MAX`).
//! Absent on purpose: handshakes, alerts' meaning, where the next key comes from (the caller is told that one is due).
//!
//! ```text
//! TLS 1.3 (RFC 8446 section 5.2)           TLS 1.2, GCM (RFC 5288)                  TLS 1.2, ChaCha20 (RFC 7905)
//!  +------+-------------------------+-----+ +------+-----------+---------+-----+     +------+---------+-----+
//!  | head | content  type (1) zeros | tag | | head | nonce (8) | content | tag |     | head | content | tag |
//!  +------+-------------------------+-----+ +------+-----------+---------+-----+     +------+---------+-----+
//!  head: type, 0x0303, length of what follows (5 bytes). Tag: 16 bytes.
//! ```

use std::ops::Range;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};

/// Most bytes of content in a record (RFC 8446 section 5.1).
pub const CONTENT_BYTES_MAX: usize = 1 << 14;
/// Type, version, length.
pub const HEAD_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// Explicit nonce of GCM in TLS 1.2 (RFC 5288 section 3).
const EXPLICIT_BYTES: usize = 8;
/// A record's bytes after its head, at most: TLS 1.2 lets an expansion of 2048 pass (RFC 5246 section 6.2.3), TLS 1.3 of 256.
const BODY_BYTES_MAX: usize = CONTENT_BYTES_MAX + 2048;
/// Records under one key: 2^24.5 bears AES-GCM (RFC 8446 section 5.5).
pub const RECORDS_MAX: u64 = 1 << 24;

/// What a record holds (RFC 8446 section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// The user's bytes.
    Data,
    /// An alert.
    Alert,
    /// A message of a handshake: a ticket, or a new key.
    Handshake,
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;

/// The version that is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// An AEAD of both versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cipher {
    /// AES-128-GCM.
    Aes128Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// ChaCha20-Poly1305.
    ChaCha20Poly1305,
}

/// What is wrong with what a peer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A head that no record has here.
    Head,
    /// A record longer than any may be.
    TooLong,
    /// Its tag does not hold.
    Tag,
    /// Content of a kind that may not come here.
    Kind,
}

/// One direction under one key.
pub struct Key {
    aead: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    number: u64,
    sealed: u64,
    version: Version,
    explicit: bool,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("version", &self.version).field("number", &self.number).finish_non_exhaustive()
    }
}

impl Key {
    /// From the handshake's secrets; `number`: that of the next record.
    ///
    /// # Panics
    /// A key of another length than its cipher's.
    #[must_use]
    pub fn new(version: Version, cipher: Cipher, key: &[u8], iv: [u8; aead::NONCE_LEN], number: u64) -> Key {
        let algorithm = match cipher {
            Cipher::Aes128Gcm => &aead::AES_128_GCM,
            Cipher::Aes256Gcm => &aead::AES_256_GCM,
            Cipher::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        };
        let unbound = UnboundKey::new(algorithm, key).expect("the length is the algorithm's own");
        let explicit = version == Version::Tls12 && cipher != Cipher::ChaCha20Poly1305;
        Key { aead: LessSafeKey::new(unbound), iv, number, sealed: 0, version, explicit }
    }

    /// Bytes before a record's content.
    #[must_use]
    pub fn before(&self) -> usize {
        HEAD_BYTES + if self.explicit { EXPLICIT_BYTES } else { 0 }
    }

    /// Bytes after it.
    #[must_use]
    pub fn after(&self) -> usize {
        TAG_BYTES + usize::from(self.version == Version::Tls13)
    }

    /// Has it sealed as much as it may? Then another one has to follow; TLS 1.2 has none.
    #[must_use]
    pub fn is_worn(&self) -> bool {
        self.sealed >= RECORDS_MAX
    }

    fn nonce(&self, number: u64) -> [u8; aead::NONCE_LEN] {
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(byte, of)| *byte ^= of);
        nonce
    }

    /// What the tag of TLS 1.2 covers besides (RFC 5246 section 6.2.3.3).
    fn aad12(number: u64, kind: u8, len: usize) -> [u8; 13] {
        let mut aad = [0; 13];
        aad[..8].copy_from_slice(&number.to_be_bytes());
        aad[8..11].copy_from_slice(&[kind, 3, 3]);
        aad[11..].copy_from_slice(&(len as u16).to_be_bytes());
        aad
    }

    /// Seals a record where it stands: its content is in the middle of `room`, with `before` bytes before it and `after` behind.
    ///
    /// # Panics
    /// `room` has not the bytes around the content, or that is longer than a record's may be.
    pub fn seal(&mut self, content: Content, room: &mut [u8]) {
        let (before, after) = (self.before(), self.after());
        let len = room.len() - before - after;
        assert!(len <= CONTENT_BYTES_MAX, "a record's content is at most 2^14 bytes");
        let kind = match content {
            Content::Data => DATA,
            Content::Alert => ALERT,
            Content::Handshake => HANDSHAKE,
        };
        let (number, body) = (self.number, (room.len() - HEAD_BYTES) as u16);
        (self.number, self.sealed) = (number + 1, self.sealed + 1);
        room[1..3].copy_from_slice(&[3, 3]);
        room[3..5].copy_from_slice(&body.to_be_bytes());
        let tag_at = room.len() - TAG_BYTES;
        match self.version {
            Version::Tls13 => {
                room[0] = DATA;
                room[before + len] = kind;
                let (head, rest) = room.split_at_mut(HEAD_BYTES);
                let nonce = Nonce::assume_unique_for_key(self.nonce(number));
                let (plain, tag) = rest.split_at_mut(tag_at - HEAD_BYTES);
                let made = self.aead.seal_in_place_separate_tag(nonce, Aad::from(&*head), plain);
                tag.copy_from_slice(made.expect("a record is short enough").as_ref());
            }
            Version::Tls12 => {
                room[0] = kind;
                let mut nonce = self.nonce(number);
                if self.explicit {
                    // The record's own number, which no other record of this key has.
                    nonce[4..].copy_from_slice(&number.to_be_bytes());
                    room[HEAD_BYTES..before].copy_from_slice(&number.to_be_bytes());
                }
                let aad = Aad::from(Key::aad12(number, kind, len));
                let (plain, tag) = room[before..].split_at_mut(len);
                let made = self.aead.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, plain);
                tag.copy_from_slice(made.expect("a record is short enough").as_ref());
            }
        }
    }

    /// Opens the record that `record` is, where it stands: what it holds, and where.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(&mut self, record: &mut [u8]) -> Result<(Content, Range<usize>), Broken> {
        let (before, number) = (self.before(), self.number);
        let least = before + self.after();
        if record.len() < least {
            return Err(Broken::Head);
        }
        self.number += 1;
        let mut nonce = self.nonce(number);
        match self.version {
            Version::Tls13 => {
                let (head, body) = record.split_at_mut(HEAD_BYTES);
                if head[0] != DATA {
                    return Err(Broken::Kind);
                }
                let nonce = Nonce::assume_unique_for_key(nonce);
                let opened = self.aead.open_in_place(nonce, Aad::from(&*head), body).map_err(|_| Broken::Tag)?;
                let last = opened.iter().rposition(|&byte| byte != 0).ok_or(Broken::Kind)?;
                if last > CONTENT_BYTES_MAX {
                    return Err(Broken::TooLong);
                }
                Ok((kind_of(opened[last])?, HEAD_BYTES..HEAD_BYTES + last))
            }
            Version::Tls12 => {
                if self.explicit {
                    nonce[4..].copy_from_slice(&record[HEAD_BYTES..before]);
                }
                let (kind, len) = (record[0], record.len() - least);
                if len > CONTENT_BYTES_MAX {
                    return Err(Broken::TooLong);
                }
                let aad = Aad::from(Key::aad12(number, kind, len));
                let nonce = Nonce::assume_unique_for_key(nonce);
                let opened = self.aead.open_in_place(nonce, aad, &mut record[before..]).map_err(|_| Broken::Tag)?;
                let range = before..before + opened.len();
                Ok((kind_of(kind)?, range))
            }
        }
    }
}

fn kind_of(byte: u8) -> Result<Content, Broken> {
    match byte {
        DATA => Ok(Content::Data),
        ALERT => Ok(Content::Alert),
        HANDSHAKE => Ok(Content::Handshake),
        _ => Err(Broken::Kind),
    }
}

/// The length of the record that begins here, head included; `None`: its head is not whole yet.
///
/// # Errors
/// No record begins so, or it is longer than any may be.
pub fn record_bytes(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    if !(20..=23).contains(&head[0]) || head[1] != 3 {
        return Err(Broken::Head);
    }
    let body = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if body > BODY_BYTES_MAX { Err(Broken::TooLong) } else { Ok(Some(HEAD_BYTES + body)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(version: Version, cipher: Cipher) -> (Key, Key) {
        let key = if cipher == Cipher::Aes128Gcm { &[7; 16][..] } else { &[7; 32] };
        (Key::new(version, cipher, key, [9; 12], 3), Key::new(version, cipher, key, [9; 12], 3))
    }

    fn all() -> impl Iterator<Item = (Version, Cipher)> {
        [Version::Tls12, Version::Tls13].into_iter().flat_map(|version| {
            [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305].map(|cipher| (version, cipher))
        })
    }

    fn sealed(key: &mut Key, content: Content, bytes: &[u8]) -> Vec<u8> {
        let mut room = vec![0; key.before()];
        room.extend_from_slice(bytes);
        room.resize(room.len() + key.after(), 0);
        key.seal(content, &mut room);
        room
    }

    #[test]
    fn what_is_sealed_is_opened_in_order_and_nothing_else_is() {
        for (version, cipher) in all() {
            let (mut sealer, mut opener) = pair(version, cipher);
            for (content, len) in
                [(Content::Data, 16384), (Content::Data, 0), (Content::Alert, 2), (Content::Handshake, 5)]
            {
                let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
                let mut record = sealed(&mut sealer, content, &bytes);
                assert_eq!(record_bytes(&record), Ok(Some(record.len())));
                let (kind, range) = opener.open(&mut record).unwrap();
                assert_eq!((kind, &record[range]), (content, &bytes[..]), "{version:?} {cipher:?}");
            }
            let first = sealed(&mut sealer, Content::Data, b"first");
            let second = sealed(&mut sealer, Content::Data, b"second");
            assert_eq!(opener.open(&mut second.clone()), Err(Broken::Tag), "out of order");
            let (mut again, _) = pair(version, cipher);
            again.number = first.len() as u64;
            for at in 0..first.len() {
                let (_, mut opener) = pair(version, cipher);
                opener.number = sealer.number - 2;
                let mut harmed = first.clone();
                harmed[at] ^= 1;
                let is_version_or_length = (1..5).contains(&at) && version == Version::Tls12;
                assert!(is_version_or_length || opener.open(&mut harmed).is_err(), "{version:?} {cipher:?} byte {at}");
            }
        }
    }

    #[test]
    fn heads_of_no_record_and_records_of_no_content_are_refused() {
        assert_eq!(record_bytes(b"\x17\x03\x03\x40"), Ok(None));
        assert_eq!(record_bytes(b"\x17\x03\x03\x48\x01"), Err(Broken::TooLong));
        assert_eq!(record_bytes(b"GET /"), Err(Broken::Head));
        for (version, cipher) in all() {
            let (_, mut opener) = pair(version, cipher);
            for len in 0..opener.before() + opener.after() {
                assert!(opener.open(&mut vec![0x17; len]).is_err());
            }
        }
        // Padding alone (RFC 8446 section 5.4: there has to be a type).
        let (mut sealer, mut opener) = pair(Version::Tls13, Cipher::Aes128Gcm);
        let mut room = vec![0; HEAD_BYTES + 10 + TAG_BYTES];
        room[..5].copy_from_slice(&[23, 3, 3, 0, 26]);
        let (head, rest) = room.split_at_mut(HEAD_BYTES);
        let nonce = Nonce::assume_unique_for_key(sealer.nonce(3));
        let tag = sealer.aead.seal_in_place_separate_tag(nonce, Aad::from(&*head), &mut rest[..10]).unwrap();
        rest[10..].copy_from_slice(tag.as_ref());
        sealer.number += 1;
        assert_eq!(opener.open(&mut room), Err(Broken::Kind));
    }
}

//! Keys of packets: one set for each epoch of a direction.
//!
//! For: `packet`.
//! In and out: a rail's secret and packet numbers in; keys out.
//! Invariants: a number that a stranger claims chooses among three sets and derives nothing: keys are derived when a packet that held, or one of
//! our own, enters a new epoch.
//! Absent on purpose: nonces and places (`packet`).

use aws_lc_rs::aead::{self, LessSafeKey, UnboundKey};
use aws_lc_rs::cipher::{self, EncryptingKey, UnboundCipherKey};
use proto::negotiate::Cipher;
use proto::wire::chunk::TAG_BYTES;

/// Packets under one key, as a power of two. 2^24 packets of 64 KiB are 2^36 blocks: an advantage of 2^-57 (RFC 9001, B.1.1).
pub(super) const EPOCH_BITS: u32 = 24;

/// Epochs whose keys are at hand. A packet of 2^24 numbers earlier or later than the newest cannot be one of the peer's: the flow lets
/// a few thousand packets be on their way.
const EPOCHS_HELD: u64 = 3;

/// A pad of 16 bytes from 16 bytes: AES itself, one block; keyed BLAKE3 where AES is no instruction.
pub(super) enum Pad {
    Aes(Box<EncryptingKey>),
    Blake3([u8; 32]),
}

impl Pad {
    pub(super) fn apply(&self, blocks: &mut [[u8; TAG_BYTES]]) {
        match self {
            Pad::Aes(key) => {
                let _ = key.encrypt(blocks.as_flattened_mut()).expect("whole blocks are what ECB takes");
            }
            Pad::Blake3(key) => {
                for block in blocks {
                    let hash = blake3::keyed_hash(key, block);
                    block.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
                }
            }
        }
    }
}

pub(super) struct Keys {
    pub(super) epoch: u64,
    pub(super) aead: LessSafeKey,
    pub(super) pad: Pad,
}

/// Keys of one direction, by epoch: of the newest epoch in which a packet was sealed or held, and of its neighbours, which are met around a
/// change. A number that a stranger claims chooses among these three and derives nothing.
pub(super) struct Direction {
    secret: [u8; 32],
    label: &'static [u8],
    cipher: Cipher,
    /// By epoch modulo 3.
    keys: [Keys; EPOCHS_HELD as usize],
    newest: u64,
}

fn derive(secret: &[u8; 32], label: &[u8], cipher: Cipher, epoch: u64) -> Keys {
    #[cfg(test)]
    DERIVED.set(DERIVED.get() + 1);
    let mut hasher = blake3::Hasher::new_keyed(secret);
    hasher.update(label);
    hasher.update(&epoch.to_le_bytes());
    let mut bytes = [0; 64];
    hasher.finalize_xof().fill(&mut bytes);
    let (seal, pad) = bytes.split_at(32);
    let (seal_with, block): (&'static aead::Algorithm, Option<&'static cipher::Algorithm>) = match cipher {
        Cipher::Aes128Gcm => (&aead::AES_128_GCM, Some(&cipher::AES_128)),
        Cipher::Aes256Gcm => (&aead::AES_256_GCM, Some(&cipher::AES_256)),
        Cipher::ChaCha20Poly1305 => (&aead::CHACHA20_POLY1305, None),
    };
    let key = UnboundKey::new(seal_with, &seal[..seal_with.key_len()]).expect("the length is the algorithm's own");
    let pad = match block {
        Some(block) => {
            let key =
                UnboundCipherKey::new(block, &pad[..seal_with.key_len()]).expect("the same cipher, the same length");
            Pad::Aes(Box::new(EncryptingKey::ecb(key).expect("AES has this mode")))
        }
        None => Pad::Blake3(pad.try_into().expect("the second half of 64 bytes")),
    };
    Keys { epoch, aead: LessSafeKey::new(key), pad }
}

impl Direction {
    pub(super) fn new(secret: [u8; 32], label: &'static [u8], cipher: Cipher) -> Self {
        let keys = [0, 1, 2].map(|epoch| derive(&secret, label, cipher, epoch));
        Direction { secret, label, cipher, keys, newest: 0 }
    }

    /// To open what claims this number; `None`: no packet of the peer's can have it now.
    #[inline]
    pub(super) fn keys(&self, number: u64) -> Option<&Keys> {
        let epoch = number >> EPOCH_BITS;
        Some(&self.keys[(epoch % EPOCHS_HELD) as usize]).filter(|keys| keys.epoch == epoch)
    }

    /// To seal under a number of our own.
    #[inline]
    pub(super) fn own_keys(&mut self, number: u64) -> &Keys {
        self.enter(number);
        &self.keys[((number >> EPOCH_BITS) % EPOCHS_HELD) as usize]
    }

    /// A packet was opened; whether it held.
    #[inline]
    pub(super) fn on_opened(&mut self, number: u64, holds: bool) -> bool {
        if holds {
            self.enter(number);
        }
        holds
    }

    /// A packet with this number is authentic: ours, or one that held. Once in 2^24 packets it makes a key.
    #[inline]
    pub(super) fn enter(&mut self, number: u64) {
        let epoch = number >> EPOCH_BITS;
        if epoch <= self.newest {
            return;
        }
        self.newest = epoch;
        for near in epoch - 1..=epoch + 1 {
            let keys = &mut self.keys[(near % EPOCHS_HELD) as usize];
            if keys.epoch != near {
                *keys = derive(&self.secret, self.label, self.cipher, near);
            }
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Keys derived on this thread.
    pub(super) static DERIVED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

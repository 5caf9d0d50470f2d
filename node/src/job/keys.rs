//! Rail secrets from the session.
//!
//! For: binding rails to the control session that negotiated them.
//! In and out: exported secret and job id in; greeting keys and rail secrets out.
//! Invariants: every rail number has its own secret; nothing here leaves the process.
//! Absent on purpose: the AEAD (engine::seal).
//! Source: docs/protocol.md "Rails"; RFC 8446 section 7.5 (exporters).

use engine::job::RailKey;
use proto::wire::chunk::Greeting;

use crate::link::{DatagramKeys, Link};

/// Bytes received (u64) and a MAC: with these a control session goes on over another connection.
pub const COUNT_BYTES: usize = 40;

/// What `Link::export` is asked for.
const LABEL: &[u8] = b"EXPORTER-longhaul rails v1";

/// And for the job's id.
const JOB_LABEL: &[u8] = b"EXPORTER-longhaul job v1";

/// The id of the one job of this session: from both ends' randomness, so that no client can take the id, and with it the receipt, of another job.
#[must_use]
pub fn job_of(link: &Link) -> [u8; 16] {
    let mut id = [0; 16];
    id.copy_from_slice(&link.export(JOB_LABEL, &[])[..16]);
    id
}

/// A job's secret from which all rail secrets come.
#[derive(Clone)]
pub struct JobSecret {
    job: [u8; 16],
    greeting: [u8; 32],
    rails: [u8; 32],
    session: [u8; 32],
}

impl std::fmt::Debug for JobSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobSecret").finish_non_exhaustive()
    }
}

impl JobSecret {
    /// The same on both ends of a session.
    #[must_use]
    pub fn of(link: &Link, job: [u8; 16]) -> JobSecret {
        Self::from_master(link.export(LABEL, &job), job)
    }

    /// From what the session exported.
    #[must_use]
    pub(crate) fn from_master(master: [u8; 32], job: [u8; 16]) -> JobSecret {
        JobSecret {
            job,
            greeting: blake3::derive_key("longhaul 1 rail greeting", &master),
            rails: blake3::derive_key("longhaul 1 rail secrets", &master),
            session: blake3::derive_key("longhaul 1 session datagrams", &master),
        }
    }

    /// The first bytes of a rail.
    #[must_use]
    pub fn greeting(&self, rail: u16) -> [u8; 64] {
        self.greeting_of(rail, false)
    }

    /// The same; `is_pair`: of a queue pair, emulated over the connection.
    #[must_use]
    pub fn greeting_of(&self, rail: u16, is_pair: bool) -> [u8; 64] {
        self.greeting_with(rail, is_pair).encode()
    }

    /// The same of a queue pair of a device, which is encoded in other ways.
    #[must_use]
    pub fn pair_greeting(&self, rail: u16) -> Greeting {
        self.greeting_with(rail, true)
    }

    fn greeting_with(&self, rail: u16, is_pair: bool) -> Greeting {
        let mut greeting = Greeting { job: self.job, rail, version: proto::VERSION, is_pair, mac: [0; 32] };
        greeting.mac = self.mac(&greeting);
        greeting
    }

    /// Did somebody who knows the job's secret write this greeting?
    #[must_use]
    pub fn holds(&self, greeting: &Greeting) -> bool {
        // `blake3::Hash` compares in constant time.
        blake3::Hash::from_bytes(self.mac(greeting)) == blake3::Hash::from_bytes(greeting.mac)
    }

    /// The MAC of a word before packets; a greeting's MAC is over 32 bytes, a word's over 16, so neither stands for the other.
    #[must_use]
    pub fn vouch(&self, word: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.greeting, word).as_bytes()
    }

    /// The MAC of a word with which a control session goes on over another connection: 49 bytes, see `vouch`.
    #[must_use]
    fn vouch_count(&self, who: u8, nonce: &[u8; 32], counts: [u64; 2]) -> [u8; 32] {
        let mut word = [who; 49];
        word[1..33].copy_from_slice(nonce);
        word[33..41].copy_from_slice(&counts[0].to_le_bytes());
        word[41..].copy_from_slice(&counts[1].to_le_bytes());
        *blake3::keyed_hash(&self.greeting, &word).as_bytes()
    }

    /// A count as it is told on such a connection: `counts` are the teller's own and the other's (0: not heard yet).
    #[must_use]
    pub fn count_word(&self, who: u8, nonce: &[u8; 32], counts: [u64; 2]) -> [u8; COUNT_BYTES] {
        let mut word = [0; COUNT_BYTES];
        word[..8].copy_from_slice(&counts[0].to_le_bytes());
        word[8..].copy_from_slice(&self.vouch_count(who, nonce, counts));
        word
    }

    /// What is told with this word, if who knows the job's secret said it for this nonce. `other`: what the teller had heard.
    #[must_use]
    pub fn count_of(&self, word: &[u8; COUNT_BYTES], who: u8, nonce: &[u8; 32], other: u64) -> Option<u64> {
        let count = u64::from_le_bytes(*word.first_chunk().expect("8 of 40"));
        let own = self.count_word(who, nonce, [count, other]);
        // `blake3::Hash` compares in constant time.
        let mac = |word: &[u8; COUNT_BYTES]| blake3::Hash::from_bytes(*word[8..].first_chunk().expect("32 of 40"));
        (mac(&own) == mac(word)).then_some(count)
    }

    /// For the session's own bytes in datagrams, greeted as the rail of this number.
    #[must_use]
    pub fn session_datagrams(&self, rail: u16) -> DatagramKeys {
        DatagramKeys { mac: self.session, tag: self.tag(rail) }
    }

    /// 24 bits in the packets of a datagram rail.
    #[must_use]
    pub fn tag(&self, rail: u16) -> u32 {
        let hash = blake3::keyed_hash(&self.rails, &[&b"tag"[..], &rail.to_le_bytes()].concat());
        let bytes = hash.as_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0])
    }

    fn mac(&self, greeting: &Greeting) -> [u8; 32] {
        *blake3::keyed_hash(&self.greeting, &greeting.encode()[..32]).as_bytes()
    }

    /// The secret and place of one rail.
    #[must_use]
    pub fn rail(&self, rail: u16) -> RailKey {
        let mut place = [0; 18];
        place[..16].copy_from_slice(&self.job);
        place[16..].copy_from_slice(&rail.to_le_bytes());
        RailKey { secret: *blake3::keyed_hash(&self.rails, &rail.to_le_bytes()).as_bytes(), place }
    }
}

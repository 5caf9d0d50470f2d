//! Servers of anything at all.
//!
//! For: the client's machines together.
//! In and out: sessions of a good server, mutated; none may do harm.
//! Invariants: no panic, no growth, no name of a path of its own, no password in clear.
//! Absent on purpose: sockets.

use alloc::vec::Vec;

use super::listing::{Form, Lines, Said, parse};
use super::login::{Cover, Login, Step};
use super::name::is_safe;
use super::pipeline::{Expected, Pipeline};
use super::reply::{REPLY_BYTES_MAX, Replies};
use crate::ftp::lhdata::{Spoken, Transport};

/// A good session, for clear and for TLS: what the server says.
const SAID: &[u8] = b"220-Welcome\r\n to us\r\n220 here\r\n234 go\r\n331 and?\r\n230 in\r\n200 ok\r\n200 ok\r\n211-Features:\r\n MLST type*;size*;\r\n REST STREAM\r\n UTF8\r\n HASH SHA-256*\r\n211 End\r\n200 utf8\r\n200 hash\r\n200 type\r\n229 EPSV (|||5000|)\r\n150 go\r\n226 done\r\n";
const LISTED: &[u8] = b"type=file;size=5;modify=20260101000000; a\r\ntype=dir; d\r\n-rw-r--r-- 1 a b 3 May 6 2025 x\r\n11-26-26  05:00PM <DIR> y\r\ntype=file; ../z\r\n";

/// A generator of numbers: xorshift64* (Vigna 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }
}

fn mutated(from: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = from.to_vec();
    for _ in 0..random.below(8) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.below(256) as u8,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, b"\r\n -/.;=0235\xff\0"[random.below(14)]),
            3 => bytes.truncate(at.max(1)),
            _ => {
                let end = (at + random.below(80)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
        }
        if bytes.is_empty() {
            bytes.push(b'\n');
        }
    }
    bytes
}

/// What a Longhaul says to one that asks for LHDATA.
const LONGHAUL: &[u8] = b"220 Longhaul FTP: here\r\n234 go\r\n331 and?\r\n230 in\r\n200 ok\r\n200 ok\r\n211-Features:\r\n UTF8\r\n LHDATA 14 tcp,udp\r\n211 End\r\n250 LHDATA 14 5740 tcp\r\nK";

fn asked() -> Spoken {
    Spoken { version: crate::VERSION, transports: [Transport::Tcp].into() }
}

/// Plays a server's words; gives what the client said.
fn play(said: &[u8], (cover, asks): (Cover, bool), step: usize) -> Vec<(bool, Vec<u8>)> {
    let mut login = Login::new(cover, b"ada", b"secret");
    if asks {
        login = login.asking(asked());
    }
    let (mut replies, mut pipeline, mut out) = (Replies::default(), Pipeline::default(), Vec::new());
    let (mut is_secure, mut is_ready) = (cover == Cover::Implicit, false);
    for part in said.chunks(step) {
        replies.push(part);
        loop {
            let Ok(next) = replies.take() else { return out };
            let Some(reply) = next else { break };
            assert!((100..600).contains(&reply.code) && reply.text.len() <= REPLY_BYTES_MAX);
            if is_ready {
                pipeline.on_reply(&reply);
                assert!(pipeline.waiting() <= 2);
                continue;
            }
            let mut next = login.on_reply(&reply);
            if next == Step::Secure {
                assert!(cover == Cover::Explicit && !is_secure);
                is_secure = true;
                next = login.on_secure();
            }
            match next {
                Step::Say(line) => out.push((is_secure, line)),
                Step::Ready => {
                    is_ready = true;
                    pipeline.on_sent(Expected::Passive, 6);
                    pipeline.on_sent(Expected::Transfer, 6);
                }
                Step::Refused(_) => return out,
                Step::Upgraded(agreed) => {
                    assert!(asks && is_secure && agreed.port != 0 && agreed.version == crate::VERSION);
                    out.push((is_secure, b"(upgraded)".to_vec()));
                    return out;
                }
                Step::Secure => unreachable!("once"),
            }
        }
    }
    out
}

#[test]
fn a_good_session_logs_in_and_says_no_name_before_tls() {
    let said = play(SAID, (Cover::Explicit, false), 1000);
    let words: Vec<&[u8]> = said.iter().map(|it| &it.1[..]).collect();
    let wanted: [&[u8]; 9] = [
        b"AUTH TLS",
        b"USER ada",
        b"PASS secret",
        b"PBSZ 0",
        b"PROT P",
        b"FEAT",
        b"OPTS UTF8 ON",
        b"OPTS HASH SHA-256",
        b"TYPE I",
    ];
    assert_eq!(words, wanted);
    assert!(said.iter().all(|(is_secure, line)| *is_secure || line == b"AUTH TLS"));
}

#[test]
fn lhdata_is_asked_for_in_one_flight_of_a_longhaul_after_feat_of_others_and_never_in_clear() {
    let words = |said: &[u8], how| -> Vec<Vec<u8>> { play(said, how, 1000).into_iter().map(|it| it.1).collect() };
    let flight = b"USER ada\r\nPASS secret\r\nPBSZ 0\r\nPROT P\r\nFEAT\r\nLHDATA 14 tcp";
    let said = words(LONGHAUL, (Cover::Explicit, true));
    let said: Vec<&[u8]> = said.iter().map(|it| &it[..]).filter(|it| !it.is_empty()).collect();
    assert_eq!(said, [&b"AUTH TLS"[..], flight, b"(upgraded)"]);
    // One that greets otherwise is asked once it has said that it can.
    let other = LONGHAUL.strip_prefix(b"220 Longhaul").expect("it begins so");
    let other = [b"220 Otherhaul", other].concat();
    let said = words(&other, (Cover::Explicit, true));
    assert_eq!(said[5..], [&b"FEAT"[..], b"LHDATA 14 tcp", b"(upgraded)"]);
    assert!(!words(SAID, (Cover::Explicit, true)).iter().any(|it| it.starts_with(b"LHDATA")), "it does not have it");
    let clear = words(&LONGHAUL.replace_once(b"234 go\r\n", b""), (Cover::Clear, true));
    assert!(clear.len() > 3 && !clear.iter().any(|it| it.windows(6).any(|six| six == b"LHDATA")));
    // A refusal is the beginning of files.
    for refused in [&b"502 no"[..], b"504 LHDATA 14 tcp", b"530 no"] {
        let said =
            LONGHAUL.replace_once(b"250 LHDATA 14 5740 tcp\r\nK", &[refused, b"\r\n200 utf8\r\n200 type\r\n"].concat());
        let said = words(&said, (Cover::Explicit, true));
        assert_eq!(said[said.len() - 2..], [&b"OPTS UTF8 ON"[..], b"TYPE I"], "{}", refused.escape_ascii());
    }
    for rubbish in [&b"250 yes"[..], b"250 LHDATA 13 5740 tcp", b"250 LHDATA 14 0 tcp", b"211 LHDATA 14 5740 tcp"] {
        let said = LONGHAUL.replace_once(b"250 LHDATA 14 5740 tcp", rubbish);
        let said = words(&said, (Cover::Explicit, true));
        assert!(said.last().is_none_or(Vec::is_empty), "the session ends: {}", rubbish.escape_ascii());
    }
}

trait Replace {
    fn replace_once(&self, from: &[u8], to: &[u8]) -> Vec<u8>;
}

impl Replace for [u8] {
    fn replace_once(&self, from: &[u8], to: &[u8]) -> Vec<u8> {
        let at = self.windows(from.len()).position(|it| it == from).expect("it is there");
        [&self[..at], to, &self[at + from.len()..]].concat()
    }
}

#[test]
fn no_server_of_mutated_words_harms_the_client_or_hears_a_password_in_clear() {
    let mut random = Random(0x5eed);
    for _ in 0..20_000 {
        let said = mutated(if random.below(2) == 0 { SAID } else { LONGHAUL }, &mut random);
        for cover in [Cover::Explicit, Cover::Implicit, Cover::Clear] {
            let asks = random.below(3) > 0;
            for (is_secure, line) in play(&said, (cover, asks), 1 + random.below(200)) {
                let is_named = line.starts_with(b"USER") || line.starts_with(b"PASS");
                assert!(is_secure || cover == Cover::Clear || !is_named);
            }
        }
    }
}

#[test]
fn no_listing_of_mutated_lines_has_a_name_that_leads_elsewhere() {
    let mut random = Random(0x11575);
    for _ in 0..20_000 {
        let listed = mutated(LISTED, &mut random);
        let mut lines = Lines::default();
        let mut check = |line: &[u8]| {
            for form in [Form::Facts, Form::Long] {
                if let Said::Entry(entry) = parse(form, line) {
                    assert!(is_safe(&entry.name), "{}", line.escape_ascii());
                }
            }
        };
        for part in listed.chunks(1 + random.below(60)) {
            if lines.push(part, &mut check).is_err() {
                break;
            }
        }
        lines.end(&mut check);
    }
}

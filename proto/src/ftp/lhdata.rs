//! `LHDATA`: two Longhauls that meet over FTP go on with the session of docs/protocol.md.
//!
//! For: the server's session, a client's login, and whoever has their connections.
//! In and out: lines of FEAT, of the command and of its reply ↔ version, port, transports; what a peer signs to show its key.
//! Invariants: a transport that is not known is passed over, so that later versions may have more; lists and numbers are bounded; a version is its own
//! session's and is agreed on before a byte of it.
//! Absent on purpose: the session itself (`session`), TLS, keys.
//! Source: docs/protocol.md section 16.
//!
//! ```text
//! FEAT           LHDATA 14 tcp,udp
//! client         LHDATA 14 udp,tcp          its transports, the one that it likes best first
//! server         250 LHDATA 14 5740 udp,tcp the port of rails, and of these the ones that both have
//! both           'K', key (32), signature (64)   and then frames
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The command, and the line of FEAT.
pub const WORD: &str = "LHDATA";
/// Words of a list that are looked at.
const LISTED_MAX: usize = 16;
/// Bytes with which each end shows its key, before its first frame.
pub const SHOWN_BYTES: usize = 1 + 32 + 64;
/// What TLS is asked for, with an empty context (RFC 8446 section 7.5): what both ends sign names this handshake and no other.
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-longhaul lhdata v1";
/// How a server of Longhaul greets: its client may say the login's lines ahead of their replies.
pub const GREETING: &str = "Longhaul FTP";

/// What carries rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Streams.
    Tcp,
    /// Datagrams.
    Udp,
    /// Queue pairs.
    Rdma,
}

impl Transport {
    const WORDS: [(&'static str, Transport); 3] =
        [("tcp", Transport::Tcp), ("udp", Transport::Udp), ("rdma", Transport::Rdma)];

    /// As lists have it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Rdma => "rdma",
        }
    }
}

/// A version and transports: what a server offers, and what a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    /// Of docs/protocol.md.
    pub version: u16,
    /// Each once; in a client's order.
    pub transports: Vec<Transport>,
}

/// What was agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreed {
    /// The version that is spoken from here on.
    pub version: u16,
    /// Where rails are dialled, TCP and UDP.
    pub port: u16,
    /// What both have, in the client's order.
    pub transports: Vec<Transport>,
}

/// What a server has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offered {
    /// Where rails are dialled.
    pub port: u16,
    /// What carries them.
    pub transports: Vec<Transport>,
}

fn number(word: &[u8]) -> Option<u16> {
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    digits.then(|| core::str::from_utf8(word).ok()?.parse().ok())?
}

fn list(word: &[u8]) -> Vec<Transport> {
    let mut transports = Vec::new();
    for name in word.split(|&byte| byte == b',').take(LISTED_MAX) {
        let known = Transport::WORDS.iter().find(|(it, _)| name.eq_ignore_ascii_case(it.as_bytes()));
        if let Some(&(_, transport)) = known
            && !transports.contains(&transport)
        {
            transports.push(transport);
        }
    }
    transports
}

fn show(transports: &[Transport]) -> String {
    let mut text = String::new();
    for transport in transports {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(transport.word());
    }
    text
}

/// The words of a line, apart by one blank each: no more than three. `None`: more.
fn words(text: &[u8]) -> Option<Vec<&[u8]>> {
    let all: Vec<&[u8]> = text.splitn(4, |&byte| byte == b' ').collect();
    (all.len() < 4).then_some(all)
}

impl Spoken {
    /// What stands behind the word, in FEAT or in the command. `None`: it is no such thing.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Spoken> {
        let [version, transports] = words(text)?[..] else { return None };
        Some(Spoken { version: number(version)?, transports: list(transports) })
    }

    /// `LHDATA 14 tcp,udp`.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{WORD} {} {}", self.version, show(&self.transports))
    }
}

impl Agreed {
    /// Reads the text of a 250. `None`: it is none to this command.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Agreed> {
        let rest = text.strip_prefix(WORD.as_bytes())?.strip_prefix(b" ")?;
        let [version, port, transports] = words(rest)?[..] else { return None };
        let (version, port) = (number(version)?, number(port).filter(|&port| port != 0)?);
        let transports = list(transports);
        (!transports.is_empty()).then_some(Agreed { version, port, transports })
    }

    /// `LHDATA 14 5740 tcp,udp`.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{WORD} {} {} {}", self.version, self.port, show(&self.transports))
    }
}

impl Offered {
    /// The line of FEAT.
    #[must_use]
    pub fn feature(&self) -> String {
        Spoken { version: crate::VERSION, transports: self.transports.clone() }.line()
    }

    /// What comes of a client's wish. `Err`: the words of the 504.
    ///
    /// # Errors
    /// Another version than is spoken here, or no transport in common.
    pub fn agree(&self, asked: &Spoken) -> Result<Agreed, String> {
        if asked.version < crate::VERSION_MIN || asked.version > crate::VERSION {
            let spoken = self.feature();
            return Err(format!("Version {} is not spoken here: {spoken}", asked.version));
        }
        let both = asked.transports.iter().copied().filter(|it| self.transports.contains(it));
        let transports: Vec<Transport> = both.collect();
        if transports.is_empty() {
            return Err(format!("None of these transports is here: {}", self.feature()));
        }
        Ok(Agreed { version: asked.version, port: self.port, transports })
    }
}

/// Which end signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The client of FTP.
    Initiator,
    /// Its server.
    Acceptor,
}

/// What an end signs to show that it holds the secret of `key`: `exported` is of the TLS connection under it, so that whoever relays TLS shows nothing.
#[must_use]
pub fn signed_message(who: Who, exported: &[u8; 32], key: &[u8; 32]) -> Vec<u8> {
    let who: &[u8] = if who == Who::Initiator { b"i" } else { b"a" };
    [b"longhaul lhdata key v1 ", who, &exported[..], &key[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn lines_are_read_as_they_were_written_and_unknown_transports_are_passed_over() {
        let asked = Spoken { version: 14, transports: vec![Transport::Udp, Transport::Tcp] };
        assert_eq!(asked.line(), "LHDATA 14 udp,tcp");
        assert_eq!(Spoken::parse(b"14 udp,tcp"), Some(asked));
        let agreed = Agreed { version: 14, port: 5740, transports: vec![Transport::Tcp] };
        assert_eq!(Agreed::parse(agreed.text().as_bytes()), Some(agreed));
        let later = Spoken::parse(b"99 quic,TCP,tcp,rdma").expect("a later version");
        assert_eq!(later.transports, [Transport::Tcp, Transport::Rdma]);
        for bad in [&b""[..], b"14", b"14  tcp", b"x tcp", b"+1 tcp", b"65536 tcp", b"14 tcp x", b" 14 tcp"] {
            assert_eq!(Spoken::parse(bad), None, "{}", bad.escape_ascii());
        }
        for bad in [&b"LHDATA 14 0 tcp"[..], b"LHDATA 14 70000 tcp", b"LHDATA 14 1 quic", b"LHDATA 14 tcp", b"Yes."] {
            assert_eq!(Agreed::parse(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_version_of_another_session_and_foreign_transports_are_refused_with_what_is_spoken() {
        let here = Offered { port: 5740, transports: vec![Transport::Tcp, Transport::Udp] };
        let ask = |version, transports| here.agree(&Spoken { version, transports });
        let agreed = ask(crate::VERSION, vec![Transport::Rdma, Transport::Udp, Transport::Tcp]).expect("two of three");
        assert_eq!((agreed.port, &agreed.transports[..]), (5740, &[Transport::Udp, Transport::Tcp][..]));
        for refused in [
            ask(crate::VERSION + 1, vec![Transport::Tcp]),
            ask(0, vec![Transport::Tcp]),
            ask(crate::VERSION, vec![Transport::Rdma]),
            ask(crate::VERSION, vec![]),
        ] {
            assert!(refused.expect_err("refused").ends_with(&here.feature()));
        }
    }

    #[test]
    fn what_is_signed_differs_by_end_handshake_and_key() {
        let all = [
            signed_message(Who::Initiator, &[1; 32], &[2; 32]),
            signed_message(Who::Acceptor, &[1; 32], &[2; 32]),
            signed_message(Who::Initiator, &[3; 32], &[2; 32]),
            signed_message(Who::Initiator, &[1; 32], &[3; 32]),
        ];
        assert!((0..4).all(|at| (0..at).all(|other| all[at] != all[other])));
    }
}

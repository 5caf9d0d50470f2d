//! The beginning of a session, up to the point where files can be asked for.
//!
//! For: each control connection of a client.
//! In and out: replies in; what to say or to do next.
//! Invariants: no name and no password is said in clear unless that was allowed; each step waits for its reply.
//! Absent on purpose: the handshake of TLS, where passwords come from.

use alloc::vec::Vec;

use super::features::Features;
use super::reply::Reply;
use crate::ftp::lhdata::{Agreed, GREETING, Spoken};

/// How a session is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// TLS from the first byte on.
    Implicit,
    /// AUTH TLS before anything else (RFC 4217).
    Explicit,
    /// In clear, because the user said so.
    Clear,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A line without its end.
    Say(Vec<u8>),
    /// The handshake; `on_secure` afterwards.
    Secure,
    /// Files can be asked for.
    Ready,
    /// From the next byte on the session of docs/protocol.md has the connection.
    Upgraded(Agreed),
    /// The server does not let us; the words are its own.
    Refused(Refused),
}

/// Who was refused what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It takes nobody, or no more of us.
    Crowd,
    /// It speaks no TLS.
    Tls,
    /// Name or password.
    Login,
    /// Something that every session needs.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Greeting,
    Auth,
    Securing,
    User,
    Pass,
    Pbsz,
    Prot,
    Feat,
    Upgrade,
    Utf8,
    Hash,
    Type,
    Ready,
}

/// A session's beginning.
#[derive(Debug)]
pub struct Login {
    at: At,
    cover: Cover,
    user: Vec<u8>,
    password: Vec<u8>,
    /// LHDATA is asked for, if the server has it.
    asks: Option<Spoken>,
    /// The server is a Longhaul: all lines of the login go at once.
    is_ahead: bool,
    /// The server was a Longhaul before: AUTH TLS went before its greeting came.
    is_auth_said: bool,
    /// What the server said that it can do.
    pub features: Features,
}

const AUTH: &[u8] = b"AUTH TLS";

fn line(word: &[u8], operand: &[u8]) -> Step {
    Step::Say([word, operand].concat())
}

impl Login {
    /// As whom, and how covered. Names and passwords have no end of line in them.
    #[must_use]
    pub fn new(cover: Cover, user: &[u8], password: &[u8]) -> Login {
        let (user, password) = (user.to_vec(), password.to_vec());
        let features = Features::default();
        Login { at: At::Greeting, cover, user, password, asks: None, is_ahead: false, is_auth_said: false, features }
    }

    /// Goes on with the session of docs/protocol.md where the server has it, and TLS covers the connection.
    #[must_use]
    pub fn asking(mut self, asked: Spoken) -> Login {
        self.asks = Some(asked).filter(|_| self.cover != Cover::Clear);
        self
    }

    /// What is said to a server that was a Longhaul before, and does not mind, before its greeting comes: a round trip less. Others may take whoever speaks
    /// first for a robot.
    pub fn opening(&mut self) -> Option<&'static [u8]> {
        self.is_auth_said = self.cover == Cover::Explicit && self.asks.is_some();
        self.is_auth_said.then_some(AUTH)
    }

    /// Did the server greet as a Longhaul, which is asked for LHDATA? That needs TLS 1.3.
    #[must_use]
    pub const fn greeted_as_longhaul(&self) -> bool {
        self.is_ahead
    }

    /// TLS covers the connection from here on.
    pub fn on_secure(&mut self) -> Step {
        if self.at == At::Securing {
            return self.say_user();
        }
        // Implicit: before the greeting.
        Step::Say(Vec::new())
    }

    fn say_user(&mut self) -> Step {
        self.at = At::User;
        let user = line(b"USER ", &self.user);
        match (&self.asks, user) {
            // One flight. The command stands last: what is behind it would be no line of FTP.
            (Some(asked), Step::Say(user)) if self.is_ahead => {
                let (ahead, asked) = (&b"\r\nPBSZ 0\r\nPROT P\r\nFEAT\r\n"[..], asked.line());
                Step::Say([&user[..], b"\r\nPASS ", &self.password, ahead, asked.as_bytes()].concat())
            }
            (_, user) => user,
        }
    }

    fn is_longhaul(&self, greeting: &Reply) -> bool {
        self.asks.is_some() && greeting.text.starts_with(GREETING.as_bytes())
    }

    fn after_login(&mut self) -> Step {
        if self.cover == Cover::Clear {
            self.at = At::Feat;
            return line(b"FEAT", b"");
        }
        self.at = At::Pbsz;
        line(b"PBSZ 0", b"")
    }

    /// After FEAT, and after each wish that follows from it, whatever came of it.
    fn next_wish(&mut self) -> Step {
        if self.at == At::Feat && self.features.utf8 {
            self.at = At::Utf8;
            return line(b"OPTS UTF8 ON", b"");
        }
        if self.at != At::Hash && (self.features.hash_blake3 || self.features.hash_sha256) {
            self.at = At::Hash;
            let word: &[u8] = if self.features.hash_blake3 { b"OPTS HASH BLAKE3" } else { b"OPTS HASH SHA-256" };
            return line(word, b"");
        }
        self.at = At::Type;
        line(b"TYPE I", b"")
    }

    /// What the server has instead of files, if it is wanted.
    fn next_after_features(&mut self) -> Step {
        match &self.asks {
            Some(asked) if self.is_ahead || self.features.lhdata == asked.version => {
                self.at = At::Upgrade;
                Step::Say(asked.line().into_bytes())
            }
            _ => self.next_wish(),
        }
    }

    /// A reply came.
    pub fn on_reply(&mut self, reply: &Reply) -> Step {
        let step = self.next(reply);
        let was_said = matches!(self.at, At::Pass | At::Pbsz | At::Prot | At::Feat | At::Upgrade);
        if self.is_ahead && was_said && matches!(step, Step::Say(_)) { Step::Say(Vec::new()) } else { step }
    }

    fn next(&mut self, reply: &Reply) -> Step {
        if reply.is_preliminary() {
            // 120: ready in some minutes; the greeting comes.
            return Step::Say(Vec::new());
        }
        if reply.is_crowd() {
            return Step::Refused(Refused::Crowd);
        }
        let is_good = reply.is_done();
        match self.at {
            At::Greeting if !is_good => Step::Refused(Refused::Other),
            At::Greeting if self.cover == Cover::Explicit => {
                self.is_ahead = self.is_longhaul(reply);
                self.at = At::Auth;
                line(if self.is_auth_said { b"" } else { AUTH }, b"")
            }
            At::Greeting => {
                self.is_ahead = self.is_longhaul(reply);
                self.say_user()
            }
            At::Auth if is_good => {
                self.at = At::Securing;
                Step::Secure
            }
            At::Auth => Step::Refused(Refused::Tls),
            At::User if reply.code == 331 => {
                self.at = At::Pass;
                line(b"PASS ", &self.password)
            }
            // Who wants no password would answer PASS with another line's reply.
            At::User if is_good && self.is_ahead => Step::Refused(Refused::Other),
            At::User | At::Pass if is_good => self.after_login(),
            At::User | At::Pass => Step::Refused(Refused::Login),
            At::Pbsz => {
                self.at = At::Prot;
                line(b"PROT P", b"")
            }
            At::Prot if is_good => {
                self.at = At::Feat;
                line(b"FEAT", b"")
            }
            At::Prot => Step::Refused(Refused::Tls),
            At::Feat => {
                self.features = Features::of(reply);
                self.next_after_features()
            }
            At::Upgrade => match (Agreed::parse(&reply.text), &self.asks) {
                (Some(agreed), Some(asked)) if reply.code == 250 && agreed.version == asked.version => {
                    self.at = At::Ready;
                    Step::Upgraded(agreed)
                }
                // It would be the other session's by now.
                _ if is_good => Step::Refused(Refused::Other),
                _ => {
                    self.at = At::Feat;
                    self.next_wish()
                }
            },
            At::Hash if !is_good => {
                (self.features.hash_blake3, self.features.hash_sha256) = (false, false);
                self.at = At::Type;
                line(b"TYPE I", b"")
            }
            At::Utf8 | At::Hash => self.next_wish(),
            At::Type if is_good => {
                self.at = At::Ready;
                Step::Ready
            }
            At::Type | At::Securing | At::Ready => Step::Refused(Refused::Other),
        }
    }
}

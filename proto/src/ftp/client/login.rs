//! The beginning of a session, up to the point where files can be asked for.
//!
//! For: each control connection of a client.
//! In and out: replies in; what to say or to do next.
//! Invariants: no name and no password is said in clear unless that was allowed; each step waits for its reply.
//! Absent on purpose: the handshake of TLS, where passwords come from.

use alloc::vec::Vec;

use super::features::Features;
use super::reply::Reply;

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
    /// What the server said that it can do.
    pub features: Features,
}

fn line(word: &[u8], operand: &[u8]) -> Step {
    Step::Say([word, operand].concat())
}

impl Login {
    /// As whom, and how covered. Names and passwords have no end of line in them.
    #[must_use]
    pub fn new(cover: Cover, user: &[u8], password: &[u8]) -> Login {
        let (user, password) = (user.to_vec(), password.to_vec());
        Login { at: At::Greeting, cover, user, password, features: Features::default() }
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
        line(b"USER ", &self.user)
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

    /// A reply came.
    pub fn on_reply(&mut self, reply: &Reply) -> Step {
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
                self.at = At::Auth;
                line(b"AUTH TLS", b"")
            }
            At::Greeting => self.say_user(),
            At::Auth if is_good => {
                self.at = At::Securing;
                Step::Secure
            }
            At::Auth => Step::Refused(Refused::Tls),
            At::User if reply.code == 331 => {
                self.at = At::Pass;
                line(b"PASS ", &self.password)
            }
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
                self.next_wish()
            }
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

//! TLS and who it is.
//!
//! For: USER, PASS, AUTH, PBSZ, PROT.
//! In and out: commands; who has a name and a password.
//! Invariants: in clear no password is asked for but of who may speak so; an unknown name and a wrong password hear the same; three wrong ones are the end;
//! what was said in clear holds no more when TLS is on.
//! Absent on purpose: passwords' hashes, certificates.

use alloc::format;
use alloc::vec::Vec;

use super::{Action, Doing, LogIn, Rights, Secured, Session, TRIES_MAX};
use crate::ftp::command::{Part, Verb};
use crate::ftp::reply::Reply;

const CLEAR_REFUSED: &str = "AUTH TLS first: FTP in clear is refused here (--clear NET lets a network in).";

/// Names that need no password (RFC 1635).
#[must_use]
pub(super) fn is_anonymous(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"anonymous") || name.eq_ignore_ascii_case(b"ftp")
}

impl Session {
    pub(super) fn user(&mut self, name: Vec<u8>) -> Result<(), Reply> {
        self.rights = None;
        self.name = None;
        self.forget_way();
        if self.is_secure || self.terms.may_clear {
            self.ask_password(name);
        } else if is_anonymous(&name) {
            return Err(Reply::new(530, CLEAR_REFUSED));
        } else {
            self.act(Action::AskClear(name.clone()));
            self.doing = Doing::AskingClear(name);
        }
        Ok(())
    }

    fn ask_password(&mut self, name: Vec<u8>) {
        let is_free = self.terms.anonymous && is_anonymous(&name);
        self.name = Some(name);
        self.say(&Reply::new(331, if is_free { "Any password lets you read." } else { "The password?" }));
    }

    /// May the user that `AskClear` named speak in clear?
    pub fn on_clear(&mut self, may: bool) {
        match core::mem::replace(&mut self.doing, Doing::Idle) {
            Doing::AskingClear(name) if may => self.ask_password(name),
            Doing::AskingClear(_) => self.say(&Reply::new(530, CLEAR_REFUSED)),
            other => self.doing = other,
        }
    }

    pub(super) fn pass(&mut self, password: Vec<u8>) -> Result<(), Reply> {
        let name = self.name.take().ok_or_else(|| Reply::new(503, "USER first."))?;
        if self.terms.anonymous && is_anonymous(&name) {
            self.act(Action::LogInAnonymous);
            self.let_in(Rights { read: true, write: false }, "You may read.");
        } else {
            self.act(Action::LogIn { name, password });
            self.doing = Doing::LoggingIn;
        }
        Ok(())
    }

    fn let_in(&mut self, rights: Rights, text: &str) {
        self.rights = Some(rights);
        // The tree may be another's now.
        (self.cwd, self.rename_from, self.part, self.announced) = (Vec::new(), None, Part::default(), None);
        self.end(&Reply::new(230, text));
    }

    /// What came of `LogIn`.
    pub fn on_login(&mut self, now_ns: u64, login: LogIn) {
        self.now_ns = now_ns;
        if self.doing != Doing::LoggingIn {
            return;
        }
        match login {
            LogIn::In(rights) => self.let_in(rights, "You are in."),
            LogIn::Wrong { pause_ns } => {
                self.tries += 1;
                self.doing = Doing::Pausing(now_ns.saturating_add(pause_ns));
                self.on_time(now_ns);
            }
            LogIn::Shut { seconds } => self.close(&Reply::new(
                421,
                format!("Too many wrong passwords from your network: try again in {seconds} s."),
            )),
        }
    }

    /// The pause after a wrong password is over.
    pub(super) fn refuse_login(&mut self) {
        if self.tries >= TRIES_MAX {
            self.close(&Reply::new(421, "Wrong name or password, three times."));
        } else {
            self.end(&Reply::new(530, "Wrong name or password."));
        }
    }

    /// AUTH, PBSZ, PROT P, CCC.
    pub(super) fn protect(&mut self, verb: Verb) -> Result<(), Reply> {
        let (code, text) = match (verb, self.is_secure) {
            (Verb::Auth, true) => (503, "TLS is on."),
            (Verb::Auth, false) => {
                self.say(&Reply::new(234, "TLS now."));
                self.forget_way();
                self.act(Action::Secure);
                // What stands behind it came in clear (RFC 7457 section 2.2).
                self.lines.clear();
                self.heard_ns = self.now_ns;
                self.doing = Doing::Securing;
                return Ok(());
            }
            (Verb::ClearControl, _) => (533, "The control connection stays covered."),
            (_, false) => (503, "AUTH TLS first."),
            (Verb::Protect, true) => {
                self.is_private = true;
                (200, "Data goes by TLS.")
            }
            (_, true) => (200, "PBSZ=0"),
        };
        Err(Reply::new(code, text))
    }

    /// What came of `Secure`: TLS is on, or the connection is over.
    pub fn on_secured(&mut self, now_ns: u64, secured: Secured) {
        self.now_ns = now_ns;
        if self.doing != Doing::Securing {
            return;
        }
        if secured == Secured::No {
            return self.on_closed();
        }
        self.lines.clear();
        (self.is_secure, self.is_bound) = (true, secured == Secured::Bound);
        (self.name, self.rights, self.rename_from, self.announced) = (None, None, None, None);
        self.part = Part::default();
        self.is_blocks = false;
        self.doing = Doing::Idle;
        if self.terms.implicit {
            self.greet();
        }
    }
}

//! The session of docs/protocol.md inside the same TLS connection.
//!
//! For: LHDATA.
//! In and out: the command → its reply, and the connection given away; the connection back.
//! Invariants: only where TLS names its own handshake, after login, in a version that both speak; nothing that was said behind the command is taken for the other
//! session's; the login stays what it was.
//! Absent on purpose: that session; what a login may do in it (whoever serves it asks `rights`).

use super::{Action, Doing, Session};
use crate::ftp::lhdata::Spoken;
use crate::ftp::reply::Reply;

impl Session {
    pub(super) fn upgrade(&mut self, asked: &Spoken) -> Result<(), Reply> {
        let Some(offered) = &self.terms.lhdata else { return Err(Reply::new(502, "Not done here.")) };
        if !self.is_secure {
            return Err(Reply::new(534, "LHDATA wants TLS: AUTH TLS, then log in."));
        }
        if self.rights.is_none() {
            return Err(Reply::new(530, "Log in first: USER, PASS."));
        }
        if !self.is_bound {
            return Err(Reply::new(534, "LHDATA wants TLS 1.3, whose exporter names its handshake."));
        }
        let agreed = offered.agree(asked).map_err(|why| Reply::new(504, why))?;
        if self.lines.has_line() || self.lines.held_bytes() > 0 {
            return Err(Reply::new(503, "Wait for the reply to LHDATA before you go on."));
        }
        self.forget_way();
        self.say(&Reply::new(250, agreed.text()));
        self.act(Action::Upgrade);
        self.doing = Doing::Upgraded;
        Ok(())
    }

    /// What came of `Upgrade`: the session inside ended in good order, and the connection is FTP again; or it is over.
    pub fn on_returned(&mut self, now_ns: u64, is_back: bool) {
        self.now_ns = now_ns;
        if self.doing != Doing::Upgraded {
            return;
        }
        if !is_back {
            return self.on_closed();
        }
        self.heard_ns = now_ns;
        self.doing = Doing::Idle;
    }
}

//! How many commands go ahead of their replies.
//!
//! For: a client with many small files, each of which costs a few commands.
//! In and out: what was sent, what came back; may more be sent?
//! Invariants: replies are those of commands in the order of the commands; at most `AHEAD_MAX` files are asked for ahead; from the first reply on that
//! does not fit it is one by one, for the rest of the session.
//! Absent on purpose: which files.

use alloc::collections::VecDeque;

use super::reply::Reply;

/// Files that are asked for ahead of the one that comes: servers take 64 commands ahead at least (vsftpd has a buffer of 4 KiB of them).
pub const AHEAD_MAX: usize = 8;
/// Bytes of commands ahead of their replies, at most: what fits into the buffers of small servers.
pub const AHEAD_BYTES_MAX: usize = 2 << 10;

/// What a command waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Where a data connection goes: 227 or 229.
    Passive,
    /// 350.
    Rest,
    /// 1xx, then the end of the transfer.
    Transfer,
    /// Any one reply.
    Any,
}

/// What a reply is for the command that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// A preliminary one: the last is to come.
    Began,
    /// The last one, as it should be.
    Done,
    /// The last one: the server refused this command, as it may.
    Refused,
    /// Of the command behind a transfer that has begun and not ended, which asked for a digest: the end of the transfer is still to come.
    Early,
    /// No command of ours has such a reply.
    Misfit,
}

/// Tells a file's length, time or digest, and never the end of a transfer (RFC 959 section 5.4).
const STATUS_OF_FILE: u16 = 213;

/// Commands of a session that wait for their replies.
#[derive(Debug, Default)]
pub struct Pipeline {
    waiting: VecDeque<(Expected, usize)>,
    bytes: usize,
    one_by_one: bool,
    began: bool,
}

impl Pipeline {
    /// One command after the other, from here on.
    pub fn one_by_one(&mut self) {
        self.one_by_one = true;
    }

    /// Does each command wait for the reply to the one before?
    #[must_use]
    pub fn is_one_by_one(&self) -> bool {
        self.one_by_one
    }

    /// May commands for one more file go, of so many bytes, with so many files asked for already?
    #[must_use]
    pub fn may_send(&self, files: usize, bytes: usize) -> bool {
        files == 0 || (!self.one_by_one && files <= AHEAD_MAX && self.bytes + bytes <= AHEAD_BYTES_MAX)
    }

    /// A command went.
    pub fn on_sent(&mut self, expected: Expected, bytes: usize) {
        self.waiting.push_back((expected, bytes));
        self.bytes += bytes;
    }

    /// Commands that wait for a reply.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// What the next reply is of.
    #[must_use]
    pub fn expected(&self) -> Option<Expected> {
        self.waiting.front().map(|it| it.0)
    }

    /// A reply came.
    pub fn on_reply(&mut self, reply: &Reply) -> Fit {
        let Some(&(expected, bytes)) = self.waiting.front() else {
            self.one_by_one = true;
            return Fit::Misfit;
        };
        if reply.is_preliminary() {
            let fits = expected == Expected::Transfer && !self.began;
            self.began |= fits;
            self.one_by_one |= !fits;
            return if fits { Fit::Began } else { Fit::Misfit };
        }
        // ProFTPD answers what asks for a digest while it still sends the file.
        if expected == Expected::Transfer && self.began && reply.code == STATUS_OF_FILE {
            if let Some(&(Expected::Any, bytes)) = self.waiting.get(1) {
                self.waiting.remove(1);
                self.bytes -= bytes;
                return Fit::Early;
            }
            self.one_by_one = true;
            return Fit::Misfit;
        }
        self.waiting.pop_front();
        self.bytes -= bytes;
        self.began = false;
        let fit = match expected {
            Expected::Passive if matches!(reply.code, 227 | 229) => Fit::Done,
            Expected::Rest if reply.code == 350 => Fit::Done,
            Expected::Transfer | Expected::Any if reply.is_done() => Fit::Done,
            _ if reply.code >= 400 => Fit::Refused,
            _ => Fit::Misfit,
        };
        // A server that has lost its place says so by what no command of ours can be answered with.
        let is_lost = matches!(reply.code, 500 | 502 | 503 | 425) || fit == Fit::Misfit;
        self.one_by_one |= is_lost;
        fit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16) -> Reply {
        Reply { code, text: alloc::vec::Vec::new() }
    }

    #[test]
    fn commands_go_ahead_until_a_reply_does_not_fit() {
        let mut it = Pipeline::default();
        for files in 0..=AHEAD_MAX {
            assert!(it.may_send(files, 20));
            it.on_sent(Expected::Passive, 6);
            it.on_sent(Expected::Transfer, 14);
        }
        assert!(!it.may_send(AHEAD_MAX + 1, 20));
        assert_eq!(it.on_reply(&reply(229)), Fit::Done);
        assert_eq!(it.on_reply(&reply(150)), Fit::Began);
        assert_eq!(it.on_reply(&reply(226)), Fit::Done);
        assert_eq!(it.on_reply(&reply(229)), Fit::Done);
        assert_eq!(it.on_reply(&reply(550)), Fit::Refused, "a file that is not there");
        assert!(it.may_send(AHEAD_MAX, 20));
        assert_eq!(it.on_reply(&reply(226)), Fit::Misfit, "an end where an address should be");
        assert!(!it.may_send(1, 20) && it.may_send(0, 20));
    }

    #[test]
    fn a_digest_that_comes_before_the_end_of_its_transfer_is_no_end() {
        let mut it = Pipeline::default();
        for expected in [Expected::Passive, Expected::Transfer, Expected::Any, Expected::Passive] {
            it.on_sent(expected, 10);
        }
        let fits = [229, 150, 213, 226, 229].map(|code| it.on_reply(&reply(code)));
        assert_eq!(fits, [Fit::Done, Fit::Began, Fit::Early, Fit::Done, Fit::Done]);
        assert!(it.waiting() == 0 && !it.is_one_by_one() && it.bytes == 0);
        // Nobody asked for one.
        it.on_sent(Expected::Transfer, 10);
        it.on_sent(Expected::Passive, 10);
        assert_eq!([150, 213].map(|code| it.on_reply(&reply(code))), [Fit::Began, Fit::Misfit]);
        assert!(it.is_one_by_one());
    }

    #[test]
    fn what_is_ahead_is_bounded_in_bytes() {
        let mut it = Pipeline::default();
        it.on_sent(Expected::Transfer, AHEAD_BYTES_MAX);
        assert!(!it.may_send(1, 1) && it.may_send(0, 5000));
        assert_eq!(it.on_reply(&reply(150)), Fit::Began);
        assert_eq!(it.on_reply(&reply(150)), Fit::Misfit, "it began already");
    }
}

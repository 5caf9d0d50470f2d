//! Files and listings over data connections.
//!
//! For: RETR, STOR, APPE, STOU, LIST, NLST, MLSD.
//! In and out: commands; what stands under the name, whether a data connection came up, and how it ended.
//! Invariants: nothing is opened for a transfer that an ABOR behind it ends; the name is looked at before the data connection, so a wrong name costs none; where
//! TLS covers the control connection, none is opened without PROT P; each way serves one transfer.
//! Absent on purpose: bytes.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::fault::{End, Fault};
use super::{Action, Doing, Form, Session, Transfer, TransferKind, Way};
use crate::ftp::command::{Part, Verb};
use crate::ftp::reply::Reply;

/// What stands under the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepared {
    /// A file of so many bytes, to be sent.
    File {
        /// Its bytes.
        bytes: u64,
    },
    /// So many bytes of the upload, behind which more is put.
    Upload {
        /// Its bytes.
        bytes: u64,
    },
    /// Something to be listed.
    Listing,
}

/// The data connection that is to come up: `on_connected`, or `on_over`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Who connects.
    pub way: Way,
    /// TLS covers it.
    pub private: bool,
    /// Which bytes of the file are sent.
    pub range: Range<u64>,
}

/// What is moved, for the words of its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moving {
    Sending { bytes: u64 },
    Receiving { bytes: u64 },
    Listing,
}

/// How it ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// All was sent.
    Sent,
    /// The file has its name.
    Stored {
        /// All bytes of it.
        bytes: u64,
        /// Their digest, with its name.
        digest: String,
        /// The name that was chosen for STOU.
        name: Option<Vec<u8>>,
    },
}

impl Session {
    pub(super) fn transfer(&mut self, verb: Verb, name: &[u8], part: Part) -> Result<(), Reply> {
        let kind = match verb {
            Verb::Retrieve => TransferKind::Retrieve,
            Verb::Store => TransferKind::Store,
            Verb::Append => TransferKind::Append,
            Verb::StoreUnique => TransferKind::StoreUnique,
            Verb::Names => TransferKind::List(Form::Names),
            Verb::ListFacts => TransferKind::List(Form::Facts(self.wanted)),
            _ => TransferKind::List(Form::Long),
        };
        let is_upload = matches!(kind, TransferKind::Store | TransferKind::Append | TransferKind::StoreUnique);
        self.need(!is_upload, is_upload)?;
        let path = self.path(name)?;
        if path.is_empty() && matches!(kind, TransferKind::Store | TransferKind::Append | TransferKind::Retrieve) {
            return Err(Reply::new(553, "A file has a name."));
        }
        if is_upload && part.to.is_some() {
            return Err(Reply::new(504, "RANG is for RETR; an upload goes on from REST."));
        }
        if self.is_aborted() {
            self.has_stopped = true;
            self.forget_way();
            return Err(Reply::new(426, "Aborted before it began."));
        }
        let announced = if is_upload { self.announced.take() } else { None };
        let transfer = Transfer { kind, path, part, announced };
        self.act(Action::Prepare(transfer.clone()));
        self.doing = Doing::Preparing(transfer);
        Ok(())
    }

    /// What came of `Prepare`. `None`: the transfer is over, and what was opened is to be closed.
    pub fn on_prepared(&mut self, now_ns: u64, prepared: Result<Prepared, Fault>) -> Option<Connect> {
        self.now_ns = now_ns;
        let Doing::Preparing(transfer) = core::mem::replace(&mut self.doing, Doing::Idle) else { return None };
        let refused = match prepared {
            Ok(prepared) => match self.connect(&transfer, prepared) {
                Ok(connect) => return Some(connect),
                Err(refused) => refused,
            },
            Err(fault) => fault.reply(),
        };
        // The port was for this transfer.
        self.forget_way();
        self.end(&refused);
        None
    }

    fn connect(&mut self, transfer: &Transfer, prepared: Prepared) -> Result<Connect, Reply> {
        let mut range = 0..0;
        let moving = match prepared {
            Prepared::File { bytes } if transfer.part.from > bytes => {
                return Err(Reply::new(554, format!("The file has {bytes} bytes, fewer than REST said.")));
            }
            Prepared::File { bytes } => {
                range = transfer.part.from..transfer.part.to.map_or(bytes, |to| to.min(bytes));
                Moving::Sending { bytes: range.end - range.start }
            }
            Prepared::Upload { bytes } => Moving::Receiving { bytes },
            Prepared::Listing => Moving::Listing,
        };
        if self.is_secure && !self.is_private {
            return Err(Reply::new(521, "Data goes by TLS here: send PBSZ 0 and PROT P first."));
        }
        if self.is_aborted() {
            self.has_stopped = true;
            return Err(End::Aborted.reply());
        }
        let way = match core::mem::take(&mut self.way) {
            Way::None => return Err(Reply::new(425, "Send EPSV, PASV, EPRT or PORT first.")),
            way => way,
        };
        self.doing = Doing::Connecting(moving);
        Ok(Connect { way, private: self.is_secure, range })
    }

    /// The data connection is there; TLS on it comes next, if it is private, and then bytes.
    pub fn on_connected(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let Doing::Connecting(moving) = self.doing else { return };
        self.doing = Doing::Moving(moving);
        let opening = match moving {
            Moving::Sending { bytes } => format!("Sending {bytes} bytes as they are."),
            Moving::Receiving { bytes } => format!("Send it; {bytes} bytes are here."),
            Moving::Listing => String::from("Here it comes."),
        };
        self.say(&Reply::new(150, opening));
    }

    /// How the transfer ended; the data connection is closed.
    pub fn on_over(&mut self, now_ns: u64, over: Result<Over, End>) {
        self.now_ns = now_ns;
        let (Doing::Connecting(moving) | Doing::Moving(moving)) = self.doing else { return };
        let reply = match (over, moving) {
            (Ok(Over::Stored { bytes, digest, name }), _) => {
                let text = format!("{bytes} bytes stored, {digest}.");
                match name {
                    Some(name) => Reply::of_bytes(226, [b"FILE: ", &name[..], b": ", text.as_bytes()].concat()),
                    None => Reply::new(226, text),
                }
            }
            (Ok(Over::Sent), Moving::Sending { bytes }) => Reply::new(226, format!("{bytes} bytes sent.")),
            (Ok(Over::Sent), _) => Reply::new(226, "That was all."),
            (Err(end), _) => {
                self.has_stopped |= end == End::Aborted;
                end.reply()
            }
        };
        self.end(&reply);
    }
}

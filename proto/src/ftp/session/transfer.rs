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
use crate::ftp::blocks::without;
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
    /// It goes by MODE E.
    pub blocks: Option<Blocks>,
}

/// How MODE E moves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocks {
    /// Connections to send over, at most.
    pub connections: u16,
    /// What of `range` is sent.
    pub ranges: Vec<Range<u64>>,
    /// The byte of the file that has the offset 0 on the wire.
    pub zero: u64,
}

/// From one word about an upload's progress to the next.
pub const TELL_TIME_NS: u64 = 5 * super::SECOND_NS;

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

const SENDER_DIALS: &str =
    "In MODE E the sender connects: PORT, EPRT or SPOR before RETR and listings, PASV, EPSV or SPAS before STOR.";

impl Session {
    /// `into`: of ESTO. `have`: what the other end, or this one of an upload, has by REST of MODE E.
    pub(super) fn transfer(
        &mut self,
        verb: Verb,
        name: &[u8],
        (mut part, into): (Part, Option<u64>),
        have: Vec<(u64, u64)>,
    ) -> Result<(), Reply> {
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
        if is_upload && !have.is_empty() {
            // What a cut upload left is its beginning (111 says how much).
            let [(0, from)] = have[..] else {
                return Err(Reply::new(501, "An upload goes on behind what stands: REST 0-behind."));
            };
            part.from = from;
        }
        if into.is_some() && (part.from > 0 || !self.is_blocks) {
            return Err(Reply::new(504, "ESTO is for MODE E, and does not go on from REST."));
        }
        if self.is_blocks && verb == Verb::Append {
            return Err(Reply::new(504, "Blocks of MODE E say where they belong: ESTO A, not APPE."));
        }
        if self.is_aborted() {
            self.has_stopped = true;
            self.forget_way();
            return Err(Reply::new(426, "Aborted before it began."));
        }
        let announced = if is_upload { self.announced.take() } else { None };
        if !is_upload {
            self.have = have;
        }
        let transfer = Transfer { kind, path, part, announced, into, is_blocks: self.is_blocks };
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
        // The port was for this transfer; connections of MODE E are for those to come, too.
        self.have.clear();
        if !transfer.is_blocks {
            self.forget_way();
        }
        self.end(&refused);
        None
    }

    fn connect(&mut self, transfer: &Transfer, prepared: Prepared) -> Result<Connect, Reply> {
        let (mut range, mut ranges) = (0..0, Vec::new());
        let moving = match prepared {
            Prepared::File { bytes } if transfer.part.from > bytes => {
                return Err(Reply::new(554, format!("The file has {bytes} bytes, fewer than REST said.")));
            }
            Prepared::File { bytes } => {
                range = transfer.part.from..transfer.part.to.map_or(bytes, |to| to.min(bytes));
                if transfer.is_blocks {
                    ranges = self.ranges(&range);
                } else {
                    ranges.push(range.clone());
                }
                Moving::Sending { bytes: ranges.iter().map(|it| it.end - it.start).sum() }
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
        let is_upload = matches!(moving, Moving::Receiving { .. });
        let way = match self.way {
            Way::None => return Err(Reply::new(425, "Send EPSV, PASV, EPRT or PORT first.")),
            Way::Passive | Way::Kept(false) if transfer.is_blocks && is_upload != (self.way == Way::Passive) => {
                return Err(Reply::new(425, SENDER_DIALS));
            }
            Way::Active(_) | Way::Kept(true) if transfer.is_blocks && is_upload != (self.way == Way::Kept(true)) => {
                return Err(Reply::new(425, SENDER_DIALS));
            }
            way => way,
        };
        self.way = Way::None;
        self.is_reused = matches!(way, Way::Kept(_));
        self.told_ns = self.now_ns;
        self.doing = Doing::Connecting(moving);
        let zero = transfer.into.unwrap_or(range.start);
        let blocks = transfer.is_blocks.then_some(Blocks { connections: self.parallel, ranges, zero });
        Ok(Connect { way, private: self.is_secure, range, blocks })
    }

    /// What of a range the other end does not have, whose offsets count from its start.
    fn ranges(&mut self, range: &Range<u64>) -> Vec<Range<u64>> {
        let have = core::mem::take(&mut self.have).into_iter();
        let have: Vec<_> =
            have.map(|(from, to)| range.start.saturating_add(from)..range.start.saturating_add(to)).collect();
        without(range.clone(), &have)
    }

    /// The connections of the transfer, which is to end well, are there for the next one in its direction.
    pub fn on_kept(&mut self) {
        if let Doing::Moving(moving) = self.doing {
            self.way = Way::Kept(matches!(moving, Moving::Receiving { .. }));
        }
    }

    /// So many bytes of an upload by MODE E came, of which those before `standing` without a gap; `is_cut`: and no more will. The client hears of it now and
    /// then, and goes on behind them (GFD.20 section 7: 111, 112).
    pub fn on_progress(&mut self, now_ns: u64, unix_s: i64, (came, standing): (u64, u64), is_cut: bool) {
        self.now_ns = now_ns;
        if self.doing_upload().is_none() || now_ns.saturating_sub(self.told_ns) < TELL_TIME_NS && !is_cut {
            return;
        }
        self.told_ns = now_ns;
        if standing > 0 {
            self.say(&Reply::new(111, format!("Range Marker 0-{standing}")));
        }
        if !is_cut {
            let lines = [
                format!("Timestamp: {unix_s}.0"),
                String::from("Stripe Index: 0"),
                format!("Stripe Bytes Transferred: {came}"),
                String::from("Total Stripe Count: 1"),
            ];
            self.say(&Reply::of_lines(112, "Perf Marker", lines.into_iter().map(String::into_bytes), "End"));
        }
    }

    const fn doing_upload(&self) -> Option<()> {
        if let Doing::Moving(Moving::Receiving { .. }) = self.doing { Some(()) } else { None }
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
        self.say(&Reply::new(if self.is_reused { 125 } else { 150 }, opening));
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

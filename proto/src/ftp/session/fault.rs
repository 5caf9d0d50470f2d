//! What can go wrong below a session, and what its client is told.
//!
//! For: `session`, which is told by whoever works with files and data connections.
//! In and out: a fault → a reply.
//! Invariants: each has a code, and says what to do where the client can do something.
//! Absent on purpose: error numbers of a kernel; who works with files knows them.

use alloc::format;
use alloc::string::String;

use crate::ftp::reply::Reply;

/// Why something with a file was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing has that name.
    NotFound,
    /// The server's user may not.
    Denied,
    /// The file system may not be written.
    ReadOnly,
    /// No room.
    Full,
    /// No file may be so long.
    TooLarge,
    /// A file was meant.
    IsFolder,
    /// A folder was meant.
    NotFolder,
    /// A regular file was meant.
    NotRegular,
    /// Something has that name already.
    Exists,
    /// A folder that has something in it.
    NotEmpty,
    /// No file of this file system can have that name.
    BadName,
    /// A symbolic link is in the way.
    Link,
    /// Another upload or job writes the file.
    Busy,
    /// Fewer bytes stand there than REST said.
    Short,
    /// Other transfers have all memory.
    NoMemory,
    /// ABOR came.
    Aborted,
    /// Anything else, in the system's words.
    Other(String),
}

impl Fault {
    /// What the client hears.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let (code, text) = match self {
            Fault::NotFound => (550, "There is no such file or folder."),
            Fault::Denied => (550, "The server's user may not do that."),
            Fault::ReadOnly => (550, "The server's file system is read-only."),
            Fault::Full => (452, "The server's disk is full: make room, then send it again."),
            Fault::TooLarge => (552, "The server's file system takes no file of that length."),
            Fault::IsFolder => (550, "That is a folder."),
            Fault::NotFolder => (550, "That is no folder, or a part of that path is none."),
            Fault::NotRegular => (550, "That is no regular file."),
            Fault::Exists => (550, "There is something of that name already."),
            Fault::NotEmpty => (550, "The folder is not empty."),
            Fault::BadName => (553, "The server's file system takes no name of that length."),
            Fault::Link => (550, "A link is in the way; none is followed here."),
            Fault::Busy => (450, "Another upload or job is writing this file: try again when it is over."),
            Fault::Short => (554, "Fewer bytes stand here than REST said: ask SIZE."),
            Fault::NoMemory => (450, "Too many transfers at once: try again, or give the server more --memory."),
            Fault::Aborted => (426, "Aborted."),
            Fault::Other(why) => return Reply::new(451, format!("The server failed: {why}.")),
        };
        Reply::new(code, text)
    }
}

/// Why a transfer ended before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nobody came to the port, or nothing answered there.
    NobodyCame,
    /// There is no data connection for another reason.
    NoConnection(String),
    /// No TLS came up on it.
    NoTls(String),
    /// It goes on from no TLS session of this control connection.
    NotResumed,
    /// ABOR came.
    Aborted,
    /// The control connection is gone.
    ControlGone,
    /// Nothing moved for too long.
    Silent,
    /// The data connection failed.
    Network(String),
    /// What came is no record of TLS.
    Broken(String),
    /// What came are no blocks of MODE E that can be taken.
    Blocks(&'static str),
    /// It ended without the word that the file is whole.
    Truncated,
    /// The file failed.
    File(Fault),
}

impl End {
    /// What the client hears.
    #[must_use]
    pub fn reply(&self) -> Reply {
        let (code, text) = match self {
            End::NobodyCame => {
                (425, "No data connection from you within 10 s: is the port open in the firewalls between us?")
            }
            End::NoConnection(why) => return Reply::new(425, format!("Cannot open the data connection: {why}.")),
            End::NoTls(why) => return Reply::new(522, format!("No TLS on the data connection: {why}.")),
            End::NotResumed => (
                522,
                "The data connection has to resume the control connection's TLS session: a client that cannot needs --session-reuse off here.",
            ),
            End::Aborted => (426, "The transfer was aborted; what came of an upload is kept for REST."),
            End::ControlGone => (426, "The control connection ended."),
            End::Silent => (426, "Nothing moved for 300 s."),
            End::Network(why) => return Reply::new(426, format!("The data connection failed: {why}.")),
            End::Broken(why) => return Reply::new(426, format!("The data connection is no TLS any more ({why}).")),
            End::Blocks(why) => return Reply::new(426, format!("That is no transfer of MODE E: {why}.")),
            End::Truncated => (
                426,
                "The data connection ended without the word that the file is whole; what came is kept: ask SIZE, go on with REST.",
            ),
            // The name was right when the transfer began (RFC 959 section 5.4: 451 is of a transfer, 550 of a name).
            End::File(fault) => {
                let reply = fault.reply();
                return Reply { code: if reply.code == 550 { 451 } else { reply.code }, ..reply };
            }
        };
        Reply::new(code, text)
    }
}

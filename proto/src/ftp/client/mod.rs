//! The client's side of FTP: what servers say, and what is said to them.
//!
//! For: copies from and to servers of others (`node::ftp::client`).
//! In and out: bytes of a control connection and of listings → replies, features, entries; the next command.
//! Invariants: a server's bytes are hostile: every length is bounded, and a name that could lead out of a folder is refused before anybody uses it.
//! Absent on purpose: sockets, TLS, files, time.
//!
//! The modules stand in the order in which a session meets them.

pub mod reply; // bytes into replies
pub mod login; // up to the point where files can be asked for
pub mod features; // what the server can do
pub mod listing; // lines of MLSD and LIST into entries
pub mod name; // which names may stand in a tree
pub mod pipeline; // how many commands go ahead of their replies

#[cfg(test)]
mod tests; // servers of anything at all

//! FTP, decided without any I/O: the words of RFC 959 and what came after it.
//!
//! For: whoever speaks them, from either side.
//! In and out: bytes of a control connection, facts of files; replies, and what is to be done with files and data connections.
//! Invariants: none of its own; each file has its.
//! Absent on purpose: sockets, TLS, passwords, files.
//!
//! The modules stand in the order in which a command meets them.

pub mod address; // where a data connection goes
pub mod time; // times as digits
pub mod client; // what a client makes of replies and listings

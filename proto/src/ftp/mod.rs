//! FTP, decided without any I/O: the words of RFC 959 and what came after it, and the server's side of a session.
//!
//! For: the FTP door (`node::ftp`), and whoever speaks the same words from the other side.
//! In and out: bytes of a control connection, facts of files; replies, and what is to be done with files and data connections.
//! Invariants: none of its own; each file has its.
//! Absent on purpose: sockets, TLS, passwords, files.
//!
//! The modules stand in the order in which a command meets them.

pub mod line; // bytes into lines, Telnet taken out
pub mod command; // lines into commands
pub mod address; // where a data connection goes
pub mod blocks; // what comes over several of them
pub mod path; // names beneath the root
pub mod time; // times as digits
pub mod facts; // what is said of a file, by MLSD and by LIST
pub mod reply; // what is answered
pub mod lhdata; // two Longhauls go on with their own session
pub mod session; // and who may do what, in which order
pub mod client; // what a client makes of replies and listings

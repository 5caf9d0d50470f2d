//! What Longhaul decides, without doing any of it.
//!
//! For: every decision of a job: what is agreed, what goes next, what has come, what is lost, what is owed.
//! In and out: facts come in through `on_*`, work goes out through `next_*`/returned actions; ids and ranges, never payload bytes.
//! Invariants: no I/O, no clock, no threads, no randomness, no unsafe; the same inputs give the same outputs.
//! Absent on purpose: TLS, AEAD and hashes (engine and node own them), sockets and files (sys).
//!
//! The modules stand in the order in which a job meets them.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod error; // Breach: what a peer can do wrong, one variant per misdeed
pub mod wire; // the bytes of the protocol: control frames, rail greeting, chunk header
pub mod negotiate; // two offers in, one plan out, each choice with its reason
pub mod layout; // how files stand on a set of volumes
pub mod striped; // a file whose chunks stand on many of them
pub mod manifest; // entries, and which names may stand in a tree
pub mod ledger; // state of each chunk of a file
pub mod send; // the sending end's state machine
pub mod recv; // the receiving end's state machine
pub mod session; // what the job driver decides with time: order of frames, silence, reconnect, closing
pub mod packet; // heads and bodies of datagrams
pub mod flow; // the datagram transport: what goes into which packet, what was lost, what has come
pub mod journal; // the ledger of a part file as bytes on disk
pub mod books; // time booked to stages, and the sentence that names the limiter
pub mod receipt; // what both ends sign at the end
pub mod storage; // the ways to move a file's bytes, and the race among them
pub mod checked; // lines of a file that carry a check
pub mod rate; // how fast a datagram rail sends: the table of controllers
pub mod ftp; // another protocol's words, and its server's side of a session

/// The protocol version this build speaks; see `docs/protocol.md`.
pub const VERSION: u16 = 14;
/// The oldest version this build still speaks.
pub const VERSION_MIN: u16 = 14;
/// Entries announced and not yet resolved, at most, per job. Bounds the memory of both ends.
pub const WINDOW: usize = 8192;
/// Bytes of paths, targets and attributes announced and not yet resolved, per job.
pub const WINDOW_NAME_BYTES: usize = 4 << 20;
/// The sender announces no more once the bytes above are out; what was found together may go beyond by this, and no further.
pub const WINDOW_NAME_SLACK: usize = 1 << 20;
/// One AEAD call seals at most so many bytes: fits a 1 MiB L2 beside its source.
pub const PIECE_BYTES: usize = 128 << 10;
/// A control frame is at most this long; longer is a breach.
pub const FRAME_BYTES_MAX: usize = 256 << 10;

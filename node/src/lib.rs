//! An identity that accepts sessions and runs jobs.
//!
//! For: programs that have files moved: the command line, and whoever links this library.
//! In and out: a `JobRequest` says what a job is asked to do; keys and tickets say by whom; sessions, rails and files are opened here.
//! Invariants: no command line and no terminal is known here.
//! Absent on purpose: how people write options and read reports, instruments that measure, settings of the host.
//!
//! The modules stand in the order in which a job meets them.
#![forbid(unsafe_code)]

pub mod request; // what a job is asked to do, as plain data
pub mod address; // where its ends are
pub mod identity; // who this host is, whom it trusts, and tickets
pub mod link; // the TLS session between two identities
pub mod listener; // who comes in
pub mod demultiplexer; // the same for datagrams
pub mod probe; // what a path can do, and which transport it should have
pub mod job; // one end of a job
pub mod report; // what is known of a job, as plain data
pub mod event; // what a job tells while it runs
pub mod client; // opening jobs, following them, and their outcome
pub mod ftp; // files for clients of another protocol
pub mod serve; // accepting sessions, and doing what their clients ask for
pub mod verify; // a receipt against a disk

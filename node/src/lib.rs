//! An identity that accepts sessions and runs jobs.
//!
//! For: programs that have files moved: the command line, and whoever links this library.
//! In and out: a `JobRequest` says what a job is asked to do.
//! Invariants: no command line, no terminal, no global state is known here, and the process is never ended.
//! Absent on purpose: how people write options and read reports.
#![forbid(unsafe_code)]

pub mod request; // what a job is asked to do, as plain data

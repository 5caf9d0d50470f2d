//! The two ends of the data path: where a chunk's bytes come from, and where they go.
//!
//! For: plain bufs filled from files, and plain bufs put into files.
//! In and out: assignments and empty bufs in, filled bufs out; opened chunks in, `Landed` out.
//! Invariants: an end knows neither rails nor seals.
//! Absent on purpose: names on disk (the trees), durability (the committers).

pub(crate) mod pieces; // reads and writes that do not wait, and where short ones go on
pub(crate) mod in_place; // chunks that are read where they are written
mod open_files; // files kept open for the next chunk
pub(crate) mod held; // chunks that wait for their volume
pub(crate) mod feed; // chunks between a source and its rail
pub(crate) mod pack; // many small whole files in one chunk
pub(crate) mod file_source; // chunks of files, packs of small ones → buf
pub(crate) mod file_sink; // buf → parts of files, small files

use crate::ends::file_sink::FileSink;
use crate::ends::file_source::FileSource;
use crate::ends::in_place::InPlace as ReadHere;
use crate::job::{InPlace, Role};
use crate::platform::Platform;

/// The end of a job that a worker serves. One that is no file is one more variant here, and one more file in this folder.
#[derive(Debug)]
pub(crate) enum End<P: Platform> {
    /// Chunks are read here.
    Source(FileSource<P>),
    /// Chunks are written here.
    Sink(FileSink<P>),
}

impl<P: Platform> End<P> {
    /// Of a worker whose bufs are on this memory node, if they are held on one.
    pub(crate) fn new(role: Role<P>, node: Option<u16>, in_place: InPlace<P>) -> Self {
        match (role, in_place) {
            (Role::Send(tree), _) => End::Source(FileSource::new(tree)),
            (Role::Recv(tree), InPlace::Recv(beside)) => {
                End::Sink(FileSink::new(tree, node, Some(Box::new(ReadHere::new(beside)))))
            }
            (Role::Recv(tree), _) => End::Sink(FileSink::new(tree, node, None)),
        }
    }

    /// Does it send?
    pub(crate) fn sends(&self) -> bool {
        matches!(self, End::Source(_))
    }

    /// The source of a job that sends: assignments and sending rails are of such jobs only.
    pub(crate) fn source(&mut self) -> &mut FileSource<P> {
        match self {
            End::Source(source) => source,
            End::Sink(_) => unreachable!("rails that send are of jobs that send"),
        }
    }

    /// The sink of a job that receives.
    pub(crate) fn sink(&mut self) -> &mut FileSink<P> {
        match self {
            End::Sink(sink) => sink,
            End::Source(_) => unreachable!("rails that receive are of jobs that receive"),
        }
    }

    /// Are chunks read here that are written here?
    pub(crate) fn reads_in_place(&self) -> bool {
        matches!(self, End::Sink(sink) if sink.in_place.is_some())
    }

    /// Moves on what the other end is told. Returns whether some of it is late.
    pub(crate) fn flush_told(&mut self) -> bool {
        match self {
            End::Sink(FileSink { in_place: Some(it), .. }) => it.flush(),
            _ => false,
        }
    }

    /// Are opened chunks held here until a volume wants them?
    pub(crate) fn holds(&self) -> bool {
        matches!(self, End::Sink(sink) if sink.holds())
    }
}

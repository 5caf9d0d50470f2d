//! A file as blocks of MODE E over several streams.
//!
//! For: downloads by GridFTP.
//! In and out: connections, an open file and ranges of it; all of it is sent, and each connection has its EOD.
//! Invariants: a byte is sent once; each connection takes the next block when it has room, so a slow one keeps no other waiting; to another host a file's bytes
//! pass from it to the sockets unread, behind 17 bytes of ours; after a failure no connection goes on.
//! Absent on purpose: who dials.

use std::fs::File;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use proto::ftp::blocks::{HEAD_BYTES, Head};
use sys::event::Interest;

use super::bufs::Bufs;
use super::send::Way;
use super::{Cut, Heard, Line, is_not_now, send};
use crate::worker::bound::Bound;

/// Of a block, where there are several connections: measured, docs/design/045-mode-e.md.
pub const BLOCK_BYTES: u64 = 4 << 20;
/// Where there is one: a head costs a call, and nobody else waits for a block.
const BLOCK_BYTES_ALONE: u64 = 64 << 20;
/// A file that is as short goes in one call, with its head and its end.
const AT_ONCE_BYTES: u64 = 64 << 10;

/// What is sent.
#[derive(Debug)]
pub struct Sending<'a> {
    /// The file.
    pub file: &'a File,
    /// Stretches of it, in bytes, in the order in which they are dealt out.
    pub ranges: &'a [Range<u64>],
    /// The byte of the file whose offset is 0.
    pub zero: u64,
    /// Where the file can be handed to no socket, a buf from here is used.
    pub bufs: &'a Bufs,
    /// So long is one waited for.
    pub bufs_time: Duration,
    /// How fast.
    pub bound: &'a Bound,
    /// For so long nothing may happen.
    pub silence: Duration,
}

struct State {
    /// The range, and how far it was dealt out.
    next: (usize, u64),
    failed: Option<Cut>,
}

/// Sends it over connections that are `prepare`d and have no delay (TCP_NODELAY). `beside`: the control connection.
///
/// # Errors
/// Why it ended before.
pub fn file(
    it: &Sending<'_>,
    streams: &[TcpStream],
    beside: BorrowedFd<'_>,
    heard: impl FnMut() -> Heard,
) -> Result<(), Cut> {
    let state = Mutex::new(State { next: (0, it.ranges.first().map_or(0, |range| range.start)), failed: None });
    let all = Streams { it, streams, state: &state };
    let mut line = Line::new(streams[0].as_fd(), beside, heard, it.bound, it.silence);
    if let [range] = it.ranges
        && range.end - range.start <= AT_ONCE_BYTES
    {
        all.at_once(&mut line, range)?;
        return streams[1..].iter().try_for_each(|stream| all.end(stream));
    }
    std::thread::scope(|scope| {
        for (index, stream) in streams.iter().enumerate().skip(1) {
            let run = move || {
                let mut line = Line::new(stream.as_fd(), stream.as_fd(), || Heard::Deaf, it.bound, it.silence);
                line.deaf = true;
                all.run(&mut line, index);
            };
            if let Err(error) = std::thread::Builder::new().name("ftp-block".to_owned()).spawn_scoped(scope, run) {
                all.fail(Cut::Network(error));
            }
        }
        all.run(&mut line, 0);
    });
    state.into_inner().unwrap_or_else(PoisonError::into_inner).failed.map_or(Ok(()), Err)
}

#[derive(Clone, Copy)]
struct Streams<'a> {
    it: &'a Sending<'a>,
    streams: &'a [TcpStream],
    state: &'a Mutex<State>,
}

impl Streams<'_> {
    /// The next block, unless there is none, or one of the connections failed.
    fn next(&self) -> Option<Range<u64>> {
        let most = if self.streams.len() == 1 { BLOCK_BYTES_ALONE } else { BLOCK_BYTES };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, at) = state.next;
        let range = self.it.ranges.get(index).filter(|_| state.failed.is_none())?;
        let end = range.end.min(at.saturating_add(most));
        state.next = if end < range.end {
            (index, end)
        } else {
            (index + 1, self.it.ranges.get(index + 1).map_or(0, |it| it.start))
        };
        Some(at..end)
    }

    /// No connection goes on.
    fn fail(&self, cut: Cut) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // What the others say then comes of it.
        state.failed.get_or_insert(cut);
        for stream in self.streams {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn run<H: FnMut() -> Heard>(&self, line: &mut Line<'_, H>, index: usize) {
        if let Err(cut) = self.blocks(line, index) {
            self.fail(cut);
        }
    }

    fn blocks<H: FnMut() -> Heard>(&self, line: &mut Line<'_, H>, index: usize) -> Result<(), Cut> {
        let way = Way::of(line.socket);
        while let Some(range) = self.next() {
            let head = Head { flags: 0, count: range.end - range.start, offset: range.start - self.it.zero };
            send_head(line, &head.encode())?;
            let (mut taken, mut home) = (None, None);
            let take = || {
                taken = self.it.bufs.take(1, 1, self.it.bufs_time);
                taken.as_mut().and_then(|it| it.bufs.pop()).ok_or(Cut::File(io::ErrorKind::OutOfMemory.into()))
            };
            let sent = send::file(line, (self.it.file, way), range, take, |buf| home = Some(buf));
            if let (Some(taken), Some(buf)) = (&mut taken, home) {
                taken.bufs.push(buf);
            }
            sent?;
        }
        send::all(line, &Head::end(index == 0, self.streams.len() as u64).encode())
    }

    /// A short file, with its head and the end of it, in one call.
    fn at_once<H: FnMut() -> Heard>(&self, line: &mut Line<'_, H>, range: &Range<u64>) -> Result<(), Cut> {
        let count = (range.end - range.start) as usize;
        let mut bytes = Vec::with_capacity(count + 2 * HEAD_BYTES);
        if count > 0 {
            let head = Head { flags: 0, count: count as u64, offset: range.start - self.it.zero };
            bytes.extend_from_slice(&head.encode());
            bytes.resize(HEAD_BYTES + count, 0);
            let read = sys::fs::read_at_full(self.it.file, &mut bytes[HEAD_BYTES..], range.start).map_err(Cut::File)?;
            if read < count {
                return Err(Cut::File(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        bytes.extend_from_slice(&Head::end(true, self.streams.len() as u64).encode());
        send::all(line, &bytes)
    }

    fn end(&self, stream: &TcpStream) -> Result<(), Cut> {
        let mut line = Line::new(stream.as_fd(), stream.as_fd(), || Heard::Deaf, self.it.bound, self.it.silence);
        line.deaf = true;
        send::all(&mut line, &Head::end(false, 0).encode())
    }
}

/// A head, which leaves with the first bytes behind it.
fn send_head<H: FnMut() -> Heard>(line: &mut Line<'_, H>, head: &[u8]) -> Result<(), Cut> {
    let mut left = head;
    while !left.is_empty() {
        match sys::sock::send_more(line.socket, left) {
            Ok(moved) => left = &left[moved..],
            Err(error) if is_not_now(&error) => line.wait(Interest::Write)?,
            Err(error) => return Err(Cut::Network(error)),
        }
    }
    Ok(())
}

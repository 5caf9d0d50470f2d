//! A file, or bytes, into a stream.
//!
//! For: downloads and listings of other protocols.
//! In and out: an open file and a range of it, or bytes; a connection that has taken all of it.
//! Invariants: in clear a file's bytes pass from it to the socket unread; with TLS they are read between the places of heads and tags, sealed where they
//! stand, and sent as they stand.
//! Absent on purpose: what is sent and to whom.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;

use sys::event::Interest;
use sys::mem::Buf;

use super::{Cut, Direction, Heard, Keys, Line, is_not_now};
use crate::seal::record::{CONTENT_BYTES_MAX, Content, Key};

/// Of a file in clear, between two looks at the clock.
const UNREAD_BYTES: u64 = 8 << 20;
/// Read at once: so much stays in the nearest large cache of a core until it is sent.
const READ_BYTES: usize = 256 << 10;
/// Of errno(3): a file between which and a socket nothing can be handed over.
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;
/// KeyUpdate, which asks for none back (RFC 8446 section 4.6.3).
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
/// The word that the stream is whole: a warning, close_notify (RFC 8446 section 6.1).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// Longest record around its content: head, explicit nonce, type, tag.
const AROUND_BYTES_MAX: usize = 32;

/// How a file's bytes come to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As pages that nobody reads on this side, where that can be done.
    Unread,
    /// By way of a buf.
    Read,
}

impl Way {
    /// The faster one for this connection. A NIC fetches pages by itself. Where both ends are on this host it is the receiver's one thread that does, out
    /// of memory instead of a cache: 1 GiB to vsftpd took 1.6 to 1.8 times as long as by way of a buf, and no less processor time of both ends together.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>) -> Way {
        let ends = sys::sock::local_addr(socket).and_then(|own| Ok((own.ip(), sys::sock::peer_addr(socket)?.ip())));
        if ends.is_ok_and(|(own, peer)| own == peer) { Way::Read } else { Way::Unread }
    }
}

/// Sends a range of a file in clear.
///
/// # Errors
/// Why it ended before.
pub fn file<H: FnMut() -> Heard>(
    line: &mut Line<'_, H>,
    (file, way): (&File, Way),
    range: Range<u64>,
    buf: impl FnOnce() -> Result<Buf, Cut>,
    home: impl FnOnce(Buf),
) -> Result<(), Cut> {
    if way == Way::Read {
        let mut buf = buf()?;
        let sent = read_and_send(line, file, range, &mut buf);
        home(buf);
        return sent;
    }
    let mut at = range.start;
    while at < range.end {
        let end = at + line.let_go(UNREAD_BYTES.min(range.end - at))?;
        while at < end {
            match sys::sock::send_file(line.socket, file, at, (end - at).min(line.at_once() as u64) as usize) {
                Ok(0) => return Err(Cut::File(io::ErrorKind::UnexpectedEof.into())),
                Ok(moved) => {
                    at += moved as u64;
                    line.moved()?;
                }
                Err(error) if is_not_now(&error) => line.wait(Interest::Write)?,
                Err(error) if matches!(error.raw_os_error(), Some(EINVAL | ENOSYS | EOPNOTSUPP)) => {
                    let mut buf = buf()?;
                    let sent = read_and_send(line, file, at..range.end, &mut buf);
                    home(buf);
                    return sent;
                }
                Err(error) => return Err(Cut::Network(error)),
            }
        }
    }
    Ok(())
}

fn read_and_send<H: FnMut() -> Heard>(
    line: &mut Line<'_, H>,
    file: &File,
    range: Range<u64>,
    buf: &mut Buf,
) -> Result<(), Cut> {
    let mut at = range.start;
    while at < range.end {
        let room = buf.payload_mut();
        let wanted = room.len().min(READ_BYTES).min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let read = sys::fs::read_at_full(file, &mut room[..wanted], at).map_err(Cut::File)?;
        if read == 0 {
            return Err(Cut::File(io::ErrorKind::UnexpectedEof.into()));
        }
        all(line, &room[..read])?;
        at += read as u64;
    }
    Ok(())
}

/// Sends a range of a file as records.
///
/// # Errors
/// Why it ended before.
pub fn file_sealed<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    keys: &mut Keys<N>,
    file: &File,
    range: Range<u64>,
    buf: &mut Buf,
) -> Result<(), Cut> {
    let mut at = range.start;
    while at < range.end {
        renew(line, keys)?;
        let (before, after) = (keys.sealing.before(), keys.sealing.after());
        let stride = before + CONTENT_BYTES_MAX + after;
        let records = buf.payload().len() / stride;
        let wanted = (records * CONTENT_BYTES_MAX).min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        let room = &mut buf.payload_mut()[..records * stride];
        let read = fill(file, at, room, wanted, (before, stride)).map_err(Cut::File)?;
        let mut end = 0;
        for (record, room) in room.chunks_mut(stride).enumerate() {
            let content = read.saturating_sub(record * CONTENT_BYTES_MAX).min(CONTENT_BYTES_MAX);
            if content == 0 {
                break;
            }
            keys.sealing.seal(Content::Data, &mut room[..before + content + after]);
            end += before + content + after;
        }
        all(line, &room[..end])?;
        at += read as u64;
    }
    Ok(())
}

/// Reads `wanted` bytes into the middle of each record's room. Returns how many there were, which is no less but where the file ends.
fn fill(
    file: &File,
    offset: u64,
    room: &mut [u8],
    wanted: usize,
    (before, stride): (usize, usize),
) -> io::Result<usize> {
    let mut left = wanted;
    let mut places: Vec<IoSliceMut<'_>> = Vec::with_capacity(room.len() / stride);
    for record in room.chunks_mut(stride) {
        let content = left.min(CONTENT_BYTES_MAX);
        if content == 0 {
            break;
        }
        places.push(IoSliceMut::new(&mut record[before..before + content]));
        left -= content;
    }
    let mut places = &mut places[..];
    let mut read = 0;
    while read < wanted {
        match sys::fs::read_at_scattered(file, places, offset + read as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => {
                read += bytes;
                IoSliceMut::advance_slices(&mut places, bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Sends bytes, in clear or as records.
///
/// # Errors
/// Why it ended before.
pub fn bytes<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    keys: Option<&mut Keys<N>>,
    bytes: &[u8],
) -> Result<(), Cut> {
    let Some(keys) = keys else { return all(line, bytes) };
    for content in bytes.chunks(CONTENT_BYTES_MAX) {
        renew(line, keys)?;
        record(line, &mut keys.sealing, Content::Data, content)?;
    }
    Ok(())
}

fn record<H: FnMut() -> Heard>(
    line: &mut Line<'_, H>,
    key: &mut Key,
    content: Content,
    bytes: &[u8],
) -> Result<(), Cut> {
    let mut room = vec![0; key.before()];
    room.reserve_exact(bytes.len() + AROUND_BYTES_MAX);
    room.extend_from_slice(bytes);
    room.resize(room.len() + key.after(), 0);
    key.seal(content, &mut room);
    all(line, &room)
}

/// Takes the next key where the one that seals has sealed enough for the records of a buf to come.
fn renew<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    keys: &mut Keys<N>,
) -> Result<(), Cut> {
    if !keys.sealing.is_worn() {
        return Ok(());
    }
    let Some(next) = (keys.next)(Direction::Sealing) else {
        return Err(Cut::Network(io::Error::other("TLS 1.2 has no key for so many bytes on one connection")));
    };
    record(line, &mut keys.sealing, Content::Handshake, &KEY_UPDATE)?;
    keys.sealing = next;
    Ok(())
}

/// Says that the stream is whole, and sends no more.
///
/// # Errors
/// The network's.
pub fn end<H: FnMut() -> Heard, N>(line: &mut Line<'_, H>, keys: Option<&mut Keys<N>>) -> Result<(), Cut> {
    if let Some(keys) = keys {
        record(line, &mut keys.sealing, Content::Alert, &CLOSE_NOTIFY)?;
    }
    sys::sock::shutdown_send(line.socket).map_err(Cut::Network)
}

/// Sends all of these.
pub(super) fn all<H: FnMut() -> Heard>(line: &mut Line<'_, H>, bytes: &[u8]) -> Result<(), Cut> {
    let mut left = bytes;
    while !left.is_empty() {
        let slice = line.let_go(left.len() as u64)? as usize;
        let (mut now, rest) = left.split_at(slice);
        while !now.is_empty() {
            match sys::sock::send(line.socket, &now[..now.len().min(line.at_once())]) {
                Ok(moved) => {
                    now = &now[moved..];
                    line.moved()?;
                }
                Err(error) if is_not_now(&error) => line.wait(Interest::Write)?,
                Err(error) => return Err(Cut::Network(error)),
            }
        }
        left = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{IpAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::super::bufs::Bufs;
    use super::*;
    use crate::worker::bound::Bound;

    #[test]
    fn a_file_goes_unread_to_another_host_and_by_a_buf_within_this_one_byte_for_byte() {
        let path = std::env::temp_dir().join(format!("longhaul-send-{}", std::process::id()));
        let content: Vec<u8> = (0..3_000_001usize).map(|at| (at * 7 + at / 4093) as u8).collect();
        File::create(&path).unwrap().write_all(&content).unwrap();
        let source = File::open(&path).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        // The whole of 127.0.0.0/8 is this host, and the kernel tells its addresses apart.
        for (from, expected) in [("127.0.0.1", Way::Read), ("127.0.0.2", Way::Unread)] {
            let from: IpAddr = from.parse().unwrap();
            let out = sys::sock::connect_from(at, Some(from), Duration::from_secs(5), |_| Ok(())).unwrap();
            let mut into: TcpStream = listener.accept().unwrap().0;
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                into.read_to_end(&mut all).unwrap();
                all
            });
            super::super::prepare(&out).unwrap();
            let way = Way::of(out.as_fd());
            assert_eq!(way, expected);
            let (beside, _other_end) = sys::sock::pair().unwrap();
            let bound = Bound::new(0, None);
            let mut line = Line::new(out.as_fd(), beside.as_fd(), || Heard::On, &bound, Duration::from_secs(5));
            let mut taken = Bufs::new(2 << 20).unwrap().take(1, 1, Duration::ZERO).unwrap();
            let buf = taken.bufs.pop().unwrap();
            file(&mut line, (&source, way), 5..content.len() as u64, || Ok(buf), |_| {}).unwrap();
            end(&mut line, None::<&mut Keys<fn(Direction) -> Option<Key>>>).unwrap();
            assert!(reader.join().unwrap() == content[5..]);
        }
        std::fs::remove_file(path).unwrap();
    }
}

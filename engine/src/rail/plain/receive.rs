//! A stream into a file of no length before its end.
//!
//! For: uploads of other protocols.
//! In and out: a connection, bufs; an `OpenEnded` that has all that came, also where the stream was cut.
//! Invariants: this thread receives and opens records, another one hashes and writes, a few bufs apart; what came before a cut is written before
//! that is told.
//! Absent on purpose: whether what came is the whole file in clear, where a stream that was cut ends as one that is whole (node).

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use sys::mem::Buf;

use super::{Cut, Direction, Heard, Keys, Line, is_not_now};
use crate::seal::record::{Broken, Content, Key, record_bytes};
use crate::tree::sink::open_ended::OpenEnded;

/// Bufs of an upload, at least: one is received into while another is written.
pub const BUFS_MIN: usize = 2;
/// And at most: measured, docs/design/041-ftp-server.md.
pub const BUFS_MAX: usize = 4;
/// A long upload wakes its thread for so many bytes, or after `MORE_TIME`: measured, docs/design/041-ftp-server.md.
pub(super) const WAKE_BYTES: u32 = 256 << 10;
/// A record with all around it is no longer (`record`): behind so much a buf is full.
const RECORD_BYTES_MAX: usize = (16 << 10) + (2 << 10) + 5;
/// Shorter runs join the one before: so a buf has fewer than the kernel takes in one call (IOV_MAX of writev(2): 1024).
const RUN_BYTES_MIN: usize = 4096;
/// KeyUpdate (RFC 8446 section 4.6.3); its last byte says whether one is wanted back, before our next bytes, and there are none.
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];

/// A buf with bytes of the file.
struct Filled {
    buf: Buf,
    /// Where they stand in it.
    runs: Vec<Range<usize>>,
}

impl Filled {
    fn put(&self, part: &mut OpenEnded) -> io::Result<()> {
        let payload = self.buf.payload();
        part.put(self.runs.iter().map(|run| &payload[run.clone()]))
    }
}

/// What a stream is received as.
pub struct Incoming<'k, N> {
    keys: Option<&'k mut Keys<N>>,
    /// Bytes of a record that is not whole, which begin the next buf.
    rest: Vec<u8>,
}

impl<N> std::fmt::Debug for Incoming<'_, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("sealed", &self.keys.is_some()).finish_non_exhaustive()
    }
}

/// Is there more to come?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    Yes,
    No,
}

/// Receives into `part` until the stream ends. `bufs` has `BUFS_MIN` at least, and has them again afterwards.
///
/// # Errors
/// Why it ended before; `part` has what came until then.
///
/// # Panics
/// Without a buf.
pub fn file<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    keys: Option<&mut Keys<N>>,
    bufs: &mut Vec<Buf>,
    part: &mut OpenEnded,
) -> Result<(), Cut> {
    let rest = keys.as_ref().map_or_else(Vec::new, |keys| keys.early.clone());
    let mut incoming = Incoming { keys, rest };
    let (first, came) = fill(line, &mut incoming, bufs.pop().expect("an upload has bufs"));
    if !matches!(came, Ok(More::Yes)) {
        // A short file needs no second thread.
        let put = first.put(part);
        bufs.push(first.buf);
        came?;
        return put.map_err(Cut::File);
    }
    line.wake_from(WAKE_BYTES);
    let (to, from) = channel();
    let (home, back) = channel();
    let first_home = home.clone();
    let (came, wrote) = std::thread::scope(|scope| {
        let writer = std::thread::Builder::new().name("ftp-write".to_owned());
        let writer = match writer.spawn_scoped(scope, move || write(from, home, part)) {
            Ok(writer) => writer,
            Err(error) => {
                bufs.push(first.buf);
                return (Err(Cut::File(error)), Ok(()));
            }
        };
        bufs.drain(..).for_each(|buf| drop(first_home.send(buf)));
        drop(first_home);
        let _ = to.send(first);
        let came = receive(line, &mut incoming, &to, &back);
        drop(to);
        let (wrote, left) =
            writer.join().unwrap_or_else(|_| (Err(io::Error::other("the writing thread panicked")), Vec::new()));
        bufs.extend(left);
        (came, wrote)
    });
    bufs.extend(back.try_iter());
    wrote.map_err(Cut::File)?;
    came
}

/// The receiving thread: bufs that are free are filled until the stream ends or the writer does.
fn receive<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    incoming: &mut Incoming<'_, N>,
    to: &Sender<Filled>,
    back: &Receiver<Buf>,
) -> Result<(), Cut> {
    while let Ok(buf) = back.recv() {
        let (filled, came) = fill(line, incoming, buf);
        let _ = to.send(filled);
        if came? == More::No {
            break;
        }
    }
    Ok(())
}

/// The writing thread. After a run that cannot be written it takes no more; bufs that it has then it gives back at its end.
fn write(from: Receiver<Filled>, home: Sender<Buf>, part: &mut OpenEnded) -> (io::Result<()>, Vec<Buf>) {
    while let Ok(filled) = from.recv() {
        let put = filled.put(part);
        if put.is_err() {
            // The receiving thread sees that nobody gives bufs home, and ends.
            drop(home);
            return (put, std::iter::once(filled.buf).chain(from.iter().map(|filled| filled.buf)).collect());
        }
        let _ = home.send(filled.buf);
    }
    (Ok(()), Vec::new())
}

/// Fills a buf, or as much of it as comes before the end.
fn fill<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    incoming: &mut Incoming<'_, N>,
    mut buf: Buf,
) -> (Filled, Result<More, Cut>) {
    let mut runs = Vec::new();
    let came = match &mut incoming.keys {
        None => fill_clear(line, buf.payload_mut(), &mut runs),
        Some(keys) => fill_opened(line, keys, &mut incoming.rest, buf.payload_mut(), &mut runs),
    };
    (Filled { buf, runs }, came)
}

pub(super) fn fill_clear<H: FnMut() -> Heard>(
    line: &mut Line<'_, H>,
    room: &mut [u8],
    runs: &mut Vec<Range<usize>>,
) -> Result<More, Cut> {
    let mut at = 0;
    let came = loop {
        if at == room.len() {
            break Ok(More::Yes);
        }
        match some(line, &mut room[at..]) {
            Ok(0) => break Ok(More::No),
            Ok(bytes) => at += bytes,
            Err(cut) => break Err(cut),
        }
    };
    if at > 0 {
        runs.push(0..at);
    }
    came
}

/// Receives records into `room` and opens them where they stand.
pub(super) fn fill_opened<H: FnMut() -> Heard, N: FnMut(Direction) -> Option<Key>>(
    line: &mut Line<'_, H>,
    keys: &mut Keys<N>,
    rest: &mut Vec<u8>,
    room: &mut [u8],
    runs: &mut Vec<Range<usize>>,
) -> Result<More, Cut> {
    let (mut at, mut end) = (0, rest.len());
    room[..end].copy_from_slice(rest);
    rest.clear();
    loop {
        while let Some(bytes) = record_bytes(&room[at..end]).map_err(Cut::Broken)?.filter(|bytes| at + bytes <= end) {
            let (content, range) = keys.opening.open(&mut room[at..at + bytes]).map_err(Cut::Broken)?;
            let range = at + range.start..at + range.end;
            at += bytes;
            match content {
                Content::Data if range.is_empty() => {}
                Content::Data => add_run(room, runs, range),
                // Whatever it says, nothing follows; and that the stream is whole one word says alone.
                Content::Alert if room[range.clone()].ends_with(&[0]) && range.len() == 2 => return Ok(More::No),
                Content::Alert => return Err(Cut::Truncated),
                Content::Handshake if room[range.clone()].starts_with(&KEY_UPDATE) && range.len() == 5 => {
                    keys.opening = (keys.next)(Direction::Opening).ok_or(Cut::Broken(Broken::Kind))?;
                }
                Content::Handshake => return Err(Cut::Broken(Broken::Kind)),
            }
        }
        if end + RECORD_BYTES_MAX > room.len() {
            rest.extend_from_slice(&room[at..end]);
            return Ok(More::Yes);
        }
        match some(line, &mut room[end..])? {
            0 => return Err(Cut::Truncated),
            bytes => end += bytes,
        }
    }
}

/// The bytes of a record follow those of the one before. Short ones are moved there, so that a buf of them is no list of thousands of places.
fn add_run(room: &mut [u8], runs: &mut Vec<Range<usize>>, range: Range<usize>) {
    match runs.last_mut() {
        Some(last) if range.len() < RUN_BYTES_MIN => {
            let end = last.end + range.len();
            room.copy_within(range, last.end);
            last.end = end;
        }
        _ => runs.push(range),
    }
}

/// Receives what there is, once there is something. 0: the stream is over.
pub(super) fn some<H: FnMut() -> Heard>(line: &mut Line<'_, H>, room: &mut [u8]) -> Result<usize, Cut> {
    loop {
        match sys::sock::receive(line.socket, room) {
            Ok(bytes) => {
                line.came(bytes)?;
                return Ok(bytes);
            }
            Err(error) if is_not_now(&error) => line.wait_for_bytes()?,
            Err(error) => return Err(Cut::Network(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use proto::wire::control::{DigestKind, Durability};
    use sys::fs::Dir;

    use super::super::bufs::Bufs;
    use super::*;
    use crate::tree::sink::open_ended::{From, How};
    use crate::worker::bound::Bound;

    type NextKey = fn(Direction) -> Option<Key>;

    #[test]
    fn a_client_that_sends_a_byte_now_and_then_is_not_silent() {
        let place = std::env::temp_dir().join(format!("longhaul-plain-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (beside, _other_end) = sys::sock::pair().unwrap();
        let sender = std::thread::spawn(move || {
            client.write_all(&vec![7; 3 << 20]).unwrap();
            for _ in 0..15 {
                std::thread::sleep(Duration::from_millis(100));
                client.write_all(&[8]).unwrap();
            }
        });
        super::super::prepare(&server).unwrap();
        let how = How { durability: Durability::Written, digest: DigestKind::Crc64 };
        let mut part =
            OpenEnded::begin(&Dir::open(place.as_os_str().as_encoded_bytes()).unwrap(), b"f", From::Start, how)
                .unwrap();
        let mut taken = Bufs::new(4 << 20).unwrap().take(BUFS_MIN, BUFS_MAX, Duration::ZERO).unwrap();
        let bound = Bound::new(0, None);
        let mut line = Line::new(server.as_fd(), beside.as_fd(), || Heard::On, &bound, Duration::from_millis(500));
        let none = None::<&mut Keys<NextKey>>;
        let came = file(&mut line, none, &mut taken.bufs, &mut part);
        sender.join().unwrap();
        assert!(came.is_ok(), "{came:?} after {} bytes", part.bytes());
        assert_eq!(part.publish().unwrap().bytes, (3 << 20) + 15);
        std::fs::remove_dir_all(&place).unwrap();
    }
}

//! Blocks of MODE E that come over several streams, into a file.
//!
//! For: uploads by GridFTP.
//! In and out: a port where more streams may come, those of an earlier transfer, bufs; a `Scattered` that has all that came.
//! Invariants: one thread receives from whichever stream has something, another one hashes and writes, a few bufs apart; no stream holds a buf while it brings
//! nothing, so bufs are as many with one stream as with all; the transfer is over by the count of EODs; a stream that never said a head of MODE E is a
//! stranger's, whose end ends nothing.
//! Absent on purpose: what heads mean (`proto::ftp::blocks`); whose connections are taken (node).

use std::io;
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use proto::ftp::blocks::{Broken, CONNECTIONS_MAX, HEAD_BYTES, Head, Incoming};
use sys::event::Interest;
use sys::mem::Buf;

use super::{Cut, Heard, Line, is_not_now};
use crate::tree::sink::open_ended::scattered::Scattered;
use crate::worker::bound::Bound;

/// A stream wakes the thread for so many bytes of a block, or at its end.
const WAKE_BYTES: u64 = 256 << 10;
/// One that pauses in the midst of them is looked at so often.
const LOOK_TIME: Duration = Duration::from_millis(50);
/// The client hears of progress, by way of `heard`, as often.
const TELL_TIME: Duration = Duration::from_secs(1);

/// What a transfer is told and asked while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that came.
    pub came: u64,
    /// Bytes of the file that stand without a gap.
    pub standing: u64,
}

/// Where streams come from and how long they are waited for.
#[derive(Debug)]
pub struct Streams<'a, A> {
    /// Readable when somebody connects.
    pub door: Option<BorrowedFd<'a>>,
    /// Takes one who did, if it is the client.
    pub accept: A,
    /// The control connection.
    pub beside: BorrowedFd<'a>,
    /// How fast.
    pub bound: &'a Bound,
    /// For so long nothing may happen.
    pub silence: Duration,
    /// So long may it be until the first stream.
    pub first: Duration,
}

struct Stream {
    socket: TcpStream,
    head: [u8; HEAD_BYTES],
    /// Bytes of it that are here.
    have: usize,
    /// What is missing of the block.
    left: Range<u64>,
    /// It said a head in this transfer.
    spoke: bool,
    /// And its EOD.
    is_over: bool,
    closes: bool,
    least: u32,
}

impl Stream {
    fn new(socket: TcpStream) -> io::Result<Stream> {
        socket.set_nonblocking(true)?;
        let (head, left) = ([0; HEAD_BYTES], 0..0);
        Ok(Stream { socket, head, have: 0, left, spoke: false, is_over: false, closes: false, least: 1 })
    }

    /// Brings it more of this transfer?
    fn is_open(&self) -> bool {
        !self.is_over || !self.left.is_empty()
    }

    fn wake_from(&mut self, bytes: u64) {
        let bytes = bytes.min(WAKE_BYTES) as u32;
        if std::mem::replace(&mut self.least, bytes) != bytes {
            let _ = sys::sock::set_receive_least(&self.socket, bytes);
        }
    }
}

/// A buf with bytes of blocks.
struct Filled {
    buf: Buf,
    /// Where each run belongs, and where it stands.
    runs: Vec<(u64, Range<usize>)>,
}

impl Filled {
    fn put(&self, part: &mut Scattered) -> io::Result<()> {
        let payload = self.buf.payload();
        self.runs.iter().try_for_each(|(offset, run)| part.put(*offset, &payload[run.clone()]))
    }
}

/// What came of a stream for now.
enum Came {
    Some,
    /// It ended, and nobody misses it.
    Gone,
}

/// Receives into `part` until all EODs came. Returns the bytes that the transfer has, from the first on. `streams`: those of an earlier transfer; then those that
/// are there for the next.
///
/// # Errors
/// Why it ended before; `part` has what came until then. TimedOut: nobody connected.
pub fn file<A: FnMut() -> io::Result<Option<TcpStream>>>(
    from: &mut Streams<'_, A>,
    streams: &mut Vec<TcpStream>,
    mut incoming: Incoming,
    bufs: &mut Vec<Buf>,
    part: &mut Scattered,
    mut heard: impl FnMut(Progress) -> Heard,
) -> Result<u64, Cut> {
    let standing = AtomicU64::new(part.standing());
    let all: io::Result<Vec<Stream>> = streams.drain(..).map(Stream::new).collect();
    let mut gather = Gather {
        from,
        streams: all.map_err(Cut::Network)?,
        came: 0,
        standing: &standing,
        next_tell: Instant::now() + TELL_TIME,
        deaf: false,
    };
    let (came, wrote) = std::thread::scope(|scope| {
        let mut writer =
            Writer { scope, standing: &standing, state: State::Alone { part, held: None }, free: std::mem::take(bufs) };
        let came = gather.run(&mut incoming, &mut writer, &mut heard);
        let (wrote, home) = writer.end();
        *bufs = home;
        (came, wrote)
    });
    // What the writing thread says comes first: the receiving one ends because of it.
    wrote.map_err(Cut::File)?;
    came?;
    for mut stream in gather.streams.into_iter().filter(|it| it.is_over && !it.closes) {
        // The next transfer on it may be shorter than what this one waited for.
        stream.wake_from(1);
        streams.push(stream.socket);
    }
    if !incoming.is_whole() {
        return Err(Cut::Truncated);
    }
    Ok(incoming.end())
}

struct Gather<'g, 'a, A> {
    from: &'g mut Streams<'a, A>,
    streams: Vec<Stream>,
    came: u64,
    standing: &'g AtomicU64,
    next_tell: Instant,
    deaf: bool,
}

impl<A: FnMut() -> io::Result<Option<TcpStream>>> Gather<'_, '_, A> {
    fn run(
        &mut self,
        incoming: &mut Incoming,
        writer: &mut Writer<'_, '_>,
        heard: &mut impl FnMut(Progress) -> Heard,
    ) -> Result<(), Cut> {
        let began = Instant::now();
        let mut moved = began;
        while !(incoming.is_over() && self.streams.iter().all(|it| it.left.is_empty())) {
            let now = Instant::now();
            if self.streams.is_empty() && now.duration_since(began) >= self.from.first {
                return Err(Cut::Network(io::ErrorKind::TimedOut.into()));
            }
            if now.duration_since(moved) >= self.from.silence {
                return Err(Cut::Silent);
            }
            let ready = self.wait(heard)?;
            let mut gone = Vec::new();
            for index in ready {
                let before = self.came;
                if let Came::Gone = self.receive(index, incoming, writer)? {
                    gone.push(index);
                }
                if self.came > before {
                    moved = Instant::now();
                    self.pay(self.came - before, heard)?;
                }
            }
            gone.into_iter().rev().for_each(|index| drop(self.streams.swap_remove(index)));
        }
        Ok(())
    }

    /// Waits until something can be received, and takes those who connect. Gives the streams that have something, in their order.
    fn wait(&mut self, heard: &mut impl FnMut(Progress) -> Heard) -> Result<Vec<usize>, Cut> {
        let is_full = self.streams.len() >= usize::from(CONNECTIONS_MAX);
        let door = self.from.door.filter(|_| !is_full);
        let beside = (!self.deaf).then_some(self.from.beside);
        let open: Vec<usize> = (0..self.streams.len()).filter(|&index| self.streams[index].is_open()).collect();
        let mut fds: Vec<_> = open.iter().map(|&index| (self.streams[index].socket.as_fd(), Interest::Read)).collect();
        fds.extend(beside.iter().chain(&door).map(|&fd| (fd, Interest::Read)));
        let waits_long = open.iter().all(|&index| self.streams[index].least == 1);
        let time = if waits_long { TELL_TIME } else { LOOK_TIME };
        let ready = sys::event::poll(&fds, Some(time)).map_err(Cut::Network)?;
        let mut some: Vec<usize> =
            open.iter().zip(&ready).filter(|(_, it)| it.any()).map(|(&index, _)| index).collect();
        let mut others = ready[open.len()..].iter().map(|it| it.any());
        let (says, knocks) =
            (beside.is_some() && others.next() == Some(true), door.is_some() && others.next() == Some(true));
        if says || Instant::now() >= self.next_tell {
            self.ask(heard)?;
        }
        if knocks {
            while self.streams.len() < usize::from(CONNECTIONS_MAX) {
                let Some(socket) = (self.from.accept)().map_err(Cut::Network)? else { break };
                self.streams.push(Stream::new(socket).map_err(Cut::Network)?);
            }
        }
        if some.is_empty() && !waits_long {
            // One that brings a byte now and then is not to look like a silent one.
            for &index in &open {
                self.streams[index].wake_from(1);
            }
            some = open;
        }
        Ok(some)
    }

    fn ask(&mut self, heard: &mut impl FnMut(Progress) -> Heard) -> Result<(), Cut> {
        self.next_tell = Instant::now() + TELL_TIME;
        match heard(Progress { came: self.came, standing: self.standing.load(Ordering::Relaxed) }) {
            Heard::On => {}
            Heard::Deaf => self.deaf = true,
            Heard::Stop => return Err(Cut::Stopped),
        }
        Ok(())
    }

    /// These bytes came, and are paid for.
    fn pay(&mut self, bytes: u64, heard: &mut impl FnMut(Progress) -> Heard) -> Result<(), Cut> {
        let progress = Progress { came: self.came, standing: self.standing.load(Ordering::Relaxed) };
        if !self.from.bound.is_bound() {
            return Ok(());
        }
        let mut line =
            Line::new(self.from.beside, self.from.beside, || heard(progress), self.from.bound, self.from.silence);
        line.deaf = self.deaf;
        line.came(bytes as usize)
    }

    /// Receives what a stream has, up to a buf of it.
    fn receive(&mut self, index: usize, incoming: &mut Incoming, writer: &mut Writer<'_, '_>) -> Result<Came, Cut> {
        let stream = &mut self.streams[index];
        let mut buf = writer.take()?;
        let (mut at, mut runs) = (0, Vec::<(u64, Range<usize>)>::new());
        let room = buf.payload_mut();
        let came = loop {
            if stream.left.is_empty() {
                if stream.is_over {
                    break Ok(Came::Some);
                }
                match sys::sock::receive(&stream.socket, &mut stream.head[stream.have..]) {
                    Ok(0) if stream.spoke => break Err(Cut::Truncated),
                    Ok(0) => break Ok(Came::Gone),
                    Ok(bytes) => stream.have += bytes,
                    Err(error) if is_not_now(&error) => {
                        stream.wake_from(1);
                        break Ok(Came::Some);
                    }
                    Err(_) if !stream.spoke => break Ok(Came::Gone),
                    Err(error) => break Err(Cut::Network(error)),
                }
                if stream.have == HEAD_BYTES {
                    stream.have = 0;
                    match incoming.on_head(&Head::decode(&stream.head)) {
                        Ok(told) => {
                            (stream.left, stream.is_over, stream.closes) = (told.bytes, told.is_end, told.closes);
                            stream.spoke = true;
                        }
                        // Whoever says something else speaks no MODE E, and is not the client.
                        Err(Broken::Flags) if !stream.spoke => break Ok(Came::Gone),
                        Err(broken) => break Err(Cut::Blocks(broken)),
                    }
                }
                continue;
            }
            if at == room.len() {
                break Ok(Came::Some);
            }
            let missing = stream.left.end - stream.left.start;
            let most = (room.len() - at).min(usize::try_from(missing).unwrap_or(usize::MAX));
            match sys::sock::receive(&stream.socket, &mut room[at..at + most]) {
                Ok(0) => break Err(Cut::Truncated),
                Ok(bytes) => {
                    match runs.last_mut() {
                        Some((offset, run)) if *offset + run.len() as u64 == stream.left.start => run.end += bytes,
                        _ => runs.push((stream.left.start, at..at + bytes)),
                    }
                    at += bytes;
                    stream.left.start += bytes as u64;
                    self.came += bytes as u64;
                }
                Err(error) if is_not_now(&error) => {
                    // Behind a block there is a head at least, so these come without any word of ours.
                    stream.wake_from(missing);
                    break Ok(Came::Some);
                }
                Err(error) => break Err(Cut::Network(error)),
            }
        };
        writer.put(Filled { buf, runs })?;
        came
    }
}

/// Who writes: this thread, as long as one buf has all that came, and then another.
struct Writer<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    standing: &'env AtomicU64,
    state: State<'scope, 'env>,
    free: Vec<Buf>,
}

type Wrote = (io::Result<()>, Vec<Buf>);

enum State<'scope, 'env> {
    Alone { part: &'env mut Scattered, held: Option<Filled> },
    Beside { to: Sender<Filled>, back: Receiver<Buf>, thread: ScopedJoinHandle<'scope, Wrote> },
    Over,
}

impl<'scope, 'env> Writer<'scope, 'env> {
    fn take(&mut self) -> Result<Buf, Cut> {
        if let Some(buf) = self.free.pop() {
            return Ok(buf);
        }
        let back = match &self.state {
            State::Beside { back, .. } => back.recv().ok(),
            _ => None,
        };
        // Nobody gives bufs home: the writing thread failed, and says why at the end.
        back.ok_or_else(|| Cut::File(io::ErrorKind::BrokenPipe.into()))
    }

    fn put(&mut self, filled: Filled) -> Result<(), Cut> {
        if filled.runs.is_empty() {
            self.free.push(filled.buf);
            return Ok(());
        }
        match &mut self.state {
            State::Alone { held, .. } if held.is_none() => {
                *held = Some(filled);
                return Ok(());
            }
            State::Alone { .. } => self.begin()?,
            _ => {}
        }
        if let State::Beside { to, .. } = &self.state {
            // Where nobody takes it, `take` fails.
            let _ = to.send(filled);
        }
        Ok(())
    }

    /// The other thread takes over.
    fn begin(&mut self) -> Result<(), Cut> {
        let State::Alone { part, held } = std::mem::replace(&mut self.state, State::Over) else { return Ok(()) };
        let ((to, from), (home, back)) = (channel(), channel());
        let standing = self.standing;
        let thread = std::thread::Builder::new().name("ftp-write".to_owned());
        let thread = thread.spawn_scoped(self.scope, move || write(from, home, part, standing)).map_err(Cut::File)?;
        held.into_iter().for_each(|filled| drop(to.send(filled)));
        self.state = State::Beside { to, back, thread };
        Ok(())
    }

    /// All that came is written.
    fn end(mut self) -> Wrote {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Alone { part, held } => {
                let wrote = held.iter().try_for_each(|filled| filled.put(part));
                self.free.extend(held.map(|filled| filled.buf));
                (wrote, self.free)
            }
            State::Beside { to, back, thread } => {
                drop(to);
                let (wrote, left) = thread
                    .join()
                    .unwrap_or_else(|_| (Err(io::Error::other("the writing thread panicked")), Vec::new()));
                self.free.extend(back.try_iter());
                self.free.extend(left);
                (wrote, self.free)
            }
            State::Over => (Ok(()), self.free),
        }
    }
}

/// The writing thread. After a run that cannot be written it takes no more; bufs that it has then it gives back at its end.
fn write(from: Receiver<Filled>, home: Sender<Buf>, part: &mut Scattered, standing: &AtomicU64) -> Wrote {
    while let Ok(filled) = from.recv() {
        let put = filled.put(part);
        standing.store(part.standing(), Ordering::Relaxed);
        if put.is_err() {
            drop(home);
            return (put, std::iter::once(filled.buf).chain(from.iter().map(|filled| filled.buf)).collect());
        }
        let _ = home.send(filled.buf);
    }
    (Ok(()), Vec::new())
}

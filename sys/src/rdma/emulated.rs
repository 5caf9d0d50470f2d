//! A queue pair without a device: the same semantics over a connected stream socket.
//!
//! For: the rail on hosts that have no RDMA device, its tests, and whoever wants to see what it does; reports call it `rdma (emulated)`.
//! In and out: as `rdma`.
//! Invariants: a message is received whole into one receive of the shared queue, in order; one that finds the queue empty waits in the socket,
//! and is counted; a pair that died gives back all it was handed. No thread: a pair goes on where it is polled, and its completion descriptor is
//! an epoll set, readable when the socket has what the pair wants.
//! Absent on purpose: speed, the delays of a real device, registration that costs something.
//!
//! ```text
//! message: | bytes u32 | !bytes u32 | head and payload, or a word |     little endian
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::{Completion, Connection, Counts, Queues, Receives, Word};
use crate::mem::{Buf, HEADROOM, Mapping, Pool};

const PREFIX: usize = 8;

/// Completions that a pair keeps before it is polled: what else came waits in the socket.
const COMPLETIONS_MAX: usize = 64;

/// What stands in the send queue.
#[derive(Debug)]
enum What {
    Frame { token: u64, buf: Buf, at: usize, len: usize },
    Word(Word),
}

/// A send, as far as it got.
#[derive(Debug)]
struct Send {
    what: What,
    prefix: [u8; PREFIX],
    /// Bytes of prefix and message that left.
    moved: usize,
}

impl Send {
    fn new(what: What) -> Send {
        let bytes = match &what {
            What::Frame { len, .. } => *len,
            What::Word(word) => word.len(),
        };
        let bytes = u32::try_from(bytes).expect("a buf is shorter than 4 GiB");
        let mut prefix = [0; PREFIX];
        prefix[..4].copy_from_slice(&bytes.to_le_bytes());
        // A bit that flips in a length must not leave the pair waiting for what never comes.
        prefix[4..].copy_from_slice(&(!bytes).to_le_bytes());
        Send { what, prefix, moved: 0 }
    }

    /// What is next to leave; empty: nothing.
    fn rest(&self) -> &[u8] {
        if self.moved < PREFIX {
            return &self.prefix[self.moved..];
        }
        let moved = self.moved - PREFIX;
        match &self.what {
            What::Frame { buf, at, len, .. } => &buf.whole()[*at + moved..*at + *len],
            What::Word(word) => &word[moved..],
        }
    }

    fn done(self, result: io::Result<()>) -> Option<Completion> {
        match self.what {
            What::Frame { token, buf, .. } => Some(Completion::Sent { token, buf, result }),
            What::Word(_) => None,
        }
    }
}

/// The message that is coming in.
#[derive(Debug)]
enum Incoming {
    Prefix {
        bytes: [u8; PREFIX],
        moved: usize,
    },
    /// Its length is known, and no receive was there for it.
    Waits {
        len: usize,
    },
    Frame {
        buf: Buf,
        len: usize,
        moved: usize,
    },
    Word {
        word: Word,
        moved: usize,
    },
}

const NOTHING: Incoming = Incoming::Prefix { bytes: [0; PREFIX], moved: 0 };

#[derive(Debug)]
struct Pair {
    stream: OwnedFd,
    completions: Arc<OwnedFd>,
    receives: Receives,
    sends: VecDeque<Send>,
    incoming: Incoming,
    done: VecDeque<Completion>,
    /// What the epoll set waits for; empty: the socket is not in it.
    watched: epoll::EventFlags,
    dead: bool,
}

/// What all pairs of a worker share.
#[derive(Debug)]
struct Shared {
    region: Arc<Mapping>,
    /// The shared receive queue; first posted, first used.
    queue: VecDeque<Buf>,
    head_bytes: usize,
    counts: Counts,
}

#[derive(Debug)]
pub(super) struct Emulated {
    shared: Shared,
    pairs: Vec<Pair>,
}

fn flushed() -> io::Error {
    io::Error::from_raw_os_error(libc::ECANCELED)
}

impl Pair {
    /// Everything that was posted comes back, then the word that the pair is down.
    fn die(&mut self, shared: &mut Shared, why: Option<io::Error>) {
        if std::mem::replace(&mut self.dead, true) {
            return;
        }
        // One that is not connected any more needs no end.
        let _ = shutdown(&self.stream, Shutdown::Both);
        if let Incoming::Frame { buf, .. } = std::mem::replace(&mut self.incoming, NOTHING) {
            shared.queue.push_front(buf);
        }
        self.done.extend(self.sends.drain(..).filter_map(|it| it.done(Err(flushed()))));
        self.done.push_back(Completion::Down(why));
        self.watch(epoll::EventFlags::IN);
    }

    /// The completion descriptor is readable when the socket is so.
    fn watch(&mut self, wanted: epoll::EventFlags) {
        if wanted == self.watched {
            return;
        }
        let data = epoll::EventData::new_u64(0);
        let set = &*self.completions;
        // The set and the socket are this pair's own: what fails is memory, and then the pair is silent and its job's watchdog ends it.
        let _ = match (self.watched.is_empty(), wanted.is_empty()) {
            (true, _) => epoll::add(set, &self.stream, data, wanted),
            (false, true) => epoll::delete(set, &self.stream),
            (false, false) => epoll::modify(set, &self.stream, data, wanted),
        };
        self.watched = wanted;
    }

    /// Arms the completion descriptor for whatever lets this pair go on. One whose next message has no receive is not told of its socket, which
    /// stays readable.
    fn arm(&mut self) {
        if self.dead {
            return;
        }
        let mut wanted = epoll::EventFlags::empty();
        wanted.set(epoll::EventFlags::IN, !matches!(self.incoming, Incoming::Waits { .. }));
        wanted.set(epoll::EventFlags::OUT, !self.sends.is_empty());
        self.watch(wanted);
    }

    fn step(&mut self, shared: &mut Shared) {
        if !self.dead
            && let Err(error) = self.step_send()
        {
            self.die(shared, Some(error));
        }
        if !self.dead {
            match self.step_receive(shared) {
                Ok(()) => {}
                Err(error) => self.die(shared, error),
            }
        }
    }

    fn step_send(&mut self) -> io::Result<()> {
        while let Some(front) = self.sends.front_mut() {
            match send(&self.stream, front.rest(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(bytes) => front.moved += bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if front.rest().is_empty() {
                self.done.extend(self.sends.pop_front().and_then(|it| it.done(Ok(()))));
            }
        }
        Ok(())
    }

    /// Errors: why the pair dies; `None`: the peer took leave.
    fn step_receive(&mut self, shared: &mut Shared) -> Result<(), Option<io::Error>> {
        while self.done.len() < COMPLETIONS_MAX {
            if let Incoming::Waits { len } = self.incoming {
                let Some(buf) = shared.queue.pop_front() else { break };
                self.incoming = Incoming::Frame { buf, len, moved: 0 };
            }
            let begins = HEADROOM - shared.head_bytes;
            let into = match &mut self.incoming {
                Incoming::Prefix { bytes, moved } => &mut bytes[*moved..],
                Incoming::Frame { buf, len, moved } => &mut buf.whole_mut()[begins + *moved..begins + *len],
                Incoming::Word { word, moved } => &mut word[*moved..],
                Incoming::Waits { .. } => unreachable!("it has a buf since above"),
            };
            match recv(&self.stream, into, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes) {
                Ok(0) if matches!(self.incoming, Incoming::Prefix { moved: 0, .. }) => return Err(None),
                Ok(0) => return Err(Some(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => self.came(shared, bytes)?,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(Some(error.into())),
            }
        }
        Ok(())
    }

    /// So many bytes more of the message are here.
    fn came(&mut self, shared: &mut Shared, bytes: usize) -> Result<(), Option<io::Error>> {
        let (Incoming::Prefix { moved, .. } | Incoming::Frame { moved, .. } | Incoming::Word { moved, .. }) =
            &mut self.incoming
        else {
            unreachable!("what waits receives nothing")
        };
        *moved += bytes;
        self.incoming = match std::mem::replace(&mut self.incoming, NOTHING) {
            Incoming::Prefix { bytes, moved: PREFIX } => self.begin(shared, bytes)?,
            Incoming::Frame { buf, len, moved } if moved == len => {
                self.done.push_back(Completion::Frame { buf, bytes: len });
                NOTHING
            }
            Incoming::Word { word, moved } if moved == word.len() => {
                self.done.push_back(Completion::Word(word));
                NOTHING
            }
            part => part,
        };
        Ok(())
    }

    /// A message begins. One that is longer than a receive ends the pair, as a device's local length error does.
    fn begin(&self, shared: &mut Shared, prefix: [u8; PREFIX]) -> Result<Incoming, Option<io::Error>> {
        let [a, b, c, d, check @ ..] = prefix;
        let len = u32::from_le_bytes([a, b, c, d]);
        let (is_sound, len) = (u32::from_le_bytes(check) == !len, len as usize);
        let most = shared.head_bytes + shared.region.payload_bytes();
        match self.receives {
            _ if !is_sound || len == 0 => Err(Some(io::ErrorKind::InvalidData.into())),
            Receives::Words if len == size_of::<Word>() => Ok(Incoming::Word { word: [0; 8], moved: 0 }),
            Receives::Frames if len <= most => Ok(match shared.queue.pop_front() {
                Some(buf) => Incoming::Frame { buf, len, moved: 0 },
                None => {
                    shared.counts.not_ready += 1;
                    Incoming::Waits { len }
                }
            }),
            _ => Err(Some(io::Error::from_raw_os_error(libc::EMSGSIZE))),
        }
    }
}

impl Emulated {
    pub(super) fn new(pool: &Pool, head_bytes: usize) -> Emulated {
        let region = Arc::clone(pool.mapping());
        let counts = Counts { regions: 1, registered_bytes: region.bytes() as u64, not_ready: 0 };
        Emulated { shared: Shared { region, queue: VecDeque::new(), head_bytes, counts }, pairs: Vec::new() }
    }

    fn at(&mut self, pair: RawFd) -> (&mut Pair, &mut Shared) {
        let pair = self.pairs.iter_mut().find(|it| it.completions.as_raw_fd() == pair);
        (pair.expect("a pair is named by its completion descriptor until it is detached"), &mut self.shared)
    }
}

impl Queues for Emulated {
    fn takes(&self, connection: &Connection) -> bool {
        matches!(connection, Connection::Emulated(_))
    }

    fn attach(&mut self, connection: Connection, receives: Receives) -> io::Result<Arc<OwnedFd>> {
        let Connection::Emulated(stream) = connection else { return Err(io::ErrorKind::Unsupported.into()) };
        let completions = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let watched = epoll::EventFlags::IN;
        epoll::add(&*completions, &stream, epoll::EventData::new_u64(0), watched)?;
        self.pairs.push(Pair {
            stream,
            completions: Arc::clone(&completions),
            receives,
            sends: VecDeque::new(),
            incoming: NOTHING,
            done: VecDeque::new(),
            watched,
            dead: false,
        });
        Ok(completions)
    }

    fn has(&self, pair: RawFd) -> bool {
        self.pairs.iter().any(|it| it.completions.as_raw_fd() == pair)
    }

    fn post_send(&mut self, pair: RawFd, token: u64, buf: Buf, at: usize, len: usize) {
        let (pair, shared) = self.at(pair);
        assert!(Arc::ptr_eq(buf.mapping(), &shared.region), "what is sent is registered");
        pair.post(shared, Send::new(What::Frame { token, buf, at, len }));
    }

    fn post_word(&mut self, pair: RawFd, word: Word) {
        let (pair, shared) = self.at(pair);
        pair.post(shared, Send::new(What::Word(word)));
    }

    fn post_receive(&mut self, buf: Buf) {
        assert!(Arc::ptr_eq(buf.mapping(), &self.shared.region), "what is received into is registered");
        self.shared.queue.push_back(buf);
        // Whoever waited for it looks at its socket again.
        for pair in self.pairs.iter_mut().filter(|it| matches!(it.incoming, Incoming::Waits { .. }) && !it.dead) {
            pair.watch(pair.watched | epoll::EventFlags::IN);
        }
    }

    fn receives(&self) -> usize {
        self.shared.queue.len()
    }

    fn take_receive(&mut self) -> Option<Buf> {
        let is_used = self.pairs.iter().any(|it| it.receives == Receives::Frames && !it.dead);
        if is_used { None } else { self.shared.queue.pop_front() }
    }

    fn poll(&mut self, pair: RawFd) -> Option<Completion> {
        let (pair, shared) = self.at(pair);
        if pair.done.is_empty() {
            pair.step(shared);
        }
        let next = pair.done.pop_front();
        if next.is_none() {
            pair.arm();
        }
        next
    }

    fn cut(&mut self, pair: RawFd) {
        let (pair, shared) = self.at(pair);
        pair.die(shared, Some(io::ErrorKind::ConnectionAborted.into()));
    }

    fn detach(&mut self, pair: RawFd, give: &mut dyn FnMut(Buf)) -> usize {
        self.cut(pair);
        let index = self.pairs.iter().position(|it| it.completions.as_raw_fd() == pair).expect("seen by `cut`");
        for completion in self.pairs.swap_remove(index).done {
            if let Completion::Sent { buf, .. } | Completion::Frame { buf, .. } = completion {
                give(buf);
            }
        }
        0
    }

    fn counts(&self) -> Counts {
        self.shared.counts
    }
}

impl Pair {
    fn post(&mut self, shared: &mut Shared, send: Send) {
        if self.dead {
            // After `Down` nobody asks any more: it stands before it, as a device's flushed sends do.
            let down = self.done.pop_back();
            self.done.extend(send.done(Err(flushed())));
            self.done.extend(down);
            return;
        }
        self.sends.push_back(send);
        if let Err(error) = self.step_send() {
            return self.die(shared, Some(error));
        }
        // The worker may sleep before it polls again.
        if !self.sends.is_empty() {
            self.watch(self.watched | epoll::EventFlags::OUT);
        }
    }
}

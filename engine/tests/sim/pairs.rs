//! Simulated queue pairs: messages over the streams of `net`, with the queue and the completions of a device.
//!
//! For: rails of queue pairs in simulated jobs, whose wires are slow, short of room, cut and reset at any byte.
//! In and out: as `engine::platform::PairIo`.
//! Invariants: those of `sys::rdma`; time is the scenario's.
//! Absent on purpose: descriptors (a pair is named by its wire).

use std::collections::VecDeque;
use std::io;

use engine::platform::{Completion, MESSAGE_HEAD_BYTES, PairCounts, PairIo, Receives, Word};
use sys::mem::{Buf, HEADROOM};

use crate::net::Net;
use crate::platform::{Sim, SimSocket, lock};

/// A length, twice: a bit that flips in it is seen.
const PREFIX: usize = 8;
const CHUNK_BYTES: u32 = 1 << 20;
const AT: usize = HEADROOM - MESSAGE_HEAD_BYTES;

/// Bytes, how many of them left, and the buf that they are of.
type Send = (Vec<u8>, usize, Option<(u64, Buf)>);

#[derive(Debug)]
struct Pair {
    wire: usize,
    side: usize,
    receives: Receives,
    /// What of a send is left to leave, and whose buf it is.
    sends: VecDeque<Send>,
    /// The message that comes in, its length first.
    incoming: Vec<u8>,
    waits: bool,
    done: VecDeque<Completion>,
    dead: bool,
}

/// The pairs of one worker.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pairs: Vec<Pair>,
    queue: VecDeque<Buf>,
    spare: usize,
    counts: PairCounts,
}

impl Pair {
    fn die(&mut self, why: Option<io::Error>) {
        if std::mem::replace(&mut self.dead, true) {
            return;
        }
        for (_, _, buf) in self.sends.drain(..) {
            let sent = |(token, buf)| Completion::Sent { token, buf, result: Err(io::ErrorKind::Interrupted.into()) };
            self.done.extend(buf.map(sent));
        }
        self.done.push_back(Completion::Down(why));
    }

    /// Bytes that are missing of the prefix, or of the message behind it. Errors: the prefix is none, or no receive holds so much.
    fn wanted(&self) -> io::Result<usize> {
        let Some(&[len, check]) = self.incoming.as_chunks::<4>().0.first_chunk::<2>() else {
            return Ok(PREFIX - self.incoming.len());
        };
        let (len, check) = (u32::from_le_bytes(len), u32::from_le_bytes(check));
        let most = if self.receives == Receives::Words { 8 } else { MESSAGE_HEAD_BYTES + CHUNK_BYTES as usize };
        if check != !len || len as usize > most {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(PREFIX + len as usize - self.incoming.len())
    }

    fn step(
        &mut self,
        net: &mut Net,
        queue: &mut VecDeque<Buf>,
        counts: &mut PairCounts,
    ) -> Result<(), Option<io::Error>> {
        while let Some((bytes, moved, _)) = self.sends.front_mut() {
            let Some(sent) = net.send(self.wire, self.side, &bytes[*moved..]) else { break };
            *moved += sent.map_err(Some)?;
            if *moved == bytes.len() {
                let buf = self.sends.pop_front().and_then(|(_, _, buf)| buf);
                self.done.extend(buf.map(|(token, buf)| Completion::Sent { token, buf, result: Ok(()) }));
            }
        }
        loop {
            let is_begun = self.incoming.len() == PREFIX;
            if is_begun && self.receives == Receives::Frames && queue.is_empty() {
                counts.not_ready += u64::from(!std::mem::replace(&mut self.waits, true));
                return Ok(());
            }
            self.waits = false;
            let mut part = vec![0; self.wanted().map_err(Some)?];
            let Some(came) = net.recv(self.wire, self.side, &mut part) else { return Ok(()) };
            match came.map_err(Some)? {
                0 => return Err((!self.incoming.is_empty()).then(|| io::ErrorKind::UnexpectedEof.into())),
                came => self.incoming.extend_from_slice(&part[..came]),
            }
            if self.incoming.len() > PREFIX && self.wanted().map_err(Some)? == 0 {
                let message = std::mem::take(&mut self.incoming);
                self.done.push_back(match self.receives {
                    Receives::Words => Completion::Word(message[PREFIX..].try_into().expect("a word")),
                    Receives::Frames => {
                        // Another pair may have taken the receive that was there when this message began.
                        let Some(mut buf) = queue.pop_front() else {
                            self.incoming = message;
                            return Ok(());
                        };
                        let bytes = message.len() - PREFIX;
                        buf.whole_mut()[AT..AT + bytes].copy_from_slice(&message[PREFIX..]);
                        Completion::Frame { buf, bytes }
                    }
                });
            }
        }
    }
}

impl Pairs {
    fn at(&self, socket: &SimSocket) -> Option<usize> {
        self.pairs.iter().position(|it| (it.wire, it.side) == (socket.wire, socket.side))
    }

    pub(crate) fn has(&self, socket: &SimSocket) -> bool {
        self.pairs.iter().any(|it| (it.wire, it.side) == (socket.wire, socket.side))
    }

    /// `None`: it is no pair.
    pub(crate) fn is_readable(&self, net: &Net, socket: &SimSocket) -> Option<bool> {
        let pair = &self.pairs[self.at(socket)?];
        let comes = net.has_bytes(pair.wire, pair.side) && !(pair.waits && self.queue.is_empty());
        let goes = !pair.sends.is_empty() && net.has_room(pair.wire, pair.side);
        Some(!pair.done.is_empty() || pair.dead || comes || goes)
    }

    pub(crate) fn cut(&mut self, socket: &SimSocket) {
        if let Some(index) = self.at(socket) {
            self.pairs[index].die(Some(io::ErrorKind::ConnectionAborted.into()));
        }
    }

    fn post(&mut self, socket: &SimSocket, message: &[u8], buf: Option<(u64, Buf)>) {
        let index = self.at(socket).expect("a pair");
        let pair = &mut self.pairs[index];
        if pair.dead {
            let down = pair.done.pop_back();
            let sent = |(token, buf)| Completion::Sent { token, buf, result: Err(io::ErrorKind::Interrupted.into()) };
            pair.done.extend(buf.map(sent));
            pair.done.extend(down);
            return;
        }
        let len = message.len() as u32;
        let bytes = [&len.to_le_bytes()[..], &(!len).to_le_bytes(), message].concat();
        pair.sends.push_back((bytes, 0, buf));
    }
}

impl PairIo for Sim {
    type Connection = SimSocket;

    fn pair_up(&mut self, connection: SimSocket, receives: Receives) -> io::Result<SimSocket> {
        let SimSocket { wire, side } = connection;
        let (sends, incoming, done) = (VecDeque::new(), Vec::new(), VecDeque::new());
        self.pairs.pairs.push(Pair { wire, side, receives, sends, incoming, waits: false, done, dead: false });
        Ok(connection)
    }

    fn post_send(&mut self, pair: &SimSocket, token: u64, buf: Buf, at: usize, len: usize) {
        let message = buf.whole()[at..at + len].to_vec();
        self.pairs.post(pair, &message, Some((token, buf)));
    }

    fn post_word(&mut self, pair: &SimSocket, word: Word) {
        self.pairs.post(pair, &word, None);
    }

    fn add_receive(&mut self, least: usize) -> bool {
        if self.pairs.spare > 0 {
            self.pairs.spare -= 1;
            return true;
        }
        let Some(buf) = Some(&mut self.pool).filter(|pool| pool.free() > least).and_then(|pool| pool.take()) else {
            return false;
        };
        self.pairs.queue.push_back(buf);
        true
    }

    fn poll_pair(&mut self, pair: &SimSocket) -> Option<Completion> {
        let index = self.pairs.at(pair).expect("a pair");
        let Pairs { pairs, queue, counts, .. } = &mut self.pairs;
        let pair = &mut pairs[index];
        if pair.done.is_empty() && !pair.dead {
            let mut world = lock(&self.world);
            if let Err(why) = pair.step(&mut world.net, queue, counts) {
                pair.die(why);
            }
            world.activity += u64::from(!pair.done.is_empty());
        }
        pair.done.pop_front()
    }

    fn pair_over(&mut self, pair: &SimSocket, receives: usize) {
        self.pairs.cut(pair);
        let index = self.pairs.at(pair).expect("a pair");
        for completion in self.pairs.pairs.swap_remove(index).done {
            if let Completion::Sent { buf, .. } | Completion::Frame { buf, .. } = completion {
                self.pool.give(buf);
            }
        }
        self.pairs.spare += receives;
        if !self.pairs.pairs.iter().any(|it| it.receives == Receives::Frames && !it.dead) {
            self.pairs.queue.drain(..).for_each(|buf| self.pool.give(buf));
            self.pairs.spare = 0;
        }
    }

    fn pair_counts(&self) -> PairCounts {
        self.pairs.counts
    }
}

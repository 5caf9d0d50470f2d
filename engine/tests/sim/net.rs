//! Paths in memory: byte pipes with delay, short moves, cuts, resets and one flipped bit; and datagrams, to which more may happen.
//!
//! For: rails of simulated jobs.
//! In and out: bytes or datagrams in at one side, out at the other after their time, if at all.
//! Invariants: bytes of a direction keep their order, datagrams need not; what a reset finds in flight is lost, and a reset path for
//! datagrams takes and loses all that follows, without a word; no sleep, only virtual time.
//! Absent on purpose: loss and reordering within a stream (TCP has none).

use std::collections::{BTreeMap, VecDeque};
use std::io;

use crate::disk::Clock;
use crate::rng::Rng;

#[derive(Debug, Default)]
struct Pipe {
    parts: VecDeque<(u64, Vec<u8>, usize)>, // when it is there, bytes, how many of them were taken
    queued: usize,
    last_ns: u64,
}

/// Datagrams on their way, in the order in which they arrive.
#[derive(Debug, Default)]
struct Swarm {
    packets: BTreeMap<(u64, u64), (Vec<u8>, bool)>,
    last_ns: u64,
}

/// What happens to datagrams, in permille.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) loss: u64,
    pub(crate) twice: u64,
    pub(crate) flip: u64,
    /// No more than so many.
    pub(crate) flips_left: u64,
    pub(crate) marked: u64,
    /// Of the packets, so many are late by up to `late_ns`.
    pub(crate) late: u64,
    pub(crate) late_ns: u64,
    /// The socket is full.
    pub(crate) full: u64,
    /// Longest datagram, 0: any.
    pub(crate) mtu: usize,
    /// What waits for the wire longer than this is dropped.
    pub(crate) queue_ns: u64,
}

#[derive(Debug, Default)]
struct Wire {
    ways: [Pipe; 2], // by the side that sends
    swarms: [Swarm; 2],
    shut: [bool; 2],
    reset: bool,
}

/// All paths of one world.
#[derive(Debug)]
pub(crate) struct Net {
    clock: Clock,
    rng: Rng,
    wires: Vec<Wire>,
    pub(crate) latency_ns: u64,
    pub(crate) ns_per_kib: u64,
    pub(crate) room: usize,
    pub(crate) short: u64,
    /// Flip one bit of the byte that is so far in the sum of all bytes sent.
    pub(crate) flip_at: Option<u64>,
    pub(crate) flipped: bool,
    sent: u64,
    pub(crate) weather: Weather,
    /// Datagrams so far, and those that were harmed on their way.
    pub(crate) datagrams: u64,
    pub(crate) datagrams_flipped: u64,
    /// The next time at which something arrives.
    pub(crate) wakes: std::collections::BTreeSet<u64>,
}

impl Net {
    pub(crate) fn new(clock: Clock, rng: Rng) -> Self {
        Net {
            clock,
            rng,
            wires: Vec::new(),
            latency_ns: 1_000_000,
            ns_per_kib: 10_000,
            room: 256 << 10,
            short: 0,
            flip_at: None,
            flipped: false,
            sent: 0,
            weather: Weather::default(),
            datagrams: 0,
            datagrams_flipped: 0,
            wakes: std::collections::BTreeSet::new(),
        }
    }

    pub(crate) fn open(&mut self) -> usize {
        self.wires.push(Wire::default());
        self.wires.len() - 1
    }

    /// None: no room now.
    pub(crate) fn send(&mut self, wire: usize, side: usize, bytes: &[u8]) -> Option<io::Result<usize>> {
        let now = self.clock.now();
        let it = &mut self.wires[wire];
        if it.reset || it.shut[1 - side] {
            return Some(Err(io::Error::from_raw_os_error(104)));
        }
        if it.shut[side] {
            return Some(Err(io::Error::from_raw_os_error(32)));
        }
        let pipe = &mut it.ways[side];
        let mut len = bytes.len().min(self.room.saturating_sub(pipe.queued));
        if len == 0 {
            return None;
        }
        if len > 1 && self.rng.permille(self.short) {
            len = self.rng.between(1, len as u64 - 1) as usize;
        }
        let mut part = bytes[..len].to_vec();
        if let Some(at) = self.flip_at.filter(|&at| at >= self.sent && at < self.sent + len as u64) {
            part[(at - self.sent) as usize] ^= 1 << self.rng.below(8);
            (self.flip_at, self.flipped) = (None, true);
        }
        self.sent += len as u64;
        let start = pipe.last_ns.max(now + self.latency_ns);
        let there = start + len as u64 * self.ns_per_kib / 1024;
        pipe.last_ns = there;
        pipe.queued += len;
        pipe.parts.push_back((there, part, 0));
        self.wakes.insert(there);
        Some(Ok(len))
    }

    /// None: nothing is there now.
    pub(crate) fn recv(&mut self, wire: usize, side: usize, into: &mut [u8]) -> Option<io::Result<usize>> {
        let now = self.clock.now();
        let it = &mut self.wires[wire];
        if it.reset {
            return Some(Err(io::Error::from_raw_os_error(104)));
        }
        if it.shut[side] {
            return Some(Ok(0));
        }
        let gone = it.shut[1 - side];
        let pipe = &mut it.ways[1 - side];
        let mut done = 0;
        while done < into.len() {
            let Some((there, part, taken)) = pipe.parts.front_mut().filter(|(there, ..)| *there <= now) else { break };
            let _ = there;
            let mut len = (into.len() - done).min(part.len() - *taken);
            let short = len > 1 && self.rng.permille(self.short);
            if short {
                len = self.rng.between(1, len as u64 - 1) as usize;
            }
            into[done..done + len].copy_from_slice(&part[*taken..*taken + len]);
            *taken += len;
            done += len;
            pipe.queued -= len;
            if *taken == part.len() {
                pipe.parts.pop_front();
            }
            if short {
                break;
            }
        }
        if done > 0 {
            return Some(Ok(done));
        }
        (gone && pipe.parts.is_empty()).then_some(Ok(0))
    }

    /// One datagram. Errors: the socket was cut, it is full, the datagram is too long.
    pub(crate) fn send_datagram(&mut self, wire: usize, side: usize, parts: [&[u8]; 2]) -> io::Result<()> {
        let (now, weather) = (self.clock.now(), self.weather);
        let it = &mut self.wires[wire];
        let len = parts[0].len() + parts[1].len();
        if it.shut[side] {
            return Err(io::Error::from_raw_os_error(32));
        }
        if weather.mtu > 0 && len > weather.mtu {
            return Err(io::Error::from_raw_os_error(90));
        }
        if self.rng.permille(weather.full) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.datagrams += 1;
        let swarm = &mut it.swarms[side];
        let start = swarm.last_ns.max(now);
        if start - now > weather.queue_ns || it.reset || it.shut[1 - side] || self.rng.permille(weather.loss) {
            return Ok(());
        }
        swarm.last_ns = start + len as u64 * self.ns_per_kib / 1024;
        for _ in 0..1 + u64::from(self.rng.permille(weather.twice)) {
            let mut packet = parts.concat();
            if self.weather.flips_left > 0 && self.rng.permille(weather.flip) {
                self.weather.flips_left -= 1;
                let bit = self.rng.below(len as u64 * 8) as usize;
                packet[bit / 8] ^= 1 << (bit % 8);
                self.datagrams_flipped += 1;
            }
            let late = if self.rng.permille(weather.late) { self.rng.below(weather.late_ns + 1) } else { 0 };
            let there = swarm.last_ns + self.latency_ns + late;
            let marked = self.rng.permille(weather.marked);
            swarm.packets.insert((there, self.datagrams * 2 + u64::from(late > 0)), (packet, marked));
            self.wakes.insert(there);
        }
        Ok(())
    }

    /// Datagrams that are there and look alike, one after another: their bytes, the length of each, whether they are marked.
    pub(crate) fn recv_datagrams(&mut self, wire: usize, side: usize, into: &mut [u8]) -> Option<(usize, usize, bool)> {
        let now = self.clock.now();
        let swarm = &mut self.wires[wire].swarms[1 - side];
        let (mut bytes, mut each, mut mark) = (0, 0, false);
        let most = self.rng.between(1, 64);
        for count in 0..most {
            let Some(first) = swarm.packets.first_entry().filter(|it| it.key().0 <= now) else { break };
            let (packet, marked) = first.get();
            let fits = bytes + packet.len() <= into.len();
            if count > 0 && (packet.len() > each || *marked != mark || !fits) {
                break;
            }
            let (packet, marked) = first.remove();
            into[bytes..bytes + packet.len()].copy_from_slice(&packet);
            bytes += packet.len();
            if count == 0 {
                (each, mark) = (packet.len(), marked);
            } else if packet.len() < each {
                break;
            }
        }
        (each > 0).then_some((bytes, each, mark))
    }

    /// Is there a datagram, or was the socket cut?
    pub(crate) fn is_readable(&self, wire: usize, side: usize) -> bool {
        let it = &self.wires[wire];
        let first = it.swarms[1 - side].packets.first_key_value();
        it.shut[side] || first.is_some_and(|(at, _)| at.0 <= self.clock.now())
    }

    /// Are bytes of the stream there for this side, or its end?
    pub(crate) fn has_bytes(&self, wire: usize, side: usize) -> bool {
        let it = &self.wires[wire];
        let first = it.ways[1 - side].parts.front();
        let is_over = it.shut[1 - side] && first.is_none();
        it.reset || it.shut[side] || is_over || first.is_some_and(|(there, ..)| *there <= self.clock.now())
    }

    /// Has the stream room for bytes of this side, or no way any more?
    pub(crate) fn has_room(&self, wire: usize, side: usize) -> bool {
        let it = &self.wires[wire];
        it.reset || it.shut[0] || it.shut[1] || it.ways[side].queued < self.room
    }

    /// One side shuts both directions: what it sent still arrives, what comes to it does not.
    pub(crate) fn shut(&mut self, wire: usize, side: usize) {
        self.wires[wire].shut[side] = true;
    }

    /// Everything in flight is lost and both sides learn it.
    pub(crate) fn reset(&mut self, wire: usize) {
        self.wires[wire].reset = true;
        for pipe in &mut self.wires[wire].ways {
            pipe.parts.clear();
        }
        for swarm in &mut self.wires[wire].swarms {
            swarm.packets.clear();
        }
    }

    pub(crate) fn is_open(&self, wire: usize) -> bool {
        let it = &self.wires[wire];
        !(it.reset || it.shut[0] || it.shut[1])
    }
}

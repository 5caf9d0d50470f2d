//! Paths in memory: byte pipes with delay, short moves, cuts, resets and one flipped bit.
//!
//! For: rails of simulated jobs.
//! In and out: bytes in at one side, out at the other after their time.
//! Invariants: bytes of a direction keep their order; what a reset finds in flight is lost; no sleep, only virtual time.
//! Absent on purpose: loss and reordering within a stream (TCP has none).

use std::collections::VecDeque;
use std::io;

use crate::disk::Clock;
use crate::rng::Rng;

#[derive(Debug, Default)]
struct Pipe {
    parts: VecDeque<(u64, Vec<u8>, usize)>, // when it is there, bytes, how many of them were taken
    queued: usize,
    last_ns: u64,
}

#[derive(Debug, Default)]
struct Wire {
    ways: [Pipe; 2], // by the side that sends
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
    }

    pub(crate) fn is_open(&self, wire: usize) -> bool {
        let it = &self.wires[wire];
        !(it.reset || it.shut[0] || it.shut[1])
    }
}

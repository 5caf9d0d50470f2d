//! The session's bytes a second time, over datagrams: whichever copy comes first counts.
//!
//! For: a session of small words on a path that loses, where TCP waits for a timer after nearly every loss, three round trips and more.
//! In and out: bytes as they go to the session's connection, and as they come over it or in datagrams, in; parts to be sent in datagrams, and the
//! bytes that are new and next, out.
//! Invariants: the connection carries all bytes, so nothing here is ever needed, and all of it may be dropped: at most `KEPT` segments that are not
//! acknowledged, at most `KEPT` pieces that came too early, `REACH` bytes ahead; an acknowledgement of what was never sent, and a piece beyond the
//! reach, change nothing; the bytes stay as they were sealed, so that nothing is sealed twice and a repeated datagram does no harm.
//! Absent on purpose: the socket and the MAC (node), what the bytes mean, when another address is greeted (node, by `is_silent`).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use crate::packet::{RANGES_MAX, SESSION_BYTES_MAX};
use crate::session::Moment;

/// Segments of what was sent that wait for their acknowledgement, and pieces of what came: 70 kB each way at most. Where more is on its way TCP has
/// enough segments there to find its losses by itself.
const KEPT: usize = 64;
/// Pieces come from no further ahead.
const REACH: u64 = (KEPT * SESSION_BYTES_MAX) as u64 * 2;
/// So many segments go at once; those beyond only if they are not acknowledged in time: a manifest of megabytes does not go twice.
const EAGER: usize = 8;
/// Beside the round trip and a quarter: the peer's thread has this to wake up and answer in.
const LATE: Duration = Duration::from_millis(10);
/// So many segments of a session, its first, go a second time so soon: what a job begins with is a few of them, each waited for by the other end, and
/// one that is lost costs two round trips on a short path.
const TWICE: u32 = 8;
const SECOND: Duration = Duration::from_millis(4);
/// So many times a segment goes at that pace, then after twice as long each time, up to the longest.
const STEADY: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// The oldest segment went so often and was not acknowledged: nothing gets through, and it alone goes on being tried.
const SILENT: u32 = 6;
/// What came over the connection is told within an eighth of the round trip, and never sooner than this.
const TELL: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Segment {
    from: u64,
    bytes: Vec<u8>,
    due: Moment,
    sent: Moment,
    tries: u32,
    /// It goes once more, at once.
    is_twice: bool,
    /// It went twice, so that nobody knows which of both was acknowledged.
    went_twice: bool,
}

impl Segment {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }
}

/// What goes into one datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Where the bytes stand in what this end sends.
    pub offset: u64,
    /// None: it only tells what came.
    pub bytes: Vec<u8>,
    /// What came out of order, from and to, ascending.
    pub beyond: Vec<(u64, u64)>,
}

/// Both directions of one session at one end.
#[derive(Debug)]
pub struct Duplicates {
    rtt: Duration,
    deviation: Duration,
    /// All before this was handed in.
    end: u64,
    segments: VecDeque<Segment>,
    /// What came too early.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// What came is to be told by then.
    tell: Option<Moment>,
    /// The peer has so much of what this end sent.
    acked: u64,
    /// Segments that may still go twice.
    twice_left: u32,
}

impl Duplicates {
    /// From `end` of what this end sends on, over a path of this round trip.
    #[must_use]
    pub fn new(end: u64, rtt: Duration) -> Duplicates {
        let (segments, pieces) = (VecDeque::new(), BTreeMap::new());
        Duplicates { rtt, deviation: rtt / 8, end, segments, pieces, tell: None, acked: end, twice_left: TWICE }
    }

    /// The connection took these bytes, which stand at `from`. What is handed in again, for another connection, is known.
    pub fn on_sent(&mut self, now: Moment, from: u64, bytes: &[u8]) {
        let known = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get(known..) else { return };
        let mut at = from.max(self.end);
        for bytes in bytes.chunks(SESSION_BYTES_MAX) {
            if self.segments.len() < KEPT {
                let is_eager = self.segments.len() < EAGER && !self.is_silent();
                let due = if is_eager { now } else { now + self.patience() };
                let (bytes, is_twice) = (bytes.to_vec(), is_eager && self.twice_left > 0);
                self.twice_left -= u32::from(is_twice);
                let (tries, went_twice) = (0, false);
                self.segments.push_back(Segment { from: at, bytes, due, sent: now, tries, is_twice, went_twice });
            }
            at += bytes.len() as u64;
        }
        self.end = at;
    }

    /// The peer has so many bytes in order, and these beyond.
    pub fn on_told(&mut self, now: Moment, received: u64, beyond: &[(u64, u64)]) {
        if received > self.end {
            return;
        }
        self.acked = self.acked.max(received);
        let has =
            |it: &Segment| it.end() <= received || beyond.iter().any(|&(from, to)| from <= it.from && it.end() <= to);
        let sample = self
            .segments
            .iter()
            .filter(|it| it.tries == 1 && !it.went_twice && has(it))
            .map(|it| now.since(it.sent))
            .min();
        self.segments.retain(|it| !has(it));
        if let Some(sample) = sample {
            let off = sample.abs_diff(self.rtt);
            self.deviation = (self.deviation * 3 + off) / 4;
            self.rtt = (self.rtt * 7 + sample) / 8;
        }
    }

    /// A piece came in a datagram; `received`: what this end has in order. What is new and next of it, and of what came too early.
    pub fn on_piece(&mut self, now: Moment, received: u64, from: u64, bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return Vec::new();
        }
        self.tell = Some(now);
        if from > received {
            let is_near = from + bytes.len() as u64 <= received.saturating_add(REACH);
            if is_near && self.pieces.len() < KEPT {
                self.pieces.entry(from).or_insert_with(|| bytes.to_vec());
            }
            return Vec::new();
        }
        let mut new = Vec::new();
        new.extend(rest(received, from, bytes));
        self.drain(received, new)
    }

    /// The connection brought bytes that stand at `from`. What is new and next.
    pub fn on_stream(&mut self, now: Moment, received: u64, from: u64, bytes: &[u8]) -> Vec<u8> {
        let new = rest(received, from, bytes).to_vec();
        if !new.is_empty() {
            let then = now + TELL.max(self.rtt / 8);
            self.tell = Some(self.tell.map_or(then, |tell| tell.min(then)));
        }
        self.drain(received, new)
    }

    /// Takes out what now follows `new`, which follows `received`.
    fn drain(&mut self, received: u64, mut new: Vec<u8>) -> Vec<u8> {
        while let Some(piece) = self.pieces.first_entry() {
            let at = received + new.len() as u64;
            if *piece.key() > at {
                break;
            }
            let (from, bytes) = piece.remove_entry();
            new.extend(rest(at, from, &bytes));
        }
        new
    }

    /// What goes now; called until nothing does.
    pub fn next(&mut self, now: Moment, received: u64) -> Option<Next> {
        let (patience, is_silent) = (self.patience(), self.is_silent());
        let most = if is_silent { 1 } else { self.segments.len() };
        let due = self.segments.iter_mut().take(most).find(|it| it.due <= now);
        let (offset, bytes) = match due {
            Some(it) if it.is_twice => {
                (it.is_twice, it.went_twice, it.due) = (false, true, now + SECOND);
                (it.from, it.bytes.clone())
            }
            Some(it) => {
                it.tries += 1;
                it.sent = now;
                let pause = patience * 2u32.saturating_pow(it.tries.saturating_sub(STEADY).min(16));
                it.due = now + pause.min(PAUSE_MAX.max(patience));
                (it.from, it.bytes.clone())
            }
            None if self.tell.is_some_and(|tell| tell <= now) => (self.end, Vec::new()),
            None => return None,
        };
        self.tell = None;
        Some(Next { offset, bytes, beyond: self.beyond(received) })
    }

    /// When `next` has something at the latest.
    #[must_use]
    pub fn due(&self) -> Option<Moment> {
        let most = if self.is_silent() { 1 } else { self.segments.len() };
        self.segments.iter().take(most).map(|it| it.due).chain(self.tell).min()
    }

    /// Nothing gets through: what was sent again and again was not acknowledged.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.segments.front().is_some_and(|it| it.tries >= SILENT)
    }

    /// A path on which nothing was said yet: all that is not acknowledged goes again, the oldest at once.
    pub fn on_path(&mut self, now: Moment) {
        let patience = self.patience();
        for (at, it) in self.segments.iter_mut().enumerate() {
            it.tries = 0;
            it.due = if at < EAGER { now } else { now + patience };
        }
        self.tell = Some(now);
    }

    fn patience(&self) -> Duration {
        self.rtt + (self.rtt / 4).max(self.deviation * 4) + LATE
    }

    fn beyond(&self, received: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&from, bytes) in self.pieces.range(received + 1..) {
            let to = from + bytes.len() as u64;
            let count = ranges.len();
            match ranges.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ if count == RANGES_MAX => break,
                _ => ranges.push((from, to)),
            }
        }
        ranges
    }
}

/// Of bytes that stand at `from`, what is at `at` and behind it.
fn rest(at: u64, from: u64, bytes: &[u8]) -> &[u8] {
    let known = usize::try_from(at.saturating_sub(from)).unwrap_or(usize::MAX);
    bytes.get(known..).unwrap_or_default()
}

#[cfg(test)]
#[path = "duplicate_tests.rs"]
mod tests;

//! The control session of a run over connections that die.
//!
//! For: frames that cross as in life, by the machine of `proto::session::reconnect` at either end, over a connection that is lost at any frame or
//! at any word of the handshake that replaces it.
//! In and out: frames of either side in; the same frames, in order, each once, out.
//! Invariants: a frame that is on a connection when it dies is lost with it; a new connection brings what the other end lacks and nothing else;
//! chance is drawn from a stream of its own, so that a story without a session is the same as ever.
//! Absent on purpose: TLS, keys and bytes (node): what is counted here are frames; the end of a process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proto::session::connection::Connection;
use proto::session::reconnect::{Break, Reconnect};
use proto::session::{Moment, PULSE};

use crate::rng::Rng;

/// How often a session went on over another connection.
pub(crate) static RESUMED: AtomicU64 = AtomicU64::new(0);

/// As `--stall` is by default.
const STALL: Duration = Duration::from_secs(60);

/// What is on a connection.
#[derive(Debug, Clone, Copy)]
enum Item {
    /// The frame of that number.
    Frame(usize),
    /// The initiator has so many frames.
    Count(usize),
    /// The acceptor has so many frames, and goes on here.
    Answer(usize),
    /// The other end has closed it.
    End,
}

/// A connection, as both kernels and what is in between see it.
#[derive(Debug, Default)]
struct Line {
    /// Nothing passes from then on.
    dead_from: Option<u64>,
    /// And the kernels say so then; never: it is silent.
    fails_at: Option<u64>,
    /// What each side has sent, and when it is there.
    ways: [VecDeque<(u64, Item)>; 2],
    /// When each thing that a side sent will be acknowledged.
    owed: [VecDeque<u64>; 2],
    /// When anything was acknowledged to a side last.
    answered: [u64; 2],
}

impl Line {
    fn new(now: u64) -> Line {
        Line { answered: [now; 2], ..Line::default() }
    }

    fn passes(&self, at: u64) -> bool {
        self.dead_from.is_none_or(|from| at < from)
    }

    fn put(&mut self, side: usize, now: u64, latency_ns: u64, item: Item) {
        let at = self.ways[side].back().map_or(0, |(at, _)| *at).max(now + latency_ns);
        self.ways[side].push_back((at, item));
        self.owed[side].push_back(at + latency_ns);
    }

    /// What is there for `side`, if its time has come.
    fn take(&mut self, side: usize, now: u64) -> Option<Item> {
        let (at, item) = *self.ways[1 - side].front()?;
        if at > now || !self.passes(at) {
            return None;
        }
        self.ways[1 - side].pop_front();
        Some(item)
    }

    /// What a kernel knows of it.
    fn facts(&mut self, side: usize, now: u64, latency_ns: u64) -> Connection {
        while let Some(at) = self.owed[side].front().copied().filter(|at| *at <= now && self.passes(*at)) {
            self.owed[side].pop_front();
            self.answered[side] = at;
        }
        let ago = Duration::from_nanos(now - self.answered[side]);
        let rtt = Duration::from_nanos(2 * latency_ns);
        Connection { rtt, is_owed: !self.owed[side].is_empty(), unanswered: ago, unheard: ago }
    }
}

/// One end of the session.
#[derive(Debug)]
struct End {
    reconnect: Reconnect,
    /// All frames that it ever said; empty: a report of how it goes.
    said: Vec<Vec<u8>>,
    /// So many of them are on its connection, or were.
    written: usize,
    /// So many of the other's it has.
    taken: usize,
    /// Of these, those that nobody looked at yet.
    inbox: VecDeque<Vec<u8>>,
    /// The connection that carries the session for it.
    line: usize,
    /// One that this end has told its count on.
    candidate: Option<usize>,
    reported_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    rng: Rng,
    latency_ns: u64,
    initiator: usize,
    ends: [End; 2],
    lines: Vec<Line>,
    /// Things put on connections so far, and when the connection dies that has the next: at these counts.
    put: u64,
    cuts: VecDeque<u64>,
    /// A dial is answered then.
    dial: Option<u64>,
}

impl Session {
    /// A session between two ends that are `latency_ns` apart. Its connections die at most three times, at any frame or word of a handshake: a
    /// fourth in a row that brings nothing would end it, and rightly.
    pub(crate) fn new(mut rng: Rng, now: u64, latency_ns: u64, initiator: usize) -> Session {
        let end = |side| End {
            reconnect: Reconnect::new(Moment::from_ns(now), side == initiator, STALL),
            said: Vec::new(),
            written: 0,
            taken: 0,
            inbox: VecDeque::new(),
            line: 0,
            candidate: None,
            reported_ns: now,
        };
        let mut at = 0;
        let cuts = (0..rng.between(1, 3)).map(|_| {
            at += 1 + *rng.pick(&[0, 1, 2, 5, 40, 400]) + rng.below(4);
            at
        });
        let cuts = cuts.collect();
        Session {
            rng,
            latency_ns,
            initiator,
            ends: [end(0), end(1)],
            lines: vec![Line::new(now)],
            put: 0,
            cuts,
            dial: None,
        }
    }

    /// An end says a frame.
    pub(crate) fn say(&mut self, side: usize, now: u64, frame: Vec<u8>) {
        self.ends[side].said.push(frame);
        self.write(side, now);
    }

    /// One iteration of an end's driver: reports, looks for the peer, and goes on over another connection. A text: something was done for that.
    pub(crate) fn iterate(&mut self, side: usize, now: u64) -> Option<String> {
        let moment = Moment::from_ns(now);
        if now - self.ends[side].reported_ns >= PULSE.as_nanos() as u64 {
            self.ends[side].reported_ns = now;
            self.say(side, now, Vec::new());
        }
        let line = self.ends[side].line;
        if self.lines[line].fails_at.take_if(|at| *at <= now).is_some() {
            assert!(self.ends[side].reconnect.on_break(Break::Failed), "a connection that failed is waited for");
            // The other end's kernel says so as well, in its time.
            self.lines[line].fails_at = Some(u64::MAX);
        }
        if self.ends[side].reconnect.is_unproven(moment) {
            self.ends[side].candidate = None;
        }
        let facts = self.lines[line].facts(side, now, self.latency_ns);
        if self.ends[side].reconnect.next_dial(moment, Some(&facts)) {
            assert_eq!(side, self.initiator, "an acceptor never dials");
            self.dial = Some(now + 2 * self.latency_ns + self.rng.below(200_000_000));
        }
        if side == self.initiator { self.initiate(now) } else { self.accept(now) }
    }

    /// A dial that was answered, and the count that comes back.
    fn initiate(&mut self, now: u64) -> Option<String> {
        let (side, moment) = (self.initiator, Moment::from_ns(now));
        if self.dial.take_if(|at| *at <= now).is_some() {
            if self.rng.permille(200) {
                self.ends[side].reconnect.on_dial_failed(false).expect("no refusal");
                return Some(format!("{side}: a dial came to nothing"));
            }
            let line = self.lines.len();
            self.lines.push(Line::new(now));
            self.read(side, now);
            let taken = self.ends[side].taken;
            self.put_on(line, side, now, Item::Count(taken));
            self.ends[side].reconnect.on_count_sent(moment, true);
            self.ends[side].candidate = Some(line);
        }
        let line = self.ends[side].candidate?;
        match self.lines[line].take(side, now)? {
            Item::Answer(theirs) => Some(self.change(side, now, line, theirs)),
            other => panic!("{other:?} before an answer"),
        }
    }

    /// A count that came to the acceptor.
    fn accept(&mut self, now: u64) -> Option<String> {
        let side = 1 - self.initiator;
        let is_count = |line: &Line| matches!(line.ways[1 - side].front(), Some((at, Item::Count(_))) if *at <= now);
        let line = self.lines.iter().position(is_count)?;
        let Item::Count(theirs) = self.lines[line].take(side, now).unwrap_or(Item::End) else {
            // It died on its way.
            self.lines[line].ways[1 - side].clear();
            return None;
        };
        self.read(side, now);
        let (taken, old) = (self.ends[side].taken, self.ends[side].line);
        self.put_on(line, side, now, Item::Answer(taken));
        self.put_on(old, side, now, Item::End);
        Some(self.change(side, now, line, theirs))
    }

    /// The session goes on over `line`; the other end has `theirs` frames of this one.
    fn change(&mut self, side: usize, now: u64, line: usize, theirs: usize) -> String {
        let end = &mut self.ends[side];
        assert!(theirs <= end.said.len(), "{side} is told of {theirs} frames of {}", end.said.len());
        end.reconnect.begin_change().expect("three connections at most bring nothing");
        end.reconnect.on_changed(Moment::from_ns(now));
        let lacks = end.said.len() - theirs;
        (end.line, end.candidate, end.written) = (line, None, theirs);
        self.write(side, now);
        RESUMED.fetch_add(1, Ordering::Relaxed);
        format!("{side}: the session goes on over connection {line}, {lacks} frames go again")
    }

    /// What was said and is not on the connection yet.
    fn write(&mut self, side: usize, now: u64) {
        while !self.ends[side].reconnect.is_between() && self.ends[side].written < self.ends[side].said.len() {
            let (line, frame) = (self.ends[side].line, self.ends[side].written);
            self.ends[side].written += 1;
            self.put_on(line, side, now, Item::Frame(frame));
        }
    }

    /// Puts something on a connection, which may die with it.
    fn put_on(&mut self, line: usize, side: usize, now: u64, item: Item) {
        self.lines[line].put(side, now, self.latency_ns, item);
        self.put += 1;
        if self.cuts.front().is_some_and(|at| *at <= self.put) {
            self.cuts.pop_front();
            let fails_at = self.rng.permille(400).then(|| now + self.rng.below(1_000_000_000));
            let line = &mut self.lines[line];
            (line.dead_from, line.fails_at) = (Some(now), fails_at);
        }
    }

    /// Reads the connection empty.
    fn read(&mut self, side: usize, now: u64) {
        let line = self.ends[side].line;
        while let Some(item) = self.lines[line].take(side, now) {
            let Item::Frame(number) = item else {
                // The other end went on over a connection whose answer was lost, and closed this one.
                assert!(matches!(item, Item::End), "{item:?}");
                assert!(self.ends[side].reconnect.on_break(Break::Cut), "{side}: an end that was explained");
                return;
            };
            assert_eq!(number, self.ends[side].taken, "{side}: frames come in order, each once");
            let frame = self.ends[1 - side].said[number].clone();
            let end = &mut self.ends[side];
            end.taken += 1;
            end.inbox.push_back(frame);
        }
    }

    /// The next frame for an end.
    pub(crate) fn next(&mut self, side: usize, now: u64) -> Option<Vec<u8>> {
        if !self.ends[side].reconnect.is_between() {
            self.read(side, now);
            self.write(side, now);
        }
        let end = &mut self.ends[side];
        while !end.reconnect.is_between() {
            let Some(frame) = end.inbox.pop_front() else { break };
            end.reconnect.on_frame();
            if !frame.is_empty() {
                return Some(frame);
            }
            end.reconnect.on_report(Moment::from_ns(now));
        }
        None
    }

    /// Has each end all that the other said?
    pub(crate) fn is_said(&self) -> bool {
        [0, 1].into_iter().all(|side| {
            let lacks = &self.ends[1 - side].said[self.ends[side].taken..];
            self.ends[side].inbox.iter().chain(lacks).all(Vec::is_empty)
        })
    }

    /// When something is on its way, the time at which it is there.
    pub(crate) fn next_ns(&self, now: u64) -> u64 {
        let fronts = self.lines.iter().flat_map(|line| line.ways.iter()).filter_map(|way| way.front());
        let next = fronts.map(|(at, _)| *at).filter(|at| *at > now).min().unwrap_or(u64::MAX);
        next.min(self.dial.unwrap_or(u64::MAX).max(now + 1))
    }
}

//! The paths of a job and its rails: which are dialled, paced, left, and dialled again.
//!
//! For: one job over all links that there are, each as fast as it is, and no link that holds up the others.
//! In and out: rails that come and go, dials that fail, counters of rails in; dials, paces and cuts out.
//! Invariants: where there is one path nothing is paced or cut here; a rail is cut only while a rail on another path brings something; what a cut rail
//! owed goes again over others only after the receiver has said what came of it (`send`).
//! Absent on purpose: which chunk goes where (`send`), connecting and its numbers (the job driver), names and addresses of paths (likewise).

pub mod timeouts; // a stream in a timeout at the end of a job
pub mod track; // what one rail brought lately

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use super::Moment;
use crate::send::{Brings, Pace};
use timeouts::Timeouts;
use track::{Seen, Track};

/// Rails are looked at this often: ten looks in the window of a rate.
const LOOK: Duration = Duration::from_millis(100);
/// A path that lost a rail is dialled again after this long (one retransmission timeout of Linux, 200 ms); one that became slow after this long, so
/// that a rate can be measured before it is judged again.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_SLOW: Duration = Duration::from_secs(2);
/// The end of a job is looked at this often: a chunk of 4 MiB takes 3 ms at 10 Gbit/s.
const LOOK_TAIL: Duration = Duration::from_millis(5);
/// Beside a round trip, until what was taken from a straggler is in flight over the others: the peer's report of the rail's end, and reading again.
const LEAD: Duration = Duration::from_millis(20);
/// A path that was too slow for the end of a job is not dialled again for it: longer than any tail lasts.
const PAUSE_TAIL: Duration = Duration::from_secs(600);
/// A rail may owe what it brings in this time and two round trips, and `CHUNKS_OWED` chunks. The receiver acknowledges a chunk when it is written,
/// on a busy machine some hundred milliseconds later: with less, a rail that was slow once would stay slow.
const OWED: Duration = Duration::from_secs(1);
const CHUNKS_OWED: u64 = 4;
/// An acceptor tells no more paths apart than this; rails from elsewhere are counted with the last. Twice the ports of a large host.
pub const PATHS_MAX: usize = 64;
/// A rail that is given up may bring what it has for this long; then the rest goes again over others.
const DRAIN: Duration = Duration::from_secs(3);
/// After a rail was closed its end is awaited for this long before it is closed again.
const CLOSE: Duration = Duration::from_secs(60);
/// After a dial that failed the next one waits this long, times the failures so far.
const DIAL_PAUSE: Duration = Duration::from_millis(400);
/// So many dials may fail one after another before the job is lost: with the pauses, 6 s on top of the dials' own timeouts.
const DIALS_MAX: u32 = 5;

/// UDP that did not get through is greeted again after this, then after twice as long, up to the longest: a path that came back or a loss that was
/// chance is found within a tenth of a job's time, and a firewall sees a few packets a minute.
const UDP_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// Where no rail was ever there and the network refuses or swallows each dial, the job ends at the first dial that fails so long after the first was
/// begun: refused ones end after 6 s (the pauses above), swallowed ones with the first, at a dial's own 10 s. The session has shown that the
/// peer is there, so this is no outage, which lasts as long as it likes.
const FIRST_RAIL: Duration = Duration::from_secs(5);

/// What a rail is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// TCP, or a pair within one process.
    Stream,
    /// UDP.
    Datagram,
}

/// How many rails of each kind are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Over TCP.
    pub streams: usize,
    /// Over UDP.
    pub datagrams: usize,
}

impl Wanted {
    fn of(self, kind: Kind) -> usize {
        match kind {
            Kind::Stream => self.streams,
            Kind::Datagram => self.datagrams,
        }
    }
}

/// A rail to be dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial {
    /// Over this path.
    pub path: usize,
    /// Streams or datagrams.
    pub kind: Kind,
}

/// What becomes of a TCP rail that could not be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed {
    /// Of several paths, this one is away since now: the user is to be told.
    pub is_news: bool,
    /// What is done.
    pub next: Next,
}

/// What is done after a dial that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Other paths carry, or are tried; this one is dialled again soon.
    Others,
    /// It is dialled again after a pause that grows.
    Again,
    /// Too many failed in a row, and no rail carries.
    Lost,
    /// No rail was ever there, and the network lets none through.
    Never,
}

/// Counters of one rail; `seen`: `None` if it has none any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The rail's number.
    pub rail: u16,
    /// Its counters.
    pub seen: Option<Seen>,
    /// It owes chunks (at a receiver: always).
    pub is_busy: bool,
}

/// Why a rail is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It brings nothing any more.
    Silent,
    /// It brings so many times less than it did.
    Slower(u64),
}

/// A rail to be cut now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// The number of the rail.
    pub rail: u16,
    /// The path it goes over.
    pub path: usize,
    /// Of which kind it is.
    pub kind: Kind,
    /// The reason.
    pub why: Why,
}

/// What a look at the rails leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Look {
    /// How much each rail may owe from now on; empty at a receiver.
    pub paces: Vec<(u16, Pace)>,
    /// Rails to cut.
    pub cuts: Vec<Cut>,
}

/// What is told of two ends' rails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Round trip of the session.
    pub rtt: Duration,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// This end sends: it alone paces and cuts.
    pub sends: bool,
}

/// When UDP is greeted again on a path where it did not get through.
#[derive(Debug, Clone, Copy)]
struct TryAgain {
    at: Moment,
    pause: Duration,
}

#[derive(Debug, Clone, Default)]
struct Path {
    /// Rails asked for and not there yet: over TCP, over UDP.
    dialling: Wanted,
    /// Dialled no sooner.
    not_before: Option<Moment>,
    /// The others bring at the end of the job what this one owed.
    is_relieved: bool,
    /// UDP did not get through; it is tried again.
    no_datagrams: Option<TryAgain>,
    /// It could not be connected.
    is_away: bool,
    /// Bytes brought by rails that are gone.
    gone_bytes: u64,
}

#[derive(Debug, Clone)]
struct Rail {
    path: usize,
    kind: Kind,
    track: Track,
    /// It takes no new chunks, and is closed when its last one is acknowledged, or at this moment.
    rests_until: Option<Moment>,
}

impl Rail {
    fn is_awake(&self) -> bool {
        self.rests_until.is_none()
    }
}

/// The paths of one job.
#[derive(Debug, Clone)]
pub struct Paths {
    paths: Vec<Path>,
    rails: BTreeMap<u16, Rail>,
    looked: Moment,
    tail_looked: Moment,
    /// Dials that failed one after another, and rails that died by themselves, of a job with one path.
    dials_failed: u32,
    was_up: bool,
    /// When the first TCP rail was dialled.
    first_dial: Option<Moment>,
    /// Of one path: streams that stand in a timeout when nothing is left to hand out.
    pub timeouts: Timeouts,
}

impl Paths {
    /// A job that begins at `now` over so many paths; an acceptor begins with none.
    #[must_use]
    pub fn new(now: Moment, count: usize) -> Paths {
        let paths = (0..count).map(|_| Path::default()).collect();
        let rails = BTreeMap::new();
        let timeouts = Timeouts::default();
        Paths {
            paths,
            rails,
            looked: now,
            tail_looked: now,
            dials_failed: 0,
            was_up: false,
            first_dial: None,
            timeouts,
        }
    }

    /// How many paths are known.
    #[must_use]
    pub fn count(&self) -> usize {
        self.paths.len()
    }

    /// A path that an acceptor sees for the first time; `None`: there are too many, and it is counted with the last.
    pub fn add(&mut self) -> Option<usize> {
        (self.paths.len() < PATHS_MAX).then(|| {
            self.paths.push(Path::default());
            self.paths.len() - 1
        })
    }

    /// Bytes that all rails of a path have brought.
    #[must_use]
    pub fn bytes(&self, path: usize) -> u64 {
        let carrying: u64 = self.rails.values().filter(|it| it.path == path).map(|it| it.track.bytes()).sum();
        carrying + self.paths.get(path).map_or(0, |it| it.gone_bytes)
    }

    /// True if the rail takes no new chunks, or is not there.
    #[must_use]
    pub fn is_resting(&self, rail: u16) -> bool {
        !self.rails.get(&rail).is_some_and(Rail::is_awake)
    }

    /// True if a rail on this path takes chunks.
    #[must_use]
    pub fn carries(&self, path: usize) -> bool {
        self.rails.values().any(|it| it.path == path && it.is_awake())
    }

    /// What is wanted of one path: its part of all, and one TCP rail where UDP does not get through.
    #[must_use]
    pub fn wanted_of(&self, path: usize, wanted: Wanted) -> Wanted {
        let count = self.paths.len().max(1);
        if self.paths[path].no_datagrams.is_some() && wanted.datagrams > 0 {
            return Wanted { streams: 1, datagrams: 0 };
        }
        Wanted { streams: wanted.streams.div_ceil(count), datagrams: wanted.datagrams.div_ceil(count) }
    }

    fn count_of(&self, path: Option<usize>, kind: Kind) -> usize {
        let of = |it: &&Rail| path.is_none_or(|path| it.path == path) && it.kind == kind && it.is_awake();
        self.rails.values().filter(of).count()
    }

    /// Rails that are missing and may be dialled now; each is confirmed by `on_dialled`. `rails_up`: rails that carry, of all paths.
    pub fn next_dials(&mut self, now: Moment, wanted: Wanted, rails_up: usize) -> Vec<Dial> {
        let mut dials = Vec::new();
        for path in 0..self.paths.len() {
            let it = &mut self.paths[path];
            if let Some(again) = it.no_datagrams.as_mut().filter(|again| now >= again.at) {
                again.at = now + again.pause;
                if it.dialling.datagrams == 0 {
                    dials.push(Dial { path, kind: Kind::Datagram });
                }
            }
            // Where nobody else carries, a path that was too slow for the end of the job is better than none.
            if rails_up == 0 && core::mem::take(&mut it.is_relieved) {
                it.not_before = None;
            }
            if it.not_before.is_some_and(|then| now < then) {
                continue;
            }
            let wanted = self.wanted_of(path, wanted);
            for kind in [Kind::Stream, Kind::Datagram] {
                let there = self.count_of(Some(path), kind) + self.paths[path].dialling.of(kind);
                dials.extend((there..wanted.of(kind)).map(|_| Dial { path, kind }));
            }
        }
        dials
    }

    /// A rail is being dialled.
    pub fn on_dialled(&mut self, now: Moment, dial: Dial) {
        match dial.kind {
            Kind::Stream => {
                self.first_dial.get_or_insert(now);
                self.paths[dial.path].dialling.streams += 1;
            }
            Kind::Datagram => self.paths[dial.path].dialling.datagrams += 1,
        }
    }

    /// A dial ended, well or not.
    pub fn on_dial_over(&mut self, dial: Dial) {
        let Some(path) = self.paths.get_mut(dial.path) else { return };
        let count = match dial.kind {
            Kind::Stream => &mut path.dialling.streams,
            Kind::Datagram => &mut path.dialling.datagrams,
        };
        *count = count.saturating_sub(1);
    }

    /// A TCP rail could not be connected over this path. `is_blocked`: the network refused it, or nothing came back; `rails_up`: rails that carry,
    /// of all paths.
    pub fn on_dial_failed(&mut self, now: Moment, path: usize, is_blocked: bool, rails_up: usize) -> Failed {
        let mut is_news = false;
        if self.paths.len() > 1
            && let Some(it) = self.paths.get_mut(path)
        {
            it.not_before = Some(now + PAUSE);
            is_news = !core::mem::replace(&mut it.is_away, true);
            // Once a rail was up, all of them away at once is an outage, which the watchdog bounds; before, it is a wrong address.
            if self.was_up || self.paths.iter().any(|path| !path.is_away) {
                return Failed { is_news, next: Next::Others };
            }
        }
        self.dials_failed += 1;
        if let Some(it) = self.paths.get_mut(path) {
            it.not_before = Some(now + DIAL_PAUSE * self.dials_failed.min(DIALS_MAX));
        }
        let is_long = self.first_dial.is_some_and(|then| now.since(then) >= FIRST_RAIL);
        let next = match is_blocked && !self.was_up {
            _ if rails_up > 0 => Next::Again,
            true if is_long => Next::Never,
            false if self.dials_failed >= DIALS_MAX => Next::Lost,
            _ => Next::Again,
        };
        Failed { is_news, next }
    }

    /// UDP does not get through over this path now; it is greeted again later. True: other paths may use it, this one gets a TCP rail; false: it
    /// is the only path.
    pub fn on_no_datagrams(&mut self, now: Moment, path: usize) -> bool {
        if let Some(it) = self.paths.get_mut(path) {
            let pause = it.no_datagrams.map_or(UDP_PAUSE.0, |before| (before.pause * 2).min(UDP_PAUSE.1));
            it.no_datagrams = Some(TryAgain { at: now + pause, pause });
        }
        self.paths.len() > 1
    }

    /// The session moved to another connection: the peer can be reached.
    pub fn on_session_moved(&mut self) {
        self.dials_failed = 0;
    }

    /// A rail carries. True: its path was away before.
    pub fn on_rail_up(&mut self, now: Moment, rail: u16, path: usize, kind: Kind) -> bool {
        self.rails.insert(rail, Rail { path, kind, track: Track::new(now), rests_until: None });
        self.was_up = true;
        self.paths.get_mut(path).is_some_and(|it| {
            if kind == Kind::Datagram {
                it.no_datagrams = None;
            }
            core::mem::take(&mut it.is_away)
        })
    }

    /// A rail is gone.
    pub fn on_rail_gone(&mut self, now: Moment, rail: u16) {
        let several = self.paths.len() > 1;
        let gone = self.rails.remove(&rail);
        // Of several paths, one that goes and comes is watched for itself. One that was cut or let go at this end says nothing of the next dial.
        let by_itself = gone.as_ref().is_none_or(Rail::is_awake);
        self.dials_failed += u32::from(!several && by_itself);
        let Some(it) = gone else { return };
        let Some(path) = self.paths.get_mut(it.path) else { return };
        path.gone_bytes += it.track.bytes();
        if several {
            let then = now + PAUSE;
            path.not_before = Some(path.not_before.map_or(then, |before| before.max(then)));
        }
    }

    /// True if `on_samples` leaves dead rails by itself: there are several paths, and a rail of one brought something lately. Otherwise nobody can
    /// tell a dead rail from an outage but the session.
    #[must_use]
    pub fn watches_itself(&self, now: Moment, rtt: Duration) -> bool {
        self.paths.len() > 1 && self.rails.values().any(|it| it.is_awake() && !it.track.is_silent(now, rtt))
    }

    /// True if it is time for `on_samples`.
    #[must_use]
    pub fn is_due(&self, now: Moment) -> bool {
        self.paths.len() > 1 && now.since(self.looked) >= LOOK
    }

    /// Counters of all rails: what each may owe from now on, and which are dead or slow. Cut rails rest from now on.
    pub fn on_samples(&mut self, now: Moment, link: &Link, samples: &[Sample]) -> Look {
        self.looked = now;
        for sample in samples {
            if let (Some(it), Some(seen)) = (self.rails.get_mut(&sample.rail), &sample.seen) {
                it.track.look(now, seen, sample.is_busy);
            }
        }
        if !link.sends {
            return Look::default();
        }
        let paces = self.rails.iter().map(|(&rail, it)| (rail, pace(&it.track, link))).collect();
        let cuts = self.find_cuts(now, link.rtt);
        for cut in &cuts {
            let pause = if cut.why == Why::Silent { PAUSE } else { PAUSE_SLOW };
            self.cut(now, cut.rail, now + pause);
        }
        Look { paces, cuts }
    }

    fn find_cuts(&self, now: Moment, rtt: Duration) -> Vec<Cut> {
        let mut cuts = Vec::new();
        for (&rail, it) in self.rails.iter().filter(|(_, it)| it.is_awake()) {
            let others = || self.rails.values().filter(|other| other.path != it.path && other.is_awake());
            let (path, kind) = (it.path, it.kind);
            if it.track.is_silent(now, rtt) && others().any(|other| !other.track.is_silent(now, rtt)) {
                cuts.push(Cut { rail, path, kind, why: Why::Silent });
            } else if it.track.is_slow() && others().any(|other| other.track.is_well()) {
                let why = Why::Slower(it.track.best() / it.track.rate().max(1));
                cuts.push(Cut { rail, path, kind, why });
            }
        }
        cuts
    }

    /// A rail is cut at `now` for a reason of its own; its path is dialled again at `not_before`.
    pub fn cut(&mut self, now: Moment, rail: u16, not_before: Moment) {
        let Some(it) = self.rails.get_mut(&rail) else { return };
        // Once is enough; its end is reported as any rail's.
        it.rests_until = Some(now + CLOSE);
        if let Some(path) = self.paths.get_mut(it.path) {
            path.not_before = Some(not_before);
        }
    }

    /// What each rail brings, if it is time to look at the end of the job.
    pub fn next_tail_look(&mut self, now: Moment) -> Option<Vec<Brings>> {
        if self.paths.len() < 2 || now.since(self.tail_looked) < LOOK_TAIL {
            return None;
        }
        self.tail_looked = now;
        let of = |(&rail, it): (&u16, &Rail)| Brings { rail, path: it.path, rate: it.track.brings() };
        // Those that rest are cut already, or soon.
        Some(self.rails.iter().filter(|(_, it)| it.is_awake()).map(of).collect())
    }

    /// Until what is taken from a straggler is in flight over the others.
    #[must_use]
    pub fn tail_lead(rtt: Duration) -> Duration {
        LEAD + rtt
    }

    /// The others would wait for this path at the end of the job, longer than they need for what it owes: the rails to cut. None: it has given all
    /// to the peer, and waits for its disk as the others do.
    pub fn on_straggler(&mut self, now: Moment, path: usize) -> Vec<u16> {
        if !self.rails.values().any(|it| it.path == path && it.track.waits()) {
            return Vec::new();
        }
        let of_path = self.rails.iter().filter(|(_, it)| it.path == path && it.is_awake());
        let rails: Vec<u16> = of_path.map(|(&rail, _)| rail).collect();
        rails.iter().for_each(|&rail| self.cut(now, rail, now + PAUSE_TAIL));
        self.paths[path].is_relieved = true;
        rails
    }

    /// Rails that rest from now on: those of a kind that is not wanted at all, if rails of the other kind carry; and of `is_planned`, TCP rails beyond
    /// the plan or on workers that it does not use, but never the last one of a path. `is_planned`: `None` while the first plan is in force.
    pub fn next_rests(&mut self, now: Moment, wanted: Wanted, is_planned: Option<&dyn Fn(u16) -> bool>) -> Vec<u16> {
        let mut rests = Vec::new();
        for (kind, other) in [(Kind::Stream, Kind::Datagram), (Kind::Datagram, Kind::Stream)] {
            if wanted.of(kind) == 0 && self.count_of(None, other) > 0 {
                let awake = self.rails.iter().filter(|(_, it)| it.kind == kind && it.is_awake());
                let rails: Vec<u16> = awake.map(|(&rail, _)| rail).collect();
                self.rest(now, &rails);
                rests.extend(rails);
            }
        }
        if let Some(is_planned) = is_planned {
            let surplus = self.surplus(wanted, is_planned);
            self.rest(now, &surplus);
            rests.extend(surplus);
        }
        rests
    }

    fn rest(&mut self, now: Moment, rails: &[u16]) {
        for rail in rails {
            self.rails.get_mut(rail).into_iter().for_each(|it| it.rests_until = Some(now + DRAIN));
        }
    }

    fn surplus(&self, wanted: Wanted, is_planned: &dyn Fn(u16) -> bool) -> Vec<u16> {
        let mut all = Vec::new();
        for path in 0..self.paths.len() {
            let streams = self.rails.iter().filter(|(_, it)| it.path == path && it.kind == Kind::Stream);
            let awake: Vec<u16> = streams.filter(|(_, it)| it.is_awake()).map(|(&rail, _)| rail).collect();
            let (stay, go): (Vec<u16>, Vec<u16>) = awake.into_iter().partition(|&rail| is_planned(rail));
            if !stay.is_empty() {
                let beyond = stay.len().saturating_sub(self.wanted_of(path, wanted).streams.max(1));
                all.extend(go);
                all.extend(stay.into_iter().rev().take(beyond));
            }
        }
        all
    }

    /// Resting rails to be closed now: those that are empty, and those whose time is over.
    pub fn next_closes(&mut self, now: Moment, is_empty: &dyn Fn(u16) -> bool) -> Vec<u16> {
        let mut closes = Vec::new();
        for (&rail, it) in &mut self.rails {
            if it.rests_until.is_some_and(|until| is_empty(rail) || now >= until) {
                // Once is enough; its end is reported as any rail's.
                it.rests_until = Some(now + CLOSE);
                closes.push(rail);
            }
        }
        closes
    }
}

/// What a rail may owe.
fn pace(track: &Track, link: &Link) -> Pace {
    let (rate, chunk) = (track.rate(), u64::from(link.chunk_bytes));
    let span = u64::try_from((OWED + link.rtt * 2).as_millis()).unwrap_or(u64::MAX);
    let few = chunk * CHUNKS_OWED;
    let outstanding_max = if rate == 0 { few } else { (rate.saturating_mul(span) / 1000).saturating_add(few) };
    Pace { rate, outstanding_max }
}

#[cfg(test)]
#[path = "paths/tests.rs"]
mod tests;

//! The paths of a job: which rail goes over which, what each brings, and what becomes of one that is dead or slow.
//!
//! For: one file over all links that there are, each as fast as it is, and no link that holds the others.
//! In and out: the kernel's counts of streams and the meters of datagram rails in; the pace of each rail to the machine, rails that are cut, and
//! what each path brought, out.
//! Invariants: nothing here is done where there is one path; a rail is cut only while rails on another path bring something; what a cut rail
//! owed goes again over others only after the receiver has said what came of it (proto::send).
//! Absent on purpose: which chunk goes where (proto::send), connecting (job::rails).

use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::{Duration, Instant};

use engine::job::Cmd;
use engine::meter::Meter;
use proto::send::{Brings, Pace};

use super::rails::Carries;
use super::{Closing, End, Keeper, PathShare};

/// Rails are looked at so often.
const LOOK: Duration = Duration::from_millis(100);
/// A rate is that of the last second.
const WINDOW: Duration = Duration::from_secs(1);
/// Nothing acknowledged for so long, or for so many round trips, of what a rail has on its way: it is dead. (Linux's least retransmission timer
/// is 200 ms: two of them lost one after another.)
const SILENCE: Duration = Duration::from_millis(500);
const SILENCE_RTTS: u32 = 6;
/// A rail that brings so many times less than it did, while the others do not, is cut: what it has in hand is worth more elsewhere.
const SLOWER: u64 = 12;
/// A path that lost a rail is dialled again after so long; one that became slow after so long.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_SLOW: Duration = Duration::from_secs(2);
/// The end of a job is looked at so often, at most.
const LOOK_TAIL: Duration = Duration::from_millis(5);
/// Beside a round trip, until what was taken from a straggler is on its way over the others: the peer's word, and reading it again.
const LEAD: Duration = Duration::from_millis(20);
/// Of a rail that was not busy for half a window yet this much says something, where nothing else does.
const GLANCE: Duration = Duration::from_millis(100);
/// A path that was too slow for the end of a job is not dialled again for it.
const PAUSE_TAIL: Duration = Duration::from_secs(600);
/// A rail may owe what it brings in this time and two round trips, and four chunks. The receiver's word for a chunk comes when it is written, on a
/// busy machine some hundred milliseconds later: with less, a rail that was slow once would stay slow.
const OWED: Duration = Duration::from_secs(1);
/// An acceptor tells no more paths apart; what comes from elsewhere is counted with the last.
const PATHS_MAX: usize = 64;
/// Bytes that a stream's send buffer holds beyond what is on its way: what waits there cannot go over another path.
const UNSENT_BYTES: u32 = 256 << 10;

/// One path.
#[derive(Debug)]
pub(super) struct PathBook {
    name: String,
    /// Own and the peer's address, where this end did not choose them.
    ends: Option<(IpAddr, IpAddr)>,
    /// Streams and datagram rails asked for and not there yet.
    pub(super) dialling: (usize, usize),
    /// Dialled no sooner.
    pub(super) not_before: Option<Instant>,
    /// The others bring at the end of the job what this one owed.
    is_relieved: bool,
    /// UDP does not get through.
    pub(super) no_datagrams: bool,
    /// It could not be connected, and that was said.
    is_away: bool,
    /// Brought by rails that are gone.
    gone_bytes: u64,
}

impl PathBook {
    pub(super) fn new(name: String) -> PathBook {
        PathBook {
            name,
            ends: None,
            dialling: (0, 0),
            not_before: None,
            is_relieved: false,
            no_datagrams: false,
            is_away: false,
            gone_bytes: 0,
        }
    }

    /// Nobody else carries any more: a path that was too slow for the end of the job is better than none.
    pub(super) fn relief_is_over(&mut self) {
        if std::mem::take(&mut self.is_relieved) {
            self.not_before = None;
        }
    }

    pub(super) fn may_dial(&self) -> bool {
        self.not_before.is_none_or(|then| Instant::now() >= then)
    }
}

/// What one rail brought lately.
#[derive(Debug)]
pub(super) struct Track {
    /// Bytes brought, looked at now and then, over the last `WINDOW` of being busy.
    seen: VecDeque<(Instant, u64)>,
    /// When the sign of life last changed, and what it was.
    sign: u64,
    changed: Instant,
    /// Bytes per second over the last window, and the most of them.
    rate: u64,
    best: u64,
    unsent_bounded: bool,
    /// Something is in the network's hands.
    waits: bool,
}

impl Track {
    pub(super) fn new() -> Track {
        let changed = Instant::now();
        Track { seen: VecDeque::new(), sign: 0, changed, rate: 0, best: 0, unsent_bounded: false, waits: false }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.seen.back().map_or(0, |(_, bytes)| *bytes)
    }

    /// Bytes per second, as far as anything is known.
    fn brings(&self) -> u64 {
        let (Some((from, before)), Some((to, bytes)), 0) = (self.seen.front(), self.seen.back(), self.rate) else {
            return self.rate;
        };
        let spent = to.saturating_duration_since(*from);
        let rate = u128::from(bytes.saturating_sub(*before)) * 1_000_000 / spent.as_micros().max(1);
        if spent < GLANCE { 0 } else { u64::try_from(rate).unwrap_or(u64::MAX) }
    }

    /// What is known of it now; `busy`: it owes something.
    fn look(&mut self, now: Instant, seen: &Seen, busy: bool) {
        let bytes = seen.bytes;
        self.waits = seen.waits;
        if seen.sign != self.sign || !(busy && seen.waits) {
            (self.sign, self.changed) = (seen.sign, now);
        }
        if !busy {
            self.seen.clear();
        }
        self.seen.push_back((now, bytes));
        while self.seen.get(1).is_some_and(|(then, _)| now.saturating_duration_since(*then) >= WINDOW) {
            self.seen.pop_front();
        }
        let (then, before) = self.seen[0];
        let spent = now.saturating_duration_since(then);
        // Half a window says how fast it is; the whole one, what it can do.
        if spent >= WINDOW / 2 {
            let rate = u128::from(bytes.saturating_sub(before)) * 1_000_000 / spent.as_micros().max(1);
            self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
        }
        if spent >= WINDOW {
            self.best = self.best.max(self.rate);
        }
    }

    fn is_silent(&self, now: Instant, rtt: Duration) -> bool {
        now.saturating_duration_since(self.changed) >= SILENCE.max(rtt * SILENCE_RTTS)
    }

    /// It was busy for a whole window and is that much slower than it was.
    fn is_slow(&self) -> bool {
        let spent = self.seen.back().map_or(Duration::ZERO, |(now, _)| now.saturating_duration_since(self.seen[0].0));
        spent >= WINDOW && self.rate.saturating_mul(SLOWER) < self.best
    }

    /// It does what it can, or nearly.
    fn is_well(&self) -> bool {
        self.rate * 2 >= self.best && self.rate > 0
    }
}

/// What this end knows of a rail at one moment.
struct Seen {
    /// Bytes it has brought; of a datagram rail's sender, that were sent first: what is on its way counts little beside a window's.
    bytes: u64,
    /// Changes when the path brings anything.
    sign: u64,
    /// Something is in the network's hands, and the peer would take it.
    waits: bool,
}

fn see(meter: Option<&Meter>, socket: &Weak<OwnedFd>, sends: bool) -> Option<Seen> {
    if let Some(meter) = meter {
        let stats = meter.read();
        let (bytes, sign) =
            if sends { (stats.fresh_bytes, stats.feedbacks) } else { (stats.wire_bytes, stats.packets) };
        return Some(Seen { bytes, sign, waits: sends && stats.units > 0 });
    }
    let info = sys::sock::tcp_info(&*socket.upgrade()?).ok()?;
    let bytes = if sends { info.bytes_acked } else { info.bytes_received };
    // A window that is shut is the peer's disk, not the path.
    let waits = (info.unacked > 0 || info.notsent_bytes > 0) && info.send_window_bytes >= info.mss;
    Some(Seen { bytes, sign: bytes, waits: sends && waits })
}

impl Keeper<'_, '_> {
    /// The path that a rail goes over: as it was asked for, or as its addresses say.
    pub(super) fn path_of(&mut self, rail: u16, socket: &OwnedFd) -> usize {
        if let Some(&path) = self.asked.get(&rail) {
            return path;
        }
        let (Ok(own), Ok(peer)) = (sys::sock::local_addr(socket), sys::sock::peer_addr(socket)) else { return 0 };
        let ends = (own.ip().to_canonical(), peer.ip().to_canonical());
        if let Some(at) = self.paths.iter().position(|path| path.ends == Some(ends)) {
            return at;
        }
        if self.paths.len() < PATHS_MAX {
            let name = format!("{}={}", ends.0, ends.1);
            self.paths.push(PathBook { ends: Some(ends), ..PathBook::new(name) });
        }
        self.paths.len() - 1
    }

    /// Each path and what its rails brought.
    pub(super) fn path_shares(&self) -> Vec<PathShare> {
        let of = |at: usize| -> u64 {
            let carrying = self.carriers.values().filter(|it| it.path == at).map(|it| it.track.bytes());
            carrying.sum::<u64>() + self.paths[at].gone_bytes
        };
        let each = self.paths.iter().enumerate().map(|(at, path)| {
            let (weight, was_off) = self.truth.of(at);
            PathShare { name: path.name.clone(), bytes: of(at), weight, was_off }
        });
        each.collect()
    }

    /// A rail is gone.
    pub(super) fn path_lost_rail(&mut self, rail: u16) {
        let Some(it) = self.carriers.remove(&rail) else { return };
        let several = self.paths.len() > 1;
        let Some(path) = self.paths.get_mut(it.path) else { return };
        path.gone_bytes += it.track.bytes();
        if several {
            let then = Instant::now() + PAUSE;
            path.not_before = Some(path.not_before.map_or(then, |before| before.max(then)));
        }
    }

    /// A path was dialled in vain. True: others carry, or are tried.
    pub(super) fn path_is_away(&mut self, at: usize, error: &std::io::Error) -> bool {
        if self.paths.len() < 2 {
            return false;
        }
        let Some(path) = self.paths.get_mut(at) else { return false };
        path.not_before = Some(Instant::now() + PAUSE);
        if !std::mem::replace(&mut path.is_away, true) {
            let text = format!("path {} cannot be connected ({error}): the others carry, it is tried again", path.name);
            self.said.push(text);
        }
        // Once a rail was up, all of them away at once is an outage, which the watchdog bounds; before, it is a wrong address.
        self.rails_most > 0 || self.paths.iter().any(|path| !path.is_away)
    }

    /// A rail came up on a path.
    pub(super) fn path_is_there(&mut self, at: usize) {
        if let Some(path) = self.paths.get_mut(at)
            && std::mem::take(&mut path.is_away)
        {
            let text = format!("path {} is there again", path.name);
            self.said.push(text);
        }
    }

    /// Once per turn: what each rail brought, what it may owe, and whether one is dead or slow.
    pub(super) fn watch_paths(&mut self) {
        let now = Instant::now();
        if self.paths.len() < 2 || self.closing != Closing::Open {
            return;
        }
        self.watch_tail(now);
        if now - self.paths_seen.0 < LOOK {
            return;
        }
        self.paths_seen.0 = now;
        let sends = matches!(self.end, End::Send(_));
        let rtt = self.link_rtt();
        for (&rail, it) in &mut self.carriers {
            let busy = match &self.end {
                End::Send(end) => end.owed_by(rail) > 0,
                End::Recv(_) => true,
            };
            if let Some(seen) = see(it.meter.as_deref(), &it.socket, sends) {
                it.track.look(now, &seen, busy);
            }
            if let (true, None, false, Some(socket)) = (sends, &it.meter, it.track.unsent_bounded, it.socket.upgrade())
            {
                // A hint: without it the end of a job waits longer for a slow path.
                let _ = sys::sock::set_notsent_lowat(&*socket, UNSENT_BYTES);
                it.track.unsent_bounded = true;
            }
        }
        if sends {
            self.pace_rails(rtt);
            self.cut_rails(now, rtt);
        }
        self.watch_truth(now);
    }

    /// Of the control session.
    fn link_rtt(&self) -> Duration {
        let rtt_us = sys::sock::tcp_info(self.job.link.as_fd()).map_or(0, |info| info.rtt_us);
        Duration::from_micros(rtt_us.into())
    }

    /// Nothing is left to hand out: is there a path that the others would wait for, longer than they need for what it owes?
    fn watch_tail(&mut self, now: Instant) {
        let End::Send(end) = &self.end else { return };
        if now - self.paths_seen.1 < LOOK_TAIL {
            return;
        }
        self.paths_seen.1 = now;
        let lead_ns = u64::try_from((LEAD + self.link_rtt()).as_nanos()).unwrap_or(u64::MAX);
        let of = |(&rail, it): (&u16, &Carries)| Brings { rail, path: it.path, rate: it.track.brings() };
        // Those that rest are cut already, or soon.
        let brings: Vec<Brings> = self.carriers.iter().filter(|(_, it)| it.rests_until.is_none()).map(of).collect();
        for slow in end.stragglers(lead_ns, &brings) {
            let End::Send(end) = &self.end else { return };
            // One that has given all to the peer waits for its disk, as the others do.
            if !self.carriers.values().any(|it| it.path == slow && it.track.waits) {
                continue;
            }
            let of_path = |it: &&Brings| it.path == slow;
            let owed: usize = brings.iter().filter(of_path).map(|it| end.owed_by(it.rail)).sum();
            let chunks = if owed == 1 { "chunk".to_owned() } else { format!("{owed} chunks") };
            let name = &self.paths[slow].name;
            self.out
                .notes
                .push(format!("path {name} would be the last to end: the {chunks} it owes go over the others"));
            brings.iter().filter(of_path).for_each(|it| self.cut_rail(it.rail, now + PAUSE_TAIL));
            self.paths[slow].is_relieved = true;
        }
    }

    /// Ends a rail; what it owes goes over the others when the receiver has said what came of it. Its path is dialled no sooner than then.
    pub(super) fn cut_rail(&mut self, rail: u16, not_before: Instant) {
        let Some(it) = self.carriers.get_mut(&rail) else { return };
        // Once is enough; its end is told as any rail's.
        it.rests_until = Some(Instant::now() + Duration::from_secs(60));
        self.paths[it.path].not_before = Some(not_before);
        if let End::Send(end) = &mut self.end {
            end.rest_rail(rail);
        }
        let (job, worker) = (self.job.no, usize::from(rail) % self.job.workers.count());
        self.job.workers.send(worker, Cmd::RailDown { job, rail });
    }

    fn pace_rails(&mut self, rtt: Duration) {
        let chunk = u64::from(self.job.plan.chunk_bytes);
        let End::Send(end) = &mut self.end else { return };
        for (&rail, it) in &self.carriers {
            let rate = it.track.rate;
            let span = u64::try_from((OWED + rtt * 2).as_millis()).unwrap_or(u64::MAX);
            let owed_max = if rate == 0 { chunk * 4 } else { rate.saturating_mul(span) / 1000 + chunk * 4 };
            end.pace_rail(rail, Pace { rate, owed_max });
        }
    }

    fn cut_rails(&mut self, now: Instant, rtt: Duration) {
        let mut cut = Vec::new();
        for (&rail, it) in self.carriers.iter().filter(|(_, it)| it.rests_until.is_none()) {
            let others = || self.carriers.values().filter(|other| other.path != it.path && other.rests_until.is_none());
            if it.track.is_silent(now, rtt) && others().any(|other| !other.track.is_silent(now, rtt)) {
                cut.push((rail, it.path, PAUSE, "brings nothing any more".to_owned(), it.meter.is_none()));
            } else if it.track.is_slow() && others().any(|other| other.track.is_well()) {
                let slower = it.track.best / it.track.rate.max(1);
                cut.push((rail, it.path, PAUSE_SLOW, format!("brings {slower} times less than it did"), false));
            }
        }
        for (rail, path, pause, why, silent) in cut {
            if silent {
                self.lost_in_silence(path);
            }
            self.said.push(format!("path {} {why}: what it owes goes over the others", self.paths[path].name));
            self.cut_rail(rail, now + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rail that brings `rate(ms)` bytes per second, looked at every 100 ms.
    fn run(
        track: &mut Track,
        from: Instant,
        ms: std::ops::Range<u64>,
        bytes: &mut u64,
        rate: u64,
    ) -> Vec<(u64, bool, bool)> {
        let mut out = Vec::new();
        for at in ms.step_by(100) {
            *bytes += rate / 10;
            let now = from + Duration::from_millis(at);
            track.look(now, &Seen { bytes: *bytes, sign: *bytes, waits: true }, true);
            out.push((at, track.is_silent(now, Duration::ZERO), track.is_slow()));
        }
        out
    }

    #[test]
    fn a_rail_that_stops_is_silent_after_half_a_second() {
        let (mut track, from, mut bytes) = (Track::new(), Instant::now(), 0);
        assert!(run(&mut track, from, 0..3000, &mut bytes, 1_000_000).iter().all(|(_, silent, slow)| !silent && !slow));
        let after = run(&mut track, from, 3000..4000, &mut bytes, 0);
        let first = after.iter().find(|(_, silent, _)| *silent).expect("it is silent");
        assert!((3300..=3500).contains(&first.0), "{first:?}");
    }

    #[test]
    fn a_rail_twenty_times_slower_is_slow_within_two_seconds_and_one_half_as_fast_is_not() {
        let (mut track, from, mut bytes) = (Track::new(), Instant::now(), 0);
        run(&mut track, from, 0..3000, &mut bytes, 20_000_000);
        assert!(run(&mut track, from, 3000..6000, &mut bytes, 10_000_000).iter().all(|(.., slow)| !slow));
        let after = run(&mut track, from, 6000..8000, &mut bytes, 1_000_000);
        let first = after.iter().find(|(.., slow)| *slow).expect("it is slow");
        assert!(first.0 <= 7200, "{first:?}");
    }

    #[test]
    fn a_rail_with_nothing_to_bring_is_neither_silent_nor_slow() {
        let (mut track, from, mut bytes) = (Track::new(), Instant::now(), 0);
        run(&mut track, from, 0..3000, &mut bytes, 20_000_000);
        for at in (3000..9000).step_by(100) {
            let now = from + Duration::from_millis(at);
            track.look(now, &Seen { bytes, sign: bytes, waits: false }, false);
            assert!(!track.is_silent(now, Duration::ZERO) && !track.is_slow(), "{at}");
        }
    }
}

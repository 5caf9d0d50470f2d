//! Jobs over paths that die, come back, slow down, change their address and drop long packets, between ends whose cores and users change.
//!
//! For: the machines of `proto::session` that choose and leave paths (`paths`, `blackhole`, `transport`, `share`, `replan`, `settings`), under faults.
//! In and out: a seed in; what happened out, or a panic that says which promise was broken.
//! Invariants: the rules are the machines' own, none is copied here; chunks are dealt out by `proto::send`; the same seed tells the same story.
//! Absent on purpose: bytes, disks and workers (job.rs); frames of the session, which has a connection that is silent or not (session.rs).
//!
//! The job driver's loop is outside the simulator (it owns sockets and threads); `Drive` is the part of it that these machines need.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proto::books::{STAGES, Stage};
use proto::manifest::{Entry, EntryKind, Meta};
use proto::negotiate::{Cipher, Driver, Offer, Pace, RequestedSettings, Resources, StorageLook, negotiate};
use proto::send::Sender;
use proto::session::Moment;
use proto::session::blackhole::{BlackHole, Facts as Streams, Remedy, SMALL_SEGMENT_BYTES, Stream};
use proto::session::connection::Connection;
use proto::session::paths::track::Seen;
use proto::session::paths::{Dial, Kind, Link, Next, Paths, Sample, Wanted, Why};
use proto::session::replan::{Offers, Replan};
use proto::session::settings::{self, Settings};
use proto::session::share::{Facts as Shares, PathShares};
use proto::session::transport::forecast::{Carry, Host, Storage, TcpController, View};
use proto::session::transport::{Before, Change, Counts, First, Look, Running, TransportChoice};
use proto::wire::control::{ChunkRange, DigestKind, Want};

use crate::rng::Rng;

const CHUNK: u64 = 1 << 20;
/// A step of the world, milliseconds.
const STEP_MS: u64 = 10;
/// All faults but a black hole are over by then, milliseconds.
const FAULTS_END_MS: u64 = 60_000;
/// While a path is in order, and was for so long, something moves: the session's silence (1.5 s) and its next connection, TCP's third SYN (3 s
/// after the second), a pause between dials (2 s), and a second for what is judged meanwhile.
const STANDS_MS_MAX: u64 = 12_000;

/// What happened, over all seeds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) silent_cuts: u64,
    pub(crate) slow_cuts: u64,
    pub(crate) stragglers: u64,
    pub(crate) back: u64,
    pub(crate) holes: u64,
    pub(crate) sessions_moved: u64,
    pub(crate) trials: u64,
    pub(crate) transports_changed: u64,
    pub(crate) plans: u64,
    pub(crate) settings: u64,
    pub(crate) off_weight: u64,
    /// Milliseconds until the job was over.
    pub(crate) ms: u64,
}

impl Met {
    pub(crate) fn all(&self) -> [u64; 12] {
        let Met { silent_cuts, slow_cuts, stragglers, back, holes, sessions_moved, .. } = *self;
        let Met { trials, transports_changed, plans, settings, off_weight, ms, .. } = *self;
        [
            silent_cuts,
            slow_cuts,
            stragglers,
            back,
            holes,
            sessions_moved,
            trials,
            transports_changed,
            plans,
            settings,
            off_weight,
            ms,
        ]
    }
}

/// One path as the world has it.
#[derive(Debug)]
struct PathSim {
    /// Bytes per second.
    rate: u64,
    rtt: Duration,
    /// What TCP and UDP carry of it, permille; and from when on UDP carries another part.
    part: (u64, u64),
    udp_later: Option<(u64, u64)>,
    /// Nothing passes: from, until, milliseconds.
    down: Vec<(u64, u64)>,
    /// So many times slower: from, until, factor.
    slow: Vec<(u64, u64, u64)>,
    /// This end's address changes: what is connected is dead from then on.
    moves: Vec<u64>,
    /// Long packets vanish from then on.
    hole: Option<u64>,
    /// In order since then.
    good_since: u64,
}

impl PathSim {
    fn new(rng: &mut Rng, is_only: bool) -> PathSim {
        let span = |rng: &mut Rng, longest: u64| {
            let from = rng.between(1000, FAULTS_END_MS - 11_000);
            (from, from + rng.between(300, longest))
        };
        let times = |rng: &mut Rng, permille| if rng.permille(permille) { rng.between(1, 3) } else { 0 };
        let part = match (is_only && rng.permille(500), rng.permille(500)) {
            (false, _) => (1000, 1000),
            (true, true) => (50, 950),
            (true, false) => (900, 950),
        };
        PathSim {
            rate: 1_000_000 * rng.between(2, 40),
            rtt: Duration::from_millis(*rng.pick(&[1, 5, 20, 80, 200])),
            part,
            udp_later: (is_only && rng.permille(300)).then(|| (rng.between(5000, 30_000), 50)),
            down: (0..times(rng, 400)).map(|_| span(rng, 10_000)).collect(),
            slow: (0..times(rng, 300))
                .map(|_| (span(rng, 10_000), rng.between(2, 60)))
                .map(|((from, to), factor)| (from, to, factor))
                .collect(),
            moves: (0..times(rng, 200)).map(|_| span(rng, 1000).0).collect(),
            hole: rng.permille(200).then(|| span(rng, 1000).0),
            good_since: 0,
        }
    }

    fn is_up(&self, ms: u64) -> bool {
        !self.down.iter().any(|&(from, to)| (from..to).contains(&ms))
    }

    /// Which of this end's addresses is in use.
    fn address(&self, ms: u64) -> usize {
        self.moves.iter().filter(|&&then| ms >= then).count()
    }

    fn has_hole(&self, ms: u64) -> bool {
        self.hole.is_some_and(|then| ms >= then)
    }

    /// Bytes in a step.
    fn step_bytes(&self, ms: u64, kind: Kind) -> u64 {
        let slow =
            self.slow.iter().filter(|(from, to, _)| (*from..*to).contains(&ms)).map(|it| it.2).max().unwrap_or(1);
        let udp = self.udp_later.filter(|(then, _)| ms >= *then).map_or(self.part.1, |(_, part)| part);
        let part = if kind == Kind::Stream { self.part.0 } else { udp };
        self.rate * STEP_MS / 1000 / slow * part / 1000
    }
}

/// A rail as its kernel has it.
#[derive(Debug)]
struct RailSim {
    path: usize,
    kind: Kind,
    address: usize,
    is_small: bool,
    bytes: u64,
    answered_ms: u64,
    retransmitted: u32,
    /// Sends again then, and twice as long after that.
    rto: Option<(u64, u64)>,
    /// Chunks in flight, and bytes left of the first.
    queue: VecDeque<u64>,
    left: u64,
}

/// One end's resources and settings.
#[derive(Debug)]
struct End {
    replan: Replan,
    settings: Settings,
    facts: settings::Facts,
    cap_bps: u64,
    /// Cores from these times on.
    cores: Vec<(u64, u16)>,
    /// What a user asks for then.
    asks: Vec<(u64, settings::Change)>,
    /// Reports of the other end that arrive then.
    resources: VecDeque<(u64, Resources)>,
    requests: VecDeque<(u64, RequestedSettings)>,
}

impl End {
    fn obey(&mut self, in_force: settings::InForce) {
        let settings::InForce { cap_bps, policy, min_bps } = in_force;
        self.cap_bps = cap_bps;
        self.replan.on_settings(cap_bps, policy, min_bps);
    }
}

/// A sender that opened the session, the world around it, and the other end as far as it decides.
struct Drive {
    rng: Rng,
    ms: u64,
    paths_sim: Vec<PathSim>,
    rails: BTreeMap<u16, RailSim>,
    /// Dials: when they began, and where.
    dials: Vec<(u64, u16, Dial)>,
    /// Rails that the receiver will say it has closed.
    closing: Vec<(u64, u16)>,
    /// The session's connection: its path and address, when it was heard last, and bytes of it.
    session: (usize, usize, u64, u64),
    sender: Sender,
    paths: Paths,
    black_hole: BlackHole,
    small: Vec<bool>,
    shares: PathShares,
    transport: Option<TransportChoice>,
    wanted: Wanted,
    next_rail: u16,
    counted_ms: u64,
    moved_ms: u64,
    moved_bytes: u64,
    udp_bytes: u64,
    acked: u64,
    chunks: u64,
    ends: [End; 2],
    met: Met,
    loud: bool,
}

fn offer(cores: u16) -> Offer {
    Offer {
        boot_id: cores.to_string(),
        cores,
        load_percent: 0,
        memory_bytes: 64 << 20,
        interfaces: vec![],
        drivers: vec![Driver::Plain],
        ciphers: vec![Cipher::Aes128Gcm],
        digests: vec![DigestKind::Blake3],
        integrity_only: false,
        bare: false,
        streams: 0,
        streams_max: 64,
        chunk_bytes: 0,
        rate_bps: 0,
        free_bytes: 0,
        disk_bps: 0,
        bufs_bytes: 0,
        look: false,
        storage: StorageLook::default(),
        datagrams: 1,
        pace: Pace::default(),
        rdma: proto::negotiate::RdmaOffer::default(),
    }
}

/// What was on its way and is there now.
fn arrived<T>(queue: &mut VecDeque<(u64, T)>, ms: u64) -> Option<T> {
    if queue.front()?.0 <= ms { queue.pop_front().map(|(_, it)| it) } else { None }
}

fn at(ms: u64) -> Moment {
    Moment::from_ns(ms * 1_000_000)
}

fn wanted_file(chunks: u64) -> Sender {
    let mut sender = Sender::new(CHUNK as u32);
    let (kind, path) = (EntryKind::File { bytes: chunks * CHUNK }, Box::from(&b"f"[..]));
    let entry = Entry { id: 0, path, kind, mode: 0o644, mtime_s: 0, mtime_ns: 0, meta: Meta::default() };
    let id = sender.announce(entry).id;
    sender.scan_ended();
    sender.on_want(id, &Want::All).expect("a want");
    sender
}

/// Both ends of a job whose cores and users change.
fn two_ends(rng: &mut Rng) -> ([End; 2], u16) {
    let cores = [rng.between(1, 8) as u16, rng.between(1, 8) as u16];
    let offers = Offers { initiator: offer(cores[0]), acceptor: offer(cores[1]), is_initiator: true };
    let (plan, _) = negotiate(&offers.initiator, &offers.acceptor, true).expect("they agree");
    let end = |rng: &mut Rng, index: usize| {
        let is_initiator = index == 0;
        let offers = Offers { is_initiator, ..offers.clone() };
        let settings = Settings::new(at(0), Some(&offers), &plan);
        let (controller, policy) = (plan.pace.controller, plan.pace.policy);
        let facts =
            settings::Facts { controller, policy, uses_datagrams: true, sends: is_initiator, initiates: is_initiator };
        let times = |rng: &mut Rng, most| if rng.permille(300) { rng.between(1, most) } else { 0 };
        let mut changes: Vec<_> =
            (0..times(rng, 6)).map(|_| (rng.below(FAULTS_END_MS), rng.between(1, 8) as u16)).collect();
        changes.sort_unstable();
        let ask =
            |rng: &mut Rng| settings::Change { rate_bps: Some(8_000_000 * rng.between(4, 400)), ..Default::default() };
        let mut asks: Vec<_> = (0..times(rng, 4)).map(|_| (rng.below(FAULTS_END_MS), ask(rng))).collect();
        asks.sort_unstable_by_key(|(then, _)| *then);
        let replan = Replan::new(at(0), offers, &plan, Some(cores[index]), is_initiator);
        let (resources, requests) = (VecDeque::new(), VecDeque::new());
        End { replan, settings, facts, cap_bps: 0, cores: changes, asks, resources, requests }
    };
    let ends = [end(rng, 0), end(rng, 1)];
    (ends, plan.streams)
}

impl Drive {
    fn new(seed: u64, loud: bool) -> Drive {
        let mut rng = Rng::new(seed ^ 0x11_4B5);
        let count = rng.between(1, 4) as usize;
        let paths_sim: Vec<PathSim> = (0..count).map(|_| PathSim::new(&mut rng, count == 1)).collect();
        let (ends, streams) = two_ends(&mut rng);
        let sum: u64 = paths_sim.iter().map(|path| path.rate).sum();
        let chunks = sum * rng.between(5, 90) / CHUNK + 1;
        let view = View {
            rtt_s: paths_sim[0].rtt.as_secs_f64(),
            looked: 0,
            lost: 0,
            rate_bps: None,
            packet_bytes: 1500,
            queue_s: 0.0,
        };
        let (window_bytes, controller) = (16e6, TcpController::Cubic);
        let host = Host {
            controller,
            rails: (2, 16),
            window_bytes,
            tcp_bps: 5e9,
            udp_bps: 2.5e9,
            cap_bps: 0.0,
            storage: Storage::default(),
            is_one_host: false,
        };
        let transport = (count == 1).then(|| TransportChoice::new(at(0), paths_sim[0].rtt, view, host));
        let streams = usize::from(streams).max(count);
        let weights = paths_sim.iter().map(|path| path.rate as f64 / sum as f64).collect();
        Drive {
            ms: 0,
            rails: BTreeMap::new(),
            dials: Vec::new(),
            closing: Vec::new(),
            session: (0, 0, 0, 0),
            sender: wanted_file(chunks),
            paths: Paths::new(at(0), count),
            black_hole: BlackHole::new(at(0)),
            small: vec![false; count],
            shares: PathShares::new(if count > 1 { weights } else { Vec::new() }),
            wanted: if transport.is_some() { Wanted::default() } else { Wanted { streams, datagrams: 0 } },
            transport,
            next_rail: 0,
            counted_ms: 0,
            moved_ms: 0,
            moved_bytes: 0,
            udp_bytes: 0,
            acked: 0,
            chunks,
            ends,
            met: Met::default(),
            loud,
            paths_sim,
            rng,
        }
    }

    fn say(&mut self, text: impl FnOnce() -> String) {
        if self.loud {
            println!("{:>7} ms  {}", self.ms, text());
        }
    }

    fn unheard(&self) -> Duration {
        Duration::from_millis(self.ms - self.session.2)
    }

    /// Does what is sent over this path from that address arrive?
    fn passes(&self, path: usize, address: usize) -> bool {
        self.paths_sim[path].is_up(self.ms) && self.paths_sim[path].address(self.ms) == address
    }

    /// The kernels' work of a step: what is in flight arrives, or is sent again in vain.
    fn carry(&mut self) {
        let ms = self.ms;
        for path in 0..self.paths_sim.len() {
            for kind in [Kind::Stream, Kind::Datagram] {
                let (up, hole) = (self.paths_sim[path].is_up(ms), self.paths_sim[path].has_hole(ms));
                let address = self.paths_sim[path].address(ms);
                let mut able = Vec::new();
                for (&rail, it) in self.rails.iter_mut().filter(|(_, it)| it.path == path && it.kind == kind) {
                    // A datagram rail is greeted from the new address (proto::session::migration).
                    if kind == Kind::Datagram && up && ms - it.answered_ms >= 500 {
                        it.address = address;
                    }
                    let fits = kind == Kind::Datagram || it.is_small || !hole;
                    let passes = up && fits && it.address == address;
                    if it.queue.is_empty() {
                        it.rto = None;
                    } else if passes && it.rto.is_none_or(|(then, _)| ms >= then) {
                        it.rto = None;
                        able.push(rail);
                    } else if !passes && kind == Kind::Stream {
                        // TCP doubles its timer; a datagram rail asks at least each second what came (proto::flow).
                        let (then, span) = *it.rto.get_or_insert((ms + 200, 200));
                        if ms >= then {
                            it.retransmitted += 1;
                            it.rto = Some((ms + span * 2, span * 2));
                        }
                    }
                }
                let share = (self.paths_sim[path].step_bytes(ms, kind) / (able.len() as u64).max(1)).max(1);
                able.into_iter().for_each(|rail| self.bring(rail, share));
            }
        }
    }

    fn bring(&mut self, rail: u16, mut bytes: u64) {
        let Some(it) = self.rails.get_mut(&rail) else { return };
        if bytes > 0 {
            (it.answered_ms, self.moved_ms) = (self.ms, self.ms);
        }
        while bytes > 0 && !it.queue.is_empty() {
            let some = bytes.min(it.left);
            (bytes, it.left, it.bytes) = (bytes - some, it.left - some, it.bytes + some);
            self.moved_bytes += some;
            self.udp_bytes += if it.kind == Kind::Datagram { some } else { 0 };
            if it.left == 0 {
                let chunk = it.queue.pop_front().expect("one is there");
                it.left = CHUNK;
                self.acked += 1;
                self.sender.on_sent(rail);
                let range = ChunkRange { first: chunk, end: chunk + 1 };
                self.sender.on_acks(range).expect("a chunk arrives once");
            }
        }
    }

    /// The session: heard or not, over another path when it was silent for too long.
    fn session(&mut self) {
        let (path, address, heard, bytes) = self.session;
        let is_silent = self.ms - heard >= 2000 + 100 * u64::from(self.rng.permille(500));
        if is_silent {
            // The next connection goes over the first path that answers.
            let Some(path) = (0..self.paths_sim.len()).find(|&path| self.paths_sim[path].is_up(self.ms)) else {
                return;
            };
            self.session = (path, self.paths_sim[path].address(self.ms), self.ms, bytes + STEP_MS);
            self.met.sessions_moved += 1;
            self.paths.on_session_moved();
            let remedy = self.black_hole.on_session_moved(bytes, self.paths.count());
            self.apply(&remedy, "the session came over two connections, and nothing over the last");
            if !self.paths.watches_itself(at(self.ms), self.paths_sim[path].rtt) {
                self.cut_dead_streams();
            }
        } else if self.passes(path, address) {
            self.session = (path, address, self.ms, bytes + STEP_MS);
        }
    }

    /// What went the way of the session's old connection goes, too.
    fn cut_dead_streams(&mut self) {
        let dead = |it: &RailSim| {
            let unanswered = Duration::from_millis(self.ms - it.answered_ms);
            let rtt = self.paths_sim[it.path].rtt;
            Connection { rtt, is_owed: !it.queue.is_empty(), unanswered, unheard: unanswered }.is_dead(true)
        };
        let rails = self.rails.iter().filter(|(_, it)| it.kind == Kind::Stream && dead(it));
        let rails: Vec<u16> = rails.map(|(&rail, _)| rail).collect();
        for rail in rails {
            self.paths.cut(at(self.ms), rail, at(self.ms));
            self.close(rail);
        }
    }

    /// A rail ends here at once, and its chunks go again when the receiver has said what came.
    fn close(&mut self, rail: u16) {
        self.sender.rest_rail(rail);
        if self.rails.remove(&rail).is_some() {
            self.paths.on_rail_gone(at(self.ms), rail);
            self.closing.push((self.ms + self.paths_sim[self.session.0].rtt.as_millis() as u64, rail));
        }
    }

    fn closed(&mut self) {
        if self.ms > self.session.2 {
            return;
        }
        let now = self.ms;
        for (_, rail) in self.closing.extract_if(.., |(then, _)| *then <= now).collect::<Vec<_>>() {
            self.sender.on_rail_closed(rail);
        }
    }

    /// Dials that end, and those that begin.
    fn dial(&mut self) {
        let (now, ms) = (at(self.ms), self.ms);
        let several = self.paths.count() > 1;
        for (begun, rail, dial) in std::mem::take(&mut self.dials) {
            let path = &self.paths_sim[dial.path];
            let rtt_ms = path.rtt.as_millis() as u64;
            // SYN, and again after 1, 3 and 7 s; greeting and answer take a round trip more.
            let tries = [0, 1000, 3000, 7000].map(|after| begun + after);
            let passed = tries.iter().any(|&then| then + 2 * rtt_ms <= ms && path.is_up(then) && path.is_up(ms));
            let patience = if several { 700.max(4 * rtt_ms) } else { 10_000 };
            if passed {
                self.paths.on_dial_over(dial);
                self.rail_up(rail, dial);
            } else if ms - begun >= patience {
                self.paths.on_dial_over(dial);
                self.dial_failed(dial);
            } else {
                self.dials.push((begun, rail, dial));
            }
        }
        for dial in self.paths.next_dials(now, self.wanted, self.rails.len()) {
            while dial.kind == Kind::Stream && !self.ends[0].replan.is_in_plan(self.next_rail) {
                self.next_rail += 1;
            }
            self.dials.push((ms, self.next_rail, dial));
            self.next_rail += 1;
            self.paths.on_dialled(now, dial);
        }
    }

    fn rail_up(&mut self, rail: u16, dial: Dial) {
        let Dial { path, kind } = dial;
        let (address, is_small, answered_ms) = (self.paths_sim[path].address(self.ms), self.small[path], self.ms);
        let (bytes, queue, rto) = (0, VecDeque::new(), None);
        let it =
            RailSim { path, kind, address, is_small, bytes, answered_ms, retransmitted: 0, rto, queue, left: CHUNK };
        self.rails.insert(rail, it);
        self.sender.rail_up(rail);
        self.met.back += u64::from(self.paths.on_rail_up(at(self.ms), rail, path, kind));
        self.say(|| format!("rail {rail} is up: path {path}, {kind:?}, small {is_small}"));
    }

    fn dial_failed(&mut self, dial: Dial) {
        if dial.kind == Kind::Datagram {
            if !self.paths.on_no_datagrams(at(self.ms), dial.path) {
                self.wanted = Wanted { streams: usize::from(self.ends[0].replan.plan().streams), datagrams: 0 };
                self.transport.iter_mut().for_each(TransportChoice::on_no_datagrams);
            }
            return;
        }
        let failed = self.paths.on_dial_failed(at(self.ms), dial.path, true, self.rails.len());
        let is_unheard = self.unheard() >= Duration::from_millis(1500);
        assert!(
            !matches!(failed.next, Next::Lost | Next::Never) || is_unheard,
            "the job is given up although the peer is heard"
        );
    }

    /// What the driver looks at now and then.
    fn look(&mut self) {
        let now = at(self.ms);
        if self.paths.is_due(now) {
            let link = Link { rtt: self.paths_sim[self.session.0].rtt, chunk_bytes: CHUNK as u32, sends: true };
            let of = |(&rail, it): (&u16, &RailSim)| {
                let seen = Seen { bytes: it.bytes, sign: it.bytes, waits: !it.queue.is_empty() };
                Sample { rail, seen: Some(seen), is_busy: self.sender.outstanding_on(rail) > 0 }
            };
            let samples: Vec<Sample> = self.rails.iter().map(of).collect();
            let look = self.paths.on_samples(now, &link, &samples);
            look.paces.into_iter().for_each(|(rail, pace)| self.sender.pace_rail(rail, pace));
            for cut in look.cuts {
                self.say(|| format!("{cut:?}"));
                let is_silent = cut.why == Why::Silent;
                *if is_silent { &mut self.met.silent_cuts } else { &mut self.met.slow_cuts } += 1;
                if is_silent && cut.kind == Kind::Stream {
                    let remedy = self.black_hole.on_cut(cut.path, self.paths.count());
                    self.apply(&remedy, "cut twice in silence");
                }
                self.close(cut.rail);
            }
            self.check_shares();
        }
        if let Some(brings) = self.paths.next_tail_look(now) {
            let lead = Paths::tail_lead(self.paths_sim[self.session.0].rtt).as_nanos() as u64;
            for path in self.sender.stragglers(lead, &brings) {
                for rail in self.paths.on_straggler(now, path) {
                    self.say(|| format!("path {path} is a straggler: rail {rail}"));
                    self.met.stragglers += 1;
                    self.close(rail);
                }
            }
        }
        if self.black_hole.is_due(now) {
            self.look_for_holes();
        }
    }

    fn check_shares(&mut self) {
        let count = self.paths.count();
        let brought = (0..count).map(|path| self.paths.bytes(path)).collect();
        let may_judge = (0..count).all(|path| self.paths.carries(path));
        let facts = Shares { brought, waited_ns: self.ms * 900_000, worked_ns: self.ms * 1_000_000, may_judge };
        let change = self.shares.on_shares(at(self.ms), &facts);
        self.met.off_weight += u64::from(change.is_some_and(|change| !change.off.is_empty()));
    }

    fn look_for_holes(&mut self) {
        let of = |(&rail, it): (&u16, &RailSim)| {
            let stream = Stream {
                bytes: it.bytes,
                retransmitted: it.retransmitted,
                rtt: self.paths_sim[it.path].rtt,
                segment_bytes: if it.is_small { SMALL_SEGMENT_BYTES } else { 1448 },
                in_flight: u32::from(!it.queue.is_empty()),
                window_bytes: 1 << 20,
            };
            (rail, it.path, stream)
        };
        let streams = self.rails.iter().filter(|(rail, it)| it.kind == Kind::Stream && !self.paths.is_resting(**rail));
        let rails = streams.map(of).collect();
        let (paths, peer_unheard) = (self.paths.count(), self.unheard());
        let remedy = self
            .black_hole
            .on_streams(at(self.ms), &Streams { sends: true, paths, peer_unheard, session: None, rails });
        self.apply(&remedy, "a stream stands");
    }

    fn apply(&mut self, remedy: &Remedy, why: &str) {
        for &path in &remedy.small_paths {
            if !std::mem::replace(&mut self.small[path], true) {
                self.say(|| format!("path {path} is a black hole: {why}"));
                let is_hole = self.paths_sim[path].has_hole(self.ms);
                self.met.holes += u64::from(is_hole);
                // Of several paths a stream may fall silent twice for another reason; and one that was idle when the address changed is silent.
                let has_moved =
                    self.paths_sim[path].moves.iter().any(|then| (then..&(then + 15_000)).contains(&&self.ms));
                let may_err = self.paths.count() > 1 || has_moved;
                assert!(is_hole || may_err, "path {path} is no black hole ({why})");
            }
        }
        for &rail in &remedy.cut {
            self.paths.cut(at(self.ms), rail, at(self.ms));
            self.close(rail);
        }
    }

    /// Which transport, before data moves and while it does.
    fn choose(&mut self) {
        let (now, path) = (at(self.ms), &self.paths_sim[0]);
        let Some(transport) = &mut self.transport else { return };
        let seen = View {
            looked: 64,
            lost: u64::from(path.part.0 < 500),
            rate_bps: Some(path.rate as f64 * 8.0),
            ..transport.view()
        };
        let answered = transport.is_looking() && path.is_up(self.ms) && self.ms >= 2 * path.rtt.as_millis() as u64;
        let before = Before {
            look: answered.then_some(Look::Seen(seen)),
            bytes: Some(self.chunks * CHUNK),
            early_answered: None,
            is_storage_looked_at: false,
        };
        let streams = usize::from(self.ends[0].replan.plan().streams);
        let wanted = |carry| Wanted {
            streams: if carry == Carry::Udp { 0 } else { streams },
            datagrams: usize::from(carry != Carry::Tcp),
        };
        if let First::Decided { forecast, .. } = transport.next_first(now, &before) {
            self.wanted = wanted(forecast.carry);
        }
        if self.ms - self.counted_ms < 500 {
            return;
        }
        self.counted_ms = self.ms;
        let packets = self.moved_bytes / 1448;
        let lost = if path.part.0 < 500 { packets / 100 } else { 0 };
        let tcp_packets = (packets, lost);
        // Both ends wait for the network, and for nothing else.
        let waits = |stage: Stage| {
            let mut ns = [0; STAGES];
            ns[stage as usize] = self.ms * 1_000_000;
            ns
        };
        let counts = Counts {
            stage_ns: (waits(Stage::WaitSend), waits(Stage::WaitRecv)),
            moved_bytes: self.moved_bytes,
            udp_bytes: self.udp_bytes,
            udp_packets: (packets, 0),
            tcp_packets,
        };
        let running = Running { sends: true, rtt: path.rtt, bytes_total: Some(self.chunks * CHUNK) };
        if let Some(change) = transport.on_counts(now, &counts, &running) {
            self.wanted = wanted(change.carry());
            self.met.trials += u64::from(matches!(change, Change::Try { .. }));
            self.met.transports_changed = u64::from(transport.changes());
            self.say(|| format!("{change:?}"));
        }
    }

    /// Resources and settings of both ends, and their reports on the way.
    fn agree(&mut self) {
        let (now, ms, heard) = (at(self.ms), self.ms, self.ms == self.session.2);
        let delay = self.paths_sim[self.session.0].rtt.as_millis() as u64 / 2;
        for own in [0, 1] {
            let peer = 1 - own;
            let end = &mut self.ends[own];
            let mut plans = 0;
            if end.replan.is_due(now) {
                let cores = end.cores.iter().rev().find(|(then, _)| *then <= ms).map(|it| it.1);
                if let Some((report, change)) = end.replan.on_cores(now, cores, || 0) {
                    plans += u64::from(change.is_some());
                    self.ends[peer].resources.push_back((ms + delay, report));
                }
            }
            let end = &mut self.ends[own];
            if heard && let Some(report) = arrived(&mut end.resources, ms) {
                end.replan.on_peer(report);
            }
            plans += u64::from(end.replan.next_change(now).is_some());
            if own == 0 && plans > 0 && self.wanted.streams > 0 {
                self.wanted.streams = usize::from(end.replan.plan().streams);
            }
            self.met.plans += plans;
            if heard && let Some(request) = arrived(&mut end.requests, ms) {
                end.settings.on_peer(request);
            }
            let mut reports = Vec::new();
            if let Some(change) = end.settings.next_peers(now, &end.facts) {
                end.obey(change.in_force);
                reports.extend(change.report);
            }
            if let Some((_, ask)) = end.asks.first().copied().filter(|(then, _)| *then <= ms) {
                end.asks.remove(0);
                if let Some(change) = end.settings.take_peers(now, &end.facts) {
                    end.obey(change.in_force);
                    reports.extend(change.report);
                }
                let changed = end.settings.on_user(&ask, &end.facts).expect("a cap is never refused");
                end.obey(changed.in_force);
                reports.push(changed.report);
                self.met.settings += 1;
            }
            self.ends[peer].requests.extend(reports.into_iter().map(|report| (ms + delay, report)));
        }
    }

    /// Rails that are not wanted any more.
    fn rest(&mut self) {
        let now = at(self.ms);
        let replan = &self.ends[0].replan;
        let is_planned = |rail: u16| replan.is_in_plan(rail);
        let planned: Option<&dyn Fn(u16) -> bool> = if replan.is_first() { None } else { Some(&is_planned) };
        for rail in self.paths.next_rests(now, self.wanted, planned) {
            self.sender.rest_rail(rail);
        }
        let sender = &self.sender;
        for rail in self.paths.next_closes(now, &|rail| sender.outstanding_on(rail) == 0) {
            self.close(rail);
        }
    }

    fn hand_out(&mut self) {
        while let Some(handout) = self.sender.next_chunk(4) {
            self.sender.on_read(handout.chunk);
            let it = self.rails.get_mut(&handout.rail).expect("a chunk goes to a rail that is there");
            it.queue.push_back(handout.chunk);
        }
    }

    /// While a path is in order something moves.
    fn judge(&mut self) {
        let ms = self.ms;
        for path in 0..self.paths_sim.len() {
            let it = &mut self.paths_sim[path];
            let now = |then: u64| (ms + 1 - STEP_MS..=ms).contains(&then);
            let changed = it.moves.iter().any(|&then| now(then)) || (it.hole.is_some_and(now) && !self.small[path]);
            if !it.is_up(ms) || changed {
                it.good_since = ms;
            }
        }
        let good = self.paths_sim.iter().map(|it| ms - it.good_since).max().unwrap_or(0);
        let stands = ms - self.moved_ms;
        assert!(
            good < STANDS_MS_MAX || stands < STANDS_MS_MAX,
            "nothing moved for {stands} ms at {ms} ms although a path is in order for {good} ms: {:?}, wanted {:?}, {} of {} chunks",
            self.rails,
            self.wanted,
            self.acked,
            self.chunks
        );
    }

    fn step(&mut self) {
        self.ms += STEP_MS;
        self.carry();
        self.session();
        self.closed();
        self.choose();
        self.agree();
        self.dial();
        self.rest();
        self.look();
        self.hand_out();
        self.judge();
    }

    /// Both ends hold the same once their reports have crossed.
    fn agreed(&mut self) {
        for _ in 0..1000 {
            self.ms += STEP_MS;
            self.session();
            self.agree();
        }
        let [here, there] = &self.ends;
        assert_eq!(here.replan.plan(), there.replan.plan(), "both ends have the same plan");
        assert_eq!(
            (here.cap_bps, here.settings.caps().0),
            (there.cap_bps, there.settings.caps().1),
            "and the same caps"
        );
        assert_eq!(here.settings.caps().1, there.settings.caps().0);
    }
}

/// Tells one story: a job over its paths until all chunks are there.
pub(crate) fn story(seed: u64, loud: bool) -> Met {
    let mut drive = Drive::new(seed, loud);
    if loud {
        drive.paths_sim.iter().for_each(|path| println!("{path:?}"));
    }
    // Whatever happened, the slowest transport of one path carries all of it in this time.
    let slowest = drive.paths_sim.iter().map(|path| path.rate / 20).max().unwrap_or(1);
    let most_ms = FAULTS_END_MS * 2 + drive.chunks * CHUNK * 1000 / slowest * 2;
    while drive.acked < drive.chunks {
        drive.step();
        assert!(drive.ms < most_ms, "the job does not end: {} of {} chunks", drive.acked, drive.chunks);
    }
    drive.met.ms = drive.ms;
    let rest = FAULTS_END_MS.saturating_sub(drive.ms) / STEP_MS;
    for _ in 0..rest {
        drive.ms += STEP_MS;
        drive.session();
        drive.agree();
    }
    drive.agreed();
    drive.met
}

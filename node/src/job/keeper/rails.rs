//! The keeper's rails: asked for, taken in, capped, and more of them while they pay.
//!
//! For: as many rails as the path needs, and no more.
//! In and out: connected sockets, both ends' books in; rails on workers out.
//! Invariants: a number is used once; the cap is that of all rails together.
//! Absent on purpose: connecting (job::rails), what goes over them (engine).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use engine::fault::rate_if_asked;
use engine::job::{Cmd, Path, RailPace};
use engine::meter::{Meter, PathStats};
use proto::books::{Books, Stage};
use proto::flow::FlowConfig;
use proto::negotiate::Plan;
use proto::rate::{Law, Policy, RateConfig};
use proto::wire::control::Frame;

use super::asked::least_cap;
use super::auto::Auto;
use super::moves::Hearing;
use super::paths::Track;
use super::{Closing, DIALS_MAX, End, Keeper};
use crate::job::rails::{Arrival, Ask, Carrier};
use crate::job::udp::{self, Sizes};
use text::exit::Failure;

/// Units of a datagram rail that may be on their way before the receiver says more: 256 MiB are 20 Gbit/s over 100 ms.
const UNITS_OPEN: u32 = 256;
/// And then: at 5 % loss a unit is open for somewhat more than three round trips, so that 1 Gbit/s over 1 s has 400 open. Each costs some hundred bytes.
const UNITS_MOST: u32 = 1024;
/// A datagram rail that hears nothing for so long is over; the next one is greeted anew, and may be TCP.
const SILENCE_NS: u64 = 15_000_000_000;
/// A rail that is given up may bring what it has for so long; then the rest of it goes again over others.
const DRAIN: Duration = Duration::from_secs(3);
/// After a dial that failed, times the failures so far.
const DIAL_PAUSE: Duration = Duration::from_millis(400);
/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;

/// Learning how many rails pay.
#[derive(Debug, Default)]
pub(super) struct Growth {
    since: Option<Instant>,
    moved: u64,
    rate: f64,
    settled: bool,
}

/// How many rails of each kind are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) streams: usize,
    pub(super) packets: usize,
}

/// A rail that carries.
#[derive(Debug)]
pub(super) struct Carries {
    /// Of a datagram rail.
    pub(super) meter: Option<Arc<Meter>>,
    /// Is it heard? Of a datagram rail.
    pub(super) hearing: Hearing,
    /// The worker's; gone when it has let go of it.
    pub(super) socket: Weak<OwnedFd>,
    /// It takes no new chunks and is cut when its last is acknowledged, or then.
    pub(super) rests_until: Option<Instant>,
    /// Which path it goes over.
    pub(super) path: usize,
    /// What it brought lately, where there are several paths.
    pub(super) track: Track,
}

impl Wanted {
    /// At the beginning: where nothing is known yet (`auto`), nothing.
    pub(super) fn first(plan: &Plan, auto: bool) -> Wanted {
        match (auto, usize::from(plan.datagrams)) {
            (true, _) => Wanted { streams: 0, packets: 0 },
            (false, 0) => Wanted { streams: usize::from(plan.streams), packets: 0 },
            (false, packets) => Wanted { streams: 0, packets },
        }
    }
}

impl Keeper<'_, '_> {
    fn count_rails(&self, packets: bool) -> usize {
        self.carriers.values().filter(|it| it.meter.is_some() == packets && it.rests_until.is_none()).count()
    }

    fn count_rails_of(&self, path: usize, packets: bool) -> usize {
        let of_path = self.carriers.values().filter(|it| it.path == path);
        of_path.filter(|it| it.meter.is_some() == packets && it.rests_until.is_none()).count()
    }

    /// What is wanted of one path.
    pub(super) fn wanted_of(&self, path: usize) -> Wanted {
        let count = self.paths.len().max(1);
        if self.paths[path].no_datagrams && self.wanted.packets > 0 {
            return Wanted { streams: 1, packets: 0 };
        }
        Wanted { streams: self.wanted.streams.div_ceil(count), packets: self.wanted.packets.div_ceil(count) }
    }

    /// Asks for what is missing, and lets go of what is not wanted any more.
    pub(super) fn want_rails(&mut self) {
        if !self.job.rails.dials() || self.job.dry || self.closing != Closing::Open {
            return;
        }
        self.choose_transport();
        for path in 0..self.paths.len() {
            self.want_rails_of(path);
        }
        self.rest_rails();
    }

    fn want_rails_of(&mut self, path: usize) {
        if self.end.rails_up() == 0 {
            self.paths[path].relief_is_over();
        }
        if !self.paths[path].may_dial() {
            return;
        }
        let wanted = self.wanted_of(path);
        while self.count_rails_of(path, false) + self.paths[path].dialling.0 < wanted.streams
            && self.next_rail < u16::MAX
        {
            // A number says which workers it is on, at both ends.
            while self.next_rail < u16::MAX && !self.is_in_plan(self.next_rail) {
                self.next_rail += 1;
            }
            if self.next_rail == u16::MAX {
                return;
            }
            self.asked.insert(self.next_rail, path);
            self.job.rails.ask(path, Ask::Stream(self.next_rail));
            self.next_rail += 1;
            self.paths[path].dialling.0 += 1;
        }
        while self.count_rails_of(path, true) + self.paths[path].dialling.1 < wanted.packets
            && self.next_rail < u16::MAX
        {
            // The look at the path was over the first one.
            let looked = self.auto.as_mut().filter(|_| path == 0).and_then(Auto::take_looked);
            // And that which was greeted early is the session's own.
            let greeted = looked.or_else(|| if path == 0 { self.job.rails.take_early() } else { None });
            let rail = greeted.unwrap_or(self.next_rail);
            self.next_rail += u16::from(greeted.is_none());
            self.asked.insert(rail, path);
            self.job.rails.ask(path, Ask::Packets(rail));
            self.paths[path].dialling.1 += 1;
        }
    }

    /// Rails of a kind that is not wanted at all rest, and go when they are empty; never the last that carries.
    fn rest_rails(&mut self) {
        for packets in [false, true] {
            let (wanted, other) = match packets {
                false => (self.wanted.streams, self.count_rails(true)),
                true => (self.wanted.packets, self.count_rails(false)),
            };
            if wanted > 0 || other == 0 {
                continue;
            }
            for (&rail, it) in self.carriers.iter_mut().filter(|(_, it)| it.meter.is_some() == packets) {
                if it.rests_until.is_none() {
                    it.rests_until = Some(Instant::now() + DRAIN);
                    if let End::Send(end) = &mut self.end {
                        end.rest_rail(rail);
                    }
                }
            }
        }
        for rail in self.surplus() {
            if let Some(it) = self.carriers.get_mut(&rail) {
                it.rests_until = Some(Instant::now() + DRAIN);
            }
            if let End::Send(end) = &mut self.end {
                end.rest_rail(rail);
            }
        }
        let (job, end, count) = (self.job.no, &self.end, self.job.workers.count());
        for (&rail, it) in &mut self.carriers {
            let is_empty = match end {
                End::Send(end) => end.owed_by(rail) == 0,
                // The sender alone knows; what is on its way goes again.
                End::Recv(_) => true,
            };
            if it.rests_until.is_some_and(|until| is_empty || Instant::now() >= until) {
                // Once is enough; its end is told as any rail's.
                it.rests_until = Some(Instant::now() + DRAIN * 20);
                self.job.workers.send(usize::from(rail) % count, Cmd::RailDown { job, rail });
            }
        }
    }

    pub(super) fn take_rails(&mut self) -> Result<(), Failure> {
        while let Some(arrival) = self.job.rails.next() {
            let Arrival { rail, carrier, socket } = arrival;
            if let (Carrier::Gone, Err(why)) = (carrier, &socket) {
                return Err(self.bug(&why.to_string()));
            }
            if let Carrier::Control(nonce, theirs) = carrier {
                self.on_control(nonce, theirs, socket)?;
                continue;
            }
            let is_packets = matches!(carrier, Carrier::Packets(..));
            let is_up = is_packets && self.carriers.contains_key(&rail);
            let path = self.asked.get(&rail).copied().unwrap_or(0);
            if self.job.rails.dials() && !is_up {
                let dialling = &mut self.paths[path].dialling;
                let dialling = if is_packets { &mut dialling.1 } else { &mut dialling.0 };
                *dialling = dialling.saturating_sub(1);
            }
            let socket = match socket {
                Ok(socket) => socket,
                Err(error) if is_packets => {
                    if !self.not_moved(rail, &error) {
                        self.give_up_datagrams(Some(path), &error);
                    }
                    continue;
                }
                Err(error) if self.path_is_away(path, &error) => continue,
                Err(error) => {
                    self.dials_failed += 1;
                    if self.dials_failed >= DIALS_MAX && self.end.rails_up() == 0 && !self.is_unheard() {
                        return Err(self.lost(&format!("no rail could be connected: {error}")));
                    }
                    // Where nothing is heard, it is asked for in a while and not at once.
                    self.paths[path].not_before = Some(Instant::now() + DIAL_PAUSE * self.dials_failed.min(DIALS_MAX));
                    self.out.notes.push(format!("rail {} could not be connected: {error}", rail));
                    continue;
                }
            };
            if is_up {
                self.moved(rail, socket);
            } else if self.closing == Closing::Open {
                self.rail_up(rail, carrier, socket);
            }
        }
        self.want_rails();
        Ok(())
    }

    /// A rail is there: to the machine, and to its worker.
    fn rail_up(&mut self, rail: u16, carrier: Carrier, socket: OwnedFd) {
        let up = match &mut self.end {
            End::Send(end) => end.rail_up(rail),
            End::Recv(end) => end.rail_up(rail),
        };
        if !up {
            return;
        }
        let path = self.path_of(rail, &socket);
        self.path_is_there(path);
        let worker = usize::from(rail) % self.job.workers.count();
        self.rails_seen = self.rails_seen.max(usize::from(rail) + 1);
        let (job, key, socket) = (self.job.no, self.secret.rail(rail), Arc::new(socket));
        let mut carries = Carries {
            meter: None,
            hearing: Hearing::new(),
            socket: Arc::downgrade(&socket),
            rests_until: None,
            path,
            track: Track::new(),
        };
        let cmd = match carrier {
            Carrier::Control(..) | Carrier::Gone => unreachable!("no rail"),
            Carrier::Stream => {
                self.streams_up = true;
                Cmd::RailUp { job, rail, socket, key }
            }
            Carrier::Packets(sizes, seen) => {
                if let Some(short) = udp::widen(&*socket).filter(|_| self.meters.is_empty()) {
                    let text =
                        format!("the system's limits bound UDP, which costs speed on fast or busy paths: {short}");
                    self.out.notes.push(text);
                }
                let path = Path { seen, ..self.flow(sizes) };
                carries.meter = Some(path.meter.clone());
                Cmd::PacketsUp { job, rail, socket, key, path }
            }
        };
        self.carriers.insert(rail, carries);
        self.job.workers.send(worker, cmd);
        self.rails_most = self.rails_most.max(self.end.rails_up());
        if self.job.plan.pace.policy == Policy::Fixed {
            self.set_rail_rates();
        }
    }

    /// UDP does not get through: the rails that are missing are streams. Of several paths, those of this one.
    pub(super) fn give_up_datagrams(&mut self, path: Option<usize>, error: &std::io::Error) {
        if let Some(path) = path.filter(|_| self.paths.len() > 1) {
            self.paths[path].no_datagrams = true;
            return;
        }
        if !std::mem::replace(&mut self.no_datagrams, true) {
            let text = format!("UDP to {} does not get through ({error}): TCP is used", self.peer_name());
            self.said.push(text);
        }
        self.wanted = Wanted { streams: usize::from(self.job.plan.streams), packets: 0 };
        self.auto_without_datagrams();
    }

    /// Packets that streams sent, and of these again; of a sender alone.
    pub(super) fn stream_counts(&self) -> (u64, u64) {
        let infos = self.carriers.values().filter(|it| it.meter.is_none()).filter_map(|it| it.socket.upgrade());
        infos.filter_map(|socket| sys::sock::tcp_info(&*socket).ok()).fold((0, 0), |(sent, again), info| {
            let segment = u64::from(info.mss.max(1));
            (sent + info.bytes_sent / segment, again + info.bytes_retrans.div_ceil(segment))
        })
    }

    /// What a worker must know of a datagram rail.
    fn flow(&mut self, sizes: Sizes) -> Path {
        let meter = Arc::new(Meter::default());
        self.meters.push(meter.clone());
        let (pace, target) = (self.job.plan.pace, self.rail_rate());
        let rate = RateConfig {
            law: if rate_if_asked().is_some() { Law::Fixed } else { pace.law },
            policy: pace.policy,
            target,
            min: self.rail_min(),
            packet_bytes: u32::from(sizes.start) + HEADERS,
        };
        let flow = FlowConfig {
            packet_bytes: sizes.start,
            packet_bytes_max: sizes.most.max(sizes.start),
            unit_bytes_max: 0,
            rate,
            units_open: UNITS_OPEN,
            units_most: UNITS_MOST,
        };
        Path { tag: sizes.tag, flow, silence_ns: SILENCE_NS, meter, seen: None }
    }

    /// The datagram rails' figures together: counts added, round trip and loss of the one that sent most.
    pub(super) fn packets(&self) -> Option<PathStats> {
        let all: Vec<PathStats> = self.meters.iter().map(|meter| meter.read()).collect();
        let busiest = all.iter().max_by_key(|stats| stats.packets)?;
        let sum = |of: fn(&PathStats) -> u64| all.iter().map(of).sum();
        Some(PathStats {
            rate: sum(|it| it.rate),
            packets: sum(|it| it.packets),
            fresh_bytes: sum(|it| it.fresh_bytes),
            repair_bytes: sum(|it| it.repair_bytes),
            copy_bytes: sum(|it| it.copy_bytes),
            lost_packets: sum(|it| it.lost_packets),
            wire_bytes: sum(|it| it.wire_bytes),
            already_bytes: sum(|it| it.already_bytes),
            forged: sum(|it| it.forged),
            foreign: sum(|it| it.foreign),
            again: sum(|it| it.again),
            ..*busiest
        })
    }

    /// What one datagram rail may have by itself: all there is, since the bound holds in sum; a rate that yields to nothing is dealt out.
    fn rail_rate(&self) -> u64 {
        let rate = self.job.bound.rate();
        let is_dealt = self.job.plan.pace.policy == Policy::Fixed || self.job.plan.pace.law == Law::Fixed;
        let rails = if is_dealt { self.end.rails_up().max(1) as u64 } else { 1 };
        if rate == 0 { 0 } else { (rate / rails).max(1) }
    }

    /// What one datagram rail has at least.
    fn rail_min(&self) -> u64 {
        self.job.plan.pace.min_bps / 8 / u64::from(self.job.plan.datagrams.max(1))
    }

    /// The rails that run go by the plan's pace and the bound as they are now.
    pub(super) fn set_rail_rates(&mut self) {
        let pace = RailPace { target: self.rail_rate(), min: self.rail_min(), policy: self.job.plan.pace.policy };
        for worker in 0..self.job.workers.count() {
            self.job.workers.send(worker, Cmd::Pace { job: self.job.no, pace });
        }
    }

    /// The smallest of what was agreed, what the peer told and this job's share.
    pub(super) fn ask_share(&mut self) {
        let share = self.job.share.as_ref().map_or(0, |share| share(self.job.bound.taken()));
        let rate = least_cap([self.job.plan.rate_bps / 8, self.caps.0, share]);
        let hostile = rate_if_asked().filter(|_| matches!(self.end, End::Send(_)));
        let rate = hostile.unwrap_or(rate);
        if rate != self.job.bound.rate() {
            self.job.bound.set_rate(sys::clock::now_ns(), rate);
            self.set_rail_rates();
        }
        // Packets come whether or not they are taken, and a stream fills the kernel's buffers before it waits: their sender must know.
        if matches!(self.end, End::Recv(_)) && share != self.caps.1 && self.closing == Closing::Open {
            self.caps.1 = share;
            self.say(&Frame::Rate { bits_per_second: share.saturating_mul(8) });
        }
    }

    /// More rails while they pay: both ends have time left, the network is what is waited for, and the last one brought something.
    pub(super) fn grow(&mut self) {
        let most = usize::from(self.job.plan.streams_max);
        if !self.job.rails.dials()
            || self.wanted.packets > 0
            || self.wanted.streams == 0
            || self.growth.settled
            || self.wanted.streams >= most
            || self.job.bound.rate() > 0
        {
            return;
        }
        let Some(since) = self.growth.since else {
            self.growth.since = Some(Instant::now());
            return;
        };
        if since.elapsed() < Duration::from_secs(1) {
            return;
        }
        let own = self.books();
        let Some(peers) = self.peers else { return };
        let sends = matches!(self.end, End::Send(_));
        let (sender, receiver) = if sends { (own, peers) } else { (peers, own) };
        let moved = own.payload_bytes.max(peers.payload_bytes);
        let rate = (moved - self.growth.moved) as f64 / since.elapsed().as_secs_f64();
        let first = self.growth.rate == 0.0;
        let waits = |books: &Books, stage: Stage| books.ns[stage as usize] as f64 / books.wall_ns.max(1) as f64;
        let network = waits(&sender, Stage::WaitSend) > 0.4 && waits(&receiver, Stage::WaitRecv) > 0.4;
        if !network || (!first && rate < self.growth.rate * 1.1) {
            self.growth.settled = !first || moved > 0;
            return;
        }
        self.growth = Growth { since: Some(Instant::now()), moved, rate, settled: false };
        self.wanted.streams += 1;
        let all = self.wanted.streams;
        self.out.notes.push(format!("one more rail, {all} in all: both ends wait for the network"));
    }
}

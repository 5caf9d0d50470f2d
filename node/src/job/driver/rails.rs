//! The job driver's rails: asked for, taken in, capped, and more of them while they pay.
//!
//! For: as many rails as the path needs, and no more.
//! In and out: connected sockets, both ends' books in; rails on workers out.
//! Invariants: a number is used once; the cap is that of all rails together.
//! Absent on purpose: connecting (job::rails), what goes over them (engine).

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use engine::fault::rate_if_asked;
use engine::job::{Cmd, Path, RailPace};
use engine::meter::{Meter, PairMeter, PathStats};
use proto::error::Breach;
use proto::flow::FlowConfig;
use proto::negotiate::{Plan, RdmaKind};
use proto::rate::{ControllerKind, Policy, RateConfig};
use proto::session::Moment;
use proto::session::migration::Migration;
use proto::session::paths::{Dial, Kind, Next, Wanted};
use proto::session::settings::least_cap;
use proto::wire::control::Frame;
use sys::rdma::{Connection, Facts};

use super::transport::Auto;
use super::{End, JobDriver, NO_RAIL};
use crate::job::rails::{Arrival, Ask, CONTROL, Carrier, Socket};
use crate::job::udp::{self, Sizes};
use text::exit::{Exit, Failure};
use text::units::exact_rate;

/// Units of a datagram rail that may be on their way before the receiver says more: 256 MiB are 20 Gbit/s over 100 ms.
const UNITS_OPEN: u32 = 256;
/// And then: at 5 % loss a unit is open for somewhat more than three round trips, so that 1 Gbit/s over 1 s has 400 open. Each costs some hundred bytes.
const UNITS_MOST: u32 = 1024;
/// A datagram rail that hears nothing for so long is over; the next one is greeted anew, and may be TCP.
const SILENCE_NS: u64 = 15_000_000_000;
/// Headers of IPv4 and UDP.
const HEADERS: u32 = 28;

/// A rail that carries.
#[derive(Debug)]
pub(super) struct Carries {
    /// Of a datagram rail.
    pub(super) meter: Option<Arc<Meter>>,
    /// Of a queue pair.
    pub(super) pair: Option<Arc<PairMeter>>,
    /// Is it heard? Of a datagram rail.
    pub(super) migration: Migration,
    /// The worker's; gone when it has let go of it.
    pub(super) socket: Weak<OwnedFd>,
    /// Which path it goes over.
    pub(super) path: usize,
    /// Its send buffer is bounded.
    pub(super) unsent_bounded: bool,
}

/// What was seen of TCP rails.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// One came up.
    pub(super) up: bool,
    /// One carried more than its greeting.
    pub(super) carried: bool,
    /// New ones are queue pairs of this kind instead.
    pub(super) rdma: Option<RdmaKind>,
    /// Each queue pair so far.
    pub(super) pairs: Vec<PairSeen>,
}

/// The caps of this job, B/s; 0: none.
#[derive(Debug)]
pub(super) struct Caps {
    /// When the daemon was asked for this job's share the last time.
    pub(super) asked: Moment,
    /// The peer's own.
    pub(super) peers: u64,
    /// The one that the peer was sent.
    pub(super) said: u64,
}

/// A queue pair that was.
#[derive(Debug)]
pub(super) struct PairSeen {
    /// Whose it is: what its meter says is of all pairs of this worker.
    pub(super) worker: usize,
    /// What it tells of itself.
    pub(super) meter: Arc<PairMeter>,
    /// Of a device.
    pub(super) facts: Option<Facts>,
}

impl Streams {
    /// Before the first rail.
    pub(super) fn of(plan: &Plan) -> Streams {
        Streams { rdma: plan.rdma, ..Streams::default() }
    }
}

/// Did the network refuse it, or swallow it? A peer that is there and has too much to do closes a connection instead.
fn is_blocked(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut};
    let by_system = error.raw_os_error().is_some();
    match error.kind() {
        TimedOut => true,
        // What the peer's answer says has no number of the system.
        ConnectionRefused | HostUnreachable | NetworkUnreachable | PermissionDenied => by_system,
        _ => false,
    }
}

/// Rails at the beginning: where nothing is known yet (`auto`), none.
pub(super) fn first(plan: &Plan, auto: bool) -> Wanted {
    match (auto, usize::from(plan.datagrams)) {
        (true, _) => Wanted::default(),
        (false, 0) => Wanted { streams: usize::from(plan.streams), datagrams: 0 },
        (false, datagrams) => Wanted { streams: 0, datagrams },
    }
}

/// What the queue pairs of devices were made of, and what was registered for them: once for each worker, however many jobs and files.
fn pairs_in_words(pairs: &[PairSeen]) -> Option<String> {
    let Facts { device, port, gid, mtu } = pairs.iter().find_map(|it| it.facts.as_ref())?;
    let mut by_worker = std::collections::BTreeMap::new();
    for pair in pairs {
        let (counts, seen): (_, &mut (u64, u64)) = (pair.meter.read(), by_worker.entry(pair.worker).or_default());
        *seen = (seen.0.max(counts.regions), seen.1.max(counts.registered_bytes));
    }
    let (regions, bytes) = by_worker.values().fold((0, 0), |all, it| (all.0 + it.0, all.1 + it.1));
    Some(format!(
        "rdma: {device} port {port}, GID {gid}, MTU {mtu}; {} queue pairs on {} workers, {regions} regions of {bytes} bytes registered at this end",
        pairs.len(),
        by_worker.len(),
    ))
}

impl JobDriver<'_, '_> {
    /// Asks for what is missing, and lets go of what is not wanted any more.
    pub(super) fn want_rails(&mut self) {
        if !self.job.rails.dials() || !self.is_open() {
            return;
        }
        self.choose_transport();
        if self.job.dry {
            return;
        }
        for dial in self.paths.next_dials(self.now, self.wanted, self.end.rails_up()) {
            if !self.dial(dial) {
                break;
            }
        }
        self.rest_rails();
    }

    /// Dials a rail under the next number. False: there is no number left.
    fn dial(&mut self, dial: Dial) -> bool {
        let path = dial.path;
        // A number says which workers a stream is on, at both ends.
        while dial.kind == Kind::Stream && self.next_rail < u16::MAX && !self.is_in_plan(self.next_rail) {
            self.next_rail += 1;
        }
        if self.next_rail == u16::MAX {
            return false;
        }
        let greeted = match dial.kind {
            Kind::Stream => None,
            Kind::Datagram if path > 0 => None,
            // The look at the path was over the first one; that which was greeted early is the session's own.
            Kind::Datagram => self.auto.as_mut().and_then(Auto::take_looked).or_else(|| self.job.rails.take_early()),
        };
        let rail = greeted.unwrap_or(self.next_rail);
        self.next_rail += u16::from(greeted.is_none());
        self.asked.insert(rail, path);
        let ask = match dial.kind {
            Kind::Stream if self.streams.rdma == Some(RdmaKind::Device) => Ask::Device(rail),
            Kind::Stream if self.streams.rdma.is_some() => Ask::Pair(rail),
            Kind::Stream => Ask::Stream(rail),
            Kind::Datagram => Ask::Packets(rail),
        };
        self.job.rails.ask(path, ask);
        self.paths.on_dialled(self.now, dial);
        true
    }

    /// Rails of a kind that is not wanted at all, or beyond the plan, rest, and go when they are empty.
    fn rest_rails(&mut self) {
        let now = self.now;
        let replan = self.replan.as_ref().filter(|it| !it.is_first());
        let is_planned = replan.map(|it| move |rail: u16| it.is_in_plan(rail));
        let is_planned = is_planned.as_ref().map(|it| it as &dyn Fn(u16) -> bool);
        let rests = self.paths.next_rests(now, self.wanted, is_planned);
        let end = match &mut self.end {
            End::Send(end) => {
                rests.into_iter().for_each(|rail| end.rest_rail(rail));
                Some(&*end)
            }
            // The sender alone knows what a rail owes; what is in flight goes again.
            End::Recv(_) => None,
        };
        let is_empty = |rail: u16| end.is_none_or(|end| end.outstanding_on(rail) == 0);
        for rail in self.paths.next_closes(now, &is_empty) {
            // A queue pair that ends so has not died.
            self.carriers.get_mut(&rail).into_iter().for_each(|it| it.pair = None);
            let worker = usize::from(rail) % self.job.workers.count();
            self.job.workers.send(worker, Cmd::RailDown { job: self.job.no, rail });
        }
    }

    pub(super) fn take_rails(&mut self) -> Result<(), Failure> {
        let held = self.auto.as_mut().map(Auto::take_held).unwrap_or_default();
        let mut held = held.into_iter();
        while let Some(arrival) = held.next().or_else(|| self.job.rails.next()) {
            let arrival = match &mut self.auto {
                Some(auto) => auto.hold(arrival),
                None => Some(arrival),
            };
            let Some(arrival) = arrival else { continue };
            let Arrival { rail, carrier, socket } = arrival;
            if carrier == Carrier::Device {
                self.device_arrived(rail, socket);
                continue;
            }
            let socket = socket.and_then(Socket::fd);
            if let (Carrier::Gone, Err(why)) = (carrier, &socket) {
                return Err(self.bug(&why.to_string()));
            }
            if let Carrier::Control(nonce, theirs) = carrier {
                self.on_control(nonce, theirs, socket)?;
                continue;
            }
            let is_packets = matches!(carrier, Carrier::Packets(..));
            if let (true, CONTROL) = (is_packets, rail) {
                socket.into_iter().for_each(|socket| self.job.link.datagrams_over(socket));
                continue;
            }
            let is_up = is_packets && self.carriers.contains_key(&rail);
            let path = self.asked.get(&rail).copied().unwrap_or(0);
            if self.job.rails.dials() && !is_up {
                let kind = if is_packets { Kind::Datagram } else { Kind::Stream };
                self.paths.on_dial_over(Dial { path, kind });
            }
            let socket = match socket {
                Ok(socket) => socket,
                Err(error) if is_packets => {
                    if !self.not_migrated(rail, &error) {
                        self.give_up_datagrams(Some(path), &error);
                    }
                    continue;
                }
                // Dialled ahead of the choice: should UDP be chosen, nobody misses it, and should TCP, it is dialled again then.
                Err(error) if self.auto.as_ref().is_some_and(|auto| !auto.is_chosen()) => {
                    self.out.notes.push(format!("rail {rail} could not be connected: {error}"));
                    self.wanted = Wanted::default();
                    continue;
                }
                Err(error) if carrier == Carrier::Pair => {
                    self.give_up_pairs(rail, &error.to_string());
                    continue;
                }
                Err(error) => {
                    self.dial_failed(rail, path, &error)?;
                    continue;
                }
            };
            // A stream that was dialled while the path was probed, and UDP was chosen: nothing went over it yet.
            let is_unwanted = !is_packets && self.auto.is_some() && self.wanted.streams == 0;
            if is_up {
                self.migrated(rail, socket);
            } else if is_unwanted && self.job.rails.dials() {
                drop(socket);
            } else if self.is_open() {
                self.rail_up(rail, carrier, socket);
            }
        }
        self.want_rails();
        // Chosen just now: what waited for that carries without another iteration.
        if self.auto.as_ref().is_some_and(Auto::has_held) { self.take_rails() } else { Ok(()) }
    }

    /// A TCP rail could not be connected.
    fn dial_failed(&mut self, rail: u16, path: usize, error: &std::io::Error) -> Result<(), Failure> {
        let failed = self.paths.on_dial_failed(self.now, path, is_blocked(error), self.end.rails_up());
        if failed.is_news {
            self.say_path_is_away(path, error);
        }
        match failed.next {
            Next::Others => {}
            Next::Lost if !self.is_unheard() => {
                return Err(self.lost(&format!("{NO_RAIL}: {}", text::attempt::said(error))));
            }
            Next::Never if !self.is_unheard() => return Err(self.never_a_rail(error)),
            // Where nothing is heard, it is asked for in a while and not at once.
            Next::Lost | Next::Never | Next::Again => {
                self.out.notes.push(format!("rail {rail} could not be connected: {error}"))
            }
        }
        Ok(())
    }

    /// The session is there, and nothing else gets through.
    fn never_a_rail(&self, error: &std::io::Error) -> Failure {
        let places = self.job.rails.places().join(", ");
        let said = text::attempt::said(error);
        let udp = if self.no_datagrams { ", nor UDP" } else { "" };
        let cause = format!(
            "{NO_RAIL}: {said}; the control session got through to the same port, and no other TCP connection{udp}"
        );
        Exit::Connect.fail(format!("connect to {places} for the data"), cause).next(
            "let the firewalls and proxies between pass several TCP connections to that port at once, from this host and without a limit; nothing else is needed",
        )
    }

    /// A queue pair died, or could not be had: the rails that are missing are TCP.
    pub(super) fn give_up_pairs(&mut self, rail: u16, why: &str) {
        if let Some(kind) = self.streams.rdma.take()
            && self.job.rails.dials()
        {
            self.said.push(format!("{} of rail {rail} is gone ({why}): TCP is used", kind.name()));
        }
    }

    /// Credits are there so that no message waits for a receive: one that did is worth a word.
    pub(super) fn say_not_ready(&mut self) {
        if let Some(text) = pairs_in_words(&self.streams.pairs) {
            self.out.notes.push(text);
        }
        if let Some((kind, count @ 1..)) = self.pairs_seen() {
            self.out.notes.push(format!("{}: {count} messages found no receive posted at this end", kind.name()));
        }
    }

    /// A rail is there: to the machine, and to its worker.
    fn rail_up(&mut self, rail: u16, carrier: Carrier, socket: OwnedFd) {
        let path = self.path_of(rail, &socket);
        if carrier == Carrier::Pair {
            return self.pair_up(rail, path, Connection::Emulated(socket));
        }
        if !self.is_new(rail) {
            return;
        }
        let kind = if matches!(carrier, Carrier::Packets(..)) { Kind::Datagram } else { Kind::Stream };
        if self.paths.on_rail_up(self.now, rail, path, kind) {
            self.say_path_is_there(path);
        }
        if kind == Kind::Datagram && self.job.rails.dials() {
            self.datagrams_again();
        }
        let worker = usize::from(rail) % self.job.workers.count();
        self.rails_seen = self.rails_seen.max(usize::from(rail) + 1);
        let (job, key) = (self.job.no, self.secret.rail(rail));
        let mut carries = self.carries(path);
        let socket = Arc::new(socket);
        carries.socket = Arc::downgrade(&socket);
        let cmd = match carrier {
            Carrier::Control(..) | Carrier::Gone | Carrier::Pair | Carrier::Device => {
                unreachable!("no rail, or one that is up since above")
            }
            Carrier::Stream => {
                self.streams.up = true;
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

    /// A rail that carries from now on, of which nothing is known yet.
    fn carries(&self, path: usize) -> Carries {
        let migration = Migration::new(self.now);
        Carries { meter: None, pair: None, migration, socket: Weak::new(), path, unsent_bounded: false }
    }

    /// To the machine: is it one that was not there?
    fn is_new(&mut self, rail: u16) -> bool {
        match &mut self.end {
            End::Send(end) => end.rail_up(rail),
            End::Recv(end) => end.rail_up(rail),
        }
    }

    /// A connection between devices, or why there is none.
    fn device_arrived(&mut self, rail: u16, socket: std::io::Result<Socket>) {
        let path = self.asked.get(&rail).copied().unwrap_or(0);
        if self.job.rails.dials() {
            self.paths.on_dial_over(Dial { path, kind: Kind::Stream });
        }
        match socket {
            Ok(Socket::Link(link)) if self.is_open() => self.pair_up(rail, path, Connection::Device(link)),
            Ok(_) => {}
            Err(error) => self.give_up_pairs(rail, &error.to_string()),
        }
    }

    /// A queue pair is agreed on: to the machine, and to its worker, which makes its queues.
    fn pair_up(&mut self, rail: u16, path: usize, connection: Connection) {
        let (kind, facts) = match &connection {
            Connection::Emulated(_) => (RdmaKind::Emulated, None),
            Connection::Device(link) => (RdmaKind::Device, Some(link.facts())),
        };
        // Nobody agreed on it, or it is there.
        if self.job.plan.rdma != Some(kind) || !self.is_new(rail) {
            return;
        }
        if self.paths.on_rail_up(self.now, rail, path, Kind::Stream) {
            self.say_path_is_there(path);
        }
        let worker = usize::from(rail) % self.job.workers.count();
        self.rails_seen = self.rails_seen.max(usize::from(rail) + 1);
        let (job, key, meter) = (self.job.no, self.secret.rail(rail), Arc::<PairMeter>::default());
        let carries = Carries { pair: Some(Arc::clone(&meter)), ..self.carries(path) };
        self.streams.pairs.push(PairSeen { worker, meter: Arc::clone(&meter), facts });
        self.carriers.insert(rail, carries);
        self.job.workers.send(worker, Cmd::PairUp { job, rail, connection, key, meter });
        self.rails_most = self.rails_most.max(self.end.rails_up());
    }

    /// UDP does not get through: the rails that are missing are streams. Of several paths, those of this one.
    pub(super) fn give_up_datagrams(&mut self, path: Option<usize>, error: &std::io::Error) {
        if self.paths.on_no_datagrams(self.now, path.unwrap_or(0)) && path.is_some() {
            return;
        }
        if !std::mem::replace(&mut self.no_datagrams, true) {
            let text = format!("UDP to {} does not get through ({error}): TCP is used", self.peer_name());
            self.said.push(text);
        }
        self.wanted = Wanted { streams: usize::from(self.job.plan.streams), datagrams: 0 };
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
            controller: if rate_if_asked().is_some() { ControllerKind::Fixed } else { pace.controller },
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
        let tally = self.end.record().tally;
        let job_bytes = if tally.scan_ended { tally.bytes_total } else { 0 };
        Path { tag: sizes.tag, flow, silence_ns: SILENCE_NS, meter, seen: None, job_bytes }
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
            // Each rail found what it may have of it.
            policer: sum(|it| it.policer),
            ..*busiest
        })
    }

    /// What one datagram rail may have by itself: all there is, since the bound holds in sum; a rate that yields to nothing is dealt out.
    fn rail_rate(&self) -> u64 {
        let rate = self.job.bound.rate();
        let is_dealt =
            self.job.plan.pace.policy == Policy::Fixed || self.job.plan.pace.controller == ControllerKind::Fixed;
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
        self.caps.asked = self.now;
        // Before the first rail is up it may be one of datagrams; where all are streams, whatever the plan allowed, they can be held here.
        let are_streams = self.carriers.values().all(|it| it.meter.is_none()) && !self.carriers.is_empty();
        let datagrams_come = matches!(self.end, End::Recv(_)) && self.job.plan.datagrams > 0 && !are_streams;
        let share = self.job.share.as_ref().map_or(0, |share| share(self.job.bound.taken(), datagrams_come));
        let rate = least_cap([self.job.plan.rate_bps / 8, self.caps.peers, share]);
        let hostile = rate_if_asked().filter(|_| matches!(self.end, End::Send(_)));
        let rate = hostile.unwrap_or(rate);
        if rate != self.job.bound.rate() {
            self.job.bound.set_rate(sys::clock::now_ns(), rate);
            self.set_rail_rates();
        }
        // Packets come whether or not they are taken, and a stream fills the kernel's buffers before it waits: their sender must know.
        if matches!(self.end, End::Recv(_)) && share != self.caps.said && self.is_open() {
            self.caps.said = share;
            // A higher cap holds at once.
            self.set_limit();
            self.say(&Frame::Rate { bits_per_second: share.saturating_mul(8) });
        }
    }

    /// What comes is held to the caps that its sender was sent and can have heard, B/s.
    fn set_limit(&mut self) -> u64 {
        let rtt = self.session().map_or(Duration::ZERO, |session| session.rtt);
        let cap = least_cap([self.settings.caps().0 / 8, self.caps.said]);
        let rate = self.policer.on_cap(self.now, cap, rtt);
        self.job.bound.limit.set_rate(rate);
        rate
    }

    /// Twice a second, where packets come: the sender is held to the caps that it was told.
    pub(super) fn hold_sender(&mut self) -> Result<(), Failure> {
        if !matches!(self.end, End::Recv(_)) || !self.is_open() {
            return Ok(());
        }
        let rate = self.set_limit();
        let counts = self.job.bound.limit.counts();
        let Some(came) = self.policer.on_counts(self.now, rate, counts) else { return Ok(()) };
        let cause = format!(
            "the peer at {} sends {} although its cap here is {}",
            self.peer_name(),
            exact_rate(came.saturating_mul(8)),
            exact_rate(rate.saturating_mul(8)),
        );
        self.refuse(Breach::RateIgnored.code(), &cause);
        Err(Exit::of_wire_code(Breach::RateIgnored.code()).fail("hold the sender to its cap", cause))
    }

    /// More rails while they pay: both ends have time left, the network is what is waited for, and the last one brought something.
    pub(super) fn grow(&mut self) {
        let most = usize::from(self.job.plan.streams_max);
        if !self.job.rails.dials()
            || self.wanted.datagrams > 0
            || self.wanted.streams == 0
            || self.wanted.streams >= most
            || self.job.bound.rate() > 0
        {
            return;
        }
        if !self.growth.is_due(self.now) {
            return;
        }
        let own = self.books();
        let Some(peers) = self.peers else { return };
        let (sender, receiver) = if matches!(self.end, End::Send(_)) { (own, peers) } else { (peers, own) };
        let moved = own.payload_bytes.max(peers.payload_bytes);
        if !self.growth.on_look(self.now, moved, &sender, &receiver) {
            return;
        }
        self.wanted.streams += 1;
        let all = self.wanted.streams;
        self.out.notes.push(format!("one more rail, {all} in all: both ends wait for the network"));
    }
}

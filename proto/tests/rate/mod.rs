//! A small world for rate controllers: one bottleneck, several flows, virtual time.
//!
//! For: the tests `rate_*.rs`; thousands of seconds of gigabits in seconds of ours.
//! In and out: a link, flows, a script of changes in; arrivals and waiting times per slot of time out.
//! Invariants: the same seed gives the same run; a packet costs arithmetic, only bursts and reports cost an event.
//! Absent on purpose: repair, sealing, the codec: whole flows are tested in `flow`'s tests.
#![allow(dead_code, unreachable_pub, missing_debug_implementations)]

pub mod crowd;
mod link;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use link::Bottleneck;
pub use link::{Link, Loss};
use proto::rate::{Controller, ControllerKind, Policy, RateConfig, Signal};

pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1_000_000_000;
pub const PACKET: u32 = 1500;

pub fn mbit(rate: f64) -> f64 {
    rate * 125_000.0
}

pub fn config(controller: ControllerKind, policy: Policy) -> RateConfig {
    RateConfig { controller, policy, target: 0, min: 0, packet_bytes: PACKET }
}

/// One packet on its way to the receiver.
struct Parcel {
    sent_ns: u64,
    arrives_ns: u64,
    lost: bool,
    marked: bool,
}

/// A change at a time.
#[derive(Clone, Copy)]
pub enum Change {
    Rate(f64),
    /// All flows' round trip.
    Rtt(u64),
    Down(bool),
    Loss(Loss),
    Config(usize, RateConfig),
    Stop(usize),
    /// The flow may have so many bytes a second of supply (an application's limit); infinity: no limit.
    Supply(usize, f64),
}

pub struct Flow {
    pub controller: Controller,
    pub rtt_ns: u64,
    packet: u32,
    running: bool,
    way: VecDeque<Parcel>,
    arrived_last: u64,
    // receiver
    reported: Option<(u64, u64)>,
    report_at: u64,
    received: u64,
    passed: u64,
    report_due: bool,
    early: u32,
    // sender
    last_at: u64,
    last_bytes: u64,
    send_turn: u64,
    in_flight: u64,
    signal_at: u64,
    quiet: u64,
    pub supply: f64,
    supply_from: u64,
    supplied: f64,
    was_limited: bool,
    // books
    /// Bytes that arrived per slot.
    pub slots: Vec<u64>,
    pub sent: u64,
    pub lost: u64,
    pub overflow: u64,
    /// (time, rate, queue, phase) at each signal, when `World::trace` is on.
    pub log: Vec<(u64, u64, u64, &'static str)>,
}

enum Event {
    Start(usize, RateConfig),
    Send { flow: usize, turn: u64 },
    Report(usize),
    Signal { flow: usize, signal: Signal, resolved: u64 },
    Change(Change),
    Quiet(usize),
}

struct Timed(u64, u64, Event);
impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub struct World {
    pub now: u64,
    pub bottleneck: Bottleneck,
    pub flows: Vec<Flow>,
    pub slot_ns: u64,
    /// Per slot: sum of waiting ns over packets, packets, most.
    pub waits: Vec<(f64, u64, f64)>,
    pub trace: bool,
    /// Skew of the receivers' clocks, parts per million.
    pub skew_ppm: f64,
    /// Reports come so many to a round trip, so far apart at least and at most.
    pub reports: (u64, u64, u64),
    events: BinaryHeap<Reverse<Timed>>,
    count: u64,
}

impl World {
    pub fn new(link: Link, slot_ns: u64, seed: u64) -> Self {
        Self {
            now: 0,
            bottleneck: Bottleneck::new(link, seed),
            flows: Vec::new(),
            slot_ns,
            waits: Vec::new(),
            trace: false,
            skew_ppm: 0.0,
            reports: (8, MS, 25 * MS),
            events: BinaryHeap::new(),
            count: 0,
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse(Timed(at_ns, self.count, event)));
    }

    pub fn flow(&mut self, start_ns: u64, rtt_ns: u64, config: RateConfig) -> usize {
        let index = self.flows.len();
        self.flows.push(Flow {
            controller: Controller::new(start_ns, config),
            rtt_ns,
            packet: config.packet_bytes,
            running: false,
            way: VecDeque::new(),
            arrived_last: 0,
            reported: None,
            report_at: 0,
            received: 0,
            passed: 0,
            report_due: false,
            early: 0,
            last_at: start_ns,
            last_bytes: 0,
            send_turn: 0,
            in_flight: 0,
            signal_at: start_ns,
            quiet: 1,
            supply: f64::INFINITY,
            supply_from: 0,
            supplied: 0.0,
            was_limited: false,
            slots: Vec::new(),
            sent: 0,
            lost: 0,
            overflow: 0,
            log: Vec::new(),
        });
        self.at(start_ns, Event::Start(index, config));
        index
    }

    pub fn change(&mut self, at_ns: u64, change: Change) {
        self.at(at_ns, Event::Change(change));
    }

    pub fn run(&mut self, until_ns: u64) {
        while let Some(Reverse(Timed(at, _, _))) = self.events.peek() {
            if *at > until_ns {
                break;
            }
            let Some(Reverse(Timed(at, _, event))) = self.events.pop() else { break };
            self.now = at;
            match event {
                Event::Start(flow, config) => {
                    self.flows[flow].controller = Controller::new(at, config);
                    self.flows[flow].running = true;
                    self.flows[flow].signal_at = at;
                    self.send(flow);
                    self.at(at + SEC, Event::Quiet(flow));
                }
                Event::Send { flow, turn } if turn == self.flows[flow].send_turn => self.send(flow),
                Event::Send { .. } => {}
                Event::Report(flow) => self.report(flow),
                Event::Signal { flow, signal, resolved } => self.signal(flow, &signal, resolved),
                Event::Change(change) => self.apply(change),
                Event::Quiet(flow) => self.quiet(flow),
            }
        }
        self.now = until_ns;
    }

    fn apply(&mut self, change: Change) {
        let now = self.now;
        match change {
            Change::Rate(rate) => self.bottleneck.set_rate(now as f64, rate),
            Change::Rtt(rtt) => self.flows.iter_mut().for_each(|flow| flow.rtt_ns = rtt),
            Change::Down(down) => self.bottleneck.down = down,
            Change::Loss(loss) => self.bottleneck.link.loss = loss,
            Change::Config(flow, config) => {
                self.flows[flow].controller.set(now, config);
                self.reschedule(flow);
            }
            Change::Stop(flow) => self.flows[flow].running = false,
            Change::Supply(flow, rate) => {
                self.flows[flow].supply = rate;
                self.flows[flow].supply_from = now;
                self.flows[flow].supplied = 0.0;
                self.reschedule(flow);
            }
        }
    }

    /// What a sender does when its next burst is due.
    fn send(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        if !flow.running {
            return;
        }
        let packet = u64::from(flow.packet);
        if let Some(packets) = flow.controller.train(now) {
            self.emit(index, u64::from(packets));
        }
        let flow = &mut self.flows[index];
        let burst = (u64::from(flow.controller.burst()) / packet).max(1);
        let room = flow.controller.window().saturating_sub(flow.in_flight) / packet;
        let mut packets = burst.min(room);
        if room == 0 {
            return; // a signal makes room
        }
        if flow.supply.is_finite() {
            let allowed = flow.supply * (now - flow.supply_from) as f64 / 1e9 - flow.supplied;
            let have = (allowed / packet as f64) as u64;
            if have < packets {
                flow.was_limited = true;
                packets = have;
            }
            flow.supplied += (packets * packet) as f64;
            if packets == 0 {
                let wait = ((packet as f64 - allowed) / flow.supply * 1e9) as u64 + 1000;
                flow.send_turn += 1;
                let turn = flow.send_turn;
                self.at(now + wait, Event::Send { flow: index, turn });
                return;
            }
        }
        self.emit(index, packets);
        let flow = &mut self.flows[index];
        flow.last_at = now;
        flow.last_bytes = packets * packet;
        self.reschedule(index);
    }

    fn reschedule(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        if !flow.running {
            return;
        }
        let wait = flow.last_bytes as f64 * 1e9 / flow.controller.rate() as f64;
        let at = flow.last_at.saturating_add(wait as u64).max(now);
        flow.send_turn += 1;
        let turn = flow.send_turn;
        self.at(at, Event::Send { flow: index, turn });
    }

    fn emit(&mut self, index: usize, packets: u64) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let bytes = f64::from(flow.packet);
        let slot = (now / self.slot_ns) as usize;
        if self.waits.len() <= slot {
            self.waits.resize(slot + 1, (0.0, 0, 0.0));
        }
        for _ in 0..packets {
            // A packet's time at the queue: the whole base round trip is put behind the bottleneck, half of it on the way there.
            let fate = self.bottleneck.pass(now as f64, bytes);
            let wait = &mut self.waits[slot];
            *wait = (wait.0 + fate.waited_ns, wait.1 + 1, wait.2.max(fate.waited_ns));
            let jitter = self.bottleneck.link.jitter_ns;
            let jitter = if jitter > 0 { self.bottleneck.dice.next() % jitter } else { 0 };
            let arrives = (fate.left_ns as u64 + flow.rtt_ns / 2 + jitter).max(flow.arrived_last);
            flow.arrived_last = arrives;
            flow.sent += u64::from(flow.packet);
            flow.in_flight += u64::from(flow.packet);
            flow.lost += u64::from(fate.lost) * u64::from(flow.packet);
            flow.overflow += u64::from(fate.overflow) * u64::from(flow.packet);
            flow.way.push_back(Parcel { sent_ns: now, arrives_ns: arrives, lost: fate.lost, marked: fate.marked });
            if !fate.lost {
                let slot = (arrives / self.slot_ns) as usize;
                if flow.slots.len() <= slot {
                    flow.slots.resize(slot + 1, 0);
                }
                flow.slots[slot] += u64::from(flow.packet);
            }
        }
        if !flow.report_due {
            self.schedule_report(index);
        }
    }

    /// The receiver reports every eighth of a round trip, between 1 and 25 ms, unless the world says otherwise; its first 64 packets by eights.
    fn schedule_report(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let Some(first) = flow.way.iter().find(|parcel| !parcel.lost) else { return };
        let gap = if flow.early < 8 {
            let eighth = flow.way.iter().filter(|parcel| !parcel.lost).nth(7).unwrap_or(first);
            flow.early += 1;
            eighth.arrives_ns.min(first.arrives_ns + MS)
        } else {
            first.arrives_ns.max(flow.report_at + (flow.rtt_ns / self.reports.0).clamp(self.reports.1, self.reports.2))
        };
        flow.report_due = true;
        let at = gap.max(self.now);
        self.at(at, Event::Report(index));
    }

    fn report(&mut self, index: usize) {
        let now = self.now;
        let skew = self.skew_ppm;
        let flow = &mut self.flows[index];
        let (mut bytes, mut lost, mut marked, mut lost_pending) = (0, 0, 0, 0);
        let mut newest: Option<(u64, u64)> = None;
        let (mut taken, mut at) = (0, 0);
        for parcel in &flow.way {
            if parcel.arrives_ns > now {
                break;
            }
            at += 1;
            if parcel.lost {
                lost_pending += u64::from(flow.packet);
                continue;
            }
            taken = at;
            lost += lost_pending;
            lost_pending = 0;
            bytes += u64::from(flow.packet);
            marked += u64::from(parcel.marked) * u64::from(flow.packet);
            newest = Some((parcel.arrives_ns, parcel.sent_ns));
        }
        flow.way.drain(..taken);
        flow.report_due = false;
        flow.report_at = now;
        let Some((arrived, sent)) = newest else {
            self.schedule_report(index);
            return;
        };
        flow.received += bytes;
        flow.passed += bytes + lost;
        // The first report has none before it, and says nothing of an interval.
        let before = flow.reported.unwrap_or((arrived, sent));
        let counted = if flow.reported.is_none() { 0 } else { bytes };
        flow.reported = Some((arrived, sent));
        let drift = (arrived as f64 * skew / 1e6) as i64;
        let back = flow.rtt_ns - flow.rtt_ns / 2;
        let signal = Signal {
            now_ns: now + back,
            rtt_ns: (now + back - sent) - (now - arrived),
            one_way_ns: arrived as i64 - sent as i64 + drift - 7_777_777_777,
            burst_before: 0,
            delivered: flow.received,
            passed: flow.passed,
            interval_ns: arrived - before.0,
            interval_bytes: counted,
            sent_interval_ns: sent - before.1,
            lost,
            marked,
            in_flight: 0,
            limited: false,
        };
        let down = self.bottleneck.down;
        if !down {
            self.at(now + back, Event::Signal { flow: index, signal, resolved: bytes + lost });
        } else {
            // The report is lost with all else; what it resolved is resolved by the next one.
            self.flows[index].in_flight = self.flows[index].in_flight.saturating_sub(bytes + lost);
        }
        self.schedule_report(index);
    }

    fn signal(&mut self, index: usize, signal: &Signal, resolved: u64) {
        let (now, trace) = (self.now, self.trace);
        let flow = &mut self.flows[index];
        flow.in_flight = flow.in_flight.saturating_sub(resolved);
        flow.signal_at = now;
        flow.quiet = 1;
        let limited = std::mem::take(&mut flow.was_limited);
        flow.controller.on_signal(&Signal { in_flight: flow.in_flight, limited, ..*signal });
        if trace {
            let controller = &flow.controller;
            flow.log.push((now, controller.rate(), controller.queue_ns(), controller.phase()));
        }
        self.reschedule(index);
    }

    /// Silence is told after four round trips (200 ms at least, and 16 packets at the rate in force, as `flow` does), then each time it doubles.
    fn quiet(&mut self, index: usize) {
        let now = self.now;
        let flow = &mut self.flows[index];
        let packets_ns = (16.0 * f64::from(flow.packet) * 1e9 / flow.controller.rate() as f64) as u64;
        let patience = (4 * flow.rtt_ns).max(200 * MS).max(packets_ns) * flow.quiet;
        if now >= flow.signal_at + patience && flow.sent > 0 {
            flow.quiet *= 2;
            // All that was on its way is given up.
            flow.in_flight =
                flow.way.iter().filter(|parcel| parcel.arrives_ns > now).count() as u64 * u64::from(flow.packet);
            let keep = flow.way.iter().position(|parcel| parcel.arrives_ns > now).unwrap_or(flow.way.len());
            if !flow.report_due {
                flow.way.drain(..keep);
            }
            flow.in_flight = flow.way.len() as u64 * u64::from(flow.packet);
            flow.controller.on_quiet(now);
            self.reschedule(index);
        }
        let next = self.flows[index].rtt_ns.max(50 * MS);
        self.at(now + next, Event::Quiet(index));
    }

    /// Bytes per second that arrived of a flow in [from, to).
    pub fn arrived(&self, flow: usize, from_ns: u64, to_ns: u64) -> f64 {
        let (from, to) = ((from_ns / self.slot_ns) as usize, (to_ns / self.slot_ns) as usize);
        let sum: u64 = self.flows[flow].slots.iter().take(to).skip(from).sum();
        sum as f64 * 1e9 / ((to - from) as f64 * self.slot_ns as f64)
    }

    /// Mean and greatest waiting time in the queue in [from, to), milliseconds.
    pub fn waited_ms(&self, from_ns: u64, to_ns: u64) -> (f64, f64) {
        let (from, to) = ((from_ns / self.slot_ns) as usize, (to_ns / self.slot_ns) as usize);
        let (mut sum, mut count, mut most) = (0.0, 0, 0.0f64);
        for slot in self.waits.iter().take(to).skip(from) {
            sum += slot.0;
            count += slot.1;
            most = most.max(slot.2);
        }
        (sum / count.max(1) as f64 / 1e6, most / 1e6)
    }
}

/// Jain's index: 1 when all are equal, 1/n when one has all.
pub fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    sum * sum / (rates.len() as f64 * squares)
}

//! Two ends of a flow and a virtual path between them, in virtual time, from one seed.
//!
//! For: the tests of `proto::flow`.
//! In and out: a `Path` (two ways and their troubles) and a `Job` in; what happened out.
//! Invariants: the same seed gives the same run; what arrived is kept apart from what the machines believe; both clocks differ.
//! Absent on purpose: bytes and seals; competing flows.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use proto::flow::{Fact, FlowConfig, FlowReceiver, FlowSender, FlowStats, Placed, ReceiverStats, Step};
use proto::packet::{BODY_OVERHEAD, Control, Feedback, PACKET_OVERHEAD, WIRE_EXTRA};
use proto::rate::{ControllerKind, Policy, RateConfig, TrainSeen};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;
/// The receiver's clock is ahead by this.
const CLOCK_AHEAD: u64 = 7_777_777_777_777;
/// More turns than any honest run here takes.
const LOOPS_MAX: u64 = 2_000_000_000;

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn chance(&mut self, ppm: u64) -> bool {
        self.below(1_000_000) < ppm
    }

    /// Evenly by order of magnitude.
    pub fn log(&mut self, from: u64, to: u64) -> u64 {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        (from as f64 * (to as f64 / from as f64).powf(share)) as u64
    }
}

/// One direction.
#[derive(Debug, Clone)]
pub struct Way {
    /// Wire bytes per second; 0: no limit.
    pub rate: u64,
    pub delay_ns: u64,
    /// Each packet is late by up to this, so that they overtake each other.
    pub jitter_ns: u64,
    /// They do not: who is late holds up who comes after, as radio links and busy hosts do.
    pub in_order: bool,
    pub loss_ppm: u64,
    /// Gilbert–Elliott: into the bad state, out of it (ppm per packet); in it half of the packets are lost.
    pub bad: Option<(u64, u64)>,
    pub duplicate_ppm: u64,
    /// Such packets are late by `swap_ns`.
    pub swap_ppm: u64,
    pub swap_ns: u64,
    /// The receiver wakes so far apart and takes what came in between at once, as interfaces that join packets make it; 0: at each.
    pub coarse_ns: u64,
    /// Wire bytes that wait at most.
    pub queue_bytes: u64,
    /// A token bucket of this size, as shapers have: so much passes at once after a rest, whatever the rate.
    pub bucket_bytes: u64,
    /// A policer passes so many wire bytes per second and drops the rest; its bucket holds so many bytes; from that time on. What passes goes on
    /// to the queue. A rate of 0: none any more.
    pub policers: Vec<(u64, u64, u64)>,
    /// CE marks where so many wait.
    pub mark_bytes: u64,
    /// Longest UDP payload; longer ones vanish. From that time on.
    pub mtu: Vec<(u64, usize)>,
    /// Nothing passes from, until.
    pub blackouts: Vec<(u64, u64)>,
    /// The rate changes to this then.
    pub rates: Vec<(u64, u64)>,
    /// Others send into the same queue and yield to nobody.
    pub cross: Option<Cross>,
}

/// Traffic that comes and goes: so many wire bytes per second, less than the way's rate, in the second half of each period.
#[derive(Debug, Clone, Copy)]
pub struct Cross {
    pub rate: u64,
    pub period_ns: u64,
}

impl Cross {
    /// Wire bytes until then.
    pub fn bytes(&self, at_ns: u64) -> f64 {
        let half = self.period_ns / 2;
        let on = at_ns / self.period_ns * half + (at_ns % self.period_ns).saturating_sub(self.period_ns - half);
        on as f64 * self.rate as f64 / SECOND as f64
    }
}

impl Way {
    pub fn new(rate: u64, delay_ns: u64) -> Self {
        Way {
            rate,
            delay_ns,
            jitter_ns: 0,
            in_order: false,
            loss_ppm: 0,
            bad: None,
            duplicate_ppm: 0,
            swap_ppm: 0,
            swap_ns: 0,
            coarse_ns: 0,
            queue_bytes: u64::MAX,
            bucket_bytes: 0,
            policers: Vec::new(),
            mark_bytes: u64::MAX,
            mtu: Vec::new(),
            blackouts: Vec::new(),
            rates: Vec::new(),
            cross: None,
        }
    }

    /// Nanoseconds that so many wire bytes take at its rate.
    fn takes(&self, bytes: u64) -> i64 {
        (u128::from(bytes) * u128::from(SECOND) / u128::from(self.rate.max(1))) as i64
    }
}

#[derive(Debug, Clone)]
pub struct Path {
    pub forth: Way,
    pub back: Way,
    /// The sender's own interface: longer UDP payloads are refused with an error.
    pub local_mtu: usize,
}

impl Path {
    pub fn new(rate: u64, rtt_ns: u64, loss_ppm: u64) -> Self {
        let mut path = Path { forth: Way::new(rate, rtt_ns / 2), back: Way::new(rate, rtt_ns / 2), local_mtu: 65_535 };
        path.forth.loss_ppm = loss_ppm;
        path
    }
}

struct WayState {
    way: Way,
    rng: Rng,
    /// When all that came has passed; before now where a bucket holds tokens.
    free_ns: i64,
    last_ns: u64,
    is_bad: bool,
    policer: Policer,
    /// Until when the others' bytes are in the queue.
    crossed_ns: u64,
    /// Packets that the way lost by itself: not by its queue, its policer or its length.
    own_lost: u64,
}

/// What a policer's bucket holds, and when that was so.
#[derive(Debug, Default)]
struct Policer {
    tokens: f64,
    at_ns: Option<u64>,
}

impl Policer {
    /// The policer in force lets it pass. A bucket is full when its policer begins.
    fn passes(&mut self, policers: &mut Vec<(u64, u64, u64)>, now_ns: u64, wire: u64) -> bool {
        while policers.get(1).is_some_and(|next| next.0 <= now_ns) {
            policers.remove(0);
            self.at_ns = None;
        }
        let Some(&(_, rate, bucket)) = policers.first().filter(|first| first.0 <= now_ns && first.1 > 0) else {
            return true;
        };
        let grown = self.at_ns.map_or(f64::MAX, |at| (now_ns - at) as f64 * rate as f64 / 1e9);
        self.at_ns = Some(now_ns);
        self.tokens = (self.tokens + grown).min(bucket as f64);
        let passes = self.tokens >= wire as f64;
        self.tokens -= if passes { wire as f64 } else { 0.0 };
        passes
    }
}

impl WayState {
    /// When the packet arrives: not at all, once or twice; and marked?
    fn pass(&mut self, now_ns: u64, udp_bytes: usize) -> ([Option<u64>; 2], bool) {
        let none = ([None, None], false);
        let way = &mut self.way;
        while way.rates.first().is_some_and(|change| change.0 <= now_ns) {
            way.rate = way.rates.remove(0).1;
        }
        if let Some(cross) = way.cross {
            // Less than the rate, so a queue that was empty in between is empty at the end, too.
            let came = cross.bytes(now_ns) - cross.bytes(self.crossed_ns);
            let idle_ns = self.crossed_ns as i64 - way.takes(way.bucket_bytes);
            self.free_ns = self.free_ns.max(idle_ns) + (came * SECOND as f64 / way.rate as f64) as i64;
            self.crossed_ns = now_ns;
        }
        let wire = (udp_bytes + WIRE_EXTRA) as u64;
        let mtu = way.mtu.iter().rev().find(|from| from.0 <= now_ns).map_or(usize::MAX, |from| from.1);
        if udp_bytes > mtu || way.blackouts.iter().any(|dark| (dark.0..dark.1).contains(&now_ns)) {
            return none;
        }
        if !self.policer.passes(&mut way.policers, now_ns, wire) {
            return none;
        }
        let mut marked = false;
        let mut at = now_ns;
        if way.rate > 0 {
            let waits_ns = u64::try_from(self.free_ns - now_ns as i64).unwrap_or(0);
            let queued = (waits_ns as u128 * way.rate as u128 / SECOND as u128) as u64;
            if queued + wire > way.queue_bytes {
                return none;
            }
            marked = queued > way.mark_bytes;
            self.free_ns = self.free_ns.max(now_ns as i64 - way.takes(way.bucket_bytes)) + way.takes(wire);
            at = now_ns.max(u64::try_from(self.free_ns).unwrap_or(0));
        }
        if let Some((into, out)) = way.bad {
            self.is_bad = if self.is_bad { !self.rng.chance(out) } else { self.rng.chance(into) };
        }
        if self.rng.chance(way.loss_ppm) || (self.is_bad && self.rng.chance(500_000)) {
            self.own_lost += 1;
            return none;
        }
        at += way.delay_ns + self.rng.below(way.jitter_ns + 1);
        if way.in_order {
            at = at.max(self.last_ns);
            self.last_ns = at;
        }
        if self.rng.chance(way.swap_ppm) {
            at += way.swap_ns;
        }
        if way.coarse_ns > 0 {
            at = at.next_multiple_of(way.coarse_ns);
        }
        let again = self.rng.chance(way.duplicate_ppm).then(|| at + self.rng.below(2 * way.delay_ns + MS));
        ([Some(at), again], marked)
    }
}

#[derive(Debug, Clone)]
pub struct Job {
    pub config: FlowConfig,
    pub bytes: u64,
    pub unit_bytes: u32,
    pub burst_bytes_max: u32,
    /// The sender lets go of each unit once sent; reading it back takes so long.
    pub reload_ns: Option<u64>,
    /// A whole unit takes so long to land: its place is free only then.
    pub land_ns: u64,
    /// One send in so many is refused half-way by the socket.
    pub refuse_ppm: u64,
    /// What a train before the flow showed.
    pub seen: Option<TrainSeen>,
}

impl Job {
    /// A fixed rate and `bytes` in units of a size that fits.
    pub fn fixed(rate: u64, bytes: u64, units_open: u32) -> Self {
        Job {
            config: FlowConfig {
                packet_bytes: 1472,
                packet_bytes_max: 1472,
                unit_bytes_max: 1 << 20,
                rate: RateConfig {
                    controller: ControllerKind::Fixed,
                    policy: Policy::Fixed,
                    target: rate,
                    min: 0,
                    packet_bytes: 1500,
                },
                units_open,
                units_most: units_open,
            },
            bytes,
            unit_bytes: (bytes / 64).clamp(1000, 1 << 20) as u32,
            burst_bytes_max: 65_000,
            reload_ns: None,
            land_ns: 0,
            refuse_ppm: 0,
            seen: None,
        }
    }
}

#[derive(Debug)]
enum Moving {
    Data { number: u64, unit: u32, offset: u32, bytes: u32, marked: bool },
    Word { number: u64, body: Control },
    Feedback(Vec<u8>),
    Reloaded(u32),
    Landed(u32),
}

/// What happened.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Until the last byte was at the receiver.
    pub landed_ns: u64,
    /// Until the sender knew it.
    pub known_ns: u64,
    /// From 99 % to all of the bytes.
    pub tail_ns: u64,
    /// Longest time without a new byte.
    pub pause_ns: u64,
    /// Data bytes of units that the path lost, and data packets.
    pub dropped_bytes: u64,
    pub dropped_packets: u64,
    pub feedback_bytes: u64,
    pub sender: FlowStats,
    pub receiver: ReceiverStats,
    /// Unit bytes that had arrived by the end of each tenth of a second.
    pub progress: Vec<u64>,
    pub queue_ns_max: u64,
    /// Data bytes that the path lost by itself.
    pub own_lost_bytes: u64,
    /// Waits of packets of data that found room in the queue, over the whole job.
    pub waits: Waits,
    /// Longest time for which the sender heard nothing.
    pub unheard_ns: u64,
    /// Packets that met the queue after a fifth of the bytes had landed, and the sum of what they waited.
    pub queued: (u64, u64),
    /// When a fifth of the bytes had landed, and when nine tenths had: between them the flow is neither at its start nor at its end.
    pub steady_ns: (u64, u64),
}

impl Outcome {
    pub fn goodput(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / self.landed_ns as f64
    }

    /// Bytes per second between a fifth and nine tenths of the job.
    pub fn steady(&self, bytes: u64) -> f64 {
        bytes as f64 * 0.7 * 1e9 / (self.steady_ns.1 - self.steady_ns.0).max(1) as f64
    }

    /// Mean wait in the queue, milliseconds, once a fifth of the job was done.
    pub fn queue_ms(&self) -> f64 {
        self.queued.1 as f64 / self.queued.0.max(1) as f64 / 1e6
    }

    /// Sent without need, as a share of the job.
    pub fn redundant(&self, bytes: u64) -> f64 {
        self.receiver.already_bytes.max(self.sender.copy_bytes) as f64 / bytes as f64
    }
}

/// How many packets waited how long, by powers of two in 16 parts each: within 3 % of the truth from 16 ns on.
#[derive(Debug, Clone, Default)]
pub struct Waits(Vec<u32>);

impl Waits {
    fn add(&mut self, ns: u64) {
        let power = ns.max(16).ilog2();
        let part = ns.max(16) >> (power - 4) & 15;
        let place = (power as usize - 4) * 16 + part as usize;
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] += 1;
    }

    /// So large a share of the packets waited no longer than this.
    pub fn at(&self, share: f64) -> u64 {
        let all: u64 = self.0.iter().map(|&count| u64::from(count)).sum();
        let mut left = (all as f64 * share) as u64;
        for (place, &count) in self.0.iter().enumerate() {
            if left < u64::from(count) {
                return if place == 0 { 0 } else { (33 + 2 * (place as u64 % 16)) << (place / 16) >> 1 };
            }
            left -= u64::from(count);
        }
        0
    }
}

/// Bytes of a unit that truly arrived, one bit each.
struct Truth {
    bits: Vec<u64>,
    count: u32,
    bytes: u32,
}

impl Truth {
    fn set(&mut self, from: u32, to: u32) -> u32 {
        let before = self.count;
        let mut at = from;
        while at < to {
            let end = to.min((at / 64 + 1) * 64);
            let len = end - at;
            let mask = if len == 64 { u64::MAX } else { ((1 << len) - 1) << (at % 64) };
            let word = &mut self.bits[at as usize / 64];
            self.count += (mask & !*word).count_ones();
            *word |= mask;
            at = end;
        }
        self.count - before
    }
}

pub struct World {
    pub now_ns: u64,
    pub sender: FlowSender,
    pub receiver: FlowReceiver,
    forth: WayState,
    back: WayState,
    local_mtu: usize,
    job: Job,
    /// (when, order, place in `moving`).
    events: BinaryHeap<Reverse<(u64, u64, u32)>>,
    moving: Vec<Option<Moving>>,
    moving_free: Vec<u32>,
    event: u64,
    truth: BTreeMap<u32, Truth>,
    lens: VecDeque<u32>,
    added: u64,
    landed: u64,
    landed_units: u64,
    whole: Vec<bool>,
    rng: Rng,
    out: Outcome,
    last_new_ns: u64,
    ninety_nine_ns: Option<u64>,
    away: BTreeMap<u32, bool>,
    wake_ns: u64,
    heard_ns: u64,
    pub loops: u64,
}

impl World {
    pub fn new(seed: u64, path: &Path, job: &Job) -> Self {
        let state = |way: &Way, salt| WayState {
            way: way.clone(),
            rng: Rng(seed ^ salt),
            // A bucket is full before anything comes (RFC 2697).
            free_ns: -way.takes(way.bucket_bytes),
            last_ns: 0,
            is_bad: false,
            policer: Policer::default(),
            crossed_ns: 0,
            own_lost: 0,
        };
        let mut sender = FlowSender::new(0, job.config.clone());
        sender.set_job(job.bytes);
        if let Some(seen) = job.seen {
            sender.start_from(seen);
        }
        let receiver = FlowReceiver::new(CLOCK_AHEAD, job.config.clone());
        World {
            now_ns: 0,
            out: Outcome {
                landed_ns: 0,
                known_ns: 0,
                tail_ns: 0,
                pause_ns: 0,
                dropped_bytes: 0,
                dropped_packets: 0,
                feedback_bytes: 0,
                sender: sender.stats(),
                receiver: receiver.stats(),
                progress: Vec::new(),
                queue_ns_max: 0,
                own_lost_bytes: 0,
                waits: Waits::default(),
                unheard_ns: 0,
                queued: (0, 0),
                steady_ns: (0, 0),
            },
            sender,
            receiver,
            forth: state(&path.forth, 0x5555),
            back: state(&path.back, 0xAAAA_0000),
            local_mtu: path.local_mtu,
            job: job.clone(),
            events: BinaryHeap::new(),
            moving: Vec::new(),
            moving_free: Vec::new(),
            event: 0,
            truth: BTreeMap::new(),
            lens: VecDeque::new(),
            added: 0,
            landed: 0,
            landed_units: 0,
            whole: Vec::new(),
            rng: Rng(seed ^ 0x1234_5678),
            last_new_ns: 0,
            ninety_nine_ns: None,
            away: BTreeMap::new(),
            wake_ns: 0,
            heard_ns: 0,
            loops: 0,
        }
    }

    fn at(&mut self, at_ns: u64, moving: Moving) {
        self.event += 1;
        let place = self.moving_free.pop().unwrap_or_else(|| {
            self.moving.push(None);
            self.moving.len() as u32 - 1
        });
        self.moving[place as usize] = Some(moving);
        self.events.push(Reverse((at_ns, self.event, place)));
    }

    fn add_units(&mut self) {
        while self.added < self.job.bytes && self.sender.room() > 0 {
            let bytes = u64::from(self.job.unit_bytes).min(self.job.bytes - self.added) as u32;
            let unit = self.sender.add(bytes);
            assert_eq!(unit as usize, self.whole.len());
            self.added += u64::from(bytes);
            self.whole.push(false);
            self.lens.push_back(bytes);
            let bits = vec![0; bytes.div_ceil(64) as usize];
            self.truth.insert(unit, Truth { bits, count: 0, bytes });
        }
        if self.added == self.job.bytes {
            self.sender.end();
        }
    }

    /// Bytes that are at the receiver.
    pub fn landed(&self) -> u64 {
        self.landed
    }

    /// The way to the receiver, to be changed while it is in use.
    pub fn forth_way(&mut self) -> &mut Way {
        &mut self.forth.way
    }

    /// Until the sender knows that all has arrived. `limit_ns`: no new byte for so long is a stall.
    pub fn run(self, stall_ns: u64) -> Outcome {
        self.run_within(stall_ns, u64::MAX)
    }

    /// The same; after so many turns it is given up.
    pub fn run_within(mut self, stall_ns: u64, loops: u64) -> Outcome {
        self.add_units();
        while !(self.added == self.job.bytes && self.sender.is_done()) {
            assert!(self.loops < loops, "{} of {} bytes after {loops} turns", self.landed, self.job.bytes);
            self.turn(stall_ns);
        }
        self.out.known_ns = self.now_ns;
        self.check_end();
        self.out.sender = self.sender.stats();
        self.out.receiver = self.receiver.stats();
        self.out.pause_ns = self.out.pause_ns.max(self.out.landed_ns - self.last_new_ns);
        self.out
    }

    /// One instant: what arrives, what is told, what is sent.
    pub fn turn(&mut self, stall_ns: u64) {
        self.loops += 1;
        assert!(self.loops < LOOPS_MAX, "turns without end at {} ns: {:?}", self.now_ns, self.sender.stats());
        let event = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
        let tell = self.receiver.next_at().saturating_sub(CLOCK_AHEAD);
        let next = event.min(tell).min(self.wake_ns).max(self.now_ns);
        assert!(
            next < u64::MAX,
            "nothing will ever happen again: {:?} {:?}",
            self.sender.stats(),
            self.receiver.stats()
        );
        self.now_ns = next;
        assert!(
            self.now_ns - self.last_new_ns <= stall_ns,
            "stall at {} ms: {:?} {:?}",
            self.now_ns / MS,
            self.sender.stats(),
            self.receiver.stats()
        );
        while let Some(Reverse((at, _, place))) = self.events.peek().copied()
            && at <= self.now_ns
        {
            self.events.pop();
            let moving = self.moving[place as usize].take().expect("an event has its cargo");
            self.moving_free.push(place);
            self.arrive(moving);
        }
        self.feed();
        self.add_units();
        self.send();
        while let Some(fact) = self.sender.next_fact() {
            self.on_fact(fact);
        }
    }

    fn arrive(&mut self, moving: Moving) {
        match moving {
            Moving::Data { number, unit, offset, bytes, marked } => {
                if !self.receiver.wants(number) {
                    return;
                }
                let clock = self.now_ns + CLOCK_AHEAD;
                let placed = self.receiver.on_data(clock, number, unit, offset, bytes, marked).expect("honest data");
                self.place(unit, offset, bytes, placed);
            }
            Moving::Word { number, body } => {
                if self.receiver.wants(number) {
                    self.receiver.on_control(self.now_ns + CLOCK_AHEAD, number, &body).expect("honest words");
                }
            }
            Moving::Feedback(bytes) => {
                let feedback = Feedback::decode(&bytes).expect("honest feedback");
                self.sender.on_feedback(self.now_ns, &feedback).expect("honest feedback");
                self.out.unheard_ns = self.out.unheard_ns.max(self.now_ns - self.heard_ns);
                (self.heard_ns, self.wake_ns) = (self.now_ns, self.now_ns);
                if std::env::var_os("SHOW").is_some() {
                    self.show();
                }
            }
            Moving::Landed(unit) => self.receiver.done(unit),
            Moving::Reloaded(unit) => {
                self.away.insert(unit, false);
                self.sender.reloaded(unit);
                self.wake_ns = self.now_ns;
            }
        }
    }

    /// `SHOW=1`: a line for each feedback.
    fn show(&self) {
        let (seen, controller) = (self.sender.stats(), self.sender.controller());
        println!(
            "{:10.3} ms {:12} rate {:10.3} Mbit/s rtt {:8.3} ms, queue {:8.3} ms, in flight {:9} B, came {:11} B, lost {:6}, loss {} ppm",
            self.now_ns as f64 / 1e6,
            controller.phase(),
            seen.rate as f64 * 8.0 / 1e6,
            seen.rtt_ns as f64 / 1e6,
            controller.queue_ns() as f64 / 1e6,
            seen.in_flight,
            seen.delivered_bytes,
            seen.lost_packets,
            seen.loss_ppm
        );
    }

    fn place(&mut self, unit: u32, offset: u32, bytes: u32, placed: Placed) {
        let Some(truth) = self.truth.get_mut(&unit) else {
            assert_eq!(placed, Placed::Already, "a unit that landed takes nothing");
            return;
        };
        let new = truth.set(offset, offset + bytes);
        assert_eq!(placed == Placed::New, new > 0, "unit {unit} at {offset}: {placed:?} but {new} bytes are new");
        if new == 0 {
            return;
        }
        self.landed += u64::from(new);
        self.out.pause_ns = self.out.pause_ns.max(self.now_ns - self.last_new_ns);
        self.last_new_ns = self.now_ns;
        let tenth = (self.now_ns / (SECOND / 10)) as usize;
        if self.out.progress.len() <= tenth {
            self.out.progress.resize(tenth + 1, 0);
        }
        self.out.progress[tenth] += u64::from(new);
        if self.landed * 5 >= self.job.bytes && self.out.steady_ns.0 == 0 {
            self.out.steady_ns.0 = self.now_ns;
        }
        if self.landed * 10 >= self.job.bytes * 9 && self.out.steady_ns.1 == 0 {
            self.out.steady_ns.1 = self.now_ns;
        }
        if self.landed * 100 >= self.job.bytes * 99 && self.ninety_nine_ns.is_none() {
            self.ninety_nine_ns = Some(self.now_ns);
        }
        let (count, len) = (truth.count, truth.bytes);
        if offset == 0 {
            self.receiver.set_len(unit, len).expect("honest length");
        }
        assert_eq!(self.receiver.is_whole(unit), count == len, "the receiver knows when a unit is whole");
        if count == len {
            assert_eq!(self.receiver.missing(unit).count(), 0);
            if self.job.land_ns == 0 {
                self.receiver.done(unit);
            } else {
                let at = self.now_ns + self.job.land_ns;
                self.at(at, Moving::Landed(unit));
            }
            self.truth.remove(&unit);
            self.landed_units += 1;
            if self.landed == self.job.bytes {
                self.out.landed_ns = self.now_ns;
                self.out.tail_ns = self.now_ns - self.ninety_nine_ns.expect("99 % come before 100 %");
            }
        }
    }

    fn feed(&mut self) {
        let clock = self.now_ns + CLOCK_AHEAD;
        if let Some((number, feedback)) = self.receiver.feedback(clock) {
            let mut bytes = Vec::new();
            feedback.encode(&mut bytes, 1200 - BODY_OVERHEAD);
            assert!(bytes.len() + BODY_OVERHEAD <= 1200);
            assert_eq!(Feedback::decode(&bytes).as_ref(), Ok(&feedback), "what is told is what is heard");
            assert_eq!(feedback.number, number);
            self.out.feedback_bytes += (bytes.len() + BODY_OVERHEAD + WIRE_EXTRA) as u64;
            let (arrivals, _) = self.back.pass(self.now_ns, bytes.len() + BODY_OVERHEAD);
            for at in arrivals.into_iter().flatten() {
                self.at(at, Moving::Feedback(bytes.clone()));
            }
        }
    }

    fn send(&mut self) {
        if self.wake_ns > self.now_ns {
            return;
        }
        loop {
            self.loops += 1;
            assert!(self.loops < LOOPS_MAX, "turns without end at {} ns: {:?}", self.now_ns, self.sender.stats());
            match self.sender.step(self.now_ns, self.job.burst_bytes_max) {
                Step::Burst(burst) => {
                    assert!(!self.away.get(&burst.unit).copied().unwrap_or(false), "bytes that are not in memory");
                    let packets = burst.packets();
                    assert!(packets > 0);
                    let mut taken = packets;
                    if usize::from(burst.payload) + PACKET_OVERHEAD > self.local_mtu {
                        self.sender.refused(self.now_ns, &burst, 0);
                        self.sender.too_big(self.now_ns);
                        continue;
                    }
                    if self.rng.chance(self.job.refuse_ppm) {
                        taken = self.rng.below(u64::from(packets)) as u32;
                        self.sender.refused(self.now_ns, &burst, taken);
                    }
                    for index in 0..taken {
                        let offset = burst.offset + index * u32::from(burst.payload);
                        let bytes = u32::from(burst.payload).min(burst.offset + burst.bytes - offset);
                        let number = burst.first + u64::from(index);
                        self.send_data(number, burst.unit, offset, bytes);
                    }
                    if taken < packets {
                        self.wake_ns = self.now_ns + MS / 4;
                        return;
                    }
                }
                Step::Control { number, body } => {
                    let mut bytes = Vec::new();
                    body.encode(&mut bytes);
                    assert_eq!(Control::decode(&bytes), Ok(body));
                    let udp = bytes.len() + BODY_OVERHEAD;
                    if udp > self.local_mtu {
                        self.sender.too_big(self.now_ns);
                        continue;
                    }
                    let (arrivals, _) = self.forth.pass(self.now_ns, udp);
                    for at in arrivals.into_iter().flatten() {
                        self.at(at, Moving::Word { number, body });
                    }
                }
                Step::Reload { unit } => {
                    assert_eq!(self.away.get(&unit), Some(&true), "only what is not in memory is read back");
                    let at = self.now_ns + self.job.reload_ns.expect("only units that were let go");
                    self.at(at, Moving::Reloaded(unit));
                }
                Step::Wait { until_ns } => {
                    assert!(until_ns > self.now_ns, "a wait is for later");
                    self.wake_ns = until_ns;
                    return;
                }
            }
        }
    }

    fn send_data(&mut self, number: u64, unit: u32, offset: u32, bytes: u32) {
        let own_lost = self.forth.own_lost;
        let (arrivals, marked) = self.forth.pass(self.now_ns, bytes as usize + PACKET_OVERHEAD);
        let is_own = self.forth.own_lost > own_lost;
        self.out.own_lost_bytes += u64::from(is_own) * u64::from(bytes);
        let waits = u64::try_from(self.forth.free_ns - self.now_ns as i64).unwrap_or(0);
        self.out.queue_ns_max = self.out.queue_ns_max.max(waits);
        if self.out.steady_ns.0 > 0 {
            self.out.queued = (self.out.queued.0 + 1, self.out.queued.1 + waits);
        }
        if arrivals[0].is_some() || is_own {
            let wire = u64::from(bytes) + (PACKET_OVERHEAD + WIRE_EXTRA) as u64;
            self.out.waits.add(waits.saturating_sub((wire * SECOND).checked_div(self.forth.way.rate).unwrap_or(0)));
        }
        if arrivals[0].is_none() {
            self.out.dropped_bytes += u64::from(bytes);
            self.out.dropped_packets += 1;
        }
        for at in arrivals.into_iter().flatten() {
            self.at(at, Moving::Data { number, unit, offset, bytes, marked });
        }
    }

    fn on_fact(&mut self, fact: Fact) {
        match fact {
            Fact::Sent { unit } => {
                if self.job.reload_ns.is_some() {
                    self.away.insert(unit, true);
                    self.sender.unloaded(unit);
                }
            }
            Fact::Whole { unit } => {
                assert!(!self.truth.contains_key(&unit), "whole at the sender is whole at the receiver");
                assert!(!std::mem::replace(&mut self.whole[unit as usize], true), "whole once");
                self.away.remove(&unit);
            }
            Fact::Quiet { since_ns } => assert!(since_ns <= self.now_ns),
        }
    }

    fn check_end(&mut self) {
        while let Some(fact) = self.sender.next_fact() {
            self.on_fact(fact);
        }
        assert_eq!(self.landed, self.job.bytes);
        assert!(self.truth.is_empty() && self.whole.iter().all(|&whole| whole), "every unit was told to be whole");
        let (sender, receiver) = (self.sender.stats(), self.receiver.stats());
        assert_eq!(sender.units, 0, "no unit is left");
        assert!(receiver.units == 0 || self.job.land_ns > 0, "no unit is left there");
        // Copies, probes and words that nobody waits for may be on their way; data that must arrive is not.
        assert!(sender.runs <= 4096, "records of bursts leak: {}", sender.runs);
        assert_eq!(sender.fresh_bytes, self.job.bytes, "every byte is new once");
    }
}

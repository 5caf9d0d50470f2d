//! Congestion control of a datagram rail: a table of controllers behind one type.
//!
//! For: the sender of a flow asks how many bytes per second may leave, hands in what the receiver reported, and never knows which controller is
//! in force.
//! In and out: a `Signal` per feedback in; a rate, a window, a burst size and now and then a train out.
//! Invariants: any `Signal`, however absurd, leaves a rate between 1 byte/s and `RATE_MAX`; the same signals give the same rates; `min` and
//! `target` bound every controller.
//! Absent on purpose: the clock, packets and their repair (`flow`), any knowledge of which bytes were lost. Equations and sources:
//! `docs/design/003-rate-control.md`.

mod bbr; // BBR-like: paced at the greatest delivery rate, probed in a cycle of gains
mod cubic; // RFC 9438, paced
mod delay; // ours: keeps a small queueing delay, ignores random loss
mod queue_drain; // lets the queue run empty, for `delay`
mod fixed; // the rate that the user set
mod non_congestive; // delay above the base that is not queueing
mod loss; // which losses are overflow of a queue
pub mod maths; // logarithms and roots, which core does not have
mod path; // what the signals say of the path: base delay, queue, delivery, loss
mod competitor; // a flow that does not yield to delay
mod base_shift; // the base delay changed: the path became longer
mod trace; // a short history of one figure over time
mod weight; // what a policy means in figures

use alloc::boxed::Box;

pub use self::delay::Gaps;

/// No controller says more than this, bytes per second: 1 Tbit/s, above the 400 Gbit/s we aim at.
pub const RATE_MAX: u64 = 125_000_000_000;
/// The first train, packets. RFC 6928 lets TCP begin with 10; 16 give a dispersion over 15 gaps, and are 3 s of a 64 kbit/s line at worst.
pub const TRAIN_PACKETS: u32 = 16;

/// Before a policer packets leave singly up to so many times a second: a wake-up each costs a tenth of a core.
const SINGLE_PER_SECOND: u64 = 60_000;

/// What a flow is to others on its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Sends at the target, whatever the path's delay and loss.
    Fixed,
    /// About twice the share of `Fair`.
    High,
    /// An equal share.
    Fair,
    /// What others leave.
    Low,
}

/// Which controller is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControllerKind {
    /// Ours: keeps a small queueing delay.
    Delay,
    /// BBR-like.
    Bbr,
    /// CUBIC (RFC 9438), paced.
    Cubic,
    /// Sends at the target.
    Fixed,
}

/// What the user wants; may change while the flow runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateConfig {
    /// The controller.
    pub controller: ControllerKind,
    /// The flow's share beside competing flows; `Bbr` and `Cubic` have no policies.
    pub policy: Policy,
    /// Never faster than this, wire bytes per second; 0: no bound. `Fixed` sends at just this.
    pub target: u64,
    /// Never slower than this, wire bytes per second.
    pub min: u64,
    /// Bytes of one packet on the wire.
    pub packet_bytes: u32,
}

/// What a train that left before the flow began showed of its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrainSeen {
    /// At which it arrived, wire bytes per second.
    pub rate: u64,
    /// There and back.
    pub rtt_ns: u64,
    /// How far off its packets came, ns; 0: they came evenly, or that is not known.
    pub jitter_ns: u64,
    /// This jitter drew the train out, so that its rate is not the link's; otherwise it only hides a queue.
    pub is_uneven: bool,
    /// It came evenly: what looks like jitter is a queue.
    pub is_even: bool,
}

/// What one feedback says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signal {
    /// The sender's clock now.
    pub now_ns: u64,
    /// Round trip of the newest covered packet, the receiver's hold taken off; 0: not known.
    pub rtt_ns: u64,
    /// Arrival (receiver's clock) less departure (sender's clock): only differences mean something.
    pub one_way_ns: i64,
    /// Wire bytes that left in the same burst before the newest packet: it waited for these, whatever the queue.
    pub burst_before: u64,
    /// Wire bytes that arrived since the flow began.
    pub delivered: u64,
    /// Wire bytes sent since the flow began, up to and with the newest packet that arrived: what arrived and what was lost on the way.
    pub passed: u64,
    /// Receiver's clock between the newest packet of the previous report and of this one.
    pub interval_ns: u64,
    /// Wire bytes that arrived in that interval.
    pub interval_bytes: u64,
    /// Sender's clock between the same two packets.
    pub sent_interval_ns: u64,
    /// Wire bytes newly known lost.
    pub lost: u64,
    /// Wire bytes newly known to carry congestion marks (CE).
    pub marked: u64,
    /// Wire bytes sent and not yet resolved.
    pub in_flight: u64,
    /// The sender had nothing to send, or was not allowed to, in that interval.
    pub limited: bool,
}

/// What a controller takes its path for at one moment, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Wire bytes per second that may leave.
    pub rate: u64,
    /// Wire bytes that may be in flight; `u64::MAX`: no bound.
    pub window: u64,
    /// One-way delay above the empty path's.
    pub queue_ns: u64,
    /// Round trip of the empty path; 0: unknown.
    pub base_rtt_ns: u64,
    /// Wire bytes per second that a policer lets through; `None`: none was found.
    pub policer: Option<u64>,
    /// The phase that the controller is in, in a word or two.
    pub phase: &'static str,
}

#[derive(Debug, Clone)]
enum Table {
    Delay(Box<delay::Delay>),
    Bbr(bbr::Bbr),
    Cubic(cubic::Cubic),
    Fixed(fixed::Fixed),
}

/// The rate of one flow, by one of the controllers of the table.
#[derive(Debug, Clone)]
pub struct Controller {
    table: Table,
    config: RateConfig,
    now_ns: u64,
    clock_ahead_ns: u64,
    job_bytes: u64,
}

/// `Fixed`, as controller or policy, needs a target; without one `delay` finds the rate.
fn controller_in_force(config: &RateConfig) -> ControllerKind {
    match (config.controller, config.policy) {
        (ControllerKind::Fixed, _) | (_, Policy::Fixed) if config.target > 0 => ControllerKind::Fixed,
        (ControllerKind::Fixed, _) => ControllerKind::Delay,
        (controller, _) => controller,
    }
}

fn table(now_ns: u64, config: RateConfig) -> Table {
    match controller_in_force(&config) {
        ControllerKind::Delay => Table::Delay(Box::new(delay::Delay::new(now_ns, config))),
        ControllerKind::Bbr => Table::Bbr(bbr::Bbr::new(now_ns, config)),
        ControllerKind::Cubic => Table::Cubic(cubic::Cubic::new(now_ns, config)),
        ControllerKind::Fixed => Table::Fixed(fixed::Fixed::new(config)),
    }
}

fn sane(config: RateConfig) -> RateConfig {
    RateConfig { packet_bytes: config.packet_bytes.clamp(64, 65_536), ..config }
}

impl Controller {
    /// A flow that begins at `now_ns`.
    pub fn new(now_ns: u64, config: RateConfig) -> Self {
        let config = sane(config);
        Self { table: table(now_ns, config), config, now_ns, clock_ahead_ns: 0, job_bytes: 0 }
    }

    /// Before the first packet: a train was seen already, so `delay` sends none and begins where its echo would have led.
    pub fn start_from(&mut self, seen: TrainSeen) {
        if let Table::Delay(delay) = &mut self.table {
            delay.start_from(seen);
        }
    }

    /// The clock that all hosts share (UTC) is ahead of the caller's by so many nanoseconds: `delay` looks at its path when all others do.
    pub fn set_clock(&mut self, ahead_ns: u64) {
        self.clock_ahead_ns = ahead_ns;
        if let Table::Delay(delay) = &mut self.table {
            delay.set_clock(ahead_ns);
        }
    }

    /// Wire bytes of the whole job that the flow is for; 0: not known. Where it is short, `delay` risks less of it at a time.
    pub fn set_job(&mut self, bytes: u64) {
        self.job_bytes = bytes;
        if let Table::Delay(delay) = &mut self.table {
            delay.set_job(bytes);
        }
    }

    /// A feedback came.
    pub fn on_signal(&mut self, signal: &Signal) {
        // Time does not run backwards for a controller, whatever the caller's clock did.
        self.now_ns = self.now_ns.max(signal.now_ns);
        let signal = Signal { now_ns: self.now_ns, ..*signal };
        match &mut self.table {
            Table::Delay(it) => it.on_signal(&signal),
            Table::Bbr(it) => it.on_signal(&signal),
            Table::Cubic(it) => it.on_signal(&signal),
            Table::Fixed(it) => it.on_signal(&signal),
        }
    }

    /// No feedback came for several round trips.
    pub fn on_quiet(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        match &mut self.table {
            Table::Delay(it) => it.on_quiet(self.now_ns),
            Table::Bbr(it) => it.on_quiet(self.now_ns),
            Table::Cubic(it) => it.on_quiet(self.now_ns),
            Table::Fixed(_) => {}
        }
    }

    /// The path swallowed packets of a length: their loss says nothing of the rate.
    pub fn on_black_hole(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        if let Table::Delay(delay) = &mut self.table {
            delay.on_black_hole(self.now_ns);
        }
    }

    /// The user wants something else. Under the same controller nothing learned is lost.
    pub fn set(&mut self, now_ns: u64, config: RateConfig) {
        self.now_ns = self.now_ns.max(now_ns);
        let config = sane(config);
        let same = controller_in_force(&config) == controller_in_force(&self.config);
        self.config = config;
        if !same {
            self.table = table(self.now_ns, config);
            self.set_clock(self.clock_ahead_ns);
            self.set_job(self.job_bytes);
            return;
        }
        match &mut self.table {
            Table::Delay(it) => it.set(config),
            Table::Bbr(it) => it.set(config),
            Table::Cubic(it) => it.set(config),
            Table::Fixed(it) => it.set(config),
        }
    }

    /// Wire bytes per second that may leave now.
    pub fn rate(&self) -> u64 {
        let said = match &self.table {
            Table::Delay(it) => it.rate(),
            Table::Bbr(it) => it.rate(),
            Table::Cubic(it) => it.rate(),
            Table::Fixed(it) => it.rate(),
        };
        let most = if self.config.target == 0 { RATE_MAX } else { self.config.target.min(RATE_MAX) };
        said.max(self.config.min).min(most).max(1)
    }

    /// Wire bytes that may be in flight; `u64::MAX`: no bound.
    pub fn window(&self) -> u64 {
        let said = match &self.table {
            Table::Delay(it) => it.window(),
            Table::Bbr(it) => it.window(),
            Table::Cubic(it) => it.window(),
            Table::Fixed(_) => u64::MAX,
        };
        // A minimum rate is a promise to the user: it must fit into the window, too.
        // ... over the round trip as it is, queues of others and all.
        let floor = u128::from(self.config.min) * u128::from(self.rtt_ns().max(1_000_000)) * 2 / 1_000_000_000;
        said.max(u64::try_from(floor).unwrap_or(u64::MAX)).max(4 * u64::from(self.config.packet_bytes))
    }

    /// Is the controller window-based? A full window is then its normal state; else it means that reports are missing.
    #[must_use]
    pub fn steers_by_window(&self) -> bool {
        matches!(self.table, Table::Cubic(_) | Table::Bbr(_))
    }

    /// Bytes that may leave back to back: 125 µs of the rate, so that a queue of a few tens of packets holds them; at least two packets, or one where a policer was found.
    pub fn burst(&self) -> u32 {
        if self.is_policed() {
            let least = u64::from(self.config.packet_bytes);
            return u32::try_from((self.rate() / SINGLE_PER_SECOND).clamp(least, 1 << 20)).unwrap_or(1 << 20);
        }
        let least = u64::from(self.config.packet_bytes) * 2;
        u32::try_from((self.rate() / 8_000).clamp(least, least.max(1 << 20))).unwrap_or(1 << 20)
    }

    /// A policer was found, or is looked for: its bucket may be shorter than any burst.
    pub(crate) fn is_policed(&self) -> bool {
        match &self.table {
            Table::Delay(it) => it.is_policed() || it.is_climbing(),
            Table::Bbr(_) | Table::Cubic(_) | Table::Fixed(_) => false,
        }
    }

    /// So many packets shall leave back to back now, once: start-up, or a probe of the bottleneck's rate.
    pub fn train(&mut self, now_ns: u64) -> Option<u32> {
        self.now_ns = self.now_ns.max(now_ns);
        match &mut self.table {
            Table::Delay(it) => it.train(self.now_ns),
            _ => None,
        }
    }

    /// The controller's present phase, for people.
    pub fn phase(&self) -> &'static str {
        match &self.table {
            Table::Delay(it) => it.phase(),
            Table::Bbr(it) => it.phase(),
            Table::Cubic(it) => it.phase(),
            Table::Fixed(_) => "fixed",
        }
    }

    /// Wire bytes per second that a policer on the path lets through, where the controller found one.
    #[must_use]
    pub fn policer(&self) -> Option<u64> {
        match &self.table {
            Table::Delay(it) => it.policer(),
            Table::Bbr(_) | Table::Cubic(_) | Table::Fixed(_) => None,
        }
    }

    /// What the controller takes its path for at this moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            rate: self.rate(),
            window: self.window(),
            queue_ns: self.queue_ns(),
            base_rtt_ns: self.base_rtt_ns(),
            policer: self.policer(),
            phase: self.phase(),
        }
    }

    /// Round trip of the empty path, as far as known; 0: unknown.
    pub fn base_rtt_ns(&self) -> u64 {
        match &self.table {
            Table::Delay(it) => it.path().base_rtt_ns(),
            Table::Bbr(it) => it.path().base_rtt_ns(),
            Table::Cubic(it) => it.path().base_rtt_ns(),
            Table::Fixed(it) => it.path().base_rtt_ns(),
        }
    }

    /// Round trip of the newest packet.
    fn rtt_ns(&self) -> u64 {
        match &self.table {
            Table::Delay(it) => it.path().rtt_ns(),
            Table::Bbr(it) => it.path().rtt_ns(),
            Table::Cubic(it) => it.path().rtt_ns(),
            Table::Fixed(it) => it.path().rtt_ns(),
        }
    }

    /// One-way delay above the empty path's: what waits in queues now.
    pub fn queue_ns(&self) -> u64 {
        match &self.table {
            Table::Delay(it) => it.path().queue_ns(),
            Table::Bbr(it) => it.path().queue_ns(),
            Table::Cubic(it) => it.path().queue_ns(),
            Table::Fixed(it) => it.path().queue_ns(),
        }
    }
}

//! Cells of the grid: a path and a job each, spread evenly over all axes at once.
//!
//! For: `make grid`, ten thousand of them; a part of them runs with `cargo test`.
//! In and out: how many cells → each cell's path and job; a cell → what its flow did, as figures and as a line of JSON.
//! Invariants: a cell's path, job and seed follow from its number and `CELLS` alone, so that it is the same whoever runs beside it; along each axis
//! each of the equal parts has one cell (Latin hypercube: McKay, Beckman, Conover 1979), so an axis is covered however few the cells are.
//! Absent on purpose: competing flows that yield (`rate_fair.rs`), outages (`flow_paths.rs`), the connection's own round trips.

use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use proto::rate::{ControllerKind, Policy};
use proto::session::Moment;
use proto::session::transport::greeting::Greetings;

use crate::link::{Cross, Job, MS, Outcome, Path, Rng, SECOND, Way, World};
use crate::model::{self, Ideal};

/// Of the whole grid.
pub const CELLS: usize = 10_000;
/// A job has no more packets than this unless two round trips of data have: 10,000 cells are 800 million packets then, at 0.4 µs each.
pub const PACKETS_MAX: u64 = 300_000;
/// A job has no fewer: two of the trains with which a flow begins.
const PACKETS_MIN: u64 = 32;
/// Wire bytes of a packet that are not the file's: IPv4, UDP, number, place and tag (docs/protocol.md section 7).
pub const HEADERS: u64 = 60;
/// A queue holds so many packets whatever the product is: of two trains.
const QUEUE_PACKETS_MIN: u64 = 32;
/// node/src/job/driver/rails.rs: a datagram rail that hears nothing for so long is dead, and its job goes on over TCP.
const SILENCE_NS: u64 = 15 * SECOND;
/// Axes, each a column of the sample.
const AXES: usize = 14;
/// Of the whole sample.
const SEED: u64 = 17;

/// What lets no more through than the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limiter {
    /// A link with a queue before it.
    Queue,
    /// Drops what its bucket of so many bytes does not cover, on a line ten times as fast.
    Policer(u64),
    /// A queue behind a bucket of so many bytes, which pass at once after a rest.
    Shaper(u64),
}

/// What happens in mid-job.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    None,
    /// The rate is another one from then on.
    Rate {
        at_ns: u64,
        rate: u64,
    },
    /// Others come and go, and yield to nobody.
    Cross(Cross),
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    pub number: usize,
    /// Wire bytes per second.
    pub rate: u64,
    pub packet: u64,
    pub rtt_ns: u64,
    pub loss_ppm: u64,
    /// Packets for which a bad state lasts, which loses half of them; 0: each packet is lost by itself.
    pub burst: u64,
    /// Each packet of either way is late by up to this.
    pub jitter_ns: u64,
    pub in_order: bool,
    pub queue_bytes: u64,
    pub limiter: Limiter,
    pub change: Change,
    /// The receiver wakes so far apart, as interfaces that join packets make it; 0, in every cell of the grid: at each packet.
    pub woken_ns: u64,
    pub bytes: u64,
}

/// From 0 to 1 along each axis, a row for each cell.
fn sample() -> Vec<[f64; AXES]> {
    let mut rows = vec![[0.0; AXES]; CELLS];
    for axis in 0..AXES {
        let mut rng = Rng(SEED << 32 | axis as u64);
        let mut parts: Vec<usize> = (0..CELLS).collect();
        for last in (1..CELLS).rev() {
            parts.swap(last, rng.below(last as u64 + 1) as usize);
        }
        for (row, part) in rows.iter_mut().zip(parts) {
            row[axis] = (part as f64 + rng.below(1 << 20) as f64 / f64::from(1 << 20)) / CELLS as f64;
        }
    }
    rows
}

/// Evenly by order of magnitude.
fn log(from: f64, to: f64, share: f64) -> f64 {
    from * (to / from).powf(share)
}

impl Cell {
    /// All of them, in order.
    pub fn all() -> Vec<Cell> {
        sample().iter().enumerate().map(|(number, row)| Cell::of(number, row)).collect()
    }

    fn of(number: usize, row: &[f64; AXES]) -> Cell {
        let [rate, rtt, loss, form, burst, jitter, late, queue, limiter, bucket, trips, change, size, when] = *row;
        let rate = (log(1e6, 1e10, rate) / 8.0) as u64;
        let rtt_ns = log(1e6, 1e9, rtt) as u64;
        // Beyond 2.5 Gbit/s networks of today have jumbo frames.
        let packet = if rate < 312_500_000 { 1500 } else { 9000 };
        let product = rate as f64 * rtt_ns as f64 / SECOND as f64;
        let loss_ppm = if loss < 0.25 { 0 } else { log(100.0, 100_000.0, (loss - 0.25) / 0.75) as u64 };
        let burst = if loss_ppm == 0 || form < 0.75 { 0 } else { log(2.0, 50.0, burst) as u64 };
        // From a twentieth of a millisecond to 20 ms, a quarter of the round trip at most.
        let jitter_ns = if jitter < 0.6 { 0 } else { log(5e4, 2e7, late).min(rtt_ns as f64 / 4.0) as u64 };
        let bucket = log(packet as f64, 1e6, bucket) as u64;
        let limiter = match limiter {
            it if it < 0.7 => Limiter::Queue,
            it if it < 0.9 => Limiter::Policer(bucket),
            _ => Limiter::Shaper(bucket),
        };
        let most = (PACKETS_MAX * packet) as f64;
        let wire = (product * log(2.0, 1000.0, trips)).min(most.max(2.0 * product)).max((PACKETS_MIN * packet) as f64);
        let spans_ns = wire / rate as f64 * 1e9;
        let change = match change {
            it if it < 0.8 => Change::None,
            it if it < 0.9 || limiter != Limiter::Queue => Change::Rate {
                at_ns: (spans_ns * (0.2 + 0.6 * when)) as u64,
                rate: (rate as f64 * log(0.25, 4.0, size)) as u64,
            },
            _ => Change::Cross(Cross {
                rate: (rate as f64 * (0.1 + 0.6 * size)) as u64,
                period_ns: (rtt_ns as f64 * log(4.0, 64.0, when)) as u64,
            }),
        };
        Cell {
            number,
            rate,
            packet,
            rtt_ns,
            loss_ppm,
            burst,
            jitter_ns,
            in_order: jitter < 0.8,
            queue_bytes: (log(0.25, 4.0, queue) * product) as u64,
            limiter,
            change,
            woken_ns: 0,
            bytes: (wire * (packet - HEADERS) as f64 / packet as f64) as u64,
        }
    }

    /// Wire bytes of a round trip.
    pub fn product(&self) -> f64 {
        self.rate as f64 * self.rtt_ns as f64 / SECOND as f64
    }

    /// Round trips of data.
    pub fn trips(&self) -> f64 {
        self.wire_bytes() / self.product()
    }

    pub fn wire_bytes(&self) -> f64 {
        self.bytes as f64 * self.packet as f64 / (self.packet - HEADERS) as f64
    }

    fn way(&self, rate: u64) -> Way {
        let mut way = Way::new(rate, self.rtt_ns / 2);
        if self.burst > 0 {
            // Half of the packets of a bad state are lost: it is there for twice the share that is lost.
            let (bad, out) = (self.loss_ppm as f64 / 5e5, 1e6 / self.burst as f64);
            way.bad = Some(((out * bad / (1.0 - bad)).round().max(1.0) as u64, out as u64));
        } else {
            way.loss_ppm = self.loss_ppm;
        }
        (way.jitter_ns, way.in_order) = (self.jitter_ns, self.in_order);
        way
    }

    pub fn path(&self) -> Path {
        let line = (10 * self.rate).max(125_000_000);
        let rate = if matches!(self.limiter, Limiter::Policer(_)) { line } else { self.rate };
        let (mut forth, back) = (self.way(rate), self.way(rate));
        forth.queue_bytes = self.queue_bytes.max(QUEUE_PACKETS_MIN * self.packet);
        forth.coarse_ns = self.woken_ns;
        match self.limiter {
            Limiter::Queue => {}
            Limiter::Shaper(bucket) => forth.bucket_bytes = bucket,
            Limiter::Policer(bucket) => {
                forth.queue_bytes = (line / 20).max(100_000);
                forth.policers = vec![(0, self.rate, bucket)];
            }
        }
        match (self.change, self.limiter) {
            (Change::None, _) => {}
            (Change::Rate { at_ns, rate }, Limiter::Policer(bucket)) => forth.policers.push((at_ns, rate, bucket)),
            (Change::Rate { at_ns, rate }, _) => forth.rates = vec![(at_ns, rate)],
            (Change::Cross(cross), _) => forth.cross = Some(cross),
        }
        Path { forth, back, local_mtu: 65_535 }
    }

    pub fn job(&self) -> Job {
        let mut job = Job::fixed(1, self.bytes, 8192);
        job.config.packet_bytes = (self.packet - 28) as u16;
        job.config.packet_bytes_max = job.config.packet_bytes;
        job.config.rate.packet_bytes = self.packet as u32;
        job.config.rate.controller = ControllerKind::Delay;
        job.config.rate.policy = Policy::Fair;
        job.config.rate.target = 0;
        // A chunk, as jobs have them by default.
        job.unit_bytes = self.bytes.min(1 << 20) as u32;
        job
    }

    /// Runs it. What a world refuses to go on with (a stall, turns without end) is in `failed`.
    pub fn run(&self) -> Shown {
        let seed = (self.number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let packets = self.bytes / (self.packet - HEADERS) + 1;
        let world = World::new(seed, &self.path(), &self.job());
        let ran = catch_unwind(AssertUnwindSafe(|| {
            world.run_within(30 * SECOND + 40 * self.rtt_ns, 200 * packets + 2_000_000)
        }));
        match ran {
            Ok(out) => self.shown(&out, seed),
            Err(why) => {
                let said = why.downcast_ref::<String>().cloned();
                let said = said.or_else(|| why.downcast_ref::<&str>().map(|it| (*it).to_owned())).unwrap_or_default();
                Shown { failed: said.chars().take(60).collect(), ..Shown::default() }
            }
        }
    }

    fn shown(&self, out: &Outcome, seed: u64) -> Shown {
        let stats = &out.sender;
        let sent = (stats.fresh_bytes + stats.repair_bytes + stats.copy_bytes) as f64;
        // The loss that this run had, not its mean: chance helps nobody.
        let lost = out.own_lost_bytes as f64 / (sent - (out.dropped_bytes - out.own_lost_bytes) as f64);
        let Ideal { seconds, seconds_least, limit_bytes } = model::ideal(self, lost, out.landed_ns);
        let took = out.landed_ns as f64 / 1e9;
        Shown {
            limit: self.bytes as f64 / limit_bytes,
            model: seconds / took,
            least: seconds_least / took,
            seconds: took,
            sent: (sent - out.own_lost_bytes as f64) / self.bytes as f64,
            own_lost: lost,
            queue_ms: [0.5, 0.95].map(|share| out.waits.at(share) as f64 / MS as f64),
            fall_back: if !self.is_greeted(seed) {
                "greeting"
            } else if out.unheard_ns > SILENCE_NS {
                "silence"
            } else {
                ""
            },
            failed: String::new(),
        }
    }

    /// Is a greeting answered before UDP is given up? By the machine that decides so, over the cell's round trip and its mean loss each way.
    fn is_greeted(&self, seed: u64) -> bool {
        let mut rng = Rng(seed ^ 0x6EE7);
        let mut now = Moment::from_ns(0);
        let mut greetings = Greetings::new(now, Duration::from_nanos(self.rtt_ns), true);
        let mut answer = None;
        loop {
            // Each greeting goes in two lengths.
            for _ in 0..2 * usize::from(greetings.is_due(now)) {
                if !rng.chance(self.loss_ppm) && !rng.chance(self.loss_ppm) {
                    let late = rng.below(2 * self.jitter_ns + 1);
                    answer = answer.or(Some(Moment::from_ns(now.as_ns() + self.rtt_ns + late)));
                }
            }
            if greetings.is_over(now) {
                return false;
            }
            let next = greetings.next();
            if answer.is_some_and(|at| at <= next) {
                return true;
            }
            now = next;
        }
    }

    /// A line of JSON: what the cell is, and what it showed.
    pub fn line(&self, shown: &Shown) -> String {
        let (limiter, bucket) = match self.limiter {
            Limiter::Queue => ("queue", 0),
            Limiter::Policer(bucket) => ("policer", bucket),
            Limiter::Shaper(bucket) => ("shaper", bucket),
        };
        let (change, by) = match self.change {
            Change::None => ("none", 1.0),
            Change::Rate { rate, .. } => ("rate", rate as f64 / self.rate as f64),
            Change::Cross(cross) => ("cross", cross.rate as f64 / self.rate as f64),
        };
        let mut text = String::new();
        let _ = write!(
            text,
            r#"{{"cell":{},"mbit":{:.3},"rtt_ms":{:.3},"packet":{},"loss":{:.6},"burst":{},"jitter_ms":{:.3},"in_order":{},"queue":{:.3},"limiter":"{limiter}","bucket":{bucket},"trips":{:.2},"bytes":{},"change":"{change}","by":{by:.3},"#,
            self.number,
            self.rate as f64 / 125_000.0,
            self.rtt_ns as f64 / 1e6,
            self.packet,
            self.loss_ppm as f64 / 1e6,
            self.burst,
            self.jitter_ns as f64 / 1e6,
            self.in_order,
            self.path().forth.queue_bytes as f64 / self.product(),
            self.trips(),
            self.bytes,
        );
        let [median, most] = shown.queue_ms;
        let Shown { limit, model, least, seconds, sent, own_lost, fall_back, failed, .. } = shown;
        let _ = write!(
            text,
            r#""limit":{limit:.4},"model":{model:.4},"least":{least:.4},"seconds":{seconds:.4},"sent":{sent:.4},"own_lost":{own_lost:.5},"queue_ms":{median:.3},"queue_p95_ms":{most:.3},"fall_back":"{fall_back}","failed":{failed:?}}}"#
        );
        text
    }
}

/// What a cell showed.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Goodput, of what the link could have carried of the file in that time, headers and loss taken off.
    pub limit: f64,
    /// The time that the model takes, of the time it took (`model.rs`).
    pub model: f64,
    /// The same of a sender that knows the path after one round trip.
    pub least: f64,
    pub seconds: f64,
    /// Bytes of the file sent, less what the path lost by itself, of the file.
    pub sent: f64,
    /// Share of the data that the path lost by itself.
    pub own_lost: f64,
    /// Wait in the bottleneck's queue, of the file's packets: median and 95th percentile.
    pub queue_ms: [f64; 2],
    /// Why the job would have gone to TCP; empty: it would not.
    pub fall_back: &'static str,
    /// Why there is nothing to show; empty: there is.
    pub failed: String,
}

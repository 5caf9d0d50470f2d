//! Machines made of numbers: what a placement brings on them, without noise.
//!
//! For: searches whose true best is known.
//! In and out: a placement → bit/s.
//! Invariants: deterministic; the same for placements that mean the same.
//! Sources: the tables are A. Tsutsui et al. (NTT), Tables II, III (9 KB, 64 B) and IV, in Mbit/s; the cost models are made so that each of the
//! contradicting recipes is right on one of them, with the ratios that those documents name.

use topology::placement::shape::{Core, Shape};
use topology::placement::{Placement, Rings, Side};

/// A machine of `packages` × `caches` × `cores`, with one or two threads each, numbered as Linux does (threads last); one node per package, or one.
pub(crate) fn shape(packages: u16, caches: u16, cores: u16, threads: u16, nodes: bool) -> Shape {
    let physical = packages * caches * cores;
    let core = |id: u16| {
        let first = id % physical;
        let package = first / (caches * cores);
        Core { id, node: if nodes { package } else { 0 }, package, cache: first / cores * cores, physical: first }
    };
    Shape {
        cores: (0..physical * threads).map(core).collect(),
        nic_node: Some(0),
        irqs: vec![],
        movable: true,
        rings: true,
    }
}

/// What one end costs, in nanoseconds per byte and shares.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    pub(crate) shape: Shape,
    /// A worker's, an interrupt's.
    pub(crate) app: f64,
    pub(crate) irq: f64,
    /// More, as a share, where worker and interrupt are on two nodes or packages, or in two caches of one.
    pub(crate) node: f64,
    pub(crate) cache: f64,
    /// More where they share a core (less, if negative: what is hot stays hot).
    pub(crate) share: f64,
    /// More where memory is on another node than the worker.
    pub(crate) memory: f64,
    /// More for workers that wander within a set of cores.
    pub(crate) roam: f64,
    /// Share of each core that others have.
    pub(crate) busy: Vec<f64>,
    /// Where interrupts are if nobody moves them.
    pub(crate) irqs: Vec<u16>,
    /// Share of an app's cost that is taken away by more workers waiting for each other, per stream beyond the first.
    pub(crate) crowd: f64,
}

impl Costs {
    pub(crate) fn of(shape: Shape) -> Costs {
        let cores = shape.cores.len();
        Costs {
            shape,
            app: 0.25,
            irq: 0.15,
            node: 0.3,
            cache: 0.1,
            share: 0.1,
            memory: 0.15,
            roam: 0.08,
            busy: vec![0.0; cores],
            irqs: vec![0],
            crowd: 0.01,
        }
    }

    /// bit/s of this end.
    pub(crate) fn rate(&self, side: &Side, streams: u16) -> f64 {
        let irqs = if side.irqs.is_empty() { &self.irqs } else { &side.irqs };
        let all: Vec<u16> = self.shape.cores.iter().map(|core| core.id).collect();
        let workers = if side.workers.is_empty() { &all } else { &side.workers };
        let wander = if side.exact { 0.0 } else { self.roam };
        let mut load = vec![0.0_f64; all.len()];
        for stream in 0..usize::from(streams) {
            // A hash puts two flows on one ring before each has one.
            let ring = if side.rings == Rings::First { stream } else { stream * 7 / 3 };
            let irq = irqs[ring % irqs.len()];
            let core = if side.exact { workers[stream % workers.len()] } else { self.placed(workers, irqs, &load) };
            let (one, two) = (self.shape.core(irq).unwrap(), self.shape.core(core).unwrap());
            let mut more = 1.0 + wander + self.crowd * f64::from(streams - 1);
            if (one.node, one.package) != (two.node, two.package) {
                more += self.node;
            } else if one.cache != two.cache {
                more += self.cache;
            }
            more += if irq == core { self.share } else { 0.0 };
            more += if side.memory.is_some_and(|node| node != two.node) { self.memory } else { 0.0 };
            load[usize::from(core)] += self.app * more;
            load[usize::from(irq)] += self.irq;
        }
        let physical = |id: usize| self.shape.cores[id].physical;
        let slowest = (0..load.len()).filter(|core| load[*core] > 0.0).map(|core| {
            let sibling =
                (0..load.len()).any(|other| other != core && load[other] > 0.0 && physical(other) == physical(core));
            let room = if side.exact { 1.0 - self.busy[core] } else { 1.0 - self.busy[core] / 2.0 };
            room * (if sibling { 0.6 } else { 1.0 }) / load[core]
        });
        8e9 * f64::from(streams) * slowest.fold(f64::MAX, f64::min)
    }

    /// Where a scheduler puts a thread that may wander: the idlest core, not one that takes interrupts.
    fn placed(&self, workers: &[u16], irqs: &[u16], load: &[f64]) -> u16 {
        let weight = |core: &u16| {
            load[usize::from(*core)]
                + self.busy[usize::from(*core)] * self.app
                + if irqs.contains(core) { self.irq } else { 0.0 }
        };
        *workers.iter().min_by(|one, other| weight(one).total_cmp(&weight(other))).unwrap()
    }
}

/// How a table of NTT's is read.
#[derive(Debug, Clone)]
pub(crate) enum Model {
    /// Two ends and the link between.
    Costs { send: Box<Costs>, recv: Box<Costs>, link: f64 },
    /// Tables II and III: one stream, the worker's core at each end (1, 2 of one processor, 3 of the other), interrupts on the first.
    Cores { mbit: [[f64; 3]; 3] },
    /// Table IV: four streams by pattern A to D.
    Patterns { mbit: [f64; 4] },
}

/// The machine of NTT's tables: two packages of two cores, interrupts on the first, one memory.
pub(crate) fn ntt(movable: bool) -> Shape {
    Shape { irqs: vec![0], movable, rings: false, ..shape(2, 1, 2, 1, false) }
}

impl Model {
    pub(crate) fn shapes(&self) -> (Shape, Shape) {
        match self {
            Model::Costs { send, recv, .. } => (send.shape.clone(), recv.shape.clone()),
            Model::Cores { .. } => (ntt(false), ntt(false)),
            Model::Patterns { .. } => (ntt(true), ntt(true)),
        }
    }

    /// Streams that may be tried: the tables have one number.
    pub(crate) fn streams(&self) -> Option<u16> {
        match self {
            Model::Costs { .. } => None,
            Model::Cores { .. } => Some(1),
            Model::Patterns { .. } => Some(4),
        }
    }

    pub(crate) fn rate(&self, placement: &Placement) -> f64 {
        let Placement { send, recv, streams } = placement;
        match self {
            Model::Costs { send: one, recv: two, link } => {
                one.rate(send, *streams).min(two.rate(recv, *streams)).min(*link)
            }
            Model::Cores { mbit } => 1e6 * spread(send, |tx| spread(recv, |rx| mbit[tx][rx])),
            Model::Patterns { mbit } => 1e6 * pattern(send, mbit).min(pattern(recv, mbit)),
        }
    }
}

/// A wandering worker is on each of its cores for as long as on any other, and pays for it; the fourth core is as the third.
fn spread(side: &Side, rate: impl Fn(usize) -> f64) -> f64 {
    let cores = if side.workers.is_empty() { &[0, 1, 2, 3][..] } else { &side.workers };
    let cores = if side.exact { &cores[..1] } else { cores };
    let sum: f64 = cores.iter().map(|core| rate(usize::from(*core).min(2))).sum();
    let roam = if cores.len() > 1 { 0.97 } else { 1.0 };
    sum / cores.len() as f64 * roam
}

/// Which of A to D a side is: what counts is whether workers are with the interrupts, beside them, or away.
fn pattern(side: &Side, mbit: &[f64; 4]) -> f64 {
    let irqs = if side.irqs.is_empty() { &[0][..] } else { &side.irqs };
    let with = |core: &u16| irqs.contains(core);
    let near = |core: &u16| irqs.iter().any(|irq| irq / 2 == core / 2);
    let workers = if side.workers.is_empty() { &[0, 1, 2, 3][..] } else { &side.workers };
    let [a, b, c, d] = *mbit;
    let roam = if side.exact || workers.len() == 1 { 1.0 } else { 0.97 };
    roam * match (workers.iter().any(with), workers.iter().all(with), workers.iter().all(near)) {
        (_, true, _) => b,
        (true, false, true) => c,
        (false, _, true) => a,
        (false, _, false) if !workers.iter().any(near) => d,
        _ => (c + d) / 2.0,
    }
}

//! Crowds: up to ten thousand flows on one bottleneck, of ours by policy and of others.
//!
//! For: `make crowd`, and the page of the book about many flows; a hundred of them run with `cargo test`.
//! In and out: who, how many, on what → use of the link, queue, Jain's index, what each kind has of an equal share.
//! Invariants: every packet is there and every flow has the real controller; round trips and beginnings follow from the seed alone.
//! Absent on purpose: a fluid model: ten thousand flows are eighty million packets, which take a minute or two; repair, and what goes back (`flow`).

use std::fmt::Write as _;

use proto::rate::{ControllerKind, Policy};

use super::{Link, MS, SEC, World, config, jain, mbit};

/// Flows of one kind.
pub type Kind = (&'static str, ControllerKind, Policy);
pub const FAIR: Kind = ("fair", ControllerKind::Delay, Policy::Fair);
pub const HIGH: Kind = ("high", ControllerKind::Delay, Policy::High);
pub const LOW: Kind = ("low", ControllerKind::Delay, Policy::Low);
pub const CUBIC: Kind = ("cubic", ControllerKind::Cubic, Policy::Fair);
pub const BBR: Kind = ("bbr", ControllerKind::Bbr, Policy::Fair);

/// One crowd.
#[derive(Clone)]
pub struct Crowd {
    pub flows: usize,
    /// Of the bottleneck, for each flow.
    pub mbit_each: f64,
    /// Of the queue, at the rate.
    pub queue_ms: f64,
    /// Round trips are spread evenly by order of magnitude between these.
    pub rtt_ms: (f64, f64),
    /// Kinds in turn: the first flow is of the first one, and so on.
    pub kinds: Vec<Kind>,
    pub seconds: u64,
}

/// What it showed in the second half of its time.
pub struct Shown {
    /// Arrived at all receivers, of the link.
    pub used: f64,
    /// Mean wait in the queue, its median and 95th percentile over tenths of a second, and the most of any packet, ms.
    pub queue_ms: [f64; 4],
    /// Of all that was sent.
    pub dropped: f64,
    /// Each kind: its name, Jain's index among its own, its mean share of an equal share, the least and the median flow's.
    pub kinds: Vec<(&'static str, f64, f64, f64, f64)>,
}

/// Runs it: flows begin within the first eighth of the time, receivers report as in life.
pub fn run(crowd: &Crowd, seed: u64) -> Shown {
    let rate = mbit(crowd.mbit_each) * crowd.flows as f64;
    let mut world = World::new(Link::clean(rate, rate * crowd.queue_ms / 1e3), 100 * MS, seed);
    // A receiver reports four times in a round trip (docs/design/003).
    world.reports = (4, MS, 250 * MS);
    let mut dice = super::link::Dice(seed);
    let (least, most) = crowd.rtt_ms;
    for flow in 0..crowd.flows {
        let start = dice.unit() * crowd.seconds as f64 / 8.0 * 1e9;
        let rtt_ns = least * (most / least).powf(dice.unit()) * 1e6;
        let (_, controller, policy) = crowd.kinds[flow % crowd.kinds.len()];
        world.flow(start as u64, rtt_ns as u64, config(controller, policy));
    }
    let (from, to) = (crowd.seconds / 2 * SEC, crowd.seconds * SEC);
    world.run(from);
    let sums = |world: &World| world.flows.iter().fold((0, 0), |sum, flow| (sum.0 + flow.sent, sum.1 + flow.lost));
    let before = sums(&world);
    world.run(to);
    let after = sums(&world);
    let equal = rate / crowd.flows as f64;
    let shares: Vec<f64> = (0..crowd.flows).map(|flow| world.arrived(flow, from, to) / equal).collect();
    let mut names: Vec<&str> = crowd.kinds.iter().map(|kind| kind.0).collect();
    names.sort_unstable();
    names.dedup();
    let kinds = names.into_iter().map(|name| {
        let of = |flow: &usize| crowd.kinds[flow % crowd.kinds.len()].0 == name;
        let mut own: Vec<f64> = (0..crowd.flows).filter(of).map(|flow| shares[flow]).collect();
        own.sort_by(f64::total_cmp);
        (name, jain(&own), own.iter().sum::<f64>() / own.len() as f64, own[0], own[own.len() / 2])
    });
    let tenths = world.waits.iter().skip((from / (100 * MS)) as usize).take(((to - from) / (100 * MS)) as usize);
    let mut waits: Vec<f64> = tenths.map(|it| it.0 / it.1.max(1) as f64 / 1e6).collect();
    waits.sort_by(f64::total_cmp);
    let (mean, most) = world.waited_ms(from, to);
    let at = |share: f64| waits[((waits.len() as f64 * share) as usize).min(waits.len() - 1)];
    Shown {
        used: shares.iter().sum::<f64>() / crowd.flows as f64,
        queue_ms: [mean, at(0.5), at(0.95), most],
        dropped: (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64,
        kinds: kinds.collect(),
    }
}

/// A line of JSON. Of each kind: Jain's index, mean share of an equal share, the least flow's, the median flow's.
pub fn line(crowd: &Crowd, shown: &Shown) -> String {
    let mut mix = String::new();
    for run in crowd.kinds.chunk_by(|one, next| one.0 == next.0) {
        let _ = write!(mix, "{}{} {}", if mix.is_empty() { "" } else { ", " }, run.len(), run[0].0);
    }
    let [mean, median, most, peak] = shown.queue_ms;
    let mut text = format!(
        r#"{{"flows":{},"mbit_each":{},"mix":"{mix}","used":{:.3},"queue_ms":[{mean:.1},{median:.1},{most:.1},{peak:.1}],"dropped":{:.4}"#,
        crowd.flows, crowd.mbit_each, shown.used, shown.dropped
    );
    for (name, index, mean, least, median) in &shown.kinds {
        let _ = write!(text, r#","{name}":[{index:.3},{mean:.3},{least:.3},{median:.3}]"#);
    }
    text + "}"
}

/// Which kinds stand together: of ours alone, by halves, and one of ten beside others; others alone, to compare.
pub fn mixes() -> Vec<Vec<Kind>> {
    let tenth = |many: Kind, one: Kind| [vec![many; 9], vec![one]].concat();
    vec![
        vec![FAIR],
        vec![HIGH],
        vec![LOW],
        vec![FAIR, HIGH],
        vec![FAIR, LOW],
        tenth(FAIR, CUBIC),
        vec![FAIR, CUBIC],
        tenth(CUBIC, FAIR),
        vec![LOW, CUBIC],
        vec![FAIR, BBR],
        vec![LOW, BBR],
        vec![CUBIC],
        vec![BBR],
    ]
}

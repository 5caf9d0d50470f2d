//! The table of controllers: each controller on the same links, both machines of a flow, in virtual time.
//!
//! For: what a user who chooses a congestion controller gets: the link used, little lost by its own doing, nothing sent needlessly.
//! In and out: `LAWS=1` prints the table that docs/design/003 shows.
//! Invariants: all controllers are asked on the same links; what each keeps is its own row of `KEPT`.
//! Absent on purpose: other flows beside it (`rate_fair.rs`), jitter (`flow_jitter.rs`), the whole grid (`flow_grid.rs`).

#[path = "flow/link.rs"]
#[allow(dead_code, unreachable_pub)] // each test binary uses its own part
mod link;

use link::{Job, MS, Path, SECOND, World};
use proto::rate::{ControllerKind, Policy};

/// Mbit/s, round trip in ms, queue in hundredths of their product, loss in parts per million.
type Link = (u64, u64, u64, u64);

const LINKS: [Link; 12] = [
    (50, 20, 100, 0),
    (100, 60, 100, 0),
    (20, 60, 100, 0),
    (155, 150, 100, 0),
    (1000, 10, 100, 0),
    (1000, 50, 100, 0),
    (100, 60, 25, 0),
    (100, 60, 400, 0),
    (100, 60, 100, 1000),
    (100, 60, 100, 10_000),
    (1000, 50, 100, 1000),
    (1000, 10, 100, 10_000),
];

#[derive(Debug, Clone, Copy)]
struct Shown {
    /// Of the limit.
    whole: f64,
    /// Packets that the queue dropped, of those sent.
    dropped: f64,
    redundant: f64,
    queue_ms: f64,
}

fn transfer(
    controller: ControllerKind,
    (rate_mbit, rtt_ms, queue, loss_ppm): Link,
    seed: u64,
    coarse_ns: u64,
) -> Shown {
    let (rate, rtt_ns) = (rate_mbit * 125_000, rtt_ms * MS);
    let limit = rate as f64 * 1440.0 / 1500.0 * (1.0 - loss_ppm as f64 / 1e6);
    let bytes = (limit * rtt_ns as f64 / 1e9 * 100.0) as u64;
    let mut path = Path::new(rate, rtt_ns, loss_ppm);
    path.forth.queue_bytes = (rate * rtt_ms / 1000 * queue / 100).max(30_000);
    path.forth.coarse_ns = coarse_ns;
    let mut job = Job::fixed(rate, bytes, 8192);
    job.config.packet_bytes = 1472;
    job.config.packet_bytes_max = 1472;
    job.unit_bytes = (bytes / 1000).clamp(20_000, 1 << 20) as u32;
    job.config.rate.controller = controller;
    job.config.rate.policy = Policy::Fair;
    job.config.rate.target = if controller == ControllerKind::Fixed { rate * 95 / 100 } else { 0 };
    let out = World::new(seed, &path, &job).run(60 * SECOND + 100 * rtt_ns);
    Shown {
        whole: out.goodput(bytes) / limit,
        dropped: out.dropped_packets as f64 / out.sender.packets.max(1) as f64,
        redundant: out.redundant(bytes),
        queue_ms: out.queue_ms(),
    }
}

/// What each controller keeps on a link without random loss: least of the limit, most dropped by the queue for its own doing. `Fixed` was given 0.95.
const KEPT: [(ControllerKind, f64, f64); 4] = [
    (ControllerKind::Fixed, 0.94, 0.0),
    (ControllerKind::Delay, 0.96, 0.0),
    (ControllerKind::Cubic, 0.80, 0.07),
    (ControllerKind::Bbr, 0.85, 0.06),
];

/// Part of the limit that a window which loss alone bounds can have (Mathis et al. 1997; RFC 9438, 4.3: at these rates CUBIC is no faster).
fn by_loss((rate_mbit, rtt_ms, _, loss_ppm): Link) -> f64 {
    let packets_a_trip = (1.5 / (loss_ppm as f64 / 1e6)).sqrt();
    packets_a_trip * 1500.0 * 8.0 / (rtt_ms as f64 / 1e3) / (rate_mbit as f64 * 1e6)
}

fn wrong(controller: ControllerKind, link: Link, it: &Shown) -> Option<&'static str> {
    let (_, least, dropped) = KEPT.into_iter().find(|(of, ..)| *of == controller).expect("all controllers are there");
    let lost = link.3 as f64 / 1e6;
    if it.redundant >= 0.01 {
        return Some("sends what it need not");
    }
    if it.dropped > dropped + 1.2 * lost {
        return Some("floods the queue");
    }
    if controller == ControllerKind::Delay && it.queue_ms > 10.0 {
        return Some("stands in the queue");
    }
    if controller == ControllerKind::Cubic && link.3 > 0 {
        let of = it.whole / by_loss(link);
        return (!(0.5..2.0).contains(&of)).then_some("is not what CUBIC is under loss");
    }
    // The last repairs are a round trip or two of a hundred.
    let repairs = if lost > 0.0 { lost + 0.02 } else { 0.0 };
    (it.whole < least - repairs).then_some("leaves the link idle")
}

#[test]
fn every_controller_uses_the_link_as_it_should() {
    let mut misses = Vec::new();
    for (controller, ..) in KEPT {
        for link in LINKS {
            let it = transfer(controller, link, 7, 60_000);
            if std::env::var_os("LAWS").is_some() {
                println!("{controller:?} {link:?}: {it:.3?}");
            }
            misses.extend(
                wrong(controller, link, &it).map(|what| format!("{controller:?} on {link:?} {what}: {it:.3?}")),
            );
        }
    }
    assert!(misses.is_empty(), "{}", misses.join("\n"));
}

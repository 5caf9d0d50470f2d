//! One job over several paths: four links of 1 : 1 : 2 : 4 between the two hosts, beside the one of the session.
//!
//! For: the scenarios of this folder. In: UNIT, Mbit/s of the narrowest link. Out: links that can be changed, a daemon that all of them lead to,
//! and what a report says of each path.
//! Invariants: the links are the kernel's and go with the hosts; a busy machine makes links late, never faster, which is why there are tries.
//! Absent on purpose: distance and loss (emulated/), how chunks are shared out (proto/src/send.rs).

pub(crate) mod carry;
pub(crate) mod change;
pub(crate) mod named;
pub(crate) mod nics;

use std::ops::RangeInclusive;
use std::os::fd::AsFd;

use lab::hosts::Side;
use lab::pair::address;
use sys::{netns, veth};

use crate::world::{Daemon, PORT, Run, Skip, World};

/// Of each link, in units.
const WEIGHTS: [u64; 4] = [1, 1, 2, 4];
/// The widest of them.
const WIDEST: usize = 3;
const TRIES: u32 = 3;

/// See the module.
pub(crate) struct Paths {
    unit_mbit: u64,
    daemon: Daemon,
    /// `--path` of each link.
    all: Vec<String>,
}

/// A number that the environment may set, for a longer run by hand.
fn setting(name: &str, otherwise: f64) -> f64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn device(link: usize) -> String {
    format!("lp{link}")
}

/// A link's two addresses as `--path` has them, which is the path's name in reports.
fn path(link: usize) -> String {
    format!("10.99.2{link}.1=10.99.2{link}.2")
}

impl Paths {
    /// Makes the links, and a daemon on host b whose root is `dst`.
    pub(crate) fn make(world: &mut World) -> Result<Paths, Skip> {
        let unit_mbit = make_links(world)?;
        // It listens on all addresses; the client is given that of the session.
        let daemon = world.serve_at(&format!("0.0.0.0:{PORT}"), "dst", &[]);
        let all = (0..WEIGHTS.len()).flat_map(|link| ["--path".to_owned(), path(link)]).collect();
        Ok(Paths { unit_mbit, daemon: at(daemon, "0.0.0.0"), all })
    }

    /// Bytes that the narrowest link carries in so many seconds.
    fn bytes_in(&self, seconds: f64) -> u64 {
        (self.unit_mbit as f64 * 1e6 / 8.0 * seconds) as u64
    }

    /// A place at the daemon.
    fn there(&self, name: &str) -> String {
        format!("{}{name}", self.daemon.url)
    }

    /// These words behind those for all four links.
    fn over_all<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        self.all.iter().map(String::as_str).chain(words.iter().copied()).collect()
    }

    /// What went over the wire, headers and all, in percent of what all links carry.
    fn percent_of_links(&self, run: &Run) -> f64 {
        (run.number("wire_bps") / (self.unit_mbit as f64 * WEIGHTS.iter().sum::<u64>() as f64 * 1e6) * 100.0).round()
    }
}

/// Copies until it is good, or three times.
fn tried(world: &mut World, words: &[&str], arrives: &str, is_good: impl Fn(&Run) -> bool) -> Run {
    let mut tries = 1;
    loop {
        world.remove(arrives);
        let run = world.cp(words);
        if tries == TRIES || is_good(&run) {
            return run;
        }
        tries += 1;
    }
}

/// The daemon, by the address of the session instead of one that means all.
fn at(daemon: Daemon, all: &str) -> Daemon {
    let url = daemon.url.replace(&format!("@{all}:"), &format!("@{}:", address(Side::B)));
    Daemon { url, ..daemon }
}

/// Makes all of them; the narrowest one's Mbit/s.
fn make_links(world: &World) -> Result<u64, Skip> {
    let unit_mbit = setting("UNIT", 60.0) as u64;
    for (link, weight) in WEIGHTS.iter().enumerate() {
        make_link(world, link).map_err(|error| Skip(format!("no link between the hosts: {error}")))?;
        shape(world, &Side::BOTH, link, unit_mbit * weight, "128kb")?;
    }
    Ok(unit_mbit)
}

fn make_link(world: &World, link: usize) -> std::io::Result<()> {
    let name = device(link);
    let [a, b] = Side::BOTH.map(|side| netns::net_of(world.pair().holder(side)));
    veth::make(&name, [a?.as_fd(), b?.as_fd()])?;
    for (side, last) in Side::BOTH.into_iter().zip([1, 2]) {
        let address = std::net::Ipv4Addr::new(10, 99, 20 + u8::try_from(link).expect("four links"), last);
        world
            .pair()
            .inside(side, || netns::add_address(&name, address.into(), 24).and_then(|()| netns::set_up(&name)))?;
    }
    Ok(())
}

/// From now on the link carries so much from these sides.
fn shape(world: &World, sides: &[Side], link: usize, mbit: u64, burst: &str) -> Result<(), Skip> {
    let (name, rate) = (device(link), format!("{mbit}mbit"));
    let bucket = ["tbf", "rate", &rate, "burst", burst, "latency", "20ms"];
    for side in sides {
        let words = [&["qdisc", "replace", "dev", &name, "root"], &bucket[..]].concat();
        world.run(*side, "tc", &words).ok_or_else(|| Skip("no token bucket here".into()))?;
    }
    Ok(())
}

/// Host a's end of the link goes, or comes back.
fn set_link(world: &World, link: usize, state: &str) {
    assert!(world.run(Side::A, "ip", &["link", "set", &device(link), state]).is_some(), "a link is {state}");
}

/// Bytes of each path, as the report has them.
fn brought(run: &Run) -> Vec<u64> {
    let rails = run.field("rails").as_array().cloned().unwrap_or_default();
    rails.iter().map(|rail| rail["bytes"].as_u64().unwrap_or(0)).collect()
}

/// Each path's share of what all brought, in percent of its weight's.
fn shares(run: &Run) -> Vec<f64> {
    let (brought, weights) = (brought(run), WEIGHTS.iter().sum::<u64>() as f64);
    let sum = brought.iter().sum::<u64>() as f64;
    let share = |(bytes, weight): (&u64, &u64)| (100.0 * *bytes as f64 / sum * weights / *weight as f64).round();
    brought.iter().zip(&WEIGHTS).map(share).collect()
}

/// Are these as many shares as there are links, and each within the range?
fn are_within(shares: &[f64], range: &RangeInclusive<f64>) -> bool {
    shares.len() == WEIGHTS.len() && shares.iter().all(|share| range.contains(share))
}

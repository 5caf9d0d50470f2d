//! `longhaul host probe`: searches for the best placement towards a peer once, and keeps the winner for jobs.
//!
//! For: hosts that send to the same peer again and again.
//! In and out: a peer's bench → a line in `LONGHAUL_HOME`; a second time, that line and a short look whether it still holds.
//! Invariants: what is remembered is used only in the world it was found in (kernel, cores and NIC of both ends); it is searched for anew when
//! that changed, or when it turns out slower than no placement at all.
//! Absent on purpose: the search (mod.rs), the file (`topology::cached`), interrupts that stay: only an operator decides on those.

use clap::Args;
use serde::Serialize;
use topology::cached;
use topology::placement::cached::{Line, word};
use topology::placement::{Placement, Side};

use super::report::Report;
use super::rig::Rig;
use super::{SearchArguments, search};
use crate::table::median;
use node::identity::Home;
use node::job::measured;
use node::link::failure_of;
use text::units::show_bits_per_second;
use tune::ab_check::judge;

/// Pairs of trials by which a remembered winner is held against no placement: fewer prove nothing (`tune::ab_check`).
const PAIRS: usize = 7;

/// `longhaul host probe`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "\
  host B:  longhaul bench placement --listen 0.0.0.0:5741
  host A:  longhaul host probe --server hostb:5741
Jobs that send from A to B then run where the winner was; `longhaul cp --explain` says so.")]
pub struct ProbeArguments {
    /// The bench that listens there
    #[arg(long, value_name = "HOST:PORT")]
    pub server: String,

    /// Search again, whatever is remembered
    #[arg(long)]
    pub again: bool,

    #[command(flatten)]
    pub search: SearchArguments,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Record<'a> {
    event: &'static str,
    version: &'static str,
    /// Nothing was searched.
    reused: bool,
    why: &'a str,
    gbps: f64,
    sender: String,
    receiver: String,
    streams: u16,
    search: Option<&'a Report>,
}

/// Runs it.
///
/// # Errors
/// The peer cannot be reached, the connection broke, the home cannot be written.
pub fn run(arguments: &ProbeArguments) -> anyhow::Result<()> {
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let mut rig = Rig::open(Some(&arguments.server), &arguments.search)?;
    let (near, far) = (rig.near.clone(), rig.far.clone());
    let mut known = cached::find(&measured::file(&home), &near.host, rig.peer, &near.nic);
    if let Some(line) = known.as_mut().filter(|_| !arguments.search.irq) {
        let Placement { send, recv, streams } = line.placement.clone();
        line.placement = Placement { send: send.without_irqs(), recv: recv.without_irqs(), streams };
    }
    let same_world = known.as_ref().is_some_and(|it| (it.world, it.far_world) == (near.world, far.world));
    let mut why = match &known {
        None => "nothing was remembered of this path".to_owned(),
        Some(_) if arguments.again => "asked for".to_owned(),
        Some(line) if line.world != near.world => "this host's kernel, cores or NIC changed since".to_owned(),
        Some(_) if !same_world => "the peer's kernel, cores or NIC changed since".to_owned(),
        Some(_) => String::new(),
    };
    if let (Some(line), true, false) = (&known, same_world, arguments.again) {
        match look(&mut rig, &line.placement)? {
            Ok((bps, beside)) => {
                rig.close()?;
                why = format!("found earlier at {}, {beside}", show_bits_per_second(line.bps as f64));
                return tell(arguments, true, &why, &line.placement, bps, None);
            }
            Err(reason) => why = reason,
        }
    }
    let (one, other) = rig.shapes()?;
    let fits = |side: &Side, shape: &topology::placement::shape::Shape| {
        side.workers.iter().all(|core| shape.core(*core).is_some())
    };
    let old = known.map(|line| line.placement).filter(|it| fits(&it.send, &one) && fits(&it.recv, &other));
    let report = search(&mut rig, &arguments.search, old)?;
    let (placement, bps) = report.winner();
    let line = Line {
        host: word(&near.host),
        peer: word(&rig.peer.to_string()),
        nic: word(&near.nic),
        world: near.world,
        far_world: far.world,
        bps: bps as u64,
        placement: placement.clone(),
    };
    measured::keep(&home, &line).map_err(|error| failure_of("keep the winner", &error.into()))?;
    rig.close()?;
    tell(arguments, false, &why, placement, bps, Some(&report))
}

/// The remembered placement beside none, in turn: its rate now and how it stands, or why it does not hold any more.
fn look(rig: &mut Rig, placement: &Placement) -> anyhow::Result<Result<(f64, String), String>> {
    let none = Placement { send: Side::NONE, recv: Side::NONE, streams: placement.streams };
    let mut pairs = Vec::new();
    for _ in 0..PAIRS {
        let mut rates = [0.0; 2];
        for (it, rate) in [placement, &none].into_iter().zip(&mut rates) {
            match rig.measure(it)? {
                Ok(measured) => *rate = measured.bps,
                Err(why) => return Ok(Err(format!("the remembered one cannot be had any more: {why}"))),
            }
        }
        pairs.push((rates[0], rates[1]));
    }
    let verdict = judge(&pairs);
    let percent = (verdict.factor - 1.0) * 100.0;
    if verdict.words() == "hurts" {
        return Ok(Err(format!("the remembered one is {:.1} % slower than none now", -percent)));
    }
    let bps = median(&pairs.iter().map(|(with, _)| *with).collect::<Vec<f64>>());
    Ok(Ok((bps, format!("now {percent:+.1} % beside none in {PAIRS} pairs"))))
}

fn tell(
    arguments: &ProbeArguments,
    reused: bool,
    why: &str,
    placement: &Placement,
    bps: f64,
    search: Option<&Report>,
) -> anyhow::Result<()> {
    let Placement { send, recv, streams } = placement;
    if arguments.json {
        let (version, gbps) = (env!("CARGO_PKG_VERSION"), bps / 1e9);
        let (sender, receiver) = (send.to_string(), recv.to_string());
        let record = Record { event: "probe", version, reused, why, gbps, sender, receiver, streams: *streams, search };
        println!("{}", serde_json::to_string(&record)?);
        return Ok(());
    }
    if let Some(report) = search {
        println!("searched: {why}\n{report}");
    }
    let word = if reused { "remembered" } else { "kept" };
    println!("{word}: send: {send}; receive: {recv}; {streams} streams: {}", show_bits_per_second(bps));
    if reused {
        println!("not searched again: {why}; --again searches");
    }
    Ok(())
}

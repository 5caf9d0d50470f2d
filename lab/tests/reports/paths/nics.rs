//! What NICs say of themselves: the weight of each path, a link that carries less than its NIC says, a name that leads to the slowest of five.
//!
//! In: a /sys/class/net of the hosts' own, in which NICs have speeds. Out: checks of weights, notes, bytes, and of what went over which link.
//! Absent on purpose: the rules themselves (proto/src/session/nic_speeds.rs, proto/src/session/share.rs).

use lab::hosts::Side;
use lab::pair::{DEVICE, address};
use serde_json::Value;

use super::{Paths, WIDEST, path};
use crate::watch::counters;
use crate::world::{PORT, Skip, World};

/// Of the session alone; the job has a hundred times as much.
const SESSION_BYTES: u64 = 2_000_000;
/// The line about a path that leads where no NIC is slow.
const BY_THE_FASTER: &str = "data goes by lp3";

/// What a host's NICs say: their speeds in Mbit/s.
fn say(world: &World, side: Side, nics: &[(&str, u32)]) -> Option<()> {
    world.run(side, "mount", &["-t", "tmpfs", "none", "/sys/class/net"])?;
    for (nic, speed) in nics {
        let folder = format!("/sys/class/net/{nic}");
        let script = format!("mkdir -p {folder} && echo {speed} >{folder}/speed && echo 1500 >{folder}/mtu");
        world.run(side, "sh", &["-c", &script])?;
    }
    Some(())
}

/// Links of 1 : 1 : 2 : 4 whose NICs say 1 : 1 : 2 : 8, that of the session as slow as the slowest of them.
fn make(world: &mut World) -> Result<Paths, Skip> {
    let paths = Paths::make(world)?;
    let slow = [(DEVICE, 1000), ("lp0", 1000), ("lp1", 1000), ("lp2", 2000)];
    say(world, Side::A, &[&slow[..], &[("lp3", 8000)]].concat())
        .and_then(|()| say(world, Side::B, &[&slow[..], &[("lp3", 40000)]].concat()))
        .ok_or_else(|| Skip("no /sys of our own here".into()))?;
    Ok(paths)
}

/// Does the line say of that path `SHARE % (weight WEIGHT %)`?
fn says_both(line: &str, path: &str, weight: u32) -> bool {
    let rest = line.split_once(&format!("{path} ")).map_or("", |(_, rest)| rest);
    rest.trim_start_matches(|it: char| it.is_ascii_digit()).starts_with(&format!(" % (weight {weight} %)"))
}

pub(crate) fn a_share_beside_its_weight_is_told_once(world: &mut World) -> Result<(), Skip> {
    let paths = make(world)?;
    world.random_file("src/long", paths.bytes_in(64.0));
    let (source, there) = (world.word("src/long"), paths.there("long"));
    let run = world.cp(&paths.over_all(&[&source, &there]));
    world.ends(&run, 0, "shares: exit code 0");
    let rails = run.field("rails").as_array().cloned().unwrap_or_default();
    let weights: Vec<_> = rails.iter().map(|rail| (rail["weight"].as_f64().unwrap_or(0.0) * 100.0).round()).collect();
    world.is(weights, vec![8.0, 8.0, 17.0, 67.0], "shares: each path's weight is what the slower of its two NICs says");
    let wide = rails.iter().find(|rail| rail["name"] == path(WIDEST)).cloned().unwrap_or_default();
    let words = "shares: a NIC that says twice what its link carries is off its weight";
    world.is(&wide["off_weight"], &Value::Bool(true), words);
    world.is(run.lines_with(&["other shares than their weights"]), 1, "shares: it is told once, in one line");
    let has_both = run.out.lines().any(|line| says_both(line, &path(WIDEST), 67));
    world.holds("shares: the line says share and weight", has_both, &run.why());
    Ok(())
}

/// What the path brings is what the widest link carries.
pub(crate) fn a_name_that_leads_to_a_slow_nic_does_not_decide(world: &mut World) -> Result<(), Skip> {
    let paths = make(world)?;
    world.random_file("src/large", paths.bytes_in(24.0));
    let source = world.word("src/large");
    let sent = |world: &World| counters(world.pair().holder(Side::A), DEVICE).map_or(0, |(_, sent)| sent);
    let before = sent(world);
    let run = world.cp(&[&source, &paths.there("wrong")]);
    let by_slow = sent(world) - before;
    world.ends(&run, 0, "a slow NIC although a faster one of each end is in one network: exit code 0");
    let reason = "data goes by lp3 (10.99.23.1) to lp3 (10.99.23.2) at 8000 Mbit/s, not by lh0";
    world.holds("a slow NIC: the faster path is used, with the reason", run.lines_with(&[reason]) > 0, &run.why());
    let words = format!("a slow NIC: no payload by it ({by_slow} bytes of the session)");
    world.holds(&words, before > 0 && by_slow < SESSION_BYTES, &run.why());
    world.same("src/large", "dst/wrong", "a slow NIC: the same bytes");
    let run = world.cp(&["--transport", "udp", &source, &paths.there("wrong-udp")]);
    let got = (run.text("transport"), run.lines_with(&[BY_THE_FASTER]));
    world.is(got, ("udp", 1), "a slow NIC, over UDP: the faster path is used");
    let run = world.cp(&[&paths.there("wrong"), &world.word("pulled")]);
    world.is((run.status, run.lines_with(&[BY_THE_FASTER])), (0, 1), "a slow NIC, pulled: the faster path is used");
    Ok(())
}

/// The user may insist, or name the fastest; and nobody may answer there.
pub(crate) fn a_name_that_is_insisted_on_or_alone_decides(world: &mut World) -> Result<(), Skip> {
    let paths = make(world)?;
    world.random_file("src/large", paths.bytes_in(24.0));
    let (source, there) = (world.word("src/large"), address(Side::B).to_string());
    let run = world.cp(&["--path", &there, &source, &paths.there("said")]);
    let words = "a slow NIC that the user insists on: it is used, without a word";
    world.is((run.status, run.lines_with(&["data goes by"])), (0, 0), words);
    let fast = paths.there("right").replace(&format!("@{there}:"), "@10.99.23.2:");
    let run = world.cp(&[&source, &fast]);
    world.is(run.lines_with(&["data goes by"]), 0, "the fastest NIC: no word");
    let daemon = world.serve_at(&format!("{there}:{}", PORT + 1), "dst", &[]);
    let run = world.cp(&[&source, &format!("{}deaf", daemon.url)]);
    let words = "a faster path on which the peer does not answer: told, and the named one is used";
    world.is((run.status, run.lines_with(&["does not answer at 10.99.23.2"])), (0, 1), words);
    world.same("src/large", "dst/deaf", "a faster path without an answer: the same bytes");
    Ok(())
}

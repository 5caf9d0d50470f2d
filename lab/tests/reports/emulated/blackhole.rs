//! A path that swallows packets above 1400 bytes and says nothing of it, from the start or under a running job.
//!
//! In: jobs over emulated links. Out: checks of their notes and of the bytes.
//! Absent on purpose: how it is found (proto/src/session/blackhole.rs).

use std::process::Command;
use std::time::Duration;

use lab::hosts::Side;
use serde_json::Value;

use super::Emulated;
use crate::jobs::shown;
use crate::world::{MIB, Run, Skip, World, until};

/// A job over an emulated link takes longer than one over a wire.
const LIMIT: Duration = Duration::from_secs(100);

/// Pushes a file and pulls it back; what the push said.
fn both_ways(world: &mut World, words: &str, transport: &str, link: &str) -> Result<Run, Skip> {
    world.empty("dst/far");
    let link = Emulated::make(link)?;
    let daemon = link.serve(world);
    let (here, back) = (world.word("src/one.bin"), world.word("back.bin"));
    let push = link.cp(world, &["-v", "--transport", transport, &here, &daemon.url]).end_within(LIMIT);
    world.ends(&push, 0, &format!("{words}: the push ends well ({:.1} s)", push.number("seconds")));
    world.same("src/one.bin", "dst/far/one.bin", &format!("{words}: the push is equal"));
    let there = format!("{}one.bin", daemon.url);
    let pull = link.cp(world, &["-v", "--transport", transport, &there, &back]).end_within(LIMIT);
    world.ends(&pull, 0, &format!("{words}: the pull ends well ({:.1} s)", pull.number("seconds")));
    world.same("src/one.bin", "back.bin", &format!("{words}: the pull is equal"));
    let _ = std::fs::remove_file(&back);
    Ok(push)
}

pub(crate) fn a_path_that_swallows_from_the_start_is_named_with_the_remedy(world: &mut World) -> Result<(), Skip> {
    // Over UDP the session begins in datagrams that pass, and the job with it: one that is not over by then names what its connection has shown.
    for (transport, mib) in [("tcp", 12), ("udp", 48)] {
        world.random_file("src/one.bin", mib * MIB);
        let words = format!("swallowed from the start, {transport}");
        let run = both_ways(world, &words, transport, "rate=50Mbit rtt=10ms blackhole=1400")?;
        let notes = run.notes(&["path MTU black hole to ", " segments of 1180 bytes"]);
        world.is(notes, 1, &format!("{words}: it is said, with the remedy"));
    }
    world.random_file("src/one.bin", 12 * MIB);
    let words = "swallowed from the start, a short job over UDP";
    let run = both_ways(world, words, "udp", "rate=50Mbit rtt=10ms blackhole=1400")?;
    let took = run.number("seconds");
    world.holds(&format!("{words}: it waits for no connection ({took:.1} s)"), took < 4.0, &run.why());
    let run = both_ways(world, "nothing is swallowed", "tcp", "rate=50Mbit rtt=10ms")?;
    world.is(run.notes(&["path MTU black hole"]), 0, "nothing is swallowed: no word");
    Ok(())
}

/// Has a rail brought something, as the job's lines say each second?
fn carries(out: &str) -> bool {
    let mut lines = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.any(|line| line["event"] == "rail" && line["delivered_bps"].as_f64() > Some(400_000.0))
}

/// A job over streams under which the path begins to swallow.
fn in_mid_job(world: &mut World, what: &str, rate: &str, is_push: bool) -> Result<(), Skip> {
    world.empty("dst/far");
    world.empty("back");
    let words = format!("swallowed in mid-job, {} {what}", if is_push { "push" } else { "pull" });
    let mut link = Emulated::make(&format!("rate={rate} rtt=10ms"))?;
    let daemon = link.serve(world);
    let source = world.word(&format!("src/{what}"));
    let (from, to, there) = if is_push {
        (source, daemon.url.clone(), format!("dst/far/{what}"))
    } else {
        let copied = Command::new("cp").args(["-a", &source, &world.word("dst/far")]).status();
        assert!(copied.is_ok_and(|it| it.success()), "cp");
        (format!("{}{what}", daemon.url), format!("{}/", world.word("back")), format!("back/{what}"))
    };
    let job = link.cp(world, &["-v", "--transport", "tcp", &from, &to]);
    // When it is under way, whatever the time is then. By what rails bring: small files are done a thousand at a time, which may be the last.
    let has_begun = until(Duration::from_secs(30), || carries(&job.out()));
    world.holds(&format!("{words}: the job is under way"), has_begun, &job.out());
    link.set("blackhole=1400");
    let run = job.end_within(LIMIT);
    world.ends(&run, 0, &format!("{words}: it ends well ({:.1} s)", run.number("seconds")));
    world.same_tree(&format!("src/{what}"), &there, &format!("{words}: equal"));
    let notes = run.notes(&["path MTU black hole to ", " any more"]);
    world.is(notes, 1, &format!("{words}: it is said, with the remedy"));
    Ok(())
}

/// Long segments of streams, and long frames of the session, which a tree has.
pub(crate) fn a_path_that_begins_to_swallow_is_named_too(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 12 * MIB);
    world.many_files("src/tree", 1_500);
    for (what, rate) in [("one.bin", "20Mbit"), ("tree", "3Mbit")] {
        in_mid_job(world, what, rate, true)?;
        in_mid_job(world, what, rate, false)?;
    }
    Ok(())
}

/// All data has come, and what says so is on its way: a way back so slow that it is on its way for seconds. The peer is heard all the time.
pub(crate) fn a_path_that_swallows_the_last_words_is_left(world: &mut World) -> Result<(), Skip> {
    let words = "the last words are swallowed";
    world.many_files("src/tree", 1_000);
    let files = std::fs::read_dir(world.at("src/tree/0000")).expect("just made");
    let bytes: u64 = files.filter_map(|it| it.ok()?.metadata().ok()).map(|it| it.len()).sum();
    let copied = Command::new("cp").args(["-a", &world.word("src/tree"), &world.word("dst/far")]).status();
    assert!(copied.is_ok_and(|it| it.success()), "cp");
    let mut link = Emulated::make("rate=10Mbit rtt=10ms ab.rate=64kbit ab.queue=8KiB")?;
    let daemon = link.serve(world);
    let (from, to) = (format!("{}tree", daemon.url), format!("{}/", world.word("back")));
    let job = link.cp(world, &["-v", "--transport", "tcp", &from, &to]);
    let has_come = until(Duration::from_secs(30), || shown(world, Side::A, "bytes_done") == bytes);
    world.holds(&format!("{words}: all data has come, and the job goes on"), has_come, &job.out());
    link.set("blackhole=1400");
    let run = job.end_within(LIMIT);
    world.ends(&run, 0, &format!("{words}: it ends well ({:.1} s)", run.number("seconds")));
    world.same_tree("src/tree", "back/tree", &format!("{words}: equal"));
    let notes = run.notes(&["path MTU black hole to ", " any more"]);
    world.is(notes, 1, &format!("{words}: it is said, with the remedy"));
    Ok(())
}

//! A running job on a path that changes: another address of the client, seconds of nothing, last words over a path that loses.
//!
//! In: jobs over emulated links that change meanwhile; files of two sizes, so that the control session has much to say. Out: checks of their
//! notes, reports and bytes.
//! Absent on purpose: which try is made when (proto/src/session/reconnect.rs, engine/tests/sim/session.rs).

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use lab::hosts::Side;

use super::Emulated;
use crate::world::{MIB, Run, Skip, World, until};

/// A job over an emulated link takes longer than one over a wire.
const LIMIT: Duration = Duration::from_secs(100);
const LINK: &str = "rate=40Mbit rtt=60ms";
/// At a rate that is given: this is not about finding one.
const UDP: [&str; 6] = ["--transport", "udp", "--policy", "fixed", "--rate", "30Mbit"];
const TCP: [&str; 2] = ["--transport", "tcp"];
const FILE: [&str; 1] = ["src/one.bin"];

/// What happens, ms from the job's start: words for the link, or another last number of host a's address.
enum Change {
    Link(u64, &'static str),
    Address(u64, u8),
}
use Change::{Address, Link};

/// A job of these sources under these changes.
fn moves(world: &mut World, words: &str, with: &[Change], options: &[&str], sources: &[&str]) -> Result<Run, Skip> {
    world.empty("dst/far");
    let mut link = Emulated::make(LINK)?;
    let daemon = link.serve(world);
    let sources: Vec<String> = sources.iter().map(|name| world.word(name)).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let began = Instant::now();
    let job = link.cp(world, &[&["-v"], options, &sources, &[daemon.url.as_str()]].concat());
    for change in with {
        let (Link(ms, _) | Address(ms, _)) = change;
        std::thread::sleep((began + Duration::from_millis(*ms)).saturating_duration_since(Instant::now()));
        match change {
            Link(_, words) => link.set(words),
            Address(_, last) => link.move_host(Side::A, Ipv4Addr::new(10, 99, 0, *last)),
        }
    }
    let run = job.end_within(LIMIT);
    world.ends(&run, 0, &format!("{words}: it ends well ({:.0} bit/s)", run.number("goodput_bps")));
    world.same("src/one.bin", "dst/far/one.bin", &format!("{words}: the file is equal"));
    Ok(run)
}

fn goes_on(world: &mut World, words: &str, run: &Run, times: usize) {
    let notes = run.notes(&["control session goes on"]);
    world.holds(&format!("{words}: the control session goes on, {times} times or more"), notes >= times, &run.why());
}

fn not_mistaken(world: &mut World, words: &str, run: &Run) {
    let notes = run.notes(&["do not get through"]);
    world.is(notes, 0, &format!("{words}: nobody takes it for packets that are too long"));
}

pub(crate) fn a_client_with_another_address_goes_on(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 16 * MIB);
    world.many_files("src/tree", 1_500);
    let words = "another address, streams";
    let run = moves(world, words, &[Address(2_000, 7)], &TCP, &FILE)?;
    goes_on(world, words, &run, 1);
    let words = "two moves, a tree";
    let run = moves(world, words, &[Address(2_000, 7), Address(5_000, 8)], &UDP, &["src/tree", "src/one.bin"])?;
    world.same_tree("src/tree", "dst/far/tree", &format!("{words}: equal"));
    world.is(run.text("transport"), "udp", &format!("{words}: all of it over UDP"));
    goes_on(world, words, &run, 2);
    not_mistaken(world, words, &run);
    Ok(())
}

pub(crate) fn seconds_of_nothing_end_no_job(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 16 * MIB);
    let words = "three seconds of nothing, streams";
    let run = moves(world, words, &[Link(2_000, "down"), Link(5_100, "up")], &TCP, &FILE)?;
    not_mistaken(world, words, &run);
    let words = "ten seconds of nothing";
    let run = moves(world, words, &[Link(2_000, "down"), Link(12_000, "up")], &UDP, &FILE)?;
    // The session's own connection repeats each second, its datagrams every four at most: whether another connection is there first is chance.
    world.is(run.text("transport"), "udp", &format!("{words}: all of it over UDP"));
    not_mistaken(world, words, &run);
    Ok(())
}

/// What a greeting from a new address meets: this end's address changes while it waits; the session is back before it ends.
pub(crate) fn a_greeting_from_a_new_address_costs_no_rail(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 16 * MIB);
    let words = "another address while one is greeted";
    let run = moves(world, words, &[Link(2_000, "down"), Address(3_000, 7), Link(3_200, "up")], &UDP, &FILE)?;
    world.is(run.text("transport"), "udp", &format!("{words}: all of it over UDP"));
    let words = "a greeting in an outage";
    let run = moves(world, words, &[Link(2_000, "down"), Link(4_800, "up")], &UDP, &FILE)?;
    world.is(run.text("transport"), "udp", &format!("{words}: all of it over UDP"));
    Ok(())
}

/// Receipts at host b that have the sender's signature.
fn signed(world: &World) -> usize {
    let entries = std::fs::read_dir(world.at("home-b/receipts")).into_iter().flatten().flatten();
    let texts = entries.map(|entry| std::fs::read(entry.path()).unwrap_or_default());
    texts.filter(|text| String::from_utf8_lossy(text).lines().any(|line| line.starts_with("signed sender"))).count()
}

/// Where one packet of twelve is lost the sender is gone when its last words arrive, and the daemon's receipts have both signatures. (That a job
/// may not even connect there is not the question.)
pub(crate) fn last_words_arrive_over_a_path_that_loses(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/last.bin", 2_000);
    let link = Emulated::make("rate=40Mbit rtt=60ms loss=8%")?;
    let daemon = link.serve_with(world, "--ticket=reusable");
    let source = world.word("src/last.bin");
    let mut well = 0;
    for number in 1..=4 {
        let job = link.cp(world, &["--transport", "tcp", &source, &format!("{}{number}", daemon.url)]);
        well += usize::from(job.end_within(LIMIT).status == 0);
    }
    until(Duration::from_secs(30), || signed(world) == well);
    let words = "jobs at 8 % of loss: the daemon has the sender's signature under each that ended well";
    world.holds(
        words,
        well > 0 && signed(world) == well,
        &format!("{well} of 4 ended well, {} are signed", signed(world)),
    );
    Ok(())
}

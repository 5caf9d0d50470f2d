//! `longhaul job`: running jobs are seen, changed and stopped, at either end, over TCP and UDP.
//!
//! In: a slow job between two hosts, and commands beside it. Out: checks of the job registry of both ends, of what the commands say, of how the
//! job ends.
//! Absent on purpose: what a cap does to each packet (caps.rs).

pub(crate) mod replan;

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use lab::hosts::Side;
use serde_json::Value;

use crate::world::{Daemon, MIB, Run, Running, Skip, World, has_in_order, until};

/// 48 MiB at 16 Mbit/s would take 25 s; a job that was let go takes less than half of that.
const LET_GO: Duration = Duration::from_secs(12);
/// A change at one end is at the other by then.
const FOLLOWS: Duration = Duration::from_secs(5);

/// A command of `longhaul job`, to its end; its words on either output.
fn job(world: &mut World, side: Side, words: &[&str]) -> (i32, String) {
    let running = world.start(side, &[&["job"], words].concat());
    let run = running.end();
    (run.status, run.out + &run.err)
}

/// A field of the job that runs, as the registry of that host shows it; `gone` where none does.
pub(crate) fn shown(world: &mut World, side: Side, name: &str) -> Value {
    let (_, text) = job(world, side, &["list", "--json"]);
    let jobs: Value = serde_json::from_str(&text).unwrap_or_default();
    jobs.get(0).map_or(Value::from("gone"), |job| job[name].clone())
}

/// Waits until the registry of that host shows this.
fn becomes(world: &mut World, side: Side, name: &str, wanted: impl Into<Value>) -> bool {
    let wanted = wanted.into();
    until(FOLLOWS, || shown(world, side, name) == wanted)
}

/// A slow job that has begun, and its name.
fn running(world: &mut World, words: &[&str]) -> (Running, String) {
    let job = world.start_cp(words);
    let is_seen = until(Duration::from_secs(30), || shown(world, Side::A, "bytes_done").as_f64() > Some(0.0));
    world.holds("job list shows a job that has begun", is_seen, &job.out());
    let name = shown(world, Side::A, "job").as_str().unwrap_or_default().to_owned();
    (job, name)
}

/// A daemon, and a file of 48 MiB for it.
fn begin(world: &mut World) -> (Daemon, String) {
    world.random_file("src/one.bin", 48 * MIB);
    (world.serve("dst/far", &[]), world.word("src/one.bin"))
}

/// Does the job say this, in its lines or to people?
fn says(run: &Run, words: &str) -> bool {
    run.notes(&[words]) > 0
        || run.err.contains(words)
        || run.lines.last().is_some_and(|line| line.to_string().contains(words))
}

pub(crate) fn over_tcp_jobs_are_seen_changed_and_stopped(world: &mut World) -> Result<(), Skip> {
    let home = world.word("home-a");
    let (_, none) = job(world, Side::A, &["list"]);
    world.is(none.trim(), &format!("no job runs here (of LONGHAUL_HOME {home}/)"), "no job: said in words");
    over(world, "tcp")
}

pub(crate) fn over_udp_jobs_are_seen_changed_and_stopped(world: &mut World) -> Result<(), Skip> {
    over(world, "udp")
}

fn over(world: &mut World, transport: &str) -> Result<(), Skip> {
    let (daemon, one) = begin(world);
    let url = daemon.url.as_str();
    // --- seen, and its cap lifted ---
    let (copy, id) = running(world, &["--transport", transport, "--rate", "16Mbit", &one, url]);
    let (_, list) = job(world, Side::A, &["list"]);
    let line = list.lines().find(|line| line.contains(&id[..8])).unwrap_or_default().to_owned();
    let has_no_ticket = line.contains("one.bin -> longhaul://") && !line.contains('@');
    world.holds(&format!("{transport}: the list has what goes where, and no ticket"), has_no_ticket, &list);
    let caps = [shown(world, Side::A, "cap_bps"), shown(world, Side::B, "cap_bps"), shown(world, Side::B, "end")];
    world.is(
        caps,
        [16_000_000.into(), 16_000_000.into(), "receives".into()],
        &format!("{transport}: both ends show the cap"),
    );
    let (_, page) = job(world, Side::A, &["show", &id[..10]]);
    let has_page = page.lines().any(|line| line.starts_with("rails ") && line.contains(&format!(" over {transport}")));
    world.holds(&format!("{transport}: show has a page of it"), has_page, &page);
    let asked = std::time::Instant::now();
    let (_, set) = job(world, Side::A, &["set", &id[..8], "--rate", "2Gbit"]);
    world.holds(
        &format!("{transport}: set says what holds"),
        has_in_order(&set, &["at most 2Gbit", " from now on"]),
        &set,
    );
    let run = copy.end();
    let took = asked.elapsed();
    world.ends(&run, 0, &format!("{transport}: a job whose cap was lifted ends well"));
    world.holds(&format!("{transport}: and soon ({took:?})"), took < LET_GO, &run.why());
    world.same_tree("src/one.bin", "dst/far/one.bin", &format!("{transport}: equal"));
    let said = says(&run, "from now on: `longhaul job set` asked for it at this end");
    world.holds(&format!("{transport}: the job's own lines say who asked"), said, &run.why());
    lowered_and_stopped(world, transport, url);
    Ok(())
}

/// Lowered in mid-run by the end that receives, whose sender follows; then stopped, and gone on with.
fn lowered_and_stopped(world: &mut World, transport: &str, url: &str) {
    let (there, back) = (format!("{url}one.bin"), world.word("back.bin"));
    let (copy, id) = running(world, &["--transport", transport, "--rate", "30Mbit", &there, &back]);
    let (status, text) = job(world, Side::A, &["set", &id, "--rate", "8Mbit"]);
    let follows = status == 0 && becomes(world, Side::B, "cap_bps", 8_000_000);
    world.holds(&format!("{transport}: a pull is lowered, and its sender at the daemon knows"), follows, &text);
    // What was on its way comes.
    std::thread::sleep(Duration::from_secs(1));
    let before = shown(world, Side::A, "bytes_done").as_f64().unwrap_or(0.0);
    std::thread::sleep(Duration::from_secs(3));
    let bytes = shown(world, Side::A, "bytes_done").as_f64().unwrap_or(0.0) - before;
    // Chunks are 1 MiB: one more or less than 3 s of 8 Mbit/s are.
    let held = bytes > 1e6 && bytes < 5.5e6;
    world.holds(&format!("{transport}: 3 s of 8 Mbit/s are {bytes} bytes"), held, "1 to 5.5 MB expected");
    let (_, stop) = job(world, Side::A, &["stop", &id]);
    world.holds(
        &format!("{transport}: stop says how to go on"),
        stop.contains("stopped; the same command goes on"),
        &stop,
    );
    let run = copy.end();
    world.ends(&run, 32, &format!("{transport}: a stopped job ends with its own code"));
    world.holds(&format!("{transport}: it says why"), says(&run, "longhaul job stop"), &run.why());
    let run = world.cp(&["--transport", transport, &there, &back]);
    world.ends(&run, 0, &format!("{transport}: the same command goes on"));
    let resumed = run.number("resumed_bytes");
    world.holds(&format!("{transport}: {resumed} bytes were there"), resumed > 0.0, &run.why());
    world.same_tree("src/one.bin", "back.bin", &format!("{transport}: what was gone on with is equal"));
}

/// By the daemon's operator: what the client asked for stays its cap.
pub(crate) fn the_client_keeps_its_cap_whatever_the_daemon_sets(world: &mut World) -> Result<(), Skip> {
    let (daemon, one) = begin(world);
    let (copy, id) = running(world, &["--transport", "udp", "--rate", "24Mbit", &one, &daemon.url]);
    let policy = [shown(world, Side::B, "policy"), shown(world, Side::B, "controller")];
    world.is(policy, ["fair".into(), "delay".into()], "the daemon's board has the policy");
    let (_, said) = job(world, Side::B, &["set", &id, "--rate", "2Gbit", "--policy", "low"]);
    let said = said.trim().split_once(": ").map_or("", |(_, rest)| rest).to_owned();
    world.is(
        said.as_str(),
        "at most 24Mbit/s, policy low (the other end's cap) from now on",
        "at the daemon: a policy that claims less, and a cap that changes nothing",
    );
    let has_both = becomes(world, Side::A, "policy", "low") && becomes(world, Side::A, "cap_bps", 24_000_000);
    world.holds("the client has it", has_both, &said);
    let (status, more) = job(world, Side::B, &["set", &id, "--min-rate", "4Mbit"]);
    world.holds(
        "at the daemon: it cannot make its client claim more",
        status == 2 && more.contains("its own user alone"),
        &more,
    );
    let (status, text) = job(world, Side::A, &["set", &id, "--min-rate", "4Mbit"]);
    world.holds("the client's own user can", status == 0, &text);
    let has_least = becomes(world, Side::B, "min_rate_bps", 4_000_000) && becomes(world, Side::B, "policy", "low");
    world.holds("the daemon has the least rate", has_least, &text);
    let (_, text) = job(world, Side::A, &["set", &id, "--policy", "fixed"]);
    let is_fixed = becomes(world, Side::A, "policy", "fixed") && becomes(world, Side::B, "policy", "fixed");
    world.holds("a fixed pace at the cap, and the daemon knows", is_fixed, &text);
    let (status, text) = job(world, Side::B, &["set", &id, "--rate", "none"]);
    world.holds("the daemon's own cap is taken back", status == 0, &text);
    // Of which nothing is to be seen here: the client's own cap is the smaller one.
    std::thread::sleep(Duration::from_secs(1));
    let (status, text) = job(world, Side::A, &["set", &id, "--rate", "none"]);
    world.holds(
        "a fixed pace without a cap is refused in words",
        status == 2 && text.contains("a fixed pace needs a rate"),
        &text,
    );
    let (status, text) = job(world, Side::A, &["set", &id, "--rate", "2Gbit", "--policy", "fair"]);
    world.holds("back to fair", status == 0, &text);
    let run = copy.end();
    world.ends(&run, 0, "a job that was changed four times ends well");
    world.same_tree("src/one.bin", "dst/far/one.bin", "a job that was changed four times: equal");
    world.is(&run.field("path")["policy"], &"fair".into(), "the report has the policy at the end");
    Ok(())
}

/// Stopped at the daemon; and a local copy, both ends of which are one process.
pub(crate) fn a_job_is_stopped_at_the_daemon_and_a_local_one_is_let_go(world: &mut World) -> Result<(), Skip> {
    let (daemon, one) = begin(world);
    let (copy, id) = running(world, &["--rate", "16Mbit", &one, &daemon.url]);
    let (_, text) = job(world, Side::B, &["stop", &id]);
    world.holds("stopped at the daemon", text.contains("stopped"), &text);
    let run = copy.end();
    world.ends(&run, 32, "a job that the daemon's operator stopped ends with that code at its client");
    let local = world.word("local.bin");
    let (copy, id) = running(world, &["--rate", "16Mbit", "--reflink", "never", &one, &local]);
    let asked = std::time::Instant::now();
    let (status, text) = job(world, Side::A, &["set", &id, "--rate", "none"]);
    world.holds("a local copy is let go", status == 0, &text);
    let run = copy.end();
    let took = asked.elapsed();
    world.ends(&run, 0, "a local copy ends well");
    world.holds(&format!("a local copy whose cap is taken away is fast ({took:?} of 24 s)"), took < LET_GO, &run.why());
    Ok(())
}

pub(crate) fn what_cannot_be_changed_is_refused_and_a_killed_job_is_not_shown(world: &mut World) -> Result<(), Skip> {
    let (daemon, one) = begin(world);
    let (copy, id) = running(world, &["--rate", "16Mbit", &one, &daemon.url]);
    let (status, text) = job(world, Side::A, &["set", &id, "--policy", "low"]);
    world.holds("a policy over TCP is refused in words", status == 2 && text.contains("goes over TCP"), &text);
    let (status, _) = job(world, Side::A, &["set", &id]);
    world.is(status, 2, "nothing to change is a usage error");
    let (status, text) = job(world, Side::A, &["set", "00000000000000000000000000000000ff", "--rate", "1Mbit"]);
    world.holds("no such job: named, with the next step", status == 5 && text.contains("longhaul job list"), &text);
    copy.kill();
    let job = shown(world, Side::A, "job");
    world.is(job, "gone".into(), "a killed job is not shown");
    world.is(sockets(world, "home-a"), 0, "and its socket is swept");
    let modes =
        ["home-a/run", "home-b/run"].map(|name| std::fs::metadata(world.at(name)).map_or(0, |it| it.mode() & 0o777));
    world.is(modes, [0o700; 2], "nobody else can ask");
    daemon.running.stop();
    world.is(sockets(world, "home-b"), 0, "a daemon that ends takes its socket away");
    Ok(())
}

/// Sockets of a host's job registry.
fn sockets(world: &World, home: &str) -> usize {
    let entries = std::fs::read_dir(world.at(&format!("{home}/run"))).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "sock")).count()
}

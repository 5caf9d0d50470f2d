//! The thirty: what is slow, and what would be right to say.
//!
//! In: a `Bench`, whose seed draws sizes and rates. Out: the run of one job.
//! Invariants: one thing of each is slow by far; what is right is fixed before the run.
//! Absent on purpose: how things are made slow (means.rs, fuse.rs).

use std::time::Duration;

use lab::hosts::Side;

use super::Plant;
use super::fuse::Slow;
use super::means::Bench;
use crate::world::{MIB, Run, Skip};

const READ: &[&str] = &["wait for source", "source read"];
const WRITE: &[&str] = &["wait for destination", "destination write"];
const CORE: &[&str] = &["wait for a core"];
const CAP: &[&str] = &["held by rate cap"];
const SEND: &[&str] = &["wait to send"];

type Job = fn(&mut Bench<'_>) -> Result<Run, Skip>;

const fn plant(name: &'static str, ends: &'static [&'static str], stages: &'static [&'static str], job: Job) -> Plant {
    Plant { name, ends, stages, job }
}

pub(super) const PLANTS: [Plant; 30] = [
    plant("source-disk", &["sender"], READ, |it| source_disk(it, "direct", &[])),
    plant("source-disk-buffered", &["sender"], READ, |it| source_disk(it, "buffered", &[])),
    plant("source-fuse-read", &["sender"], READ, source_fuse),
    plant("destination-disk", &["receiver"], WRITE, |it| destination_disk(it, &["--io-mode", "direct"], "defaults")),
    plant("destination-disk-flush", &["receiver"], WRITE, |it| {
        destination_disk(it, &["--io-mode", "buffered"], "defaults")
    }),
    plant("destination-disk-sync", &["receiver"], WRITE, |it| destination_disk(it, &["--io-mode", "buffered"], "sync")),
    plant("destination-fuse-write", &["receiver"], WRITE, |it| destination_fuse(it, &[])),
    plant("destination-fuse-write-udp", &["receiver"], WRITE, |it| destination_fuse(it, &["--transport", "udp"])),
    plant("destination-fuse-create", &["receiver"], WRITE, destination_creates),
    plant("destination-fuse-fsync", &["receiver"], WRITE, destination_flushes),
    plant("small-files-slow-disk", &["receiver"], WRITE, small_files),
    plant("memory-limit", &["receiver"], WRITE, memory_limit),
    plant("cpu-sender", &["sender"], CORE, |it| cpu_sender(it, &[])),
    plant("cpu-receiver", &["receiver"], CORE, |it| cpu_receiver(it, &[])),
    plant("cpu-receiver-udp", &["receiver"], CORE, |it| cpu_receiver(it, &["--transport", "udp"])),
    plant("cap-of-user", &["cap"], CAP, |it| cap_of_user(it, &["--transport", "tcp"])),
    plant("cap-of-user-udp", &["cap"], CAP, |it| cap_of_user(it, &["--transport", "udp"])),
    plant("cap-of-daemon", &["cap"], CAP, cap_of_daemon),
    plant("cap-above-link", &["network"], SEND, |it| cap_above(it, "tcp")),
    plant("cap-above-link-udp", &["network"], SEND, |it| cap_above(it, "udp")),
    plant("cap-above-source", &["sender"], READ, cap_above_source),
    plant("link", &["network"], SEND, |it| link(it, "tcp")),
    plant("link-udp", &["network"], SEND, |it| link(it, "udp")),
    plant("lossy-stream", &["network"], SEND, lossy),
    plant("lossy-stream-short", &["network"], SEND, lossy_short),
    plant("policer", &["network"], SEND, policer),
    plant("small-buffers", &["network"], SEND, small_buffers),
    plant("pipe-slow", &["sender"], &["wait for the pipe"], pipe),
    plant("names-slow", &["network"], &["name lookup"], names),
    plant("peer-stopped", &["receiver"], &["peer not heard"], stopped),
];

fn source_disk(bench: &mut Bench<'_>, mode: &str, more: &[&str]) -> Result<Run, Skip> {
    let (mib, rate) = (bench.draw("MiB", 90, 160), bench.draw("MiB/s", 25, 60));
    let disk = bench.disk(Side::A, 400, "defaults")?;
    bench.world.random_file("src/file", mib * MIB);
    let (from, to) = (bench.world.word("src/file"), format!("{}/file", disk.folder));
    // Nothing of it stays in memory.
    let script = "cp \"$1\" \"$2\" && sync \"$2\" && echo 1 >/proc/sys/vm/drop_caches";
    bench.world.run(Side::A, "sh", &["-c", script, "sh", &from, &to]).ok_or_else(|| Skip("no disk".into()))?;
    let group = bench.disk_rate(&disk, "read", rate * MIB)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[&group], &[&["--io-mode", mode], more, &[to.as_str()]].concat())
}

fn source_fuse(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let (mib, rate) = (bench.draw("MiB", 70, 120), bench.draw("MiB/s", 20, 50));
    let slow = Slow { read_bps: rate * MIB, ..Slow::default() };
    let bytes: Vec<u8> = (0..mib * MIB).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let folder = bench.fuse(Side::A, slow, vec![("file", bytes)])?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &[&format!("{folder}/file")])
}

fn destination_disk(bench: &mut Bench<'_>, more: &[&str], options: &str) -> Result<Run, Skip> {
    let file = bench.source(90, 160);
    let rate = bench.draw("MiB/s", 25, 60);
    let disk = bench.disk(Side::B, 500, options)?;
    let group = bench.disk_rate(&disk, "write", rate * MIB)?;
    bench.serve(&[&group], &disk.folder.clone(), &[]);
    bench.cp(&[], &[more, &[file.as_str()]].concat())
}

fn destination_fuse(bench: &mut Bench<'_>, more: &[&str]) -> Result<Run, Skip> {
    let file = bench.source(70, 120);
    let rate = bench.draw("MiB/s", 20, 60);
    let folder = bench.fuse(Side::B, Slow { write_bps: rate * MIB, ..Slow::default() }, Vec::new())?;
    bench.serve(&[], &folder, &[]);
    bench.cp(&[], &[more, &[file.as_str()]].concat())
}

fn destination_creates(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let (count, ms) = (bench.draw("files", 300, 600), bench.draw("ms", 4, 9));
    bench.world.many_files("src/many", count);
    let slow = Slow { create: Duration::from_millis(ms), ..Slow::default() };
    let folder = bench.fuse(Side::B, slow, Vec::new())?;
    bench.serve(&[], &folder, &[]);
    let many = bench.world.word("src/many");
    bench.cp(&[], &[&many])
}

fn destination_flushes(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(60, 120);
    let ms = bench.draw("ms", 250, 500);
    let slow = Slow { flush: Duration::from_millis(ms), ..Slow::default() };
    let folder = bench.fuse(Side::B, slow, Vec::new())?;
    bench.serve(&[], &folder, &[]);
    bench.cp(&[], &[&file])
}

fn small_files(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let (count, rate) = (bench.draw("files", 2_000, 4_000), bench.draw("MiB/s", 3, 7));
    bench.world.many_files("src/many", count);
    let disk = bench.disk(Side::B, 400, "defaults")?;
    let group = bench.disk_rate(&disk, "write", rate * MIB)?;
    bench.serve(&[&group], &disk.folder.clone(), &[]);
    let many = bench.world.word("src/many");
    bench.cp(&[], &["--durability", "flushed", &many])
}

/// No room for what the disk has not yet.
fn memory_limit(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(110, 160);
    let (rate, room) = (bench.draw("MiB/s", 25, 45), bench.draw("MiB of memory", 80, 100));
    let disk = bench.disk(Side::B, 500, "defaults")?;
    let (slow, small) = (bench.disk_rate(&disk, "write", rate * MIB)?, bench.memory(room * MIB)?);
    bench.serve(&[&slow, &small], &disk.folder.clone(), &["--memory", "32MiB"]);
    bench.cp(&[], &["--io-mode", "buffered", &file])
}

fn cpu_sender(bench: &mut Bench<'_>, more: &[&str]) -> Result<Run, Skip> {
    let file = bench.source(600, 900);
    let percent = bench.draw("% of a core", 8, 14);
    let group = bench.cores(percent)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[&group], &[more, &[file.as_str()]].concat())
}

fn cpu_receiver(bench: &mut Bench<'_>, more: &[&str]) -> Result<Run, Skip> {
    let file = bench.source(400, 700);
    let percent = bench.draw("% of a core", 12, 22);
    let group = bench.cores(percent)?;
    bench.serve_memory(&[&group], &[]);
    bench.cp(&[], &[more, &[file.as_str()]].concat())
}

fn cap_of_user(bench: &mut Bench<'_>, more: &[&str]) -> Result<Run, Skip> {
    let file = bench.source(100, 180);
    let rate = format!("{}Mbit", bench.draw("Mbit/s", 200, 500));
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &[&["--rate", rate.as_str()], more, &[file.as_str()]].concat())
}

fn cap_of_daemon(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(100, 180);
    let rate = format!("{}Mbit", bench.draw("Mbit/s", 200, 500));
    bench.serve_memory(&[], &["--rate", &rate]);
    bench.cp(&[], &[&file])
}

fn cap_above(bench: &mut Bench<'_>, transport: &str) -> Result<Run, Skip> {
    let file = bench.source(60, 110);
    let mbit = bench.draw("Mbit/s", 120, 300);
    let cap = format!("{}Mbit", mbit * bench.draw("a cap of % of it", 130, 300) / 100);
    bench.link_rate(mbit)?;
    let (client, daemon): (&[&str], &[&str]) =
        if bench.draw("by the daemon", 0, 1) == 0 { (&["--rate", &cap], &[]) } else { (&[], &["--rate", &cap]) };
    bench.serve_memory(&[], daemon);
    bench.cp(&[], &[&["--transport", transport], client, &[file.as_str()]].concat())
}

fn cap_above_source(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let transport = if bench.draw("over udp", 0, 1) == 0 { "tcp" } else { "udp" };
    source_disk(bench, "direct", &["--rate", "2Gbit", "--transport", transport])
}

fn link(bench: &mut Bench<'_>, transport: &str) -> Result<Run, Skip> {
    let file = bench.source(60, 110);
    let mbit = bench.draw("Mbit/s", 120, 300);
    bench.link_rate(mbit)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &["--transport", transport, &file])
}

fn lossy(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(50, 90);
    let words = format!("rate=1Gbit rtt={}ms loss=1%", bench.draw("ms", 20, 50));
    bench.emulate(&words)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &["--transport", "tcp", "--streams", "1", &file])
}

fn lossy_short(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(3, 8);
    let words = format!("rate=1Gbit rtt={}ms loss=2%", bench.draw("ms", 30, 60));
    bench.emulate(&words)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &["--transport", "tcp", "--streams", "1", &file])
}

/// Drops what is above its rate, and keeps nearly nothing in a queue.
fn policer(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(40, 70);
    let words = format!("rate={}Mbit rtt=10ms queue=16KiB", bench.draw("Mbit/s", 120, 250));
    bench.emulate(&words)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &["--transport", "tcp", &file])
}

fn small_buffers(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(12, 20);
    let words = format!("rate=1Gbit rtt={}ms", bench.draw("ms", 15, 30));
    bench.emulate(&words)?;
    bench.buffers(64 << 10)?;
    bench.serve_memory(&[], &[]);
    bench.cp(&[], &["--transport", "tcp", &file])
}

fn pipe(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(70, 120);
    let pauses = bench.draw("pauses", 3, 6);
    bench.serve_memory(&[], &[]);
    let script = "{ for _ in $(seq \"$3\"); do sleep 0.7; done; cat \"$2\"; } | exec \"$1\" cp --json - \"$4name\"";
    let (binary, url) = (bench.world.binary().display().to_string(), bench.url());
    let mut command = bench.world.pair().command(Side::A, "sh").expect("the host is there");
    command.args(["-c", script, "sh", &binary, &file, &pauses.to_string(), &url]).env("TMPDIR", bench.world.at("src"));
    Ok(bench.world.spawn(Side::A, command).end())
}

fn names(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(70, 150);
    let after = bench.draw("ms", 3_000, 6_000);
    bench.slow_names(Duration::from_millis(after))?;
    bench.serve_memory(&[], &[]);
    let (binary, url) = (bench.world.binary().to_owned(), bench.url());
    let named = url.replacen(&lab::pair::address(Side::B).to_string(), "far.example", 1);
    let mut command = bench.world.pair().command(Side::A, binary).expect("the host is there");
    command.args(["cp", "--json", &file, &named]);
    Ok(bench.world.spawn(Side::A, command).end())
}

fn stopped(bench: &mut Bench<'_>) -> Result<Run, Skip> {
    let file = bench.source(60, 100);
    let (mbit, ms) = (bench.draw("Mbit/s", 250, 400), bench.draw("ms", 5_000, 7_000));
    bench.link_rate(mbit)?;
    bench.serve_memory(&[], &[]);
    let daemon = bench.daemon_id().to_string();
    let running = bench.start_cp(&[], &["--transport", "tcp", &file]);
    std::thread::sleep(Duration::from_millis(900));
    let tell = |signal: &str| std::process::Command::new("kill").args([signal, &daemon]).status();
    let told = tell("-STOP");
    std::thread::sleep(Duration::from_millis(ms));
    let again = tell("-CONT");
    told.and(again).map_err(|error| Skip(format!("kill: {error}")))?;
    Ok(running.end_within(Duration::from_secs(60)))
}

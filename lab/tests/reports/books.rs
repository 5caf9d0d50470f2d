//! The stage accounting of both ends: it sums to the workers' wall time within 2 %, over jobs of every kind, and that is no more than the job's own;
//! no end books time to a stage of the other.
//!
//! In: jobs of every kind between two hosts. Out: checks of `stages_local` and `stages_remote` of their reports.
//! Absent on purpose: which stage was the slow one (lab/tests/plants/).

use crate::world::{MIB, Run, Skip, World};

/// Of a whole wall: what an end may have booked to a stage that it has no part in.
const ALIEN_PERCENT_MAX: f64 = 0.1;

/// An end books nothing to the other's stages: who receives reads no source, who sends writes no destination.
fn alien(run: &Run) -> Result<(), String> {
    let pushed = run.text("direction") == "push";
    for (side, sends) in [("local", pushed), ("remote", !pushed)] {
        let alien = if sends { "destination write" } else { "source read" };
        let books = run.field(&format!("stages_{side}"));
        let all = books["stages"].as_array().ok_or(format!("{side}: no stages"))?;
        let found = all.iter().find(|stage| stage["stage"] == alien).ok_or(format!("{side}: no stage {alien}"))?;
        let percent = found["percent"].as_f64().ok_or(format!("{side}: {alien} has no percent"))?;
        if percent > ALIEN_PERCENT_MAX {
            return Err(format!("{side}: {percent:.2} % are booked to {alien}"));
        }
    }
    Ok(())
}

/// Both ends of a job: what does not add up. A wall of less than 20 ms is one timer's slack away from anything: it must be right within 0.4 ms there.
fn summed(run: &Run) -> Result<String, String> {
    let job_ms = run.number("seconds") * 1000.0;
    let mut said = String::new();
    for side in ["local", "remote"] {
        let books = run.field(&format!("stages_{side}"));
        let number = |name: &str| books[name].as_f64().unwrap_or(0.0);
        let stages = books["stages"].as_array().ok_or(format!("{side}: no stages"))?;
        let booked: f64 = stages.iter().filter_map(|stage| stage["ms"].as_f64()).sum();
        let (wall, workers, payload) = (number("wall_ms"), number("workers"), number("payload_bytes"));
        if workers == 0.0 || wall == 0.0 || payload < run.number("bytes") {
            return Err(format!("{side}: {workers} workers, {wall} ms, {payload} of {} B", run.number("bytes")));
        }
        if (booked - wall).abs() > (0.02 * wall).max(0.4 * workers) {
            return Err(format!("{side}: {booked:.2} ms booked of {wall:.2}"));
        }
        if wall / workers > job_ms * 1.02 + 5.0 {
            return Err(format!("{side}: {:.1} ms of each worker in a job of {job_ms:.1} ms", wall / workers));
        }
        said += &format!("{side} {:.2} % of {:.0} ms; ", booked * 100.0 / wall, wall / workers);
    }
    alien(run)?;
    said += &counted(run)?;
    match run.field("impossible").as_array() {
        Some(list) if list.is_empty() => Ok(format!("{said}the job {job_ms:.0} ms")),
        other => Err(format!("impossible: {other:?}")),
    }
}

/// The NICs of both ends counted no less than the payload, and no more than half as much again. Over loopback nobody counts.
fn counted(run: &Run) -> Result<String, String> {
    let nics = run.field("nics");
    let all = nics.as_array().ok_or("no list of NICs")?;
    if all.is_empty() {
        return Ok(String::new());
    }
    let pushed = run.text("direction") == "push";
    let mut said = String::from("NICs");
    for (end, sends) in [("local", pushed), ("remote", !pushed)] {
        let name = if sends { "sent_bps" } else { "received_bps" };
        let sum: f64 = all.iter().filter(|it| it["end"] == end).filter_map(|it| it[name].as_f64()).sum();
        let part = sum / run.number("goodput_bps").max(1.0);
        if !(0.98..1.5).contains(&part) {
            return Err(format!("{end}: the NICs counted {part:.3} of goodput: {nics}"));
        }
        said += &format!(" {:.0} %", part * 100.0);
    }
    Ok(said + "; ")
}

/// A job into empty folders, and what is said of it.
fn job(world: &mut World, words: &str, arguments: &[&str]) {
    world.empty("dst/far");
    world.empty("dst/near");
    let run = world.cp(arguments);
    match summed(&run) {
        Ok(said) => world.ok(&format!("books: {words}: {said}")),
        Err(why) => world.not_ok(&format!("books: {words}"), &format!("{why}; {}", run.why())),
    }
}

pub(crate) fn both_ends_sum_to_their_wall_time_when_pushed(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/big.bin", 192 * MIB);
    let daemon = world.serve("dst", &["--integrity-only"]);
    let (big, far) = (world.word("src/big.bin"), format!("{}far/", daemon.url));
    let cases: [(&str, &[&str]); 7] = [
        ("one large file", &[]),
        ("written only", &["--durability", "written"]),
        ("in clear, CRC-64", &["--integrity-only", "--digest", "crc64"]),
        ("one stream", &["--streams", "1"]),
        ("16 MiB of memory", &["--memory", "16MiB"]),
        ("held at a rate", &["--rate", "800Mbit"]),
        ("over datagrams", &["--transport", "udp"]),
    ];
    for (words, options) in cases {
        job(world, words, &[options, &[big.as_str(), far.as_str()]].concat());
    }
    Ok(())
}

pub(crate) fn both_ends_sum_to_their_wall_time_with_small_files(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/big.bin", 192 * MIB);
    world.many_files("src/many", 1_500);
    let daemon = world.serve("dst", &[]);
    let (big, many, far) = (world.word("src/big.bin"), world.word("src/many"), format!("{}far/", daemon.url));
    job(world, "small files", &[&many, &far]);
    job(world, "a tree and a file", &[&many, &big, &far]);
    job(world, "small files over datagrams", &["--transport", "udp", &many, &far]);
    Ok(())
}

pub(crate) fn both_ends_sum_to_their_wall_time_when_pulled(world: &mut World) -> Result<(), Skip> {
    world.random_file("dst/big.bin", 192 * MIB);
    world.many_files("dst/many", 1_500);
    let daemon = world.serve("dst", &[]);
    let near = format!("{}/", world.word("dst/near"));
    let (big, many) = (format!("{}big.bin", daemon.url), format!("{}many", daemon.url));
    job(world, "pulled", &[&big, &near]);
    job(world, "a tree, pulled", &[&many, &near]);
    job(world, "pulled over datagrams", &["--transport", "udp", &big, &near]);
    Ok(())
}

/// Where what a worker tells last is most of what there is to tell.
pub(crate) fn short_jobs_count_what_a_worker_tells_last(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/short.bin", 3 * MIB);
    world.random_file("dst/short.bin", 3 * MIB);
    let daemon = world.serve("dst", &[]);
    let (here, far) = (world.word("src/short.bin"), format!("{}far/", daemon.url));
    let (there, near) = (format!("{}short.bin", daemon.url), format!("{}/", world.word("dst/near")));
    for turn in 1..=5 {
        job(world, &format!("short, pulled over datagrams ({turn})"), &["--transport", "udp", &there, &near]);
        job(world, &format!("short, written only ({turn})"), &["--durability", "written", &here, &far]);
    }
    Ok(())
}

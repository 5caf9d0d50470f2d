//! `--transport auto`: chosen by a look at the path, changed while running when wrong; and datagram rails that go on after their return path died.
//!
//! In: jobs over emulated links. Out: checks of their notes and reports, and of the bytes.
//! Absent on purpose: how good the forecast is over many links (lab/forecast.sh).

use std::time::Duration;

use lab::hosts::{Side, address4};

use super::Emulated;
use crate::world::{MIB, Run, Running, Skip, World, until};

/// A job over an emulated link takes longer than one over a wire.
const LIMIT: Duration = Duration::from_secs(100);

fn ended(world: &mut World, words: &str, job: Running) -> Run {
    let run = job.end_within(LIMIT);
    world.ends(&run, 0, &format!("{words}: it ends well ({:.0} bit/s)", run.number("goodput_bps")));
    run
}

fn push(world: &mut World, words: &str, link: &Emulated, name: &str) -> Run {
    let daemon = link.serve(world);
    let source = world.word(name);
    let job = link.cp(world, &["--transport", "auto", &source, &daemon.url]);
    ended(world, words, job)
}

pub(crate) fn the_transport_is_chosen_by_a_look_at_the_path(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 96 * MIB);
    let link = Emulated::make("rate=300Mbit rtt=40ms")?;
    let run = push(world, "40 ms", &link, "src/one.bin");
    world.same("src/one.bin", "dst/far/one.bin", "40 ms: the push is equal");
    let lines = run.notes(&["auto: UDP", "expected ", "bit/s", "gain"]);
    world.is(lines, 1, "40 ms: UDP is chosen, with rate and gain, in one line");
    let forecast = run.field("forecast");
    let has_both = forecast["choice"] == "udp" && forecast["error_percent"].is_number();
    world.holds("40 ms: the report has the forecast and its error", has_both, &run.why());
    let daemon = link.serve(world);
    let source = world.word("src/one.bin");
    let dry = link.cp(world, &["--transport", "auto", "--dry-run", &source, &format!("{}again.bin", daemon.url)]);
    let dry = ended(world, "40 ms, dry run", dry);
    // 100 MB at some 280 Mbit/s.
    let seconds = dry.field("forecast")["seconds"].as_f64();
    let held = seconds.is_some_and(|seconds| (2.5..6.0).contains(&seconds));
    world.holds(&format!("40 ms: a dry run says how long it would take ({seconds:?} s)"), held, &dry.why());
    // Its own hosts and link: what the first job has learned of the path is not there.
    let link = Emulated::make("rate=300Mbit rtt=40ms")?;
    let daemon = link.serve(world);
    let back = world.word("back.bin");
    let job = link.cp(world, &["--transport", "auto", &format!("{}one.bin", daemon.url), &back]);
    let run = ended(world, "40 ms, pull", job);
    world.same("src/one.bin", "back.bin", "40 ms: the pull is equal");
    world.is(run.notes(&["auto: UDP", "gain"]), 1, "40 ms, pull: UDP is chosen");
    let link = Emulated::make("rtt=0.2ms")?;
    world.empty("dst/far");
    let run = push(world, "0.2 ms", &link, "src/one.bin");
    world.is((run.text("transport"), run.notes(&["auto: TCP"])), ("tcp", 1), "0.2 ms: TCP is chosen");
    Ok(())
}

/// Greeting and train went while the plan was made, so a look costs a small job nothing; it is over before TCP's windows have grown.
pub(crate) fn a_small_job_far_off_goes_over_udp(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/small.bin", 100_000);
    let link = Emulated::make("rate=300Mbit rtt=40ms")?;
    let run = push(world, "a small job", &link, "src/small.bin");
    world.same("src/small.bin", "dst/far/small.bin", "a small job: equal");
    world.is((run.text("transport"), run.notes(&["auto: UDP for 100"])), ("udp", 1), "a small job, far off: over UDP");
    Ok(())
}

pub(crate) fn a_job_goes_on_when_its_path_becomes_worse(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 96 * MIB);
    let mut link = Emulated::make("rate=150Mbit rtt=0.5ms")?;
    let daemon = link.serve(world);
    let source = world.word("src/one.bin");
    let job = link.cp(world, &["--transport", "auto", &source, &daemon.url]);
    // 96 MiB at 150 Mbit/s take five seconds.
    std::thread::sleep(Duration::from_millis(1500));
    link.set("loss=1% rtt=30ms");
    ended(world, "loss and distance appear on a TCP job", job);
    world.same("src/one.bin", "dst/far/one.bin", "loss and distance appear: equal");
    Ok(())
}

/// The default: nothing is said, nothing is forecast, and where no datagram gets through TCP has lost no second by it.
pub(crate) fn who_says_nothing_gets_auto_and_udp_that_is_blocked_costs_that_job_nothing(
    world: &mut World,
) -> Result<(), Skip> {
    world.random_file("src/few.bin", 4 * MIB);
    let mut seconds = [0.0; 2];
    for (transport, is_blocked) in [("udp", false), ("tcp", true)] {
        let link = Emulated::make("rate=100Mbit rtt=40ms")?;
        if is_blocked && link.run(Side::B, "ip", &["rule", "add", "ipproto", "udp", "blackhole"]).is_none() {
            return Err(Skip("no rule can be made here".to_owned()));
        }
        let words = if is_blocked { "nothing said, UDP blocked" } else { "nothing said" };
        for (at, named) in [&["--transport", "tcp"][..], &[]].into_iter().enumerate() {
            world.empty("dst/far");
            let daemon = link.serve(world);
            let job = link.cp(world, &[named, &[&world.word("src/few.bin"), &daemon.url]].concat());
            let run = ended(world, words, job);
            world.same("src/few.bin", "dst/far/few.bin", &format!("{words}: equal"));
            seconds[at] = run.number("seconds");
            if named.is_empty() {
                world.is(run.text("transport"), transport, &format!("{words}: over {transport}"));
                let is_quiet = run.notes(&["auto: "]) == 0 && run.field("forecast").is_null();
                world.holds(&format!("{words}: no forecast is said"), is_quiet, &run.why());
            }
        }
        // A greeting that is not answered is given up after 4 s, and a probe was waited for a second.
        let costs = seconds[1] - seconds[0];
        world.holds(&format!("{words}: {costs:.2} s more than TCP"), costs < 0.4, &format!("{seconds:?}"));
    }
    Ok(())
}

pub(crate) fn a_rail_whose_return_path_died_goes_on_from_another_address(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/one.bin", 96 * MIB);
    let link = Emulated::make("rate=300Mbit rtt=20ms")?;
    let daemon = link.serve(world);
    let source = world.word("src/one.bin");
    let job = link.cp(world, &["-v", "--transport", "udp", &source, &daemon.url]);
    let far = world.at("dst/far");
    let has_begun = until(Duration::from_secs(30), || {
        let names = std::fs::read_dir(&far).into_iter().flatten().flatten();
        names.map(|entry| entry.file_name()).any(|name| name.as_encoded_bytes().starts_with(b".longhaul-"))
    });
    world.holds("the return path dies: the job has begun", has_begun, &job.out());
    std::thread::sleep(Duration::from_millis(500));
    // The acceptor's way back to that port is gone, and what comes from it too: as behind a NAT that forgot it.
    let peer = format!("{}:", address4(0, Side::A));
    let table = link.run(Side::B, "ss", &["-Hnu", "state", "established"]).unwrap_or_default();
    let port = table
        .split_once(&peer)
        .map_or("", |(_, rest)| rest.split(|it: char| !it.is_ascii_digit()).next().unwrap_or(""));
    let is_gone = link.run(Side::B, "ip", &["rule", "add", "ipproto", "udp", "dport", port, "blackhole"]).is_some();
    world.holds(&format!("the return path dies: port {port} is cut off"), is_gone, &table);
    let run = ended(world, "the return path dies", job);
    world.same("src/one.bin", "dst/far/one.bin", "the return path dies: equal");
    world.is(run.text("transport"), "udp", "the return path dies: all of it over UDP");
    let notes = run.notes(&["goes on from another address"]);
    world.holds("the return path dies: the rail goes on from another address", notes >= 1, &run.why());
    Ok(())
}

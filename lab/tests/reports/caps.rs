//! Caps are those of a key, whatever the number of its jobs, and hold for small files as for large ones, over any two seconds; a daemon's is that
//! of all its jobs.
//!
//! In: a daemon that knows a key's rate, jobs of that key. Out: checks of the wire's own counters, of times and exit codes.
//! Absent on purpose: a sender that does not keep to what it is told (app/tests/caps.rs).

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use lab::hosts::Side;
use lab::pair::address;

use crate::watch::Watch;
use crate::world::{MIB, PORT, Run, Running, Skip, World, until};

/// 8 Mbit at 1 Mbit/s take 8 s within a tenth; what begins and ends a job is allowed for.
const ONE: [Duration; 2] = [Duration::from_millis(7_200), Duration::from_millis(12_000)];
/// 192 Mbit at 20 Mbit/s.
const SIX: [Duration; 2] = [Duration::from_millis(8_640), Duration::from_millis(14_000)];

/// Mbit/s of a job at a daemon of 240.
const ALONE: RangeInclusive<f64> = 190.0..=240.0;
/// The same beside one that takes 40 of them, which leaves 200; an even split would leave it 120.
const BESIDE: RangeInclusive<f64> = 150.0..=205.0;

/// A key as `key trust` and `key authorize` take it.
fn key(world: &mut World, side: Side) -> Vec<String> {
    let text = world.start(side, &["key", "show"]).end().out;
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "longhaul-ed25519").expect("a key is shown");
    words[at..at + 2].iter().map(|word| (*word).to_owned()).collect()
}

/// This key may have so much.
fn authorize(world: &mut World, rate: &str, key: &[String]) {
    let run = world.start(Side::B, &["key", "authorize", "--rate", rate, &key[0], &key[1]]).end();
    world.holds(&format!("a key is authorized for {rate}"), run.status == 0, &run.why());
}

/// A daemon that knows the client's key, with this rate; its address.
fn begin(world: &mut World, rate: &str) -> (Running, String) {
    let (a, b) = (key(world, Side::A), key(world, Side::B));
    let at = format!("{}:{PORT}", address(Side::B));
    let run = world.start(Side::A, &["key", "trust", &at, &b[0], &b[1]]).end();
    world.holds("the daemon's key is trusted", run.status == 0, &run.why());
    authorize(world, rate, &a);
    let root = world.word("dst");
    let daemon = world.start(Side::B, &["serve", "--root", &root, "--listen", &at]);
    let listens = until(Duration::from_secs(10), || world.listens(Side::B, PORT));
    world.holds("the daemon listens", listens, &daemon.out());
    (daemon, format!("longhaul://{at}"))
}

/// No two seconds had more than this rate and a tenth; headers of packets (6 %) and the sampling (50 ms) are allowed for.
fn holds_over(world: &mut World, words: &str, bps: u64, watch: Watch) {
    let bytes = watch.most_of_two_seconds();
    let words = format!("{words}: at most {} bit/s over any 2 s", bytes * 4);
    world.holds(&words, bytes > 0 && bytes * 4 * 100 <= bps * 119, "119 % of the rate are allowed");
}

fn one_job(world: &mut World, words: &str, arguments: &[&str]) {
    let watch = Watch::begin(world);
    let run = world.cp(arguments);
    world.ends(&run, 0, &format!("{words} at 1 Mbit/s: exit code 0"));
    let took = run.took;
    let held = ONE[0] <= took && took <= ONE[1];
    world.holds(&format!("{words} at 1 Mbit/s: 8 Mbit take 8 s within a tenth ({took:?})"), held, &run.why());
    holds_over(world, words, 1_000_000, watch);
}

/// Small files and a large one, each way.
pub(crate) fn a_keys_rate_holds_over_any_two_seconds(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/large.bin", 1_000_000);
    (0..100).for_each(|number| world.random_file(&format!("src/small/{number}"), 10_000));
    world.empty("dst/in");
    let (_daemon, door) = begin(world, "1Mbit");
    for what in ["large.bin", "small"] {
        for transport in ["tcp", "udp"] {
            let (from, to) = (world.word(&format!("src/{what}")), format!("{door}/in/{transport}-{what}"));
            one_job(world, &format!("{what} over {transport}"), &["--transport", transport, &from, &to]);
        }
    }
    let (from, to) = (format!("{door}/in/tcp-large.bin"), world.word("fetched.bin"));
    one_job(world, "fetched", &[&from, &to]);
    Ok(())
}

/// Three each way.
pub(crate) fn six_jobs_of_one_key_have_its_rate_together(world: &mut World) -> Result<(), Skip> {
    world.random_file("dst/give.bin", 4_000_000);
    world.random_file("src/take.bin", 4_000_000);
    let (_daemon, door) = begin(world, "20Mbit");
    let (take, give) = (world.word("src/take.bin"), format!("{door}/give.bin"));
    let watch = Watch::begin(world);
    let began = Instant::now();
    let mut jobs = Vec::new();
    for number in 1..=3 {
        jobs.push(world.start_cp(&[&take, &format!("{door}/six-{number}.bin")]));
        let here = world.word(&format!("six-{number}.bin"));
        jobs.push(world.start_cp(&[&give, &here]));
    }
    let runs: Vec<_> = jobs.into_iter().map(Running::end).collect();
    let took = began.elapsed();
    let why = runs.iter().map(|run| run.why() + "\n").collect::<String>();
    world.holds("six jobs of one key at once: all end with exit code 0", runs.iter().all(|run| run.status == 0), &why);
    let held = SIX[0] <= took && took <= SIX[1];
    world.holds(
        &format!("six jobs of one key with 192 Mbit under 20 Mbit/s take 9.6 s within a tenth ({took:?})"),
        held,
        &why,
    );
    holds_over(world, "six jobs of one key", 20_000_000, watch);
    for number in 1..=3 {
        world.same(
            "src/take.bin",
            &format!("dst/six-{number}.bin"),
            &format!("six jobs of one key bring what they should ({number})"),
        );
        world.same("dst/give.bin", &format!("six-{number}.bin"), &format!("both ways ({number})"));
    }
    Ok(())
}

/// What a job had, in Mbit/s to a tenth.
fn mbit(run: &Run) -> f64 {
    (run.number("goodput_bps") / 1e5).round() / 10.0
}

/// Three tries: a busy machine is late, never early.
fn tried(range: &RangeInclusive<f64>, mut job: impl FnMut() -> Run) -> Run {
    (1..3).map(|_| job()).find(|run| range.contains(&mbit(run))).unwrap_or_else(&mut job)
}

/// The jobs' sum is never above, and not split evenly among unequal ones.
pub(crate) fn a_daemons_rate_is_that_of_all_its_jobs(world: &mut World) -> Result<(), Skip> {
    world.random_file("src/big.bin", 64 * MIB);
    let daemon = world.serve("dst", &["--rate", "240Mbit"]);
    let (source, here) = (world.word("src/big.bin"), world.word("pulled"));
    let [one, two, small] = ["one", "two", "small"].map(|name| format!("{}{name}", daemon.url));
    let run = tried(&ALONE, || {
        world.remove("dst/one");
        world.cp(&[&source, &one])
    });
    let words = format!("serve --rate 240Mbit: one job is not above it by a frame ({} Mbit/s)", mbit(&run));
    world.holds(&words, ALONE.contains(&mbit(&run)), &run.why());
    let run = tried(&ALONE, || {
        world.remove("pulled");
        world.cp(&[&one, &here])
    });
    let words = format!("serve --rate 240Mbit: nor is one that reads there ({} Mbit/s)", mbit(&run));
    world.holds(&words, ALONE.contains(&mbit(&run)), &run.why());
    let run = tried(&BESIDE, || {
        world.remove("dst/two");
        let other = world.start_cp(&["--rate", "40Mbit", &source, &small]);
        std::thread::sleep(Duration::from_millis(500));
        let run = world.cp(&[&source, &two]);
        other.stop();
        run
    });
    let words = "serve --rate 240Mbit: a job beside one of 40 has nearly all that is left";
    world.holds(&format!("{words} ({} Mbit/s)", mbit(&run)), BESIDE.contains(&mbit(&run)), &run.why());
    Ok(())
}

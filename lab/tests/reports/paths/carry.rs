//! What four unlike paths carry together: each as its rate is, all of them to the end, and no more than `--rate` says.
//!
//! In: large files and many small ones over all links, or over two of 10 : 1. Out: checks of the bytes, and of what each path brought.
//! Absent on purpose: links that change meanwhile (change.rs).

use lab::hosts::Side;

use super::{Paths, WIDEST, are_within, brought, path, shape, shares, tried};
use crate::world::{MIB, Run, Skip, World};

/// A path's share in percent of its weight's.
const AS_ITS_WEIGHT: std::ops::RangeInclusive<f64> = 75.0..=130.0;
/// The end of a job over 10 : 1, in chunk times of the wide link, session and all. Where one waited for the other, the slow one had seven chunks
/// left when the wide one was done: 1.5 s.
const AT_THE_END: std::ops::RangeInclusive<f64> = 0.0..=12.0;
/// Of the wide link's units.
const WIDE: u64 = 4;

pub(crate) fn each_path_carries_as_its_weight_is(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    world.random_file("src/large", paths.bytes_in(24.0));
    let (source, there, here) = (world.word("src/large"), paths.there("push"), world.word("pulled"));
    let is_used = |run: &Run, least: f64| (least..=101.0).contains(&paths.percent_of_links(run));
    let run = tried(world, &paths.over_all(&[&source, &there]), "dst/push", |run| {
        are_within(&shares(run), &AS_ITS_WEIGHT) && is_used(run, 75.0)
    });
    world.ends(&run, 0, "four paths, push: exit code 0");
    world.same("src/large", "dst/push", "four paths, push: the same bytes");
    let words = format!("four paths, push: each carries as its weight is ({:?} %)", shares(&run));
    world.holds(&words, are_within(&shares(&run), &AS_ITS_WEIGHT), &run.why());
    let percent = paths.percent_of_links(&run);
    let words = format!("four paths, push: the sum of the links is used ({percent} %)");
    world.holds(&words, is_used(&run, 75.0), &run.why());
    let run = tried(world, &paths.over_all(&[&there, &here]), "pulled", |run| is_used(run, 70.0));
    world.ends(&run, 0, "four paths, pull: exit code 0");
    world.same("src/large", "pulled", "four paths, pull: the same bytes");
    let percent = paths.percent_of_links(&run);
    let words = format!("four paths, pull: the sum of the links is used ({percent} %)");
    world.holds(&words, is_used(&run, 70.0), &run.why());
    Ok(())
}

/// A bound of three quarters of them: split evenly, the three narrower links would leave a third of it unused.
pub(crate) fn a_bound_is_reached_and_not_passed(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    world.random_file("src/large", paths.bytes_in(24.0));
    let (source, there) = (world.word("src/large"), paths.there("capped"));
    let mbit = paths.unit_mbit * 6;
    let rate = format!("{mbit}Mbit");
    let cases: [(&str, f64, &[&str]); 2] =
        [("--rate over unlike paths", 85.0, &[]), ("--rate over unlike paths, UDP", 70.0, &["--transport", "udp"])];
    for (words, least, options) in cases {
        // Of the bound, in percent, to a tenth.
        let share = |run: &Run| (run.number("goodput_bps") / (mbit as f64 * 1e3)).round() / 10.0;
        let arguments = [&["--rate", &rate], options, &[&source, &there]].concat();
        let run = tried(world, &paths.over_all(&arguments), "dst/capped", |run| share(run).round() >= least);
        world.same("src/large", "dst/capped", &format!("{words}: the same bytes"));
        let held = (least..=100.0).contains(&share(&run));
        world.holds(&format!("{words}: reached ({} %), and not passed", share(&run)), held, &run.why());
        println!("# {words}: shares in percent of the weights: {:?}", shares(&run));
    }
    Ok(())
}

/// What a job over both took beyond the sum of the links, headers (4 %) left out, in chunk times of the wide link.
fn beyond(paths: &Paths, run: &Run) -> f64 {
    let wide = (paths.unit_mbit * WIDE) as f64 * 1e6 / 8.0;
    let chunks = (run.number("seconds") - run.number("bytes") / (wide * 1.1 * 0.96)) / (MIB as f64 / wide);
    (chunks * 10.0).round() / 10.0
}

/// One waits for the other no longer than it takes to bring what that owes.
fn at_the_end(world: &mut World, paths: &Paths, words: &str, from: &str, to: &str, arrives: &str) {
    let words = format!("the end over 10 : 1, {words}");
    // A run without a report took no time at all.
    let took = |run: &Run| if run.number("seconds") > 0.0 { beyond(paths, run).abs() } else { 99.0 };
    let is_good = |run: &Run| AT_THE_END.contains(&took(run).round());
    let two = [path(0), path(WIDEST)];
    let run = tried(world, &["--path", &two[0], "--path", &two[1], from, to], arrives, is_good);
    world.ends(&run, 0, &format!("{words}: exit code 0"));
    let nobody = format!("{words}: nobody waits for the slow one ({} chunk times, session and all)", took(&run));
    world.holds(&nobody, is_good(&run), &run.why());
    let again = run.field("resent_bytes").as_u64();
    let few = format!("{words}: no more than eight chunks go again");
    world.holds(&few, again.is_some_and(|bytes| bytes <= 8 * MIB), &run.why());
    println!("# {words}: {:?} bytes by each, {again:?} sent again", brought(&run));
}

pub(crate) fn nobody_waits_for_the_slow_one_at_the_end(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    shape(world, &Side::BOTH, 0, paths.unit_mbit * WIDE / 10, "32kb")?;
    world.random_file("src/tail", paths.bytes_in(12.0));
    cut(world, "src/tail", "src/tails", 333_000);
    let [file, files, here] = ["src/tail", "src/tails", "tail"].map(|name| world.word(name));
    let [there, theirs] = ["tail", "tails"].map(|name| paths.there(name));
    at_the_end(world, &paths, "one file, push", &file, &there, "dst/tail");
    world.same("src/tail", "dst/tail", "the end over 10 : 1: the same bytes");
    at_the_end(world, &paths, "one file, pull", &there, &here, "tail");
    world.same("src/tail", "tail", "the end over 10 : 1, pull: the same bytes");
    at_the_end(world, &paths, "many files, push", &files, &theirs, "dst/tails");
    world.same_tree("src/tails", "dst/tails", "the end over 10 : 1, many files: the same bytes");
    Ok(())
}

/// A file's bytes as many files.
fn cut(world: &World, file: &str, folder: &str, bytes: usize) {
    world.empty(folder);
    let whole = std::fs::read(world.at(file)).expect("a file");
    for (number, part) in whole.chunks(bytes).enumerate() {
        std::fs::write(world.at(folder).join(format!("f{number:04}")), part).expect("room");
    }
}

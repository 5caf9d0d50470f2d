//! Paths that change under a job: one that goes and comes, all that are away for seconds, one that becomes slow.
//!
//! In: a job over all four links, of which some change meanwhile. TIMES, UP and DOWN (seconds): how often the widest goes, and for how long it is
//! there and away; UNIT=25 TIMES=50 UP=2.2 is the long run. Out: checks of the bytes, of notes, and of what the widest carried.
//! Absent on purpose: when a path is called dead or slow (proto/src/session/paths.rs).

use std::time::Duration;

use lab::hosts::Side;

use super::{Paths, WEIGHTS, WIDEST, device, path, set_link, setting, shape};
use crate::watch::{Look, Watch};
use crate::world::{Skip, World};

/// SPECIFICATION.md, promise 82.
const SOON: Duration = Duration::from_secs(2);
/// All of it over the other three takes 6 s; had its share waited for the slow one, 40.
const WITHOUT_IT: Duration = Duration::from_secs(25);
const LONG: Duration = Duration::from_secs(600);
/// A link carries its rate when it did so over so many looks: 300 ms.
const LOOKS: usize = 6;

fn pause(seconds: f64) {
    std::thread::sleep(Duration::from_secs_f64(seconds));
}

/// How long from `up` until the link had carried so much for 300 ms; nothing where there was too little time to say. What was never back took
/// for ever.
fn back_after(seen: &[Look], up: Duration, until: Duration, bytes_per_second: f64) -> Option<Duration> {
    let is_full = |&(from, to): &(&Look, &Look)| {
        (to.sent_bytes - from.sent_bytes) as f64 >= bytes_per_second * (to.after - from.before).as_secs_f64()
    };
    let spans = seen.iter().zip(seen.iter().skip(LOOKS));
    let mut between = spans.filter(|(from, to)| from.before >= up && to.after <= until);
    let never = (until.saturating_sub(up) > SOON).then_some(Duration::MAX);
    between.find(is_full).map(|(from, _)| from.before - up).or(never)
}

/// The time in the middle, and of how many.
fn median(mut times: Vec<Duration>) -> (Duration, usize) {
    times.sort();
    (times.get(times.len() / 2).copied().unwrap_or(Duration::MAX), times.len())
}

pub(crate) fn a_link_that_goes_and_comes_is_used_again_within_seconds(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    let [times, up, down] = [("TIMES", 3.0), ("UP", 2.4), ("DOWN", 0.7)].map(|(name, it)| setting(name, it));
    world.random_file("src/flap", paths.bytes_in(8.0 * (1.5 + times * (up + down * 0.5))));
    let (source, there) = (world.word("src/flap"), paths.there("flap"));
    let watch = Watch::of(world, &device(WIDEST));
    let job = world.start_cp(&paths.over_all(&[&source, &there]));
    let mut ups = Vec::new();
    pause(1.0);
    for _ in 0..times as u32 {
        set_link(world, WIDEST, "down");
        pause(down);
        set_link(world, WIDEST, "up");
        ups.push(watch.elapsed());
        pause(up);
    }
    let run = job.end_within(LONG);
    let seen = watch.end();
    world.ends(&run, 0, &format!("a link that goes and comes {times} times: exit code 0"));
    world.same("src/flap", "dst/flap", "a link that goes and comes: the same bytes");
    let notes = run.notes(&["path ", &path(WIDEST), " ", "over the others"]);
    world.holds("a link that goes and comes: it is said which", notes > 0, &run.why());
    let last = seen.last().map_or(Duration::ZERO, |look| look.after);
    let wanted = paths.unit_mbit as f64 * WEIGHTS[WIDEST] as f64 * 1e6 / 8.0 * 0.8;
    let ends = ups.iter().skip(1).copied().chain([last]);
    let back = ups.iter().zip(ends).filter_map(|(up, end)| back_after(&seen, *up, end, wanted)).collect();
    let (median, count) = median(back);
    world.holds(
        &format!("a link that goes and comes: back at its rate within seconds ({median:?}, median of {count})"),
        median <= SOON,
        &run.why(),
    );
    println!("# {:?} bytes sent again", run.field("resent_bytes").as_u64());
    Ok(())
}

/// Longer than any try to connect takes: an outage, not an error. The session's own link stays.
pub(crate) fn all_paths_away_for_seconds_are_no_error(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    world.random_file("src/large", paths.bytes_in(24.0));
    let (source, there) = (world.word("src/large"), paths.there("outage"));
    let job = world.start_cp(&paths.over_all(&[&source, &there]));
    pause(1.0);
    (0..WEIGHTS.len()).for_each(|link| set_link(world, link, "down"));
    pause(4.0);
    (0..WEIGHTS.len()).for_each(|link| set_link(world, link, "up"));
    let run = job.end();
    world.ends(&run, 0, "all paths away for four seconds: exit code 0");
    world.same("src/large", "dst/outage", "all paths away for four seconds: the same bytes");
    println!("# {:?}, {:?} bytes sent again", run.took, run.field("resent_bytes").as_u64());
    Ok(())
}

/// The widest becomes forty times slower.
pub(crate) fn a_link_that_becomes_slow_is_named_and_not_waited_for(world: &mut World) -> Result<(), Skip> {
    let paths = Paths::make(world)?;
    world.random_file("src/large", paths.bytes_in(24.0));
    let (source, there) = (world.word("src/large"), paths.there("slow"));
    let job = world.start_cp(&paths.over_all(&[&source, &there]));
    pause(2.0);
    shape(world, &[Side::A], WIDEST, paths.unit_mbit / 10, "128kb")?;
    let run = job.end();
    world.ends(&run, 0, "a link that becomes slow: exit code 0");
    world.same("src/large", "dst/slow", "a link that becomes slow: the same bytes");
    let notes = run.notes(&[&format!("path {} brings", path(WIDEST))]);
    world.holds("a link that becomes slow: it is named", notes > 0, &run.why());
    let took = run.took;
    let words = format!("a link that becomes slow: the others bring what it does not ({took:?})");
    world.holds(&words, took <= WITHOUT_IT, &run.why());
    Ok(())
}

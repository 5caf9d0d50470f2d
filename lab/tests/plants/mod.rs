//! Thirty jobs, each with exactly one thing made slow: does the report name it, and do the books of both ends sum?
//!
//! For: `make limiter`: a sentence that an operator reads at night is only worth reading if it is right, also in other people's cases.
//! In: LIMITER_ROUNDS, how often each runs; LIMITER_SEED, from which sizes and rates are drawn; LIMITER_PLANT, words of which one is in the name
//! of each plant that is to run; LIMITER_OUT, a file for the results as JSON. Out: a line per run, and the tally; status 0 if at least 28 of 30
//! runs were right, and the books summed.
//! Invariants: another seed is another case of the same kind, the same seed the same case; what is made slow ends with the plant; what cannot be
//! made here says `skip` and counts for nothing.
//! Absent on purpose: the judgement on made-up books (proto/tests/limiter.rs), a slow hash (no machine here has one).

mod fuse; // a file system whose calls take their time
mod list; // the thirty
mod means; // groups, disks, links: what makes things slow

use std::ffi::OsStr;
use std::process::ExitCode;

use lab::wire::dice::Dice;
use serde_json::{Value, json};

use crate::world::{Run, Skip, World};
use means::Bench;

/// One thing that is slow.
pub(crate) struct Plant {
    name: &'static str,
    /// The ends that are right, and the stages.
    ends: &'static [&'static str],
    stages: &'static [&'static str],
    job: fn(&mut Bench<'_>) -> Result<Run, Skip>,
}

/// Of all runs, so many must be right: 28 of 30.
const RIGHT_PERMILLE: usize = 933;

/// How far the books of the worse end are from its wall time, percent.
fn gap(run: &Run) -> f64 {
    let sides = ["stages_local", "stages_remote"].map(|side| {
        let books = run.field(side);
        let stages = books["stages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let booked: f64 = stages.iter().filter_map(|stage| stage["ms"].as_f64()).sum();
        let wall = books["wall_ms"].as_f64().unwrap_or(0.0);
        (booked - wall).abs() * 100.0 / wall.max(1e-9)
    });
    sides[0].max(sides[1])
}

/// The stages of an end that took a twentieth of its time or more.
fn stages(run: &Run, side: &str) -> String {
    let books = run.field(side);
    let wall = books["wall_ms"].as_f64().unwrap_or(0.0).max(1e-9);
    let each = books["stages"].as_array().map(Vec::as_slice).unwrap_or_default().iter().filter_map(|stage| {
        let share = stage["ms"].as_f64()? * 100.0 / wall;
        (share >= 5.0).then(|| format!("{} {share:.0}", stage["stage"].as_str().unwrap_or("?")))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// One run: its line, and whether it was right.
fn once(binary: &OsStr, plant: &Plant, seed: u64) -> Result<Value, Skip> {
    let mut world = World::make(binary)?;
    let spread = plant.name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let mut bench = Bench::new(&mut world, Dice::new(spread));
    let run = (plant.job)(&mut bench)?;
    let case = bench.case();
    let (end, stage) = (run.text("limiter_end"), run.text("limiter_stage"));
    let right = run.status == 0 && plant.ends.contains(&end) && plant.stages.contains(&stage);
    let sums = run.status == 0 && gap(&run) <= 2.0;
    let wanted = format!("{}: {}", plant.ends.join("|"), plant.stages.join("|"));
    let said = if run.status == 0 { run.text("limiter").to_owned() } else { run.why() };
    println!(
        "{} {} (seed {seed}; {case}), expected [{wanted}], said [{end}: {stage}] in {:.1} s, books within {:.2} %: {said}",
        if right { "right" } else { "WRONG" },
        plant.name,
        run.took.as_secs_f64(),
        gap(&run),
    );
    if !right {
        println!("#   local: {}\n#   remote: {}", stages(&run, "stages_local"), stages(&run, "stages_remote"));
    }
    Ok(json!({
        "plant": plant.name, "seed": seed, "case": case, "expected": wanted, "end": end, "stage": stage, "said": said, "right": right,
        "books_sum": sums, "books_gap_percent": gap(&run), "seconds": run.took.as_secs_f64(),
    }))
}

/// Runs them all, so many times.
pub(crate) fn run(binary: &OsStr, rounds: u64) -> ExitCode {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (seed, words) = (variable("LIMITER_SEED").parse::<u64>().unwrap_or(1), variable("LIMITER_PLANT"));
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut results = Vec::new();
    for round in 0..rounds {
        for plant in list::PLANTS {
            if !words.is_empty() && !words.iter().any(|word| plant.name.contains(word)) {
                continue;
            }
            match once(binary, &plant, seed + round) {
                Ok(result) => results.push(result),
                Err(Skip(why)) => println!("skip {}: {why}", plant.name),
            }
        }
    }
    let count = |field: &str| results.iter().filter(|it| it[field] == true).count();
    let (right, sums, made) = (count("right"), count("books_sum"), results.len());
    println!("limiter: {right} of {made} right, the books of {sums} of {made} within 2 %");
    for plant in list::PLANTS {
        let of: Vec<_> = results.iter().filter(|it| it["plant"] == plant.name).collect();
        let wrong = of.iter().filter(|it| it["right"] != true).count();
        if wrong > 0 {
            println!("  {}: {wrong} of {} wrong", plant.name, of.len());
        }
    }
    if let Some(path) = std::env::var_os("LIMITER_OUT") {
        let text = json!({ "right": right, "books_sum": sums, "made": made, "runs": results }).to_string();
        if let Err(error) = std::fs::write(&path, text) {
            println!("not ok the results cannot be written to {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    if made > 0 && sums == made && right * 1000 >= made * RIGHT_PERMILLE {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

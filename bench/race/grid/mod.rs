//! Ten thousand cells of everything that paths and jobs differ by, in virtual time: both machines of a flow under the controller `delay`, no network.
//!
//! For: `make grid`. In and out: proto/tests/flow_grid.rs, built for release and run → target/bench/grid.jsonl, a line for each cell; grid.json,
//! figures by axis and the worst cells; one self-contained grid.html; an error where the verdict is no.
//! Invariants: what is asked of a cell stands in judge.rs and nowhere else; a cell that did not end counts as one that got nothing.
//! Absent on purpose: real networks and hosts (`longhaul bench wan`), flows that yield to each other (proto/tests/rate_fair.rs).

pub(super) mod distance; // medians over seeds: distance, loss, three rates
mod judge; // what is asked, and figures by axis
mod page; // HTML, and the page that is kept

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::write_facts;
use judge::{Cell, Job, Report};

pub(crate) use page::summary;

const NAME: &str = "target/bench/grid";
/// Of a quick run each so many-th cell: 304 of them.
const QUICK: usize = 33;

/// `longhaul-race grid`.
#[derive(Debug, Args)]
pub(crate) struct GridArguments {
    /// One cell of the ten thousand, by its number
    #[arg(long, conflicts_with_all = ["quick", "distance"])]
    cell: Option<usize>,
    /// Each 33rd cell
    #[arg(long)]
    quick: bool,
    /// Verdict and page anew, of the lines that the last run left; nothing is played
    #[arg(long, conflicts_with_all = ["cell", "quick", "distance"])]
    again: bool,
    /// Medians over seeds of seven distances, seven losses and three rates instead
    #[arg(long, conflicts_with = "quick")]
    distance: bool,
}

/// A test of flow_grid.rs, built for release.
fn by_test(name: &str, environment: &[(&str, &OsStr)]) -> anyhow::Result<()> {
    test_of(&["--release", "-p", "longhaul-proto", "--test", "flow_grid"], name, environment)
}

fn test_of(which: &[&str], name: &str, environment: &[(&str, &OsStr)]) -> anyhow::Result<()> {
    let mut test = Command::new("cargo");
    test.args(["test", "--locked", "--quiet"]).args(which).args(["--", "--nocapture", "--exact", name]);
    ensure!(test.envs(environment.iter().copied()).status()?.success(), "the grid's test {name} failed");
    Ok(())
}

/// Small cells as whole jobs in the engine's simulator.
fn jobs(name: &Path, again: bool) -> anyhow::Result<Vec<Job>> {
    let lines = name.with_extension("jobs");
    if !again {
        test_of(
            &["-p", "longhaul-engine", "--test", "sim"],
            "cells_of_the_grid_as_whole_jobs_keep_their_datagram_rail",
            &[("JOBS", lines.as_os_str())],
        )?;
    }
    let text = std::fs::read_to_string(&lines).context("the simulator's test wrote nothing")?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

pub(crate) fn run(arguments: &GridArguments) -> anyhow::Result<()> {
    std::fs::create_dir_all("target/bench")?;
    if arguments.distance {
        return distance::run();
    }
    // Cargo runs a test in the folder of its crate.
    let (began, name) = (Instant::now(), std::path::absolute(NAME)?);
    let lines = name.with_extension(if arguments.cell.is_some() { "cell" } else { "jsonl" });
    let (one, every) = (arguments.cell.map(|cell| cell.to_string()), QUICK.to_string());
    let mut environment: Vec<(&str, &OsStr)> = vec![("CELLS", lines.as_os_str())];
    environment.extend(one.as_deref().map(|one| ("CELL", OsStr::new(one))));
    environment.extend(arguments.quick.then_some(("EVERY", OsStr::new(&every))));
    if !arguments.again {
        by_test("cells_of_all_axes", &environment)?;
    }
    let text = std::fs::read_to_string(&lines).context("the grid's test wrote nothing")?;
    let cells = text.lines().map(serde_json::from_str).collect::<Result<Vec<Cell>, _>>()?;
    if let Some(cell) = cells.first().filter(|_| arguments.cell.is_some()) {
        std::fs::remove_file(&lines)?;
        println!("{text}{}: {}", cell.said(), cell.misses().join(", "));
        return Ok(());
    }
    // A quick run has no minute for them.
    let jobs = if arguments.quick { Vec::new() } else { jobs(&name, arguments.again)? };
    let seconds = (!arguments.again).then_some(began.elapsed().as_secs());
    let report = Report::of(&cells, &jobs, seconds);
    let took = seconds.map_or(String::new(), |seconds| format!(", {seconds} s"));
    let facts = format!("{}, {}{took}", crate::date(), crate::commit());
    std::fs::write(name.with_extension("html"), page::page(&report, &cells, &facts))?;
    println!("{}", report.text());
    println!("a line for each cell: {0}.jsonl; plots: {0}.html", NAME);
    write_facts(Path::new(NAME), serde_json::to_value(&report)?)?;
    if !report.holds {
        bail!("{}", report.verdict());
    }
    Ok(())
}

/// Made-up cells of all kinds.
#[cfg(test)]
pub(crate) fn sample() -> String {
    let cells = judge::tests::cells(400);
    page::page(
        &Report::of(&cells, &judge::tests::jobs(), Some(1234)),
        &cells,
        "2026-11-26 03:00 UTC, v0.1.0-1234-gabcdef012, 1234 s",
    )
}

//! `longhaul bench wan`: a tiny grid with ours, bare TCP where iperf3 is, and two peers; its record, its page, its end by a signal.
//!
//! In: two cells of the grid. Out: checks of the record, the page, exit codes, and of what is left behind (nothing).
//! Absent on purpose: whether ours is fast (`make bench-wan`).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Skip, World, has_in_order, until};

/// A peer that delivers without the link, and one whose file is not whole.
const CAT: &str =
    r#"cat=cp "$BENCH_FILE" "$BENCH_FOLDER/file"; echo "{\"bytes\": $BENCH_BYTES, \"seconds\": $BENCH_SECONDS}""#;
const LIAR: &str = r#"liar=head -c 99 "$BENCH_FILE" >"$BENCH_FOLDER/file""#;

fn needs_lab(world: &mut World) -> Result<(), Skip> {
    let run = world.here(&["lab", "run", "-q", "--", "true"]);
    let why = run.err.lines().next().unwrap_or_default();
    if run.status == 0 { Ok(()) } else { Err(Skip(format!("no lab can be made here: {why}"))) }
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap_or_default()).unwrap_or_default()
}

/// The rows of all cells whose name this is, or begins so.
fn rows<'a>(report: &'a Value, name: &str) -> Vec<&'a Value> {
    let cells = report["cells"].as_array().into_iter().flatten();
    let rows = cells.flat_map(|cell| cell["rows"].as_array().into_iter().flatten());
    rows.filter(|row| row["name"].as_str().is_some_and(|it| it.starts_with(name))).collect()
}

/// Why a peer failed: in each cell the same.
fn reasons(report: &Value, name: &str) -> Vec<Value> {
    rows(report, name).iter().map(|row| row["failed"][0].clone()).collect()
}

pub(crate) fn a_tiny_grid_says_what_was_and_what_was_not(world: &mut World) -> Result<(), Skip> {
    needs_lab(world)?;
    let (folder, out) = (world.at("").components().as_path().display().to_string(), world.word("tiny"));
    let fixed = ["bench", "wan", "--folder", &folder, "--trips", "20", "--seconds", "300ms", "--rounds", "1"];
    let grid = ["--rtt", "10ms,20ms", "--loss", "1%", "--rate", "200Mbit", "--tcp", "cubic", "--streams", "1"];
    let peers = ["--out", &out, "--peer", CAT, "--peer", LIAR, "--peer-server", "liar=sleep 60"];
    let run = world.here(&[&fixed[..], &grid, &peers].concat());
    world.ends(&run, 0, "wan: two cells: exit code 0");
    let report = read(&world.at("tiny.json"));
    world.is(report["cells"].as_array().map_or(0, Vec::len), 2, "wan: the record has both cells");
    let ours = rows(&report, "longhaul");
    let rounds: Vec<usize> = ours.iter().map(|row| row["rounds"].as_array().map_or(0, Vec::len)).collect();
    world.is(rounds, vec![1; 4], "wan: ours ran over UDP and over TCP in each");
    let held = ours.iter().all(|row| row["share"]["median"].as_f64().is_some_and(|it| it > 0.0 && it < 1.02));
    world.holds("wan: no share is above the limit, none is nothing", held && !ours.is_empty(), &report.to_string());
    let udp: Vec<_> = ours.iter().filter(|row| row["name"].as_str().is_some_and(|it| it.contains("udp"))).collect();
    let held = udp.iter().all(|row| row["redundant_percent"]["median"].as_f64().is_some_and(|it| it < 1.0));
    world.holds("wan: over UDP less than 1 % is redundant", held && !udp.is_empty(), &report.to_string());
    let why = json!("fewer bytes crossed the link than were delivered: nothing to compare");
    world.is(reasons(&report, "cat"), vec![why; 2], "wan: a peer that sent nothing over the link has failed");
    let why = json!("what arrived differs from byte 99 on");
    world.is(reasons(&report, "liar"), vec![why; 2], "wan: one whose file is not whole has failed");
    let said = run.out.clone() + &run.err;
    if Command::new("iperf3").arg("--version").output().is_ok() {
        let line = |line: &str| {
            line.split_once("TCP CUBIC × 1")
                .is_some_and(|(_, rest)| rest.trim_start().starts_with(|it: char| it.is_ascii_digit()))
        };
        let held = said.lines().any(line) || said.contains("TCP cubic: this kernel");
        world.holds("wan: bare TCP ran, or it is said why not", held, &said);
    } else {
        world.holds("wan: it is said that iperf3 is missing", said.contains("iperf3 is not installed"), &said);
    }
    let page = std::fs::read_to_string(world.at("tiny.html")).unwrap_or_default();
    let is_whole = page.matches("<svg").count() >= 5 && !page.contains("http") && !page.contains("<script");
    world.holds("wan: the page has a map for each, and nothing from elsewhere", is_whole, "");
    let names_no_path = !page.contains(&folder) && !report.to_string().contains(&folder) && !page.is_empty();
    world.holds("wan: no path of this machine is in the results", names_no_path, "");
    world.holds("wan: how long it will take is said before", has_in_order(&run.err, &["about ", " s"]), &run.err);
    Ok(())
}

pub(crate) fn a_grid_that_is_stopped_keeps_what_was_measured(world: &mut World) -> Result<(), Skip> {
    needs_lab(world)?;
    let (folder, out) = (world.at("").components().as_path().display().to_string(), world.word("cut"));
    let fixed =
        ["bench", "wan", "--folder", &folder, "--rounds", "1", "--trips", "20", "--seconds", "200ms", "--out", &out];
    let grid = ["--rtt", "10ms,500ms", "--loss", "0%", "--rate", "100Mbit", "--only", "udp"];
    let running = world.start_here(&[&fixed[..], &grid].concat());
    let record = world.at("cut.json");
    let is_there = until(Duration::from_secs(30), || record.exists());
    world.holds("wan: a record is there after the first cell", is_there, &running.out());
    let run = running.stop();
    world.ends(&run, 32, "wan: stopped by a signal: exit code 32");
    let report = read(&record);
    let cells = (report["cells"].as_array().map_or(0, Vec::len), report["cells_wanted"].as_u64());
    world.is(cells, (1, Some(2)), "wan: what was measured until then is kept");
    let left = std::fs::read_dir(world.at("")).into_iter().flatten().flatten();
    let left = left.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"longhaul-bench-")).count();
    world.is(left, 0, "wan: no file of the transfers is left");
    let run = world.here(&["bench", "wan", "--folder", &folder, "--rate", "none"]);
    world.ends(&run, 2, "wan: a link without a rate is refused");
    Ok(())
}

//! `longhaul bench disk` and `bench volumes` in a few seconds: every figure is there, a page, a table, and nothing is left behind.
//!
//! In: small files on the disk of the scenario's folder. Out: checks of records, pages and tables.
//! Absent on purpose: whether a disk is fast.

use serde_json::Value;

use crate::world::{MIB, Run, Skip, World};

fn report(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap_or_default()
}

/// The different texts that a list has in this field, in order.
fn texts<'a>(list: &'a [Value], name: &str) -> Vec<&'a str> {
    let mut texts: Vec<&str> = list.iter().filter_map(|it| it[name].as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// Lines of a list that have these words.
fn with(list: &Value, words: &str) -> usize {
    let lines = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.filter(|line| line.contains(words)).count()
}

fn names(world: &World) -> usize {
    std::fs::read_dir(world.at("")).map_or(0, Iterator::count)
}

pub(crate) fn disk_has_every_sweep_and_leaves_nothing(world: &mut World) -> Result<(), Skip> {
    let before = names(world);
    let [folder, page, table, nowhere] = ["", "disk.html", "disk.csv", "nowhere"].map(|name| world.word(name));
    let words = ["bench", "disk", &folder, "--size", "16MiB", "--seconds", "2ms", "--rounds", "1"];
    let run = world.here(&[&words[..], &["--json", "--html", &page, "--csv", &table]].concat());
    world.ends(&run, 0, &format!("bench disk: exit code 0 ({:?})", run.took));
    let report = report(&run);
    let cells = report["cells"].as_array().cloned().unwrap_or_default();
    let sweeps = vec!["block", "depth", "files", "io_mode", "memory", "threads"];
    world.is(texts(&cells, "sweep"), sweeps, "bench disk: every sweep has figures");
    let is_something = cells.iter().all(|cell| cell["gbs"].as_f64().is_some_and(|rate| rate > 0.0));
    let got = (is_something, texts(&cells, "way"));
    world.is(got, (true, vec!["read", "write"]), "bench disk: reads and writes, and no figure is nothing");
    let ceilings = with(&report["ceilings"], "copy in memory");
    world.holds("bench disk: with its ceilings", ceilings > 0, &report["ceilings"].to_string());
    let taxes = with(&report["notes"], "fragmentation tax");
    world.holds("bench disk: with the tax of memory in pieces", taxes >= 2, &report["notes"].to_string());
    let lines = std::fs::read_to_string(&table).unwrap_or_default().lines().count();
    world.is(lines, cells.len() + 1, "bench disk: the table has as many lines, and a head");
    let text = std::fs::read_to_string(&page).unwrap_or_default();
    let is_whole = text.contains("<svg") && !text.contains("http") && !text.contains("<script");
    world.holds("bench disk: the page needs nothing else", is_whole, "");
    // The page, the table, and both outputs of the run.
    world.is(names(world), before + 4, "bench disk: nothing is left but what was asked for");
    let run = world.here(&["bench", "disk", &nowhere]);
    world.holds("bench disk: a folder that is not there is named", run.err.contains("nowhere"), &run.why());
    Ok(())
}

/// Of each run: how many volumes it had, and MiB.
fn runs(report: &Value) -> Vec<(u64, u64)> {
    let runs = report["runs"].as_array().into_iter().flatten();
    runs.map(|run| (run["volumes"].as_u64().unwrap_or(0), run["bytes"].as_u64().unwrap_or(0) / MIB)).collect()
}

/// N disks to one receiver, one sender to N disks.
pub(crate) fn volumes_bring_all_files_and_leave_nothing(world: &mut World) -> Result<(), Skip> {
    let volumes = ["dst/v0", "dst/v1", "dst/v2"];
    volumes.iter().for_each(|name| world.empty(name));
    let (folder, page, disks) = (world.word(""), world.word("path"), volumes.map(|name| world.word(name)));
    let words = ["bench", "volumes", "--json", "--size", "1MiB", "--files", "2", "--memory", &folder, "--out", &page];
    let run = world.here(&[&words[..], &["--disks", &disks[0], &disks[1]]].concat());
    if run.status != 0 {
        let held = run.out.contains("is on no block device") || run.err.contains("is on no block device");
        world.holds("bench volumes: where nobody counts a disk's bytes, that is said", held, &run.why());
        return Ok(());
    }
    let page = |world: &World| std::fs::read_to_string(world.at("path.html")).unwrap_or_default();
    let all = report(&run);
    let bytes: Vec<_> = all["runs"].as_array().into_iter().flatten().map(|run| run["bytes"].as_u64()).collect();
    world.is(bytes, vec![Some(4 * MIB); 2], "bench volumes: all files went and came");
    let lines = page(world).matches("<polyline").count();
    // All three folders are on one disk, which is counted once: of each run the sum and that disk.
    world.is(lines, 4, "bench volumes: a page with a line for each disk");
    let counted = all["runs"][0]["disks"].as_array().map(Vec::len);
    world.is(counted, Some(1), "bench volumes: two folders of one disk count once");
    let first = all["ceilings"][0].as_str().unwrap_or_default();
    let held = first.starts_with("ceiling: a copy in memory");
    world.holds("bench volumes: with its ceilings", held, &all["ceilings"].to_string());
    let run = world.here(&[&words[..], &["--sweep", "--disks", &disks[0], &disks[1], &disks[2]]].concat());
    let wanted = vec![(1, 2), (1, 2), (2, 4), (2, 4), (3, 6), (3, 6)];
    world.is(runs(&report(&run)), wanted, "bench volumes: over the number of disks");
    let has_plot = page(world).contains("Over the number of disks");
    world.holds("bench volumes: a plot of it", has_plot, &run.why());
    let left = volumes.iter().filter(|name| world.at(name).join("longhaul-bench-volumes").exists()).count();
    world.is(left, 0, "bench volumes: nothing is left behind");
    Ok(())
}

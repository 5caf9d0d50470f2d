//! `longhaul host show` on this very machine: it tells what /sys tells, a record shows the same.
//!
//! In: the machine. Out: checks of the record of facts beside the folders of /sys.
//! Absent on purpose: what is concluded from facts (topology's own tests), a machine with NUMA nodes (lab/vm).

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::world::{Skip, World};

/// Names in a folder of /sys that are wanted, in order.
fn names(folder: &str, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| wanted(path));
    let mut names: Vec<String> = paths.map(|path| path.file_name().unwrap_or_default().display().to_string()).collect();
    names.sort();
    names
}

/// The names in a list of facts, in order.
fn told(facts: &Value, list: &str) -> Vec<String> {
    let list = facts[list].as_array().cloned().unwrap_or_default();
    let mut names: Vec<String> = list.iter().filter_map(|it| Some(it["name"].as_str()?.to_owned())).collect();
    names.sort();
    names
}

/// Devices with a size; those of memory are none.
fn is_disk(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().display().to_string();
    let size = std::fs::read_to_string(path.join("size")).unwrap_or_default();
    !name.starts_with("ram") && !name.starts_with("zram") && size.trim().parse::<u64>().is_ok_and(|size| size > 0)
}

fn says(finding: &Value, name: &str) -> bool {
    finding[name].as_str().is_some_and(|text| !text.is_empty())
}

pub(crate) fn host_show_tells_what_sys_tells(world: &mut World) -> Result<(), Skip> {
    let (record, page) = (world.word("record"), world.word("host.html"));
    let first = world.here(&["host", "show", "--record", &record, "--html", &page]);
    world.ends(&first, 0, "host show: exit code 0");
    let run = world.here(&["host", "show", "--json"]);
    let facts: Value = serde_json::from_str(&run.out).unwrap_or_default();
    let online = Command::new("getconf").arg("_NPROCESSORS_ONLN").output().map(|it| it.stdout).unwrap_or_default();
    let cores = facts["cores"].as_array().map_or(0, Vec::len).to_string();
    world.is(cores.as_str(), String::from_utf8_lossy(&online).trim(), "host show: as many cores as are online");
    world.is(told(&facts, "disks"), names("/sys/block", is_disk), "host show: the disks of /sys/block");
    let cards = names("/sys/class/net", |path| path.join("device").exists());
    world.is(told(&facts, "nics"), cards, "host show: the NICs of /sys/class/net");
    let has_root = facts["mounts"].as_array().is_some_and(|mounts| mounts.iter().any(|mount| mount["at"] == "/"));
    world.holds("host show: the root's file system is there", has_root, &run.out);
    let findings = facts["findings"].as_array();
    let all = findings.is_some_and(|all| all.iter().all(|it| says(it, "why") && says(it, "source")));
    world.holds("host show: each finding has its reason and its source", all, &facts["findings"].to_string());
    let text = std::fs::read_to_string(&page).unwrap_or_default();
    let is_whole = text.contains("class=\"node\"") && !text.contains("http") && !text.contains("<script");
    world.holds("host show: the page needs nothing else", is_whole, "");
    let plan: Value = serde_json::from_str(&world.here(&["host", "plan", "--json"]).out).unwrap_or_default();
    let agrees = plan["changes"].is_array() && facts["plan"] == plan["changes"];
    world.holds("host show: what it calls the plan is what host plan prints", agrees, &plan.to_string());
    let planned = plan["changes"].as_array().into_iter().flatten().filter_map(|change| change["rule"].as_str());
    let is_marked = planned.into_iter().all(|rule| text.contains(&format!("◆\u{a0}{rule}")));
    world.holds("host show: each rule of the plan is marked in the picture", is_marked, &plan.to_string());
    let again = world.here(&["host", "show", "--from", &record]);
    world.is(again.out.as_str(), first.out.as_str(), "host show: its record shows the same");
    let bad = world.word("bad");
    std::fs::write(&bad, "nonsense\n").expect("room");
    let run = world.here(&["host", "show", "--from", &bad]);
    world.ends(&run, 2, "host show: what is no record is refused");
    world.holds("host show: with the line", run.err.contains("line 1"), &run.why());
    Ok(())
}

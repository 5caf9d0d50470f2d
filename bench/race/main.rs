//! `longhaul-race`: Longhaul beside other programs, in one run, on one machine. Not part of the product.
//!
//! For: `make bench` and what is like it. In and out: what is installed here → target/bench/NAME.json and NAME.html.
//! Invariants: every figure stands beside its exact command, its version and what its contestant does NOT do; nothing of the machine is changed
//! outside of namespaces, control groups, loop devices and folders made here, and those are gone at the end.
//! Absent on purpose: downloads; a verdict on others' programs.
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "../pages/browser.rs"]
mod browser;
#[cfg(test)]
#[path = "../pages/check.rs"]
mod check;
mod field; // who is raced
mod hosts; // where
mod ground; // what is copied
mod copy; // one run
mod record; // rounds, medians, ratios
mod page; // HTML
mod peers; // files and streams beside others
mod paths; // four links at once
mod loops; // file systems on loop devices
mod disk; // I/O modes
mod volumes; // many disks as one
mod grid; // paths and jobs of every kind in virtual time
mod summary; // what is kept of a result

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use bench::table::Host;
use clap::{Args, Parser};
use serde::Serialize;

use hosts::Hosts;
use record::Record;

/// Longhaul beside other programs, in one run
#[derive(Debug, Parser)]
enum Arguments {
    /// One large file, many small ones, memory to memory
    Peers(Box<peers::PeersArguments>),
    /// One job over four links of 1 : 1 : 2 : 4 beside MPTCP and streams by hand
    Paths(paths::PathsArguments),
    /// I/O modes by file system beside fio, and what a job leaves of others' memory
    Disk(disk::DiskArguments),
    /// Loop-device volumes as one, beside fio
    Volumes(volumes::VolumesArguments),
    /// Ten thousand cells of paths and jobs in virtual time
    Grid(grid::GridArguments),
    /// Makes the small summary that is kept of a full result: bench/results/NAME.json and NAME.md
    Summary(summary::SummaryArguments),
    /// Takes bytes on ports, as many streams as ports (for `paths`)
    #[command(hide = true)]
    Sink(paths::SinkArguments),
    /// Sends bytes to ADDRESS=WEIGHT (for `paths`)
    #[command(hide = true)]
    Source(paths::SourceArguments),
}

/// What all have.
#[derive(Debug, Args, Serialize)]
struct Common {
    /// The binary under test
    #[arg(long, alias = "binary", default_value = "target/longhaul")]
    #[serde(skip)]
    longhaul: PathBuf,
    #[arg(long, default_value_t = bench::table::ROUNDS)]
    rounds: usize,
    /// A folder on tmpfs
    #[arg(long, alias = "memory", default_value = "/dev/shm")]
    #[serde(skip)]
    tmpfs: PathBuf,
    /// Where results go
    #[arg(long, default_value = "target/bench")]
    #[serde(skip)]
    out: PathBuf,
}

impl Common {
    /// Makes what is relative absolute: programs start elsewhere.
    fn settle(&mut self) -> anyhow::Result<()> {
        let path = &self.longhaul;
        self.longhaul = path.canonicalize().with_context(|| format!("no {}: run make build", path.display()))?;
        Ok(())
    }
}

/// A command of the system, to its end; what it printed.
fn call<S: AsRef<OsStr>>(program: &str, words: &[S]) -> anyhow::Result<String> {
    let output = Command::new(program).args(words).output().with_context(|| format!("{program} cannot be run"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

fn date() -> String {
    call("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()
}

fn commit() -> String {
    call("git", &["describe", "--always", "--dirty"]).unwrap_or_default()
}

/// NAME.json of a result that has no page: with the facts of the machine.
fn write_facts(name: &Path, mut result: serde_json::Value) -> anyhow::Result<()> {
    let host = Host::here();
    let facts = serde_json::json!({"date": date(), "commit": commit(), "kernel": host.kernel, "cores": host.cores, "load": host.load});
    for (key, fact) in facts.as_object().into_iter().flatten() {
        result[key] = fact.clone();
    }
    let path = name.with_extension("json");
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    std::fs::write(&path, serde_json::to_string_pretty(&result)? + "\n")?;
    println!("written: {}", path.display());
    Ok(())
}

/// What figures must be read beside.
fn machine(hosts: &Hosts) -> BTreeMap<&'static str, String> {
    let host = Host::here();
    let memory = sys::host::memory().map_or(0, |memory| memory.total_bytes);
    BTreeMap::from([
        ("cpu", format!("{} × {}", host.cores, host.cpu)),
        ("kernel", host.kernel),
        ("memory_bytes", memory.to_string()),
        ("hosts", "two network namespaces joined by veth".to_owned()),
        ("congestion control", format!("{} in both namespaces", hosts.congestion())),
        ("cpu meter", hosts.meter().to_owned()),
        ("load before", load()),
        ("date", date()),
    ])
}

/// Tables on the screen, NAME.json and NAME.html in the folder of results.
fn show_and_write(mut record: Record, out: &Path, name: &str) -> anyhow::Result<()> {
    record.machine.insert("load after", load());
    for part in &record.parts {
        println!("{}", part.table());
    }
    record.verdicts = record.parts.iter().flat_map(|part| part.verdicts.clone()).collect();
    record.verdicts.iter().for_each(|verdict| println!("{verdict}"));
    std::fs::create_dir_all(out).with_context(|| format!("{} cannot be made", out.display()))?;
    let path = out.join(name);
    std::fs::write(path.with_extension("json"), serde_json::to_string_pretty(&record)? + "\n")?;
    std::fs::write(path.with_extension("html"), page::page(&record))?;
    println!("\nwritten: {0}.json and {0}.html", path.display());
    Ok(())
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse() {
        Arguments::Peers(arguments) => peers::run(*arguments),
        Arguments::Paths(arguments) => paths::run(arguments),
        Arguments::Disk(arguments) => disk::run(arguments),
        Arguments::Volumes(arguments) => volumes::run(arguments),
        Arguments::Grid(arguments) => grid::run(&arguments),
        Arguments::Summary(arguments) => summary::run(&arguments),
        Arguments::Sink(arguments) => paths::sink(&arguments),
        Arguments::Source(arguments) => paths::source(&arguments),
    }
}

/// The pages of this program, as bench/pages looks at the library's.
#[cfg(test)]
mod pages {
    use super::{browser, check};

    #[test]
    fn the_pages_of_races_are_whole_and_a_browser_shows_them() {
        let pages = [
            ("race-peers".to_owned(), super::page::page(&super::record::tests::sample())),
            ("race-grid".to_owned(), super::grid::sample()),
            ("race-grid-distance".to_owned(), super::grid::distance::sample()),
        ];
        for (name, page) in &pages {
            assert_eq!(check::wrong(page), Vec::<String>::new(), "{name}");
        }
        browser::look(&pages);
    }
}

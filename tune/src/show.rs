//! `longhaul host show`: what this machine has, how it is arranged, and what could be better.
//!
//! For: seeing which NIC, disk, memory and core sit together before asking why a job is not faster.
//! In and out: this machine, or a record of another → a tree of lines, JSON, a picture.
//! Invariants: showing needs no root and changes nothing but the files that were asked for; what is hidden (in containers, in virtual machines) is
//! said.
//! Absent on purpose: a verdict on a job.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use text::exit::Exit;
use topology::facts::{self, Facts};
use topology::tree::Tree;

use crate::arguments::ShowArguments;
use crate::findings::{self, Finding};
use crate::rules::{self, Change};
use crate::{lines, page};

#[derive(Serialize)]
struct Record<'a> {
    event: &'static str,
    version: &'static str,
    #[serde(flatten)]
    facts: &'a Facts,
    findings: &'a [Finding],
    /// What `host plan` would change.
    plan: &'a [Change],
}

/// Runs it.
///
/// # Errors
/// A record that cannot be read, a file that cannot be written.
pub fn show(arguments: &ShowArguments) -> anyhow::Result<()> {
    let tree = match &arguments.from {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Exit::of_io(&error).fail(format!("read {}", path.display()), &error))?;
            Tree::parse(&text).map_err(|line| {
                Exit::Usage
                    .fail(format!("read {}", path.display()), format!("line {line} is none of a record"))
                    .next("make one with --record")
            })?
        }
        None => Tree::here(),
    };
    let facts = facts::read(&tree);
    // Those that are asked for by name are known too, but are not the plan.
    let all = rules::plan(&tree, &facts, |_| true);
    let findings = findings::judge(&facts, &all);
    let by_name = |change: &Change| rules::named(change.rule).is_some_and(|rule| rule.by_name);
    let plan: Vec<Change> = all.into_iter().filter(|change| !by_name(change)).collect();
    if let Some(path) = &arguments.record {
        write(path, &tree.record())?;
    }
    if let Some(path) = &arguments.html {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = arguments.from.is_none().then(sys::host::hostname);
        write(path, &page::page(&facts, &findings, &plan, name.as_deref(), now.as_secs()))?;
    }
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&Record {
                event: "host",
                version: env!("CARGO_PKG_VERSION"),
                facts: &facts,
                findings: &findings,
                plan: &plan
            })?
        );
    } else {
        print!("{}", lines::show(&facts, &findings));
        // A record of another host says nothing of this program, and what is shown of a host and of its record is the same.
        if arguments.from.is_none() {
            rdma().iter().for_each(|line| eprintln!("{line}"));
        }
    }
    Ok(())
}

/// What this program can do with RDMA devices of this host: a line, and one for each device.
fn rdma() -> Vec<String> {
    use sys::rdma::{PROVIDERS, Verdict, devices};
    let devices = devices();
    let head = match (PROVIDERS.is_empty(), devices.is_empty()) {
        (true, _) => {
            "RDMA: not in this build; `cp --transport rdma --rdma-device emulated` shows how it works".to_owned()
        }
        (false, true) => format!("RDMA: this host has no device; drivers in this build: {}", PROVIDERS.join(" ")),
        (false, false) => format!("RDMA: {} devices; drivers in this build: {}", devices.len(), PROVIDERS.join(" ")),
    };
    let line = |it: sys::rdma::Found| {
        let on = it.netdev.map_or_else(String::new, |netdev| format!(", on {netdev}"));
        let verdict = match it.verdict {
            Verdict::Use => "use".to_owned(),
            Verdict::Not(why) => format!("do not use: {why}"),
            Verdict::Cannot(why) => format!("cannot: {why}"),
        };
        format!("  {} ({}, {}{on}): {verdict}", it.name, it.driver, it.link)
    };
    std::iter::once(head).chain(devices.into_iter().map(line)).collect()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Exit::of_io(&error).fail(format!("write {}", path.display()), &error).into())
}

//! `longhaul host`: what this machine has, how it is arranged, and how it could be.
//!
//! For: seeing which card, disk, memory and core sit together before asking why a job is not faster; arranging them, on trial.
//! In and out: /sys, /proc and a few questions to the cards' drivers, or a record of another machine → a tree of lines, JSON, a picture.
//! Invariants: `tune::owner` alone changes anything, when asked (by `bench placement --irq`, too); showing needs no root; what is hidden (in
//! containers, in virtual machines) is said.
//! Absent on purpose: measuring (bench, which looks in here and never the other way: `host probe` is there), a verdict on a job.

pub mod tree; // where facts come from
pub mod facts; // cores, memory nodes, settings
pub mod nics; // network cards
pub mod disks; // disks and file systems
pub mod rules; // what is good, what is not, why
pub mod nodes; // memory nodes of cores, cards and disks, for a job
pub mod machine; // the machine as a search for a placement sees it
pub mod winners; // what such searches found, remembered
pub mod lines; // a tree of lines
pub mod page; // a picture
pub mod tune; // plan, apply, undo

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::host::facts::Facts;
use crate::host::rules::Finding;
use crate::host::tree::Tree;
use text::exit::Exit;

/// What can be asked about a machine.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum HostCommand {
    /// Show cards, cores, memory, disks and settings, which of them sit together, and what is good, what is not and why
    Show(ShowArguments),
    /// Print what could be set for transfers, why, at what risk, and the same as shell; nothing is changed
    Plan(tune::PlanArguments),
    /// Set it while this runs, or while a command runs; proven to help, if asked; every value is put back at the end, also after kill -9
    Apply(tune::ApplyArguments),
    /// Put back what an `apply --keep`, or one that was killed with its guard, has left
    Undo(tune::UndoArguments),
    /// Waits for the end of an apply
    #[command(hide = true)]
    Guard(tune::UndoArguments),
}

/// `longhaul host show`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ShowArguments {
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,

    /// Write a page with a picture
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write all that was read, to be shown elsewhere (it holds names of disks, interfaces and mounts)
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Show the machine of a record instead of this one
    #[arg(long, value_name = "FILE", conflicts_with = "record")]
    pub from: Option<PathBuf>,
}

#[derive(Serialize)]
struct Record<'a> {
    event: &'static str,
    version: &'static str,
    #[serde(flatten)]
    facts: &'a Facts,
    findings: &'a [Finding],
}

/// Runs it.
///
/// # Errors
/// Those of the command.
pub fn run(command: &HostCommand) -> anyhow::Result<()> {
    match command {
        HostCommand::Show(arguments) => show(arguments),
        HostCommand::Plan(arguments) => tune::plan(arguments),
        HostCommand::Apply(arguments) => tune::owner::run(arguments),
        HostCommand::Undo(arguments) => tune::undo(arguments),
        HostCommand::Guard(arguments) => tune::guard::run(arguments),
    }
}

/// A record that cannot be read, a file that cannot be written are errors.
fn show(arguments: &ShowArguments) -> anyhow::Result<()> {
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
    let findings = rules::judge(&facts);
    if let Some(path) = &arguments.record {
        write(path, &tree.record())?;
    }
    if let Some(path) = &arguments.html {
        write(path, &page::page(&facts, &findings))?;
    }
    if arguments.json {
        println!(
            "{}",
            serde_json::to_string(&Record {
                event: "host",
                version: env!("CARGO_PKG_VERSION"),
                facts: &facts,
                findings: &findings
            })?
        );
    } else {
        print!("{}", lines::show(&facts, &findings));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Exit::of_io(&error).fail(format!("write {}", path.display()), &error).into())
}

#[cfg(test)]
mod tests;

//! `longhaul host`: what this machine has, and how it is arranged.
//!
//! For: seeing which card, disk, memory and core sit together before asking why a job is not faster.
//! In and out: /sys, /proc and a few questions to the cards' drivers, or a record of another machine → a tree of lines, JSON, a picture.
//! Invariants: nothing is changed; nothing needs root; what is hidden (in containers, in virtual machines) is said.
//! Absent on purpose: changing anything, measuring (bench), a verdict on a job.

pub mod tree; // where facts come from
pub mod facts; // cores, memory nodes, settings
pub mod nics; // network cards
pub mod disks; // disks and file systems
pub mod rules; // what is good, what is not, why
pub mod text; // a tree of lines
pub mod page; // a picture

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::exit::Exit;
use crate::host::facts::Facts;
use crate::host::rules::Finding;
use crate::host::tree::Tree;

/// What can be asked about a machine.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum HostCommand {
    /// Show cards, cores, memory, disks and settings, which of them sit together, and what is good, what is not and why
    Show(ShowArguments),
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

/// Shows it.
///
/// # Errors
/// A record that cannot be read, a file that cannot be written.
pub fn run(command: &HostCommand) -> anyhow::Result<()> {
    let HostCommand::Show(arguments) = command;
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
        print!("{}", text::show(&facts, &findings));
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Exit::of_io(&error).fail(format!("write {}", path.display()), &error).into())
}

#[cfg(test)]
mod tests;

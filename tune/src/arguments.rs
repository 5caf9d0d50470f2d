//! The arguments of `longhaul host show|plan|apply|undo`.
//!
//! For: the command line, which joins them to its other commands.
//! In and out: words of the command line → plain structs.
//! Invariants: an option is named here alone.
//! Absent on purpose: what is done with them (`show`, `plan`, `lease`, `undo`).

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where the journal is kept when nobody says: it must outlive a new start of the machine.
pub const STATE: &str = "/var/lib/longhaul";

/// Which rules.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Chosen {
    /// Only this rule; several times for several [default: all but mtu and huge-pages, which are not this host's, or this program's, alone]
    #[arg(long = "rule", value_name = "NAME")]
    pub rules: Vec<String>,

    /// All but this rule; several times for several
    #[arg(long, value_name = "NAME")]
    pub without: Vec<String>,

    /// Rules for NICs: only for this interface, also for one that has no NIC of its own (a bond, a VLAN, veth); several times for several
    #[arg(long = "nic", alias = "card", value_name = "NAME")]
    pub nics: Vec<String>,
}

/// `longhaul host plan`.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct PlanArguments {
    #[command(flatten)]
    pub chosen: Chosen,

    /// Print the plan as lines of shell
    #[arg(long, conflicts_with = "json")]
    pub shell: bool,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `longhaul host apply`.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(after_help = "\
Without a command it holds the values until Ctrl-C or SIGTERM, and undoes them then.
  longhaul host apply -- longhaul cp big.bin other:/data/
  longhaul host apply --ab-check --peer other:5741     (there: longhaul bench net --listen 0.0.0.0:5741)
  longhaul host apply --rule rings --ab-check --measure 'my-benchmark | tail -n 1' --keep")]
pub struct ApplyArguments {
    #[command(flatten)]
    pub chosen: Chosen,

    /// Measure each rule with and without it, in random order; keep only what helps beyond chance
    #[arg(long = "ab-check", alias = "prove")]
    pub ab_check: bool,

    /// Command whose last word is the figure for --ab-check; more is better
    #[arg(long, value_name = "COMMAND", requires = "ab_check", conflicts_with = "peer")]
    pub measure: Option<String>,

    /// For --ab-check: send to the `longhaul bench net` that listens there
    #[arg(long, value_name = "HOST:PORT", requires = "ab_check")]
    pub peer: Option<String>,

    /// Pairs of measurements for each rule
    #[arg(long, value_name = "N", default_value_t = 10, requires = "ab_check", value_parser = clap::value_parser!(u32).range(7..=20))]
    pub pairs: u32,

    /// Leave the values when this ends, until `longhaul host undo`
    #[arg(long)]
    pub keep: bool,

    /// Folder of the journal
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub state: PathBuf,

    /// Run this under the values, then undo them
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// `longhaul host undo`, and the watchdog.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct UndoArguments {
    /// Folder of the journal
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub state: PathBuf,
}

/// What can be asked about a machine.
#[derive(Debug, Clone, PartialEq, Subcommand)]
pub enum HostCommand {
    /// Show NICs, cores, memory, disks and settings, which of them sit together, and what is good, what is not and why
    Show(ShowArguments),
    /// Print what could be set for transfers, why, at what risk, and the same as shell; nothing is changed
    Plan(PlanArguments),
    /// Set it while this runs, or while a command runs; proven to help, if asked; every value is put back at the end, also after kill -9
    Apply(ApplyArguments),
    /// Put back what an `apply --keep`, or one that was killed with its watchdog, has left
    Undo(UndoArguments),
    /// Waits for the end of an apply
    #[command(hide = true, alias = "guard")]
    Watchdog(UndoArguments),
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

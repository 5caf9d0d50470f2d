//! `longhaul host plan|apply|undo`: this host arranged for transfers as a transaction: told before, proven if asked, undone by itself.
//!
//! For: operators who want to know what a setting brings here, and to be sure that it is gone afterwards.
//! In and out: rules and this host's facts → a plan; a plan → values set while somebody holds the lease; its end, whatever way → every value back.
//! Invariants: nothing is changed that was not asked for by `apply`; each old value is on disk before the new one is set; two processes watch
//! each other, so that killing either undoes all within a second.
//! Absent on purpose: single flow steering rules of cards (aRFS makes them by itself), files that make settings outlive a new start of the machine.

pub mod place; // where a value lives
pub mod rules; // what can be changed, why, at what risk
pub mod journal; // the old values, on disk
pub mod prove; // with and without
pub mod watch; // what moves that nobody here has set
pub mod owner; // apply: sets, holds, watches, undoes
pub mod arrange; // a card's interrupts for one trial, and back
pub mod guard; // who undoes when the owner cannot

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::host::facts::{self, Facts};
use crate::host::machine;
use crate::host::nics::Nic;
use crate::host::tree::{PROGRAMS, Tree, programs};
use crate::host::tune::journal::{Entry, Journal, Undone};
use crate::host::tune::rules::{Change, RULES, Rule, named};
use text::exit::{Exit, Failure};

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

    /// Rules for cards: only for this interface, also for one that has no card of its own (a bond, a VLAN, veth); several times for several
    #[arg(long = "card", value_name = "NAME")]
    pub cards: Vec<String>,
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
  longhaul host apply --prove --peer other:5741        (there: longhaul bench net --listen 0.0.0.0:5741)
  longhaul host apply --rule rings --prove --measure 'my-benchmark | tail -n 1' --keep")]
pub struct ApplyArguments {
    #[command(flatten)]
    pub chosen: Chosen,

    /// Measure each rule with and without it, in random order; keep only what helps beyond chance
    #[arg(long)]
    pub prove: bool,

    /// Command whose last word is the figure for --prove; more is better
    #[arg(long, value_name = "COMMAND", requires = "prove", conflicts_with = "peer")]
    pub measure: Option<String>,

    /// For --prove: send to the `longhaul bench net` that listens there
    #[arg(long, value_name = "HOST:PORT", requires = "prove")]
    pub peer: Option<String>,

    /// Pairs of measurements for each rule
    #[arg(long, value_name = "N", default_value_t = 10, requires = "prove", value_parser = clap::value_parser!(u32).range(7..=20))]
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

/// `longhaul host undo`, and the guard.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct UndoArguments {
    /// Folder of the journal
    #[arg(long, value_name = "DIR", default_value = STATE)]
    pub state: PathBuf,
}

/// What the rules would change here.
///
/// # Errors
/// A rule's name that is none.
fn changes(chosen: &Chosen) -> Result<Vec<Change>, Failure> {
    for name in chosen.rules.iter().chain(&chosen.without) {
        if named(name).is_none() {
            let known: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
            return Err(Exit::Usage
                .fail(format!("find the rule '{name}'"), "there is none of that name")
                .next(format!("the rules are {}", known.join(", "))));
        }
    }
    let is = |list: &[String], rule: &Rule| list.iter().any(|name| name == rule.name);
    let facts = facts(chosen)?;
    let wanted = |rule: &Rule| if chosen.rules.is_empty() { !rule.by_name } else { is(&chosen.rules, rule) };
    Ok(rules::plan(&facts, |rule| wanted(rule) && !is(&chosen.without, rule)))
}

/// This host, with no cards but those that were named, if some were.
fn facts(chosen: &Chosen) -> Result<Facts, Failure> {
    let tree = Tree::here();
    let mut facts = facts::read(&tree);
    if !chosen.cards.is_empty() {
        if let Some(none) = chosen.cards.iter().find(|name| tree.text(&format!("sys/class/net/{name}/mtu")).is_none()) {
            let known = [facts.nics.iter().map(|nic| nic.name.clone()).collect(), facts.virtual_nics.clone()].concat();
            return Err(Exit::Usage
                .fail(format!("find the card '{none}'"), "there is no interface of that name here")
                .next(format!("the interfaces are {}", known.join(", "))));
        }
        // Asked for by name, it counts also where its state is not told (tunnels) or not yet up.
        facts.nics = chosen.cards.iter().map(|name| Nic { up: true, ..machine::nic(&tree, name) }).collect();
    }
    Ok(facts)
}

/// Prints what would be changed.
///
/// # Errors
/// A rule's name that is none.
pub fn plan(arguments: &PlanArguments) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Record<'a> {
        event: &'static str,
        changes: &'a [Change],
    }
    let changes = changes(&arguments.chosen)?;
    if arguments.json {
        println!("{}", serde_json::to_string(&Record { event: "plan", changes: &changes })?);
        return Ok(());
    }
    if arguments.shell {
        for change in &changes {
            println!("{}   # was: {}", change.place.shell(&change.new), change.old);
        }
        return Ok(());
    }
    let running: Vec<&str> = programs(&PROGRAMS).unwrap_or_default().into_iter().map(|(name, _)| name).collect();
    for rule in RULES {
        let mine: Vec<&Change> = changes.iter().filter(|change| change.rule == rule.name).collect();
        if mine.is_empty() {
            continue;
        }
        println!("{}: {}\n  source: {}\n  risk: {}", rule.name, rule.why, rule.source, rule.risk);
        if !rule.conflicts.is_empty() {
            let here = |name: &&str| rule.conflicts.contains(*name);
            let found: Vec<&str> = running.iter().copied().filter(here).collect();
            let words = if found.is_empty() { String::new() } else { format!(" ({} runs here)", found.join(", ")) };
            println!("  conflicts: {}{words}", rule.conflicts);
        }
        for change in mine {
            println!("  - {} = {}\n  + {} = {}", change.place, change.old, change.place, change.new);
            println!("      {}", change.place.shell(&change.new));
        }
    }
    match changes.len() {
        0 => println!("nothing to change"),
        count => println!(
            "{count} values would be changed; none was. Whether it helps here: longhaul host apply --prove. No transfer needs it."
        ),
    }
    Ok(())
}

/// Puts every value back that an `apply` has left.
///
/// # Errors
/// Somebody holds them; a value cannot be put back.
pub fn undo(arguments: &UndoArguments) -> anyhow::Result<()> {
    let Some(journal) = open(&arguments.state)? else {
        let who = Journal::holder(&arguments.state).map_or("a process".to_owned(), |pid| format!("process {pid}"));
        return Err(Exit::Partial
            .fail("undo the host's settings", format!("{who} holds them"))
            .next("end that process: it undoes them itself")
            .into());
    };
    if journal.entries.is_empty() {
        println!("nothing to undo");
        return Ok(journal.close()?);
    }
    if journal.is_of_another_boot() {
        println!("this machine has started anew since: most values are back already");
    }
    let failed = undo_all(journal)?;
    if failed > 0 {
        let cause = format!("{failed} values could not be put back; they stay in the journal");
        return Err(Exit::Denied
            .fail("undo the host's settings", cause)
            .next("see the lines above; run it again as root")
            .into());
    }
    Ok(())
}

fn open(state: &std::path::Path) -> anyhow::Result<Option<Journal>> {
    Journal::open(state).map_err(|error| {
        Exit::of_io(&error)
            .fail(format!("open the journal in {}", state.display()), &error)
            .next("run it as root, or name another folder with --state")
            .into()
    })
}

/// Undoes all and says so; how many failed.
fn undo_all(mut journal: Journal) -> anyhow::Result<usize> {
    let mut failed = 0;
    journal.undo(
        |_| true,
        |entry, undone| {
            failed += usize::from(matches!(undone, Undone::Failed(_)));
            say(entry, undone);
        },
    )?;
    journal.close()?;
    Ok(failed)
}

fn say(entry: &Entry, undone: &Undone) {
    let Entry { place, old, new, .. } = entry;
    match undone {
        Undone::Back => println!("undone: {place} = {old} (was set to {new})"),
        Undone::Already => println!("undone: {place}: nothing left of {new}"),
        Undone::Foreign(now) => {
            println!("left: {place} = {now}: somebody else has set it since ({new} was ours, {old} was before)")
        }
        Undone::Failed(error) => println!("not undone: {place} = {new}, was {old}: {error}"),
    }
}

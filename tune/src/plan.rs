//! `longhaul host plan`: what the rules would set on this host, and why.
//!
//! For: operators who want to know what could be set before anything is, and `apply`, which sets it.
//! In and out: rules' names, interfaces' names, this host's facts → changes, as text, shell or JSON.
//! Invariants: nothing is changed.
//! Absent on purpose: the rules (`rules`), setting values (`lease`).

use serde::Serialize;
use text::exit::{Exit, Failure};
use topology::facts::{self, Facts};
use topology::machine;
use topology::nics::Nic;
use topology::tree::{PROGRAMS, Tree, programs};

use crate::arguments::{Chosen, PlanArguments};
use crate::rules::{self, Change, RULES, Rule, named};

/// What the rules would change here.
///
/// # Errors
/// A rule's name that is none.
pub fn changes(chosen: &Chosen) -> Result<Vec<Change>, Failure> {
    for name in chosen.rules.iter().chain(&chosen.without) {
        if named(name).is_none() {
            let known: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
            return Err(Exit::Usage
                .fail(format!("find the rule '{name}'"), "there is none of that name")
                .next(format!("the rules are {}", known.join(", "))));
        }
    }
    let is = |list: &[String], rule: &Rule| list.iter().any(|name| name == rule.name);
    let tree = Tree::here();
    let facts = facts(&tree, chosen)?;
    let wanted = |rule: &Rule| if chosen.rules.is_empty() { !rule.by_name } else { is(&chosen.rules, rule) };
    Ok(rules::plan(&tree, &facts, |rule| wanted(rule) && !is(&chosen.without, rule)))
}

/// This host, with no NICs but those that were named, if some were.
fn facts(tree: &Tree, chosen: &Chosen) -> Result<Facts, Failure> {
    let mut facts = facts::read(tree);
    if !chosen.nics.is_empty() {
        if let Some(none) = chosen.nics.iter().find(|name| tree.text(&format!("sys/class/net/{name}/mtu")).is_none()) {
            let known = [facts.nics.iter().map(|nic| nic.name.clone()).collect(), facts.virtual_nics.clone()].concat();
            return Err(Exit::Usage
                .fail(format!("find the NIC '{none}'"), "there is no interface of that name here")
                .next(format!("the interfaces are {}", known.join(", "))));
        }
        // Asked for by name, it counts also where its state is not told (tunnels) or not yet up.
        facts.nics = chosen.nics.iter().map(|name| Nic { up: true, ..machine::nic_named(tree, name) }).collect();
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
            "{count} values would be changed; none was. Whether it helps here: longhaul host apply --ab-check. No transfer needs it."
        ),
    }
    Ok(())
}

//! Tune: `longhaul host`, which shows this host and sets it up for transfers as a transaction: told before, proven if asked, undone by itself.
//!
//! For: operators who want to know what a setting brings here, and to be sure that it is gone afterwards; benches that move interrupts for a trial.
//! In and out: rules and this host's facts → a plan; a plan → values set while somebody holds the lease; its end, whatever way → every value back.
//! Invariants: the only code that changes the host; nothing is changed that was not asked for by `apply` (or `bench placement --irq`); each old
//! value is on disk before the new one is set; two processes watch each other, so that killing either undoes all within a second.
//! Absent on purpose: reading the machine (`topology`), measuring (the benches, which look in here and never the other way), single flow steering
//! rules of NICs (aRFS makes them by itself), files that make settings outlive a new start of the machine.
#![forbid(unsafe_code)]

pub mod arguments; // the command line of all of it
pub mod findings; // what is good, what is not, why
pub mod lines; // a tree of lines
pub mod page; // a picture
pub mod show; // host show
pub mod place; // where a value lives
pub mod rules; // what can be changed, why, at what risk
pub mod plan; // host plan
pub mod journal; // the old values, on disk
pub mod undo; // host undo
pub mod prove; // with and without
pub mod watch; // what moves that nobody here has set
pub mod owner; // host apply: sets, holds, watches, undoes
pub mod arrange; // a card's interrupts for one trial, and back
pub mod guard; // who undoes when the owner cannot

pub use arguments::HostCommand;

/// Runs `longhaul host`.
///
/// # Errors
/// Those of the command.
pub fn run(command: &HostCommand) -> anyhow::Result<()> {
    match command {
        HostCommand::Show(arguments) => show::show(arguments),
        HostCommand::Plan(arguments) => plan::plan(arguments),
        HostCommand::Apply(arguments) => owner::run(arguments),
        HostCommand::Undo(arguments) => undo::undo(arguments),
        HostCommand::Guard(arguments) => guard::run(arguments),
    }
}

#[cfg(test)]
mod tests;

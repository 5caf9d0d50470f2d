//! `longhaul lab`: two hosts and the links between them, on this machine.
//!
//! For: seeing what distance, loss and queues do to a transfer, before and after, without another machine.
//! In and out: options of links and a command → the command's output and exit code, and what the links did, on standard error.
//! Invariants: all is gone when the command ends, however it ends; nothing of the machine is changed.
//! Absent on purpose: routers, more than two hosts, and any use of Longhaul's own transport: any program can be run.
#![forbid(unsafe_code)]

pub mod arguments; // what can be asked
pub mod settings; // the user's words for a link
pub mod wire; // what happens to each packet
pub mod hosts; // namespaces, devices, addresses
pub mod pair; // two hosts on a wire that nothing emulates
pub mod script; // what happens to them at which time
pub mod control; // talking to a lab that runs
pub mod guard; // what is left at its end
pub mod run; // a lab's life
pub mod visit; // commands for a lab that runs
pub mod measure; // is the lab what it says
pub mod ceiling; // what it can carry
pub mod report; // what the links did

use text::exit::{Exit, Failure};

pub use arguments::LabCommand;
pub use wire::emulator;

/// Does it; the exit code of the process.
#[must_use]
pub fn run(command: &LabCommand) -> u8 {
    let result = match command {
        LabCommand::Run(arguments) => run::run(arguments),
        LabCommand::Up(arguments) => visit::up(arguments),
        LabCommand::Hosts => pair::run(),
        LabCommand::Hold(arguments) => run::hold(arguments),
        LabCommand::Guard(arguments) => guard::run(arguments),
        LabCommand::Down { name } => visit::down(name.as_deref()),
        LabCommand::On(arguments) => visit::on(arguments),
        LabCommand::Set(arguments) => visit::set(arguments),
        LabCommand::Move(arguments) => visit::shift(arguments),
        LabCommand::Show { name } => visit::show(name.as_deref()),
        LabCommand::List => visit::list(),
        LabCommand::Measure(arguments) => measure::run(arguments),
    };
    result.unwrap_or_else(|error| {
        let failure = Failure::of("run the lab", &error);
        eprintln!("{failure}");
        // Whatever it was, it was not the command's own code; 1 is nobody's in this program's table.
        if failure.exit == Exit::Whole { 1 } else { failure.exit.code() }
    })
}

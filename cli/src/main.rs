//! Longhaul: big data between Linux hosts at the speed of the hardware.
//!
//! For: the command line; everything it asks for stands in a module of its own.
//! In and out: arguments in; an exit code out (exit.rs has the table).
//! Invariants: every error ends in one of the fixed exit codes.
//! Absent on purpose: any work.
#![forbid(unsafe_code)]
// Nothing is reachable from outside a binary; `pub` here says what a module offers to its neighbours.
#![allow(unreachable_pub)]
// Help texts are doc comments; `[user@]host[:port]` in them is no link.
#![allow(rustdoc::broken_intra_doc_links)]

mod args;
mod config;
mod cp;
mod docs_command;
mod job_command;
mod key_command;
mod lists;
mod report;
mod serve;
mod sync;
mod verify;

use std::os::unix::ffi::OsStrExt;

use clap::Parser;
use node::link;
use text::exit;

fn main() {
    // Where it panicked is on standard error already.
    let exit = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let failure = exit::Exit::Bug.fail("do what was asked", engine::fault::words(&*panic));
        eprintln!("{failure}");
        failure.exit
    });
    job_command::shut();
    std::process::exit(i32::from(exit.code()));
}

fn run() -> exit::Exit {
    let command = args::Arguments::parse().command;
    // The lab hands its words on to whom it starts; those overwrite them themselves.
    #[cfg(feature = "lab")]
    let keeps_words = matches!(command, args::Command::Lab(_));
    #[cfg(not(feature = "lab"))]
    let keeps_words = false;
    if !keeps_words {
        let secret = |word: &[u8]| cp::tickets::secret(std::ffi::OsStr::from_bytes(word));
        let _ = sys::words::overwrite(secret, b'*');
    }
    match command {
        args::Command::Cp(arguments) => cp::run(arguments.with_tickets(), arguments.shown()),
        args::Command::Sync(arguments) => sync::run(*arguments),
        args::Command::Serve(arguments) => serve::run(&arguments),
        args::Command::Verify(arguments) => told(verify::run(&arguments)),
        args::Command::Key(command) => ended(key_command::run(command), "do what was asked with keys"),
        args::Command::Receipt(command) => ended(lists::receipts::run(command), "list receipts"),
        args::Command::Ticket(command) => ended(lists::tickets::run(command), "ask of tickets"),
        args::Command::Job(command) => ended(job_command::run(command), "ask running jobs"),
        #[cfg(feature = "bench")]
        args::Command::Bench(command) => ended(bench::run(command), "measure"),
        #[cfg(feature = "tune")]
        args::Command::Host(args::HostAsked::Here(command)) => ended(tune::run(&command), "show the host"),
        #[cfg(feature = "bench")]
        args::Command::Host(args::HostAsked::Probe(arguments)) => {
            ended(bench::placement::probe::run(&arguments), "search for a placement")
        }
        #[cfg(feature = "lab")]
        args::Command::Lab(command) => std::process::exit(i32::from(lab::run(&command))),
        args::Command::Generate(arguments) => told(docs_command::run(&arguments).map(|_| exit::Exit::Whole)),
    }
}

fn told(result: Result<exit::Exit, exit::Failure>) -> exit::Exit {
    result.unwrap_or_else(|failure| {
        eprintln!("{failure}");
        failure.exit
    })
}

fn ended(result: anyhow::Result<()>, what: &str) -> exit::Exit {
    match result {
        Ok(()) => exit::Exit::Whole,
        Err(error) => {
            let failure = link::failure_of(what, &error);
            eprintln!("{failure}");
            failure.exit
        }
    }
}

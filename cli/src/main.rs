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

use node::link;
use text::exit;

fn main() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !is_reader_gone(info.payload()) {
            tell(info);
        }
    }));
    // Where it panicked is on standard error already.
    let exit = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        if is_reader_gone(&*panic) {
            return exit::Exit::Whole;
        }
        let failure = exit::Exit::Bug.fail("do what was asked", engine::fault::words(&*panic));
        eprintln!("{failure}");
        failure.exit
    });
    job_command::shut();
    std::process::exit(i32::from(exit.code()));
}

fn run() -> exit::Exit {
    let command = match args::read() {
        Ok(arguments) => arguments.command,
        Err(failure) => return told(Err(failure)),
    };
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
        args::Command::Ls(arguments) => lists::entries::run(&arguments),
        args::Command::Serve(arguments) => serve::run(&arguments),
        args::Command::Ftp(command) => told(serve::ftp::run(*command)),
        args::Command::Names => serve::answer_names(),
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

/// `longhaul … | head -1`: whoever read our output has enough of it, which is no failure. `println!` says so by a panic.
fn is_reader_gone(panic: &(dyn std::any::Any + Send)) -> bool {
    let words = engine::fault::words(panic);
    words.starts_with("failed printing to stdout") && words.contains("Broken pipe")
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
        // Our output: whoever read it has enough (`key show | head -1`). What fails elsewhere is a `Failure` or an error of `identity`.
        Err(error)
            if error.downcast_ref::<std::io::Error>().is_some_and(|it| it.kind() == std::io::ErrorKind::BrokenPipe) =>
        {
            exit::Exit::Whole
        }
        Err(error) => {
            let failure = link::failure_of(what, &error);
            eprintln!("{failure}");
            failure.exit
        }
    }
}

//! `longhaul cp`: the command.
//!
//! For: a request, done and shown.
//! In and out: a request in; an exit code out, the screen told on the way.
//! Invariants: a signal ends the process with a code of its own; where standard output has the data, not a word of ours stands there.
//! Absent on purpose: opening and running jobs (node).

pub mod pipe; // standard input or output as an end
pub mod tickets; // those that do not stand on the command line

use std::sync::{Arc, LazyLock};
use std::time::Instant;

use self::pipe::{Pipe, Spool};
use crate::args::{HabitArguments, ProgressChoice};
use crate::report::{Mode, Screen};
use node::client::{self, Manner, Node};
use node::identity::{Home, IdentityError};
use node::link::failure_of;
use node::report::trace::Trace;
use node::request::JobRequest;
use text::exit::{Exit, Failure};

/// What of a command is about how it is shown, and not about the job.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// One JSON object to a line instead of text.
    pub json: bool,
    /// Only what failed.
    pub quiet: bool,
    /// 1: the whole report, and details while it runs.
    pub verbose: u8,
    /// The command's word in the history.
    pub command: &'static str,
    /// How often progress is shown.
    pub progress: ProgressChoice,
    /// Options of others that were accepted.
    pub habits: HabitArguments,
}

impl Shown {
    fn mode(self) -> Mode {
        match (self.json, self.quiet, self.progress) {
            (true, ..) => Mode::Json,
            (_, true, _) => Mode::Quiet,
            (.., ProgressChoice::Auto) => Mode::choose(false),
            _ => Mode::Lines,
        }
    }
}

/// Does what is asked, and shows how it goes.
#[must_use]
pub fn run(request: Result<JobRequest, Failure>, shown: Shown) -> Exit {
    let mode = shown.mode();
    let request = match request {
        Ok(request) => request,
        Err(failure) => return Screen::new(mode).fail(&failure),
    };
    let pipe = Pipe::of(&request);
    let mut screen = match pipe {
        // Standard output has the data: not a word of ours in between.
        Ok(Some(Pipe::Out)) => Screen::onto(mode, Box::new(std::io::stderr()), Box::new(std::io::stderr())),
        _ => Screen::new(mode),
    }
    .saying(shown.verbose)
    .every(shown.progress);
    if let Err(error) = end_by_signal(mode) {
        screen.note(&format!("signals end this copy without a word: {error}"));
    }
    let manner = |piped| Manner { piped, command: shown.command, trace: Arc::clone(trace()), ..Manner::default() };
    if let Some(note) = shown.habits.note() {
        screen.note(&note);
    }
    let done = match pipe {
        Ok(None) => copy(&request, manner(false), &mut screen),
        Ok(Some(pipe)) => {
            let manner = Manner { to_stream: pipe == Pipe::Out, ..manner(true) };
            through(pipe, &request, manner, &mut screen)
        }
        Err(failure) => Err(failure),
    };
    match done {
        Ok(exit) => exit,
        Err(failure) => screen.fail(&failure),
    }
}

/// A copy of which one end is a pipe.
fn through(pipe: Pipe, request: &JobRequest, manner: Manner, screen: &mut Screen) -> Result<Exit, Failure> {
    let spool = Spool::new()?;
    let given = pipe.request(request, &spool);
    if pipe == Pipe::In {
        let began = Instant::now();
        spool.fill(&mut std::io::stdin().lock())?;
        return copy(&given, Manner { piped_for: began.elapsed(), ..manner }, screen);
    }
    let exit = copy(&given, manner, screen)?;
    if matches!(exit, Exit::Whole | Exit::NoReceipt) {
        spool.pour(&mut std::io::stdout().lock(), &request.sources[0])?;
    }
    Ok(exit)
}

/// SIGINT and SIGTERM end the process at once with a code of their own: there is nothing to tidy up, the next run resumes.
fn end_by_signal(mode: Mode) -> std::io::Result<()> {
    use sys::signals::{SIGINT, SIGTERM};
    let signals = sys::signals::watch(&[SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            let wait = sys::event::poll(&[(std::os::fd::AsFd::as_fd(&signals), sys::event::Interest::Read)], None);
            if wait.is_ok() && signals.take().is_some() {
                pipe::forget();
                let failure = Exit::Interrupted.fail("finish the copy", "a signal asked to stop");
                crate::job_command::end_all(&failure);
                let told = trace().write(None);
                told.iter().for_each(|told| Screen::new(mode).note(told));
                Screen::new(mode).fail(&failure);
                std::process::exit(i32::from(failure.exit.code()));
            }
        }
    })?;
    Ok(())
}

/// What congestion control did: of the process's one copy, so that a signal's thread can write it.
fn trace() -> &'static Arc<Trace> {
    static TRACE: LazyLock<Arc<Trace>> = LazyLock::new(Arc::default);
    &TRACE
}

fn copy(request: &JobRequest, manner: Manner, screen: &mut Screen) -> Result<Exit, Failure> {
    client::check(request)?;
    let no_home = |error: IdentityError| failure_of("find LONGHAUL_HOME", &error.into());
    let found = Home::find_if_any().map_err(no_home)?;
    let needs_keys = client::needs_keys(request);
    let home = match found {
        // With a key in it a home is the user's, also read-only: what cannot be kept there is said as a receipt that is missing.
        Some(home) if home.is_writable() || home.has_key() => return copy_as(&home, request, manner, screen),
        Some(home) if needs_keys => Some(home),
        // Says what is wrong with the place.
        None if needs_keys => return copy_as(&Home::find().map_err(no_home)?, request, manner, screen),
        _ => None,
    };
    // Whoever has no key, or none that is needed, is somebody new for each copy.
    let spool = Spool::of_keys()?;
    let mut request = request.clone();
    let without_receipt = request.receipt.is_none();
    if !request.dry_run {
        let lost = if without_receipt { "neither receipt nor history is kept" } else { "no history is kept" };
        screen.note(&format!("{lost}: no key folder can be written to (LONGHAUL_HOME names one)"));
        if without_receipt && !client::is_local(&request) {
            request.receipt = Some(spool.receipt());
        }
    }
    let home = home.map_or_else(|| spool.home(), Ok)?;
    copy_as(&home, &request, Manner { without_receipt, ..manner }, screen)
}

fn copy_as(home: &Home, request: &JobRequest, manner: Manner, screen: &mut Screen) -> Result<Exit, Failure> {
    let node = Node::open_and_tell(home, |why| screen.detail(why))?
        .bringing("/proc/self/exe")
        .on_ssh_line(|line| eprintln!("{line}"));
    crate::job_command::shown_at(node.registry(), node.history());
    node.run(request, manner, screen)
}

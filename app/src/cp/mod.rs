//! `longhaul cp`: the client.
//!
//! For: copying between any two of: this host, a daemon, a host that ssh reaches.
//! In and out: arguments in; an exit code out, the screen told on the way.
//! Invariants: remote to remote goes directly between the two; nothing is sent before both ends computed the same plan.
//! Absent on purpose: moving bytes (engine), turning a job (job::keeper).

pub mod choice; // which entries are taken, compiled
pub mod far; // hosts that ssh reaches: the far side started, brought there if missing
pub mod layout; // how the volumes of a destination are used
pub mod local; // both ends in this process
pub mod pipe; // standard input or output as an end
pub mod relay; // remote to remote
pub mod report; // outcome → end report
pub mod retry; // again, when the session was lost
pub mod session; // push and pull over a session
pub mod tickets; // those that do not stand on the command line

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use engine::platform::Clones;
use proto::layout::Layout;
use proto::rate::{Law, Policy};
use sys::event::Event;

use self::choice::Choice;
use self::pipe::{Pipe, Spool};
use self::retry::Again;
use crate::report::{Mode, Screen};
use crate::serve::relay::Lent;
use node::address::{Address, folder_path};
use node::identity::{Home, Identity};
use node::job;
use node::job::board::{self, Board, Posted, Title};
use node::link::failure_of;
use node::request::JobRequest;
use text::exit::{Exit, Failure};

/// What of a command is about this end's screen, and not about the job.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    /// One JSON object to a line instead of text.
    pub json: bool,
    /// 1: each entry that is not copied as asked; 2: each entry.
    pub verbose: u8,
}

/// Does what is asked, and shows how it goes.
#[must_use]
pub fn run(request: Result<JobRequest, Failure>, shown: Shown) -> Exit {
    let mode = Mode::choose(shown.json);
    let request = match request {
        Ok(request) => request,
        Err(failure) => return Screen::new(mode).fail(&failure),
    };
    let pipe = Pipe::of(&request);
    let mut screen = match pipe {
        // Standard output has the data: not a word of ours in between.
        Ok(Some(Pipe::Out)) => Screen::onto(mode, Box::new(std::io::stderr()), Box::new(std::io::stderr())),
        _ => Screen::new(mode),
    };
    if let Err(error) = end_by_signal(shown.json) {
        screen.note(&format!("signals end this copy without a word: {error}"));
    }
    let done = match pipe {
        Ok(None) => copy(&request, shown, false, &mut screen),
        Ok(Some(pipe)) => through(pipe, &request, shown, &mut screen),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(exit) => exit,
        Err(failure) => screen.fail(&failure),
    }
}

/// A copy of which one end is a pipe.
fn through(pipe: Pipe, request: &JobRequest, shown: Shown, screen: &mut Screen) -> Result<Exit, Failure> {
    let spool = Spool::new()?;
    let given = pipe.request(request, &spool);
    if pipe == Pipe::In {
        spool.fill(&mut std::io::stdin().lock())?;
        return copy(&given, shown, true, screen);
    }
    let exit = copy(&given, shown, true, screen)?;
    if matches!(exit, Exit::Whole | Exit::NoReceipt) {
        spool.pour(&mut std::io::stdout().lock(), &request.sources[0])?;
    }
    Ok(exit)
}

/// SIGINT and SIGTERM end the process at once with a code of their own: there is nothing to tidy up, the next run resumes.
fn end_by_signal(json: bool) -> std::io::Result<()> {
    use sys::signals::{SIGINT, SIGTERM};
    let signals = sys::signals::watch(&[SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            let wait = sys::event::poll(&[(std::os::fd::AsFd::as_fd(&signals), sys::event::Interest::Read)], None);
            if wait.is_ok() && signals.take().is_some() {
                pipe::forget();
                board::shut();
                let failure = Exit::Interrupted.fail("finish the copy", "a signal asked to stop");
                Screen::new(Mode::choose(json)).fail(&failure);
                std::process::exit(i32::from(failure.exit.code()));
            }
        }
    })?;
    Ok(())
}

/// What every kind of copy needs.
#[derive(Debug)]
pub struct Copy<'a> {
    /// What is asked for.
    pub request: &'a JobRequest,
    /// How much the screen is told; see `Shown::verbose`.
    pub verbose: u8,
    /// Who we are.
    pub identity: Arc<Identity>,
    /// Keys, trust, receipts.
    pub home: Home,
    /// When the command began.
    pub began: Instant,
    /// The volumes of the destination, if it is a set of them.
    pub layout: Option<Layout>,
    /// Which entries are taken.
    pub choice: Choice,
    /// One end is a spool of ours: the other must name the stream.
    pub piped: bool,
    /// Passes over the source: a disk of the destination went out, or the session was lost.
    pub again: Again,
    /// Where the job is shown while it runs.
    pub board: Arc<Board>,
    /// Sources and destination in words, without secrets.
    pub what: String,
    /// A daemon makes this copy for a client: what it lends, and by what it is ended.
    pub lent: Option<Lent<'a>>,
}

impl Copy<'_> {
    /// The job goes on the board.
    #[must_use]
    pub fn post(&self, job: [u8; 16], end: &'static str, bell: &Event) -> Posted {
        self.board.post(Title { job, end, initiates: true, what: self.what.clone() }, bell.clone())
    }
}

/// What does not go together is refused before anything is looked at.
fn check(request: &JobRequest) -> Result<(), Failure> {
    let is_local = request.addresses().all(|text| Address::of(text).is_ok_and(|it| matches!(it, Address::Local(_))));
    if request.reflink == Clones::Only && !is_local {
        return Err(Exit::Usage.fail("share blocks with the source", "source and destination are on different hosts"));
    }
    let is_fixed = request.policy == Policy::Fixed || request.law == Law::Fixed;
    let weighed = request.paths.iter().filter(|path| path.weight.is_some()).count();
    if weighed > 0 && weighed < request.paths.len() {
        return Err(Exit::Usage
            .fail("weigh the paths", "some have a weight and some have none")
            .next("give one to each, or to none"));
    }
    if is_fixed && request.rate_bps.is_none() {
        return Err(Exit::Usage.fail("send at a fixed rate", "--policy fixed and --law fixed need --rate"));
    }
    if request.prune.is_some() && request.names.is_some() {
        let cause = "of what --files-from does not name, nobody knows whether the source has it";
        return Err(Exit::Usage.fail("remove what the source does not have", cause));
    }
    Ok(())
}

fn copy(request: &JobRequest, shown: Shown, piped: bool, screen: &mut Screen) -> Result<Exit, Failure> {
    let began = Instant::now();
    check(request)?;
    let listed = if request.names.is_some() { Some(below_folder(request)?) } else { None };
    let request = listed.as_ref().unwrap_or(request);
    let parsed = |all: &[OsString]| all.iter().map(|text| Address::of(text)).collect::<Result<Vec<_>, _>>();
    let (sources, destinations) = (parsed(&request.sources)?, parsed(&request.destinations)?);
    let layout = layout::layout(request, destinations.len())?;
    layout::count(if request.joined { sources.len() } else { 1 })?;
    let choice = Choice::of(request)?;
    receipt_is_possible(request)?;
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let identity = Identity::load(&home).map_err(|error| failure_of("load this host's key", &error.into()))?;
    let identity = Arc::new(identity);
    let board = Board::open(&home, |why| {
        if shown.verbose > 0 {
            screen.note(why);
        }
    });
    node::job::sweep::begin(&home, false);
    let again = Again::default();
    let what = in_words(&sources, &destinations);
    let verbose = shown.verbose;
    let copy = Copy { request, verbose, identity, home, began, layout, choice, piped, again, board, what, lent: None };
    let (from, paths) = one_place(&sources)?;
    let (_, targets) = one_place(&destinations)?;
    let once = |screen: &mut Screen| pass(&copy, from, &paths, &destinations[0], &targets, screen);
    copy.again.until_done(request.stall, screen, once)
}

/// A receipt that was asked for by name: that it cannot be written is said before anything is moved, not after hours.
fn receipt_is_possible(request: &JobRequest) -> Result<(), Failure> {
    let Some(path) = request.receipt.as_ref().filter(|_| !request.dry_run) else { return Ok(()) };
    let is_far = |text: &OsString| !matches!(Address::parse(text.as_bytes()), Ok(Address::Local(_)));
    if request.addresses().all(is_far) {
        let cause = "both ends are other hosts: the receipt stands with them, below their LONGHAUL_HOME";
        return Err(Exit::Usage.fail(format!("write the receipt '{}' here", path.display()), cause));
    }
    job::receipt::try_place(path).map_err(|error| {
        let failure = Exit::NoReceipt.fail(format!("write the receipt '{}'", path.display()), error);
        failure.next("name another place with --receipt, or leave it out; nothing was moved")
    })
}

/// What is copied where, short enough for a line.
fn in_words(sources: &[Address], destinations: &[Address]) -> String {
    let of = |all: &[Address]| match all {
        [one] => one.to_string(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
        [] => String::new(),
    };
    format!("{} -> {}", of(sources), of(destinations))
}

/// One job from the source to the destination.
fn pass(
    copy: &Copy<'_>,
    from: Option<&Address>,
    paths: &[Box<[u8]>],
    to: &Address,
    targets: &[Box<[u8]>],
    screen: &mut Screen,
) -> Result<Exit, Failure> {
    let mut far = far::Far::default();
    match (from, to) {
        (None, Address::Local(_)) => local::run(copy, paths, targets, screen),
        (None, to) => {
            let to = far.reach(copy, to, screen)?;
            session::push(copy, paths, &to, targets, screen)
        }
        (Some(from), Address::Local(_)) => {
            let from = far.reach(copy, from, screen)?;
            session::pull(copy, &from, paths, targets, screen)
        }
        (Some(from), to) => {
            let from = far.reach(copy, from, screen)?;
            let to = far.reach(copy, to, screen)?;
            relay::run(copy, &from, paths, &to, targets, screen)
        }
    }
}

/// The paths of a copy of listed names: they stand below DST as they do below SRC.
fn below_folder(request: &JobRequest) -> Result<JobRequest, Failure> {
    let refuse = |cause: String| {
        let failure = Exit::Usage.fail("take the names of --files-from", cause);
        Err(failure.next("name one source: the folder below which they stand"))
    };
    if request.joined || request.stripe.is_some() {
        return refuse("a list names what is below one folder, not on a set of volumes".to_owned());
    }
    let ([source], [destination]) = (&request.sources[..], &request.destinations[..]) else {
        return refuse(format!("{} sources were named", request.sources.len()));
    };
    let (sources, destinations) = (vec![folder_path(source, b".")], vec![folder_path(destination, b"")]);
    Ok(JobRequest { sources, destinations, ..request.clone() })
}

/// The sources' host (none: this one) and their paths there.
type Place<'a> = (Option<&'a Address>, Vec<Box<[u8]>>);

/// All sources must be on one host: one session, one receipt.
fn one_place(sources: &[Address]) -> Result<Place<'_>, Failure> {
    let same = |a: &Address, b: &Address| match (a, b) {
        (Address::Local(_), Address::Local(_)) => true,
        (Address::Ssh { user: u, host: h, .. }, Address::Ssh { user: v, host: i, .. }) => u == v && h == i,
        (Address::Daemon { host: h, port: p, .. }, Address::Daemon { host: i, port: q, .. }) => h == i && p == q,
        _ => false,
    };
    let first = sources.first().ok_or_else(|| Exit::Usage.fail("find the sources", "none was named"))?;
    if let Some(other) = sources.iter().find(|other| !same(first, other)) {
        let cause = format!("'{first}' and '{other}' are on different hosts");
        return Err(Exit::Usage.fail("use two hosts at once", cause).next("give each host a command of its own"));
    }
    let paths = sources.iter().map(|source| source.path().into()).collect();
    Ok((if matches!(first, Address::Local(_)) { None } else { Some(first) }, paths))
}

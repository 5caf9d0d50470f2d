//! `longhaul cp`: the client.
//!
//! For: copying between any two of: this host, a daemon, a host that ssh reaches.
//! In and out: arguments in; an exit code out, the screen told on the way.
//! Invariants: remote to remote goes directly between the two; nothing is sent before both ends computed the same plan.
//! Absent on purpose: moving bytes (engine), turning a job (job::keeper).

pub mod bring; // this binary to a host that ssh reaches and that has none
pub mod far; // hosts that ssh reaches: the far side started, brought there if missing
pub mod knock; // again, at a crowded door
pub mod local; // both ends in this process
pub mod pipe; // standard input or output as an end
pub mod relay; // remote to remote
pub mod report; // outcome → end report
pub mod retry; // again, when the session was lost
pub mod session; // push and pull over a session
pub mod tickets; // those that do not stand on the command line
pub mod volumes; // which paths are volumes of a set

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Instant;

use proto::layout::Layout;
use sys::event::Event;

use self::pipe::{Pipe, Spool};
use self::retry::Again;
use crate::address::Address;
use crate::args::{Choice, CpArguments, LawChoice, PolicyChoice, ReflinkChoice};
use crate::identity::{Home, Identity};
use crate::job;
use crate::job::board::{self, Board, Posted, Title};
use crate::link::failure_of;
use crate::report::{Mode, Screen};
use crate::serve::relay::Lent;
use text::exit::{Exit, Failure};

/// Runs `longhaul cp`.
#[must_use]
pub fn run(arguments: &CpArguments) -> Exit {
    let filled = match tickets::filled(arguments) {
        Ok(filled) => filled,
        Err(failure) => return Screen::new(Mode::choose(arguments.json)).fail(&failure),
    };
    let arguments = &filled;
    let pipe = Pipe::of(arguments);
    let mode = Mode::choose(arguments.json);
    let mut screen = match pipe {
        // Standard output has the data: not a word of ours in between.
        Ok(Some(Pipe::Out)) => Screen::onto(mode, Box::new(std::io::stderr()), Box::new(std::io::stderr())),
        _ => Screen::new(mode),
    };
    if let Err(error) = end_by_signal(arguments.json) {
        screen.note(&format!("signals end this copy without a word: {error}"));
    }
    let done = match pipe {
        Ok(None) => copy(arguments, false, &mut screen),
        Ok(Some(pipe)) => through(pipe, arguments, &mut screen),
        Err(failure) => Err(failure),
    };
    match done {
        Ok(exit) => exit,
        Err(failure) => screen.fail(&failure),
    }
}

/// A copy of which one end is a pipe.
fn through(pipe: Pipe, arguments: &CpArguments, screen: &mut Screen) -> Result<Exit, Failure> {
    let spool = Spool::new()?;
    let given = pipe.arguments(arguments, &spool);
    if pipe == Pipe::In {
        spool.fill(&mut std::io::stdin().lock())?;
        return copy(&given, true, screen);
    }
    let exit = copy(&given, true, screen)?;
    if matches!(exit, Exit::Whole | Exit::NoReceipt) {
        spool.pour(&mut std::io::stdout().lock(), &arguments.paths[0])?;
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

fn parse(text: &OsStr) -> Result<Address, Failure> {
    Address::parse(text.as_bytes())
        .map_err(|fault| Exit::Usage.fail(format!("read the address '{}'", text.to_string_lossy()), fault))
}

/// What every kind of copy needs.
#[derive(Debug)]
pub struct Copy<'a> {
    /// As given.
    pub arguments: &'a CpArguments,
    /// Who we are.
    pub identity: Arc<Identity>,
    /// Keys, trust, receipts.
    pub home: Home,
    /// When the command began.
    pub began: Instant,
    /// The volumes of the destination, if it is a set of them.
    pub layout: Option<Layout>,
    /// The sources are the volumes of one set.
    pub joined: bool,
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

fn copy(arguments: &CpArguments, piped: bool, screen: &mut Screen) -> Result<Exit, Failure> {
    let began = Instant::now();
    let is_here = |text: &OsStr| parse(text).is_ok_and(|it| matches!(it, Address::Local(_)));
    let is_local = arguments.paths.iter().all(|text| is_here(text));
    if arguments.reflink == ReflinkChoice::Always && !is_local {
        return Err(Exit::Usage.fail("share blocks with the source", "source and destination are on different hosts"));
    }
    let is_fixed = arguments.policy == PolicyChoice::Fixed || arguments.law == LawChoice::Fixed;
    let weighed = arguments.over.iter().filter(|path| path.weight.is_some()).count();
    if weighed > 0 && weighed < arguments.over.len() {
        return Err(Exit::Usage
            .fail("weigh the paths", "some have a weight and some have none")
            .next("give one to each, or to none"));
    }
    if is_fixed && arguments.rate.is_none() {
        return Err(
            Exit::Usage.fail("send at a fixed rate", "--policy fixed and --congestion-controller fixed need --rate")
        );
    }
    if arguments.prune.is_some() && arguments.choose.picks() {
        let cause = "of what --files-from does not name, nobody knows whether the source has it";
        return Err(Exit::Usage.fail("remove what the source does not have", cause));
    }
    let listed = if arguments.choose.picks() { Some(below_folder(arguments)?) } else { None };
    let arguments = listed.as_ref().unwrap_or(arguments);
    let volumes::Named { sources, destinations, layout, joined } = volumes::named(arguments)?;
    let choice = arguments.choose.read()?;
    receipt_is_possible(arguments)?;
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let identity = Identity::load(&home).map_err(|error| failure_of("load this host's key", &error.into()))?;
    let identity = Arc::new(identity);
    let board = Board::open(&home, |why| {
        if arguments.verbose > 0 {
            screen.note(why);
        }
    });
    crate::job::sweep::begin(&home, false);
    let again = Again::default();
    let what = in_words(&sources, &destinations);
    let copy = Copy { arguments, identity, home, began, layout, joined, choice, piped, again, board, what, lent: None };
    let (from, paths) = one_place(&sources)?;
    let (_, targets) = one_place(&destinations)?;
    let once = |screen: &mut Screen| pass(&copy, from, &paths, &destinations[0], &targets, screen);
    copy.again.until_done(arguments.stall, screen, once)
}

/// A receipt that was asked for by name: that it cannot be written is said before anything is moved, not after hours.
fn receipt_is_possible(arguments: &CpArguments) -> Result<(), Failure> {
    let Some(path) = arguments.receipt.as_ref().filter(|_| !arguments.dry_run) else { return Ok(()) };
    let is_far = |text: &OsString| !matches!(Address::parse(text.as_bytes()), Ok(Address::Local(_)));
    if arguments.paths.iter().all(is_far) {
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

/// The path as that of a folder's content (`last` is `.`) or of a folder (nothing).
#[must_use]
pub fn folder_path(path: &OsStr, last: &[u8]) -> OsString {
    let mut path = path.as_bytes().to_vec();
    // `host:` is that host's home: a slash would make it its root.
    match path.last() {
        Some(b'/') => {}
        Some(b':') => path.extend_from_slice(b"./"),
        _ => path.push(b'/'),
    }
    path.extend_from_slice(last);
    OsString::from_vec(path)
}

/// The paths of a copy of listed names: they stand below DST as they do below SRC.
fn below_folder(arguments: &CpArguments) -> Result<CpArguments, Failure> {
    let refuse = |cause: String| {
        let failure = Exit::Usage.fail("take the names of --files-from", cause);
        Err(failure.next("name one source: the folder below which they stand"))
    };
    if arguments.join || arguments.stripe.is_some() {
        return refuse("a list names what is below one folder, not on a set of volumes".to_owned());
    }
    let [source, destination] = &arguments.paths[..] else {
        return refuse(format!("{} sources were named", arguments.paths.len() - 1));
    };
    let paths = vec![folder_path(source, b"."), folder_path(destination, b"")];
    Ok(CpArguments { paths, ..arguments.clone() })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_meant_with_and_without_a_slash() {
        for (given, source, destination) in [
            ("a", "a/.", "a/"),
            ("a/", "a/.", "a/"),
            (".", "./.", "./"),
            ("host:", "host:./.", "host:./"),
            ("host:x", "host:x/.", "host:x/"),
            ("longhaul://t@h:1/x", "longhaul://t@h:1/x/.", "longhaul://t@h:1/x/"),
        ] {
            assert_eq!(folder_path(OsStr::new(given), b"."), source);
            assert_eq!(folder_path(OsStr::new(given), b""), destination);
        }
    }
}

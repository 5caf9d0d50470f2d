//! `longhaul cp`: the client.
//!
//! For: copying between any two of: this host, a daemon, a host that ssh reaches.
//! In and out: arguments in; an exit code out, the screen told on the way.
//! Invariants: remote to remote goes directly between the two; nothing is sent before both ends computed the same plan.
//! Absent on purpose: moving bytes (engine), turning a job (job::keeper).

pub mod far; // hosts that ssh reaches: the far side started, brought there if missing
pub mod knock; // again, at a crowded door
pub mod local; // both ends in this process
pub mod relay; // remote to remote
pub mod report; // outcome → end report
pub mod session; // push and pull over a session
pub mod volumes; // which paths are volumes of a set

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Instant;

use proto::layout::Layout;

use crate::address::Address;
use crate::args::{CpArguments, LawChoice, PolicyChoice};
use crate::exit::{Exit, Failure};
use crate::identity::{Home, Identity};
use crate::report::{Mode, Screen};

/// Runs `longhaul cp`.
#[must_use]
pub fn run(arguments: &CpArguments) -> Exit {
    let mut screen = Screen::new(Mode::choose(arguments.json));
    if let Err(error) = end_by_signal(arguments.json) {
        screen.note(&format!("signals end this copy without a word: {error}"));
    }
    match copy(arguments, &mut screen) {
        Ok(exit) => exit,
        Err(failure) => screen.fail(&failure),
    }
}

/// SIGINT and SIGTERM end the process at once with a code of their own: there is nothing to tidy up, the next run resumes.
fn end_by_signal(json: bool) -> std::io::Result<()> {
    use sys::signals::{SIGINT, SIGTERM};
    let signals = sys::signals::watch(&[SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            let wait = sys::event::poll(&[(std::os::fd::AsFd::as_fd(&signals), sys::event::Interest::Read)], None);
            if wait.is_ok() && signals.take().is_some() {
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
}

fn copy(arguments: &CpArguments, screen: &mut Screen) -> Result<Exit, Failure> {
    let began = Instant::now();
    let is_fixed = arguments.policy == PolicyChoice::Fixed || arguments.law == LawChoice::Fixed;
    if is_fixed && arguments.rate.is_none() {
        return Err(Exit::Usage.fail("send at a fixed rate", "--policy fixed and --law fixed need --rate"));
    }
    let volumes::Named { sources, destinations, layout, joined } = volumes::named(arguments)?;
    let home = Home::find().map_err(|error| Failure::of("find LONGHAUL_HOME", &error.into()))?;
    let identity = Identity::load(&home).map_err(|error| Failure::of("load this host's key", &error.into()))?;
    let identity = Arc::new(identity);
    let copy = Copy { arguments, identity, home, began, layout, joined };
    let (from, paths) = one_place(&sources)?;
    let (_, targets) = one_place(&destinations)?;
    let mut far = far::Far::default();
    match (from, &destinations[0]) {
        (None, Address::Local(_)) => local::run(&copy, &paths, &targets, screen),
        (None, to) => {
            let to = far.reach(&copy, to, screen)?;
            session::push(&copy, &paths, &to, &targets, screen)
        }
        (Some(from), Address::Local(_)) => {
            let from = far.reach(&copy, from, screen)?;
            session::pull(&copy, &from, &paths, &targets, screen)
        }
        (Some(_), _) if layout.is_some() || joined => Err(Exit::Usage
            .fail(
                "use volumes from one other host to another",
                "this host would only steer, and a ticket is for one place",
            )
            .next("run the copy on one of the two hosts")),
        (Some(from), to) => {
            let from = far.reach(&copy, from, screen)?;
            let to = far.reach(&copy, to, screen)?;
            relay::run(&copy, &from, &paths, &to, screen)
        }
    }
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

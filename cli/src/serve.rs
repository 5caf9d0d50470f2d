//! `longhaul serve`: the daemon as a process.
//!
//! For: flags, config file, signals, and what the process gives up.
//! In and out: arguments in; jobs served until a signal ends it.
//! Invariants: SIGTERM drains, a second one ends at once; SIGHUP reloads; the service manager hears of each.
//! Absent on purpose: serving (node::serve).

pub mod ftp; // the same folder for clients of FTP
pub mod ftp_users; // and who these are
mod systemd; // what the service manager hears and hands over

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::args::ServeArguments;
use crate::config;
use crate::cp::pipe::Spool;
use crate::job_command;
use node::identity::Home;
use node::identity::ticket::Uses;
use node::job::endpoint::names::{Names, resolver};
use node::link::failure_of;
use node::request::RdmaDevice;
use node::serve::handed::Handed;
use node::serve::settings::Settings;
use node::serve::{Bound, Control, Log, Server};
use sys::event::Event;
use systemd::Manager;
use text::exit::{Exit, Failure};

/// Runs `longhaul serve`.
#[must_use]
pub fn run(arguments: &ServeArguments) -> Exit {
    more_descriptors();
    match serve(arguments) {
        Ok(exit) => exit,
        Err(failure) => {
            eprintln!("{failure}");
            failure.exit
        }
    }
}

fn serve(arguments: &ServeArguments) -> Result<Exit, Failure> {
    let settings = config::load(arguments)?;
    let io = |what: &'static str| move |error: std::io::Error| Exit::of_io(&error).fail(what, error);
    let signals = sys::signals::watch(&[sys::signals::SIGTERM, sys::signals::SIGINT, sys::signals::SIGHUP])
        .map_err(io("watch for signals"))?;
    let own: Vec<&std::path::Path> = arguments.config.as_deref().into_iter().collect();
    // Through ssh nobody manages this process, whatever the login has in its environment.
    let handed = if settings.stdio { None } else { systemd::port()? };
    let manager = Arc::new(if settings.stdio { Manager::default() } else { Manager::find() });
    // Keys, lists and the root are opened as the user who works with them later.
    let (handed, user_home) = become_user(&settings, handed)?;
    let found = user_home.map_or_else(Home::find_if_any, |user_home| Home::find_of(&user_home).map(Some));
    let found = found.map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    // Whoever is let in by ticket alone hears of the key by it: one that lives as long as the process is as good.
    let is_by_ticket = settings.stdio || settings.ticket.is_some();
    let (home, spool) = match found {
        Some(home) => (home, None),
        None if is_by_ticket => {
            let spool = Spool::of_keys()?;
            eprintln!(
                "no key folder can be made (LONGHAUL_HOME names one): key, tickets and history last as long as this process"
            );
            (spool.home()?, Some(spool))
        }
        None => (Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?, None),
    };
    let ftp = open_ftp(arguments, &settings, &home)?;
    let bound = Bound::bind_or_take(settings.clone(), &home, &own, handed)?.on_mistake(on_mistake);
    let bound = with_pulse(bound, &manager);
    // A confined process starts no program: what asks for names is started before.
    let names = if settings.stdio { Names::of_this_host() } else { Names::of_confined("/proc/self/exe".as_ref()) };
    names.install();
    let walls = confine(&settings, &home)?;
    let server = bound.start(log(settings.stdio))?;
    if let Some(walls) = walls {
        server.control().say(1, &walls);
    }
    job_command::shown_at(server.registry(), server.history());
    print_address(&settings, &server)?;
    if let Some(ftp) = &ftp {
        if ftp.has_lhdata {
            ftp.server.with_daemon(server.upgrade()?);
        }
        print!("{}", ftp.page);
        let _ = std::io::stdout().flush();
    }
    manager.status(&format!("serving {} at {}", settings.root.display(), server.address()?));
    manager.ready();
    let event = || Event::new().map_err(io("start the daemon"));
    let (over, gone) = (event()?, event()?);
    let control = server.control();
    std::thread::scope(|scope| {
        scope.spawn(|| watch((&control, &manager), &signals, [&over, &gone], arguments));
        if settings.stdio {
            end_with_stdin(gone.clone());
        }
        if let Some(ftp) = ftp {
            let (over, control) = (&over, &control);
            scope.spawn(move || {
                if let Err(error) = ftp.server.run(over) {
                    control.say(0, &format!("FTP ended: {error}"));
                }
            });
        }
        let served = server.run();
        over.signal();
        served
    })?;
    if spool.is_some() {
        // The walls are around the home: the folder that it is in stays, empty, and goes with the next process that sweeps.
        let _ = std::fs::remove_dir_all(home.path(""));
    }
    Ok(Exit::Whole)
}

/// The FTP door that the config file opens beside the daemon's, at the same root.
fn open_ftp(arguments: &ServeArguments, settings: &Settings, home: &Home) -> Result<Option<ftp::Opened>, Failure> {
    let table = if settings.stdio { None } else { config::ftp_table(arguments)? };
    let Some(table) = table else { return Ok(None) };
    let options = ftp::of_table(&table, &settings.root).map_err(|why| {
        let failure = Exit::Usage.fail("read the table [ftp] of the config file", why);
        failure.next("write its keys as the options of `longhaul ftp serve`, without the dashes in front")
    })?;
    ftp::open(&options, home).map(Some)
}

/// Runs `longhaul names`: the child that asks `getent` for a confined daemon. It and what it starts only read.
#[must_use]
pub fn answer_names() -> Exit {
    let _ = sys::confine::read_only();
    // An end of either pipe is the end of the daemon.
    let _ = resolver::serve(std::io::stdin().lock(), std::io::stdout().lock());
    Exit::Whole
}

/// On standard error. What comes through ssh stands on the client's screen: it says who speaks.
fn log(is_stdio: bool) -> Log {
    Log::to(move |line| if is_stdio { eprintln!("longhaul: {line}") } else { eprintln!("{line}") })
}

/// What a service manager that waits for a sign of life gets: the accepting thread gives it, so a daemon that lets nobody in any more is found out.
fn with_pulse(bound: Bound, manager: &Arc<Manager>) -> Bound {
    let manager = Arc::clone(manager);
    match manager.pulse() {
        Some(every) => bound.on_turn(every, move || manager.alive()),
        None => bound,
    }
}

/// Jobs that run are on threads of their own: they lose nothing. Who was not authenticated yet connects again; after too many of these the process ends by name,
/// and whoever started it starts it again.
fn on_mistake(why: &str, is_last: bool) {
    if is_last {
        eprintln!("longhaul: the listener panicked: {why}");
        std::process::exit(i32::from(Exit::Bug.code()));
    }
    eprintln!("longhaul: the listener goes on after a mistake in Longhaul: {why}");
}

/// Each unauthenticated connection, rail and open file has a descriptor: as many as the system lets us have.
pub fn more_descriptors() {
    let mut files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    files.current = files.maximum;
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, files);
}

/// A far side whose ssh session is over has so long to end what runs: a client goes as soon as it has its own last word, and this side's
/// receipt is being flushed then.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// The ssh session is what keeps the far side alive.
fn end_with_stdin(gone: Event) {
    std::thread::spawn(move || {
        let mut byte = [0; 64];
        while std::io::stdin().read(&mut byte).is_ok_and(|count| count > 0) {}
        gone.signal();
        std::thread::sleep(LEFT_ALONE);
        job_command::end_all(&Exit::Interrupted.fail("finish the job", "the ssh session ended"));
        std::process::exit(0);
    });
}

/// Where clients find this daemon, on standard output; with the first ticket, if one is wanted.
fn print_address(settings: &Settings, server: &Server) -> Result<(), Failure> {
    // Who started the far side by ssh knows its host, and asks for the port alone.
    let address = if settings.stdio { server.address()?.to_string() } else { server.public_address()? };
    match settings.ticket.or(settings.stdio.then_some(Uses::Once)) {
        Some(uses) => println!("longhaul://{}@{address}/", server.ticket(uses)?),
        None => println!("longhaul://{address}/"),
    }
    let _ = std::io::stdout().flush();
    Ok(())
}

/// Gives up what the daemon does not need, and says how far that goes. What this kernel cannot do is said once; it is the second wall, `openat2` is the first.
fn confine(settings: &Settings, home: &Home) -> Result<Option<String>, Failure> {
    if settings.stdio {
        return Ok(None);
    }
    let _ = sys::confine::no_new_privs();
    let root = settings.root.as_os_str().as_encoded_bytes();
    let own = home.path("");
    let mut walls: Vec<(&[u8], bool)> = vec![(root, true), (own.as_os_str().as_encoded_bytes(), true)];
    let nodes = settings.privileged;
    for needed in [&b"/proc"[..], b"/sys", b"/etc"] {
        walls.push((needed, false));
    }
    // Each connection of rdma_cm opens it anew.
    if settings.rdma_device.as_ref().is_some_and(RdmaDevice::is_device) {
        walls.push((b"/dev/infiniband", true));
    }
    let config = settings.authorized_keys.clone();
    if let Some(path) = config.as_ref().and_then(|path| path.parent()) {
        walls.push((path.as_os_str().as_encoded_bytes(), false));
    }
    Ok(Some(match sys::confine::landlock(&walls, nodes) {
        Ok(wall) if wall.holds => format!("confined by Landlock: {}", wall.reason),
        Ok(wall) => format!("not confined by Landlock: {}", wall.reason),
        Err(error) => format!("not confined by Landlock: {error}"),
    }))
}

/// Binds the port and becomes the user of the settings, if they name one and this process is another: then with that user's home folder.
fn become_user(settings: &Settings, handed: Option<Handed>) -> Result<(Option<Handed>, Option<PathBuf>), Failure> {
    let Some(user) = settings.user.as_ref().filter(|_| !settings.stdio) else { return Ok((handed, None)) };
    let (uid, gid, home) = account(user)?;
    if rustix::process::getuid().as_raw() == uid {
        return Ok((handed, None));
    }
    let handed = match handed {
        Some(handed) => handed,
        None => Handed::bind(settings.listen, (uid, gid))?,
    };
    // Each rail over UDP has a socket of its own at the port, which a service manager may have chosen.
    sys::confine::drop_to(uid, gid, handed.port().is_some_and(|port| port < LOW_PORTS))
        .map_err(|error| Exit::of_io(&error).fail(format!("become the user '{user}'"), error))?;
    Ok((Some(handed), Some(home)))
}

/// Ports below want a right (net.ipv4.ip_unprivileged_port_start of the kernel).
const LOW_PORTS: u16 = 1024;

/// User and group number and home folder of a name, from `/etc/passwd`: a static binary has no name service.
fn account(user: &str) -> Result<(u32, u32, PathBuf), Failure> {
    let failed = |cause: &str| {
        let failure = Exit::Usage.fail(format!("become the user '{user}'"), cause);
        failure.next("name a user of /etc/passwd with `user` in the config file, or make one (useradd)")
    };
    let text = std::fs::read_to_string("/etc/passwd").map_err(|error| failed(&error.to_string()))?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(user))
        .ok_or_else(|| failed("it is not in /etc/passwd"))?;
    let fields: Vec<&str> = line.split(':').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok());
    match (number(2), number(3)) {
        (Some(uid), Some(gid)) => Ok((uid, gid, PathBuf::from(fields.get(5).copied().unwrap_or_default()))),
        _ => Err(failed("its line in /etc/passwd has no numbers")),
    }
}

/// Signals: SIGHUP reloads, the first SIGTERM or SIGINT drains, the second ends at once. `gone`: the ssh session is over, which drains, too.
fn watch(
    (server, manager): (&Control, &Manager),
    signals: &sys::signals::SignalFd,
    [over, gone]: [&Event; 2],
    arguments: &ServeArguments,
) {
    use std::os::fd::AsFd;
    use sys::event::Interest::Read;
    loop {
        let fds = [(signals.as_fd(), Read), (over.as_fd(), Read), (gone.as_fd(), Read)];
        let Ok(ready) = sys::event::poll(&fds, None) else { continue };
        if ready[1].any() {
            return;
        }
        if ready[2].any() {
            gone.drain();
            server.drain();
        }
        while let Some(signal) = signals.take() {
            if signal.number == sys::signals::SIGHUP {
                manager.reloading();
                reload(server, arguments);
                manager.ready();
                continue;
            }
            let (running, was_told) = server.drain();
            if was_told {
                server.say(0, "second signal, ending at once");
                job_command::end_all(&Exit::Interrupted.fail("finish the job", "the daemon was ended at once"));
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            manager.stopping();
            manager.status(&format!("draining: waiting for {running} running jobs"));
            let waits = format!("draining: no new jobs, waiting for {running} running (signal again to end at once)");
            server.say(0, &waits);
        }
    }
}

fn reload(server: &Control, arguments: &ServeArguments) {
    match config::load(arguments) {
        Ok(new) => server.reload(new).iter().for_each(|line| server.say(0, &format!("reload: {line}"))),
        Err(failure) => server.say(0, &format!("reload refused, the old settings stay: {failure}")),
    }
}

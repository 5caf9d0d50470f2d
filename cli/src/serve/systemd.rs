//! What a service manager hears of a daemon, and what it hands to one: sd_notify(3) and sd_listen_fds(3), of systemd and others.
//!
//! For: `Type=notify`, `WatchdogSec=` and a socket unit.
//! In and out: NOTIFY_SOCKET, WATCHDOG_USEC, LISTEN_FDS → datagrams of a few words; sockets.
//! Invariants: without these variables nothing happens; a manager that does not hear harms no job.
//! Absent on purpose: libsystemd (the protocol is one datagram of lines), when a word is said (serve.rs).

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use node::serve::handed::Handed;
use text::exit::{Exit, Failure};

/// The service manager of this process, if it has one that listens.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// Looks for it. Call this before rights are given up: the socket is connected once.
    pub fn find() -> Manager {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|place| match connect(&place) {
            Ok(socket) => Some(socket),
            Err(error) => {
                eprintln!("longhaul: the service manager's socket {} is out of reach: {error}", place.display());
                None
            }
        });
        let word = |name| std::env::var(name).ok();
        let is_ours = word("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let watchdog = word("WATCHDOG_USEC").and_then(|time| time.parse().ok()).filter(|time| is_ours && *time > 0);
        Manager { watchdog: watchdog.filter(|_| socket.is_some()).map(Duration::from_micros), socket }
    }

    /// How often it wants to hear that the daemon lives: twice as often as it would act (sd_watchdog_enabled(3)).
    pub fn pulse(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Connections are accepted; again after a reload.
    pub fn ready(&self) {
        self.say("READY=1");
    }

    /// A line for people who ask the manager.
    pub fn status(&self, line: &str) {
        self.say(&format!("STATUS={line}"));
    }

    /// Settings are being read again; `ready` follows.
    pub fn reloading(&self) {
        let now_us = sys::clock::now_ns() / 1000;
        self.say(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
    }

    /// No new jobs; running ones end.
    pub fn stopping(&self) {
        self.say("STOPPING=1");
    }

    /// The daemon lives.
    pub fn alive(&self) {
        self.say("WATCHDOG=1");
    }

    fn say(&self, words: &str) {
        // Who is not heard is started again or not, as the unit says; there is nobody else to say it to.
        self.socket.iter().for_each(|socket| _ = socket.send(words.as_bytes()));
    }
}

/// A path, or a name that begins with `@` (abstract, unix(7)).
fn connect(place: &OsString) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // A manager that reads nothing must not stop the daemon.
    socket.set_nonblocking(true)?;
    match place.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(place)?,
    }
    Ok(socket)
}

/// The port that the service manager has bound, if it has.
///
/// # Errors
/// What it handed over is something else.
pub fn port() -> Result<Option<Handed>, Failure> {
    let sockets = sys::handed::take().map_err(|error| {
        let failure = Exit::Usage.fail("take the sockets that LISTEN_FDS speaks of", error);
        failure.next("start the daemon by a socket unit, or unset LISTEN_FDS")
    })?;
    Handed::of(sockets)
}

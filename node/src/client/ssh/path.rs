//! Whether data goes to the far side directly, or through the ssh connection that started it.
//!
//! For: hosts behind a firewall that lets ssh through and nothing else, without a wait at each copy.
//! In and out: the far side's port in; an address that answers out. The hosts that could not be reached directly are kept in the home's `ssh-tunnels`.
//! Invariants: the direct way wins if it answers first; a tunnel is a request to the connection that is there, no login, where ssh can be asked;
//! what is remembered only decides who gets a head start, expires, and is lost without harm.
//! Absent on purpose: more than TCP: where TCP does not get through, UDP is not tried.

use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use crate::client::Copy;
use crate::client::ssh::command::Ssh;
use crate::event::Events;
use crate::identity::Home;
use crate::link::{Ready, bound_segments};
use text::exit::{Exit, Failure};

/// A port from which nothing comes for so long does not answer.
const CONNECT_TRY: Duration = Duration::from_secs(3);
/// The head start of the direct way is not shorter: a busy host accepts within this.
const HEAD_START_MIN: Duration = Duration::from_millis(250);
/// A firewall is not changed more often than that; while a tunnel is used, the direct way that answers late is remembered as well.
const REMEMBERED: Duration = Duration::from_secs(6 * 3600);
/// Hosts that are remembered; a list of some kilobytes.
const HOSTS_MAX: usize = 200;
const LIST: &str = "ssh-tunnels";
const LIST_BYTES_MAX: u64 = 64 << 10;

/// A port of this host that leads through ssh.
#[derive(Debug)]
pub(super) enum Tunnel {
    /// The connection that is there carries it; this command ends it, where the connection stays when the copy is over.
    Asked(Option<Box<Command>>),
    /// A process of its own.
    Process(Child),
}

impl Tunnel {
    /// Nothing goes through it any more.
    pub(super) fn close(&mut self) {
        match self {
            Tunnel::Asked(None) => {}
            Tunnel::Asked(Some(cancel)) => _ = quiet(cancel).status(),
            Tunnel::Process(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Where the far side is reached.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) host: String,
    pub(super) port: u16,
    /// The connection that showed it: the session uses it.
    pub(super) ready: Option<Ready>,
}

/// The host and port that lead to the far side, and the tunnel if that is one. `head_start`: what the direct way has before a tunnel is made.
pub(super) fn choose(
    ssh: &Ssh,
    copy: &Copy<'_>,
    port: u16,
    head_start: Duration,
    events: &mut Events<'_>,
) -> Result<(Place, Option<Tunnel>), Failure> {
    let home = &copy.home;
    let was_blocked = remembered(home, &ssh.host, SystemTime::now());
    let head_start = if was_blocked { Duration::ZERO } else { head_start.clamp(HEAD_START_MIN, CONNECT_TRY) };
    let direct = dial(&ssh.host, port);
    match direct.recv_timeout(head_start) {
        Ok(direct) => {
            if was_blocked {
                remember(home, &ssh.host, false);
            }
            return Ok((direct, None));
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
    }
    let (near, mut tunnel) = open(ssh, port)?;
    if let Ok(direct) = direct.try_recv() {
        tunnel.close();
        return Ok((direct, None));
    }
    if !was_blocked {
        remember(home, &ssh.host, true);
    }
    let hint = if copy.request.far_ports.is_some() {
        ""
    } else {
        "; --far-port 50000-50010 asks for ports that a firewall lets through"
    };
    let host = &ssh.host;
    events
        .note(&format!("port {port} of {host} does not answer directly: data goes through ssh, which is slower{hint}"));
    let (home, host) = (home.clone(), ssh.host.clone());
    std::thread::spawn(move || {
        if direct.recv().is_ok() {
            remember(&home, &host, false);
        }
    });
    copy.before.goes_through_ssh(near);
    Ok((Place { host: "127.0.0.1".to_owned(), port: near, ready: None }, Some(tunnel)))
}

/// Connects to all addresses of the host at once. The first that answers is sent: the name, if that is its first address, else the address.
fn dial(host: &str, port: u16) -> Receiver<Place> {
    let (to, answered) = channel();
    let host = host.to_owned();
    std::thread::spawn(move || {
        let Ok(all) = (host.as_str(), port).to_socket_addrs() else { return };
        // A name with more addresses than this is a service's, not a host's.
        for (no, address) in all.take(8).enumerate() {
            let (to, name) = (to.clone(), if no == 0 { host.clone() } else { shown(address) });
            std::thread::spawn(move || {
                let begun = Instant::now();
                let made = sys::sock::connect_from(address, None, CONNECT_TRY, |fd| bound_segments(fd, false));
                if let Ok(stream) = made {
                    let ready = Some(Ready { stream, took: begun.elapsed() });
                    let _ = to.send(Place { host: name, port, ready });
                }
            });
        }
    });
    answered
}

fn shown(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(it) if it.scope_id() != 0 => format!("{}%{}", it.ip(), it.scope_id()),
        it => it.ip().to_string(),
    }
}

/// A port of this host that leads to that port of the other one.
fn open(ssh: &Ssh, port: u16) -> Result<(u16, Tunnel), Failure> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let near = free.map_err(|error| Exit::of_io(&error).fail("find a free port", error))?.port();
    let leads = format!("127.0.0.1:{near}:127.0.0.1:{port}");
    let asked = |what: &str| {
        let mut command = ssh.ask(what)?;
        command.args(["-L", &leads]).arg(&ssh.target);
        Some(command)
    };
    if let (Some(mut forward), Some(cancel)) = (asked("forward"), asked("cancel"))
        && quiet(&mut forward).status().is_ok_and(|status| status.success())
    {
        return Ok((near, Tunnel::Asked(ssh.outlives_the_copy().then(|| Box::new(cancel)))));
    }
    let mut command = ssh.command();
    command.args(["-N", "-o", "ExitOnForwardFailure=yes", "-L", &leads]).arg(&ssh.target);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command
        .spawn()
        .map_err(|error| Exit::Connect.fail(format!("open a tunnel to {} through ssh", ssh.target), error))?;
    let mut tunnel = Tunnel::Process(child);
    for _ in 0..50 {
        if TcpStream::connect(("127.0.0.1", near)).is_ok() {
            return Ok((near, tunnel));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    tunnel.close();
    Err(Exit::Connect
        .fail(format!("reach {} through ssh", ssh.target), "the tunnel does not answer")
        .next("let the port of --far-port through the firewall there, or permit AllowTcpForwarding in its sshd_config"))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Could this host lately be reached through a tunnel only?
fn remembered(home: &Home, host: &str, now: SystemTime) -> bool {
    lines(home, now).iter().any(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == host))
}

/// `HOST SECONDS`, none of which has expired.
fn lines(home: &Home, now: SystemTime) -> Vec<String> {
    let mut text = String::new();
    let read = fs::File::open(home.path(LIST)).and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    let since = |line: &str| {
        let seconds = line.rsplit_once(' ').and_then(|(_, seconds)| seconds.parse().ok())?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
    };
    // A time to come was written before the clock was set back.
    let is_fresh =
        |line: &&str| since(line).and_then(|it| now.duration_since(it).ok()).is_some_and(|it| it < REMEMBERED);
    text.lines().filter(is_fresh).map(str::to_owned).collect()
}

fn remember(home: &Home, host: &str, is_blocked: bool) {
    let now = SystemTime::now();
    let mut all = lines(home, now);
    all.retain(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name != host));
    if is_blocked && !host.contains(['\n', ' ']) {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs());
        all.push(format!("{host} {seconds}"));
    }
    let skipped = all.len().saturating_sub(HOSTS_MAX);
    let text: String = all[skipped..].iter().map(|line| format!("{line}\n")).collect();
    // Of two copies that write at once one is forgotten: the next one finds out again.
    let new = home.path(&format!(".{LIST}.{}.tmp", std::process::id()));
    if fs::write(&new, text).and_then(|()| fs::rename(&new, home.path(LIST))).is_err() {
        let _ = fs::remove_file(&new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_behind_a_firewall_is_remembered_for_some_hours_and_what_is_no_line_is_nothing() {
        let folder = std::env::temp_dir().join(format!("longhaul-tunnels-{}", std::process::id()));
        let home = Home::at(&folder).unwrap();
        let now = SystemTime::now();
        assert!(!remembered(&home, "h", now));
        remember(&home, "h", true);
        remember(&home, "i", true);
        assert!(
            remembered(&home, "h", now + Duration::from_secs(60))
                && remembered(&home, "i", now + Duration::from_secs(60))
        );
        assert!(!remembered(&home, "h", now + REMEMBERED + Duration::from_secs(60)), "it expires");
        remember(&home, "h", false);
        assert!(
            !remembered(&home, "h", now + Duration::from_secs(60))
                && remembered(&home, "i", now + Duration::from_secs(60))
        );
        for torn in [&b"i"[..], b"i x\n", b"\xff\xff 1\n", b"i 99999999999999999999\n", b"i 18446744073709551615\n"] {
            fs::write(home.path(LIST), torn).unwrap();
            assert!(!remembered(&home, "i", now), "{torn:?}");
        }
        (0..2 * HOSTS_MAX).for_each(|no| remember(&home, &format!("host{no}"), true));
        assert_eq!(lines(&home, SystemTime::now()).len(), HOSTS_MAX);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn whichever_address_of_a_host_answers_is_taken_and_none_that_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let found = dial("localhost", port).recv().unwrap();
        assert!(found.host == "localhost" || found.host == "127.0.0.1", "{found:?}");
        drop(listener);
        assert!(dial("localhost", port).recv().is_err(), "nobody listens: known at once");
    }
}

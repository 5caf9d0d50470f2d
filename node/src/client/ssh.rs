//! Hosts that ssh reaches: the far side is started there, and brought there if it is missing, with one login.
//!
//! For: `[user@]host:path` without any set-up on the other host.
//! In and out: an ssh address in; a daemon's address with a one-job ticket out, and the ssh process that keeps it alive.
//! Invariants: ssh's own trust is all that is trusted; the ticket came through ssh; the far side ends when ssh does; who has to type a password
//! types it once: what comes after the login goes through the same connection.
//! Absent on purpose: our own ssh; what is said to the other host's shell (bootstrap.rs); ssh's own command lines (ssh/command.rs); direct or through a tunnel (ssh/path.rs).

mod command; // ssh's command lines for one host
mod failure; // why one is not reached
mod path; // directly there, or through ssh

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdout, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::address::Address;
use crate::client::Copy;
use crate::client::bootstrap::{self, FAR_PLACE, Packing, Said};
use crate::event::Events;
use crate::identity::ticket::Ticket;
use command::Ssh;
use path::Tunnel;
use text::exit::{Exit, Failure};
use text::units::{show_bytes, show_seconds};

/// A line of the far side's standard error that is longer is shown in pieces: its words are hostile until the job's keys are there.
const LINE_BYTES_MAX: u64 = 4096;
/// What is kept of it until the far side runs, for the failure that says why it does not.
const WORDS_BYTES_MAX: usize = 4096;
/// Progress of the binary's way is told so often.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// The binary goes to ssh in pieces of a pipe's size.
const PIECE_BYTES: usize = 64 << 10;

/// What the far side writes on its standard error goes here, line by line, from a thread of its own.
#[derive(Clone)]
pub struct LineSink(Arc<dyn Fn(&str) + Send + Sync>);

impl LineSink {
    /// Hands each line to this function.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> LineSink {
        LineSink(Arc::new(sink))
    }
}

impl Default for LineSink {
    /// Lines are dropped.
    fn default() -> LineSink {
        LineSink::new(|_| ())
    }
}

impl std::fmt::Debug for LineSink {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LineSink").finish_non_exhaustive()
    }
}

/// Hands on line by line what comes, without its end; none is longer than `LINE_BYTES_MAX`.
fn each_line(from: impl Read, mut hand: impl FnMut(&str)) {
    let mut from = BufReader::new(from);
    loop {
        let mut line = Vec::new();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
        hand(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']));
    }
}

/// The ssh processes of a copy; they end with it.
#[derive(Debug, Default)]
pub struct SshHosts {
    children: Vec<Child>,
    /// What the far sides would still say on their standard output: nothing; closed, it would end an ssh that says something.
    outs: Vec<BufReader<ChildStdout>>,
    /// With the port of this host and whom it leads to, as the user wrote it.
    tunnels: Vec<(u16, String, Tunnel)>,
    /// Addresses that are dialled directly, each with whom the user wrote.
    direct: Vec<(String, String)>,
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        for (_, _, tunnel) in &mut self.tunnels {
            tunnel.close();
        }
        // Closing its input ends the far side; then ssh ends by itself.
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        let until = Instant::now() + Duration::from_secs(1);
        for child in &mut self.children {
            ended_within(child, until.saturating_duration_since(Instant::now()));
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until it has ended, and no longer: whoever copied a small file waits for this alone.
fn ended_within(child: &mut Child, patience: Duration) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    let ended = pid.and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok());
    let until = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    while !matches!(child.try_wait(), Ok(Some(_))) && Instant::now() < until {
        match &ended {
            Some(ended) => drop(sys::event::poll(&[(ended.as_fd(), sys::event::Interest::Read)], Some(patience))),
            // A kernel or a filter that has no pidfd_open (Linux 5.3).
            None => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// What ssh and the far side write on their standard error: kept until the far side runs, handed on afterwards.
#[derive(Debug, Default)]
struct Words {
    kept: String,
    runs: bool,
}

/// A login on its way.
struct Login {
    child: Child,
    out: BufReader<ChildStdout>,
    words: Arc<Mutex<Words>>,
    reader: std::thread::JoinHandle<()>,
    /// What else came on standard output: `nologin` says there why it lets nobody in.
    beside: String,
}

impl Login {
    fn begin(ssh: &Ssh, sink: LineSink) -> Result<Login, Failure> {
        let mut child = ssh.log_in()?;
        let out = BufReader::new(child.stdout.take().expect("asked for"));
        let err = child.stderr.take().expect("asked for");
        let words = Arc::new(Mutex::new(Words::default()));
        let shared = Arc::clone(&words);
        let reader = std::thread::spawn(move || {
            each_line(err, |line| {
                let mut words = shared.lock().unwrap_or_else(PoisonError::into_inner);
                if words.runs {
                    drop(words);
                    (sink.0)(line);
                } else if words.kept.len() + line.len() < WORDS_BYTES_MAX {
                    words.kept.push_str(line);
                    words.kept.push('\n');
                }
            });
        });
        Ok(Login { child, out, words, reader, beside: String::new() })
    }

    /// Tells the script something. Why it does not take it stands in its exit status and in what ssh says: that counts before a broken pipe.
    fn tell(&mut self, bytes: &[u8]) -> bool {
        self.child.stdin.as_mut().is_some_and(|to| to.write_all(bytes).and_then(|()| to.flush()).is_ok())
    }

    fn hear(&mut self) -> Said {
        bootstrap::hear(&mut self.out, &mut self.beside)
    }

    /// It did not come to a far side: how ssh ended, and all that was said.
    fn over(mut self) -> std::io::Result<(ExitStatus, String)> {
        drop(self.child.stdin.take());
        // An ssh that talks on is not waited for.
        drop(self.out);
        let status = self.child.wait()?;
        let _ = self.reader.join();
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let beside = self.beside.chars().take(WORDS_BYTES_MAX);
        let said = beside.chain(words.kept.chars()).collect();
        Ok((status, said))
    }
}

impl SshHosts {
    /// A daemon's address for any remote address.
    pub fn reach(&mut self, copy: &Copy<'_>, to: &Address, events: &mut Events<'_>) -> Result<Address, Failure> {
        let Address::Ssh { user, host, path } = to else { return Ok(to.clone()) };
        let target = user.as_ref().map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
        let ssh = Ssh::find(copy, target)?;
        let began = Instant::now();
        let (ticket, port) = self.start(&ssh, copy, events)?;
        // Half of what the login took is longer than a round trip there, on any path: a login has five and more.
        let login = began.elapsed();
        let (place, tunnel) = path::choose(&ssh, copy, port, login / 2, events)?;
        let path::Place { host, port, ready } = place;
        let is_direct = tunnel.is_none();
        if let Some(tunnel) = tunnel {
            self.tunnels.push((port, ssh.target.clone(), tunnel));
        }
        let to = Address::Daemon { ticket, host, port, others: Vec::new(), path: path.clone() };
        if let Some(place) = to.host_port().filter(|_| is_direct) {
            copy.before.has_connected(&place, ready);
            self.direct.push((place, ssh.target.clone()));
        }
        Ok(to)
    }

    /// What failed at the near end of a tunnel, or at a port that the far side took, is told of the host that the user named.
    #[must_use]
    pub fn named_by_user(&self, mut failure: Failure) -> Failure {
        for (near, target, _) in &self.tunnels {
            let (place, name) = (format!("127.0.0.1:{near}"), format!("{target} through ssh"));
            failure.what = failure.what.replace(&place, &name);
            failure.cause = failure.cause.replace(&place, &name);
        }
        for (place, target) in &self.direct {
            failure.what = failure.what.replace(place, &format!("{target} ({place})"));
        }
        failure
    }

    /// Starts the far side: where it listens, and what lets us in.
    fn start(&mut self, ssh: &Ssh, copy: &Copy<'_>, events: &mut Events<'_>) -> Result<(Option<Ticket>, u16), Failure> {
        let mut login = Login::begin(ssh, copy.on_ssh_line.clone())?;
        let what = || format!("start longhaul on {}", ssh.target);
        // While ssh is on its way, this build's name is found.
        login.tell(told(copy)?.as_bytes());
        let mut said = login.hear();
        if let (Said::Lacks(packing), Some(program)) = (&said, &copy.program) {
            bring(ssh, &mut login, program, *packing, events)?;
            said = login.hear();
        }
        match said {
            Said::Runs(ticket, port) => {
                login.words.lock().unwrap_or_else(PoisonError::into_inner).runs = true;
                self.children.push(login.child);
                self.outs.push(login.out);
                Ok((ticket, port))
            }
            Said::Unnamed => {
                let cause = "the binary named with --remote-binary is not there";
                Err(Exit::Connect
                    .fail(what(), cause)
                    .next("check that path on that host, or leave --remote-binary out: this binary is brought along"))
            }
            Said::Lacks(_) => {
                let cause = "there is no longhaul of this protocol on that host, and none to copy there";
                Err(Exit::Connect.fail(what(), cause).next("install longhaul there, or name it with --remote-binary"))
            }
            Said::OtherKind(there) => {
                let cause = format!("it is '{there}', this binary is for 'Linux {}'", std::env::consts::ARCH);
                Err(Exit::Connect
                    .fail(format!("bring longhaul to {}", ssh.target), cause)
                    .next("install longhaul there, or name it with --remote-binary"))
            }
            Said::Nonsense => Err(Exit::Breach
                .fail(format!("understand longhaul on {}", ssh.target), "its answer is none that this version knows")
                .next(format!(
                    "compare the versions (ssh {} longhaul --version), or name another with --remote-binary",
                    ssh.target
                ))),
            Said::Nothing => {
                let (status, said) = login.over().map_err(|error| Exit::Connect.fail(what(), error))?;
                Err(failure::ended(&ssh.target, status, &said))
            }
        }
    }
}

/// What the script asks for first.
fn told(copy: &Copy<'_>) -> Result<String, Failure> {
    let request = copy.request;
    let mut options = format!("--listen [::]:0 --memory {}", text::units::exact_size(request.memory_bytes));
    if let Some(ports) = request.far_ports {
        options.push_str(&format!(" --ports {ports}"));
    }
    if request.integrity_only {
        options.push_str(" --integrity-only");
    }
    if request.bare {
        options.push_str(" --bare");
    }
    let binary = request.remote_binary.as_deref().unwrap_or_default();
    if binary.contains(['\n', '\0']) {
        return Err(Exit::Usage
            .fail("name the binary on the other host", "--remote-binary has a line end in it")
            .next("name a path without one"));
    }
    let name = copy.program.as_deref().map_or_else(|| "none".to_owned(), bootstrap::version_name);
    Ok(format!("{name}\n{binary}\n{options}\n"))
}

/// Sends this program to the script that lacks it.
fn bring(
    ssh: &Ssh,
    login: &mut Login,
    program: &Path,
    packing: Packing,
    events: &mut Events<'_>,
) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Exit::of_io(&error).fail(format!("pack this binary for {}", ssh.target), error);
    let (line, bytes) = bootstrap::packed(program, packing).map_err(failed)?;
    let whole = std::fs::metadata(program).map_err(failed)?.len();
    events.note(&format!(
        "longhaul is not on {}: sending this binary to ~/{FAR_PLACE} there, {} as {}, {} unpacked",
        ssh.target,
        show_bytes(bytes.len() as u64),
        packing.word(),
        show_bytes(whole),
    ));
    let began = Instant::now();
    let (mut sent, mut told) = (0_u64, began);
    let all = bytes.len() as u64;
    let mut takes = login.tell(line.as_bytes());
    for piece in bytes.chunks(PIECE_BYTES) {
        takes = takes && login.tell(piece);
        sent += piece.len() as u64;
        if takes && told.elapsed() >= TOLD_EVERY {
            told = Instant::now();
            events.bringing(sent, all);
        }
    }
    events.bringing(all, all);
    if takes {
        let took = show_seconds(began.elapsed().as_secs_f64());
        events.note(&format!("{} sent in {took}; the next copy finds it there", show_bytes(sent)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_child_that_ends_is_known_of_at_once_and_one_that_does_not_is_waited_for_no_longer() {
        for (seconds, patience_ms, least, most) in [("0.1", 5000, 90, 109), ("5", 100, 90, 2000)] {
            let took: Vec<u128> = (0..5)
                .map(|_| {
                    let mut child = Command::new("sleep").arg(seconds).spawn().expect("sleep");
                    let began = Instant::now();
                    ended_within(&mut child, Duration::from_millis(patience_ms));
                    let took = began.elapsed().as_millis();
                    let _ = child.kill();
                    let _ = child.wait();
                    took
                })
                .collect();
            // The best of some: a busy machine's scheduler takes what it takes.
            let best = *took.iter().min().expect("five");
            assert!((least..=most).contains(&best), "{took:?}");
        }
    }
}

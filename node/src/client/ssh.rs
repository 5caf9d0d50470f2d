//! Hosts that ssh reaches: the far side is started there, and brought there if it is missing.
//!
//! For: `[user@]host:path` without any set-up on the other host.
//! In and out: an ssh address in; a daemon's address with a one-job ticket out, and the ssh process that keeps it alive.
//! Invariants: ssh's own trust is all that is trusted; the ticket came through ssh; the far side ends when ssh does.
//! Absent on purpose: our own ssh.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::address::Address;
use crate::client::Copy;
use crate::client::bootstrap::{FAR_PLACE, bring, version_name};
use crate::client::ssh_failure;
use crate::event::Events;
use crate::identity::ticket::TICKET_VARIABLE;
use text::exit::{Exit, Failure};

/// Does the far side's port answer?
const CONNECT_TRY: Duration = Duration::from_secs(3);

/// What the far side writes on its standard error goes here, line by line, from a thread of its own.
#[derive(Clone)]
pub struct LineSink(Arc<dyn Fn(&str) + Send + Sync>);

impl LineSink {
    /// Hands each line to this function.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> LineSink {
        LineSink(Arc::new(sink))
    }

    /// Reads to the end. Bytes that are no UTF-8 are replaced.
    fn drain(&self, from: impl Read) {
        for line in BufReader::new(from).split(b'\n') {
            let Ok(line) = line else { return };
            (self.0)(&String::from_utf8_lossy(&line));
        }
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

/// The ssh processes of a copy; they end with it.
#[derive(Debug, Default)]
pub struct SshHosts {
    children: Vec<Child>,
}

impl Drop for SshHosts {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Closing its input ends the far side; then ssh ends by itself.
            drop(child.stdin.take());
            for _ in 0..20 {
                if matches!(child.try_wait(), Ok(Some(_))) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

struct Ssh<'a> {
    words: Vec<String>,
    target: String,
    copy: &'a Copy<'a>,
}

impl Ssh<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command.env_remove(TICKET_VARIABLE);
        sys::signals::unblock_in_child(&mut command);
        command
    }

    fn run(&self, remote: &str) -> Command {
        let mut command = self.command();
        command.arg(&self.target).arg(remote);
        command
    }
}

impl SshHosts {
    /// A daemon's address for any remote address.
    pub fn reach(&mut self, copy: &Copy<'_>, to: &Address, events: &mut Events<'_>) -> Result<Address, Failure> {
        let Address::Ssh { user, host, path } = to else { return Ok(to.clone()) };
        let words: Vec<String> =
            copy.request.ssh.as_deref().unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            return Err(Exit::Usage
                .fail("run ssh", "--ssh is empty")
                .next("leave --ssh out, or name a command with it"));
        }
        let target = user.as_ref().map_or_else(|| host.clone(), |user| format!("{user}@{host}"));
        let ssh = Ssh { words, target, copy };
        let named = copy.request.remote_binary.clone();
        let started = match named {
            Some(binary) => self.start(&ssh, &quote(&binary))?,
            None => match self.start(&ssh, "longhaul")? {
                Some(line) => Some(line),
                None => match &copy.program {
                    Some(program) => self.start(&ssh, &format!("~/{FAR_PLACE}/{}", version_name(program)))?,
                    None => None,
                },
            },
        };
        let line = match started {
            Some(line) => line,
            None => {
                if copy.request.remote_binary.is_some() {
                    let cause = "the binary named with --remote-binary is not there";
                    return Err(Exit::Connect.fail(format!("start longhaul on {}", ssh.target), cause).next(
                        "check that path on that host, or leave --remote-binary out: this binary is brought along",
                    ));
                }
                let Some(program) = &copy.program else {
                    let cause = "there is no longhaul on that host, and none to copy there";
                    return Err(Exit::Connect
                        .fail(format!("start longhaul on {}", ssh.target), cause)
                        .next("install longhaul there, or name it with --remote-binary"));
                };
                events.note(&format!("longhaul is not on {}: copying this binary there, to ~/{FAR_PLACE}", ssh.target));
                let sent = bring(&ssh.target, program, |remote| ssh.run(remote))?;
                events.note(&format!("{} sent", text::units::show_bytes(sent)));
                let place = format!("~/{FAR_PLACE}/{}", version_name(program));
                self.start(&ssh, &place)?.ok_or_else(|| {
                    Exit::Connect.fail(format!("start longhaul on {}", ssh.target), "the copied binary was not found")
                })?
            }
        };
        self.daemon(&ssh, &line, path, events)
    }

    /// Starts the far side. None: there is no such command.
    fn start(&mut self, ssh: &Ssh<'_>, binary: &str) -> Result<Option<String>, Failure> {
        let mut options = format!("--memory {}", text::units::exact_size(ssh.copy.request.memory_bytes));
        if ssh.copy.request.integrity_only {
            options.push_str(" --integrity-only");
        }
        if ssh.copy.request.bare {
            options.push_str(" --bare");
        }
        let mut child = ssh
            .run(&format!("{binary} serve --stdio --listen 0.0.0.0:0 {options}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| ssh_failure::not_started(&ssh.target, &ssh.words[0], &error))?;
        let mut line = String::new();
        let out = child.stdout.take().expect("asked for");
        let _ = BufReader::new(out).read_line(&mut line);
        if line.starts_with("longhaul://") {
            // What the far side says on its standard error goes to whoever asked for it from now on.
            if let Some(err) = child.stderr.take() {
                let sink = ssh.copy.on_ssh_line.clone();
                std::thread::spawn(move || sink.drain(err));
            }
            self.children.push(child);
            return Ok(Some(line.trim().to_owned()));
        }
        // `nologin` says on its standard output why it lets nobody in.
        let mut said = line;
        if let Some(err) = child.stderr.take() {
            let _ = err.take(4096).read_to_string(&mut said);
        }
        drop(child.stdin.take());
        let what = format!("start longhaul on {} through ssh", ssh.target);
        let status = child.wait().map_err(|error| Exit::Connect.fail(what, error))?;
        if ssh_failure::is_missing(status, &said) {
            Ok(None)
        } else {
            Err(ssh_failure::ended(&ssh.target, status, &said))
        }
    }

    /// The far side's address as this host can reach it: directly, or through a tunnel of ssh's.
    fn daemon(&mut self, ssh: &Ssh<'_>, line: &str, path: &[u8], events: &mut Events<'_>) -> Result<Address, Failure> {
        let parsed = Address::parse(line.as_bytes())
            .map_err(|fault| Exit::Breach.fail(format!("understand longhaul on {}", ssh.target), fault))?;
        let Address::Daemon { ticket, port, .. } = parsed else {
            return Err(Exit::Breach.fail(format!("understand longhaul on {}", ssh.target), "it named no port"));
        };
        let host = real_name(ssh);
        if reachable(&host, port) {
            return Ok(Address::Daemon { ticket, host, port, others: Vec::new(), path: path.to_vec() });
        }
        events
            .note(&format!("port {port} of {host} cannot be reached directly: data goes through ssh, which is slower"));
        let free = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let near = free.map_err(|error| Exit::of_io(&error).fail("find a free port", error))?.port();
        let child = ssh
            .command()
            .args(["-N", "-o", "ExitOnForwardFailure=yes", "-L", &format!("127.0.0.1:{near}:127.0.0.1:{port}")])
            .arg(&ssh.target)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Exit::Connect.fail("open a tunnel through ssh", error))?;
        self.children.push(child);
        for _ in 0..50 {
            if reachable("127.0.0.1", near) {
                return Ok(Address::Daemon {
                    ticket,
                    host: "127.0.0.1".to_owned(),
                    port: near,
                    others: Vec::new(),
                    path: path.to_vec(),
                });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err(Exit::Connect.fail(format!("reach {} through ssh", ssh.target), "the tunnel does not answer"))
    }
}

/// For a POSIX shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The name ssh really connects to (`HostName` of its configuration).
fn real_name(ssh: &Ssh<'_>) -> String {
    let plain = ssh.target.rsplit('@').next().unwrap_or(&ssh.target).to_owned();
    let Ok(output) = ssh.command().arg("-G").arg(&ssh.target).output() else { return plain };
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().find_map(|line| line.strip_prefix("hostname ")).map_or(plain, str::to_owned)
}

fn reachable(host: &str, port: u16) -> bool {
    (host, port)
        .to_socket_addrs()
        .is_ok_and(|mut addresses| addresses.any(|address| TcpStream::connect_timeout(&address, CONNECT_TRY).is_ok()))
}

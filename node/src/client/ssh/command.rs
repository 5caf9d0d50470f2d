//! One host as ssh reaches it, and the commands for that.
//!
//! For: the login, and what is asked of the connection afterwards.
//! In and out: `--ssh`, a host's name, what `ssh -G` says of it; commands out.
//! Invariants: the user's options come first in each; a connection of the user's own (`ControlPath`) is used, and none is made beside it; a
//! command that knows nothing of such sockets gets no option for one.
//! Absent on purpose: what is said through it (bootstrap.rs).

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::failure;
use crate::client::{Copy, bootstrap};
use crate::identity::ticket::TICKET_VARIABLE;
use text::exit::{Exit, Failure};

/// ssh makes its socket's name longer by 17 bytes for a moment, and a socket's name has at most 107.
const SOCKET_BYTES_MAX: usize = 88;
/// How one host is reached.
#[derive(Debug, Clone)]
pub(super) struct Ssh {
    words: Vec<String>,
    /// `[user@]host` as the user wrote it.
    pub(super) target: String,
    /// The name ssh really connects to (`HostName` of its configuration).
    pub(super) host: String,
    /// The socket through which its connection can be asked for more; `None`: this ssh has none, and a second login is another process's.
    socket: Option<Socket>,
}

#[derive(Debug, Clone)]
enum Socket {
    /// The user's configuration has one.
    Theirs,
    /// Made for this copy.
    Ours(OsString),
}

static NEXT_SOCKET: AtomicU32 = AtomicU32::new(0);

impl Ssh {
    pub(super) fn find(copy: &Copy<'_>, target: String) -> Result<Ssh, Failure> {
        let words = copy.request.ssh.as_deref().unwrap_or("ssh").split_whitespace();
        let words: Vec<String> = words.map(str::to_owned).collect();
        if words.is_empty() {
            return Err(Exit::Usage
                .fail("run ssh", "--ssh is empty")
                .next("leave --ssh out, or name a command with it"));
        }
        let host = target.rsplit('@').next().unwrap_or(&target).to_owned();
        let mut ssh = Ssh { words, target, host, socket: None };
        let said = ssh.command().arg("-G").arg(&ssh.target).stdin(Stdio::null()).output();
        let said = said.map_err(|error| failure::not_started(&ssh.target, &ssh.words[0], &error))?;
        let said = String::from_utf8_lossy(&said.stdout);
        let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        if let Some(host) = value("hostname") {
            host.clone_into(&mut ssh.host);
        }
        // A command that knows nothing of such sockets is given no option for one.
        ssh.socket = match (value("controlmaster"), value("controlpath").filter(|path| *path != "none")) {
            (_, Some(_)) => Some(Socket::Theirs),
            (Some(_), None) => own_socket(&copy.home.path("run")).map(Socket::Ours),
            (None, None) => None,
        };
        Ok(ssh)
    }

    /// ssh, with the user's own options.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        command.env_remove(TICKET_VARIABLE);
        sys::signals::unblock_in_child(&mut command);
        command
    }

    /// ssh as it asks the connection that is there; `None`: it cannot be asked.
    pub(super) fn ask(&self, what: &str) -> Option<Command> {
        let mut command = self.command();
        if let Socket::Ours(path) = self.socket.as_ref()? {
            command.arg("-S").arg(path);
        }
        command.args(["-O", what]);
        Some(command)
    }

    /// Is the connection the user's own, and stays when the copy is over?
    pub(super) fn outlives_the_copy(&self) -> bool {
        matches!(self.socket, Some(Socket::Theirs))
    }

    /// The login.
    pub(super) fn log_in(&self) -> Result<Child, Failure> {
        let mut command = self.command();
        if let Some(Socket::Ours(path)) = &self.socket {
            command.args(["-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-S"]).arg(path);
        }
        command.arg(&self.target).arg(bootstrap::script());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| failure::not_started(&self.target, &self.words[0], &error))
    }
}

/// A place for a socket that only this user reaches; `None`: its name would be too long, or ssh would read something else in it.
fn own_socket(folder: &Path) -> Option<OsString> {
    let name = format!("ssh-{}-{}", std::process::id(), NEXT_SOCKET.fetch_add(1, Ordering::Relaxed));
    let path = folder.join(name);
    let text = path.to_str()?;
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    // Whoever may write to that folder could take the connection over.
    let is_private = std::fs::metadata(folder).is_ok_and(|facts| {
        facts.is_dir() && facts.mode() & 0o022 == 0 && facts.uid() == rustix::process::geteuid().as_raw()
    });
    (is_plain && is_private && text.len() <= SOCKET_BYTES_MAX).then(|| path.into_os_string())
}

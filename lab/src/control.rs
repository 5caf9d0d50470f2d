//! Talking to a lab that runs.
//!
//! For: `lab on`, `set`, `move`, `show`, `down`, `list`, which are other processes than the one with the emulator.
//! In and out: one JSON object each way over a Unix socket, with descriptors of the namespaces beside the answer where they are asked for.
//! Invariants: sockets are in a folder of the user's own (mode 0700); what is read is bounded; a peer that is slow is dropped.
//! Absent on purpose: the lab itself (run.rs does what is asked).
//!
//! ```text
//! → {"ask":"set","link":0,"words":"rate=50Mbit"}\n            ← {"ok":true,"text":"...","pairs":[["LONGHAUL_LAB_A","10.99.0.1"],..]}\n
//! → {"ask":"hosts"}\n                                         ← the same, with three descriptors: user, a, b (SCM_RIGHTS)
//! ```

use std::io::{BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::{Deserialize, Serialize};

use text::exit::Exit;

/// Where a command inside of a lab finds it.
pub const LAB_VARIABLE: &str = "LONGHAUL_LAB";
/// A question or an answer is at most so long: a few KiB for each of 64 links.
const BYTES_MAX: usize = 256 << 10;
/// Whoever takes longer to ask or to listen is not one of our own commands.
const PATIENCE: Duration = Duration::from_secs(5);
/// Descriptors beside an answer: user, a, b.
const DESCRIPTORS: usize = 3;

/// What can be asked of a running lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Ask {
    /// Where the hosts are: environment and descriptors.
    Hosts,
    /// Change a link.
    Set { link: usize, words: String },
    /// Another address for a host.
    Move { host: String, link: usize, address: std::net::Ipv4Addr },
    /// What there is and what has passed.
    Show,
    /// End.
    Down,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answer {
    /// It was done.
    pub ok: bool,
    /// For the user: what was asked for, or why not.
    pub text: String,
    /// Environment of a command in the lab.
    pub pairs: Vec<(String, String)>,
}

/// The user's own folder for sockets and logs. Errors: it cannot be made, or belongs to somebody else.
pub fn folder() -> anyhow::Result<PathBuf> {
    // Whoever runs inside of a lab without root looks like user 0 there; the lab tells its folder by its own name.
    if let Some(path) = std::env::var_os(LAB_VARIABLE) {
        let path = PathBuf::from(path);
        if let Some(parent) = path.parent().filter(|parent| parent.is_absolute()) {
            return Ok(parent.to_owned());
        }
    }
    let user = rustix::process::geteuid().as_raw();
    let path = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(run) if !run.is_empty() => PathBuf::from(run).join("longhaul-lab"),
        _ => std::env::temp_dir().join(format!("longhaul-lab-{user}")),
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{} cannot be made", path.display()));
        }
        _ => {}
    }
    let stat = rustix::fs::lstat(&path)?;
    anyhow::ensure!(
        stat.st_uid == user && stat.st_mode & 0o077 == 0 && rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir(),
        Exit::Denied.fail("find the labs", format!("{} is not a folder of this user alone", path.display()))
    );
    Ok(path)
}

/// A lab's socket in the folder.
#[must_use]
pub fn socket_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}

/// Is this a name for a lab?
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    anyhow::ensure!(
        (1..=32).contains(&name.len()) && name.bytes().all(good) && !name.starts_with('-'),
        Exit::Usage.fail("name the lab", format!("'{name}' is not 1 to 32 letters, digits, '-' or '_'"))
    );
    Ok(())
}

/// The path of the lab that is meant: the one named, the one around us, or the only one.
pub fn find(name: Option<&str>) -> anyhow::Result<PathBuf> {
    let folder = folder()?;
    if let Some(name) = name {
        check_name(name)?;
        return Ok(socket_path(&folder, name));
    }
    if let Some(path) = std::env::var_os(LAB_VARIABLE) {
        return Ok(PathBuf::from(path));
    }
    let mut alive = list(&folder)?;
    match (alive.pop(), alive.is_empty()) {
        (Some(path), true) => Ok(path),
        (None, _) => {
            Err(Exit::Usage.fail("find the lab", "none is running").next("make one: longhaul lab up NAME").into())
        }
        (Some(_), false) => Err(Exit::Usage
            .fail("find the lab", "several are running")
            .next("name one: --lab NAME; see `longhaul lab list`")
            .into()),
    }
}

/// The sockets in the folder that somebody answers; those that nobody does are removed.
pub fn list(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut alive = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "sock") {
            match UnixStream::connect(&path) {
                Ok(_) => alive.push(path),
                Err(_) => {
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
    }
    alive.sort();
    Ok(alive)
}

/// Asks; the answer and its descriptors.
pub fn ask(path: &Path, ask: &Ask) -> anyhow::Result<(Answer, Vec<OwnedFd>)> {
    let name = path.file_stem().unwrap_or_default().display().to_string();
    let gone = |error: std::io::Error| {
        Exit::Usage
            .fail("reach the lab", format!("no lab '{name}' answers: {error}"))
            .next("see `longhaul lab list`, or make one: `longhaul lab up NAME`")
    };
    let mut stream = UnixStream::connect(path).map_err(gone)?;
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = vec![0; BYTES_MAX];
    let received =
        rustix::net::recvmsg(&stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = descriptors.flatten().collect();
    bytes.truncate(received.bytes);
    stream.take(BYTES_MAX as u64).read_to_end(&mut bytes)?;
    let answer: Answer = serde_json::from_slice(&bytes).context("the lab ended before it answered")?;
    anyhow::ensure!(answer.ok, Exit::Usage.fail("do that in the lab", &answer.text));
    Ok((answer, descriptors))
}

/// The lab's end of the socket; its file goes with it.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    /// The socket's file.
    pub path: PathBuf,
}

impl Door {
    /// Opens it under a name that no living lab has.
    pub fn open(folder: &Path, name: &str) -> anyhow::Result<Door> {
        let path = socket_path(folder, name);
        if UnixStream::connect(&path).is_ok() {
            let words = format!("a lab '{name}' is running");
            return Err(Exit::Usage.fail("make the lab", words).next("end it first: longhaul lab down NAME").into());
        }
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        listener.set_nonblocking(true)?;
        Ok(Door { listener, path })
    }

    /// The next question, if there is one, and where its answer goes.
    pub fn next(&self) -> Option<(Ask, Caller)> {
        loop {
            let (stream, _) = self.listener.accept().ok()?;
            let question = Caller(stream).question();
            if let Ok(question) = question {
                return Some(question);
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Who has asked.
#[derive(Debug)]
pub struct Caller(UnixStream);

impl Caller {
    fn question(self) -> anyhow::Result<(Ask, Caller)> {
        self.0.set_nonblocking(false)?;
        self.0.set_read_timeout(Some(PATIENCE))?;
        self.0.set_write_timeout(Some(PATIENCE))?;
        let mut line = Vec::new();
        BufReader::new(&self.0).take(BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        Ok((serde_json::from_slice(&line)?, self))
    }

    /// Answers. Whoever no longer listens does not matter to the lab.
    pub fn answer(mut self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) {
        let Ok(mut bytes) = serde_json::to_vec(answer) else { return };
        bytes.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let sent = rustix::net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
        if let Ok(sent) = sent {
            let _ = self.0.write_all(&bytes[sent..]);
        }
    }
}

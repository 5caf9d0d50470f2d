//! The control socket: a socket of this process in `LONGHAUL_HOME`.
//!
//! For: `longhaul job`, run by the same user (or root) on the same host.
//! In and out: a line of JSON in, a line of JSON out; then the connection is over.
//! Invariants: who can reach the socket is who can enter the home's folder `run`, which is 0700: nobody else; a client that says too much, or
//! nothing for a second, is let go; what a killed process left behind is swept by whoever looks next.
//! Absent on purpose: what is asked.
//!
//! ```text
//! $LONGHAUL_HOME/run/BOOT/NAME.sock     BOOT: first digits of the boot id (a home may be shared by hosts); NAME: random
//! ```

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Answer, Question, Registry, hex};
use crate::identity::Home;
use text::exit::Exit;

/// Neither side waits longer for the other's line to go on.
const PATIENCE: Duration = Duration::from_secs(1);
/// A client waits so long for the answer: longer than the registry does for the job's.
const ANSWER: Duration = Duration::from_secs(5);
/// A question is some hundred bytes.
const QUESTION_BYTES_MAX: usize = 4 << 10;
/// A list of jobs may be long: a daemon has hundreds.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// sun_path of `sockaddr_un` (unix(7)) has 108 bytes; a longer path is gone to by its folder's descriptor.
const PATH_BYTES_MAX: usize = 100;

/// Which machine this is, from one boot to the next (machine-id(5)).
const MACHINE: &str = "/etc/machine-id";
/// Whose boot a folder is of.
const OF_MACHINE: &str = "machine";

fn folder(home: &Home) -> io::Result<PathBuf> {
    let boot = sys::host::boot_id()?;
    Ok(home.path("run").join(boot.get(..8).unwrap_or("unknown")))
}

/// Begins to answer clients, from a thread of its own that ends when the registry is gone; gives the socket's path.
pub(super) fn listen(home: &Home, registry: &Arc<Registry>) -> io::Result<PathBuf> {
    let folder = folder(home)?;
    for folder in [home.path("run"), folder.clone()] {
        match DirBuilder::new().mode(0o700).create(&folder) {
            // Restored from somewhere, or made by hand: nobody else may ask.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
            }
            made => made?,
        }
    }
    let mut name = [0; 8];
    aws_lc_rs::rand::fill(&mut name).map_err(|_| io::Error::other("the system has no randomness"))?;
    // Named when it listens: who looks for sockets takes one that does not for a dead one's.
    let newborn = folder.join(format!("{}.new", hex(&name)));
    let path = newborn.with_extension("sock");
    let listener = at(&newborn, |path| UnixListener::bind(path))?;
    fs::rename(&newborn, &path)?;
    let registry = Arc::downgrade(registry);
    std::thread::Builder::new().name("registry".into()).spawn(move || {
        for client in listener.incoming() {
            match client {
                // One that goes away meanwhile has its answer elsewhere.
                Ok(client) => match Weak::upgrade(&registry) {
                    Some(registry) => drop(serve(client, &registry)),
                    None => return,
                },
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                // No descriptors, no memory: the job itself needs them more.
                Err(_) => std::thread::sleep(PATIENCE),
            }
        }
    })?;
    Ok(path)
}

/// Takes away what dead processes left: sockets at which nobody answers, and all of earlier boots of this machine. `is_old`: too old to be just
/// beginning to listen.
pub fn sweep(home: &Home, is_old: impl Fn(&fs::Metadata) -> bool) {
    let Ok(folder) = folder(home) else { return };
    let names = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().collect::<Vec<_>>();
    for entry in names(&folder) {
        let path = entry.path();
        let is_socket = path.extension().is_some_and(|it| it == "sock" || it == "new");
        let is_dead = || {
            let answer = at(&path, |path| UnixStream::connect(path));
            answer.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        };
        if is_socket && entry.metadata().is_ok_and(|facts| is_old(&facts)) && is_dead() {
            let _ = fs::remove_file(&path);
        }
    }
    // A home may be shared by hosts: only what this one wrote its name into is its own.
    let Ok(machine) = fs::read(MACHINE) else { return };
    for entry in names(&home.path("run")) {
        let is_ours = fs::read(entry.path().join(OF_MACHINE)).is_ok_and(|it| it == machine);
        if entry.path() != folder && is_ours {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let _ = fs::write(folder.join(OF_MACHINE), machine);
}

/// Takes a socket of this process away. Its thread, which waits for clients, is woken to see whether its registry is gone.
pub(super) fn shut(path: &Path) {
    let _ = at(path, |path| UnixStream::connect(path));
    let _ = fs::remove_file(path);
}

/// A path that may be longer than a socket's address.
fn at<T>(path: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return act(path);
    }
    let (folder, name) = (path.parent().unwrap_or(path), path.file_name().unwrap_or_default());
    let folder = File::open(folder)?;
    act(&Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name))
}

fn serve(client: UnixStream, registry: &Registry) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    let until = Instant::now() + PATIENCE;
    let mut some = [0; 512];
    while !line.ends_with(b"\n") && line.len() < QUESTION_BYTES_MAX {
        let count = (&client).read(&mut some)?;
        line.extend_from_slice(&some[..count]);
        if count == 0 || Instant::now() > until {
            break;
        }
    }
    match serde_json::from_slice::<Question>(&line) {
        Ok(question) => registry.answer(question, |answer| send(&client, &answer)),
        Err(error) => send(
            &client,
            &Answer::Failed {
                code: Exit::Usage.code(),
                what: "read the question".to_owned(),
                cause: error.to_string(),
                next: "ask with a `longhaul` of the version that runs the job".to_owned(),
            },
        ),
    }
}

fn send(mut client: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_string(answer)?;
    text.push('\n');
    client.write_all(text.as_bytes())
}

/// Where running processes of this home can be asked, on this host.
///
/// # Errors
/// The folder cannot be read; none at all is an empty list.
pub fn control_sockets(home: &Home) -> io::Result<Vec<ControlSocket>> {
    let list = match fs::read_dir(folder(home)?) {
        Ok(list) => list,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut all = Vec::new();
    for entry in list {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "sock") {
            all.push(ControlSocket(path));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(all)
}

/// One process's socket.
#[derive(Debug, Clone, Default)]
pub struct ControlSocket(PathBuf);

impl ControlSocket {
    /// Asks; `None`: the process is gone, and what it left is swept.
    ///
    /// # Errors
    /// It cannot be reached, does not answer, or what it says cannot be read.
    pub fn ask(&self, question: &Question) -> io::Result<Option<Answer>> {
        let stream = match at(&self.0, |path| UnixStream::connect(path)) {
            Ok(stream) => stream,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let _ = fs::remove_file(&self.0);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut text = serde_json::to_string(question)?;
        text.push('\n');
        (&stream).write_all(text.as_bytes())?;
        let mut line = String::new();
        BufReader::new((&stream).take(ANSWER_BYTES_MAX)).read_line(&mut line)?;
        if line.is_empty() {
            // It ended between taking the connection and answering.
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// Its file, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_of_the_dead_and_of_earlier_boots_go_and_those_of_the_living_and_of_other_hosts_stay() {
        let scratch = std::env::temp_dir().join(format!("longhaul-sockets-{}", std::process::id()));
        let home = Home::at(&scratch).expect("a home");
        let (now, before, other) = (folder(&home).expect("a boot"), home.path("run/before"), home.path("run/other"));
        for folder in [&now, &before, &other] {
            fs::create_dir_all(folder).expect("made");
        }
        let living = UnixListener::bind(now.join("a.sock")).expect("bound");
        for name in ["b.sock", "c.new"] {
            drop(UnixListener::bind(now.join(name)).expect("bound"));
        }
        let is_known = fs::copy(MACHINE, before.join(OF_MACHINE)).is_ok();
        fs::write(other.join(OF_MACHINE), "another machine").expect("written");
        sweep(&home, |_| false);
        assert!(now.join("b.sock").exists() && now.join("c.new").exists(), "too young to be dead");
        sweep(&home, |_| true);
        assert!(now.join("a.sock").exists() && other.exists());
        assert!(!now.join("b.sock").exists() && !now.join("c.new").exists());
        assert_eq!(before.exists(), !is_known);
        drop(living);
        fs::remove_dir_all(scratch).expect("it is there");
    }

    #[test]
    fn a_registry_answers_over_its_socket_also_below_a_long_path_and_what_a_dead_one_left_is_swept() {
        let scratch =
            std::env::temp_dir().join(format!("longhaul-registry-{}-{}", std::process::id(), "x".repeat(120)));
        let _ = fs::remove_dir_all(&scratch);
        let home = Home::at(&scratch).unwrap();
        let _board = Registry::open(&home, |why| panic!("{why}"));
        let [socket] = &control_sockets(&home).unwrap()[..] else { panic!("one socket") };
        assert_eq!(socket.ask(&Question::List {}).unwrap(), Some(Answer::Jobs { jobs: vec![] }));
        // Nonsense is refused in words, too much of it is cut off, and the next client is served.
        let stream = at(socket.path(), |path| UnixStream::connect(path)).unwrap();
        (&stream).write_all(b"hello\n").unwrap();
        let mut said = String::new();
        (&stream).read_to_string(&mut said).unwrap();
        assert!(said.contains("read the question"), "{said}");
        let stream = at(socket.path(), |path| UnixStream::connect(path)).unwrap();
        let _ = (&stream).write_all(&vec![b'x'; 1 << 20]);
        assert_eq!(socket.ask(&Question::List {}).unwrap(), Some(Answer::Jobs { jobs: vec![] }));
        // A socket that nobody holds any more.
        let dead = folder(&home).unwrap().join("00.sock");
        drop(at(&dead, |path| UnixListener::bind(path)).unwrap());
        assert!(dead.exists());
        let gone = control_sockets(&home).unwrap().into_iter().find(|it| it.path() == dead).unwrap();
        assert_eq!(gone.ask(&Question::List {}).unwrap(), None);
        assert!(!dead.exists());
        fs::remove_dir_all(scratch).unwrap();
    }
}

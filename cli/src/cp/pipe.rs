//! `-`: a pipe as source or destination.
//!
//! For: `longhaul cp - host:path` and `longhaul cp host:path -`.
//! In and out: standard input to its end → a file in a spool, copied as any other; a file copied into a spool and verified → standard output.
//! Invariants: memory is one buffer, whatever the length; nothing stands at the destination before the pipe has ended well, and not a byte
//! goes into a pipe before the whole file was verified; the spool goes with the process, also when a signal ends it.
//! Absent on purpose: sending while the pipe is read: an entry is announced with its length, which is what makes resume, placing and the
//! digest's tree possible (`docs/design/009-choice-pipes-clones.md`); resuming a pipe: what was read from it is gone.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use proto::manifest::Aspects;
use proto::wire::control::{Compare, Durability};

use node::client::unnamed;
use node::identity::Home;
use node::request::JobRequest;
use text::exit::{Exit, Failure};

/// How a pipe is named on the command line.
pub const DASH: &str = "-";
/// What a stream is called where it has no other name.
const NAME: &str = "stream";
/// Spools that others left, at most, before it is an error: somebody else holds the names.
const SPOOLS_MAX: u32 = 64;
/// Read and written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// The spools of this process, for the thread that is told of signals.
static SPOOLS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn spools() -> MutexGuard<'static, Vec<PathBuf>> {
    SPOOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which end is a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pipe {
    /// Standard input is the source.
    In,
    /// Standard output is the destination.
    Out,
}

impl Pipe {
    /// Is one asked for?
    pub fn of(request: &JobRequest) -> Result<Option<Pipe>, Failure> {
        let is_in = request.sources.iter().any(|source| source == DASH);
        let is_out = request.destinations.iter().any(|destination| destination == DASH);
        let refuse = |cause: &str| {
            let failure = Exit::Usage.fail("copy through a pipe", cause);
            Err(failure.next("one end is `-`, the other names one file: COMMAND | longhaul cp - host:file, or longhaul cp host:file - | COMMAND"))
        };
        match (is_in, is_out) {
            (false, false) => return Ok(None),
            (true, true) => return refuse("both ends are one: that is what `cat` does"),
            _ if request.addresses().count() != 2 => {
                return refuse("one stream is one file: name one source and one destination");
            }
            _ if request.dry_run => return refuse("what a pipe will bring is only known when it was read"),
            _ if request.joined || request.stripe.is_some() => return refuse("a stream is no set of volumes"),
            _ if request.compare == Compare::Changed || request.names.is_some() => {
                return refuse("a stream is no folder");
            }
            _ => {}
        }
        if is_in && request.destinations.iter().any(|destination| destination.as_encoded_bytes().ends_with(b"/")) {
            return Err(unnamed());
        }
        if is_in && io::stdin().is_terminal() {
            return refuse("standard input is a terminal");
        }
        if is_out && io::stdout().is_terminal() {
            return refuse("standard output is a terminal");
        }
        Ok(Some(if is_in { Pipe::In } else { Pipe::Out }))
    }

    /// The request of the copy from or into the spool.
    #[must_use]
    pub fn request(self, given: &JobRequest, spool: &Spool) -> JobRequest {
        let mut request = given.clone();
        // A stream has no owner and no attributes, and must not bring those of the spool.
        request.aspects = Aspects::NONE;
        match self {
            Pipe::In => request.sources = vec![spool.path()],
            Pipe::Out => {
                request.destinations = vec![spool.path()];
                request.durability = Durability::Written; // it goes again at once
            }
        }
        request
    }
}

/// Where a stream waits; gone when dropped.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    /// Held while this process lives: what a killed one left is swept (job::sweep).
    _held: Option<File>,
}

impl Spool {
    /// A folder below TMPDIR that is this user's alone.
    pub fn new() -> Result<Spool, Failure> {
        Spool::below(&std::env::temp_dir())
    }

    /// A place for a key folder of one process: below TMPDIR or, where everything is mounted read-only, in shared memory.
    ///
    /// # Errors
    /// It cannot be made in either.
    pub fn of_keys() -> Result<Spool, Failure> {
        Spool::new().or_else(|failure| Spool::below(Path::new("/dev/shm")).map_err(|_| failure))
    }

    fn below(place: &Path) -> Result<Spool, Failure> {
        // A process that was killed leaves its spool, and its number comes again.
        let mut again = 0;
        let folder = loop {
            let folder = place.join(format!("longhaul-spool-{}-{again}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => break folder,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && again < SPOOLS_MAX => again += 1,
                Err(error) => return Err(failed(&folder, &error)),
            }
        };
        spools().push(folder.clone());
        let held = File::open(&folder).ok().filter(|open| node::job::sweep::hold(open).is_ok());
        Ok(Spool { folder, _held: held })
    }

    /// A key folder for a copy that needs none of the user's.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn home(&self) -> Result<Home, Failure> {
        Home::at(&self.folder.join("home")).map_err(Failure::from)
    }

    /// Where the receipt of a copy goes that nobody keeps.
    #[must_use]
    pub fn receipt(&self) -> PathBuf {
        self.folder.join("receipt")
    }

    fn path(&self) -> OsString {
        self.folder.join(NAME).into_os_string()
    }

    /// Reads a pipe to its end.
    pub fn fill(&self, pipe: &mut impl Read) -> Result<(), Failure> {
        let path = PathBuf::from(self.path());
        let mut file = File::create_new(&path).map_err(|error| failed(&path, &error))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => file.write_all(&buffer[..count]).map_err(|error| failed(&path, &error))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Exit::of_io(&error).fail("read the pipe (standard input)", error)),
            }
        }
    }

    /// Writes what was copied and verified into a pipe.
    pub fn pour(&self, pipe: &mut impl Write, source: &OsStr) -> Result<(), Failure> {
        let path = PathBuf::from(self.path());
        if !std::fs::symlink_metadata(&path).is_ok_and(|it| it.is_file()) {
            let cause = format!("'{}' is no file", source.to_string_lossy());
            let failure = Exit::Usage.fail("write into the pipe (standard output)", cause);
            return Err(failure.next("name a file as the source; a folder is copied to a path"));
        }
        let mut file = File::open(&path).map_err(|error| failed(&path, &error))?;
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(&path, &error)),
            };
            pipe.write_all(&buffer[..count]).map_err(|error| into_pipe(&error))?;
        }
        pipe.flush().map_err(|error| into_pipe(&error))
    }
}

fn into_pipe(error: &io::Error) -> Failure {
    let exit = if error.kind() == io::ErrorKind::BrokenPipe { Exit::Io } else { Exit::of_io(error) };
    exit.fail("write into the pipe (standard output)", error)
        .next("see why its reader ended, and run the same command again")
}

fn failed(path: &std::path::Path, error: &io::Error) -> Failure {
    let what = format!("keep the stream in '{}'", path.display());
    Exit::of_io(error).fail(what, error).next("name a folder with room for the whole stream in TMPDIR")
}

/// Removes the spools of this process, if it has any.
pub fn forget() {
    for folder in spools().drain(..) {
        // Nothing can be done about what cannot be removed; its name says whose it was.
        let _ = std::fs::remove_dir_all(folder);
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        spools().retain(|folder| *folder != self.folder);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails after some bytes, as a pipe over a dying disk does.
    struct Failing(usize);

    impl Read for Failing {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.0.min(into.len());
            self.0 -= count;
            if count == 0 { Err(io::Error::from_raw_os_error(5)) } else { Ok(count) }
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_error_of_the_pipe_is_named_and_the_spool_goes() {
        let spool = Spool::new().expect("a spool");
        let failure = spool.fill(&mut Failing(3 << 20)).expect_err("the pipe broke");
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Io, "read the pipe (standard input)"));
        std::fs::remove_file(spool.path()).expect("what was read so far");
        spool.fill(&mut &b"all of it"[..]).expect("it can be written");
        let mut out = Vec::new();
        spool.pour(&mut out, OsStr::new("src")).expect("it can be read");
        assert_eq!(out, b"all of it");
        let failure = spool.pour(&mut Broken, OsStr::new("src")).expect_err("nobody reads");
        assert_eq!((failure.exit, failure.what.as_str()), (Exit::Io, "write into the pipe (standard output)"));
        let folder = spool.folder.clone();
        drop(spool);
        assert!(!folder.exists());
    }
}

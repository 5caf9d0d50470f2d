//! Who we are and whom we let in.
//!
//! For: the folder of keys and lists (`Home`), this host's key, the keys of servers we trust, the keys we let in, tickets.
//! In and out: files of the home folder ↔ checked values; peers' keys → verdicts.
//! Invariants: a file that others may write, or a line that cannot be read, is an error that names it, never "no restriction";
//!   every write is whole or not at all (temporary file, flush, rename) and 0600.
//! Absent on purpose: sockets and TLS (link/), the words of the command line (key_command.rs), certificates and authorities.
//!
//! ```text
//! $LONGHAUL_HOME or ~/.config/longhaul   0700
//!   key              PKCS#8, PEM          0600   our Ed25519 secret
//!   key.pub          longhaul-ed25519 BASE64 comment
//!   trusted          host:port longhaul-ed25519 BASE64 [comment]
//!   authorized_keys  [options] longhaul-ed25519 BASE64 [comment]
//!   revoked          longhaul-ed25519 BASE64 [comment]
//! ```

pub mod authorized; // whom we let in, and to what
pub mod encoding; // keys and secrets as text
pub mod keys; // our key, keys as text, fingerprints, signatures
pub mod ticket; // secrets that stand in for a line of authorized_keys
pub mod trust; // servers whose key we know

use std::error::Error;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use text::exit::{Exit, Failure};

pub use authorized::{Access, Rights};
pub use keys::{Identity, PublicKey};

/// What failed where no key folder can be.
const MAKE_FOLDER: &str = "make the key folder";
/// A list of keys longer than this is not one (64 MiB is half a million keys); protects the daemon's memory.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Why an identity file cannot be used; says which one.
#[derive(Debug)]
pub enum IdentityError {
    /// Neither `LONGHAUL_HOME` nor `HOME` is set.
    NoHome,
    /// The folder's path is not absolute.
    HomeRelative(PathBuf),
    /// A system call failed.
    Io {
        /// Verb.
        step: &'static str,
        /// File or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Others than the owner may read a secret or write a list.
    Loose {
        /// File or folder.
        path: PathBuf,
        /// What it has.
        mode: u32,
        /// What it may have at most, as chmod takes it.
        wanted: &'static str,
    },
    /// The file belongs to another user.
    Foreign {
        /// File or folder.
        path: PathBuf,
        /// Its user id.
        owner: u32,
    },
    /// The file is longer than any list of keys.
    TooLong(PathBuf),
    /// A line of a list cannot be read.
    Line {
        /// File.
        path: PathBuf,
        /// Counts from 1.
        line: usize,
        /// Why.
        fault: LineFault,
    },
    /// The secret key's file does not hold an Ed25519 key.
    BadKey(PathBuf),
    /// `key generate` without `--force` where a key exists.
    KeyExists(PathBuf),
    /// An address given by the user cannot be read.
    HostPort(String),
    /// A public key given by the user cannot be read.
    KeyText(LineFault),
    /// The library for keys failed; in practice: no randomness.
    NoRandom,
}

impl IdentityError {
    /// What the process ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            IdentityError::Io { source, .. } => Exit::of_io(source),
            IdentityError::NoRandom => Exit::Io,
            _ => Exit::Usage,
        }
    }

    /// Fits after "failed to".
    fn what(&self) -> String {
        let read = |path: &Path| format!("read {}", path.display());
        match self {
            IdentityError::NoHome => "find the key folder".to_owned(),
            IdentityError::HomeRelative(path) => format!("use the key folder {}", path.display()),
            IdentityError::Io { step, path, .. } => format!("{step} {}", path.display()),
            IdentityError::Loose { path, .. } | IdentityError::Foreign { path, .. } => {
                format!("use {}", path.display())
            }
            IdentityError::TooLong(path) | IdentityError::BadKey(path) => read(path),
            IdentityError::Line { path, line, .. } => format!("{}:{line}", read(path)),
            IdentityError::KeyExists(_) | IdentityError::NoRandom => "make a key".to_owned(),
            IdentityError::HostPort(text) => format!("read the address {text}"),
            IdentityError::KeyText(_) => "read the key".to_owned(),
        }
    }

    /// Why; `None` where the system's word says it, which is the source.
    fn cause(&self) -> Option<String> {
        Some(match self {
            IdentityError::Io { .. } => return None,
            IdentityError::NoHome => "LONGHAUL_HOME is not set, and this user has no home folder".to_owned(),
            IdentityError::HomeRelative(_) => "the path is not absolute".to_owned(),
            IdentityError::Loose { mode, .. } => format!("its mode {mode:04o} lets others in"),
            IdentityError::Foreign { owner, .. } => format!("it belongs to user {owner}, neither to us nor to root"),
            IdentityError::TooLong(_) => format!("it is longer than {LIST_BYTES_MAX} bytes"),
            IdentityError::Line { fault, .. } | IdentityError::KeyText(fault) => fault.to_string(),
            IdentityError::BadKey(_) => "it holds no Ed25519 private key in PKCS#8".to_owned(),
            IdentityError::KeyExists(path) => format!("{} is there already", path.display()),
            IdentityError::HostPort(_) => "it is not host:port, nor [v6]:port".to_owned(),
            IdentityError::NoRandom => "the system gives no randomness".to_owned(),
        })
    }

    fn next_step(&self) -> String {
        let file = |path: &Path| path.display().to_string();
        match self {
            IdentityError::NoHome | IdentityError::HomeRelative(_) => {
                "set LONGHAUL_HOME to an absolute path".to_owned()
            }
            IdentityError::Io { step: MAKE_FOLDER, .. } => {
                "set LONGHAUL_HOME to a folder that this user may make and write; a copy by ticket needs none"
                    .to_owned()
            }
            IdentityError::Io { path, .. } => {
                format!("look at the folder's and the file's owner and mode: ls -la {}", file(path))
            }
            IdentityError::Loose { path, wanted, .. } => format!("run: chmod {wanted} {}", file(path)),
            IdentityError::Foreign { path, .. } => format!("give {} to the user who runs longhaul", file(path)),
            IdentityError::TooLong(path) => format!("look what {} is; it is no list of keys", file(path)),
            IdentityError::Line { path, line, .. } => {
                format!("correct or remove line {line} of {}; until then nobody passes by it", file(path))
            }
            IdentityError::BadKey(_) => {
                "restore the file, or make a new key with: longhaul key generate --force (peers must learn it)"
                    .to_owned()
            }
            IdentityError::KeyExists(_) => {
                "use the key that is there, or replace it with: longhaul key generate --force (peers must learn it)"
                    .to_owned()
            }
            IdentityError::HostPort(_) => "write it as in longhaul://HOST:PORT/".to_owned(),
            IdentityError::KeyText(_) => "copy the whole line that `longhaul key show` prints there".to_owned(),
            IdentityError::NoRandom => "check that /dev/urandom and getrandom work here".to_owned(),
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "failed to {}", self.what())?;
        self.cause().map_or(Ok(()), |cause| write!(out, ": {cause}"))
    }
}

impl Error for IdentityError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            IdentityError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<IdentityError> for Failure {
    fn from(error: IdentityError) -> Failure {
        Failure::from(&error)
    }
}

impl From<&IdentityError> for Failure {
    fn from(error: &IdentityError) -> Failure {
        let cause = error.cause().or_else(|| error.source().map(ToString::to_string)).unwrap_or_default();
        error.exit().fail(error.what(), cause).next(error.next_step())
    }
}

/// Why one line cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// Not text.
    #[error("not UTF-8")]
    NotText,
    /// No `longhaul-ed25519` where it must stand.
    #[error("the word longhaul-ed25519 is missing where the key should begin")]
    NoKeyType,
    /// The key is not 32 bytes of base64.
    #[error("the key is not base64 of 32 bytes")]
    BadKey,
    /// An Ed25519 key that no one can own alone.
    #[error("the key is no usable Ed25519 key")]
    WeakKey,
    /// `host:port` cannot be read.
    #[error("the line does not begin with host:port")]
    BadHostPort,
    /// An option that does not exist.
    #[error("unknown option; there are root=\"PATH\", ro, wo, rate=10Gbit")]
    UnknownOption,
    /// An option twice, or `ro` and `wo` together.
    #[error("an option stands twice, or ro and wo together")]
    OptionTwice,
    /// `root=` without an absolute path in quotes.
    #[error("root= wants an absolute path in double quotes, without `..`")]
    BadRoot,
    /// `rate=` without a rate.
    #[error("rate= wants a rate such as 10Gbit")]
    BadRate,
    /// A quote that is not closed, or something after it.
    #[error("a double quote is not closed, or something stands behind it")]
    BadQuote,
    /// The same key stands in an earlier line.
    #[error("the key stands in an earlier line already; which one counts would be a guess")]
    KeyTwice,
}

/// The folder of keys and lists.
#[derive(Debug, Clone)]
pub struct Home {
    folder: PathBuf,
}

impl Home {
    /// The key folder of this environment, made when it is missing: `$LONGHAUL_HOME`; in a unit of systemd with a state folder `longhaul` below
    /// `$STATE_DIRECTORY`, or that itself if it has this name; `$XDG_CONFIG_HOME/longhaul`; `~/.config/longhaul`; `$XDG_STATE_HOME/longhaul`.
    /// A home folder `/` is that of a user who has none, and is not written to.
    ///
    /// # Errors
    /// No such variable, no permission, or a folder that others may write.
    pub fn find() -> Result<Home, IdentityError> {
        Home::at(&place(set).ok_or(IdentityError::NoHome)?)
    }

    /// As `find`, for a process that has become a user of this home folder: its `HOME` is still that of the user who started it.
    ///
    /// # Errors
    /// Those of `find`.
    pub fn find_of(user_home: &Path) -> Result<Home, IdentityError> {
        Home::at(&set("LONGHAUL_HOME").unwrap_or_else(|| user_home.join(".config/longhaul")))
    }

    /// The same for work that needs no keys: `None` where there is no place for a key folder. What is wrong with one that is there is an error all
    /// the same.
    ///
    /// # Errors
    /// A folder that is there and that others may write, or a path that is not absolute.
    pub fn find_if_any() -> Result<Option<Home>, IdentityError> {
        match Home::find() {
            Err(IdentityError::NoHome | IdentityError::Io { step: MAKE_FOLDER, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// May this process write there? A folder may be of a file system that is mounted read-only.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        rustix::fs::access(&self.folder, rustix::fs::Access::WRITE_OK).is_ok()
    }

    /// Does this host's key stand there?
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.path(keys::FILE).exists()
    }

    /// A given folder, made (0700) when it is missing.
    ///
    /// # Errors
    /// No permission, or a folder that others may write.
    pub fn at(folder: &Path) -> Result<Home, IdentityError> {
        if !folder.is_absolute() {
            return Err(IdentityError::HomeRelative(folder.to_owned()));
        }
        let io = |step, source| IdentityError::Io { step, path: folder.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|source| io(MAKE_FOLDER, source))?;
        let facts = fs::metadata(folder).map_err(|source| io("look at the key folder", source))?;
        check_owner(folder, &facts, 0o022, "go-w")?;
        Ok(Home { folder: folder.to_owned() })
    }

    /// Where a file of the home stands.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A list's text; a missing file is an empty list.
    fn list(&self, name: &str) -> Result<Vec<u8>, IdentityError> {
        Ok(self.read(name, 0o022, "go-w")?.unwrap_or_default())
    }

    /// A file's bytes, if it exists, belongs to us or root, and has none of the `barred` mode bits.
    fn read(&self, name: &str, barred: u32, wanted: &'static str) -> Result<Option<Vec<u8>>, IdentityError> {
        let path = self.path(name);
        let io = |step, source| IdentityError::Io { step, path: path.clone(), source };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io("open", error)),
        };
        // Looked at through the open file, so that what is checked is what is read.
        let facts = file.metadata().map_err(|source| io("look at", source))?;
        check_owner(&path, &facts, barred, wanted)?;
        if facts.len() > LIST_BYTES_MAX {
            return Err(IdentityError::TooLong(path));
        }
        let mut bytes = Vec::new();
        (&mut file).take(LIST_BYTES_MAX).read_to_end(&mut bytes).map_err(|source| io("read", source))?;
        Ok(Some(bytes))
    }

    /// Replaces a file whole or not at all. With `keep`, an existing file stays and the answer is `false`.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], keep: bool) -> Result<bool, IdentityError> {
        let path = self.path(name);
        let temporary = self.path(&format!(".{name}.{}.{:?}.tmp", std::process::id(), std::thread::current().id()));
        let io = |step, source| IdentityError::Io { step, path: path.clone(), source };
        // What a crashed run with the same number left behind.
        let _ = fs::remove_file(&temporary);
        let placed = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&temporary)
                .map_err(|source| io("make", source))?;
            file.write_all(bytes).map_err(|source| io("write", source))?;
            file.sync_all().map_err(|source| io("flush", source))?;
            if !keep {
                fs::rename(&temporary, &path).map_err(|source| io("replace", source))?;
                return Ok(true);
            }
            // A hard link refuses to replace, which a rename cannot be told to in portable words.
            match fs::hard_link(&temporary, &path) {
                Ok(()) => Ok(true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
                Err(error) => Err(io("make", error)),
            }
        })();
        if keep || placed.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        let placed = placed?;
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|source| io("flush the folder of", source))?;
        Ok(placed)
    }

    /// Reads a list, lets `edit` change its lines, writes it back; alone among all processes that do so.
    fn edit(&self, name: &str, edit: impl FnOnce(&mut Vec<String>)) -> Result<(), IdentityError> {
        let path = self.path(".lock");
        let io = |source| IdentityError::Io { step: "lock", path: path.clone(), source };
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(io)?;
        lock.lock().map_err(io)?;
        let text = String::from_utf8(self.list(name)?).map_err(|_| IdentityError::Line {
            path: self.path(name),
            line: 1,
            fault: LineFault::NotText,
        })?;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        edit(&mut lines);
        let mut text = lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        self.write(name, text.as_bytes(), false)?;
        Ok(())
    }
}

/// An environment variable that says a path.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where the key folder is, by these variables.
fn place(set: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    // By the XDG base directory specification and systemd.exec(5) paths that are not absolute are no paths.
    let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
    let state = set("STATE_DIRECTORY").and_then(|all| {
        let first = PathBuf::from(all.to_str()?.split(':').next()?);
        first.is_absolute().then(|| if first.ends_with("longhaul") { first } else { first.join("longhaul") })
    });
    set("LONGHAUL_HOME")
        .or(state)
        .or_else(|| Some(absolute("XDG_CONFIG_HOME")?.join("longhaul")))
        .or_else(|| Some(set("HOME").filter(|home| home != Path::new("/"))?.join(".config/longhaul")))
        .or_else(|| Some(absolute("XDG_STATE_HOME")?.join("longhaul")))
}

/// Refuses what belongs to a stranger or what strangers may change.
fn check_owner(path: &Path, facts: &fs::Metadata, barred: u32, wanted: &'static str) -> Result<(), IdentityError> {
    let owner = facts.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(IdentityError::Foreign { path: path.to_owned(), owner });
    }
    let mode = facts.permissions().mode() & 0o7777;
    if mode & barred != 0 {
        return Err(IdentityError::Loose { path: path.to_owned(), mode, wanted });
    }
    Ok(())
}

/// Hands each line that says something to `take`, with errors that name the line.
fn each_line<'text>(
    path: &Path,
    bytes: &'text [u8],
    mut take: impl FnMut(&'text str) -> Result<(), LineFault>,
) -> Result<(), IdentityError> {
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let mut one = || {
            let line = std::str::from_utf8(line).map_err(|_| LineFault::NotText)?.trim();
            if line.is_empty() || line.starts_with('#') { Ok(()) } else { take(line) }
        };
        one().map_err(|fault| IdentityError::Line { path: path.to_owned(), line: index + 1, fault })?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;

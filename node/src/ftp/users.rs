//! Who may log in by FTP, by name and password.
//!
//! For: clients that know no keys.
//! In and out: lines of a file of the home folder; a name and a password in, what they may do out.
//! Invariants: a password is nowhere but as PBKDF2-HMAC-SHA256 with a salt of its own; an unknown name costs the time of a wrong password.
//! Absent on purpose: accounts of the system, PAM.
//!
//! ```text
//! NAME <tab> rw|ro|wo[,root=DIR][,rate=bit/s][,clear][,from=NET;NET] <tab> rounds <tab> salt, hex <tab> hash, hex
//! ```

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use proto::ftp::session::Rights;

use super::Network;

/// The file of the home folder.
pub const FILE: &str = "ftp-users";
/// Rounds of a new password: what OWASP recommends for PBKDF2-HMAC-SHA256 (2023).
const ROUNDS: NonZeroU32 = NonZeroU32::new(600_000).expect("is not zero");
/// Rounds that are believed of a file, at most: a login must end.
const ROUNDS_MAX: u32 = 10_000_000;
const HASH_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
/// Passwords that held, remembered as keyed hashes so that a client with a connection for each file does not pay for each.
const HELD_MAX: usize = 1024;
/// Letters of a password that is made: none that look alike.
const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
const MADE_LETTERS: usize = 24;

const RIGHTS: [(&str, Rights); 3] = [
    ("rw", Rights { read: true, write: true }),
    ("ro", Rights { read: true, write: false }),
    ("wo", Rights { read: false, write: true }),
];

/// `NAME`, `NAME:ro` or `NAME:wo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// The user's name.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Asked, String> {
        let (name, word) = text.rsplit_once(':').unwrap_or((text, "rw"));
        let rights = RIGHTS.iter().find(|(it, _)| *it == word).map(|(_, rights)| *rights);
        let Some(rights) = rights else { return Err(format!("'{word}' is none of ro, wo and rw")) };
        if !is_name(name) {
            return Err(format!("'{name}' is no name of a user here: letters, digits and signs, at most 64"));
        }
        Ok(Asked { name: name.to_owned(), rights })
    }
}

/// Names that need no password (RFC 1635).
#[must_use]
pub fn is_anonymous(name: &str) -> bool {
    name.eq_ignore_ascii_case("anonymous") || name.eq_ignore_ascii_case("ftp")
}

/// Can a user have this name?
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fits = !name.is_empty() && name.len() <= 64 && name.bytes().all(|it| it.is_ascii_graphic() && it != b':');
    fits && !is_anonymous(name)
}

/// What a user is, beside a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// What USER says.
    pub name: String,
    /// What it may do.
    pub rights: Rights,
    /// Its folder: a path of the host beneath the server's root, or one that begins there; `None`: the root.
    pub root: Option<PathBuf>,
    /// How fast all its connections may be, each, bit/s.
    pub rate_bps: Option<u64>,
    /// It may speak in clear, from wherever it may come.
    pub clear: bool,
    /// The networks that it comes from; none: any.
    pub from: Vec<Network>,
}

impl User {
    /// One who may do all there is.
    #[must_use]
    pub fn new(name: &str, rights: Rights) -> User {
        User { name: name.to_owned(), rights, root: None, rate_bps: None, clear: false, from: Vec::new() }
    }

    /// Is this one of the addresses that it comes from?
    #[must_use]
    pub fn may_come_from(&self, address: IpAddr) -> bool {
        self.from.is_empty() || self.from.iter().any(|network| network.has(address))
    }

    /// Its options, as the file has them and `user list` prints them.
    #[must_use]
    pub fn options(&self) -> String {
        let mut out =
            RIGHTS.iter().find(|(_, rights)| *rights == self.rights).map_or("ro", |(word, _)| word).to_owned();
        if let Some(root) = &self.root {
            out += ",root=";
            for &byte in root.as_os_str().as_encoded_bytes() {
                let is_plain = byte.is_ascii_graphic() && !matches!(byte, b',' | b'%');
                let _ = if is_plain { write!(out, "{}", char::from(byte)) } else { write!(out, "%{byte:02x}") };
            }
        }
        if let Some(rate) = self.rate_bps {
            let _ = write!(out, ",rate={rate}");
        }
        if self.clear {
            out += ",clear";
        }
        for (at, network) in self.from.iter().enumerate() {
            let _ = write!(out, "{}{network}", if at == 0 { ",from=" } else { ";" });
        }
        out
    }

    /// A line's options. `None`: one of them is not known, so that nobody has more than was meant.
    fn parse(name: &str, options: &str) -> Option<User> {
        let mut words = options.split(',');
        let word = words.next()?;
        let (_, rights) = RIGHTS.iter().find(|(it, _)| *it == word)?;
        let mut user = User::new(name, *rights);
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("root", text) => user.root = Some(PathBuf::from(OsString::from_vec(unescaped(text)?))),
                ("rate", text) => user.rate_bps = Some(text.parse().ok()?),
                ("clear", "") => user.clear = true,
                ("from", text) => user.from = text.split(';').map(|it| it.parse().ok()).collect::<Option<_>>()?,
                _ => return None,
            }
        }
        is_name(name).then_some(user)
    }
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.split('%');
    let mut out = parts.next()?.as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(out)
}

/// A user and the password's hash.
#[derive(Debug, Clone)]
struct Entry {
    user: User,
    rounds: NonZeroU32,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

impl Entry {
    fn new(user: User, password: &[u8]) -> io::Result<Entry> {
        let (mut salt, mut hash) = (vec![0; SALT_BYTES], vec![0; HASH_BYTES]);
        fill(&mut salt)?;
        pbkdf2::derive(PBKDF2_HMAC_SHA256, ROUNDS, &salt, password, &mut hash);
        Ok(Entry { user, rounds: ROUNDS, salt, hash })
    }

    fn parse(line: &str) -> Option<Entry> {
        let mut words = line.split('\t');
        let user = User::parse(words.next()?, words.next()?)?;
        let rounds = words.next()?.parse().ok().filter(|&rounds| rounds <= ROUNDS_MAX).and_then(NonZeroU32::new)?;
        let (salt, hash) = (unhex(words.next()?)?, unhex(words.next()?)?);
        (hash.len() == HASH_BYTES).then_some(Entry { user, rounds, salt, hash })
    }
}

/// The users of a file, which is read at each login.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    key: [u8; 32],
    held: Mutex<HashSet<[u8; 32]>>,
}

impl Users {
    /// Those of this file, which is read anew at each login.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn at(path: &Path) -> io::Result<Users> {
        let mut key = [0; 32];
        fill(&mut key)?;
        Ok(Users { path: path.to_owned(), key, held: Mutex::default() })
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(text.lines().filter_map(Entry::parse).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// All of them.
    ///
    /// # Errors
    /// The file's.
    pub fn list(&self) -> io::Result<Vec<User>> {
        Ok(self.entries()?.into_iter().map(|entry| entry.user).collect())
    }

    /// Adds a user with a password that is made now, unless there is one of this name, whose rights are set then. Returns the password.
    ///
    /// # Errors
    /// The file's.
    pub fn add(&self, asked: &Asked) -> io::Result<Option<String>> {
        let mut all = self.entries()?;
        if let Some(entry) = all.iter_mut().find(|entry| entry.user.name == asked.name) {
            if entry.user.rights != asked.rights {
                entry.user.rights = asked.rights;
                self.write(&all)?;
            }
            return Ok(None);
        }
        let password = made_password()?;
        self.set(User::new(&asked.name, asked.rights), Some(password.as_bytes()))?;
        Ok(Some(password))
    }

    /// Adds a user, or gives one of this name other options and, if there is one, another password.
    ///
    /// # Errors
    /// The file's; InvalidInput: a new user without a password.
    pub fn set(&self, user: User, password: Option<&[u8]>) -> io::Result<()> {
        let mut all = self.entries()?;
        let old = all.iter().position(|entry| entry.user.name == user.name);
        match (old, password) {
            (None, None) => return Err(io::ErrorKind::InvalidInput.into()),
            (None, Some(password)) => all.push(Entry::new(user, password)?),
            (Some(at), None) => all[at].user = user,
            (Some(at), Some(password)) => all[at] = Entry::new(user, password)?,
        }
        self.write(&all)
    }

    /// Removes a user. False: there is none of this name.
    ///
    /// # Errors
    /// The file's.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let mut all = self.entries()?;
        let before = all.len();
        all.retain(|entry| entry.user.name != name);
        if all.len() < before {
            self.write(&all)?;
        }
        Ok(all.len() < before)
    }

    fn write(&self, entries: &[Entry]) -> io::Result<()> {
        let mut text = String::new();
        for Entry { user, rounds, salt, hash } in entries {
            let _ = writeln!(text, "{}\t{}\t{rounds}\t{}\t{}", user.name, user.options(), hex(salt), hex(hash));
        }
        let new = self.path.with_extension("new");
        let _ = std::fs::remove_file(&new);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)
    }

    /// May this one speak in clear although its network may not? It is told before a password is asked for: better that a name is known to have the option
    /// than that passwords of others go in clear.
    #[must_use]
    pub fn may_clear(&self, name: &[u8]) -> bool {
        let all = self.entries().unwrap_or_default();
        all.iter().any(|entry| entry.user.clear && entry.user.name.as_bytes() == name)
    }

    /// The user of this name and password. `None`: there is no such user, or the password is another; which of them, nobody is told.
    #[must_use]
    pub fn login(&self, name: &str, password: &[u8]) -> Option<User> {
        let all = self.entries().unwrap_or_default();
        let entry = all.iter().find(|entry| entry.user.name == name);
        let mut key = blake3::Hasher::new_keyed(&self.key);
        let (salt, hash) = entry.map_or((&[][..], &[][..]), |entry| (&entry.salt[..], &entry.hash[..]));
        for part in [name.as_bytes(), salt, hash, password] {
            key.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let key = *key.finalize().as_bytes();
        if let Some(entry) = entry.filter(|_| self.held().contains(&key)) {
            return Some(entry.user.clone());
        }
        let Some(entry) = entry else {
            // As long as a wrong password takes.
            let _ = pbkdf2::verify(PBKDF2_HMAC_SHA256, ROUNDS, &[0; SALT_BYTES], password, &[0; HASH_BYTES]);
            return None;
        };
        pbkdf2::verify(PBKDF2_HMAC_SHA256, entry.rounds, &entry.salt, password, &entry.hash).ok()?;
        let mut held = self.held();
        if held.len() >= HELD_MAX {
            held.clear();
        }
        held.insert(key);
        Some(entry.user.clone())
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashSet<[u8; 32]>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A password that nobody has to think of.
///
/// # Errors
/// The system has no randomness.
pub fn made_password() -> io::Result<String> {
    let mut random = [0; MADE_LETTERS];
    fill(&mut random)?;
    Ok(random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| io::Error::other("the system has no randomness"))
}

/// Hexadecimal, small letters.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A user's folder as a name beneath the door's: as it is, or as a path of the host that leads through the door's. `None`: it lies elsewhere.
pub(super) fn beneath<'a>(root: &'a Path, door: &Path) -> Option<&'a [u8]> {
    let below = if root.is_absolute() { root.strip_prefix(door).ok()? } else { root };
    Some(below.as_os_str().as_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_lets_its_user_in_and_nobody_else() {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-users-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let users = Users::at(&path).unwrap();
        assert!(users.list().unwrap().is_empty());
        let ada: Asked = "ada:ro".parse().unwrap();
        let password = users.add(&ada).unwrap().unwrap();
        assert_eq!(users.add(&ada).unwrap(), None, "made once");
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&password));
        let user = users.login("ada", password.as_bytes()).unwrap();
        assert!(user.rights.read && !user.rights.write);
        assert_eq!(users.login("ada", password.as_bytes()), Some(user), "remembered");
        assert_eq!(users.login("ada", b""), None);
        assert_eq!(users.login("bob", password.as_bytes()), None);
        // A user who is gone is not remembered.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(users.login("ada", password.as_bytes()), None);
        for bad in ["", "a:b:ro:", "anonymous", "a:xx", "a b"] {
            assert!(bad.parse::<Asked>().is_err(), "{bad}");
        }
    }
    #[test]
    fn options_of_users_are_kept_and_one_that_is_not_known_lets_nobody_in() {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-options-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let users = Users::at(&path).unwrap();
        let user = User {
            root: Some("in box/a,b%".into()),
            rate_bps: Some(1_000_000),
            clear: true,
            from: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            ..User::new("ada", Rights { read: false, write: true })
        };
        assert!(users.set(user.clone(), None).is_err(), "a new one has a password");
        users.set(user.clone(), Some(b"one")).unwrap();
        assert_eq!(users.login("ada", b"one"), Some(user.clone()));
        assert_eq!(users.list().unwrap(), std::slice::from_ref(&user));
        assert_eq!(user.options(), "wo,root=in%20box/a%2cb%25,rate=1000000,clear,from=10.0.0.0/8;fd00::/8");
        assert!(user.may_come_from("10.9.9.9".parse().unwrap()) && !user.may_come_from("11.0.0.1".parse().unwrap()));
        assert!(users.may_clear(b"ada") && !users.may_clear(b"bob"));
        users.set(User { clear: false, ..user.clone() }, Some(b"two")).unwrap();
        assert!(!users.may_clear(b"ada") && users.login("ada", b"one").is_none());
        assert!(users.login("ada", b"two").is_some());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("rate=", "speed=")).unwrap();
        assert!(users.login("ada", b"two").is_none());
        std::fs::write(&path, text).unwrap();
        assert!(users.remove("ada").unwrap() && !users.remove("ada").unwrap());
        assert!(users.login("ada", b"two").is_none());
        std::fs::remove_file(&path).unwrap();
    }
}

//! Who may log in by FTP, by name and password.
//!
//! For: clients that know no keys.
//! In and out: lines of a file of the home folder; a name and a password in, what they may do out.
//! Invariants: a password is nowhere but as PBKDF2-HMAC-SHA256 with a salt of its own; an unknown name costs the time of a wrong password.
//! Absent on purpose: accounts of the system, PAM.
//!
//! ```text
//! NAME <tab> rw|ro|wo <tab> rounds <tab> salt, hex <tab> hash, hex
//! ```

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA256};

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

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    /// Read files and list folders.
    pub read: bool,
    /// Change anything.
    pub write: bool,
}

impl Rights {
    const WORDS: [(&str, Rights); 3] = [
        ("rw", Rights { read: true, write: true }),
        ("ro", Rights { read: true, write: false }),
        ("wo", Rights { read: false, write: true }),
    ];

    fn word(self) -> &'static str {
        Rights::WORDS.iter().find(|(_, rights)| *rights == self).map_or("ro", |(word, _)| word)
    }
}

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
        let rights = Rights::WORDS.iter().find(|(it, _)| *it == word).map(|(_, rights)| *rights);
        let Some(rights) = rights else { return Err(format!("'{word}' is none of ro, wo and rw")) };
        let fits = !name.is_empty() && name.len() <= 64 && name.bytes().all(|it| it.is_ascii_graphic() && it != b':');
        if !fits || is_anonymous(name) {
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

#[derive(Debug, Clone)]
struct User {
    name: String,
    rights: Rights,
    rounds: NonZeroU32,
    salt: Vec<u8>,
    hash: Vec<u8>,
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

    fn list(&self) -> io::Result<Vec<User>> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => Ok(text.lines().filter_map(parse).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Is there any?
    ///
    /// # Errors
    /// The file's.
    pub fn is_empty(&self) -> io::Result<bool> {
        Ok(self.list()?.is_empty())
    }

    /// Adds a user with a password that is made now, unless there is one of this name, whose rights are set then. Returns the password.
    ///
    /// # Errors
    /// The file's.
    pub fn add(&self, asked: &Asked) -> io::Result<Option<String>> {
        let mut all = self.list()?;
        if let Some(user) = all.iter_mut().find(|user| user.name == asked.name) {
            if user.rights != asked.rights {
                user.rights = asked.rights;
                self.write(&all)?;
            }
            return Ok(None);
        }
        let mut random = [0; MADE_LETTERS];
        fill(&mut random)?;
        let password: String = random.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect();
        let mut salt = vec![0; SALT_BYTES];
        fill(&mut salt)?;
        let mut hash = vec![0; HASH_BYTES];
        pbkdf2::derive(PBKDF2_HMAC_SHA256, ROUNDS, &salt, password.as_bytes(), &mut hash);
        all.push(User { name: asked.name.clone(), rights: asked.rights, rounds: ROUNDS, salt, hash });
        self.write(&all)?;
        Ok(Some(password))
    }

    fn write(&self, users: &[User]) -> io::Result<()> {
        let mut text = String::new();
        for User { name, rights, rounds, salt, hash } in users {
            let _ = writeln!(text, "{name}\t{}\t{rounds}\t{}\t{}", rights.word(), hex(salt), hex(hash));
        }
        let new = self.path.with_extension("new");
        let _ = std::fs::remove_file(&new);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)
    }

    /// What the user of this name and password may do. `None`: there is no such user, or the password is another; which of them, nobody is told.
    #[must_use]
    pub fn login(&self, name: &str, password: &[u8]) -> Option<Rights> {
        let all = self.list().unwrap_or_default();
        let user = all.iter().find(|user| user.name == name);
        let mut key = blake3::Hasher::new_keyed(&self.key);
        let (salt, hash) = user.map_or((&[][..], &[][..]), |user| (&user.salt[..], &user.hash[..]));
        for part in [name.as_bytes(), salt, hash, password] {
            key.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        let key = *key.finalize().as_bytes();
        if let Some(user) = user.filter(|_| self.held().contains(&key)) {
            return Some(user.rights);
        }
        let Some(user) = user else {
            // As long as a wrong password takes.
            let _ = pbkdf2::verify(PBKDF2_HMAC_SHA256, ROUNDS, &[0; SALT_BYTES], password, &[0; HASH_BYTES]);
            return None;
        };
        pbkdf2::verify(PBKDF2_HMAC_SHA256, user.rounds, &user.salt, password, &user.hash).ok()?;
        let mut held = self.held();
        if held.len() >= HELD_MAX {
            held.clear();
        }
        held.insert(key);
        Some(user.rights)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashSet<[u8; 32]>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(line: &str) -> Option<User> {
    let mut words = line.split('\t');
    let asked = format!("{}:{}", words.next()?, words.next()?).parse::<Asked>().ok()?;
    let rounds = words.next()?.parse().ok().filter(|&rounds| rounds <= ROUNDS_MAX).and_then(NonZeroU32::new)?;
    let (salt, hash) = (unhex(words.next()?)?, unhex(words.next()?)?);
    (hash.len() == HASH_BYTES).then_some(User { name: asked.name, rights: asked.rights, rounds, salt, hash })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_lets_its_user_in_and_nobody_else() {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-users-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let users = Users::at(&path).unwrap();
        assert!(users.is_empty().unwrap());
        let ada: Asked = "ada:ro".parse().unwrap();
        let password = users.add(&ada).unwrap().unwrap();
        assert_eq!(users.add(&ada).unwrap(), None, "made once");
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&password));
        let rights = users.login("ada", password.as_bytes()).unwrap();
        assert!(rights.read && !rights.write);
        assert_eq!(users.login("ada", password.as_bytes()), Some(rights), "remembered");
        assert_eq!(users.login("ada", b""), None);
        assert_eq!(users.login("bob", password.as_bytes()), None);
        // A user who is gone is not remembered.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(users.login("ada", password.as_bytes()), None);
        for bad in ["", "a:b:ro:", "anonymous", "a:xx", "a b"] {
            assert!(bad.parse::<Asked>().is_err(), "{bad}");
        }
    }
}

//! As whom, and with which password.
//!
//! For: the login.
//! In and out: the address, `--password-file`, netrc → a name and a password.
//! Invariants: a password never stands in a message; a file that others may read is refused.
//! Absent on purpose: asking on a terminal, key stores.
//! Source: netrc as ftp(1) reads it: `machine NAME login NAME password TEXT`, `default` last.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use text::exit::{Exit, Failure};

use super::address::FtpAddress;
use crate::request::FtpTerms;

/// Files of passwords have no more bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// What servers want of whom has no name (RFC 1635).
const ANONYMOUS: (&[u8], &[u8]) = (b"anonymous", b"longhaul@");

/// A login.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// What USER says.
    pub user: Vec<u8>,
    /// What PASS says.
    pub password: Vec<u8>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    /// The login at this server.
    ///
    /// # Errors
    /// A file that cannot be read, that others may read, or that has no password.
    pub fn of(address: &FtpAddress, terms: &FtpTerms) -> Result<Login, Failure> {
        if let Some(path) = &terms.password_file {
            let user = address.user.clone().ok_or_else(|| {
                Exit::Usage
                    .fail("log in", "--password-file is of a user, and the address names none")
                    .next("write ftp://USER@HOST/path")
            })?;
            let text = read(path)?;
            let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
            let password = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
            return Ok(Login { user, password });
        }
        if let (Some(user), Some(password)) = (&address.user, &address.password) {
            return Ok(Login { user: user.clone(), password: password.clone() });
        }
        let from_netrc = match netrc_path().filter(|it| it.exists()) {
            Some(path) => netrc(&read(&path)?, &address.host, address.user.as_deref()),
            None => None,
        };
        match (from_netrc, &address.user) {
            (Some(login), _) => Ok(login),
            (None, None) => Ok(Login { user: ANONYMOUS.0.to_vec(), password: ANONYMOUS.1.to_vec() }),
            (None, Some(user)) if user == ANONYMOUS.0 || user == b"ftp" => {
                Ok(Login { user: user.clone(), password: ANONYMOUS.1.to_vec() })
            }
            (None, Some(user)) => Err(Exit::Usage
                .fail("log in", format!("nobody knows the password of '{}'", crate::report::show_path(user)))
                .next(
                    "write it into a file for --password-file, or into ~/.netrc: machine HOST login USER password TEXT",
                )),
        }
    }
}

fn netrc_path() -> Option<PathBuf> {
    let named = std::env::var_os("NETRC").map(PathBuf::from);
    named.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".netrc")))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let what = format!("read the password from '{}'", path.display());
    let failed = |error: std::io::Error| Exit::of_io(&error).fail(what.clone(), error);
    let meta = std::fs::metadata(path).map_err(failed)?;
    if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
        return Err(Exit::Usage
            .fail(what, "others than its owner may read it")
            .next(format!("chmod 600 {}", path.display())));
    }
    if meta.is_file() && meta.len() > FILE_BYTES_MAX {
        return Err(Exit::Usage.fail(what, "it has more than 1 MiB"));
    }
    std::fs::read(path).map_err(failed)
}

/// The first machine of this name, with this login if one is asked for.
fn netrc(text: &[u8], host: &str, user: Option<&[u8]>) -> Option<Login> {
    let mut words = text
        .split(|&byte| byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.starts_with(b"#"))
        .flat_map(|line| line.split(u8::is_ascii_whitespace))
        .filter(|word| !word.is_empty());
    let (mut is_it, mut login, mut password): (bool, Option<&[u8]>, Option<&[u8]>) = (false, None, None);
    let found = |is_it: bool, login: Option<&[u8]>, password: Option<&[u8]>| {
        let login = login.or(user).filter(|login| user.is_none_or(|user| user == *login))?;
        is_it.then(|| Some(Login { user: login.to_vec(), password: password?.to_vec() }))?
    };
    while let Some(word) = words.next() {
        match word {
            b"machine" | b"default" => {
                if let Some(found) = found(is_it, login, password) {
                    return Some(found);
                }
                (login, password) = (None, None);
                is_it = word == b"default" || words.next().is_some_and(|it| it.eq_ignore_ascii_case(host.as_bytes()));
            }
            b"login" => login = words.next(),
            b"password" => password = words.next(),
            b"account" | b"macdef" => drop(words.next()),
            _ => {}
        }
    }
    found(is_it, login, password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netrc_has_the_login_of_a_machine_or_the_default() {
        let text = b"# of mine\nmachine a login x password 1\nmachine b\n login y\n password 2\nmachine b login z password 3\ndefault login d password 4\n";
        let of = |host: &str, user: Option<&str>| {
            netrc(text, host, user.map(str::as_bytes))
                .map(|it| String::from_utf8([it.user, it.password].concat()).unwrap())
        };
        assert_eq!(of("a", None).as_deref(), Some("x1"));
        assert_eq!(of("B", None).as_deref(), Some("y2"));
        assert_eq!(of("b", Some("z")).as_deref(), Some("z3"));
        assert_eq!(of("c", None).as_deref(), Some("d4"));
        assert_eq!(of("a", Some("nobody")), None);
    }
}

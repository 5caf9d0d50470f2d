//! `ftp://` and `ftps://` as the user writes them.
//!
//! For: the ends of a copy.
//! In and out: bytes of an argument → host, port, name, password, path.
//! Invariants: paths and names are percent-decoded to bytes that a command can carry; what is printed has no password.
//! Absent on purpose: looking anything up.
//! Source: RFC 1738 section 3.2 (a path is relative to the folder of the login; `//` or `/%2F` begins an absolute one); ftps is implicit TLS (IANA: 990).

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use proto::ftp::client::login::Cover;
use proto::ftp::client::name::fits_a_command;
use text::exit::{Exit, Failure};

use crate::request::JobRequest;

/// Of IANA.
const PORT: u16 = 21;
const PORT_IMPLICIT: u16 = 990;

/// One end at a server.
#[derive(Clone, PartialEq, Eq)]
pub struct FtpAddress {
    /// TLS from the first byte on (`ftps://`).
    pub is_implicit: bool,
    /// As whom; `None`: by netrc, or anonymous.
    pub user: Option<Vec<u8>>,
    /// With which password.
    pub password: Option<Vec<u8>>,
    /// Name or address, without brackets.
    pub host: String,
    /// TCP.
    pub port: u16,
    /// Absolute if it begins with `/`, else below the folder of the login. May end in `/`.
    pub path: Vec<u8>,
}

/// Is any end of this request at a server of FTP?
#[must_use]
pub fn is_ftp(request: &JobRequest) -> bool {
    request.addresses().any(|text| scheme(text.as_bytes()).is_some())
}

/// Implicit or not, and what follows the scheme. `None`: another address.
fn scheme(text: &[u8]) -> Option<(bool, &[u8])> {
    let of = |scheme: &[u8]| {
        let head = text.get(..scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
    };
    of(b"ftp://").map(|rest| (false, rest)).or_else(|| of(b"ftps://").map(|rest| (true, rest)))
}

fn from_percent(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let bad = "a `%` wants two hexadecimal digits behind it; `%` itself is %25";
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == b'%' {
            let digits = text.get(at + 1..at + 3).and_then(|it| std::str::from_utf8(it).ok()).ok_or(bad)?;
            out.push(u8::from_str_radix(digits, 16).map_err(|_| bad)?);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    if fits_a_command(&out) { Ok(out) } else { Err("no name of FTP has a line end or a NUL byte") }
}

impl FtpAddress {
    /// Reads an argument. `None`: it is another address.
    ///
    /// # Errors
    /// A usage failure that names the address, without its password.
    pub fn of(text: &OsStr) -> Result<Option<FtpAddress>, Failure> {
        let Some((is_implicit, rest)) = scheme(text.as_bytes()) else { return Ok(None) };
        FtpAddress::parse(is_implicit, rest).map(Some).map_err(|why| {
            let tail = rest.iter().rposition(|&byte| byte == b'@').map_or(rest, |at| &rest[at + 1..]);
            let what = format!("read the address 'ftp://…{}'", String::from_utf8_lossy(tail));
            Exit::Usage
                .fail(what, why)
                .next("write ftp://[user@]host[:port]/path; ftps:// is TLS from the first byte on")
        })
    }

    fn parse(is_implicit: bool, rest: &[u8]) -> Result<FtpAddress, &'static str> {
        let slash = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (authority, path) = (&rest[..slash], rest.get(slash + 1..).unwrap_or_default());
        let (login, host_port) = match authority.iter().rposition(|&byte| byte == b'@') {
            Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
            None => (None, authority),
        };
        let (mut user, mut password) = (None, None);
        if let Some(login) = login {
            let colon = login.iter().position(|&byte| byte == b':');
            user = Some(from_percent(&login[..colon.unwrap_or(login.len())])?).filter(|it| !it.is_empty());
            password = colon.map(|at| from_percent(&login[at + 1..])).transpose()?;
        }
        let text = std::str::from_utf8(host_port).map_err(|_| "the host has letters that no host has")?;
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("the brackets must hold an IPv6 address, as in [2001:db8::1]")?,
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        if host.is_empty() || host.bytes().any(|byte| byte.is_ascii_control() || b" '\"\\".contains(&byte)) {
            return Err("the host is missing or has letters that no host has");
        }
        let default = if is_implicit { PORT_IMPLICIT } else { PORT };
        let port = match port {
            "" => default,
            port => port[1..].parse().ok().filter(|&it| it != 0).ok_or("the port is no number from 1 to 65535")?,
        };
        Ok(FtpAddress { is_implicit, user, password, host: host.to_owned(), port, path: from_percent(path)? })
    }

    /// How sessions with it are covered.
    #[must_use]
    pub fn cover(&self, allow_clear: bool) -> Cover {
        match (self.is_implicit, allow_clear) {
            (true, _) => Cover::Implicit,
            (false, true) => Cover::Clear,
            (false, false) => Cover::Explicit,
        }
    }

    /// `host:port`.
    #[must_use]
    pub fn host_port(&self) -> String {
        crate::address::spell(&self.host, self.port)
    }

    /// The same server, as the same user?
    #[must_use]
    pub fn is_same_server(&self, other: &FtpAddress) -> bool {
        (&self.host, self.port, &self.user, self.is_implicit)
            == (&other.host, other.port, &other.user, other.is_implicit)
    }
}

/// For people: without the password.
impl fmt::Display for FtpAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_implicit { "ftps" } else { "ftp" };
        let user = self.user.as_ref().map_or_else(String::new, |it| format!("{}@", crate::report::show_path(it)));
        let path = if self.path.is_empty() { String::new() } else { crate::report::show_path(&self.path) };
        write!(out, "{scheme}://{user}{}/{path}", self.host_port())
    }
}

impl fmt::Debug for FtpAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FtpAddress({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_to_the_byte_and_printed_without_a_password() {
        let of = |text: &str| FtpAddress::of(OsStr::new(text)).unwrap().unwrap();
        let it = of("ftp://ada:p%40s%3a@h.example/a%20b/%ff%25");
        assert_eq!((it.user.as_deref(), it.password.as_deref()), (Some(&b"ada"[..]), Some(&b"p@s:"[..])));
        assert_eq!((&it.path[..], it.port, it.is_implicit), (&b"a b/\xff%"[..], 21, false));
        assert!(!it.to_string().contains("p@s") && it.to_string().starts_with("ftp://ada@h.example:21/a b/"));
        assert_eq!(of("FTPS://[::1]//etc/x").path, b"/etc/x");
        assert_eq!(of("ftps://[::1]/%2Fetc").path, b"/etc");
        assert_eq!((of("ftps://h").port, of("ftp://h:2121").port), (990, 2121));
        assert_eq!(FtpAddress::of(OsStr::new("longhaul://h/x")), Ok(None));
        for bad in [
            "ftp:///x",
            "ftp://h:0/",
            "ftp://h:x/",
            "ftp://h/%",
            "ftp://h/a%0ab",
            "ftp://h/%00",
            "ftp://a%0d@h/",
            "ftp://[::1/x",
        ] {
            let failure = FtpAddress::of(OsStr::new(bad)).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{bad}");
        }
        let failure = FtpAddress::of(OsStr::new("ftp://ada:secret@h:x/")).unwrap_err();
        assert!(!failure.to_string().contains("secret"));
    }
}

//! Addresses as the user writes them.
//!
//! For: telling a local path, a host reached by ssh, and a daemon apart.
//! In and out: bytes of an argument → `Address`.
//! Invariants: an argument has one reading, the one scp gives it; paths are bytes, only a daemon's path is percent-decoded;
//!   what is printed never shows a ticket's secret.
//! Absent on purpose: resolving names, looking whether a path exists.
//!
//! ```text
//! path                                    local; also ./a:b and /a:b, for `/` comes before `:`
//! [user@]host:path                        ssh; [v6]:path for addresses with colons
//! longhaul://[ticket@]host[:port]/path    daemon; path is below its root
//!                 host[:port],host[:port] the same daemon at several addresses: the first to answer is used
//! ```

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::identity::ticket::{Ticket, TicketFault};
use text::exit::{Exit, Failure};

/// Where a daemon listens when the address does not say; the same as `serve`'s default.
pub const PORT_DEFAULT: u16 = 5740;
const SCHEME: &[u8] = b"longhaul://";
/// Addresses of one daemon that are tried.
pub const ADDRESSES_MAX: usize = 8;

/// One end of a copy.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A path of this host.
    Local(Vec<u8>),
    /// A path of a host that ssh reaches.
    Ssh {
        /// As whom; ssh's own choice if not given.
        user: Option<String>,
        /// Name or address, without brackets.
        host: String,
        /// Absolute, or relative to the home folder there; empty is that folder.
        path: Vec<u8>,
    },
    /// A path below the root of a daemon.
    Daemon {
        /// Lets in without a key.
        ticket: Option<Ticket>,
        /// Name or address, without brackets.
        host: String,
        /// TCP.
        port: u16,
        /// Other names or addresses of the same daemon, each with its port.
        others: Vec<(String, u16)>,
        /// What follows the slashes behind the host; may end in `/`. It begins with one only as `%2F`, or for the far side of a host that ssh
        /// reaches: such a path is absolute there, and below the root at any other daemon.
        path: Vec<u8>,
    },
}

/// Why an address cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Nothing at all.
    #[error("the address is empty")]
    Empty,
    /// A NUL byte, which no path can hold.
    #[error("the address has a NUL byte")]
    Nul,
    /// No host where one must stand.
    #[error("the host is missing or has letters that no host has; a local path with `:` is written ./like:this")]
    Host,
    /// No user before `@`.
    #[error("the user before `@` is missing or has letters that no user has")]
    User,
    /// No number from 1 to 65535.
    #[error("the port is no number from 1 to 65535")]
    Port,
    /// `[` without `]`, or something else than an address within.
    #[error("the brackets must hold an IPv6 address, as in [2001:db8::1]")]
    Brackets,
    /// More addresses of one daemon than anybody has.
    #[error("a daemon has at most {ADDRESSES_MAX} addresses here")]
    Addresses,
    /// `%` without two hexadecimal digits.
    #[error("a `%` in a longhaul:// path wants two hexadecimal digits behind it; `%` itself is %25")]
    Percent,
    /// Another scheme than `longhaul://`.
    #[error("the scheme is unknown; there is only longhaul://")]
    Scheme,
    /// `host::module`, as rsync has it for its daemon.
    #[error("host::module is an rsync daemon's, which longhaul does not speak with")]
    Module,
    /// The ticket.
    #[error("{0}")]
    Ticket(#[from] TicketFault),
}

impl AddressFault {
    /// What the user writes instead of `text`.
    fn next_step(self, text: &[u8]) -> &'static str {
        match self {
            AddressFault::Scheme => in_place_of(text),
            AddressFault::Module => {
                "through ssh name the folder itself, [user@]host:/folder; of a daemon (`longhaul serve`) longhaul://host/path"
            }
            AddressFault::Ticket(_) => "copy the whole line that `longhaul serve --ticket` printed there",
            AddressFault::Empty => "name a path; an empty variable in the command line leaves nothing",
            _ => "see `longhaul help addresses`",
        }
    }
}

/// `[user@]host::…`; a path with `::` has a `/` before them.
fn is_module(text: &[u8]) -> bool {
    let colons = text.windows(2).position(|two| two == b"::").filter(|&at| at > 0);
    // In brackets they are an IPv6 address's.
    colons.is_some_and(|at| !text[..at].iter().any(|byte| b"/:[".contains(byte)))
}

/// What stands for an address of a scheme that is not ours.
fn in_place_of(text: &[u8]) -> &'static str {
    let scheme = text.split(|&byte| byte == b':').next().unwrap_or_default().to_ascii_lowercase();
    match &scheme[..] {
        b"sftp" | b"ssh" | b"scp" | b"rsync" => "write it as [user@]host:path, which goes through ssh",
        b"http" | b"https" | b"ftp" | b"ftps" => {
            "use a program for that, with a pipe: curl URL | longhaul cp - DST, or longhaul cp SRC - | curl -T - URL"
        }
        b"s3" | b"gs" | b"gcs" | b"az" | b"swift" | b"b2" => {
            "object stores are not supported: use their own client, with a pipe: CLIENT | longhaul cp - DST, or longhaul cp SRC - | CLIENT"
        }
        b"file" => "write the path alone: /folder/file",
        _ => "write a path, [user@]host:path or longhaul://[ticket@]host[:port]/path (`longhaul help addresses`)",
    }
}

/// What may be a secret does not go on the screen again, whole or damaged.
fn without_ticket(text: &str) -> String {
    let head = text.get(..SCHEME.len()).filter(|head| head.as_bytes().eq_ignore_ascii_case(SCHEME));
    let authority = head.and_then(|head| text[head.len()..].split('/').next());
    match (head, authority.and_then(|it| it.rfind('@'))) {
        (Some(head), Some(at)) => format!("{head}***{}", &text[head.len() + at..]),
        _ => text.to_owned(),
    }
}

impl Address {
    /// Reads an address of a request.
    ///
    /// # Errors
    /// A usage failure that names the address.
    pub fn of(text: &OsStr) -> Result<Address, Failure> {
        Address::parse(text.as_bytes()).map_err(|fault| {
            let what = format!("read the address '{}'", without_ticket(&text.to_string_lossy()));
            Exit::Usage.fail(what, fault).next(fault.next_step(text.as_bytes()))
        })
    }

    /// Reads an argument.
    ///
    /// # Errors
    /// What looks like a host or a daemon, but is none.
    pub fn parse(text: &[u8]) -> Result<Address, AddressFault> {
        if text.is_empty() {
            return Err(AddressFault::Empty);
        }
        if text.contains(&0) {
            return Err(AddressFault::Nul);
        }
        if text.len() >= SCHEME.len() && text[..SCHEME.len()].eq_ignore_ascii_case(SCHEME) {
            return daemon(&text[SCHEME.len()..]);
        }
        if has_other_scheme(text) {
            return Err(AddressFault::Scheme);
        }
        if is_module(text) {
            return Err(AddressFault::Module);
        }
        ssh(text)
    }

    /// `host:port`, as `Link::connect` wants it; of a daemon with several addresses all of them, with commas between.
    #[must_use]
    pub fn host_port(&self) -> Option<String> {
        let all: Vec<String> = self.hosts().map(|(host, port)| spell(host, port)).collect();
        if all.is_empty() { None } else { Some(all.join(",")) }
    }

    /// The root of a daemon, without a ticket. `host`: without brackets.
    #[must_use]
    pub fn daemon(host: &str, port: u16) -> Address {
        Address::Daemon { ticket: None, host: host.to_owned(), port, others: Vec::new(), path: Vec::new() }
    }

    /// The addresses of a daemon, the first one first; of other ends none.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, u16)> {
        let (first, others) = match self {
            Address::Daemon { host, port, others, .. } => (Some((&**host, *port)), &others[..]),
            _ => (None, &[][..]),
        };
        first.into_iter().chain(others.iter().map(|(host, port)| (&**host, *port)))
    }

    /// The path alone.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self {
            Address::Local(path) | Address::Ssh { path, .. } | Address::Daemon { path, .. } => path,
        }
    }

    /// A daemon's address with its ticket, as another host can use it. What `Display` prints has no ticket.
    #[must_use]
    pub fn with_secret(&self) -> String {
        match self {
            Address::Daemon { ticket, path, .. } => {
                let ticket = ticket.as_ref().map_or_else(String::new, |ticket| format!("{ticket}@"));
                // The far side of an ssh host has absolute paths beside those below its home folder.
                let (slash, path) = path.strip_prefix(b"/").map_or(("", &path[..]), |rest| ("%2F", rest));
                format!("longhaul://{ticket}{}/{slash}{}", self.host_port().unwrap_or_default(), percent(path))
            }
            _ => self.to_string(),
        }
    }
}

/// `host:port`; an IPv6 address has its brackets.
#[must_use]
pub fn spell(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// For people: without a ticket, and safe to print whatever bytes the path has.
impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        match self {
            Address::Local(path) => write!(out, "{}", shown(path)),
            Address::Ssh { user: Some(user), host, path } => write!(out, "{user}@{}:{}", bracketed(host), shown(path)),
            Address::Ssh { user: None, host, path } => write!(out, "{}:{}", bracketed(host), shown(path)),
            Address::Daemon { path, .. } => {
                write!(out, "longhaul://{}/{}", self.host_port().unwrap_or_default(), percent(path))
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Address({self})")
    }
}

/// `http://…` and its kind are typos, not hosts with a path of two slashes.
fn has_other_scheme(text: &[u8]) -> bool {
    let letters =
        text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')).count();
    letters > 0 && text[letters..].starts_with(b"://")
}

/// `[user@]host:path`, or a local path.
fn ssh(text: &[u8]) -> Result<Address, AddressFault> {
    let local = || Ok(Address::Local(text.to_vec()));
    let slash = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
    let head = &text[..slash];
    // `user@[v6]:path` and `[v6]:path`; a bracket anywhere else is a letter of a file name.
    let (user, rest) = match head.iter().position(|&byte| byte == b'@') {
        Some(at) if head[at + 1..].contains(&b':') => (Some(&head[..at]), &text[at + 1..]),
        _ => (None, text),
    };
    let (host, path) = if rest.starts_with(b"[") {
        let Some(end) = rest.windows(2).position(|pair| pair == b"]:") else { return local() };
        (bracketed(&rest[1..end])?, &rest[end + 2..])
    } else {
        let colon =
            rest.iter().position(|&byte| byte == b':').filter(|&colon| colon < slash - (text.len() - rest.len()));
        let Some(colon) = colon else { return local() };
        (host_name(&rest[..colon])?, &rest[colon + 1..])
    };
    let user = user.map(user_name).transpose()?;
    Ok(Address::Ssh { user, host, path: path.to_vec() })
}

/// What follows `longhaul://`.
fn daemon(text: &[u8]) -> Result<Address, AddressFault> {
    let slash = text.iter().position(|&byte| byte == b'/').unwrap_or(text.len());
    let (authority, path) = (&text[..slash], text.get(slash + 1..).unwrap_or_default());
    let (ticket, host_port) = match authority.iter().rposition(|&byte| byte == b'@') {
        Some(at) => {
            let text = std::str::from_utf8(&authority[..at]).map_err(|_| TicketFault::Damaged)?;
            (Some(text.parse::<Ticket>()?), &authority[at + 1..])
        }
        None => (None, authority),
    };
    let mut all = Vec::new();
    for one in host_port.split(|&byte| byte == b',') {
        all.push(host_and_port(one)?);
    }
    if all.len() > ADDRESSES_MAX {
        return Err(AddressFault::Addresses);
    }
    let (host, port) = all.remove(0);
    // The path is below the root however many slashes it begins with; one that is spelled out makes it absolute.
    let begin = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    let path = from_percent(&path[begin..])?;
    Ok(Address::Daemon { ticket, host, port, others: all, path })
}

/// One address of a daemon: `host[:port]`.
///
/// # Errors
/// No host, no port, or no IPv6 address in brackets.
pub fn host_and_port(text: &[u8]) -> Result<(String, u16), AddressFault> {
    let (host, port) = if let Some(rest) = text.strip_prefix(b"[") {
        let end = rest.iter().position(|&byte| byte == b']').ok_or(AddressFault::Brackets)?;
        (bracketed(&rest[..end])?, &rest[end + 1..])
    } else {
        let colon = text.iter().position(|&byte| byte == b':').unwrap_or(text.len());
        (host_name(&text[..colon])?, &text[colon..])
    };
    let port = match port {
        [] => PORT_DEFAULT,
        [b':', digits @ ..] if digits.iter().all(u8::is_ascii_digit) => {
            let port = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            port.filter(|&port| port != 0).ok_or(AddressFault::Port)?
        }
        _ => return Err(AddressFault::Port),
    };
    Ok((host, port))
}

/// A name or an IPv4 address. It goes on ssh's command line, so it must not look like an option.
fn host_name(text: &[u8]) -> Result<String, AddressFault> {
    let good = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_') || *byte >= 0x80;
    let plain = !text.is_empty() && text[0] != b'-' && text.iter().all(good);
    if !plain {
        return Err(AddressFault::Host);
    }
    String::from_utf8(text.to_vec()).map_err(|_| AddressFault::Host)
}

/// An IPv6 address, perhaps with a zone (`fe80::1%eth0`).
fn bracketed(text: &[u8]) -> Result<String, AddressFault> {
    let text = std::str::from_utf8(text).map_err(|_| AddressFault::Brackets)?;
    let (address, zone) = text.split_once('%').map_or((text, None), |(address, zone)| (address, Some(zone)));
    let zone_good = |zone: &str| {
        !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if address.parse::<std::net::Ipv6Addr>().is_err() || !zone.is_none_or(zone_good) {
        return Err(AddressFault::Brackets);
    }
    Ok(text.to_owned())
}

fn user_name(text: &[u8]) -> Result<String, AddressFault> {
    let text = std::str::from_utf8(text).map_err(|_| AddressFault::User)?;
    let odd = |letter: char| letter.is_control() || letter.is_whitespace() || "\"'`$;&|<>()\\*?".contains(letter);
    if text.is_empty() || text.starts_with('-') || text.contains(odd) {
        Err(AddressFault::User)
    } else {
        Ok(text.to_owned())
    }
}

fn from_percent(text: &[u8]) -> Result<Vec<u8>, AddressFault> {
    let mut path = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        if byte == b'%' {
            let digit = |at: usize| {
                text.get(at).and_then(|&byte| char::from(byte).to_digit(16)).and_then(|digit| u8::try_from(digit).ok())
            };
            let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else { return Err(AddressFault::Percent) };
            path.push(high << 4 | low);
            at += 3;
        } else {
            path.push(byte);
            at += 1;
        }
    }
    if path.contains(&0) { Err(AddressFault::Nul) } else { Ok(path) }
}

/// The inverse, leaving what RFC 3986 calls unreserved, and slashes.
fn percent(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Bytes of a path without control letters, which could move a terminal's cursor.
fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// The path as that of a folder's content (`last` is `.`) or of a folder (nothing).
#[must_use]
pub fn folder_path(path: &OsStr, last: &[u8]) -> OsString {
    let mut path = path.as_bytes().to_vec();
    // `host:` is that host's home: a slash would make it its root.
    match path.last() {
        Some(b'/') => {}
        Some(b':') => path.extend_from_slice(b"./"),
        _ => path.push(b'/'),
    }
    path.extend_from_slice(last);
    OsString::from_vec(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_meant_with_and_without_a_slash() {
        for (given, source, destination) in [
            ("a", "a/.", "a/"),
            ("a/", "a/.", "a/"),
            (".", "./.", "./"),
            ("host:", "host:./.", "host:./"),
            ("host:x", "host:x/.", "host:x/"),
            ("longhaul://t@h:1/x", "longhaul://t@h:1/x/.", "longhaul://t@h:1/x/"),
        ] {
            assert_eq!(folder_path(OsStr::new(given), b"."), source);
            assert_eq!(folder_path(OsStr::new(given), b""), destination);
        }
    }

    fn ssh(user: Option<&str>, host: &str, path: &str) -> Result<Address, AddressFault> {
        Ok(Address::Ssh { user: user.map(str::to_owned), host: host.to_owned(), path: path.into() })
    }

    fn daemon(host: &str, port: u16, path: &[u8]) -> Result<Address, AddressFault> {
        Ok(Address::Daemon { ticket: None, host: host.to_owned(), port, others: Vec::new(), path: path.to_vec() })
    }

    #[test]
    fn a_colon_makes_a_host_only_before_the_first_slash() {
        for local in [
            "file",
            "/a:b",
            "./a:b",
            "../x",
            "dir/a:b",
            "a@b",
            "a@b/c:d",
            ".",
            "[x]",
            "[x]/y:z",
            "user@dir/x:y",
            "~/x",
            "@",
        ] {
            assert_eq!(Address::parse(local.as_bytes()), Ok(Address::Local(local.into())), "{local}");
        }
        assert_eq!(Address::parse(b"host:path"), ssh(None, "host", "path"));
        assert_eq!(Address::parse(b"host:"), ssh(None, "host", ""));
        assert_eq!(Address::parse(b"host:/a:b"), ssh(None, "host", "/a:b"));
        assert_eq!(Address::parse(b"me@10.0.0.2:/srv/x y"), ssh(Some("me"), "10.0.0.2", "/srv/x y"));
        assert_eq!(Address::parse(b"host:a@b"), ssh(None, "host", "a@b"));
        assert_eq!(Address::parse(b"[2001:db8::1]:x"), ssh(None, "2001:db8::1", "x"));
        assert_eq!(Address::parse(b"me@[fe80::1%eth0]:/x"), ssh(Some("me"), "fe80::1%eth0", "/x"));
        assert_eq!(Address::parse(b"host:\xff\xfe").unwrap().path(), b"\xff\xfe");
    }

    #[test]
    fn daemons_have_a_port_and_a_decoded_path() {
        assert_eq!(Address::parse(b"longhaul://host/"), daemon("host", 5740, b""));
        assert_eq!(Address::parse(b"longhaul://host"), daemon("host", 5740, b""));
        assert_eq!(Address::parse(b"LONGHAUL://host:99/a/b/"), daemon("host", 99, b"a/b/"));
        assert_eq!(Address::parse(b"longhaul://[2001:db8::1]:99//a"), daemon("2001:db8::1", 99, b"a"));
        assert_eq!(Address::parse(b"longhaul://[::1]"), daemon("::1", 5740, b""));
        assert_eq!(Address::parse(b"longhaul://h/a%20b%2F%ff@:?#"), daemon("h", 5740, b"a b/\xff@:?#"));
        let several = Address::parse(b"longhaul://a,[::1]:7,b:9/x,y").unwrap();
        assert_eq!(several.host_port().as_deref(), Some("a:5740,[::1]:7,b:9"));
        assert_eq!(several.path(), b"x,y");
        assert_eq!(Address::parse(b"longhaul://[::1]:7/x").unwrap().host_port().as_deref(), Some("[::1]:7"));
    }

    #[test]
    fn a_ticket_comes_and_goes_with_the_address_but_is_not_shown() {
        let ticket = Ticket { server_key: crate::identity::Identity::ephemeral().unwrap().public(), secret: [8; 16] };
        let text = format!("longhaul://{ticket}@host:5740/a%20b");
        let address = Address::parse(text.as_bytes()).unwrap();
        assert!(matches!(&address, Address::Daemon { ticket: Some(read), .. } if *read == ticket));
        assert_eq!(address.with_secret(), text);
        for shown in [address.to_string(), format!("{address:?}")] {
            assert!(
                !shown.contains(&ticket.to_string()[50..]) && shown.contains("longhaul://host:5740/a%20b"),
                "{shown}"
            );
        }
    }

    #[test]
    fn what_is_not_an_address_is_refused_with_the_reason() {
        use AddressFault as Fault;
        for (text, fault) in [
            (&b""[..], Fault::Empty),
            (b"a\0b", Fault::Nul),
            (b"host:a\0b", Fault::Nul),
            (b"longhaul://host/%00", Fault::Nul),
            (b":path", Fault::Host),
            (b"-oProxyCommand=x:path", Fault::Host),
            (b"a b:path", Fault::Host),
            (b"@host:path", Fault::User),
            (b"-l@host:path", Fault::User),
            (b"a b@host:path", Fault::User),
            (b"[::g]:x", Fault::Brackets),
            (b"longhaul://", Fault::Host),
            (b"longhaul:///x", Fault::Host),
            (b"longhaul://host:/x", Fault::Port),
            (b"longhaul://host:0/x", Fault::Port),
            (b"longhaul://host:65536/x", Fault::Port),
            (b"longhaul://host:+1/x", Fault::Port),
            (b"longhaul://[::1]x/x", Fault::Port),
            (b"longhaul://[::1/x", Fault::Brackets),
            (b"longhaul://::1/x", Fault::Host),
            (b"longhaul://host,/x", Fault::Host),
            (b"longhaul://,host/x", Fault::Host),
            (b"longhaul://a,b,c,d,e,f,g,h,i/x", Fault::Addresses),
            (b"longhaul://host/%2", Fault::Percent),
            (b"longhaul://host/%zz", Fault::Percent),
            (b"longhaul://AAAA@host/x", Fault::Ticket(TicketFault::Damaged)),
            (b"longhaul://@host/x", Fault::Ticket(TicketFault::Damaged)),
            (b"http://host/x", Fault::Scheme),
            (b"longhaul+tcp://host/x", Fault::Scheme),
        ] {
            assert_eq!(Address::parse(text), Err(fault), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn what_is_no_address_of_ours_is_answered_with_the_one_that_is() {
        for (text, next) in [
            ("sftp://h/x", "[user@]host:path"),
            ("S3://bucket/x", "object stores"),
            ("https://h/x", "curl URL |"),
            ("file:///x", "path alone"),
            ("gopher://h/x", "help addresses"),
            ("longhaul://h:0/x", "help addresses"),
            ("longhaul://AAAA@h/x", "longhaul serve --ticket"),
        ] {
            let failure = Address::of(OsStr::new(text)).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.next_step.contains(next), "{text}: {failure}");
            assert!(!failure.to_string().contains("AAAA"), "{failure}");
        }
    }

    #[test]
    fn what_is_shown_is_read_back_and_moves_no_cursor() {
        for text in [
            "longhaul://[::1]:7/a%20%FFb",
            "longhaul://host:5740/",
            "longhaul://a:1,[::1]:7,b:2/x",
            "me@[::1]:x y",
            "host:/a",
            "./a:b",
        ] {
            let address = Address::parse(text.as_bytes()).unwrap();
            assert_eq!(address.to_string(), text);
            assert_eq!(address.with_secret(), text);
        }
        assert_eq!(Address::parse(b"host:a\x1b[2Jb").unwrap().to_string(), "host:a?[2Jb");
    }

    #[test]
    fn an_absolute_path_of_a_far_side_survives_its_spelling() {
        let server_key = crate::identity::Identity::ephemeral().unwrap().public();
        let ticket = Some(Ticket { server_key, secret: [9; 16] });
        for path in [&b"/srv/x"[..], b"/", b"srv", b""] {
            let (host, path) = ("h".to_owned(), path.to_vec());
            let address = Address::Daemon { ticket: ticket.clone(), host, port: 7, others: Vec::new(), path };
            assert_eq!(Address::parse(address.with_secret().as_bytes()), Ok(address));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic_and_what_it_reads_is_written_back(text: Vec<u8>) {
            for text in [text.clone(), [b"longhaul://", &text[..]].concat(), [b"h:", &text[..]].concat()] {
                if let Ok(address @ Address::Daemon { .. }) = Address::parse(&text) {
                    assert_eq!(Address::parse(address.with_secret().as_bytes()), Ok(address));
                }
            }
        }

        #[test]
        fn any_path_of_a_daemon_survives_its_spelling(path: Vec<u8>) {
            let path: Vec<u8> = path.into_iter().filter(|&byte| byte != 0).skip_while(|&byte| byte == b'/').collect();
            let address = Address::Daemon { ticket: None, host: "h".to_owned(), port: 1, others: Vec::new(), path };
            assert_eq!(Address::parse(address.with_secret().as_bytes()), Ok(address));
        }
    }
}

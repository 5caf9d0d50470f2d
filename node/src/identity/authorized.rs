//! Whom we let in, and to what.
//!
//! For: the daemon, after a client has proved its key.
//! In and out: the files `authorized_keys` and `revoked` + a key → a verdict; new lines for both files.
//! Invariants: revoked wins over everything; one unreadable line makes the whole file an error, so a typo never widens a right;
//!   a key stands in one line only.
//! Absent on purpose: groups, patterns, commands; enforcing the rights (the session's matter).
//!
//! ```text
//! root="/srv/drop",wo,rate=10Gbit longhaul-ed25519 BASE64 alice@desk
//! ```

use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use super::keys::{KEY_TYPE, clean_comment, key_text, parse_key};
use super::{Home, IdentityError, LineFault, PublicKey, each_line};
use text::units;

/// Keys that are let in, below LONGHAUL_HOME.
pub const FILE: &str = "authorized_keys";
/// Keys that are refused, below LONGHAUL_HOME.
pub const REVOKED: &str = "revoked";

/// Which way bytes may go, seen from the daemon's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Both ways.
    #[default]
    ReadWrite,
    /// `ro`: the client may only fetch.
    ReadOnly,
    /// `wo`: the client may only bring.
    WriteOnly,
}

impl Access {
    /// May the client fetch?
    #[must_use]
    pub fn may_read(self) -> bool {
        self != Access::WriteOnly
    }

    /// May the client bring?
    #[must_use]
    pub fn may_write(self) -> bool {
        self != Access::ReadOnly
    }
}

/// What somebody may do here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights {
    /// Confined below this folder; `None`: below the daemon's own root.
    pub root: Option<PathBuf>,
    /// Which way.
    pub access: Access,
    /// At most so many bit/s; 0: as fast as it goes.
    pub rate_bps: u64,
    /// May set owners, setuid bits, capabilities, device nodes, if the daemon permits that to anybody.
    pub privileged: bool,
}

/// A key of a list, with the note behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotedKey {
    /// The public key by itself.
    pub key: PublicKey,
    /// What the list's owner wrote about it, without control characters.
    pub note: String,
}

/// What the files say about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Refuse, ticket or not.
    Revoked,
    /// A line of `authorized_keys`.
    Authorized(Rights),
    /// No line: only a ticket lets it in.
    Unknown,
}

/// Asks both files, fresh each time, so that a revocation counts from the next connection on.
///
/// # Errors
/// A file cannot be read, or one of its lines cannot: then nobody is let in.
pub fn judge(home: &Home, list: Option<&Path>, key: &PublicKey) -> Result<Verdict, IdentityError> {
    if revoked(home)?.contains(key) {
        return Ok(Verdict::Revoked);
    }
    let mut found = Verdict::Unknown;
    each_authorized(home, list, |authorized, rights, _| {
        if authorized == *key {
            found = Verdict::Authorized(rights);
        }
    })?;
    Ok(found)
}

/// All keys of `authorized_keys` with their rights; `list`: of another file, as a daemon's config file names it.
///
/// # Errors
/// The file cannot be read, or one of its lines cannot.
pub fn authorized_in(home: &Home, list: Option<&Path>) -> Result<Vec<(NotedKey, Rights)>, IdentityError> {
    let mut all = Vec::new();
    each_authorized(home, list, |key, rights, note| all.push((NotedKey { key, note: clean_comment(note) }, rights)))?;
    Ok(all)
}

/// Hands over each line; a list of half a million keys is read for each client, and nothing of it is kept.
fn each_authorized(
    home: &Home,
    list: Option<&Path>,
    mut take: impl FnMut(PublicKey, Rights, &str),
) -> Result<(), IdentityError> {
    let file = list.and_then(Path::to_str).unwrap_or(FILE);
    let mut seen = std::collections::HashSet::new();
    each_line(&home.path(file), &home.list(file)?, |line| {
        let (rights, key, note) = parse_noted(line)?;
        if !seen.insert(key) {
            return Err(LineFault::KeyTwice);
        }
        take(key, rights, note);
        Ok(())
    })
}

/// All keys of `authorized_keys` with their rights.
///
/// # Errors
/// The file cannot be read, or one of its lines cannot.
pub fn authorized(home: &Home) -> Result<Vec<(PublicKey, Rights)>, IdentityError> {
    Ok(authorized_in(home, None)?.into_iter().map(|(it, rights)| (it.key, rights)).collect())
}

/// All keys of `revoked`, with the notes behind them: why, when.
///
/// # Errors
/// The file cannot be read, or one of its lines cannot.
pub fn revoked_noted(home: &Home) -> Result<Vec<NotedKey>, IdentityError> {
    let mut keys = Vec::new();
    each_line(&home.path(REVOKED), &home.list(REVOKED)?, |line| {
        let (key, note) = parse_key(line)?;
        keys.push(NotedKey { key, note: clean_comment(note) });
        Ok(())
    })?;
    Ok(keys)
}

/// All keys of `revoked`.
///
/// # Errors
/// The file cannot be read, or one of its lines cannot.
pub fn revoked(home: &Home) -> Result<Vec<PublicKey>, IdentityError> {
    Ok(revoked_noted(home)?.into_iter().map(|it| it.key).collect())
}

/// Lets a key in; says whether an older line of the same key was replaced.
///
/// # Errors
/// The file cannot be read or written, one of its lines cannot be read, or the root has no spelling in it.
pub fn authorize(home: &Home, key: &PublicKey, rights: &Rights, comment: &str) -> Result<bool, IdentityError> {
    let line = spell(key, rights, comment).map_err(IdentityError::KeyText)?;
    // Never write below a line that makes the file unreadable.
    let replaced = authorized(home)?.iter().any(|(authorized, _)| authorized == key);
    home.edit(FILE, |lines| {
        lines.retain(|line| parse(line.trim()).map_or(true, |(_, other)| other != *key));
        lines.push(line);
    })?;
    Ok(replaced)
}

/// Refuses a key from now on; says whether it was news.
///
/// # Errors
/// The file cannot be read or written, or one of its lines cannot be read.
pub fn revoke(home: &Home, key: &PublicKey, comment: &str) -> Result<bool, IdentityError> {
    if revoked(home)?.contains(key) {
        return Ok(false);
    }
    let line = format!("{} {}", key_text(key), clean_comment(comment));
    home.edit(REVOKED, |lines| lines.push(line.trim_end().to_owned()))?;
    Ok(true)
}

/// A whole line → rights and key.
pub(super) fn parse(line: &str) -> Result<(Rights, PublicKey), LineFault> {
    parse_noted(line).map(|(rights, key, _)| (rights, key))
}

/// A whole line → rights, key and the note behind it.
fn parse_noted(line: &str) -> Result<(Rights, PublicKey, &str), LineFault> {
    let (options, rest) = if starts_with_key(line) { ("", line) } else { split_options(line)? };
    let rights = parse_options(options)?;
    let (key, note) = parse_key(rest)?;
    Ok((rights, key, note))
}

fn starts_with_key(line: &str) -> bool {
    line.strip_prefix(KEY_TYPE).is_some_and(|rest| rest.starts_with([' ', '\t']))
}

/// Cuts at the first blank outside of quotes.
fn split_options(line: &str) -> Result<(&str, &str), LineFault> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, letter) in line.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ' ' | '\t' if !quoted => return Ok((&line[..at], line[at..].trim_start())),
            _ => {}
        }
    }
    Err(if quoted { LineFault::BadQuote } else { LineFault::NoKeyType })
}

/// `root="PATH",ro,rate=10Gbit` → rights.
fn parse_options(mut text: &str) -> Result<Rights, LineFault> {
    let mut rights = Rights::default();
    let (mut access, mut rate, mut privileged) = (None, None, None);
    while !text.is_empty() {
        let rest = if let Some(value) = text.strip_prefix("root=") {
            let (root, rest) = unquote(value)?;
            if rights.root.replace(good_root(root)?).is_some() {
                return Err(LineFault::OptionTwice);
            }
            rest
        } else {
            let (option, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
            let twice = match (option, option.strip_prefix("rate=")) {
                (_, Some(value)) => {
                    let bps = units::parse_rate(value).ok().filter(|&bps| bps > 0).ok_or(LineFault::BadRate)?;
                    rate.replace(bps).is_some()
                }
                ("ro", _) => access.replace(Access::ReadOnly).is_some(),
                ("wo", _) => access.replace(Access::WriteOnly).is_some(),
                ("privileged", _) => privileged.replace(true).is_some(),
                _ => return Err(LineFault::UnknownOption),
            };
            if twice {
                return Err(LineFault::OptionTwice);
            }
            rest
        };
        text = match rest.strip_prefix(',') {
            // A comma with nothing behind it may be half an option.
            Some("") => return Err(LineFault::UnknownOption),
            Some(more) => more,
            None if rest.is_empty() => "",
            None => return Err(LineFault::BadQuote),
        };
    }
    rights.access = access.unwrap_or_default();
    rights.rate_bps = rate.unwrap_or(0);
    rights.privileged = privileged.unwrap_or(false);
    Ok(rights)
}

/// `"a \"b\" \\"rest` → `a "b" \` and rest.
fn unquote(text: &str) -> Result<(String, &str), LineFault> {
    let inner = text.strip_prefix('"').ok_or(LineFault::BadRoot)?;
    let mut value = String::new();
    let mut letters = inner.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &inner[at + 1..])),
            '\\' => match letters.next() {
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => return Err(LineFault::BadQuote),
            },
            plain => value.push(plain),
        }
    }
    Err(LineFault::BadQuote)
}

/// A root must say the same to everybody who reads it.
fn good_root(root: String) -> Result<PathBuf, LineFault> {
    let path = PathBuf::from(root);
    let plain = path.components().all(|component| matches!(component, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && plain { Ok(path) } else { Err(LineFault::BadRoot) }
}

/// Rights and key → a line that `parse` reads back to the same.
pub(super) fn spell(key: &PublicKey, rights: &Rights, comment: &str) -> Result<String, LineFault> {
    let mut options = Vec::new();
    if let Some(root) = &rights.root {
        options.push(format!("root=\"{}\"", quote(root)?));
    }
    match rights.access {
        Access::ReadWrite => {}
        Access::ReadOnly => options.push("ro".to_owned()),
        Access::WriteOnly => options.push("wo".to_owned()),
    }
    if rights.rate_bps > 0 {
        options.push(format!("rate={}bit", rights.rate_bps));
    }
    if rights.privileged {
        options.push("privileged".to_owned());
    }
    let mut line = options.join(",");
    if !line.is_empty() {
        line.push(' ');
    }
    let _ = write!(line, "{} {}", key_text(key), clean_comment(comment));
    let line = line.trim_end().to_owned();
    // What is written must mean what was asked for; checked by reading it.
    if parse(&line)? == (rights.clone(), *key) { Ok(line) } else { Err(LineFault::BadRoot) }
}

fn quote(root: &Path) -> Result<String, LineFault> {
    let text = root.to_str().filter(|text| !text.contains(char::is_control)).ok_or(LineFault::BadRoot)?;
    Ok(text.replace('\\', "\\\\").replace('"', "\\\""))
}

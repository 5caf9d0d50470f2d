//! Which paths a pattern stands for.
//!
//! For: the volumes of a set, on a command line (`cp --stripe`, `--join`) and of a benchmark.
//! In and out: words as bytes → paths, in their order.
//! Invariants: braces are those of the shell; a set that is expanded by the shell and one that is quoted mean the same; a pattern that stands for
//! nothing is an error, never a path.
//! Absent on purpose: which words are patterns (whoever read them decides), looking at volumes (job::endpoint), how a set is used (layout).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use proto::layout::VOLUMES_MAX;

use crate::address::Address;
use text::exit::{Exit, Failure};

/// Longest list of volumes that is worth expanding: one more than may be is enough to be refused.
fn count(volumes: usize) -> Result<(), Failure> {
    if volumes <= usize::from(VOLUMES_MAX) {
        return Ok(());
    }
    Err(Exit::Usage.fail("take the volumes as one set", format!("{volumes} were named, and {VOLUMES_MAX} is the most")))
}

/// Has this word a letter that a pattern has: a brace or a star?
#[must_use]
pub fn is_pattern(text: &OsStr) -> bool {
    text.as_bytes().iter().any(|byte| b"{*?".contains(byte))
}

/// All that these patterns stand for, in their order; what is no pattern stands for itself.
///
/// # Errors
/// More than 256 volumes, a pattern that stands for nothing, a `*` or `?` in the path of another host, a folder that cannot be read.
pub fn expand_all(patterns: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut all = Vec::new();
    for pattern in patterns {
        let mut out = Vec::new();
        braces(pattern.as_bytes(), &mut out);
        let limit = usize::from(VOLUMES_MAX) + 1;
        for path in out.into_iter().take(limit) {
            if path.iter().any(|byte| b"*?".contains(byte)) {
                all.extend(glob(&path)?);
            } else {
                all.push(OsString::from_vec(path));
            }
        }
    }
    count(all.len())?;
    Ok(all)
}

/// `{a,b}` and `{0..15}` as the shell has them; `{00..15}` counts in two digits. What is not of this form stays as it is.
fn braces(text: &[u8], out: &mut Vec<Vec<u8>>) {
    if out.len() > usize::from(VOLUMES_MAX) {
        return; // one more than may be is enough to be refused
    }
    let whole = text.iter().position(|&byte| byte == b'{').and_then(|open| {
        let close = open + text[open..].iter().position(|&byte| byte == b'}')?;
        Some((open, close, words(&text[open + 1..close])?))
    });
    let Some((open, close, words)) = whole else {
        out.push(text.to_vec());
        return;
    };
    for word in words {
        braces(&[&text[..open], &word[..], &text[close + 1..]].concat(), out);
    }
}

fn words(inner: &[u8]) -> Option<Vec<Vec<u8>>> {
    if inner.contains(&b',') {
        return Some(inner.split(|&byte| byte == b',').map(<[u8]>::to_vec).collect());
    }
    let (from, to) = std::str::from_utf8(inner).ok()?.split_once("..")?;
    let width = if from.starts_with('0') && from.len() > 1 { from.len() } else { 1 };
    let (from, to): (u32, u32) = (from.parse().ok()?, to.parse().ok()?);
    let most = u32::from(VOLUMES_MAX);
    let word = |number: u32| format!("{number:0width$}").into_bytes();
    Some(if from <= to {
        (from..=to.min(from.saturating_add(most))).map(word).collect()
    } else {
        (to..=from).rev().take(most as usize + 1).map(word).collect()
    })
}

/// Paths of this host that a pattern with `*` and `?` stands for, in the order of their names.
fn glob(pattern: &[u8]) -> Result<Vec<OsString>, Failure> {
    let shown = String::from_utf8_lossy(pattern).into_owned();
    let what = || format!("find the volumes '{shown}'");
    if !matches!(Address::of(OsStr::from_bytes(pattern))?, Address::Local(_)) {
        return Err(Exit::Usage
            .fail(what(), "`*` and `?` are looked up on this host alone")
            .next("name the volumes of another host with braces: host:'/data/{0..15}'"));
    }
    let mut found: Vec<Vec<u8>> = vec![if pattern[0] == b'/' { b"/".to_vec() } else { Vec::new() }];
    for name in pattern.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
        let mut next = Vec::new();
        for folder in found {
            let joined = |name: &[u8]| {
                let slash = !folder.is_empty() && !folder.ends_with(b"/");
                [&folder[..], if slash { b"/" } else { b"" }, name].concat()
            };
            if !name.iter().any(|byte| b"*?".contains(byte)) {
                next.push(joined(name));
                continue;
            }
            let here = if folder.is_empty() { b"." } else { &folder[..] };
            let Ok(list) = std::fs::read_dir(OsStr::from_bytes(here)) else { continue };
            let names = list.filter_map(|it| it.ok().map(|it| it.file_name().into_vec()));
            let mut names: Vec<_> = names.filter(|it| it[0] != b'.' && matches(name, it)).collect();
            // 2 before 10.
            names.sort_by(|a, b| a.len().cmp(&b.len()).then(a.cmp(b)));
            next.extend(names.iter().map(|name| joined(name)));
        }
        found = next;
    }
    let exists = |path: &Vec<u8>| std::fs::symlink_metadata(OsStr::from_bytes(path)).is_ok();
    let found: Vec<_> = found.into_iter().filter(exists).map(OsString::from_vec).collect();
    if found.is_empty() { Err(Exit::Vanished.fail(what(), "nothing stands there")) } else { Ok(found) }
}

/// Does a name fit: `*` stands for any letters, `?` for one?
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|skip| matches(rest, &name[skip..])),
        (Some((b'?', rest)), Some((_, name))) => matches(rest, name),
        (Some((one, rest)), Some((other, name))) => one == other && matches(rest, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Vec<String> {
        let mut out = Vec::new();
        braces(text.as_bytes(), &mut out);
        out.into_iter().map(|it| String::from_utf8(it).unwrap()).collect()
    }

    #[test]
    fn braces_are_those_of_the_shell() {
        assert_eq!(expanded("/data/{0..3}"), ["/data/0", "/data/1", "/data/2", "/data/3"]);
        assert_eq!(expanded("{3..1}"), ["3", "2", "1"]);
        assert_eq!(expanded("/d{08..11}/x"), ["/d08/x", "/d09/x", "/d10/x", "/d11/x"]);
        assert_eq!(expanded("{a,b}{0..1}"), ["a0", "a1", "b0", "b1"]);
        assert_eq!(expanded("/a{b}c"), ["/a{b}c"]);
        assert_eq!(expanded("/a{0..x}"), ["/a{0..x}"]);
        assert!(expanded("{0..4294967295}").len() <= 2 * usize::from(VOLUMES_MAX));
    }

    #[test]
    fn stars_match_any_letters() {
        for (pattern, name, fits) in [
            ("*", "x", true),
            ("disk*", "disk12", true),
            ("d?k", "dik", true),
            ("d?k", "dk", false),
            ("a*b*c", "aXbYc", true),
            ("a*b", "ac", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }
}

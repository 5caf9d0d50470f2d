//! Which entries of a tree a job leaves out, by rules in gitignore's syntax.
//!
//! For: `--exclude`, `--include`, `--exclude-from`, where the scan runs and where `sync --delete` looks for what is too much.
//! In and out: rules in their order, and a path below the source folder; whether it is left out.
//! Invariants: the last rule that matches decides; rules may come from a peer, so their number, length and nesting are bounded before they are
//! compiled, and the machine that matches them has a bounded size (10 MiB, of globset).
//! Absent on purpose: the syntax (the `ignore` crate's), files named `.gitignore` in the tree: they say what git leaves out, not what a copy may.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use proto::wire::control::{RULES_BYTES_MAX, RULES_MAX, TEXT_BYTES_MAX};

/// Braces within braces, at most: compiling walks them by recursion.
const NESTING_MAX: usize = 16;

/// A rule that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{cause}", if .rule.is_empty() { String::new() } else { format!("the rule '{}': ", .rule) })]
pub struct BadRule {
    /// As given; empty: it is their sum.
    pub rule: String,
    /// The reason.
    pub cause: String,
}

/// Compiled exclude and include rules; the last one that matches decides.
#[derive(Debug)]
pub struct Filter {
    rules: Gitignore,
}

impl Filter {
    /// Compiles rules.
    ///
    /// # Errors
    /// The first rule that is none, or too many of them.
    pub fn new(rules: &[Box<str>]) -> Result<Filter, BadRule> {
        let bad = |rule: &str, cause: String| BadRule { rule: rule.to_owned(), cause };
        let bytes: usize = rules.iter().map(|rule| rule.len()).sum();
        if rules.len() > RULES_MAX || bytes > RULES_BYTES_MAX {
            let cause = format!(
                "{} rules of {bytes} bytes are more than {RULES_MAX} of together {RULES_BYTES_MAX} bytes",
                rules.len()
            );
            return Err(bad("", cause));
        }
        let mut builder = GitignoreBuilder::new(".");
        for rule in rules {
            if rule.len() > TEXT_BYTES_MAX {
                return Err(bad(rule, format!("it is longer than {TEXT_BYTES_MAX} bytes")));
            }
            if rule.contains(['\0', '\n']) {
                return Err(bad(rule, "it has a NUL or a newline in it".into()));
            }
            if nesting(rule) > NESTING_MAX {
                return Err(bad(rule, format!("its braces are nested deeper than {NESTING_MAX}")));
            }
            builder.add_line(None, rule).map_err(|error| bad(rule, error.to_string()))?;
        }
        builder.build().map(|rules| Filter { rules }).map_err(|error| bad("", error.to_string()))
    }

    /// Is what stands at `path`, relative to the source folder, left out? Whoever asks has asked for the folders above before.
    #[must_use]
    pub fn leaves_out(&self, path: &[u8], is_folder: bool) -> bool {
        self.rules.matched(Path::new(OsStr::from_bytes(path)), is_folder).is_ignore()
    }
}

fn nesting(rule: &str) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for byte in rule.bytes() {
        match byte {
            b'{' => now += 1,
            b'}' => now = now.saturating_sub(1),
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(rules: &[&str]) -> Filter {
        Filter::new(&rules.iter().map(|&rule| rule.into()).collect::<Vec<_>>()).expect("rules")
    }

    #[test]
    fn the_last_rule_that_matches_decides_and_a_slash_anchors() {
        let it = filter(&["*.o", "!keep.o", "/build/", "doc/**/draft", "# words", "", "\\#odd"]);
        for (path, is_folder, left_out) in [
            (&b"a.o"[..], false, true),
            (b"deep/er/a.o", false, true),
            (b"keep.o", false, false),
            (b"deep/keep.o", false, false),
            (b"build", true, true),
            (b"build", false, false), // the rule ends in a slash: folders only
            (b"deep/build", true, false),
            (b"doc/a/b/draft", false, true),
            (b"other/draft", false, false),
            (b"words", false, false),
            (b"#odd", false, true),
            (b"not utf-8 \xFF.o", false, true),
        ] {
            let shown = String::from_utf8_lossy(path);
            assert_eq!(it.leaves_out(path, is_folder), left_out, "{shown}");
        }
    }

    #[test]
    fn what_a_peer_may_send_is_bounded_before_it_is_compiled() {
        let refused = |rules: Vec<String>| {
            let rules: Vec<Box<str>> = rules.into_iter().map(String::into_boxed_str).collect();
            Filter::new(&rules).expect_err("refused").to_string()
        };
        assert!(refused(vec!["x".into(); RULES_MAX + 1]).contains("1025 rules"));
        assert!(refused(vec!["y".repeat(RULES_BYTES_MAX + 1)]).contains("rules of 16385 bytes"));
        assert!(refused(vec!["{".repeat(4000) + &"}".repeat(96)]).contains("nested"));
        assert!(refused(vec!["[z-a]".into()]).contains("'[z-a]'"));
        assert!(refused(vec!["a\0b".into()]).contains("NUL"));
        // The worst that is let through compiles, and answers.
        let stars: Box<str> = "*?".repeat(TEXT_BYTES_MAX / 2).into();
        let it = Filter::new(&[stars.clone(), stars.clone(), stars]).expect("within the bounds");
        assert!(!it.leaves_out(&[b'a'; 1000], false), "fewer letters than question marks");
    }
}

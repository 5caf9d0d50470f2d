//! `longhaul help TOPIC`: what belongs to no single command.
//!
//! For: addresses, exit codes, and what users of rsync type, where the book is not at hand.
//! In and out: words of the command line → a page, if they ask for one.
//! Invariants: exit codes come from the table of `text`, options of others from `habits`, so that all say the same.
//! Absent on purpose: help of commands (clap), the book.

use std::ffi::OsString;
use std::fmt::Write as _;

use text::exit::TABLE;

use super::habits::HABITS;

/// Shown below the list of commands.
pub const TOPICS: &str = "\
Topics:
  longhaul help addresses    paths, hosts and daemons, and what a destination means
  longhaul help exit-codes   every exit code, and what to do about it
  longhaul help from-rsync   what users of rsync and scp type here";

const ADDRESSES: &str = "\
Addresses
  path, ./path                     on this host; a name with `:` is written ./like:this
  -                                standard input or output
  [user@]host:path                 on a host that ssh reaches; longhaul need not be there
  longhaul://TICKET@host:port/path a daemon, with the ticket it printed; port 5740 unless given
  longhaul://host:port/path        the same, by the keys of both hosts (`longhaul key`)
  longhaul://@host:port/path       the same; LONGHAUL_TICKET, --ticket-file or the terminal has the ticket
  …host:port,host:port/path        the same daemon at several addresses; the first to answer is used
A daemon's path begins at the folder that it serves (`serve --root`).
`longhaul ls ADDRESS` shows what is there.

Destinations
  A `/` at its end (also `.`, `..`, or several sources) makes it a folder that takes
  sources under their own names; without, it is the name of the copy. Folders that
  are missing above it are made. The table of all cases: longhaul help cp
";

const FROM_RSYNC: &str = "\
rsync -a SRC HOST:DST        longhaul cp SRC HOST:DST      trees, owners, times, attributes: all by default
rsync -a --delete SRC/ DST   longhaul sync --delete SRC DST
rsync -n                     longhaul cp -n                what would be copied
scp -r SRC HOST:DST          longhaul cp SRC HOST:DST
A `/` at the end of a source means nothing here; `SRC/.` is a folder's content.
A cut copy resumes by the same command. -a, -r and -P are accepted: they are the default.

Other options of rsync and scp:
";

/// Where the answers begin on the page of options.
const COLUMN: usize = 27;

/// The page that these words ask for: `longhaul help TOPIC`.
#[must_use]
pub fn page(words: &[OsString]) -> Option<String> {
    let [_, help, topic] = words else { return None };
    if help != "help" {
        return None;
    }
    match topic.to_str()? {
        "addresses" => Some(ADDRESSES.to_owned()),
        "exit-codes" => Some(exit_codes()),
        "from-rsync" => Some(from_rsync()),
        _ => None,
    }
}

fn exit_codes() -> String {
    let mut text = "Exit codes; `--json` has the word as \"exit_kind\"\n".to_owned();
    for line in TABLE {
        let _ = writeln!(text, "{:>4}  {:<13} {}", line.exit.code(), line.word, line.meaning);
        if line.exit.code() > 0 {
            let _ = writeln!(text, "{:20}next: {}", "", line.next_step);
        }
    }
    text
}

fn from_rsync() -> String {
    let mut text = FROM_RSYNC.to_owned();
    for (names, instead) in HABITS {
        let _ = writeln!(text, "  {:<COLUMN$}{instead}", some_of(names));
    }
    text
}

/// As many names of an option as its column has room for.
fn some_of(names: &[&str]) -> String {
    let mut text = String::new();
    for name in names {
        if text.len() + 1 + name.len() < COLUMN {
            text += if text.is_empty() { "" } else { " " };
            text += name;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_topic_that_is_named_has_a_page_and_no_command_is_hidden_by_one() {
        let asked = |words: &[&str]| page(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for topic in ["addresses", "exit-codes", "from-rsync"] {
            assert!(TOPICS.contains(&format!("longhaul help {topic} ")), "{topic}");
            assert!(asked(&["longhaul", "help", topic]).is_some_and(|page| page.lines().count() > 10), "{topic}");
        }
        assert!(asked(&["longhaul", "help", "cp"]).is_none() && asked(&["longhaul", "cp", "exit-codes"]).is_none());
        assert!(
            HABITS.iter().all(|(names, _)| (1..COLUMN).contains(&some_of(names).len())),
            "a blank stands before each answer"
        );
        let codes = exit_codes();
        assert!(TABLE.iter().all(|line| codes.contains(line.meaning)), "{codes}");
    }
}

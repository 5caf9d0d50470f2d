//! Where facts come from: this machine's /sys and /proc, or a record of another's.
//!
//! For: `host show` and its tests. In and out: a path without its first slash → its text, the names in it, or what it points to.
//! Invariants: whatever is read from this machine can be recorded and read again with the same result; a record is text of which each line
//! is `path = text` (a line's end as `\n`, a backslash twice), `path -> target`, or `path/ = names`.
//! Absent on purpose: meaning.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use sys::nic;

/// Programs that arrange what `host show` looks at.
pub const PROGRAMS: [&str; 5] = ["irqbalance", "tuned", "numad", "tlp", "thermald"];

/// Lines of a record.
pub type Lines = BTreeMap<String, String>;

/// A machine to look at.
#[derive(Debug)]
pub enum Tree {
    /// This one; what was read is remembered.
    Here(RefCell<Lines>),
    /// Another, as it was.
    Recorded(Lines),
}

impl Tree {
    /// This machine.
    #[must_use]
    pub fn here() -> Tree {
        Tree::Here(RefCell::default())
    }

    /// From a record. Errors: the number of a line that is none.
    pub fn parse(text: &str) -> Result<Tree, usize> {
        let mut lines = Lines::new();
        for (number, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let cut = line.split_once(" = ").or_else(|| line.strip_suffix(" =").map(|path| (path, "")));
            match (cut, line.split_once(" -> ")) {
                (Some((path, text)), _) => drop(lines.insert(path.to_owned(), plain(text))),
                (None, Some((path, target))) => drop(lines.insert(format!("{path} ->"), target.to_owned())),
                (None, None) => return Err(number + 1),
            }
        }
        Ok(Tree::Recorded(lines))
    }

    /// What was read so far, as a record.
    #[must_use]
    pub fn record(&self) -> String {
        let lines = match self {
            Tree::Here(lines) => lines.borrow().clone(),
            Tree::Recorded(lines) => lines.clone(),
        };
        lines.iter().fold(String::new(), |mut out, (path, text)| {
            let _ = match path.strip_suffix(" ->") {
                Some(path) => writeln!(out, "{path} -> {text}"),
                None => writeln!(out, "{path} = {}", text.replace('\\', "\\\\").replace('\n', "\\n")),
            };
            out
        })
    }

    /// What no file tells and a record holds all the same, under a name that is no path; `here`: how this machine tells it.
    #[must_use]
    pub fn other(&self, name: String, here: impl FnOnce() -> Option<String>) -> Option<String> {
        self.get(name, here)
    }

    fn get(&self, key: String, here: impl FnOnce() -> Option<String>) -> Option<String> {
        match self {
            Tree::Recorded(lines) => lines.get(&key).cloned(),
            Tree::Here(lines) => {
                let text = here()?;
                lines.borrow_mut().insert(key, text.clone());
                Some(text)
            }
        }
    }

    /// The text of a file, without blanks around it; `None`: it is not there, or may not be read.
    #[must_use]
    pub fn text(&self, path: &str) -> Option<String> {
        self.get(path.to_owned(), || {
            let bytes = std::fs::read(Path::new("/").join(path)).ok()?;
            Some(String::from_utf8_lossy(&bytes).trim().to_owned())
        })
    }

    /// A number in a file.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    /// Names in a folder, numbers in them in order.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let found = self.get(format!("{path}/"), || {
            let mut names: Vec<String> = std::fs::read_dir(Path::new("/").join(path))
                .ok()?
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .filter(|name| !name.contains([' ', '\n']))
                .collect();
            names.sort_by_key(|name| {
                (name.trim_end_matches(|letter: char| letter.is_ascii_digit()).to_owned(), name.len(), name.clone())
            });
            Some(names.join(" "))
        });
        found.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }

    /// The last name of what a link points to.
    #[must_use]
    pub fn target(&self, path: &str) -> Option<String> {
        self.get(format!("{path} ->"), || {
            let target = std::fs::read_link(Path::new("/").join(path)).ok()?;
            Some(target.file_name()?.to_str()?.to_owned())
        })
    }

    /// An answer of a NIC (`sys::nic`), word by word; `question` names it in records.
    #[must_use]
    pub fn ask_nic(&self, name: &str, question: (&str, u32)) -> Option<Vec<u32>> {
        let text = self.get(format!("ethtool/{name}/{}", question.0), || {
            let words = nic::ask(name, question.1).ok()?;
            Some(words[..24].iter().map(u32::to_string).collect::<Vec<_>>().join(" "))
        })?;
        text.split_whitespace().map(|word| word.parse().ok()).collect()
    }

    /// Which of the programs that arrange interrupts, clocks and memory are running. `None`: /proc does not tell.
    #[must_use]
    pub fn running(&self) -> Option<Vec<String>> {
        let text = self.get("running".to_owned(), || {
            let mut found: Vec<&str> = programs(&PROGRAMS)?.into_iter().map(|(name, _)| name).collect();
            found.sort_unstable();
            found.dedup();
            Some(found.join(" "))
        })?;
        Some(text.split_whitespace().map(str::to_owned).collect())
    }
}

/// Processes of these programs, by name and number. `None`: /proc does not tell.
#[must_use]
pub fn programs<'a>(names: &[&'a str]) -> Option<Vec<(&'a str, u32)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(comm) = std::fs::read_to_string(entry.path().join("comm")) else { continue };
        found.extend(names.iter().copied().filter(|&name| comm.trim() == name).map(|name| (name, pid)));
    }
    found.sort_unstable();
    Some(found)
}

/// The text of a record's line.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, if letter == '\\' { letters.next() } else { None }) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some(other)) => out.push(other),
            _ => out.push(letter),
        }
    }
    out
}

/// `0-3,8` → 0 1 2 3 8. What is no list is empty; at most 64 Ki numbers.
#[must_use]
pub fn list(text: &str) -> Vec<u32> {
    let mut out = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
            && last.saturating_sub(first) < 65_536
        {
            out.extend(first..=last);
        }
    }
    out
}

/// The shortest list of these numbers, which are in order.
#[must_use]
pub fn show_list(numbers: &[u32]) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut at = 0;
    while at < numbers.len() {
        let first = numbers[at];
        while at + 1 < numbers.len() && numbers[at + 1] == numbers[at] + 1 {
            at += 1;
        }
        out.push(if numbers[at] == first { first.to_string() } else { format!("{first}-{}", numbers[at]) });
        at += 1;
    }
    out.join(",")
}

/// Text that was not written by us, for a screen.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .take(120)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// `always [madvise] never` → madvise.
#[must_use]
pub fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| clean(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(list("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(show_list(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
        assert_eq!(list("x-,,4294967295-0"), Vec::<u32>::new());
        assert_eq!(list("0-4294967295"), Vec::<u32>::new());
    }

    #[test]
    fn a_record_of_this_machine_reads_the_same() {
        let here = Tree::here();
        let seen = (
            here.text("proc/version"),
            here.names("sys/class/net"),
            here.target("proc/self/ns/net").is_some(),
            here.text("proc/mounts"),
        );
        let again = Tree::parse(&here.record()).unwrap();
        assert_eq!(
            (
                again.text("proc/version"),
                again.names("sys/class/net"),
                again.target("proc/self/ns/net").is_some(),
                again.text("proc/mounts")
            ),
            seen
        );
        assert_eq!(again.text("proc/cpuinfo"), None, "what was not read is not there");
        let odd = Tree::parse("a = one\\ntwo\\\\040\\\\n").unwrap();
        assert_eq!(odd.text("a").unwrap(), "one\ntwo\\040\\n");
        assert_eq!(odd.record(), "a = one\\ntwo\\\\040\\\\n\n");
        assert_eq!(Tree::parse("a = 1\nnonsense").unwrap_err(), 2);
    }
}

//! One contestant: a program that is raced, as data.
//!
//! For: every race. In and out: a row of a table (bench/race/peers.toml, or one made by a benchmark) and values for its `{names}` → the
//! command lines of its server and its client, and how these are shown.
//! Invariants: nothing is split after values were filled in, so that a path may hold blanks; a command shown is the one that ran, but for values
//! that were given for showing (paths of this machine).
//! Absent on purpose: starting them.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

/// How a run becomes a figure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// By the clock, from the client's start to its end; the destination is compared.
    #[default]
    Clock,
    /// So too; beside it the last line of `longhaul cp --json`.
    Report,
    /// `iperf3 -J`.
    Iperf3,
    /// `nuttcp -fparse`.
    Nuttcp,
    /// `longhaul bench net --json --only LINE`: that line.
    BenchNet,
    /// `fio --output-format=json`.
    Fio,
    /// By the clock too; from memory to memory, so that there is nothing to compare.
    Memory,
}

/// One of them. In words, `{name}` stands for what only a run knows.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contestant {
    /// As tables show it.
    pub name: String,
    /// Programs without which it cannot run.
    pub needs: Vec<String>,
    /// Prints which version it is.
    pub version: Words,
    /// What it leaves out: no encryption, no fsync, no digest.
    pub lacks: String,
    pub encrypts: bool,
    /// Ours: held against the others.
    pub ours: bool,
    /// The server runs on host a, where the source is, and the client on host b.
    pub pulls: bool,
    /// The name of a script that has to run once before.
    pub setup: String,
    /// First; empty: it needs none.
    pub server: Words,
    /// What the server prints when it is ready.
    pub ready: String,
    /// Where the server listens when it is ready; with neither, it is given a moment.
    pub port: u16,
    /// The server ends by itself, and only then all has arrived.
    pub server_ends: bool,
    pub client: Words,
    pub reading: Reading,
}

impl Contestant {
    /// Programs without which it cannot run, and that are not here: those of its commands too.
    #[must_use]
    pub fn missing(&self) -> Vec<&str> {
        let of_commands = [&self.server, &self.client].into_iter().filter_map(|words| words.0.first());
        let is_program = |name: &&str| !name.starts_with('{') && !is_here(name);
        self.needs.iter().chain(of_commands).map(String::as_str).filter(is_program).collect()
    }

    /// The line in which it, or its client, says its version; empty where it says none, or is not here.
    #[must_use]
    pub fn version(&self, values: &[(&str, &str)]) -> String {
        let client = self.client.fill(values).into_iter().next().filter(|name| !matches!(name.as_str(), "sh" | "env"));
        match client {
            Some(client) if self.version.0.is_empty() => version(&[client, "--version".to_owned()]),
            _ => version(&self.version.fill(values)),
        }
    }
}

/// The first line with a number like 1.2 in it that a command prints.
#[must_use]
pub fn version(words: &[String]) -> String {
    let Some((program, rest)) = words.split_first() else { return String::new() };
    let Ok(output) = Command::new(program).args(rest).stdin(std::process::Stdio::null()).output() else {
        return String::new();
    };
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let has_number = |line: &&str| {
        line.as_bytes().windows(3).any(|it| it[0].is_ascii_digit() && it[1] == b'.' && it[2].is_ascii_digit())
    };
    said.lines().find(has_number).unwrap_or_default().trim().chars().take(80).collect()
}

/// Is there such a program, by its name or by its path?
#[must_use]
pub fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Path::new(program).is_absolute() && Path::new(program).is_file()
        || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A command: words with `{names}` in them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Words(pub Vec<String>);

impl From<String> for Words {
    fn from(line: String) -> Words {
        Words::parse(&line)
    }
}

impl Words {
    /// Splits at blanks; what stands in single quotes is one word, or part of one.
    #[must_use]
    pub fn parse(line: &str) -> Words {
        let (mut words, mut is_quoted, mut is_word) = (vec![String::new()], false, false);
        for letter in line.chars() {
            match letter {
                '\'' => (is_quoted, is_word) = (!is_quoted, true),
                _ if letter.is_whitespace() && !is_quoted => {
                    if std::mem::take(&mut is_word) {
                        words.push(String::new());
                    }
                }
                _ => {
                    is_word = true;
                    words.last_mut().expect("there is always one").push(letter);
                }
            }
        }
        if !is_word {
            words.pop();
        }
        Words(words)
    }

    /// A line for a shell.
    #[must_use]
    pub fn shell(line: &str) -> Words {
        Words(["sh", "-c", line].map(str::to_owned).to_vec())
    }

    /// The words with these values; a name that has none stays as it is.
    #[must_use]
    pub fn fill(&self, values: &[(&str, &str)]) -> Vec<String> {
        self.0.iter().map(|word| fill(word, values)).collect()
    }

    /// As somebody would type it.
    #[must_use]
    pub fn show(&self, values: &[(&str, &str)]) -> String {
        let words = self.fill(values);
        if let [shell, option, line] = &words[..]
            && (shell.as_str(), option.as_str()) == ("sh", "-c")
        {
            return line.clone();
        }
        let is_plain = |letter: char| letter.is_alphanumeric() || "-_=./:,@%+[]".contains(letter);
        let quoted = |word: &String| {
            if !word.is_empty() && word.chars().all(is_plain) { word.clone() } else { format!("'{word}'") }
        };
        words.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }
}

/// A text with these values in place of their `{names}`.
#[must_use]
pub fn fill(text: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// The ticket that a daemon of ours printed, in a word that has a place for it.
#[must_use]
pub fn with_ticket(word: &str, line: &str) -> String {
    let ticket = line.split_once("longhaul://").and_then(|(_, rest)| rest.split_once('@')).map(|(ticket, _)| ticket);
    ticket
        .map_or_else(|| word.to_owned(), |ticket| word.replace("longhaul://TICKET@", &format!("longhaul://{ticket}@")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_words_before_values_come_into_it() {
        let words = Words::parse("  rsync -e 'ssh -p 22' {src} --to={b}:''  ");
        let values = [("src", "/a b"), ("b", "10.0.0.2")];
        assert_eq!(words.fill(&values), ["rsync", "-e", "ssh -p 22", "/a b", "--to=10.0.0.2:"]);
        assert_eq!(words.show(&values), "rsync -e 'ssh -p 22' '/a b' --to=10.0.0.2:");
        assert_eq!(Words::shell("a | b").show(&[]), "a | b");
        assert!(Words::parse(" ").0.is_empty());
    }

    #[test]
    fn the_ticket_of_the_daemon_comes_into_the_address() {
        let line = "longhaul://abc@0.0.0.0:5740/";
        assert_eq!(with_ticket("longhaul://TICKET@10.99.0.2:5740/", line), "longhaul://abc@10.99.0.2:5740/");
        assert_eq!(with_ticket("--json", line), "--json");
    }
}

//! Which entries of the sources a copy takes: patterns and lists of names.
//!
//! For: `--exclude`, `--include`, `--exclude-from`, `--files-from`.
//! In and out: options in the order in which they were given → rules in that order; names, checked and sorted.
//! Invariants: the order of patterns on the command line is kept, for the last that matches decides; a file that cannot be read ends the
//! command before anything is copied.
//! Absent on purpose: compiling the rules (node::client::choice), which names stand where (engine::tree::scan::include).

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use engine::tree::scan::include::{IncludeList, NotIncluded};
use proto::wire::control::RULES_BYTES_MAX;

use text::attempt::Attempt;
use text::exit::{Exit, Failure};

const EXCLUDE: &str = "exclude";
const INCLUDE: &str = "include";
const EXCLUDE_FROM: &str = "exclude_from";
const FILES_FROM: &str = "files_from";
const FROM0: &str = "from0";

/// A name in a list is no longer than any path of an entry.
const NAME_BYTES_MAX: u64 = proto::manifest::ENTRY_PATH_BYTES_MAX as u64 + 2;

/// One option that gives rules.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Given {
    /// A rule as it stands in a file of rules.
    Rule(String),
    /// A file of them.
    File(PathBuf),
}

/// The options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChooseArguments {
    given: Vec<Given>,
    files_from: Option<PathBuf>,
    from0: bool,
}

/// What they come to.
#[derive(Debug, Default)]
pub struct Choice {
    /// Rules in their order.
    pub rules: Vec<Box<str>>,
    /// The names of `--files-from`.
    pub picks: Option<IncludeList>,
}

impl ChooseArguments {
    /// Reads the files.
    pub fn read(&self) -> Result<Choice, Failure> {
        let mut rules: Vec<Box<str>> = Vec::new();
        for given in &self.given {
            match given {
                Given::Rule(rule) => rules.push(rule.as_str().into()),
                Given::File(path) => read_rules(path, &mut rules)?,
            }
        }
        let picks = self.files_from.as_deref().map(|path| read_picks(path, self.from0)).transpose()?;
        Ok(Choice { rules, picks })
    }
}

fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let file = std::fs::File::open(path)
        .map_err(|error| Attempt::Listed.fail(format!("read the list '{}'", path.display()), &error))?;
    Ok(Box::new(file))
}

fn read_rules(path: &Path, rules: &mut Vec<Box<str>>) -> Result<(), Failure> {
    let what = || format!("read the patterns in '{}'", path.display());
    let mut text = String::new();
    // Comments count here and not on the wire: a file may be some times longer than what is left of it.
    let most = 64 * RULES_BYTES_MAX as u64;
    let read = open(path)?.take(most + 1).read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => {
            Exit::Usage.fail(what(), "it is not UTF-8").next("name a text file with one pattern to a line")
        }
        _ => Attempt::Listed.fail(what(), &error),
    })?;
    if text.len() as u64 > most {
        let failure = Exit::Usage.fail(what(), format!("it is longer than {most} bytes"));
        return Err(failure.next("name a text file with one pattern to a line"));
    }
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    rules.extend(lines.map(Box::from));
    Ok(())
}

fn read_picks(path: &Path, from0: bool) -> Result<IncludeList, Failure> {
    let what = || format!("read the names in '{}'", path.display());
    let mut from = BufReader::new(open(path)?);
    let end = if from0 { 0 } else { b'\n' };
    let mut picks = IncludeList::default();
    let mut name = Vec::new();
    loop {
        name.clear();
        let read = from.by_ref().take(NAME_BYTES_MAX).read_until(end, &mut name);
        if read.map_err(|error| Attempt::Listed.fail(what(), &error))? == 0 {
            return Ok(picks.sorted());
        }
        if name.last() == Some(&end) {
            name.pop();
        }
        picks.add(&name).map_err(|why| {
            let shown = OsStr::from_bytes(&name[..name.len().min(200)]).to_string_lossy().into_owned();
            let next = match why {
                NotIncluded::Name(_) => "names are relative to SRC, one to a line (or NUL-separated, with -0)",
                NotIncluded::Full => "copy with several shorter lists, one after another",
            };
            Exit::Usage.fail(what(), format!("'{shown}': {why}")).next(next)
        })?;
    }
}

/// A pattern of the command line as a rule: one that begins with `#` is no comment there.
fn rule_of(pattern: &str) -> String {
    if pattern.starts_with('#') { format!("\\{pattern}") } else { pattern.to_owned() }
}

impl FromArgMatches for ChooseArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given: Vec<(usize, Given)> = Vec::new();
        let at = |id: &str| matches.indices_of(id).into_iter().flatten();
        let texts = |id: &str| matches.get_many::<String>(id).into_iter().flatten();
        given.extend(at(EXCLUDE).zip(texts(EXCLUDE)).map(|(at, it)| (at, Given::Rule(rule_of(it)))));
        given.extend(at(INCLUDE).zip(texts(INCLUDE)).map(|(at, it)| (at, Given::Rule(format!("!{it}")))));
        let files = matches.get_many::<PathBuf>(EXCLUDE_FROM).into_iter().flatten();
        given.extend(at(EXCLUDE_FROM).zip(files).map(|(at, path)| (at, Given::File(path.clone()))));
        given.sort_by_key(|(at, _)| *at);
        Ok(ChooseArguments {
            given: given.into_iter().map(|(_, given)| given).collect(),
            files_from: matches.get_one::<PathBuf>(FILES_FROM).cloned(),
            from0: matches.get_flag(FROM0),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ChooseArguments {
    fn augment_args(command: Command) -> Command {
        let pattern = |id, help| {
            let value = clap::builder::NonEmptyStringValueParser::new();
            Arg::new(id).long(id).value_name("PATTERN").value_parser(value).action(ArgAction::Append).help(help)
        };
        let list = |id, long, help| {
            let value = clap::value_parser!(PathBuf);
            Arg::new(id).long(long).value_name("FILE").value_parser(value).help(help)
        };
        command
            .next_help_heading("Filters (gitignore's syntax; the last pattern that matches decides)")
            .arg(
                pattern(EXCLUDE, "Leave out what PATTERN matches below SRC; sync --delete does not remove it either")
                    .allow_hyphen_values(true),
            )
            .arg(
                pattern(INCLUDE, "Take what PATTERN matches, though an earlier one leaves it out (not below a folder that is left out)")
                    .allow_hyphen_values(true),
            )
            .arg(
                list(EXCLUDE_FROM, "exclude-from", "Patterns from a file, one to a line, as in .gitignore; - is standard input")
                    .action(ArgAction::Append),
            )
            .arg(
                list(FILES_FROM, "files-from", "Take only what FILE names below the folder SRC, one to a line, each by itself (a folder without what is in it); - is standard input"),
            )
            .arg(
                Arg::new(FROM0)
                    .long("from0")
                    .short('0')
                    .action(ArgAction::SetTrue)
                    .requires(FILES_FROM)
                    .help("Names in --files-from end with NUL, as `find -print0` writes them"),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command as Asked, CpArguments};
    use node::request::JobRequest;

    fn parsed(words: &[&str]) -> Result<CpArguments, clap::Error> {
        let line = ["longhaul", "cp"].iter().chain(words).chain(&["a", "b"]);
        match Arguments::try_parse_from(line)?.command {
            Asked::Cp(arguments) => Ok(*arguments),
            _ => unreachable!("the line begins with cp"),
        }
    }

    #[test]
    fn patterns_keep_the_order_of_the_command_line() {
        let it = parsed(&["--exclude", "*", "--include=*.rs", "--exclude", "#x", "--exclude=-y"]).expect("they parse");
        let request = it.request().expect("they are rules");
        assert_eq!(request.rules, ["*", "!*.rs", "\\#x", "-y"].map(Box::from));
        let again = JobRequest::from_relay(&request.relayed(false), vec!["a".into()], vec!["b".into()]);
        assert_eq!(again.rules, request.rules, "a relay may");
    }

    #[test]
    fn a_relay_names_no_file_of_this_host() {
        // A list is read where the command runs; what goes to another host is what stood in it.
        let path = std::env::temp_dir().join(format!("longhaul-rules-{}", std::process::id()));
        std::fs::write(&path, "*.tmp\n").expect("a list");
        let request = parsed(&[&format!("--exclude-from={}", path.display())]).expect("they parse").request();
        std::fs::remove_file(&path).expect("it is there");
        let relayed = request.expect("a list of rules").relayed(false);
        assert_eq!(relayed.rules, [Box::from("*.tmp")]);
    }

    #[test]
    fn lists_are_read_by_line_or_by_nul_and_name_what_is_wrong() {
        let path = std::env::temp_dir().join(format!("longhaul-list-{}", std::process::id()));
        std::fs::write(&path, b"b\0a\nc\0").expect("a list");
        let names = |words: &[&str]| {
            let it = parsed(words).expect("they parse").choose.read()?;
            Ok::<_, Failure>(it.picks.expect("a list").names().map(<[u8]>::to_vec).collect::<Vec<_>>())
        };
        let option = format!("--files-from={}", path.display());
        assert_eq!(names(&[&option, "-0"]).expect("good names"), [b"a\nc".to_vec(), b"b".to_vec()]);
        assert!(names(&[&option]).expect_err("a NUL in a name").cause.contains("NUL"));
        std::fs::write(&path, b"ok\n../up\n").expect("a list");
        assert!(names(&[&option]).expect_err("it climbs").cause.starts_with("'../up'"));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(names(&[&option]).expect_err("no such file").exit, Exit::Usage);
        assert!(parsed(&["-0"]).is_err(), "-0 says how --files-from is written");
    }
}

//! Options that users of rsync, scp and cp type by habit.
//!
//! For: a line that works as it is meant, or a sentence that names what to type instead.
//! In and out: an option that this program does not have → what stands for it; habits that were accepted → one note.
//! Invariants: only what is the default anyway is accepted; nothing is taken that would mean something else here.
//! Absent on purpose: what our own options mean (args.rs), their values (clap).

use std::ffi::OsString;

use clap::Args;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use text::exit::{Exit, Failure};

/// What is accepted since it asks for the default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct HabitArguments {
    /// Trees are copied with all that they have
    #[arg(short = 'a', long, hide = true)]
    pub archive: bool,

    /// Folders are copied with what is in them
    #[arg(short = 'r', long, hide = true)]
    pub recursive: bool,

    /// What was cut is gone on with, and progress is shown
    #[arg(short = 'P', long, hide = true)]
    pub partial: bool,
}

impl HabitArguments {
    /// One sentence about those that were given.
    #[must_use]
    pub fn note(self) -> Option<String> {
        let all = [(self.archive, "-a"), (self.recursive, "-r"), (self.partial, "-P")];
        let given: Vec<&str> = all.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect();
        let what = if given.len() == 1 { "is the default" } else { "are the default" };
        (!given.is_empty())
            .then(|| format!("{} {what} and need not be given (`longhaul help from-rsync`)", given.join(", ")))
    }
}

/// Options of others, and what stands for them here.
pub const HABITS: [(&[&str], &str); 24] = [
    (&["-z", "--compress", "--compress-level", "--zc"], "leave it out: there is no compression"),
    (&["-e", "--rsh"], "--ssh names the command: --ssh 'ssh -p 2222'"),
    (&["--bwlimit", "-l", "--limit"], "--rate caps it: --rate 100MB/s"),
    (&["--delete", "--delete-after", "--delete-during", "--del"], "longhaul sync --delete SRC DST"),
    (&["-c"], "--checksum compares by content"),
    (
        &["-p", "-t", "-o", "-g", "--perms", "--times", "--owner", "--group"],
        "leave it out: owners, modes and times are kept",
    ),
    (
        &["-H", "-A", "-X", "--hard-links", "--acls", "--xattrs"],
        "leave it out: hard links, ACLs and attributes are kept",
    ),
    (
        &["-D", "--devices", "--specials"],
        "leave it out: device nodes, FIFOs and sockets are kept where that is permitted",
    ),
    (&["-S", "--sparse"], "leave it out: holes stay holes"),
    (&["--links"], "leave it out: symbolic links are copied as links"),
    (&["-L", "--copy-links"], "links are copied as links: name what they lead to as a source"),
    (
        &["--inplace", "--append", "--append-verify"],
        "leave it out: a file has its name only when it is whole, and a cut copy resumes",
    ),
    (&["--partial-dir", "-T", "--temp-dir"], "leave it out: parts stand beside their files until these are whole"),
    (&["-W", "--whole-file"], "leave it out: `cp` sends changed files whole, `sync` what has changed in them"),
    (
        &["-u", "--update", "--ignore-existing", "--existing"],
        "leave it out: files of the same size and time are left alone",
    ),
    (&["-I", "--ignore-times"], "--no-keep sends them again, --checksum compares them"),
    (&["--size-only"], "leave it out: size and time are compared; --checksum compares by content"),
    (&["--stats", "-i", "--itemize-changes", "--info"], "-v says where the time went, -n what would be copied"),
    (&["-f", "--filter"], "--exclude, --include and --exclude-from (gitignore's syntax)"),
    (&["-R", "--relative"], "--files-from takes names with their folders"),
    (&["-x", "--one-file-system"], "--exclude leaves out what is mounted below"),
    (&["--timeout", "--contimeout"], "--stall ends a copy without progress: --stall 60"),
    (&["--remove-source-files"], "remove the sources yourself once `longhaul verify` has checked the copy"),
    (
        &["-b", "--backup", "--backup-dir", "--link-dest"],
        "not supported: keep a snapshot of the destination before the copy",
    ),
];

/// `-avh`: `-h` among letters is rsync's, for sizes that are read easily. Alone it asks for help, and a line that copies nothing and ends well
/// would be taken for a copy.
#[must_use]
pub fn letters(words: &[OsString]) -> Option<Failure> {
    let is_copy = words.get(1).is_some_and(|word| word == "cp" || word == "sync");
    let is_letters = |word: &&str| {
        let letters = word.strip_prefix('-').unwrap_or_default();
        letters.len() > 1 && letters.contains('h') && letters.bytes().all(|byte| b"ahnqrvzPutpogDlx".contains(&byte))
    };
    let options = words.iter().map_while(|word| word.to_str().filter(|word| *word != "--"));
    let word = options.filter(|_| is_copy).find(is_letters)?;
    let failure = Exit::Usage.fail("understand the command line", format!("there is no option -h within {word}"));
    Some(failure.next("leave the h out: sizes are shown as they are read; -h alone, or --help, lists the options"))
}

/// A line that clap refused, where a sentence of ours says more.
#[must_use]
pub fn failure(error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(ContextValue::Strings(words)) => words.first().cloned(),
        _ => None,
    };
    let option = word(ContextKind::InvalidArg)?;
    if !option.starts_with('-') {
        return None;
    }
    let failure = Exit::Usage.fail("understand the command line", format!("there is no option {option}"));
    let habit = HABITS.iter().find(|(names, _)| names.contains(&option.as_str()));
    Some(match (habit, word(ContextKind::SuggestedArg)) {
        (Some((_, instead)), _) => failure.next(*instead),
        (None, Some(near)) => failure.next(format!("did you mean {near}? The command's --help lists all")),
        (None, None) => {
            failure.next("the command's --help lists the options; a name that begins with `-` is written ./-name")
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn of(words: &[&str]) -> Result<Option<String>, Failure> {
        let line = ["longhaul", "cp"].iter().chain(words);
        match Arguments::try_parse_from(line) {
            Ok(Arguments { command: Command::Cp(cp) }) => Ok(cp.habits.note()),
            Ok(_) => panic!("cp"),
            Err(error) => Err(failure(&error).expect("a sentence of ours")),
        }
    }

    #[test]
    fn what_is_the_default_is_accepted_with_one_note() {
        assert_eq!(of(&["a", "b"]), Ok(None));
        for words in
            [&["-a", "a", "b"][..], &["-avP", "a", "b"], &["-r", "-P", "a", "b"], &["--archive", "--partial", "a", "b"]]
        {
            let note = of(words).expect("accepted").expect("a note");
            assert!(note.contains("default") && note.contains("from-rsync"), "{words:?}: {note}");
        }
    }

    #[test]
    fn what_is_not_is_answered_with_what_to_type() {
        for (words, next) in [
            (&["-z", "a", "b"][..], "no compression"),
            (&["-az", "a", "b"], "no compression"),
            (&["--bwlimit=10", "a", "b"], "--rate"),
            (&["-e", "ssh", "a", "b"], "--ssh"),
            (&["--delete", "a", "b"], "longhaul sync --delete"),
            (&["--excludes=x", "a", "b"], "did you mean --exclude"),
            (&["--frobnicate", "a", "b"], "--help"),
        ] {
            let failure = of(words).expect_err("refused");
            assert!(failure.exit == Exit::Usage && failure.next_step.contains(next), "{words:?}: {failure}");
            assert!(!failure.to_string().contains("to pass"), "{failure}");
        }
    }

    #[test]
    fn no_habit_is_an_option_of_ours() {
        use clap::CommandFactory;
        let command = Arguments::command();
        let cp = command.find_subcommand("cp").expect("cp");
        for name in HABITS.iter().flat_map(|(names, _)| names.iter()) {
            let is_ours = |it: &clap::Arg| {
                it.get_long().is_some_and(|long| *name == format!("--{long}"))
                    || it.get_short().is_some_and(|short| *name == format!("-{short}"))
            };
            assert!(!cp.get_arguments().any(is_ours), "{name}");
        }
    }
}

//! The reference pages of the book, one per command, and the table of exit codes.
//!
//! For: `docs/book`, which must not say other than the program does.
//! In and out: the command line's definition → Markdown files in a folder.
//! Invariants: the same build writes the same bytes; hidden commands and options stay hidden.
//! Absent on purpose: tutorials and explanations, which are written by hand; `SUMMARY.md`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

use crate::args::Arguments;
use text::exit::TABLE;

/// Said at the end of each page.
const MADE: &str = "\n*Generated from the program's own definition by `make reference`.*\n";

/// `cp.md`, `serve.md`, …, one page per command that is not hidden, and `exit-codes.md`; gives their paths.
///
/// # Errors
/// The folder cannot be written.
pub(super) fn pages(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut command = Arguments::command();
    command.build();
    let mut written = Vec::new();
    let mut write = |name: &str, text: String| {
        let path = folder.join(format!("{name}.md"));
        std::fs::write(&path, text + MADE)?;
        written.push(path);
        Ok::<(), std::io::Error>(())
    };
    for sub in shown(&command) {
        let mut text = String::new();
        section(&mut text, &sub, "longhaul", 1);
        write(sub.get_name(), text)?;
    }
    write("exit-codes", exit_codes())?;
    Ok(written)
}

/// Commands that are not hidden, but for `help`.
fn shown(command: &Command) -> Vec<Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").cloned().collect()
}

/// A command and those below it; `before` is what is typed before its name.
fn section(text: &mut String, command: &Command, before: &str, depth: usize) {
    let name = format!("{before} {}", command.get_name());
    let hashes = "#".repeat(depth);
    let _ = writeln!(text, "{hashes} {name}\n");
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        let _ = writeln!(text, "{}\n", prose(about));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim());
    let mut headings: Vec<Option<&str>> = Vec::new();
    let arguments: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str()))
        .collect();
    for arg in &arguments {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        let title = heading.unwrap_or("Arguments and options");
        let _ = writeln!(text, "{hashes}# {}\n", title.trim_start_matches("Options: "));
        for arg in arguments.iter().filter(|arg| arg.get_help_heading() == heading) {
            option(text, arg);
        }
    }
    if let Some(after) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = writeln!(text, "```text\n{}\n```\n", after.to_string().trim());
    }
    for sub in shown(command) {
        section(text, &sub, &name, depth + 1);
    }
}

/// One argument or option: its spelling, what it does, its values and default.
fn option(text: &mut String, arg: &Arg) {
    let values = arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect::<Vec<_>>();
    let takes = arg.get_num_args().is_some_and(|count| count.takes_values());
    let value = if takes { values.join(" ") } else { String::new() };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    let _ = writeln!(text, "**`{}`**\n", format!("{names} {value}").trim());
    if let Some(help) = arg.get_long_help().or(arg.get_help()) {
        let _ = writeln!(text, "{}\n", prose(help));
    }
    let possible: Vec<_> = if takes {
        arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect()
    } else {
        vec![]
    };
    for value in &possible {
        let help = value.get_help().map(|help| format!(": {}", prose(help))).unwrap_or_default();
        let _ = writeln!(text, "* `{}`{help}", value.get_name());
    }
    if !possible.is_empty() {
        text.push('\n');
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let _ = writeln!(text, "Default: `{}`\n", defaults.join(" "));
    }
}

/// Help text as Markdown: what would be taken for markup outside of backticks is not.
fn prose(help: &StyledStr) -> String {
    let text = help.to_string();
    let parts = text.trim().split('`').enumerate().map(|(number, part)| {
        if number % 2 == 0 { part.replace('<', "\\<").replace('*', "\\*") } else { part.to_owned() }
    });
    parts.collect::<Vec<_>>().join("`")
}

fn exit_codes() -> String {
    let mut text = String::from(
        "# Exit codes\n\nThey never change their meaning. When some entries failed and the rest is done, the code is that of the most serious failure. \
         `--json` has the word as `exit_kind`.\n\n| code | word | meaning | what to do |\n|---|---|---|---|\n",
    );
    for line in TABLE {
        let _ = writeln!(text, "| {} | {} | {} | {} |", line.exit.code(), line.word, line.meaning, line.next_step);
    }
    text
}

//! `longhaul generate`: manual pages, shell completions, and the reference of the book.
//!
//! For: packagers and docs/book; all come from the one definition in args.rs, so they cannot differ from the program.
//! In and out: the command line's definition → files in a folder.
//! Invariants: the same build writes the same bytes; hidden commands stay hidden.
//! Absent on purpose: installing them.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Arguments, GenerateArguments, GenerateChoice};
use text::exit::{Exit, Failure, TABLE};

mod markdown; // pages of the book

/// Writes what was asked for; gives the paths of the files.
///
/// # Errors
/// The folder cannot be made or written.
pub fn run(arguments: &GenerateArguments) -> Result<Vec<PathBuf>, Failure> {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder).and_then(|()| match arguments.what {
        GenerateChoice::Man => man(folder),
        GenerateChoice::Completions => completions(folder),
        GenerateChoice::Markdown => markdown::pages(folder),
    });
    written.map_err(|error| Exit::of_io(&error).fail(format!("write into {}", folder.display()), error))
}

/// `longhaul.1`, `longhaul-cp.1`, …, one page per command that is not hidden.
fn man(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut command = Arguments::command();
    command.build();
    let mut written = Vec::new();
    page(folder, &command, &mut written)?;
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        page(folder, sub, &mut written)?;
    }
    Ok(written)
}

fn page(folder: &Path, command: &clap::Command, written: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let path = folder.join(format!("{name}.1"));
    let mut bytes = Vec::new();
    // No date and no commit: the page of a version is the same whenever it is made.
    let command = command.clone().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command).title(name.to_uppercase()).manual("Longhaul manual").render(&mut bytes)?;
    exit_status(&mut bytes)?;
    std::fs::write(&path, bytes)?;
    written.push(path);
    Ok(())
}

/// The table of exit codes, as manual pages have it.
fn exit_status(page: &mut Vec<u8>) -> std::io::Result<()> {
    let text = |text: &str| text.replace('\\', "\\\\").replace('-', "\\-");
    writeln!(page, ".SH \"EXIT STATUS\"")?;
    for line in TABLE {
        writeln!(page, ".TP\n\\fB{}\\fR ({})\n{}", line.exit.code(), text(line.word), text(line.meaning))?;
    }
    Ok(())
}

/// For bash, zsh and fish.
fn completions(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut command = Arguments::command();
    [Shell::Bash, Shell::Zsh, Shell::Fish]
        .into_iter()
        .map(|shell| clap_complete::generate_to(shell, &mut command, "longhaul", folder))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(what: GenerateChoice, name: &str) -> Vec<(String, String)> {
        let folder = std::env::temp_dir().join(format!("longhaul-{name}-{}", std::process::id()));
        let written = run(&GenerateArguments { what, folder: folder.clone() }).unwrap();
        let name_of = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        let pages = written.iter().map(|path| (name_of(path), std::fs::read_to_string(path).unwrap())).collect();
        std::fs::remove_dir_all(&folder).unwrap();
        pages
    }

    #[test]
    fn there_is_a_page_per_command_and_none_for_hidden_ones() {
        let pages = generate(GenerateChoice::Man, "man");
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in [
            "longhaul.1",
            "longhaul-cp.1",
            "longhaul-serve.1",
            "longhaul-verify.1",
            "longhaul-key.1",
            "longhaul-bench.1",
        ] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        assert!(!names.contains(&"longhaul-generate.1"));
        let (_, cp) = &pages[names.iter().position(|name| *name == "longhaul-cp.1").unwrap()];
        assert!(cp.contains("integrity\\-only") && cp.contains("10Gbit"));
        for line in ["What DST means", "(for x/folder write x/)"] {
            assert!(cp.contains(line), "the table of destinations: {line}");
        }
        assert!(!cp.contains("(commit "), "a page does not change with each commit");
        for line in TABLE {
            assert!(cp.contains(&format!("\\fB{}\\fR ({})", line.exit.code(), line.word)), "{}", line.word);
        }
    }

    #[test]
    fn the_reference_of_the_book_is_the_one_of_this_build() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/book/src/reference");
        let pages = generate(GenerateChoice::Markdown, "markdown");
        assert!(pages.iter().any(|(name, text)| name == "cp.md" && text.contains("**`--durability <LEVEL>`**")));
        for (name, text) in pages {
            let kept = std::fs::read_to_string(folder.join(&name)).unwrap_or_default();
            assert!(kept == text, "docs/book/src/reference/{name} is of another build: run `make reference`");
        }
    }

    #[test]
    fn there_are_completions_for_three_shells() {
        let files = generate(GenerateChoice::Completions, "completions");
        assert_eq!(files.len(), 3);
        for (name, text) in files {
            assert!(text.contains("longhaul") && text.contains("integrity-only"), "{name}");
        }
    }
}

//! `longhaul key`: the identity of this host, and whom it knows.
//!
//! For: people who introduce hosts to each other.
//! In and out: words of the command line → changes in the key folder; what was done, on standard output.
//! Invariants: nothing is printed that is secret; each command says what is now true.
//! Absent on purpose: parsing and writing of the files (identity/), tickets (`serve` makes them).

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Command, Subcommand};

use crate::lists;
use node::identity::keys::{self, Identity, clean_comment, fingerprint, key_text, parse_key};
use node::identity::{Access, Home, IdentityError, PublicKey, Rights, authorized, trust};
use text::exit::{Exit, Failure};
use text::units;

/// What can be done with keys.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum KeyCommand {
    /// List this host's key, the keys that are authorized here, trusted and revoked, with the files that they stand in
    List {
        /// Print one JSON array
        #[arg(long)]
        json: bool,
        /// The daemon's list of authorized keys, where its config file names another one [default: authorized_keys below LONGHAUL_HOME]
        #[arg(long, value_name = "FILE")]
        authorized_keys: Option<PathBuf>,
    },
    /// Print this host's public key and its fingerprint; makes the key at first use
    Show,
    /// Make a new key for this host
    Generate {
        /// Replace the key that is there: every peer that knows it must learn the new one
        #[arg(long)]
        force: bool,
        /// A note behind the public key [default: user@host]
        #[arg(long)]
        comment: Option<String>,
    },
    /// From now on, connect to HOST:PORT only if it shows KEY
    Trust {
        /// The daemon's address, as in longhaul://HOST:PORT/
        #[arg(value_name = "HOST:PORT")]
        host_port: String,
        /// Its key, as `longhaul key show` prints it there
        #[arg(required = true, num_args = 1.., value_name = "KEY")]
        key: Vec<String>,
    },
    /// Let the owner of KEY copy to and from this host's daemon
    Authorize {
        /// The client's key, as `longhaul key show` prints it there
        #[arg(required = true, num_args = 1.., value_name = "KEY")]
        key: Vec<String>,
        /// Only below this folder [default: the daemon's root]
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// May only fetch
        #[arg(long, conflicts_with = "wo")]
        ro: bool,
        /// May only bring
        #[arg(long)]
        wo: bool,
        /// Never faster than this: 10Gbit, 800Mbit/s (bits) or 1.5GB/s (bytes)
        #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
        rate: Option<u64>,
        /// May set owners, setuid bits, file capabilities and device nodes, where the daemon runs with --privileged
        #[arg(long)]
        privileged: bool,
        /// A note behind the key [default: the one that came with it]
        #[arg(long)]
        comment: Option<String>,
    },
    /// Refuse KEY from now on, as client and as server, with a ticket or without
    Revoke {
        /// The key
        #[arg(required = true, num_args = 1.., value_name = "KEY")]
        key: Vec<String>,
        /// A note behind the key: why, when
        #[arg(long)]
        comment: Option<String>,
    },
}

/// So that the command can stand in a variant of its own, `Key(KeyCommand)`.
impl Args for KeyCommand {
    fn augment_args(command: Command) -> Command {
        <KeyCommand as Subcommand>::augment_subcommands(command).subcommand_required(true).arg_required_else_help(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        <KeyCommand as Subcommand>::augment_subcommands_for_update(command)
    }
}

/// Does it, in the user's own key folder.
///
/// # Errors
/// Whatever keeps the folder from being read or written, or the key from being understood.
pub fn run(command: KeyCommand) -> anyhow::Result<()> {
    let done = Home::find().map_err(Into::into).and_then(|home| run_in(&home, command, &mut io::stdout().lock()));
    // With its exit code and what to do next.
    done.map_err(|error| match error.downcast::<IdentityError>() {
        Ok(error) => Failure::from(error).into(),
        Err(error) => error,
    })
}

/// Does it in a given folder, and says so to `out`.
///
/// # Errors
/// As `run`.
pub fn run_in(home: &Home, command: KeyCommand, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        KeyCommand::List { json, authorized_keys } => {
            // A list that is not there would be an empty one.
            let real = |file: PathBuf| {
                let failed = |error| Exit::of_io(&error).fail(format!("read {}", file.display()), error);
                std::fs::canonicalize(&file).map_err(failed)
            };
            let list = authorized_keys.map(real).transpose()?;
            lists::keys::run(home, list.as_deref(), json)
        }
        KeyCommand::Show => show(&Identity::load(home)?, out),
        KeyCommand::Generate { force, comment } => {
            let comment = comment.unwrap_or_else(keys::default_comment);
            show(&Identity::generate(home, force, &comment)?, out)
        }
        KeyCommand::Trust { host_port, key } => {
            let (key, _) = one_key(&key)?;
            not_revoked(home, &key, "trust")?;
            let before = trust::trust(home, &host_port, &key)?;
            writeln!(out, "{host_port} is trusted with {}", fingerprint(&key))?;
            for old in before.iter().filter(|old| **old != key) {
                writeln!(out, "no longer trusted for it: {}", fingerprint(old))?;
            }
            Ok(())
        }
        KeyCommand::Authorize { key, root, ro, wo, rate, privileged, comment } => {
            let (key, note) = one_key(&key)?;
            not_revoked(home, &key, "authorize")?;
            let root = root.map(whole_root).transpose()?;
            let access = match (ro, wo) {
                (true, _) => Access::ReadOnly,
                (_, true) => Access::WriteOnly,
                _ => Access::ReadWrite,
            };
            let rights = Rights { root, access, rate_bps: rate.unwrap_or(0), privileged };
            let replaced = authorized::authorize(home, &key, &rights, &comment.unwrap_or(note))?;
            let again = if replaced { ", in place of what it was allowed before" } else { "" };
            writeln!(out, "{} may {}{again}", fingerprint(&key), describe(&rights))?;
            Ok(())
        }
        KeyCommand::Revoke { key, comment } => {
            let (key, note) = one_key(&key)?;
            let news = authorized::revoke(home, &key, &comment.unwrap_or(note))?;
            let again = if news { "" } else { ", as it was before" };
            writeln!(out, "{} is refused from now on{again}", fingerprint(&key))?;
            Ok(())
        }
    }
}

fn show(id: &Identity, out: &mut dyn Write) -> anyhow::Result<()> {
    let home = id.home().context("failed to show the key: it is kept nowhere")?;
    let note = keys::own_note(home, &id.public());
    writeln!(out, "{}", format!("{} {note}", key_text(&id.public())).trim_end())?;
    writeln!(out, "fingerprint {}", fingerprint(&id.public()))?;
    Ok(())
}

/// Letting in again what was thrown out wants a deliberate step.
fn not_revoked(home: &Home, key: &PublicKey, verb: &str) -> anyhow::Result<()> {
    if !authorized::revoked(home)?.contains(key) {
        return Ok(());
    }
    let failure = Exit::Usage.fail(format!("{verb} {}", fingerprint(key)), "the key is revoked here");
    bail!(failure.next(format!("if that was a mistake, remove its line from {}", home.path("revoked").display())))
}

/// The words behind the command are one key: `longhaul-ed25519 BASE64 [comment]`, quoted or not.
fn one_key(words: &[String]) -> Result<(PublicKey, String), IdentityError> {
    let line = words.join(" ");
    let (key, comment) = parse_key(&line).map_err(IdentityError::KeyText)?;
    Ok((key, clean_comment(comment)))
}

/// The folder under its real name, so that a link which is turned later does not move the confinement.
fn whole_root(root: PathBuf) -> Result<PathBuf, Failure> {
    let what = || format!("confine to {}", root.display());
    let next = "name a folder that is there; the daemon makes none";
    let real = std::fs::canonicalize(&root).map_err(|error| Exit::of_io(&error).fail(what(), error).next(next))?;
    if real.is_dir() { Ok(real) } else { Err(Exit::Usage.fail(what(), "it is not a folder").next(next)) }
}

fn describe(rights: &Rights) -> String {
    let what = match rights.access {
        Access::ReadWrite => "copy to and from",
        Access::ReadOnly => "copy from",
        Access::WriteOnly => "copy to",
    };
    let place = rights.root.as_ref().map_or("this host's daemon".to_owned(), |root| root.display().to_string());
    let rate =
        if rights.rate_bps > 0 { format!(", at most {}", units::exact_rate(rights.rate_bps)) } else { String::new() };
    format!("{what} {place}{rate}")
}

//! `longhaul ftp user`: who may log in by FTP, and as what.
//!
//! For: whoever runs the FTP door.
//! In and out: names and options; a password from the terminal, a file or a descriptor → lines of the list of users.
//! Invariants: no password is on the command line, where every process of the host reads it; none is printed but one that was made here, once.
//! Absent on purpose: the list itself (`node::ftp::users`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use node::ftp::Network;
use node::ftp::users::{self, User, Users, is_name, made_password};
use node::identity::Home;
use node::link::failure_of;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use text::exit::{Exit, Failure};
use text::units;

/// A password has no more bytes: a line of FTP has 4096.
const PASSWORD_BYTES_MAX: u64 = 1024;

/// What can be done with users.
#[derive(Debug, Clone, Subcommand)]
pub enum FtpUserCommand {
    /// Add a user, or give one other options and another password
    ///
    /// The password comes from the terminal, or as --password-file, --password-fd or --make-password say.
    Add(UserAddArguments),
    /// List the users and their options
    List,
    /// Remove a user: it cannot log in any more, and connections that it has stay
    Remove {
        /// The user's name
        name: String,
    },
}

/// `longhaul ftp user add`.
#[derive(Debug, Clone, Args)]
pub struct UserAddArguments {
    /// The user's name
    pub name: String,

    /// Show it this folder as its root; it lies below the server's root [default: the server's root]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// It may only read
    #[arg(long, conflicts_with = "wo")]
    pub ro: bool,

    /// It may only write
    #[arg(long)]
    pub wo: bool,

    /// Cap of each of its connections: 1Gbit, 80Mbit/s (bits) or 10MB/s (bytes) [default: the server's]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub rate: Option<u64>,

    /// It may speak FTP in clear from wherever it comes
    #[arg(long)]
    pub clear: bool,

    /// It may come from this network only: 192.168.1.0/24, or one address; several with commas
    #[arg(long, value_name = "NET", value_delimiter = ',')]
    pub from: Vec<Network>,

    /// Take the password from the first line of this file
    #[arg(long, value_name = "FILE", group = "password")]
    pub password_file: Option<PathBuf>,

    /// Take the password from the first line of this open descriptor
    #[arg(long, value_name = "N", group = "password")]
    pub password_fd: Option<u32>,

    /// Make a password and print it once
    #[arg(long, group = "password")]
    pub make_password: bool,
}

/// Runs `longhaul ftp user`.
///
/// # Errors
/// What the user is told.
pub fn run(command: &FtpUserCommand) -> Result<Exit, Failure> {
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let users = Users::at(&home.path(users::FILE)).map_err(failed("read the list of users"))?;
    match command {
        FtpUserCommand::Add(arguments) => add(&users, arguments),
        FtpUserCommand::List => {
            for user in users.list().map_err(failed("read the list of users"))? {
                println!("{}\t{}", user.name, user.options());
            }
            Ok(Exit::Whole)
        }
        FtpUserCommand::Remove { name } => {
            if users.remove(name).map_err(failed("remove the user"))? {
                println!("{name} is removed");
                return Ok(Exit::Whole);
            }
            let failure = Exit::Usage.fail("remove the user", format!("there is none of the name '{name}'"));
            Err(failure.next("see `longhaul ftp user list`"))
        }
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
    move |error| Exit::of_io(&error).fail(what, error)
}

fn add(users: &Users, arguments: &UserAddArguments) -> Result<Exit, Failure> {
    let name = &arguments.name;
    if !is_name(name) {
        let why = format!("'{name}' is no name of a user here: letters, digits and signs, at most 64");
        return Err(Exit::Usage.fail("add the user", why).next("name another"));
    }
    let rights = proto::ftp::session::Rights { read: !arguments.wo, write: !arguments.ro };
    let user = User {
        root: arguments.root.clone(),
        rate_bps: arguments.rate,
        clear: arguments.clear,
        from: arguments.from.clone(),
        ..User::new(name, rights)
    };
    let options = user.options();
    let password = password(arguments)?;
    users.set(user, Some(password.as_bytes())).map_err(failed("add the user"))?;
    println!("{name}\t{options}");
    if arguments.make_password {
        println!("password of {name}, said once: {password}");
    }
    Ok(Exit::Whole)
}

fn password(arguments: &UserAddArguments) -> Result<String, Failure> {
    let taken = match (&arguments.password_file, arguments.password_fd) {
        (Some(path), _) => File::open(path).and_then(first_line),
        // The kernel opens it anew, so no descriptor of ours is closed with it.
        (_, Some(number)) => File::open(format!("/proc/self/fd/{number}")).and_then(first_line),
        _ if arguments.make_password => made_password(),
        _ => from_terminal(&arguments.name),
    };
    let what = "take the password";
    let next = "give one by --password-file FILE, --password-fd N or --make-password, or type it at a terminal";
    match taken {
        Ok(password) if password.is_empty() => Err(Exit::Usage.fail(what, "it is empty").next(next)),
        Ok(password) => Ok(password),
        Err(error) => Err(Exit::of_io(&error).fail(what, error).next(next)),
    }
}

fn first_line(from: impl Read) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(from.take(PASSWORD_BYTES_MAX)).read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Asks twice, without showing what is typed.
fn from_terminal(name: &str) -> io::Result<String> {
    let terminal = File::options().read(true).write(true).open("/dev/tty")?;
    let before = tcgetattr(&terminal)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let ask = |what: &str| {
        write!(&terminal, "{what}")?;
        let line = first_line(&terminal);
        writeln!(&terminal)?;
        line
    };
    let both = ask(&format!("password of {name}: ")).and_then(|first| Ok((first, ask("once more: ")?)));
    tcsetattr(&terminal, OptionalActions::Now, &before)?;
    let (first, second) = both?;
    if first == second { Ok(first) } else { Err(io::Error::other("the two differ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_whatever_ends_it() {
        for (text, wanted) in [("a b\nc", "a b"), ("a\r\n", "a"), ("a", "a"), ("", ""), ("\n", "")] {
            assert_eq!(first_line(text.as_bytes()).unwrap(), wanted);
        }
        assert_eq!(first_line([b'x'; 5000].as_slice()).unwrap().len() as u64, PASSWORD_BYTES_MAX);
    }
}

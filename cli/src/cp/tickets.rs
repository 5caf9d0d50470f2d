//! Tickets that do not stand on the command line.
//!
//! For: `--ticket-file`, `LONGHAUL_TICKET`, and `longhaul://@host/`, which asks on the terminal.
//! In and out: a request in; the same with each ticket in its address out.
//! Invariants: a ticket is never printed, nor handed to a child; what a user has typed as an address stays as it is.
//! Absent on purpose: overwriting those that do stand there (main.rs), what a ticket is (identity::ticket).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use node::identity::ticket::{TICKET_VARIABLE as VARIABLE, Ticket};
use node::request::JobRequest;
use text::attempt::Attempt;
use text::exit::{Exit, Failure};

const SCHEME: &[u8] = b"longhaul://";
/// A ticket has 66 letters; a file of them is short.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Where a daemon's address has its ticket: the bytes between `longhaul://` and `@`. `None`: it is no such address, or has no `@`.
#[must_use]
pub fn place(word: &[u8]) -> Option<Range<usize>> {
    let begin = SCHEME.len();
    if word.len() < begin || !word[..begin].eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    let authority = word[begin..].split(|byte| *byte == b'/').next()?;
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    Some(begin..begin + at)
}

/// What a file or a variable with tickets holds.
const WANTED: &str = "put the whole address there that `longhaul serve --ticket` printed, or the ticket in it";

/// A ticket as a user keeps it: by itself, or in the address that `serve` printed.
fn read_one(word: &str) -> Result<Ticket, String> {
    let text = place(word.as_bytes()).map_or(word, |place| &word[place]);
    text.parse().map_err(|fault: node::identity::ticket::TicketFault| fault.to_string())
}

fn read_all(what: &str, text: &str) -> Result<Vec<Ticket>, Failure> {
    let words = text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
    let tickets: Result<Vec<Ticket>, String> = words.map(read_one).collect();
    match tickets {
        Ok(tickets) if tickets.is_empty() => Err(Exit::Usage.fail(what, "there is none in it").next(WANTED)),
        Ok(tickets) => Ok(tickets),
        Err(why) => Err(Exit::Usage.fail(what, why).next(WANTED)),
    }
}

fn of_file(path: &Path) -> Result<Vec<Ticket>, Failure> {
    let what = format!("read the ticket of {}", path.display());
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|error| Attempt::Listed.fail(what.clone(), &error))?;
    read_all(&what, &text)
}

/// One that is typed, unseen.
fn asked(host: &str) -> Result<Ticket, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let what = format!("ask for the ticket of {host}");
    let no_terminal = |error: std::io::Error| {
        Exit::Usage
            .fail(what.clone(), format!("there is no terminal: {error}"))
            .next(format!("name a file with --ticket-file, or set {VARIABLE}"))
    };
    let mut terminal = File::options().read(true).write(true).open("/dev/tty").map_err(no_terminal)?;
    let before = tcgetattr(&terminal).map_err(|errno| no_terminal(errno.into()))?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    // Before the question: what is typed after it would be thrown away with what was typed before it, and be seen.
    let _ = tcsetattr(&terminal, OptionalActions::Flush, &hidden);
    let _ = write!(terminal, "ticket for {host}: ");
    let mut line = String::new();
    let read = BufReader::new(&terminal).read_line(&mut line);
    let _ = tcsetattr(&terminal, OptionalActions::Flush, &before);
    let _ = writeln!(terminal);
    read.map_err(no_terminal)?;
    read_all(&what, &line).map(|mut tickets| tickets.swap_remove(0))
}

/// What stands between `@`, or `longhaul://`, and the path.
fn host_of(word: &[u8]) -> String {
    let from = place(word).map_or(SCHEME.len(), |place| place.end + 1);
    let host = word[from..].split(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(host).into_owned()
}

/// Which addresses want a ticket: those with an empty one; if there is none of these, and tickets were given, all daemons' without one.
fn wanting(words: &[&mut OsString], given: bool) -> Vec<usize> {
    let is = |at: usize, test: &dyn Fn(&[u8]) -> bool| test(words[at].as_bytes());
    let empty = |word: &[u8]| place(word).is_some_and(|place| place.is_empty());
    let without = |word: &[u8]| {
        word.len() >= SCHEME.len() && word[..SCHEME.len()].eq_ignore_ascii_case(SCHEME) && place(word).is_none()
    };
    let asking: Vec<usize> = (0..words.len()).filter(|at| is(*at, &empty)).collect();
    if !asking.is_empty() || !given {
        return asking;
    }
    (0..words.len()).filter(|at| is(*at, &without)).collect()
}

/// The request with all tickets in their addresses: of the file, else of the variable, else asked for.
///
/// # Errors
/// A file or variable that cannot be read, too few tickets, no terminal.
pub fn filled(mut request: JobRequest, file: Option<&Path>) -> Result<JobRequest, Failure> {
    let of_variable = || std::env::var(VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let given = match (file, of_variable()) {
        (Some(path), _) => Some(of_file(path)?),
        (None, Some(text)) => Some(read_all(&format!("read {VARIABLE}"), &text)?),
        (None, None) => None,
    };
    let mut words: Vec<&mut OsString> = request.sources.iter_mut().chain(&mut request.destinations).collect();
    let wanting = wanting(&words, given.is_some());
    let mut known: Vec<(String, Ticket)> = Vec::new();
    for at in wanting {
        let word = words[at].as_bytes();
        let host = host_of(word);
        let found = known.iter().find(|(name, _)| *name == host).map(|(_, ticket)| ticket.clone());
        let ticket = match (found, &given) {
            (Some(ticket), _) => ticket,
            (None, Some(all)) => all.get(known.len()).cloned().ok_or_else(|| {
                Exit::Usage
                    .fail(
                        format!("find the ticket of {host}"),
                        format!("{} were given, and it is the next one", all.len()),
                    )
                    .next("give one for each daemon without one of its own, in the order of the addresses")
            })?,
            (None, None) => asked(&host)?,
        };
        *words[at] = put(word, &ticket);
        known.push((host, ticket));
        known.dedup_by(|one, other| one.0 == other.0);
    }
    Ok(request)
}

fn put(word: &[u8], ticket: &Ticket) -> OsString {
    let begin = SCHEME.len();
    let rest = place(word).map_or(begin, |place| place.end + 1);
    let mut address = word[..begin].to_vec();
    address.extend_from_slice(ticket.to_string().as_bytes());
    address.push(b'@');
    address.extend_from_slice(&word[rest..]);
    OsString::from_vec(address)
}

/// What of a word of the command line is secret.
#[must_use]
pub fn secret(word: &OsStr) -> Option<Range<usize>> {
    place(word.as_bytes()).or_else(|| password(word.as_bytes())).filter(|place| !place.is_empty())
}

/// Where an address of FTP has its password: between `:` and the last `@` of what stands before the path.
fn password(word: &[u8]) -> Option<Range<usize>> {
    let begins = |scheme: &[u8]| word.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme));
    let begin = [&b"ftp://"[..], b"ftps://"].into_iter().find(|scheme| begins(scheme))?.len();
    let authority = word[begin..].split(|byte| *byte == b'/').next()?;
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    let colon = authority[..at].iter().position(|byte| *byte == b':')?;
    Some(begin + colon + 1..begin + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    fn all_filled(words: &[&str]) -> Result<Vec<OsString>, Failure> {
        let line = ["longhaul", "cp"].into_iter().chain(words.iter().copied());
        let arguments = match Arguments::try_parse_from(line).expect("a good line").command {
            Command::Cp(arguments) => *arguments,
            other => panic!("{other:?}"),
        };
        let request = filled(arguments.request().expect("good paths"), arguments.ticket_file.as_deref())?;
        Ok(request.addresses().cloned().collect())
    }

    #[test]
    fn tickets_of_a_file_go_to_the_addresses_that_ask_in_their_order() {
        let server = || node::identity::Identity::ephemeral().expect("a key").public();
        let [one, two] = [1, 2].map(|secret| Ticket { server_key: server(), secret: [secret; 16] });
        let path = std::env::temp_dir().join(format!("longhaul-tickets-{}", std::process::id()));
        std::fs::write(&path, format!("# of last week\nlonghaul://{one}@0.0.0.0:5740/\n{two}\n")).expect("written");
        let file = format!("--ticket-file={}", path.display());
        let of = |words: &[&str]| all_filled(&[&[file.as_str()], words].concat());
        let text = |ticket: &Ticket, rest: &str| OsString::from(format!("longhaul://{ticket}@{rest}"));
        let paths = of(&["longhaul://@a:1/x", "longhaul://@a:1/y", "longhaul://@b/z"]).expect("two tickets");
        assert_eq!(paths, [text(&one, "a:1/x"), text(&one, "a:1/y"), text(&two, "b/z")]);
        let paths = of(&["x/@y", "longhaul://a"]).expect("one is wanted");
        assert_eq!(paths, [OsString::from("x/@y"), text(&one, "a")], "an address without `@`, where none asks");
        let paths = of(&["longhaul://a/x", "longhaul://@b/"]).expect("one is wanted");
        assert_eq!(paths, [OsString::from("longhaul://a/x"), text(&one, "b/")], "one that does not ask has a key");
        let own = format!("longhaul://{two}@c/");
        assert_eq!(of(&["x", &own]).expect("none is wanted")[1], OsString::from(&own));
        let failure = of(&["longhaul://@a/x", "longhaul://@b/", "longhaul://@c/"]).expect_err("too few");
        assert_eq!(failure.exit, Exit::Usage);
        assert!(!format!("{failure}").contains(&one.to_string()), "{failure}");
        std::fs::write(&path, "nonsense").expect("written");
        assert_eq!(of(&["x", "longhaul://@a/"]).expect_err("no ticket").exit, Exit::Usage);
        std::fs::remove_file(path).expect("it is there");
    }

    #[test]
    fn only_the_ticket_of_an_address_is_secret() {
        let secret = |word: &str| secret(OsStr::new(word)).map(|range| word[range].to_owned());
        assert_eq!(secret("longhaul://abc@h:1/a@b").as_deref(), Some("abc"));
        assert_eq!(secret("LONGHAUL://abc@h").as_deref(), Some("abc"));
        assert_eq!(secret("ftp://ada:pass@word@h:21/x@y").as_deref(), Some("pass@word"));
        for open in [
            "ftp://ada@h/x:y@z",
            "ftps://h/",
            "longhaul://h/a@b",
            "longhaul://@h/",
            "me@h:x",
            "--rate",
            "",
            "longhaul:/",
        ] {
            assert_eq!(secret(open), None, "{open}");
        }
    }
}

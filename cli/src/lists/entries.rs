//! `longhaul ls`: what is at a path, here or elsewhere.
//!
//! For: seeing what can be copied, before it is.
//! In and out: an address → one line for each entry of a folder, or for a file; with `--json` one object to a line.
//! Invariants: names reach a terminal without control characters, and a program byte by byte; order is by name, path by path; what is kept to put it in
//! order is bounded, and where that is not enough nothing is left out in silence.
//! Absent on purpose: finding entries (`node::client::list`), colours, columns as wide as their longest cell: a list may have no end.

use std::ffi::OsString;
use std::io::{BufWriter, StdoutLock, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use node::address::Address;
use node::client::Node;
use node::client::list::{Found, ListRequest, Take, of_this_host};
use node::identity::Home;
use node::link::failure_of;
use node::report::{PathFault, show_path};
use node::request::{JobRequest, Ports};
use proto::manifest::{Entry, EntryKind, NodeKind};
use serde::Serialize;
use text::exit::{Exit, Failure};
use text::time::show_utc;

use crate::cp::tickets;
use crate::report::json::hex;
use crate::report::{Mode, Screen};

/// What may wait to be put in order: some four million entries of a short name. Whoever sends without end fills no more.
const SORTED_BYTES_MAX: usize = 1 << 30;
/// So many places that could not be looked at are named, the others counted.
const FAULTS_MAX: usize = 1000;
/// What an entry takes beside its path and its line: two lengths, two addresses, and what an allocator adds.
const ENTRY_BYTES: usize = 96;

/// `longhaul ls`.
#[derive(Debug, Clone, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ListArguments {
    /// What to list: a path, [user@]host:path, or longhaul://[ticket@]host[:port]/path
    #[arg(value_name = "ADDRESS", default_value = ".")]
    pub address: OsString,

    /// Say more of each: mode, owner, group, size in bytes, time of the last change (UTC), where a link leads
    #[arg(long, short = 'l')]
    pub long: bool,

    /// List what is in the folders below it, too
    #[arg(long, short = 'R')]
    pub recursive: bool,

    /// In the order in which they are found, each at once: nothing is kept in memory
    #[arg(long, short = 'U')]
    pub unsorted: bool,

    /// Print one JSON object per line instead of text; the last one has "event":"done"
    #[arg(long)]
    pub json: bool,

    /// Command that reaches another host, split at blanks [default: ssh]
    #[arg(long, value_name = "CMD")]
    pub ssh: Option<String>,

    /// The longhaul binary on the other host [default: found there, or this one is copied there]
    #[arg(long, value_name = "PATH")]
    pub remote_binary: Option<String>,

    /// Ports, TCP and UDP, of which the far side that ssh starts takes a free one: 50000-50010 [default: any free port]
    #[arg(long, value_name = "FIRST-LAST", value_parser = Ports::from_str)]
    pub far_port: Option<Ports>,

    /// Read the ticket from this file, as `cp` does
    #[arg(long, value_name = "FILE")]
    pub ticket_file: Option<PathBuf>,
}

/// Shown below the options.
const AFTER_HELP: &str = "\
Examples:
  longhaul ls longhaul://TICKET@10.0.0.2:5740/        what a daemon serves
  longhaul ls -lR backup:/data/                        a tree on a host that ssh reaches
A folder is listed, a file named; folders have a `/` at their end. Names that begin with a dot are listed, links are not followed, and
what copies leave unfinished (.longhaul-*.part and the like) is left out, as a copy would leave it out. A key or ticket that may only write
(wo) may not list. Control characters and bytes that are not UTF-8 are shown as \\xNN; --json has the exact bytes in path_hex.";

/// An entry of `--json`.
#[derive(Debug, Serialize)]
struct Listed {
    event: &'static str,
    /// Below what was named; `.`: that itself.
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    /// `file`, `folder`, `link`, `fifo`, `socket`, `char` or `block`.
    kind: &'static str,
    bytes: u64,
    /// Octal digits, as chmod takes them.
    mode: String,
    uid: Option<u32>,
    gid: Option<u32>,
    /// `null`: the number has no name there.
    owner: Option<String>,
    group: Option<String>,
    mtime_unix_s: i64,
    mtime_ns: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

/// The last line of `--json`.
#[derive(Debug, Serialize)]
struct Done {
    event: &'static str,
    entries: u64,
    failed: u64,
    exit: u8,
    exit_kind: &'static str,
}

/// Runs `longhaul ls`.
#[must_use]
pub fn run(arguments: &ListArguments) -> Exit {
    let mut screen = Screen::new(Mode::choose(arguments.json));
    let mut list = List::new(arguments);
    match all(arguments, &mut screen, &mut list).and_then(|exit| list.end(exit)) {
        Ok(exit) => exit,
        Err(failure) => screen.fail(&failure),
    }
}

/// Lists all of it; what could not be looked at is named when all else was found.
fn all(arguments: &ListArguments, screen: &mut Screen, list: &mut List<'_>) -> Result<Exit, Failure> {
    let request = JobRequest::copy([&arguments.address], ".").build();
    let mut request = tickets::filled(request, arguments.ticket_file.as_deref())?;
    let address = request.sources.swap_remove(0);
    let mut faults = Vec::new();
    let take: Take<'_> = &mut |found| match found {
        Found::Entry { entry, owner, group } => list.entry(entry, owner, group),
        Found::Unseen { fault, path } => {
            list.failed += 1;
            if faults.len() < FAULTS_MAX {
                faults.push(PathFault { fault: fault.clone(), path: path.to_vec(), is_peers: true });
            }
            ControlFlow::Continue(())
        }
    };
    let exit = match Address::of(&address)? {
        Address::Local(path) => of_this_host(&path, arguments.recursive, take),
        _ => far(arguments, address, screen, take),
    };
    faults.iter().for_each(|fault| screen.fault(fault));
    if list.failed > faults.len() as u64 {
        screen.note(&format!("{} more could not be looked at", list.failed - faults.len() as u64));
    }
    exit
}

fn far(arguments: &ListArguments, address: OsString, screen: &mut Screen, take: Take<'_>) -> Result<Exit, Failure> {
    let home = Home::find().map_err(|error| failure_of("find LONGHAUL_HOME", &error.into()))?;
    let node = Node::open_and_tell(&home, |why| screen.detail(why))?
        .bringing("/proc/self/exe")
        .on_ssh_line(|line| eprintln!("{line}"));
    let request = ListRequest {
        address,
        recursive: arguments.recursive,
        ssh: arguments.ssh.clone(),
        remote_binary: arguments.remote_binary.clone(),
        far_ports: arguments.far_port,
    };
    node.list(&request, screen, take)
}

/// Lines on their way to standard output.
struct List<'a> {
    arguments: &'a ListArguments,
    out: BufWriter<StdoutLock<'static>>,
    /// Path and line of each, until they are in order.
    waiting: Vec<(Box<[u8]>, Box<str>)>,
    waiting_bytes: usize,
    entries: u64,
    failed: u64,
    /// Why no more is written.
    over: Option<std::io::Error>,
}

impl<'a> List<'a> {
    fn new(arguments: &'a ListArguments) -> List<'a> {
        let out = BufWriter::new(std::io::stdout().lock());
        List { arguments, out, waiting: Vec::new(), waiting_bytes: 0, entries: 0, failed: 0, over: None }
    }

    fn entry(&mut self, entry: &Entry, owner: Option<&[u8]>, group: Option<&[u8]>) -> ControlFlow<()> {
        // A folder is what was asked for, not an answer.
        if entry.path.is_empty() && entry.kind == EntryKind::Folder {
            return ControlFlow::Continue(());
        }
        self.entries += 1;
        let line = match (self.arguments.json, self.arguments.long) {
            (true, _) => json(entry, owner, group),
            (false, true) => long(entry, owner, group, &self.name(entry)),
            (false, false) => self.name(entry),
        };
        if self.arguments.unsorted {
            self.over = writeln!(self.out, "{line}").err();
        } else {
            self.waiting_bytes += line.len() + entry.path.len() + ENTRY_BYTES;
            self.waiting.push((entry.path.clone(), line.into()));
        }
        if self.over.is_some() || self.waiting_bytes > SORTED_BYTES_MAX {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Below what was named; a file that was named, as the user wrote it.
    fn name(&self, entry: &Entry) -> String {
        let mut name = match &*entry.path {
            b"" => Address::of(&self.arguments.address).map_or_else(|_| ".".to_owned(), |it| it.to_string()),
            path => show_path(path),
        };
        if entry.kind == EntryKind::Folder {
            name.push('/');
        }
        name
    }

    /// Writes what waits, in order, and how it went.
    fn end(&mut self, exit: Exit) -> Result<Exit, Failure> {
        if self.waiting_bytes > SORTED_BYTES_MAX {
            let cause = format!("{} entries are more than this end keeps to put them in order", self.entries);
            return Err(Exit::Partial
                .fail("list what is there", cause)
                .next("list it with -U, in the order of its folders"));
        }
        self.waiting.sort_unstable_by(|(one, _), (other, _)| by_name(one, other));
        for (_, line) in &self.waiting {
            if self.over.is_none() {
                self.over = writeln!(self.out, "{line}").err();
            }
        }
        if self.arguments.json && self.over.is_none() {
            let (entries, failed, line) = (self.entries, self.failed, exit.line());
            let done = Done { event: "done", entries, failed, exit: exit.code(), exit_kind: line.word };
            self.over = writeln!(self.out, "{}", text_of(&done)).err();
        }
        match self.over.take().or_else(|| self.out.flush().err()) {
            // Whoever reads has enough (`ls … | head`).
            Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Exit::of_io(&error).fail("write the list", error))
            }
            _ => Ok(exit),
        }
    }
}

/// By bytes, component by component: what is in a folder follows the folder.
fn by_name(one: &[u8], other: &[u8]) -> std::cmp::Ordering {
    one.split(|&byte| byte == b'/').cmp(other.split(|&byte| byte == b'/'))
}

fn text_of(record: &impl Serialize) -> String {
    serde_json::to_string(record).expect("records have text keys and finite depth")
}

/// As text, and as hex digits where text could not hold it.
fn exact(bytes: &[u8]) -> (String, Option<String>) {
    let text = show_path(bytes);
    let is_exact = text.as_bytes() == bytes || bytes.is_empty();
    (text, (!is_exact).then(|| hex(bytes)))
}

fn json(entry: &Entry, owner: Option<&[u8]>, group: Option<&[u8]>) -> String {
    let (path, path_hex) = exact(&entry.path);
    let (target, target_hex) = match &entry.kind {
        EntryKind::Link { target } => {
            let (text, hex) = exact(target);
            (Some(text), hex)
        }
        _ => (None, None),
    };
    text_of(&Listed {
        event: "entry",
        path,
        path_hex,
        kind: word(&entry.kind).1,
        bytes: entry.bytes(),
        mode: format!("{:04o}", entry.mode),
        uid: entry.meta.uid,
        gid: entry.meta.gid,
        owner: owner.map(show_path),
        group: group.map(show_path),
        mtime_unix_s: entry.mtime_s,
        mtime_ns: entry.mtime_ns,
        target,
        target_hex,
    })
}

/// A kind's letter and word.
fn word(kind: &EntryKind) -> (char, &'static str) {
    match kind {
        EntryKind::Folder | EntryKind::FolderEnd => ('d', "folder"),
        EntryKind::Link { .. } => ('l', "link"),
        EntryKind::Node { kind: NodeKind::Fifo, .. } => ('p', "fifo"),
        EntryKind::Node { kind: NodeKind::Socket, .. } => ('s', "socket"),
        EntryKind::Node { kind: NodeKind::Char, .. } => ('c', "char"),
        EntryKind::Node { kind: NodeKind::Block, .. } => ('b', "block"),
        EntryKind::File { .. } | EntryKind::Name { .. } => ('-', "file"),
    }
}

fn long(entry: &Entry, owner: Option<&[u8]>, group: Option<&[u8]>, name: &str) -> String {
    let of = |name: Option<&[u8]>, id: Option<u32>| {
        name.map(show_path).or_else(|| id.map(|id| id.to_string())).unwrap_or_else(|| super::UNKNOWN.to_owned())
    };
    let size = match &entry.kind {
        EntryKind::Node { kind: NodeKind::Char | NodeKind::Block, major, minor } => format!("{major}, {minor}"),
        kind if word(kind).0 == '-' => entry.bytes().to_string(),
        _ => super::UNKNOWN.to_owned(),
    };
    let time = u64::try_from(entry.mtime_s).map_or_else(|_| format!("{} s", entry.mtime_s), show_utc);
    let target = match &entry.kind {
        EntryKind::Link { target } => format!(" -> {}", show_path(target)),
        _ => String::new(),
    };
    let (owner, group) = (of(owner, entry.meta.uid), of(group, entry.meta.gid));
    format!("{} {owner:<8} {group:<8} {size:>13} {time:<19} {name}{target}", mode(entry))
}

/// As ls(1) writes it.
fn mode(entry: &Entry) -> String {
    let mut text = String::from(word(&entry.kind).0);
    let special = [(0o4000, 's', 'S'), (0o2000, 's', 'S'), (0o1000, 't', 'T')];
    for (at, (bit, with, without)) in special.into_iter().enumerate() {
        let of = entry.mode >> (6 - 3 * at) & 0o7;
        text.push(if of & 4 != 0 { 'r' } else { '-' });
        text.push(if of & 2 != 0 { 'w' } else { '-' });
        text.push(match (entry.mode & bit != 0, of & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => with,
            (true, false) => without,
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::manifest::Meta;

    fn entry(path: &[u8], kind: EntryKind, mode: u32) -> Entry {
        let meta = Meta { uid: Some(1000), gid: Some(7), ..Meta::default() };
        Entry { id: 1, path: path.into(), kind, mode, mtime_s: 951_782_399, mtime_ns: 5, meta }
    }

    #[test]
    fn a_line_has_mode_owner_size_time_and_target_and_steers_no_terminal() {
        let file = entry(b"a\x1b[31m\xff", EntryKind::File { bytes: 12 }, 0o4755);
        let line = long(&file, Some(b"ann\x07"), None, &show_path(&file.path));
        assert_eq!(line, "-rwsr-xr-x ann\\x07  7                   12 2000-02-28 23:59:59 a\\x1b[31m\\xff");
        let link = entry(b"l", EntryKind::Link { target: (*b"to\n").into() }, 0o777);
        let line = long(&link, Some(b"ann"), Some(b"lab"), "l");
        assert_eq!(line, "lrwxrwxrwx ann      lab                  - 2000-02-28 23:59:59 l -> to\\x0a");
        let node = EntryKind::Node { kind: NodeKind::Block, major: 8, minor: 1 };
        assert!(
            long(&entry(b"sda1", node, 0o1660), None, None, "sda1")
                .contains("brw-rw---T 1000     7                 8, 1")
        );
        let before = Entry { mtime_s: -5, ..entry(b"old", EntryKind::Folder, 0o2750) };
        assert!(long(&before, None, None, "old/").ends_with("-5 s                old/"));
        assert!(mode(&before).starts_with("drwxr-s---"));
    }

    #[test]
    fn an_object_has_the_exact_bytes_where_text_could_not_hold_them() {
        let file = entry(b"a\xff", EntryKind::File { bytes: 12 }, 0o644);
        let of: serde_json::Value = serde_json::from_str(&json(&file, Some(b"ann"), None)).expect("an object");
        assert_eq!((&of["path"], &of["path_hex"]), (&"a\\xff".into(), &"61ff".into()));
        assert_eq!((&of["owner"], of["group"].is_null(), &of["gid"]), (&"ann".into(), true, &7.into()));
        assert_eq!((&of["mode"], &of["bytes"], &of["kind"]), (&"0644".into(), &12.into(), &"file".into()));
        // A name that looks like an escaped one is told apart by the bytes.
        let plain = entry(b"a\\xff", EntryKind::Link { target: (*b"x\xfe").into() }, 0o777);
        let of: serde_json::Value = serde_json::from_str(&json(&plain, None, None)).expect("an object");
        assert!(of.get("path_hex").is_none() && of["path"] == "a\\xff" && of["target_hex"] == "78fe", "{of}");
    }

    #[test]
    fn order_is_by_name_and_what_is_in_a_folder_follows_it() {
        let mut paths = ["b", "a-b", "a/c", "a", "a/b/c", "A"];
        paths.sort_by(|one, other| by_name(one.as_bytes(), other.as_bytes()));
        assert_eq!(paths, ["A", "a", "a/b/c", "a/c", "a-b", "b"]);
    }
}

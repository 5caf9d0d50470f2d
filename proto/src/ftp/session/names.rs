//! What is done with names: folders, facts, digests.
//!
//! For: CWD, MKD, RMD, DELE, RNFR, RNTO, SIZE, MDTM, MLST, MFMT, MFF, HASH, AVBL, SITE, STAT.
//! In and out: commands → tasks; outcomes → replies.
//! Invariants: a name is resolved beneath the root before it is in a task; who may not read or write is refused before.
//! Absent on purpose: files.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::fault::Fault;
use super::{Action, Doing, Outcome, Session, Task};
use crate::ftp::command::{Digest, NewFacts, Part, Verb};
use crate::ftp::facts::{self, Kind};
use crate::ftp::reply::{Reply, quoted};
use crate::ftp::{path, time};

/// What a task is done for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// ALLO.
    Allocate(u64),
    /// CWD.
    Enter(Vec<u8>),
    /// MKD.
    Make(Vec<u8>),
    /// What ends with 250 and these words.
    Change(&'static str),
    /// RNFR.
    RenameFrom(Vec<u8>),
    /// SIZE, AVBL.
    Bytes,
    /// MDTM.
    Modified,
    /// MLST.
    FactsOf(Vec<u8>),
    /// STAT of a name.
    Status(Vec<u8>),
    /// MFMT, MFF, SITE.
    Set(Verb, NewFacts, Vec<u8>),
    /// HASH and those before it; the name as it was asked, which has its place in the reply of HASH alone.
    Hash(Digest, u64, Option<Vec<u8>>),
}

impl Session {
    /// A name beneath the root.
    pub(super) fn path(&self, name: &[u8]) -> Result<Vec<u8>, Reply> {
        path::resolve(&self.cwd, name, self.terms.hidden)
            .ok_or_else(|| Reply::new(553, "No file can have that name here."))
    }

    pub(super) fn need(&self, read: bool, write: bool) -> Result<(), Reply> {
        let rights = self.rights();
        match (read && !rights.read, write && !rights.write) {
            (false, false) => Ok(()),
            (_, true) => Err(Reply::new(550, "You may read here, and change nothing.")),
            (true, _) => Err(Reply::new(550, "You may write here, and read nothing.")),
        }
    }

    pub(super) fn work(&mut self, asked: Asked, task: Task) -> Result<(), Reply> {
        self.act(Action::Work(task));
        self.doing = Doing::Working(asked);
        Ok(())
    }

    pub(super) fn on_name(&mut self, verb: Verb, name: &[u8]) -> Result<(), Reply> {
        use Verb as V;
        match verb {
            V::MakeFolder => self.need(false, true)?,
            V::RemoveFolder | V::Delete | V::RenameFrom => self.need(true, true)?,
            V::FactsOf => self.need(true, false)?,
            V::Status if name.is_empty() => {
                return Err(Reply::new(211, "A transfer's rate is told by your client; LIST lists."));
            }
            V::Status => self.need(true, false)?,
            _ => {}
        }
        let path = self.path(name)?;
        if path.is_empty() && matches!(verb, V::RemoveFolder | V::Delete | V::RenameFrom) {
            return Err(Reply::new(550, "The root stays."));
        }
        let (asked, task) = match verb {
            V::ChangeFolder | V::Up => (Asked::Enter(path.clone()), Task::Enter(path)),
            V::MakeFolder => (Asked::Make(path.clone()), Task::MakeFolder(path)),
            V::RemoveFolder => (Asked::Change("Gone."), Task::RemoveFolder(path)),
            V::Delete => (Asked::Change("Gone."), Task::RemoveFile(path)),
            V::RenameFrom => (Asked::RenameFrom(path.clone()), Task::Facts(path)),
            V::Size => (Asked::Bytes, Task::Size { path, parts: self.rights().write }),
            V::Modified => (Asked::Modified, Task::Facts(path)),
            V::FactsOf => (Asked::FactsOf(path.clone()), Task::Facts(path)),
            V::Status => (Asked::Status(path.clone()), Task::Facts(path)),
            _ => (Asked::Bytes, Task::Space(path)),
        };
        self.work(asked, task)
    }

    pub(super) fn rename(&mut self, from: Option<Vec<u8>>, to: &[u8]) -> Result<(), Reply> {
        self.need(true, true)?;
        let from = from.ok_or_else(|| Reply::new(503, "RNFR first."))?;
        let to = self.path(to)?;
        if to.is_empty() {
            return Err(Reply::new(550, "The root stays."));
        }
        self.work(Asked::Change("Renamed."), Task::Rename { from, to })
    }

    pub(super) fn set(&mut self, verb: Verb, facts: NewFacts, name: &[u8]) -> Result<(), Reply> {
        self.need(facts.mode.is_some(), true)?;
        let path = self.path(name)?;
        self.work(Asked::Set(verb, facts, path.clone()), Task::Set(path, facts))
    }

    pub(super) fn hash(&mut self, digest: Option<Digest>, part: Part, name: &[u8]) -> Result<(), Reply> {
        self.need(true, false)?;
        let path = self.path(name)?;
        let asked = Asked::Hash(digest.unwrap_or(self.digest), part.from, digest.is_none().then(|| name.to_vec()));
        self.work(asked, Task::Hash(path, digest.unwrap_or(self.digest), part))
    }

    /// What came of `Work`.
    pub fn on_done(&mut self, now_ns: u64, outcome: Result<Outcome, Fault>) {
        self.now_ns = now_ns;
        let Doing::Working(asked) = core::mem::replace(&mut self.doing, Doing::Idle) else { return };
        let reply = match outcome {
            Ok(outcome) => self.outcome(asked, outcome),
            Err(fault) => {
                self.has_stopped |= fault == Fault::Aborted;
                fault.reply()
            }
        };
        self.end(&reply);
    }

    fn outcome(&mut self, asked: Asked, outcome: Outcome) -> Reply {
        match (asked, outcome) {
            (Asked::Allocate(bytes), Outcome::Bytes(free)) if free < bytes => {
                Reply::new(452, format!("The server's disk has {free} bytes free."))
            }
            (Asked::Allocate(bytes), _) => {
                self.announced = Some(bytes);
                Reply::new(200, "There is room.")
            }
            (Asked::Enter(path), _) => {
                self.cwd = path;
                Reply::new(250, "You are there.")
            }
            (Asked::Make(path), _) => Reply::of_bytes(257, [&quoted(&path)[..], b" made."].concat()),
            (Asked::Change(words), _) => Reply::new(250, words),
            (Asked::RenameFrom(path), _) => {
                self.rename_from = Some(path);
                Reply::new(350, "RNTO?")
            }
            (Asked::Bytes, Outcome::Bytes(bytes)) => Reply::new(213, bytes.to_string()),
            (Asked::Modified, Outcome::Facts(facts)) => Reply::new(213, time::written(facts.mtime_s)),
            (Asked::FactsOf(path), Outcome::Facts(facts)) => {
                let mut line = Vec::new();
                facts::write(&mut line, &facts, self.wanted, self.rights().write);
                line.push(b'/');
                line.extend_from_slice(&path);
                Reply::of_lines(250, "Facts:", [line], "End")
            }
            (Asked::Status(path), Outcome::Facts(facts)) => {
                let mut line = Vec::new();
                facts::write_long(&mut line, &path, &facts, i64::MAX);
                let code = if facts.kind == Kind::Folder { 212 } else { 213 };
                Reply::of_lines(code, "Status:", [line], "LIST lists.")
            }
            (Asked::Set(verb, facts, path), _) => was_set(verb, facts, &path),
            (Asked::Hash(digest, from, name), Outcome::Digest(hex, to)) => match name {
                Some(name) => {
                    let head = format!("{} {from}-{to} {hex} ", digest.name());
                    Reply::of_bytes(213, [head.as_bytes(), &name].concat())
                }
                None => Reply::new(250, hex),
            },
            _ => Reply::new(451, "The server failed: it answered something else."),
        }
    }
}

/// The replies of MFMT and MFF tell what was set (draft-somers-ftp-mfxx section 3).
fn was_set(verb: Verb, facts: NewFacts, path: &[u8]) -> Reply {
    if verb == Verb::Site {
        return Reply::new(200, "Set.");
    }
    let mut text = Vec::new();
    if let Some(mtime_s) = facts.mtime_s {
        text.extend_from_slice(format!("Modify={};", time::written(mtime_s)).as_bytes());
    }
    if let Some(mode) = facts.mode {
        text.extend_from_slice(format!("UNIX.mode={mode:04o};").as_bytes());
    }
    text.extend_from_slice(b" /");
    text.extend_from_slice(path);
    Reply::of_bytes(213, text)
}

//! A file system in memory that can lose power.
//!
//! For: source and sink of simulated jobs; what is written and what is durable are two things.
//! In and out: path calls as `sys::fs` has them; `power_cut` and `die_at` by the scenario.
//! Invariants: content is durable per sector of 4 KiB once `sync_data` returned, names and links once `sync_names` returned; names that
//! were not made durable survive a cut as a prefix of what was done (one log, as ext4, XFS and btrfs keep it); after `die_at` calls
//! nothing changes any more.
//! Absent on purpose: caches, permissions of users.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proto::manifest::NodeKind;

use crate::rng::Rng;

pub(crate) const SECTOR: usize = 4096;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EDQUOT: i32 = 122;

/// Virtual nanoseconds, shared by everything.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock(Arc<AtomicU64>);

impl Clock {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    pub(crate) fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::Relaxed);
    }
}

/// What a file holds, and what it held when it was last durable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    pub(crate) data: Vec<u8>,
    /// Sectors written since the last sync, with what was there before (None: zeros).
    undo: BTreeMap<usize, Option<Box<[u8]>>>,
    durable_len: usize,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    File(Content),
    Folder,
    Link(Box<[u8]>),
    Node(NodeKind, u32, u32),
}

/// Owner, group, and one attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) note: Option<Box<[u8]>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) mtime: (i64, u32),
    pub(crate) carried: Carried,
    durable: (u32, (i64, u32), Carried),
}

impl Node {
    fn new(kind: Kind, mode: u32, mtime: (i64, u32)) -> Node {
        Node { kind, mode, mtime, carried: Carried::default(), durable: (mode, mtime, Carried::default()) }
    }

    fn settle(&mut self) {
        self.durable = (self.mode, self.mtime, self.carried.clone());
    }
}

/// What goes wrong, in permille of calls while `now` lies in the span.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    pub(crate) from_ns: u64,
    pub(crate) until_ns: u64,
    pub(crate) eio: u64,
    pub(crate) short: u64,
    /// Bytes that still fit while the span lasts; None: all.
    pub(crate) room: Option<u64>,
    /// What stops at the room is the user's quota, not the disk.
    pub(crate) quota: bool,
    /// Paths whose opening is denied.
    pub(crate) denied: BTreeSet<Box<[u8]>>,
}

type Ino = usize;
type Path = Box<[u8]>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) nodes: Vec<Node>,
    names: BTreeMap<Path, Ino>,
    log: Vec<Vec<(Path, Option<Ino>)>>, // each op: names and what they were before
    pub(crate) faults: Faults,
    /// From this time on every op by an engine of its own (O_DIRECT, DONTCACHE) has this error: the file system cannot do it.
    pub(crate) refuses: Option<(u64, i32)>,
    /// It did: files opened later do not ask again.
    pub(crate) refused: bool,
    pub(crate) die_at: Option<u64>,
    ops: u64,
    changes: u64,
    pub(crate) dead: bool,
    /// A part was opened for chunks that are not whole.
    pub(crate) loose: bool,
    /// Changes with each boot.
    pub(crate) boot: u64,
    /// Lock files, with the run that holds each.
    claims: BTreeMap<Path, u64>,
    /// How many runs began here, and those of them that were killed.
    runs: u64,
    pub(crate) killed: BTreeSet<u64>,
    /// Names that content appeared under since the checker last looked.
    pub(crate) renamed: Vec<Path>,
}

fn no(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

pub(crate) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |slash| &path[..slash])
}

impl Disk {
    pub(crate) fn new(clock: Clock, rng: Rng) -> Self {
        let root = Node::new(Kind::Folder, 0o755, (1_600_000_000, 0));
        Disk {
            clock,
            rng,
            nodes: vec![root],
            names: BTreeMap::from([(Path::default(), 0)]),
            log: Vec::new(),
            faults: Faults::default(),
            refuses: None,
            refused: false,
            die_at: None,
            ops: 0,
            changes: 0,
            dead: false,
            loose: false,
            boot: 1,
            claims: BTreeMap::new(),
            runs: 0,
            killed: BTreeSet::new(),
            renamed: Vec::new(),
        }
    }

    fn time(&self) -> (i64, u32) {
        let now = self.clock.now();
        (1_700_000_000 + (now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32)
    }

    /// A job begins to write here: its number.
    pub(crate) fn begin_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    /// A job's process is gone, with the locks that it had.
    pub(crate) fn end_run(&mut self, run: u64, killed: bool) {
        let before = self.claims.len();
        self.claims.retain(|_, holder| *holder != run);
        // As `Runs::end`: one that leaves a large part to the next run is remembered as one that was killed is.
        if killed || self.claims.len() < before {
            self.killed.insert(run);
        }
    }

    /// Takes a lock for a run: `None`, it is another's; else whether it is new.
    pub(crate) fn claim(&mut self, name: Path, run: u64) -> Option<bool> {
        let holder = *self.claims.entry(name.clone()).or_insert(0);
        if holder != 0 && holder != run {
            return None;
        }
        self.claims.insert(name, run);
        Some(holder == 0)
    }

    pub(crate) fn unclaim(&mut self, name: &[u8]) {
        self.claims.remove(name);
    }

    fn is_denied(&self, path: &[u8]) -> bool {
        let denied = |it: &[u8]| self.faults.denied.contains(it);
        let stem = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
        let dot = path[stem..].iter().skip(1).position(|&byte| byte == b'.');
        self.in_faults() && (denied(path) || dot.is_some_and(|dot| denied(&path[..stem + dot + 2])))
    }

    fn in_faults(&self) -> bool {
        (self.faults.from_ns..self.faults.until_ns).contains(&self.clock.now())
    }

    /// Every call passes here: it may be the one that fails, or the one before which the machine died.
    fn call(&mut self) -> io::Result<()> {
        self.ops += 1;
        if self.die_at.is_some_and(|at| self.ops > at) {
            self.dead = true;
        }
        if self.dead || (self.in_faults() && self.rng.permille(self.faults.eio)) {
            return Err(no(EIO));
        }
        Ok(())
    }

    /// Is an op by an engine of its own refused?
    pub(crate) fn refusal(&mut self) -> Option<io::Error> {
        let refusal = self.refuses.filter(|(from_ns, _)| self.clock.now() >= *from_ns);
        refusal.map(|(_, errno)| no(errno))
    }

    /// How often anything was changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn ops(&self) -> u64 {
        self.ops
    }

    fn find(&self, path: &[u8]) -> io::Result<Ino> {
        if let Some(&ino) = self.names.get(path) {
            return Ok(ino);
        }
        let mut above = parent(path);
        while !above.is_empty() {
            if let Some(&ino) = self.names.get(above) {
                return Err(no(if matches!(self.nodes[ino].kind, Kind::Folder) { 2 } else { 20 }));
            }
            above = parent(above);
        }
        Err(no(2))
    }

    fn folder_of(&self, path: &[u8]) -> io::Result<Ino> {
        let ino = self.find(parent(path))?;
        if matches!(self.nodes[ino].kind, Kind::Folder) { Ok(ino) } else { Err(no(20)) }
    }

    fn touch(&mut self, path: &[u8]) {
        let time = self.time();
        if let Some(&ino) = self.names.get(parent(path)) {
            self.nodes[ino].mtime = time;
        }
    }

    fn set_name(&mut self, op: &mut Vec<(Path, Option<Ino>)>, path: &[u8], ino: Option<Ino>) {
        let before = match ino {
            Some(ino) => self.names.insert(path.into(), ino),
            None => self.names.remove(path),
        };
        op.push((path.into(), before));
        self.touch(path);
        self.changes += 1;
    }

    fn add(&mut self, path: &[u8], kind: Kind, mode: u32) -> io::Result<Ino> {
        self.folder_of(path)?;
        if self.names.contains_key(path) {
            return Err(no(17));
        }
        let mtime = self.time();
        self.nodes.push(Node::new(kind, mode, mtime));
        let ino = self.nodes.len() - 1;
        let mut op = Vec::new();
        self.set_name(&mut op, path, Some(ino));
        self.log.push(op);
        Ok(ino)
    }

    pub(crate) fn lookup(&mut self, path: &[u8]) -> io::Result<Ino> {
        self.call()?;
        self.find(path)
    }

    pub(crate) fn open(&mut self, path: &[u8]) -> io::Result<Ino> {
        self.call()?;
        if self.is_denied(path) {
            return Err(no(13));
        }
        let ino = self.find(path)?;
        match self.nodes[ino].kind {
            Kind::File(_) => Ok(ino),
            Kind::Folder | Kind::Node(..) => Err(no(22)),
            Kind::Link(_) => Err(no(40)),
        }
    }

    pub(crate) fn create(&mut self, path: &[u8], truncate: bool) -> io::Result<Ino> {
        if self.names.contains_key(path) {
            let ino = self.open(path)?;
            if truncate {
                self.truncate(ino, 0)?;
            }
            return Ok(ino);
        }
        self.call()?;
        if self.is_denied(path) {
            return Err(no(13));
        }
        self.add(path, Kind::File(Content::default()), 0o600)
    }

    pub(crate) fn make_dir(&mut self, path: &[u8], mode: u32) -> io::Result<()> {
        self.call()?;
        self.add(path, Kind::Folder, mode).map(|_| ())
    }

    pub(crate) fn make_link(&mut self, target: &[u8], path: &[u8]) -> io::Result<()> {
        self.call()?;
        self.add(path, Kind::Link(target.into()), 0o777).map(|_| ())
    }

    pub(crate) fn make_node(&mut self, path: &[u8], kind: NodeKind, major: u32, minor: u32) -> io::Result<Ino> {
        self.call()?;
        self.add(path, Kind::Node(kind, major, minor), 0o600)
    }

    /// One more name of what stands under `first`.
    pub(crate) fn add_name(&mut self, first: &[u8], path: &[u8]) -> io::Result<()> {
        self.call()?;
        let ino = self.find(first)?;
        self.folder_of(path)?;
        if self.names.contains_key(path) {
            return Err(no(17));
        }
        let mut op = Vec::new();
        self.set_name(&mut op, path, Some(ino));
        self.log.push(op);
        Ok(())
    }

    pub(crate) fn rename(&mut self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.call()?;
        let ino = self.find(from)?;
        self.folder_of(to)?;
        if self.names.get(to).is_some_and(|&there| matches!(self.nodes[there].kind, Kind::Folder)) {
            return Err(no(21));
        }
        if self.names.get(to) == Some(&ino) {
            return Ok(()); // two names of one file: POSIX does nothing
        }
        let mut op = Vec::new();
        self.set_name(&mut op, to, Some(ino));
        self.set_name(&mut op, from, None);
        self.log.push(op);
        self.renamed.push(to.into());
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &[u8]) -> io::Result<()> {
        self.call()?;
        self.find(path)?;
        let mut op = Vec::new();
        self.set_name(&mut op, path, None);
        self.log.push(op);
        Ok(())
    }

    pub(crate) fn set_meta(&mut self, ino: Ino, mode: Option<u32>, mtime: Option<(i64, u32)>) -> io::Result<()> {
        self.call()?;
        let node = &mut self.nodes[ino];
        self.changes += 1;
        node.mode = mode.unwrap_or(node.mode);
        node.mtime = mtime.unwrap_or(node.mtime);
        Ok(())
    }

    pub(crate) fn set_carried(&mut self, ino: Ino, carried: Carried) -> io::Result<()> {
        self.call()?;
        self.changes += 1;
        self.nodes[ino].carried = carried;
        Ok(())
    }

    fn content(&mut self, ino: Ino) -> &mut Content {
        match &mut self.nodes[ino].kind {
            Kind::File(content) => content,
            _ => panic!("not a file"),
        }
    }

    pub(crate) fn data(&self, ino: Ino) -> &[u8] {
        match &self.nodes[ino].kind {
            Kind::File(content) => &content.data,
            _ => panic!("not a file"),
        }
    }

    pub(crate) fn read(&mut self, ino: Ino, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.call()?;
        let short = self.in_faults() && self.rng.permille(self.faults.short);
        let data = self.data(ino);
        let from = (offset as usize).min(data.len());
        let mut len = into.len().min(data.len() - from);
        into[..len].copy_from_slice(&data[from..from + len]);
        if short && len > 1 {
            len = self.rng.between(1, len as u64 - 1) as usize;
        }
        Ok(len)
    }

    pub(crate) fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.call()?;
        let mut len = bytes.len();
        if self.in_faults() {
            if let Some(room) = &mut self.faults.room {
                len = len.min(*room as usize);
                *room -= len as u64;
                if len == 0 && !bytes.is_empty() {
                    return Err(no(if self.faults.quota { EDQUOT } else { ENOSPC }));
                }
            }
            if len > 1 && self.rng.permille(self.faults.short) {
                len = self.rng.between(1, len as u64 - 1) as usize;
            }
        }
        let time = self.time();
        self.nodes[ino].mtime = time;
        let offset = offset as usize;
        self.changes += 1;
        let content = self.content(ino);
        content.dirty(offset, offset + len);
        if content.data.len() < offset + len {
            content.data.resize(offset + len, 0);
        }
        content.data[offset..offset + len].copy_from_slice(&bytes[..len]);
        Ok(len)
    }

    pub(crate) fn write_all(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            done += self.write(ino, offset + done as u64, &bytes[done..])?;
        }
        Ok(())
    }

    pub(crate) fn truncate(&mut self, ino: Ino, bytes: u64) -> io::Result<()> {
        self.call()?;
        let time = self.time();
        self.nodes[ino].mtime = time;
        self.changes += 1;
        let content = self.content(ino);
        let (old, new) = (content.data.len(), bytes as usize);
        content.dirty(new.min(old), old);
        content.data.resize(new, 0);
        Ok(())
    }

    pub(crate) fn punch(&mut self, ino: Ino, offset: u64, bytes: u64) -> io::Result<()> {
        self.call()?;
        let content = self.content(ino);
        let from = (offset as usize).min(content.data.len());
        let end = (from + bytes as usize).min(content.data.len());
        content.dirty(from, end);
        content.data[from..end].fill(0);
        Ok(())
    }

    pub(crate) fn sync_data(&mut self, ino: Ino) -> io::Result<()> {
        self.call()?;
        self.settle(ino);
        Ok(())
    }

    fn settle(&mut self, ino: Ino) {
        let node = &mut self.nodes[ino];
        node.settle();
        if let Kind::File(content) = &mut node.kind {
            content.undo.clear();
            content.durable_len = content.data.len();
        }
    }

    /// Names (and the metadata in the same log) are durable from here on; contents are not.
    pub(crate) fn sync_names(&mut self) -> io::Result<()> {
        self.call()?;
        self.log.clear();
        self.nodes.iter_mut().for_each(Node::settle);
        Ok(())
    }

    pub(crate) fn sync_all(&mut self) -> io::Result<()> {
        self.call()?;
        self.log.clear();
        for ino in 0..self.nodes.len() {
            self.settle(ino);
        }
        Ok(())
    }

    /// The machine comes up again after a kill of our process: all that was written is there.
    pub(crate) fn revive(&mut self) {
        self.dead = false;
        self.die_at = None;
    }

    /// The machine comes up again after a power cut: of what was not durable, a random part is there.
    pub(crate) fn power_cut(&mut self) {
        self.revive();
        self.boot += 1;
        // A rename that is undone is undone with all that came after it in the log: with the removal of what told whose the part is.
        self.killed.extend(1..=self.runs);
        let mut rng = self.rng.fork();
        let kept = rng.below(self.log.len() as u64 + 1) as usize;
        for op in self.log.drain(kept..).rev().collect::<Vec<_>>() {
            for (path, before) in op.into_iter().rev() {
                match before {
                    Some(ino) => self.names.insert(path, ino),
                    None => self.names.remove(&path),
                };
            }
        }
        self.log.clear();
        for node in &mut self.nodes {
            if rng.permille(500) {
                (node.mode, node.mtime, node.carried) = node.durable.clone();
            }
            if let Kind::File(content) = &mut node.kind {
                content.lose(&mut rng);
            }
        }
        for ino in 0..self.nodes.len() {
            self.settle(ino);
        }
    }

    /// Another program, or a disk that rots, changes a byte of a part that an earlier run left. Was there one?
    pub(crate) fn tamper(&mut self, rng: &mut Rng) -> bool {
        let is_part = |path: &Path, node: &Node| {
            path.ends_with(b".part") && matches!(&node.kind, Kind::File(content) if !content.data.is_empty())
        };
        // One more name of a file is made aside, too: what it leads to is a file that stands.
        let names = |ino: Ino| self.names.values().filter(|&&it| it == ino).count();
        let parts = self.names.iter().filter(|(path, ino)| is_part(path, &self.nodes[**ino]) && names(**ino) == 1);
        let parts: Vec<Ino> = parts.map(|(_, ino)| *ino).collect();
        for ino in &parts {
            let content = self.content(*ino);
            for _ in 0..4 {
                let at = rng.below(content.data.len() as u64) as usize;
                content.data[at] ^= 4;
            }
        }
        !parts.is_empty()
    }

    /// Everything that stands here, by path.
    pub(crate) fn tree(&self) -> impl Iterator<Item = (&Path, &Node)> {
        self.names.iter().map(|(path, &ino)| (path, &self.nodes[ino]))
    }

    pub(crate) fn get(&self, path: &[u8]) -> Option<&Node> {
        self.names.get(path).map(|&ino| &self.nodes[ino])
    }

    /// Puts a node here as if by another program: no faults, durable at once.
    pub(crate) fn plant(&mut self, path: &[u8], kind: Kind, mode: u32, mtime: (i64, u32)) {
        let above = parent(path).to_vec();
        let before = self.get(&above).expect("folders first").mtime;
        if let Some(&ino) = self.names.get(path) {
            let carried = self.nodes[ino].carried.clone();
            self.nodes[ino] = Node { carried, ..Node::new(kind, mode, mtime) };
            self.settle(ino);
            return;
        }
        self.nodes.push(Node::new(kind, mode, mtime));
        let ino = self.nodes.len() - 1;
        self.names.insert(path.into(), ino);
        self.settle(ino);
        let folder = self.names[&above[..]];
        self.nodes[folder].mtime = before;
    }

    /// Gives what stands here something to carry, as if by another program.
    pub(crate) fn adorn(&mut self, path: &[u8], carried: Carried) {
        let ino = self.names[path];
        self.nodes[ino].carried = carried;
        self.settle(ino);
    }

    /// Gives a file one more name as if by another program.
    pub(crate) fn link(&mut self, first: &[u8], path: &[u8]) {
        self.names.insert(path.into(), self.names[first]);
    }

    /// Which node a name stands for.
    pub(crate) fn ino(&self, path: &[u8]) -> Option<Ino> {
        self.names.get(path).copied()
    }

    /// All names of what stands here.
    pub(crate) fn names_of(&self, path: &[u8]) -> Vec<Path> {
        let ino = self.ino(path);
        self.names.iter().filter(|(_, it)| Some(**it) == ino).map(|(path, _)| path.clone()).collect()
    }

    /// Takes a name away as if by another program.
    pub(crate) fn uproot(&mut self, path: &[u8]) {
        self.names.remove(path);
    }
}

impl Content {
    pub(crate) fn of(data: Vec<u8>) -> Self {
        Content { durable_len: data.len(), data, undo: BTreeMap::new() }
    }

    /// Remembers what stands in these bytes, once per sector since the last sync.
    fn dirty(&mut self, from: usize, end: usize) {
        if from >= end {
            return;
        }
        for sector in from / SECTOR..end.div_ceil(SECTOR) {
            let data = &self.data;
            self.undo.entry(sector).or_insert_with(|| {
                let start = sector * SECTOR;
                let old = data.get(start..data.len().min(start + SECTOR)).filter(|old| !old.is_empty())?;
                Some(old.into())
            });
        }
    }

    fn lose(&mut self, rng: &mut Rng) {
        if self.undo.is_empty() && self.durable_len == self.data.len() {
            return;
        }
        let share = *rng.pick(&[0, 200, 500, 900, 1000]);
        let new_len = self.data.len();
        self.data.resize(new_len.max(self.durable_len), 0);
        for (sector, old) in std::mem::take(&mut self.undo) {
            if rng.permille(share) {
                continue;
            }
            let start = (sector * SECTOR).min(self.data.len());
            let end = (start + SECTOR).min(self.data.len());
            self.data[start..end].fill(0);
            if let Some(old) = old {
                let len = old.len().min(end - start);
                self.data[start..start + len].copy_from_slice(&old[..len]);
            }
        }
        // The new length survives only if all is well with it; a file system writes it after the data or with it.
        let len = if rng.permille(500) { new_len } else { self.durable_len };
        self.data.truncate(len);
    }
}

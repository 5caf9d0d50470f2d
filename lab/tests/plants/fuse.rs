//! A file system in memory, served over /dev/fuse, whose calls take their time.
//!
//! For: plants whose disk is slow in `write()`, `read()`, `open()` or `fsync()` itself, as NFS and FUSE are.
//! In and out: requests of the kernel (include/uapi/linux/fuse.h, version 7.31) → answers, each after its pause.
//! Invariants: one thread, one request after the other, as one slow server; ends when the kernel lets go of the mount.
//! Absent on purpose: links, extended attributes, locks, other users, and anything on a disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

/// How long its calls take.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Slow {
    /// Bytes per second of `read()`; 0: at once.
    pub(super) read_bps: u64,
    /// Bytes per second of `write()`; 0: at once.
    pub(super) write_bps: u64,
    /// Each `open()` of a new file.
    pub(super) create: Duration,
    /// Each `fsync()` of a file.
    pub(super) flush: Duration,
}

/// A file, or a folder.
#[derive(Debug, Default)]
struct Node {
    mode: u32,
    bytes: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    mtime: (u64, u32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Served {
    nodes: BTreeMap<u64, Node>,
    next: u64,
    slow: Slow,
}

const ROOT: u64 = 1;
const FOLDER: u32 = 0o040_000;
/// Bytes of one request beside what is written.
const HEAD_BYTES: usize = 4096;
/// The most that one `write()` brings: 256 pages, which is what the kernel has at most.
const WRITE_BYTES: usize = 1 << 20;
/// Answers stay right for so long.
const VALID_S: u64 = 3600;

type Answer = Result<Vec<u8>, i32>;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
const ENOTEMPTY: i32 = 39;
const EOPNOTSUPP: i32 = 95;

/// A request's body, read field by field.
fn u64_at(body: &[u8], at: usize) -> u64 {
    body.get(at..at + 8).map_or(0, |it| u64::from_ne_bytes(it.try_into().expect("eight")))
}

fn u32_at(body: &[u8], at: usize) -> u32 {
    body.get(at..at + 4).map_or(0, |it| u32::from_ne_bytes(it.try_into().expect("four")))
}

/// Names that end in a zero byte, from there on.
fn names_at(body: &[u8], at: usize) -> impl Iterator<Item = &[u8]> {
    body.get(at..).unwrap_or_default().split(|byte| *byte == 0)
}

fn name_at(body: &[u8], at: usize) -> &[u8] {
    names_at(body, at).next().unwrap_or_default()
}

fn pause(bytes: usize, bps: u64) {
    if bps > 0 {
        std::thread::sleep(Duration::from_secs_f64(bytes as f64 / bps as f64));
    }
}

impl Served {
    /// With these files in its root.
    pub(super) fn new(slow: Slow, files: Vec<(&str, Vec<u8>)>) -> Served {
        let root = Node { mode: FOLDER | 0o755, ..Node::default() };
        let mut served = Served { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, slow };
        for (name, bytes) in files {
            let node = served.add(ROOT, name.as_bytes(), 0o100_644).expect("the root is there");
            served.nodes.get_mut(&node).expect("made now").bytes = bytes;
        }
        served
    }

    /// Answers until the mount is gone.
    pub(super) fn serve(mut self, mut device: &File) {
        let mut request = vec![0; HEAD_BYTES + WRITE_BYTES];
        while let Ok(count) = device.read(&mut request) {
            let head = &request[..count];
            let (opcode, node) = (u32_at(head, 4), u64_at(head, 16));
            let body = head.get(40..).unwrap_or_default();
            // FORGET, INTERRUPT and BATCH_FORGET have no answer.
            if matches!(opcode, 2 | 36 | 42) {
                continue;
            }
            let answer = self.answer(opcode, node, body);
            let (error, bytes) = answer.map_or_else(|errno| (-errno, Vec::new()), |bytes| (0, bytes));
            let mut out = Vec::with_capacity(16 + bytes.len());
            out.extend_from_slice(&u32::try_from(16 + bytes.len()).expect("small").to_ne_bytes());
            out.extend_from_slice(&error.to_ne_bytes());
            out.extend_from_slice(&head[8..16]);
            out.extend_from_slice(&bytes);
            // Whoever asked may have gone.
            let _ = device.write(&out);
        }
    }

    fn node(&mut self, number: u64) -> Result<&mut Node, i32> {
        self.nodes.get_mut(&number).ok_or(ENOENT)
    }

    fn add(&mut self, folder: u64, name: &[u8], mode: u32) -> Result<u64, i32> {
        let number = self.next;
        if self.node(folder)?.names.contains_key(name) {
            return Err(EEXIST);
        }
        self.node(folder)?.names.insert(name.to_vec(), number);
        self.nodes.insert(number, Node { mode, ..Node::default() });
        self.next += 1;
        Ok(number)
    }

    /// `struct fuse_attr`.
    fn attr(&mut self, number: u64) -> Answer {
        let node = self.node(number)?;
        let size = node.bytes.len() as u64;
        let mut out = Vec::with_capacity(88);
        [number, size, size.div_ceil(512), node.mtime.0, node.mtime.0, node.mtime.0]
            .iter()
            .for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
        [node.mtime.1, node.mtime.1, node.mtime.1, node.mode, 1, 0, 0, 0, 4096, 0]
            .iter()
            .for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
        Ok(out)
    }

    /// `struct fuse_attr_out`.
    fn told(&mut self, number: u64) -> Answer {
        Ok([&VALID_S.to_ne_bytes()[..], &[0; 8], &self.attr(number)?].concat())
    }

    /// `struct fuse_entry_out`.
    fn entry(&mut self, number: u64) -> Answer {
        let head: Vec<u8> = [number, 0, VALID_S, VALID_S, 0].iter().flat_map(|it| it.to_ne_bytes()).collect();
        Ok([head, self.attr(number)?].concat())
    }

    fn answer(&mut self, opcode: u32, number: u64, body: &[u8]) -> Answer {
        match opcode {
            // INIT: version 7.31, BIG_WRITES, MAX_PAGES.
            26 => {
                let flags = u32_at(body, 12) & ((1 << 5) | (1 << 22));
                let mut out: Vec<u8> =
                    [7_u32, 31, u32_at(body, 8), flags].iter().flat_map(|it| it.to_ne_bytes()).collect();
                [64_u16, 48].iter().for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
                [1 << 20, 1_u32].iter().for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
                out.extend_from_slice(&256_u16.to_ne_bytes());
                out.resize(64, 0);
                Ok(out)
            }
            1 => {
                let found = self.node(number)?.names.get(name_at(body, 0)).copied().ok_or(ENOENT)?;
                self.entry(found)
            }
            3 => self.told(number),
            4 => self.set(number, body),
            // MKNOD, MKDIR, CREATE.
            8 => self.add(number, name_at(body, 16), u32_at(body, 0)).and_then(|made| self.entry(made)),
            9 => self.add(number, name_at(body, 8), FOLDER | u32_at(body, 0)).and_then(|made| self.entry(made)),
            35 => {
                std::thread::sleep(self.slow.create);
                let made = self.add(number, name_at(body, 16), u32_at(body, 4))?;
                Ok([self.entry(made)?, vec![0; 16]].concat())
            }
            // UNLINK, RMDIR: what is open yet stays a number.
            10 => self.node(number)?.names.remove(name_at(body, 0)).map(|_| Vec::new()).ok_or(ENOENT),
            11 => {
                let found = self.node(number)?.names.get(name_at(body, 0)).copied().ok_or(ENOENT)?;
                if !self.node(found)?.names.is_empty() {
                    return Err(ENOTEMPTY);
                }
                self.node(number)?.names.remove(name_at(body, 0)).map(|_| Vec::new()).ok_or(ENOENT)
            }
            12 => self.rename(number, u64_at(body, 0), 0, &body[8..]),
            45 => self.rename(number, u64_at(body, 0), u32_at(body, 8), &body[16..]),
            // OPEN, OPENDIR.
            14 | 27 => Ok(vec![0; 16]),
            15 => {
                let (from, count) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
                let bytes = &self.node(number)?.bytes;
                let part = bytes[from.min(bytes.len())..(from + count).min(bytes.len())].to_vec();
                pause(part.len(), self.slow.read_bps);
                Ok(part)
            }
            16 => {
                let (from, count) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
                let data = body.get(40..40 + count).ok_or(EINVAL)?;
                pause(count, self.slow.write_bps);
                let bytes = &mut self.node(number)?.bytes;
                bytes.resize(bytes.len().max(from + count), 0);
                bytes[from..from + count].copy_from_slice(data);
                Ok([u32_at(body, 16).to_ne_bytes(), [0; 4]].concat())
            }
            // STATFS: a TiB, half of it free.
            17 => {
                let mut out: Vec<u8> =
                    [1_u64 << 28, 1 << 27, 1 << 27, 1 << 20, 1 << 20].iter().flat_map(|it| it.to_ne_bytes()).collect();
                [4096_u32, 255, 4096].iter().for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
                out.resize(80, 0);
                Ok(out)
            }
            20 => {
                std::thread::sleep(self.slow.flush);
                Ok(Vec::new())
            }
            28 => self.list(number, body),
            // RELEASE, FLUSH, RELEASEDIR, FSYNCDIR, DESTROY.
            18 | 25 | 29 | 30 | 38 => Ok(Vec::new()),
            // GETXATTR, LISTXATTR, SETXATTR, FALLOCATE.
            21..=24 | 43 => Err(EOPNOTSUPP),
            _ => Err(ENOSYS),
        }
    }

    /// SETATTR: mode, length, time of change.
    fn set(&mut self, number: u64, body: &[u8]) -> Answer {
        let (valid, size, mtime) = (u32_at(body, 0), u64_at(body, 16), (u64_at(body, 40), u32_at(body, 60)));
        let node = self.node(number)?;
        if valid & 1 != 0 {
            node.mode = (node.mode & 0o170_000) | (u32_at(body, 68) & 0o7777);
        }
        if valid & 8 != 0 {
            node.bytes.resize(usize::try_from(size).map_err(|_| EINVAL)?, 0);
        }
        if valid & 32 != 0 {
            node.mtime = mtime;
        }
        self.told(number)
    }

    fn rename(&mut self, from: u64, to: u64, flags: u32, names: &[u8]) -> Answer {
        let mut names = names_at(names, 0);
        let (old, new) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        // RENAME_NOREPLACE alone.
        if flags > 1 {
            return Err(EINVAL);
        }
        if flags == 1 && self.node(to)?.names.contains_key(new) {
            return Err(EEXIST);
        }
        let moved = self.node(from)?.names.remove(old).ok_or(ENOENT)?;
        self.node(to)?.names.insert(new.to_vec(), moved);
        Ok(Vec::new())
    }

    /// READDIR: entries from that place on, as far as they fit.
    fn list(&mut self, number: u64, body: &[u8]) -> Answer {
        let (from, room) = (u64_at(body, 8) as usize, u32_at(body, 16) as usize);
        let names: Vec<_> = self.node(number)?.names.iter().map(|(name, node)| (name.clone(), *node)).collect();
        let mut out = Vec::new();
        for (at, (name, node)) in names.iter().enumerate().skip(from) {
            let bytes = (24 + name.len()).next_multiple_of(8);
            if out.len() + bytes > room {
                break;
            }
            let end = out.len() + bytes;
            [*node, at as u64 + 1].iter().for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
            let kind = self.nodes.get(node).map_or(0, |it| it.mode >> 12);
            [name.len() as u32, kind].iter().for_each(|it| out.extend_from_slice(&it.to_ne_bytes()));
            out.extend_from_slice(name);
            out.resize(end, 0);
        }
        Ok(out)
    }
}

//! BLAKE3 digests of files that were not written since, so that HASH need not read them again.
//!
//! For: sessions of one door.
//! In and out: a file, before its bytes are hashed → what its digest is kept under; later the same file → its digest, if none of its bytes can be another.
//! Invariants: a digest is told only where the kernel has told of no write, cut or closed writer of this inode since before its first byte was hashed (inotify(7)),
//! nobody has the file open for writing (a lease would not be granted), and it is as long as it was. So neither times that were set back nor two changes
//! in one tick of the clock hide anything. Where the kernel cannot say one of these, the file is read.
//! Absent on purpose: digests that outlive the process: what happens to files then is seen by nobody.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use sys::fs::{Watches, Writers, stat_file, writers_of};

/// Shorter files are read as fast as they are asked for.
const BYTES_MIN: u64 = 1 << 20;
/// Files that are watched; each keeps its inode in memory.
const FILES_MAX: usize = 4096;

type Inode = (u64, u64);

/// Digests that hold as long as nobody writes their files: see the module.
#[derive(Debug, Default)]
pub struct Known(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// `None`: none was wanted yet, or the kernel gives none.
    watches: Option<Watches>,
    files: HashMap<Inode, Watched>,
    by_number: HashMap<i32, Inode>,
    /// Counts what happens to any of the files.
    stamps: u64,
}

#[derive(Debug)]
struct Watched {
    number: i32,
    /// When it was last written, or begun to be watched.
    stamp: u64,
    /// Of its bytes as they were at that stamp.
    digest: Option<(u64, String)>,
}

/// A file whose bytes are being hashed.
#[derive(Debug, Clone, Copy)]
pub struct Begun {
    inode: Inode,
    stamp: u64,
}

impl Held {
    /// Hears what happened since.
    fn drain(&mut self) {
        let Held { watches, files, by_number, stamps } = self;
        let Some(watches) = watches else { return };
        watches.changed(|told| {
            *stamps += 1;
            let Some((number, is_gone)) = told else {
                // Any of them may have been written. They go with their watches.
                for (_, file) in files.drain() {
                    watches.remove(file.number);
                }
                by_number.clear();
                return;
            };
            let Some(inode) = by_number.get(&number) else { return };
            if is_gone {
                files.remove(inode);
                by_number.remove(&number);
            } else if let Some(file) = files.get_mut(inode) {
                (file.stamp, file.digest) = (*stamps, None);
            }
        });
    }

    /// Room for one more: what was longest without a change, or has no digest, goes.
    fn make_room(&mut self) {
        if self.files.len() < FILES_MAX {
            return;
        }
        let oldest = self.files.iter().min_by_key(|(_, file)| (file.digest.is_some(), file.stamp));
        let Some((&inode, number)) = oldest.map(|(inode, file)| (inode, file.number)) else { return };
        if let Some(watches) = &self.watches {
            watches.remove(number);
        }
        self.files.remove(&inode);
        self.by_number.remove(&number);
    }
}

impl Known {
    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first byte of a file, opened for reading, is hashed, or while nobody else knows its name. `None`: its digest is not kept.
    pub fn begin(&self, file: &File) -> Option<Begun> {
        let stat = stat_file(file).ok().filter(|stat| stat.bytes >= BYTES_MIN)?;
        let mut held = self.held();
        if held.watches.is_none() {
            held.watches = Some(Watches::new().ok()?);
        }
        held.drain();
        let inode = (stat.dev, stat.ino);
        if !held.files.contains_key(&inode) {
            held.make_room();
            let number = held.watches.as_ref()?.add(file).ok()?;
            held.stamps += 1;
            let stamp = held.stamps;
            held.by_number.insert(number, inode);
            held.files.insert(inode, Watched { number, stamp, digest: None });
        }
        // Only now: who opens it after this look is told of.
        let is_still = writers_of(file) == Writers::None;
        let stamp = held.files.get(&inode)?.stamp;
        is_still.then_some(Begun { inode, stamp })
    }

    /// All of its bytes were hashed, so many: this is their digest, in hexadecimal.
    pub fn end(&self, begun: Begun, bytes: u64, digest: String) {
        let mut held = self.held();
        held.drain();
        if let Some(file) = held.files.get_mut(&begun.inode).filter(|file| file.stamp == begun.stamp) {
            file.digest = Some((bytes, digest));
        }
    }

    /// The digest of a file, opened for reading, and its bytes.
    pub fn tell(&self, file: &File) -> Option<(String, u64)> {
        let stat = stat_file(file).ok()?;
        let mut held = self.held();
        held.files.get(&(stat.dev, stat.ino))?;
        // In this order: who lets go of the file between the two is told of by the second.
        if writers_of(file) != Writers::None {
            return None;
        }
        held.drain();
        let (bytes, digest) = held.files.get(&(stat.dev, stat.ino))?.digest.clone()?;
        (bytes == stat.bytes).then_some((digest, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;

    fn planted(name: &str) -> (PathBuf, File) {
        let path = std::env::temp_dir().join(format!("longhaul-ftp-known-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![7; 2 << 20]).unwrap();
        (path.clone(), File::open(path).unwrap())
    }

    #[test]
    fn a_digest_is_told_until_a_byte_may_be_another_whatever_the_times_say() {
        let (path, file) = planted("told");
        let known = Known::default();
        let learn = |known: &Known| known.begin(&file).map(|begun| known.end(begun, 2 << 20, "d".to_owned()));
        if learn(&known).is_none() {
            // Its file system reports no writers.
            return std::fs::remove_file(path).unwrap();
        }
        let told = |known: &Known| known.tell(&File::open(&path).unwrap());
        let right = Some(("d".to_owned(), 2 << 20));
        assert_eq!(told(&known), right);
        let before = stat_file(&file).unwrap();
        // Names and modes are no bytes.
        let other = path.with_extension("other");
        std::fs::rename(&path, &other).unwrap();
        std::fs::rename(&other, &path).unwrap();
        sys::fs::set_file_meta(&file, Some(0o600), None).unwrap();
        assert_eq!(told(&known), right);
        // Equal length, and the time that was.
        let writer = File::options().write(true).open(&path).unwrap();
        assert_eq!(told(&known), None, "somebody could write it in this moment");
        writer.write_all_at(b"x", 1 << 20).unwrap();
        sys::fs::set_file_meta(&writer, None, Some((before.mtime_s, before.mtime_ns))).unwrap();
        assert_eq!(learn(&known), None, "and nothing is learnt meanwhile");
        drop(writer);
        assert_eq!(told(&known), None);
        assert!(learn(&known).is_some() && told(&known) == right);
        // Written while it is hashed.
        let begun = known.begin(&file).unwrap();
        std::fs::write(&path, vec![8; 2 << 20]).unwrap();
        known.end(begun, 2 << 20, "d".to_owned());
        assert_eq!(told(&known), None);
        // Another file under its name, and the same inode number for another file.
        assert!(learn(&known).is_some() && told(&known) == right);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, vec![9; 2 << 20]).unwrap();
        assert_eq!(told(&known), None);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn no_more_files_are_watched_than_there_are_places() {
        let (path, file) = planted("places");
        let known = Known::default();
        if known.begin(&file).is_none() {
            // Its file system reports no writers.
            return std::fs::remove_file(path).unwrap();
        }
        let mut held = known.held();
        for number in 0..FILES_MAX as u64 * 2 {
            held.make_room();
            held.files.insert((0, number), Watched { number: -1, stamp: number, digest: None });
        }
        assert_eq!(held.files.len(), FILES_MAX);
        drop(held);
        std::fs::remove_file(path).unwrap();
    }
}

//! What was changed on this host and how it was before: on disk before the change is made.
//!
//! For: undoing, by whoever is left: the owner, its guard, or `host undo` after both have died or the machine has started anew.
//! In and out: changes → lines of a file; the file → every value back.
//! Invariants: a line is on disk before its value is set; whoever writes or undoes holds the file's lock; a value that somebody else has changed
//! since is left as it is and told; what could not be put back stays in the file.
//! Layout, one JSON object a line: `{"boot":"…","owner":PID,"kept":false}`, then `{"rule":"…","place":{…},"old":"…","new":"…"}` in the order
//! of the changes. A torn last line was never acted on.
//! Absent on purpose: deciding what to change.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::place::{Place, boot_id};
use crate::rules::Change;

/// First line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    boot: String,
    /// Process that applied them.
    pub owner: u32,
    /// They stay when it ends.
    pub kept: bool,
}

impl Head {
    /// Of this process, now.
    #[must_use]
    pub fn ours() -> Head {
        Head { boot: boot_id(), owner: std::process::id(), kept: false }
    }
}

/// A value that was set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub rule: String,
    pub place: Place,
    pub old: String,
    pub new: String,
}

/// The file, locked.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    pub head: Head,
    pub entries: Vec<Entry>,
}

/// How an entry was undone.
#[derive(Debug)]
pub enum Undone {
    /// The old value is back.
    Back,
    /// It was there already (after a new start of the machine, or the place is gone with its owner).
    Already,
    /// Somebody else has set this value since: left.
    Foreign(String),
    /// It could not be put back.
    Failed(io::Error),
}

impl Journal {
    /// Opens and locks it; made when it is missing. `None`: somebody holds it.
    ///
    /// # Errors
    /// The folder cannot be made, the file not be opened.
    pub fn open(folder: &Path) -> io::Result<Option<Journal>> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("host.journal");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Ok(None),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut lines = text.lines();
        let head = lines.next().and_then(|line| serde_json::from_str(line).ok());
        let entries = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        let head = head.unwrap_or_else(Head::ours);
        Ok(Some(Journal { file, path, head, entries }))
    }

    /// The process that holds it, by its own first line.
    #[must_use]
    pub fn holder(folder: &Path) -> Option<u32> {
        let text = std::fs::read_to_string(folder.join("host.journal")).ok()?;
        Some(serde_json::from_str::<Head>(text.lines().next()?).ok()?.owner)
    }

    /// The values are of an earlier start of the machine.
    #[must_use]
    pub fn is_of_another_boot(&self) -> bool {
        self.head.boot != boot_id()
    }

    /// Writes all of it anew, and to disk.
    ///
    /// # Errors
    /// Those of writing.
    pub fn save(&mut self) -> io::Result<()> {
        let mut text = serde_json::to_string(&self.head)? + "\n";
        for entry in &self.entries {
            text += &(serde_json::to_string(entry)? + "\n");
        }
        // In place, for the lock is the file's. What is shorter is cut afterwards: a line too many is undone twice, which does no harm.
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)?;
        self.file.sync_data()
    }

    /// Writes the change down, then makes it.
    ///
    /// # Errors
    /// Those of writing, of either file; then nothing is changed, and no line is left.
    pub fn make(&mut self, change: &Change) -> io::Result<()> {
        let Change { rule, place, old, new } = change.clone();
        let place_to_set = place.clone();
        self.entries.push(Entry { rule: rule.to_owned(), place, old: old.clone(), new: new.clone() });
        self.save()?;
        let made = place_to_set.write(&new);
        if made.is_err() {
            // The kernel may have taken something else than what was asked.
            place_to_set.write(&old)?;
            self.entries.pop();
            self.save()?;
        }
        made
    }

    /// Puts back what `choose` chooses, the last change first. Entries that failed stay.
    ///
    /// # Errors
    /// Those of writing the journal.
    pub fn undo(&mut self, choose: impl Fn(&Entry) -> bool, mut told: impl FnMut(&Entry, &Undone)) -> io::Result<()> {
        let mut stay = Vec::new();
        for entry in std::mem::take(&mut self.entries).into_iter().rev() {
            if !choose(&entry) {
                stay.push(entry);
                continue;
            }
            let undone = back(&entry);
            told(&entry, &undone);
            if let Undone::Failed(_) = undone {
                stay.push(entry);
            }
        }
        stay.reverse();
        self.entries = stay;
        self.save()
    }

    /// Lets it go. If nothing is changed any more, the file goes, too.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn close(self) -> io::Result<()> {
        if self.entries.is_empty() { std::fs::remove_file(&self.path) } else { Ok(()) }
    }

    /// Values that are not what was set, and what they are.
    #[must_use]
    pub fn drift(&self) -> Vec<(&Entry, String)> {
        let now = |entry: &Entry| entry.place.read().unwrap_or_else(|error| format!("gone: {error}"));
        self.entries.iter().map(|entry| (entry, now(entry))).filter(|(entry, now)| *now != entry.new).collect()
    }
}

fn back(entry: &Entry) -> Undone {
    match entry.place.read() {
        Ok(now) if now == entry.old => Undone::Already,
        Ok(now) if now != entry.new => Undone::Foreign(now),
        Ok(_) => entry.place.write(&entry.old).map_or_else(Undone::Failed, |()| Undone::Back),
        // The card was taken out, the program has ended.
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(19) => Undone::Already,
        Err(error) => Undone::Failed(error),
    }
}

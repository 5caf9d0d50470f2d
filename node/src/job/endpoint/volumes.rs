//! Sets of volumes: which disks belong together.
//!
//! For: destinations that are dealt out to N disks, and the way back.
//! In and out: the folders that the user named; trees for the engine, or what is wrong with the set.
//! Invariants: a volume that is not there is never taken for an empty one: each carries a mark of its set, and one that is missing is
//! told by name; volumes of two sets are never mixed.
//! Absent on purpose: what stands where (engine::tree::volumes, engine::tree::scan).
//!
//! ```text
//! .longhaul-volume       in the folder of each volume, text, written once
//!   longhaul-volume 1
//!   set 0123456789abcdef            the same on all of them
//!   volume 3 of 16                  from 0
//!
//! and of a set that is striped by chunk, which must not be taken for one by file
//!   longhaul-volume 2
//!   set …
//!   volume …
//!   stripe chunk
//! ```

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::tree::io_mode::Chooser;
use engine::tree::source::LinuxSource;
use engine::tree::volumes::{Gone, is_dying};
use engine::tree::{Sources, VOLUME_MARK};
use proto::layout::{Layout, Stripe, VOLUMES_MAX};
use sys::fs::{Dir, Kind, Stat};

use super::path_base::{self, Called, PathBase, Target, named, show, split};
use text::exit::{Exit, Failure};

/// For so long: a disk that was replaced is used again.
const OUT_FOR: Duration = Duration::from_secs(600);
/// "Input/output error" of `errno(3)`.
const EIO: i32 = 5;

/// Disks that failed in jobs of one node, and when: a disk that fails at its full blocks still takes a small file, so the next pass would trust it.
#[derive(Debug, Clone, Default)]
pub struct FailedDisks(Arc<Mutex<Vec<(String, Instant)>>>);

impl FailedDisks {
    /// Remembers that a volume is out; gives the sentence that says so.
    pub fn out(&self, gone: &Gone) -> String {
        if !gone.before {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push((gone.name.clone(), Instant::now()));
        }
        format!("volume '{}' is out ({}): it is given nothing more", gone.name, gone.why)
    }

    fn has(&self, name: &str) -> bool {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.retain(|(_, since)| since.elapsed() < OUT_FOR);
        out.iter().any(|(it, _)| it == name)
    }
}

/// A volume as reports name it.
fn shown(volume: &Dir) -> String {
    let name = named(volume, b"");
    show(name.strip_suffix(b"/").filter(|it| !it.is_empty()).unwrap_or(&name))
}

/// What a volume says of its set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    set: u64,
    volume: u16,
    of: u16,
    stripe: Stripe,
}

impl Mark {
    fn text(self) -> String {
        let (version, stripe) = match self.stripe {
            Stripe::File => (1, ""),
            Stripe::Chunk => (2, "stripe chunk\n"),
        };
        format!("longhaul-volume {version}\nset {:016x}\nvolume {} of {}\n{stripe}", self.set, self.volume, self.of)
    }

    fn parse(text: &str) -> Option<Mark> {
        let mut lines = text.lines();
        let version = lines.next()?;
        let set = u64::from_str_radix(lines.next()?.strip_prefix("set ")?, 16).ok()?;
        let (volume, of) = lines.next()?.strip_prefix("volume ")?.split_once(" of ")?;
        let stripe = match (version, lines.next()) {
            ("longhaul-volume 1", _) => Stripe::File,
            ("longhaul-volume 2", Some("stripe chunk")) => Stripe::Chunk,
            _ => return None,
        };
        let mark = Mark { set, volume: volume.parse().ok()?, of: of.parse().ok()?, stripe };
        (mark.volume < mark.of && mark.of <= VOLUMES_MAX).then_some(mark)
    }

    /// The mark of a volume, if it has one.
    fn read(volume: &Dir) -> io::Result<Option<Mark>> {
        let file = match volume.open_file(VOLUME_MARK, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut text = String::new();
        file.take(4096).read_to_string(&mut text)?;
        Mark::parse(&text)
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its mark cannot be read"))
    }

    /// Beside its name and then renamed, and on the disk before anything else is.
    fn write(self, volume: &Dir) -> io::Result<()> {
        let part = [VOLUME_MARK, b".part"].concat();
        let mut file = volume.create_file(&part, false, true)?;
        file.write_all(self.text().as_bytes())?;
        sys::fs::sync_data(&file)?;
        volume.rename(&part, VOLUME_MARK)?;
        volume.sync(b"")
    }
}

/// Folders on N disks as one destination. A disk of a known set that fails when it is tried is left out, and that is told.
pub fn target(
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    layout: Layout,
    dry: bool,
    failed_disks: &FailedDisks,
) -> Result<Target, Failure> {
    let mut found: Vec<(Dir, &[u8])> = Vec::new();
    let mut marks = Vec::new();
    let mut name = Vec::new();
    let mut seen = HashMap::new();
    let mut failed: Vec<Failure> = Vec::new();
    let mut gone = Vec::new();
    for path in paths {
        name.extend_from_slice(path);
        name.push(b'\n');
        let what = || format!("use the volume '{}'", show(path));
        match try_volume(path_base, path, dry, failed_disks) {
            Ok((volume, mark, stat)) => {
                if let Some(other) = seen.insert((stat.dev, stat.ino), path) {
                    let cause = format!("it is the same folder as '{}'", show(other));
                    return Err(Exit::Usage.fail(what(), cause).next("name each volume once"));
                }
                marks.push(mark);
                found.push((volume, path));
            }
            Err(error) => {
                let is_dying = error.raw_os_error().is_some_and(is_dying);
                let failure = Exit::of_io(&error).fail(what(), text::attempt::said(&error));
                if !is_dying {
                    return Err(failure.next("mount it, or leave it out; a volume is a folder that is there"));
                }
                gone.push(Gone { name: show(path), why: error.to_string(), before: true });
                failed.push(failure.next("replace the disk, or leave it out"));
            }
        }
    }
    // Of a set that is not known yet nobody can say that the rest of it is whole.
    if marks.iter().all(Option::is_none)
        && let Some(failure) = failed.pop()
    {
        return Err(failure);
    }
    let of = layout.volumes;
    let first = marks[0];
    is_one_set(paths, &marks, layout)?;
    if first.is_none() && !dry {
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| Exit::Bug.fail("name the set", "the system has no randomness"))?;
        let set = u64::from_le_bytes(random);
        for (number, (volume, path)) in (0..).zip(&found) {
            Mark { set, volume: number, of, stripe: layout.stripe }
                .write(volume)
                .map_err(|error| Exit::of_io(&error).fail(format!("mark the volume '{}'", show(path)), error))?;
        }
    }
    let (volumes, shown) = found.into_iter().map(|(volume, _)| (volume.clone(), shown(&volume))).unzip();
    let by_chunk = layout.stripe == Stripe::Chunk;
    Ok(Target { volumes, shown, gone, top: Box::default(), is_absent: false, by_chunk, name, first: None })
}

/// Are these marks those of one set, striped as the user says; or is none of them marked?
fn is_one_set(paths: &[Box<[u8]>], marks: &[Option<Mark>], layout: Layout) -> Result<(), Failure> {
    let of = layout.volumes;
    let first = marks[0];
    let is_of_one_set =
        marks.iter().all(|mark| mark.is_some_and(|it| it.of == of) && mark.map(|it| it.set) == first.map(|it| it.set));
    if let (false, Some(at)) = (is_of_one_set, marks.iter().position(Option::is_some)) {
        let mark = marks[at].expect("just found");
        let cause = format!(
            "'{}' is volume {} of {} of the set {:016x}, and others here are not of it",
            show(&paths[at]),
            mark.volume,
            mark.of,
            mark.set
        );
        return Err(Exit::Usage.fail("use the volumes as one set", cause).next(
            "name all volumes of that set, or remove the file .longhaul-volume from those that shall make a new one",
        ));
    }
    if let Some(other) = first.filter(|mark| mark.stripe != layout.stripe) {
        let (is, asked) = (other.stripe.name(), layout.stripe.name());
        return Err(Exit::Usage
            .fail(
                "use the volumes as one set",
                format!("the set {:016x} is striped by {is}, not by {asked}", other.set),
            )
            .next(format!("say --stripe {is}, or use empty folders for a new set")));
    }
    Ok(())
}

/// Opens a volume, reads its mark, and has it flush a small file: a disk that cannot do that is no destination.
fn try_volume(
    path_base: &PathBase,
    path: &[u8],
    dry: bool,
    failed_disks: &FailedDisks,
) -> io::Result<(Dir, Option<Mark>, Stat)> {
    let volume = path_base.open(path)?;
    let stat = volume.stat_self()?;
    if failed_disks.has(&shown(&volume)) {
        return Err(io::Error::from_raw_os_error(EIO));
    }
    if !dry {
        let part = [VOLUME_MARK, b".part"].concat();
        let mut file = volume.create_file(&part, false, true)?;
        file.write_all(b"a disk that is to take a job must take this\n")?;
        sys::fs::sync_data(&file)?;
        volume.remove_file(&part)?;
    }
    Ok((volume.clone(), Mark::read(&volume)?, stat))
}

/// What stands on N disks as one source. What a missing volume held is missing, and that is told; the rest is copied.
pub fn source(
    path_base: &PathBase,
    paths: &[Box<[u8]>],
    called: Called<'_>,
    chooser: &Arc<Chooser>,
) -> Result<Sources, Failure> {
    let mut found: Vec<LinuxSource> = Vec::new();
    let mut sets: Vec<Mark> = Vec::new();
    let mut missing: Vec<(Box<[u8]>, io::Error)> = Vec::new();
    let mut is_folder = false;
    // Of a striped file only one volume has the name; the others are read all the same.
    let mut nameless = Vec::new();
    let mut last = None;
    for path in paths {
        let (folder, name) = split(path);
        match path_base.open(folder) {
            Ok(parent) => {
                sets.extend(mark_of(path_base, path, &parent, name));
                is_folder |= name.is_empty() || parent.stat(name).is_ok_and(|it| it.kind == Kind::Folder);
            }
            Err(error) => {
                missing.push((path.clone(), error));
                continue;
            }
        }
        let one = std::slice::from_ref(path);
        match path_base::some_source(path_base, one, called, Arc::clone(chooser), true) {
            Ok(source) => found.push(source),
            Err(failure) if failure.exit == Exit::Vanished => {
                missing.push((path.clone(), io::ErrorKind::NotFound.into()));
                nameless.push(one);
                last = Some(failure);
            }
            Err(failure) => return Err(failure),
        }
    }
    if found.is_empty() {
        let nothing = || Exit::Vanished.fail("read the volumes", "none of them can be opened");
        return Err(last.unwrap_or_else(nothing));
    }
    if !is_folder {
        // A file stands on one volume: that it is not on the others is no news. That a whole volume is not there is.
        missing.clear();
    }
    let by_chunk = sets.first().is_some_and(|mark| mark.stripe == Stripe::Chunk);
    for path in nameless.into_iter().filter(|_| by_chunk && !is_folder) {
        found.push(path_base::some_source(path_base, path, called, Arc::clone(chooser), false)?);
    }
    if let Some(first) = sets.first() {
        if let Some(other) = sets.iter().find(|it| (it.set, it.stripe) != (first.set, first.stripe)) {
            let cause = format!("they are of two sets, {:016x} and {:016x}", first.set, other.set);
            return Err(Exit::Usage.fail("read the volumes as one set", cause).next("name the volumes of one set"));
        }
        for volume in (0..first.of).filter(|volume| !sets.iter().any(|it| it.volume == *volume)) {
            let name = format!("volume {volume} of {} of the set {:016x}", first.of, first.set);
            missing.push((name.into_bytes().into(), io::ErrorKind::NotFound.into()));
        }
    }
    Ok(Sources::new(found).without(missing).striped(by_chunk))
}

/// Refuses what stands in one volume of a set by chunk, where all of them are needed: its files have holes that are none.
pub fn refuse_one_of_chunks(path_base: &PathBase, path: &[u8], what: &str) -> Result<(), Failure> {
    let (folder, name) = split(path);
    let Ok(parent) = path_base.open(folder) else { return Ok(()) };
    match mark_of(path_base, path, &parent, name) {
        Some(mark) if mark.stripe == Stripe::Chunk => {
            let (volume, of) = (mark.volume, mark.of);
            let cause =
                format!("it is on volume {volume} of {of} of the set {:016x}, which is striped by chunk", mark.set);
            let next = "name all of its volumes: --join to read them ('/data/{0..15}/name'), --stripe chunk to write";
            Err(Exit::Usage.fail(format!("{what} '{}'", show(path)), cause).next(next))
        }
        _ => Ok(()),
    }
}

/// The mark of the volume that a path is of: in the folder itself, in the one it stands in, or in one of those above.
fn mark_of(path_base: &PathBase, path: &[u8], parent: &Dir, name: &[u8]) -> Option<Mark> {
    let read = |folder: &Dir| Mark::read(folder).ok().flatten();
    let own = if name.is_empty() { None } else { parent.open_dir(name).ok().and_then(|it| read(&it)) };
    let above = || path_base.above(path).iter().find_map(|folder| read(&path_base.open(folder).ok()?));
    own.or_else(|| read(parent)).or_else(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_nothing_else_is() {
        for stripe in [Stripe::File, Stripe::Chunk] {
            let mark = Mark { set: 0xfeed, volume: 3, of: 16, stripe };
            assert_eq!(Mark::parse(&mark.text()), Some(mark));
        }
        // What an earlier version reads is what it knows.
        assert!(Mark { set: 1, volume: 0, of: 1, stripe: Stripe::Chunk }.text().starts_with("longhaul-volume 2\n"));
        for text in [
            "",
            "longhaul-volume 3\nset 1\nvolume 0 of 1\n",
            "longhaul-volume 2\nset 1\nvolume 0 of 1\n",
            "longhaul-volume 1\nset x\nvolume 0 of 1\n",
        ] {
            assert_eq!(Mark::parse(text), None);
        }
        assert_eq!(Mark::parse("longhaul-volume 1\nset 1\nvolume 4 of 4\n"), None);
        assert_eq!(Mark::parse("longhaul-volume 1\nset 1\nvolume 0 of 60000\n"), None);
    }

    #[test]
    fn a_disk_that_failed_in_a_job_of_one_node_is_used_by_another_node() {
        let (one, other) = (FailedDisks::default(), FailedDisks::default());
        let said = one.out(&Gone { name: "/a".into(), why: "EIO".into(), before: false });
        assert!(said.contains("'/a'") && one.has("/a") && one.clone().has("/a") && !other.has("/a"));
        one.out(&Gone { name: "/b".into(), why: "EIO".into(), before: true });
        assert!(!one.has("/b"), "what failed before the job is tried again by the next");
    }
}
